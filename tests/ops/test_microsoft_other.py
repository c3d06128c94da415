"""com.microsoft operators that are not quantised, against ONNX Runtime or, where it has no CPU kernel, numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox
from test_microsoft_quantized import ONNX_TYPE, check, node_model

pytest.importorskip("onnxruntime")

F32 = TensorProto.FLOAT
rand = np.random.default_rng(1)


def floats(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return rand.standard_normal(shape).astype(dtype)


# --- fused products and convolutions

CONVS = [dict(x=(1, 6, 9, 8), w=(4, 6, 3, 3), pads=[1, 1, 1, 1]), dict(x=(2, 6, 9, 8), w=(6, 1, 3, 3), group=6, strides=[2, 2]),
         dict(x=(1, 4, 12), w=(6, 2, 5), group=2, dilations=[2]), dict(x=(1, 16, 5, 5), w=(8, 16, 1, 1), auto_pad="SAME_UPPER"),
         dict(x=(1, 2, 5, 4, 6), w=(3, 2, 2, 3, 2))]
CONV_ACTIVATIONS = [("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]), ("HardSigmoid", [0.3, 0.4])]


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("activation", CONV_ACTIVATIONS)
@pytest.mark.parametrize("with_sum", [False, True])
def test_fused_conv(case: dict[str, Any], activation: tuple[str, list[float]], with_sum: bool) -> None:
    attributes = {k: v for k, v in case.items() if k not in "xw"}
    inputs: dict[str, np.ndarray | None] = {"x": floats(*case["x"]), "w": floats(*case["w"]), "b": floats(case["w"][0]), "z": None}
    if with_sum:
        plain = helper.make_model(helper.make_graph(
            [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], "g",
            [helper.make_tensor_value_info(n, F32, inputs[n].shape) for n in ("x", "w")], [helper.make_tensor_value_info("y", F32, None)]),
            opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        inputs["z"] = floats(*tensorbox.Session(plain, compile=False).run({k: inputs[k] for k in "xw"})["y"].shape)
    name, parameters = activation
    attributes |= {"activation": name} | ({"activation_params": parameters} if parameters else {})
    model = node_model("FusedConv", inputs, F32, ("w", "b"), **attributes)
    check(model, inputs, rtol=1e-4, atol=1e-4, compiled=name in ("Relu", "Clip"))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log1p(np.exp(x))


@pytest.mark.parametrize("last", ["NhwcConv", "NhwcFusedConv"])
def test_nhwc_conv(last: str) -> None:
    """Against FusedConv in the other layout; NhwcFusedConv has a kernel in ONNX Runtime on some machines only."""
    x, w, b = floats(2, 6, 7, 8), floats(4, 3, 3, 3), floats(4)
    attributes: dict[str, Any] = dict(group=2, pads=[1, 1, 1, 1])
    z = floats(2, 4, 7, 8) if last == "NhwcFusedConv" else None
    if z is not None:
        attributes["activation"] = "Relu"
    channels_first = {"x": x, "w": w, "b": b, "z": z}
    from peers import expected

    want = expected(node_model("FusedConv", channels_first, F32, **attributes), {k: v for k, v in channels_first.items() if v is not None}, "ort")
    if last == "NhwcConv":
        w = np.moveaxis(w, 1, -1).copy()  # as onnxruntime.transformers turns the weights
    inputs = {"x": np.moveaxis(x, 1, -1).copy(), "w": w, "b": b, "z": None if z is None else np.moveaxis(z, 1, -1).copy()}
    if z is None:
        del inputs["z"]
    check(node_model(last, inputs, F32, ("w", "b"), **attributes), inputs, rtol=1e-4, atol=1e-4,
          want=[np.moveaxis(want[0], 1, -1)], compiled=True)


GEMM_ACTIVATIONS: list[tuple[str, dict[str, float]]] = [
    ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.1}), ("Elu", {"activation_alpha": 0.7}),
    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.6}), ("Softplus", {}), ("Softsign", {}),
    ("ThresholdedRelu", {"activation_alpha": 0.4}), ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
    ("ScaledTanh", {"activation_alpha": 1.2, "activation_beta": 0.8}), ("ParametricSoftplus", {"activation_alpha": 1.2, "activation_beta": 0.8})]


@pytest.mark.parametrize("activation", GEMM_ACTIVATIONS)
@pytest.mark.parametrize("form", [dict(), dict(transA=1, alpha=0.5), dict(transB=1, beta=0.25), dict(transA=1, transB=1, alpha=2.0)])
def test_fused_gemm(activation: tuple[str, dict[str, float]], form: dict[str, float]) -> None:
    a = floats(9, 5) if form.get("transA") else floats(5, 9)
    b = floats(7, 9) if form.get("transB") else floats(9, 7)
    inputs = {"a": a, "b": b, "c": floats(7) if "alpha" in form else floats(5, 1)}
    if not form:
        inputs["c"] = None
    model = node_model("FusedGemm", inputs, F32, ("b",), activation=activation[0], **activation[1], **form)
    check(model, inputs, rtol=1e-4, atol=1e-5, compiled=not form)


@pytest.mark.parametrize("op", ["TransposeMatMul", "FusedMatMul"])
@pytest.mark.parametrize("shapes,form", [(((4, 9), (9, 6)), dict(alpha=0.5)), (((9, 4), (6, 9)), dict(transA=1, transB=1)),
                                         (((2, 3, 4, 9), (9, 6)), dict()), (((2, 3, 9, 4), (1, 3, 9, 6)), dict(transA=1, alpha=-2.0))])
def test_transpose_matmul(op: str, shapes: tuple[tuple[int, ...], ...], form: dict[str, Any]) -> None:
    inputs = {"a": floats(*shapes[0]), "b": floats(*shapes[1])}
    check(node_model(op, inputs, F32, **form), inputs, rtol=1e-4, atol=1e-5)


def test_fused_matmul_activation() -> None:
    inputs = {"a": floats(2, 5, 4), "b": floats(6, 5)}
    product = np.matmul(inputs["a"].swapaxes(1, 2), inputs["b"].T)
    for activation, attributes, want in [("Relu", {}, np.maximum(product * np.float32(0.5), 0)), ("Tanh", {}, np.tanh(product * np.float32(0.5)))]:
        model = node_model("FusedMatMulActivation", inputs, F32, activation=activation, transA=1, transB=1, alpha=0.5, **attributes)
        check(model, inputs, rtol=1e-4, atol=1e-5, want=[want])
    e = np.exp(product - product.max(1, keepdims=True))
    model = node_model("FusedMatMulActivation", inputs, F32, activation="Softmax", activation_axis=1, transA=1, transB=1)
    check(model, inputs, rtol=1e-4, atol=1e-5, want=[e / e.sum(1, keepdims=True)])


def test_gemm_fast_gelu() -> None:
    inputs = {"x": floats(2, 3, 5), "w": floats(5, 4), "bias": floats(4)}
    v = np.matmul(inputs["x"], inputs["w"]) + inputs["bias"]
    want = 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    check(node_model("GemmFastGelu", inputs, F32), inputs, rtol=1e-4, atol=1e-5, want=[want.astype(np.float32)])


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 1], None])
@pytest.mark.parametrize("form", [dict(), dict(strides=[2, 2], output_padding=[1, 0]), dict(group=2, dilations=[2, 1])])
def test_conv_transpose_with_dynamic_pads(pads: list[int] | None, form: dict[str, Any]) -> None:
    inputs = {"x": floats(1, 4, 5, 6), "w": floats(4, 2, 3, 3), "pads": None if pads is None else np.array(pads, np.int64),
              "b": floats(2 * form.get("group", 1))}
    if pads is None:  # the reference wants padding here: the same as an attribute of ConvTranspose
        inputs["pads"] = np.zeros(4, np.int64)
    for constants in (("pads",), ()):
        check(node_model("ConvTransposeWithDynamicPads", inputs, F32, constants, **form), inputs, rtol=1e-4, atol=1e-4)


def test_bias_softmax_and_dropout() -> None:
    """No CPU kernels in ONNX Runtime: against the definition."""
    x = floats(2, 3, 4, 5)
    for axis, bias in [(3, floats(2, 1, 1, 5)), (2, floats(1, 1, 4, 5)), (3, floats(4, 5))]:
        v = (x + bias).reshape(int(np.prod(x.shape[:axis])), -1)
        e = np.exp(v - v.max(1, keepdims=True))
        inputs = {"x": x, "bias": bias}
        check(node_model("BiasSoftmax", inputs, F32, axis=axis, is_inner_broadcast=1), inputs, rtol=1e-5, atol=1e-6,
              want=[(e / e.sum(1, keepdims=True)).reshape(x.shape)])
    for residual in (None, floats(2, 3, 4, 5)):
        inputs = {"x": x, "bias": floats(5), "residual": residual}
        want = x + inputs["bias"] + (0 if residual is None else residual)
        check(node_model("BiasDropout", inputs, [F32, TensorProto.BOOL]), inputs, rtol=1e-6, atol=1e-6, want=[want, np.ones(x.shape, bool)])


# --- pooling


@pytest.mark.parametrize("case", [dict(x=(2, 3, 9), kernel_shape=[3]), dict(x=(2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 1]),
                                  dict(x=(1, 2, 7, 8), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                                  dict(x=(1, 2, 4, 5, 6), kernel_shape=[2, 2, 2], strides=[2, 1, 2])])
@pytest.mark.parametrize("density", [0.0, 0.2, 0.8, 1.0])
def test_maxpool_with_mask(case: dict[str, Any], density: float) -> None:
    attributes = {k: v for k, v in case.items() if k != "x"}
    mask = (rand.uniform(size=(1, 1, *case["x"][2:])) < density).astype(np.int32)
    inputs = {"x": floats(*case["x"]), "m": mask}
    check(node_model("MaxpoolWithMask", inputs, F32, **attributes), inputs)


# --- moving and making elements


def test_expand_dims() -> None:
    for x in (floats(3, 4), rand.integers(0, 9, (2,)).astype(np.int64), floats(2, 3).astype(np.float16)):
        for axis in range(-x.ndim - 1, x.ndim + 1):
            inputs = {"x": x, "axis": np.array(axis, np.int32)}
            for constants in (("axis",), ()):
                check(node_model("ExpandDims", inputs, ONNX_TYPE(x.dtype), constants), inputs)


def test_gather_nd() -> None:
    x = floats(3, 4, 5)
    for shape in [(2, 1), (2, 3, 2), (4, 3)]:
        for kind in (np.int32, np.int64):
            inputs = {"x": x, "i": rand.integers(0, 3, shape).astype(kind)}
            check(node_model("GatherND", inputs, F32), inputs)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    for align in (0, 1):
        inputs = {"x": floats(2, 3, 5, 6), "grid": rand.uniform(-1.3, 1.3, (2, 4, 3, 2)).astype(np.float32)}
        check(node_model("GridSample", inputs, F32, mode=mode, padding_mode=padding, align_corners=align), inputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    for pads in ([1, 0, 2, 1], [0, -1, 1, 0] if mode == "constant" else [0, 1, 0, 0]):
        for value in (None, np.array([2.5], np.float32)):
            inputs = {"x": floats(4, 5), "pads": np.array(pads, np.int64), "value": value}
            for constants in (("pads", "value"), ()):
                check(node_model("Pad", inputs, F32, constants, mode=mode), inputs)


def test_range() -> None:
    for kind in (np.float32, np.float64, np.int16, np.int32, np.int64):
        for bounds in [(1, 9), (2, 13, 3), (9, 1, -2), (5, 5), (3, 1)]:
            inputs = {name: np.array(v, kind) for name, v in zip("abc", bounds)}
            for constants in (tuple(inputs), ()):
                check(node_model("Range", inputs, ONNX_TYPE(np.dtype(kind)), constants), inputs)


def test_unique() -> None:
    for n in (0, 1, 40):
        inputs = {"x": rand.integers(0, 9, n).astype(np.float32)}
        check(node_model("Unique", inputs, [F32, TensorProto.INT64, TensorProto.INT64]), inputs)


def test_sample_op_and_quick_gelu() -> None:
    inputs = {"x": floats(2, 3)}
    check(node_model("SampleOp", inputs, F32), inputs)
    check(node_model("QuickGelu", inputs, F32, alpha=1.5), inputs, rtol=1e-5, atol=1e-6)


def test_torch_embedding() -> None:
    inputs = {"w": floats(7, 4), "i": rand.integers(0, 7, (2, 3)).astype(np.int64)}
    check(node_model("TorchEmbedding", inputs, F32), inputs, want=[inputs["w"][inputs["i"]]])


# --- arithmetic


def test_is_all_finite() -> None:
    for bad, attributes, want in [(1.0, {}, True), (np.inf, {}, False), (np.nan, {}, False), (np.nan, dict(isinf_only=1), True),
                                  (-np.inf, dict(isinf_only=1), False), (np.inf, dict(isnan_only=1), True)]:
        inputs = {"x": floats(3, 4), "y": np.array(bad, np.float32), "z": floats(2).astype(np.float32)}
        check(node_model("IsAllFinite", inputs, TensorProto.BOOL, **attributes), inputs, want=[np.array(want)])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_cdist(metric: str, kind: type) -> None:
    for m, k, n in [(5, 4, 3), (7, 3, 19), (1, 1, 1)]:
        inputs = {"a": floats(m, n, dtype=kind), "b": floats(k, n, dtype=kind)}
        check(node_model("CDist", inputs, ONNX_TYPE(np.dtype(kind)), metric=metric), inputs, rtol=1e-5, atol=1e-5, compiled=n == 19)


@pytest.mark.parametrize("op", ["ComplexMul", "ComplexMulConj"])
def test_complex_mul(op: str) -> None:
    inputs = {"a": floats(3, 4, 2), "b": floats(4, 2)}
    a, b = (v[..., 0] + 1j * v[..., 1] for v in inputs.values())
    c = a * (b.conj() if op.endswith("Conj") else b)
    check(node_model(op, inputs, F32), inputs, rtol=1e-5, atol=1e-6, want=[np.stack([c.real, c.imag], -1).astype(np.float32)])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_fourier(n: int) -> None:
    x = floats(2, 4, 6, 8)
    axes = tuple(range(-n, 0))
    spectrum = np.fft.rfftn(x, axes=axes)
    pairs = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    check(node_model("Rfft", {"x": x}, F32, signal_ndim=n, onesided=1, normalized=0), {"x": x}, rtol=1e-4, atol=1e-4, want=[pairs])
    check(node_model("Irfft", {"x": pairs}, F32, signal_ndim=n, onesided=1, normalized=0), {"x": pairs}, rtol=1e-4, atol=1e-4, want=[x])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_inverse(kind: type) -> None:
    for shape in [(3, 3), (2, 4, 4), (2, 3, 1, 1), (20, 20)]:
        inputs = {"x": floats(*shape, dtype=kind) + 4 * np.eye(shape[-1], dtype=kind)}
        check(node_model("Inverse", inputs, ONNX_TYPE(np.dtype(kind))), inputs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("crop", [(3, 4), (1, 1), (7, 1), (2, 9)])
def test_crop_and_resize(mode: str, crop: tuple[int, int]) -> None:
    boxes = rand.uniform(-0.2, 1.2, (5, 4)).astype(np.float32)
    boxes[0] = [0, 0, 1, 1]
    boxes[1] = [0.7, 0.8, 0.1, 0.2]
    inputs = {"x": floats(2, 3, 6, 7), "boxes": boxes, "images": np.array([0, 1, 1, 0, 1], np.int32), "crop": np.array(crop, np.int32)}
    for constants in (("crop",), ()):
        check(node_model("CropAndResize", inputs, F32, constants, mode=mode, extrapolation_value=-1.5), inputs, rtol=1e-5, atol=1e-5,
              compiled=bool(constants) and crop == (3, 4))


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64])
@pytest.mark.parametrize("positive", [0, 1])
def test_murmur_hash3(kind: type, positive: int) -> None:
    x = (rand.standard_normal((4, 5)) * 1e6).astype(kind) if kind in (np.float32, np.float64) else rand.integers(0, 2**31 - 1, (4, 5)).astype(kind)
    for seed in (0, 7):
        model = node_model("MurmurHash3", {"x": x}, TensorProto.UINT32 if positive else TensorProto.INT32, positive=positive, seed=seed)
        check(model, {"x": x}, compiled=seed == 7)


# --- tokens


def test_ngram_repeat_block() -> None:
    for n in (1, 2, 3, 9):
        inputs = {"ids": rand.integers(0, 4, (3, 8)).astype(np.int64), "scores": floats(3, 6)}
        check(node_model("NGramRepeatBlock", inputs, F32, ngram_size=n), inputs)


def test_bifurcation_detector() -> None:
    for trial in range(20):
        source = rand.integers(0, 4, 9).astype(np.int64)
        begin = int(rand.integers(0, 9))
        guess = np.append(source[begin:], 1).astype(np.int64)
        guess[rand.integers(0, len(guess)):] = 2
        inputs = {"source": source, "current": rand.integers(0, 4, 5).astype(np.int64), "at": np.array([begin], np.int64),
                  "guess": guess if trial % 3 else None}
        kinds = [TensorProto.INT64, TensorProto.INT64]
        check(node_model("BifurcationDetector", inputs, kinds, min_ngram_size=1, max_ngram_size=3), inputs)


def test_dynamic_time_warping() -> None:
    for shape in [(4, 6), (1, 5, 3), (1, 1), (7, 7), (1, 6)]:
        inputs = {"x": floats(*shape)}
        check(node_model("DynamicTimeWarping", inputs, TensorProto.INT32), inputs)
    inputs = {"x": np.zeros((3, 5), np.float32)}
    check(node_model("DynamicTimeWarping", inputs, TensorProto.INT32), inputs)


def test_word_conv_embedding() -> None:
    words = rand.integers(1, 9, (6, 7)).astype(np.int32)
    for i, length in enumerate((7, 3, 1, 2, 5, 7)):
        words[i, length:] = 0
    inputs = {"words": words, "w": floats(5, 1, 3, 4), "b": floats(5), "c": floats(9, 4)}
    for attributes in ({}, dict(embedding_size=5, conv_window_size=3, char_embedding_size=4)):
        check(node_model("WordConvEmbedding", inputs, F32, ("w", "b", "c"), **attributes), inputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op,inputs,attributes,message", [
    ("FusedConv", dict(x=(1, 2, 4, 4), w=(2, 2, 3, 3)), dict(activation="Nope"), "activation 'Nope'"),
    ("Inverse", dict(x=(2, 3)), {}, "not square"), ("CDist", dict(a=(2, 3), b=(2, 4)), {}, "differ in length"),
    ("CDist", dict(a=(2, 3), b=(2, 3)), dict(metric="cosine"), "metric 'cosine'"),
    ("Rfft", dict(x=(4,)), dict(signal_ndim=2), "signal_ndim is 2"),
    ("FusedMatMulActivation", dict(a=(2, 2), b=(2, 2)), {}, "activation")])
def test_refuses(op: str, inputs: dict[str, tuple[int, ...]], attributes: dict[str, Any], message: str) -> None:
    values = {name: np.zeros(shape, np.float32) for name, shape in inputs.items()}
    with pytest.raises((tensorbox.ModelError, tensorbox.UnsupportedError), match=f"(?s){message}"):
        tensorbox.Session(node_model(op, values, F32, **attributes), compile=False)
