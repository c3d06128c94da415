"""Normalisations and activations of com.microsoft against ONNX Runtime, and against numpy where its CPU kernels lack
a type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from peers import compare, model_of, tensorbox

Array = np.ndarray


def randn(seed: int, *shape: int, dtype: type = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model(op: str, inputs: Mapping[str, Array | None], outputs: Sequence[str] = ("y",), domain: str = "com.microsoft",
          types: Mapping[str, int] | None = None, **attributes: Any) -> onnx.ModelProto:
    m = model_of(op, inputs, outputs, 17, **({"domain": domain} if domain else {}), **attributes)
    for info in m.graph.output:
        if types and info.name in types:
            info.type.tensor_type.elem_type = types[info.name]
    return m


def layer_norm(x: Array, scale: Array, bias: Array | float, epsilon: float, with_mean: bool = True) -> Array:
    x = x.astype(np.float64)
    mean = x.mean(-1, keepdims=True) if with_mean else 0
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    return (x - mean) / deviation * scale + bias


def tolerance(dtype: type) -> dict[str, float]:
    return {"rtol": 5e-3, "atol": 5e-3} if dtype == np.float16 else {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("skip", [(2, 5, 16), (1, 5, 16), (5, 16)])
@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_skip_layer_normalization(dtype: type, skip: tuple[int, ...], beta: bool, bias: bool, total: bool) -> None:
    inputs = {"x": randn(0, 2, 5, 16, dtype=dtype), "skip": randn(1, *skip, dtype=dtype),
              "gamma": randn(2, 16, dtype=dtype), "beta": randn(3, 16, dtype=dtype) if beta else None,
              "bias": randn(4, 16, dtype=dtype) if bias else None}
    compare(model("SkipLayerNormalization", inputs, ["y", "", "", "sum"] if total else ["y"], epsilon=1e-4), inputs,
            engine="ort", **tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(2, 5, 16), (7, 16)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("total", [False, True])
def test_skip_simplified_layer_normalization(dtype: type, shape: tuple[int, ...], bias: bool, total: bool) -> None:
    inputs = {"x": randn(0, *shape, dtype=dtype), "skip": randn(1, *shape, dtype=dtype),
              "gamma": randn(2, 16, dtype=dtype), "bias": randn(4, 16, dtype=dtype) if bias else None}
    compare(model("SkipSimplifiedLayerNormalization", inputs, ["y", "", "", "sum"] if total else ["y"]), inputs,
            engine="ort", **tolerance(dtype))


def test_skip_layer_normalization_statistics() -> None:
    inputs = {"x": randn(0, 2, 5, 16), "skip": randn(1, 2, 5, 16), "gamma": randn(2, 16), "beta": None, "bias": None}
    total = inputs["x"] + inputs["skip"]
    mean = total.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    compare(model("SkipLayerNormalization", inputs, ["y", "mean", "inverse", "sum"], epsilon=1e-5), inputs,
            want=[(total - mean) * inverse * inputs["gamma"], mean, inverse, total])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [-1, 1])
def test_simplified_layer_normalization(dtype: type, axis: int) -> None:
    inputs = {"x": randn(0, 2, 5, 16, dtype=dtype), "scale": randn(1, *((16,) if axis == -1 else (5, 16)), dtype=dtype)}
    compare(model("SimplifiedLayerNormalization", inputs, domain="", axis=axis, epsilon=1e-6), inputs, engine="ort",
            **tolerance(dtype))


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("positions", [None, 1, 3])
def test_embed_layer_normalization(segments: bool, mask: bool, positions: int | None) -> None:
    g = np.random.default_rng(5)

    def ids(count: int, *shape: int) -> Array:
        return g.integers(0, count, shape).astype(np.int32)

    inputs = {"ids": ids(20, 3, 6), "segments": ids(2, 3, 6) if segments else None, "words": randn(0, 20, 12),
              "places": randn(1, 10, 12), "kinds": randn(2, 2, 12) if segments else None, "gamma": randn(3, 12),
              "beta": randn(4, 12), "mask": np.tri(6, dtype=np.int32)[[1, 3, 5]] if mask else None,
              "positions": ids(10, positions, 6) if positions else None}
    types = {"y": onnx.TensorProto.FLOAT, "sum": onnx.TensorProto.FLOAT}
    compare(model("EmbedLayerNormalization", inputs, ["y", "mask_index", "sum"], types=types), inputs, engine="ort")
    half = {k: v.astype(np.float16) if v is not None and v.dtype == np.float32 else v for k, v in inputs.items()}
    total = half["words"][half["ids"]].astype(np.float32)
    total += half["places"][np.arange(6)[None] if positions is None else half["positions"]]
    if segments:
        total += half["kinds"][half["segments"]]
    y = layer_norm(total, half["gamma"], half["beta"], 1e-12)
    types = {"y": onnx.TensorProto.FLOAT16}
    compare(model("EmbedLayerNormalization", half, types=types), half, want=[y.astype(np.float16)], rtol=1e-2,
            atol=1e-2)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_quantised_embed_layer_normalization(segments: bool, mask: bool, dtype: type) -> None:
    g = np.random.default_rng(6)
    limits = np.iinfo(dtype)

    def table(*shape: int) -> Array:
        return g.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def ids(count: int) -> Array:
        return g.integers(0, count, (3, 6)).astype(np.int32)

    names = ["words", "places", "kinds", "gamma", "beta"]
    inputs = {"ids": ids(20), "segments": ids(2) if segments else None, "words": table(20, 12), "places": table(10, 12),
              "kinds": table(2, 12) if segments else None, "gamma": table(12), "beta": table(12),
              "mask": np.tri(6, dtype=np.int32)[[1, 3, 5]] if mask else None}
    for kind, value in (("scale", np.float32(0.02)), ("zero", dtype(7))):
        inputs |= {f"{name}_{kind}": np.array(value) if inputs[name] is not None else None for name in names}
    m = model("QEmbedLayerNormalization", inputs, ["y", "mask_index"], types={"y": onnx.TensorProto.FLOAT})
    compare(m, inputs, engine="ort")


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("skip", [None, "full", "one", "flat"])
@pytest.mark.parametrize("types", [(np.float32, np.float32), (np.float16, np.float32), (np.float16, np.float16)])
def test_group_norm(last: int, activation: int, skip: str | None, types: tuple[type, type]) -> None:
    dtype, parameters = types
    x = randn(0, 2, 3, 5, 8, dtype=dtype)
    inputs: dict[str, Array | None] = {"x": x, "gamma": randn(1, 8, dtype=parameters),
                                       "beta": randn(2, 8, dtype=parameters)}
    total = x.astype(np.float32)
    if skip:
        inputs["skip"] = randn(3, *{"full": (2, 3, 5, 8), "one": (2, 1, 1, 8), "flat": (2, 8)}[skip], dtype=dtype)
        inputs["bias"] = randn(4, 8, dtype=dtype) if skip != "one" else None
        term = inputs["skip"].astype(np.float32)
        total = total + (term[:, None, None] if term.ndim == 2 else term)
        total = total if inputs["bias"] is None else total + inputs["bias"]
    grouped = total.astype(dtype).astype(np.float64).reshape(2, 15, 4, 2)
    mean = grouped.mean((1, 3), keepdims=True)
    y = (grouped - mean) / np.sqrt(((grouped - mean) ** 2).mean((1, 3), keepdims=True) + 1e-5)
    y = y.reshape(total.shape) * inputs["gamma"] + inputs["beta"]
    y = y / (1 + np.exp(-y)) if activation else y
    want = [y.astype(dtype), total.astype(dtype)][:2 if skip else 1]
    if not last:
        order = (0, 3, 1, 2)
        inputs["x"] = x.transpose(order).copy()
        if skip and inputs["skip"].ndim == 4:
            inputs["skip"] = inputs["skip"].transpose(order).copy()
        want = [w.transpose(order) for w in want]
    m = model("SkipGroupNorm" if skip else "GroupNorm", inputs, ["y", "sum"] if skip else ["y"], groups=4,
              activation=activation, channels_last=last)
    compare(m, inputs, want=want, **tolerance(dtype))


def erf_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def tanh_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {"Gelu": erf_gelu, "BiasGelu": erf_gelu, "FastGelu": tanh_gelu, "QuickGelu": None}


@pytest.mark.parametrize("op", ACTIVATIONS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_gelus(op: str, bias: bool, dtype: type) -> None:
    if bias != (op == "BiasGelu") and op != "FastGelu":
        pytest.skip("the operator has no such form")
    inputs = {"x": 3 * randn(0, 2, 5, 16, dtype=dtype), "bias": randn(1, 16, dtype=dtype) if bias else None}
    attributes = {"alpha": 1.3} if op == "QuickGelu" else {}
    m = model(op, inputs, **attributes)
    if dtype == np.float32:
        compare(m, inputs, engine="ort")
    x = inputs["x"].astype(np.float64) + (inputs["bias"].astype(np.float64) if bias else 0)
    y = x / (1 + np.exp(-1.3 * x)) if op == "QuickGelu" else ACTIVATIONS[op](x)
    compare(m, inputs, want=[y.astype(dtype)], **tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bias_add_and_split(dtype: type) -> None:
    x, bias, skip = randn(0, 2, 5, 16, dtype=dtype), randn(1, 16, dtype=dtype), randn(2, 2, 5, 16, dtype=dtype)
    wide = [v.astype(np.float64) for v in (x, bias, skip)]
    inputs = {"x": x, "bias": bias, "skip": skip}
    compare(model("BiasAdd", inputs), inputs, want=[sum(wide).astype(dtype)], **tolerance(dtype))
    left, right = np.split(wide[0] + wide[1], 2, -1)
    inputs = {"x": x, "bias": bias}
    compare(model("BiasSplitGelu", inputs), inputs, want=[(left * erf_gelu(right)).astype(dtype)], **tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shapes,attributes", [
    (((3, 4), (4, 5)), {"alpha": 0.5}), (((4, 3), (5, 4)), {"transA": 1, "transB": 1}),
    (((2, 3, 4), (2, 5, 4)), {"transB": 1, "alpha": -2.0}), (((2, 6, 3, 4), (6, 4, 5)), {}),
    (((3, 2, 4), (2, 4, 5)), {"transBatchA": 1}), (((3, 2, 4), (4, 2, 5)), {"transBatchA": 1, "transBatchB": 1}),
    (((4, 2, 3), (2, 4, 5)), {"transBatchA": 1, "transA": 1}), (((4,), (4, 5)), {}), (((2, 3, 4), (4,)), {})])
def test_fused_matmul(dtype: type, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any]) -> None:
    inputs = {"a": randn(0, *shapes[0], dtype=dtype), "b": randn(1, *shapes[1], dtype=dtype)}
    m = model("FusedMatMul", inputs, **attributes)
    if dtype != np.float16:
        return compare(m, inputs, engine="ort", atol=1e-4)
    a, b = (v.astype(np.float32) for v in inputs.values())
    for side, value in (("A", a), ("B", b)):
        order = list(range(value.ndim))
        if attributes.get(f"transBatch{side}"):
            order = [*order[1:-1], 0, order[-1]]
        if attributes.get(f"trans{side}"):
            order[-1], order[-2] = order[-2], order[-1]
        a, b = (value.transpose(order), b) if side == "A" else (a, value.transpose(order))
    compare(m, inputs, want=[(a @ b * attributes.get("alpha", 1)).astype(dtype)], **tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -2, 0, 3, 100])
def test_trilu(dtype: type, upper: int, k: int | None) -> None:
    x = (10 * randn(0, 2, 4, 6)).astype(dtype)
    inputs = {"x": x, "k": None if k is None else np.array(k, np.int64)}
    want = np.triu(x, k or 0) if upper else np.tril(x, k or 0)
    compare(model("Trilu", inputs, upper=upper), inputs, want=[want])


@pytest.mark.parametrize("op,inputs,attributes,message", [
    ("GroupNorm", {"x": (1, 2, 2, 6), "g": (6,), "b": (6,)}, {"groups": 4, "activation": 0}, "not divisible"),
    ("GroupNorm", {"x": (1, 2, 2, 6), "g": (6,), "b": (6,)}, {"groups": 2, "activation": 7}, "activation is 7"),
    ("GroupNorm", {"x": (1, 2, 2, 6), "g": (5,), "b": (6,)}, {"groups": 2, "activation": 0}, "numbers of channels"),
    ("FusedMatMul", {"a": (2, 3), "b": (4, 5)}, {}, "inner dimensions differ")])
def test_refuses(op: str, inputs: dict[str, tuple[int, ...]], attributes: dict[str, int], message: str) -> None:
    arrays = {name: np.ones(shape, np.float32) for name, shape in inputs.items()}
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model(op, arrays, **attributes), compile=False)


def test_layer_normalization_before_opset_17() -> None:
    inputs = {"x": randn(0, 2, 5, 16), "scale": randn(1, 16), "bias": randn(2, 16)}
    compare(model_of("LayerNormalization", inputs, ["y"], 14, epsilon=1e-3), inputs, engine="ort")
