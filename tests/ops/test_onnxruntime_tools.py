"""Models as ONNX Runtime's own tools write them (quantised, of half precision, saved by its optimiser), against it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import REFERENCE_SATURATES, tensorbox

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

TYPES, FORMATS = quantization.QuantType, quantization.QuantFormat
LEVELS = {"basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
          "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL}
Feeds = dict[str, np.ndarray]


class Weights:
    """Initializers of a growing graph, by name."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)
        self.tensors: list[TensorProto] = []

    def __call__(self, name: str, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        values = self.rng.standard_normal(shape) / np.sqrt(fan_in) if len(shape) > 1 else self.rng.uniform(0.5, 1.5, shape)
        self.tensors.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name


def model_of(nodes: list[onnx.NodeProto], w: Weights, x: tuple[int, ...], y: tuple[int, ...]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)], w.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def convolutional() -> tuple[onnx.ModelProto, Feeds]:
    """Stem, pool, depthwise block with squeeze and excitation, residual sum, concatenation, enlargement, head."""
    w, n = Weights(), helper.make_node
    w.tensors.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    nodes = [
        n("Conv", ["x", w("w0", 16, 3, 3, 3), w("b0", 16)], ["c0"], pads=[1] * 4, strides=[2, 2]), n("Relu", ["c0"], ["r0"]),
        n("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        n("Conv", ["p0", w("w1", 24, 16, 1, 1), w("b1", 24)], ["c1"]), n("HardSigmoid", ["c1"], ["g1"], alpha=1 / 6, beta=0.5),
        n("Mul", ["c1", "g1"], ["h1"]),
        n("Conv", ["h1", w("w2", 24, 1, 3, 3), w("b2", 24)], ["c2"], group=24, pads=[1] * 4), n("LeakyRelu", ["c2"], ["l2"], alpha=0.1),
        n("GlobalAveragePool", ["l2"], ["s3"]), n("Conv", ["s3", w("w3", 24, 24, 1, 1), w("b3", 24)], ["c3"]),
        n("Sigmoid", ["c3"], ["g3"]), n("Mul", ["l2", "g3"], ["m3"]),
        n("Conv", ["m3", w("w4", 16, 24, 1, 1), w("b4", 16)], ["c4"]), n("Add", ["c4", "p0"], ["a4"]),
        n("AveragePool", ["a4"], ["v5"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Resize", ["v5", "", "scales"], ["u5"], nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
        n("Concat", ["a4", "u5"], ["k5"], axis=1), n("Conv", ["k5", w("w6", 20, 32, 3, 3), w("b6", 20)], ["c6"]),
        n("Clip", ["c6", "low", "high"], ["r6"]), n("ReduceMean", ["r6"], ["d6"], axes=[2, 3], keepdims=0),
        n("Gemm", ["d6", w("w7", 20, 10), w("b7", 10)], ["y"])]
    w.tensors += [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in [("low", 0), ("high", 6)]]
    return model_of(nodes, w, (2, 3, 32, 32), (2, 10)), {"x": w.rng.standard_normal((2, 3, 32, 32)).astype(np.float32)}


def sequential() -> tuple[onnx.ModelProto, Feeds]:
    """A layer of attention, a feed-forward part with a Gelu, an LSTM."""
    w, n = Weights(), helper.make_node
    w.tensors += [numpy_helper.from_array(np.array(v, np.float32), name)
                  for name, v in [("third", 0.25), ("root", np.sqrt(2)), ("one", 1), ("half", 0.5)]]
    w.tensors.append(numpy_helper.from_array(np.array([2, 6, 4, 16]), "heads"))
    w.tensors.append(numpy_helper.from_array(np.array([2, 6, 64]), "joined"))
    nodes = [n("LayerNormalization", ["x", w("g0", 64), w("b0", 64)], ["n0"], axis=-1)]
    for part, perm in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])]:
        nodes += [n("MatMul", ["n0", w(f"w{part}", 64, 64)], [f"m{part}"]), n("Add", [f"m{part}", w(f"b{part}", 64)], [f"a{part}"]),
                  n("Reshape", [f"a{part}", "heads"], [f"h{part}"]), n("Transpose", [f"h{part}"], [part], perm=perm)]
    nodes += [n("MatMul", ["q", "k"], ["s"]), n("Mul", ["s", "third"], ["t"]), n("Softmax", ["t"], ["p"], axis=-1),
              n("MatMul", ["p", "v"], ["o"]), n("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]), n("Reshape", ["ot", "joined"], ["oj"]),
              n("MatMul", ["oj", w("wo", 64, 64)], ["mo"]), n("Add", ["mo", "x"], ["r1"]),
              n("MatMul", ["r1", w("w2", 64, 128)], ["m2"]), n("Add", ["m2", w("b2", 128)], ["a2"]), n("Div", ["a2", "root"], ["e0"]),
              n("Erf", ["e0"], ["e1"]), n("Add", ["e1", "one"], ["e2"]), n("Mul", ["a2", "e2"], ["e3"]), n("Mul", ["e3", "half"], ["e4"]),
              n("MatMul", ["e4", w("w3", 128, 64)], ["m3"]), n("Add", ["m3", "r1"], ["r3"]),
              n("LSTM", ["r3", w("wl", 1, 128, 64), w("rl", 1, 128, 32)], ["ys"], hidden_size=32), n("Flatten", ["ys"], ["f"], axis=3),
              n("MatMul", ["f", w("w5", 32, 8)], ["y"])]
    return model_of(nodes, w, (2, 6, 64), (12, 8)), {"x": w.rng.standard_normal((2, 6, 64)).astype(np.float32)}


def mixed() -> tuple[onnx.ModelProto, Feeds]:
    """Operators that quantisers treat one by one: movement, selection, resampling, plain activations."""
    w, n = Weights(), helper.make_node
    constants = {"halves": [8, 8], "pads": [0, 0, 1, 1, 0, 0, 1, 1], "picked": [0, 2, 5, 1], "rows": [2, -1], "first": [1], "last": [9],
                 "height": [2]}
    w.tensors += [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()]
    w.tensors += [numpy_helper.from_array(np.array(v, np.float32), name)
                  for name, v in [("padding", 0.3), ("scales", [1, 1, 2, 2]), ("tenth", 0.1)]]
    nodes = [
        n("Conv", ["x", w("w0", 16, 3, 3, 3)], ["c0"], pads=[1] * 4),
        n("BatchNormalization", ["c0", w("bs", 16), w("bb", 16), w("bm", 16), w("bv", 16)], ["n0"]),
        n("PRelu", ["n0", w("slope", 16, 1, 1)], ["r0"]), n("Split", ["r0", "halves"], ["a", "b"], axis=1),
        n("Softmax", ["a"], ["sa"], axis=-1), n("Tanh", ["b"], ["tb"]), n("Max", ["sa", "tb"], ["most"]), n("Min", ["sa", "tb"], ["least"]),
        n("Concat", ["most", "least"], ["k"], axis=1), n("Pad", ["k", "pads", "padding"], ["p"]),
        n("Resize", ["p", "", "scales"], ["u"], mode="linear", coordinate_transformation_mode="half_pixel"),
        n("ConvTranspose", ["u", w("wt", 16, 8, 2, 2), w("bt", 8)], ["ct"], strides=[2, 2]),
        n("InstanceNormalization", ["ct", w("is", 8), w("ib", 8)], ["in"]), n("Slice", ["in", "first", "last", "height"], ["cut"]),
        n("Greater", ["cut", "tenth"], ["above"]), n("Where", ["above", "cut", "tenth"], ["wh"]),
        n("Gather", ["wh", "picked"], ["ga"], axis=1), n("Transpose", ["ga"], ["tr"], perm=[0, 2, 3, 1]), n("Elu", ["tr"], ["el"]),
        n("HardSwish", ["el"], ["hs"]), n("Abs", ["hs"], ["ab"]), n("Sqrt", ["ab"], ["sq"]), n("Sub", ["sq", "tenth"], ["sb"]),
        n("Div", ["sb", w("divisor", 4)], ["dv"]), n("ReduceMean", ["dv"], ["rm"], axes=[1], keepdims=0),
        n("Reshape", ["rm", "rows"], ["f"]), n("Gemm", ["f", w("wg", 6, 160), w("bg", 6)], ["gm"], transB=1, alpha=0.5),
        n("DepthToSpace", ["u"], ["ds"], blocksize=2), n("GlobalMaxPool", ["ds"], ["mp"]), n("Reshape", ["mp", "rows"], ["mf"]),
        n("ArgMax", ["mf"], ["am"], axis=1, keepdims=1), n("Cast", ["am"], ["af"], to=TensorProto.FLOAT),
        n("Concat", ["gm", "mf", "af"], ["y"], axis=1)]
    return model_of(nodes, w, (2, 3, 8, 8), (2, 11)), {"x": w.rng.standard_normal((2, 3, 8, 8)).astype(np.float32)}


NETWORKS = {"convolutional": convolutional, "sequential": sequential, "mixed": mixed}


def check(path: Path, feeds: Feeds, limit: float) -> None:
    """Relative L2 distance from ONNX Runtime of the same file, not optimised further."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: feeds[i.name].astype(np.float16 if i.type == "tensor(float16)" else np.float32) for i in session.get_inputs()}
    want = session.run(None, feeds)[0].astype(np.float64)
    got = tensorbox.Session(path, compile=False).run(feeds)[session.get_outputs()[0].name].astype(np.float64)
    assert np.linalg.norm(got - want) <= limit * np.linalg.norm(want)


def optimise(source: Path, target: Path, level: str) -> Path:
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return target


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, feeds: Feeds) -> None:
        self.batches = [{k: v * f for k, v in feeds.items()} for f in np.array([1, 0.7], np.float32)]

    def get_next(self) -> Feeds | None:
        return self.batches.pop() if self.batches else None


def static(file_format: Any, activations: Any, weights: Any, per_channel: bool = False, **extra: Any) -> Callable[..., None]:
    return lambda source, target, feeds: quantization.quantize_static(
        source, target, Calibration(feeds), quant_format=file_format, activation_type=activations, weight_type=weights,
        per_channel=per_channel, reduce_range=weights == TYPES.QInt8, extra_options=extra)


def dynamic(weights: Any, per_channel: bool = False) -> Callable[..., None]:
    return lambda source, target, feeds: quantization.quantize_dynamic(  # weights of channels are s8 for any type
        source, target, weight_type=weights, per_channel=per_channel,
        reduce_range=weights == TYPES.QInt8 or (per_channel and REFERENCE_SATURATES))


# Of 8 bits one step of a value that two engines round differently shows in the result; of 16 bits it hardly does.
QUANTISERS = {
    "QDQ, u8 and s8": (static(FORMATS.QDQ, TYPES.QUInt8, TYPES.QInt8), 5e-3),
    "QDQ, s8 by channel": (static(FORMATS.QDQ, TYPES.QInt8, TYPES.QInt8, True), 5e-3),
    "QDQ, u8 and u8": (static(FORMATS.QDQ, TYPES.QUInt8, TYPES.QUInt8), 5e-3),
    "QDQ, u16 and s8": (static(FORMATS.QDQ, TYPES.QUInt16, TYPES.QInt8, UseQDQContribOps=True), 2e-4),
    "QDQ, s16 and s8 by channel": (static(FORMATS.QDQ, TYPES.QInt16, TYPES.QInt8, True, ActivationSymmetric=True), 2e-4),
    "QDQ, u8 and s4 by channel": (static(FORMATS.QDQ, TYPES.QUInt8, TYPES.QInt4, True), 5e-3),
    "QDQ, u16 and u4": (static(FORMATS.QDQ, TYPES.QUInt16, TYPES.QUInt4, UseQDQContribOps=True), 2e-4),
    "operators, u8 and s8 by channel": (static(FORMATS.QOperator, TYPES.QUInt8, TYPES.QInt8, True), 5e-3),
    "operators, u8 and u8": (static(FORMATS.QOperator, TYPES.QUInt8, TYPES.QUInt8), 5e-3),
    "operators, s8 and s8": (static(FORMATS.QOperator, TYPES.QInt8, TYPES.QInt8), 5e-3),
    "dynamic, s8": (dynamic(TYPES.QInt8), 5e-3),
    "dynamic, u8 by channel": (dynamic(TYPES.QUInt8, per_channel=True), 5e-3),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("how", QUANTISERS)
def test_quantised(network: str, how: str, tmp_path: Path) -> None:
    """As the tool wrote it, and after ONNX Runtime's optimiser."""
    model, feeds = NETWORKS[network]()
    source, target = tmp_path / "source.onnx", tmp_path / "target.onnx"
    onnx.save(model, source)
    quantise, limit = QUANTISERS[how]
    quantise(source, target, feeds)
    check(target, feeds, limit)
    for level in ("extended", "all"):
        check(optimise(target, tmp_path / f"{level}.onnx", level), feeds, limit)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("level", LEVELS)
def test_optimised(network: str, level: str, tmp_path: Path) -> None:
    model, feeds = NETWORKS[network]()
    source = tmp_path / "source.onnx"
    onnx.save(model, source)
    check(optimise(source, tmp_path / "target.onnx", level), feeds, 1e-5)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("keep", [False, True])
def test_half_precision(network: str, keep: bool, tmp_path: Path) -> None:
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    model, feeds = NETWORKS[network]()
    target = tmp_path / "half.onnx"
    onnx.save(float16.convert_float_to_float16(model, keep_io_types=keep, op_block_list=["LSTM", "Resize"]), target)
    check(target, feeds, 2e-3)
    check(optimise(target, tmp_path / "all.onnx", "all"), feeds, 2e-3)
