"""Normalisations and sums with gates, mixed residual streams: against numpy, and against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers import compare, expected, model_of, tensorbox

Arrays = dict[str, np.ndarray | None]
KINDS = ["float32", "float16", "bfloat16"]


def dtype_of(kind: str) -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16 if kind == "bfloat16" else np.dtype(kind)


def random(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def rms(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(epsilon))


def check(op: str, inputs: Arrays, want: list[np.ndarray], **a: Any) -> None:
    """`want` in f32 or as it is to be stored, of the type of the first input."""
    first = next(value for value in inputs.values() if value is not None)
    want = [w.astype(first.dtype) for w in want]
    names = ["Y", "Z"][:len(want)]
    model = model_of(op, inputs, names, 17, domain="com.microsoft", **a)
    for info in model.graph.output:
        info.type.tensor_type.elem_type = model.graph.input[0].type.tensor_type.elem_type
    tolerance = {"float32": 1e-5, "float16": 2e-3}.get(str(first.dtype), 1.6e-2)  # a last bit of the type
    compare(model, inputs, rtol=tolerance, atol=tolerance / 10, want=want)
    fed = {name: value for name, value in inputs.items() if value is not None}
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return
    if str(first.dtype) != "bfloat16" and all(str(value.dtype) != "bfloat16" for value in fed.values()):
        for w, theirs in zip(want, expected(model, fed, "ort"), strict=True):
            np.testing.assert_allclose(wide(w), wide(theirs), tolerance, tolerance / 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_rms_norm(kind: str, activation: str) -> None:
    rng, dtype = np.random.default_rng(1), dtype_of(kind)
    for shape, c in (((2, 3, 32), 8), ((5, 7), 7), ((24,), 3), ((0, 8), 4), ((3, 65, 256), 128)):
        x, scale, gate = random(rng, dtype, *shape), random(rng, dtype, c), random(rng, dtype, *shape)
        y = rms(wide(x).reshape(*shape[:-1], shape[-1] // c, c), 1e-3) * wide(scale)
        z = wide(gate)
        want = y.reshape(shape) * (sigmoid(z) if activation == "sigmoid" else z * sigmoid(z))
        check("GatedRMSNorm", {"x": x, "scale": scale, "gate": gate}, [want], activation=activation, epsilon=1e-3)


@pytest.mark.parametrize("kind,scale_kind", [(kind, "float32") for kind in KINDS] + [("float32", "float16"), ("float16", "float16"),
                                                                                     ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("flat", [True, False])
def test_branchwise_rms_norm(kind: str, scale_kind: str, flat: bool) -> None:
    rng, dtype = np.random.default_rng(2), dtype_of(kind)
    for lead in ((2, 3), (5,), (), (0, 2)):
        for scale_shape in ((32,), (4, 8), (8,), None):
            x = random(rng, dtype, *lead, 4, 8)
            scale = None if scale_shape is None else random(rng, dtype_of(scale_kind), *scale_shape)
            want = rms(wide(x))
            if scale is not None:
                want = want * (wide(scale).reshape(4, 8) if scale.size == 32 else wide(scale))
            shape = (*lead, 32) if flat else (*lead, 4, 8)
            check("BranchwiseRMSNorm", {"x": x.reshape(shape), "scale": scale}, [want.reshape(shape)], **({"num_branches": 4} if flat else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_gated_add(kind: str) -> None:
    rng, dtype = np.random.default_rng(3), dtype_of(kind)
    for lead in ((2, 3), (), (0,)):
        x, y, gate = random(rng, dtype, *lead, 8), random(rng, dtype, *lead, 8), random(rng, dtype, *lead, 1)
        check("GatedAdd", {"x": x, "y": y, "gate": gate}, [wide(x) + wide((wide(y) * wide(gate)).astype(dtype))])


@pytest.mark.parametrize("kind", KINDS)
def test_linear_attention_gate(kind: str) -> None:
    rng, dtype = np.random.default_rng(4), dtype_of(kind)
    for shape in ((2, 3, 5), (1, 0, 4)):
        a, b = random(rng, dtype, *shape) * dtype.type(8) if kind != "bfloat16" else random(rng, dtype, *shape), random(rng, dtype, *shape)
        bias, scale = random(rng, np.float32, shape[-1]), -np.abs(random(rng, np.float32, shape[-1]))
        decay, beta = scale * np.logaddexp(wide(a) + bias, 0), sigmoid(wide(b))
        check("LinearAttentionGate", {"a": a, "bias": bias, "scale": scale, "b": b}, [decay, beta])
        check("LinearAttentionGate", {"a": a, "bias": bias, "scale": scale}, [decay])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale_kind", [None, *KINDS])
def test_scaled_silu(kind: str, scale_kind: str | None) -> None:
    rng, dtype = np.random.default_rng(5), dtype_of(kind)
    for shape in ((2, 3, 8), (), (0,)):
        x = random(rng, dtype, *shape).astype(dtype)
        scale = None if scale_kind is None else np.asarray(1.7).astype(dtype_of(scale_kind))
        z = wide((np.float32(1.3 if scale is None else scale) * wide(x)).astype(dtype))
        check("ScaledSiLU", {"x": np.asarray(x), "scale": scale}, [np.asarray(z * wide(sigmoid(z).astype(dtype)))], alpha=1.3)


@pytest.mark.parametrize("kind,gate_kind", [(kind, "float32") for kind in KINDS] + [("float32", "float16"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("flat", [True, False])
def test_hyper_connection_pre_mix(kind: str, gate_kind: str, flat: bool) -> None:
    rng, dtype = np.random.default_rng(6), dtype_of(kind)
    for lead in ((2, 3), (), (0, 2), (2, 300)):
        for suffix in ((4,), (4, 1), (4, 8), (32,)) if flat else ((4,), (4, 1), (4, 8)):
            x, mix = random(rng, dtype, *lead, 4, 8), random(rng, dtype_of(gate_kind), *lead, *suffix)
            want = np.float32(0.5) * (wide(x) * wide(mix).reshape(*lead, 4, 8 if np.prod(suffix) == 32 else 1)).sum(-2)
            check("HyperConnectionPreMix", {"x": x.reshape(*lead, 32) if flat else x, "mix": mix}, [want], reduction_scale=0.5,
                  **({"num_branches": 4} if flat else {}))


@pytest.mark.parametrize("kind,gate_kind", [(kind, "float32") for kind in KINDS] + [("float32", "float16"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_hyper_connection_post_mix(kind: str, gate_kind: str, flat: bool, mixed: bool) -> None:
    rng, dtype, gates = np.random.default_rng(7), dtype_of(kind), dtype_of(gate_kind)
    for lead in ((2, 3), (), (0, 2), (2, 300)):
        for suffix in ((4,), (4, 1), (4, 8)):
            x, block = random(rng, dtype, *lead, 4, 8), random(rng, dtype, *lead, 8)
            post, matrix = random(rng, gates, *lead, *suffix), random(rng, gates, *lead, 4, 4) if mixed else None
            want = np.einsum("...ck,...ch->...kh", wide(matrix), wide(x)) if mixed else wide(x)
            want = want + wide(post).reshape(*lead, 4, 8 if np.prod(suffix) == 32 else 1) * wide(block)[..., None, :]
            shape = (*lead, 32) if flat else (*lead, 4, 8)
            check("HyperConnectionPostMix", {"x": x.reshape(shape), "block": block, "post": post, "matrix": matrix}, [want.reshape(shape)],
                  **({"num_branches": 4} if flat else {}))


@pytest.mark.parametrize("kind", KINDS)
def test_engram_gate(kind: str) -> None:
    rng, dtype = np.random.default_rng(8), dtype_of(kind)
    for b, t, c, h in ((2, 3, 4, 8), (1, 1, 1, 5), (2, 0, 4, 8), (1, 40, 2, 64)):
        inputs = {"key": random(rng, dtype, b, t, c, h), "query": random(rng, dtype, b, t, c, h), "value": random(rng, dtype, b, t, h),
                  "ks": random(rng, dtype, c, h), "qs": random(rng, dtype, c, h), "cs": random(rng, dtype, c, h)}
        w = {name: wide(value) for name, value in inputs.items()}
        dot = (rms(w["key"]) * w["ks"] * rms(w["query"]) * w["qs"]).sum(-1) / np.sqrt(np.float32(h))
        gate = sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6)))
        y = (gate[..., None] * w["value"][:, :, None]).astype(dtype)
        check("EngramGate", inputs, [y, rms(wide(y)) * w["cs"]])
        check("EngramGate", inputs | {"cs": None}, [y])


@pytest.mark.parametrize("op,shapes,outputs,attributes", [
    ("GatedRMSNorm", ((3, 5, 64), (32,), (3, 5, 64)), 1, {}), ("BranchwiseRMSNorm", ((3, 5, 128), (128,)), 1, {"num_branches": 4}),
    ("GatedAdd", ((3, 33), (3, 33), (3, 1)), 1, {}), ("LinearAttentionGate", ((2, 5, 8), (8,), (8,), (2, 5, 8)), 2, {}),
    ("ScaledSiLU", ((3, 33), ()), 1, {}), ("HyperConnectionPreMix", ((5, 128), (5, 4)), 1, {"num_branches": 4}),
    ("HyperConnectionPostMix", ((5, 4, 32), (5, 32), (5, 4), (5, 4, 4)), 1, {}),
    ("EngramGate", ((1, 5, 4, 32), (1, 5, 4, 32), (1, 5, 32), (4, 32), (4, 32), (4, 32)), 2, {})])
@pytest.mark.parametrize("dynamic", [True, False])
def test_compiled(op: str, shapes: tuple[tuple[int, ...], ...], outputs: int, attributes: dict[str, Any], dynamic: bool) -> None:
    rng = np.random.default_rng(9)
    inputs = {f"in{i}": np.asarray(rng.standard_normal(shape), np.float32) for i, shape in enumerate(shapes)}
    model = model_of(op, inputs, ["Y", "Z"][:outputs], 17, domain="com.microsoft", **attributes)
    for info in model.graph.output:
        info.type.tensor_type.elem_type = 1
    want = tensorbox.Session(model, compile=False).run(inputs)
    got = tensorbox.Session(model, all_dims_dynamic=dynamic).run(inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, 1e-5, 1e-6)


@pytest.mark.parametrize("op,shapes,attributes,message", [
    ("GatedRMSNorm", ((2, 9), (4,), (2, 9)), {}, "multiple of scale"), ("GatedRMSNorm", ((2, 8), (4,), (2, 8)), {"activation": "tanh"}, "'tanh'"),
    ("GatedRMSNorm", ((2, 8), (4,), (3, 8)), {}, "X and gate"), ("GatedRMSNorm", ((2, 8), (0,), (2, 8)), {}, "scale is empty"),
    ("BranchwiseRMSNorm", ((2, 9), (4,)), {"num_branches": 2}, "multiple of num_branches"), ("BranchwiseRMSNorm", ((8,),), {}, "rank 1"),
    ("BranchwiseRMSNorm", ((2, 8), (5,)), {"num_branches": 2}, "scale has size 5"), ("GatedAdd", ((2, 8), (2, 8), (2, 8)), {}, "gate"),
    ("BranchwiseRMSNorm", ((2, 8),), {"num_branches": -1}, "num_branches is -1"),
    ("GatedAdd", ((2, 8), (2, 7), (2, 1)), {}, "X and Y"), ("LinearAttentionGate", ((1, 2, 3), (4,), (3,)), {}, "dt_bias"),
    ("ScaledSiLU", ((2,), (1,)), {}, "expected a scalar"), ("HyperConnectionPreMix", ((2, 4, 8), (2, 3)), {}, "pre_mix"),
    ("HyperConnectionPreMix", ((2, 4, 8), (1, 4)), {}, "pre_mix"), ("HyperConnectionPostMix", ((2, 4, 8), (2, 7), (2, 4)), {}, "block_output"),
    ("HyperConnectionPostMix", ((2, 4, 8), (2, 8), (2, 4), (2, 4, 3)), {}, "stream_mix"),
    ("EngramGate", ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 5), (3, 4), (3, 4)), {}, "value and key")])
def test_refused(op: str, shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], message: str) -> None:
    inputs = {f"in{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    model = model_of(op, inputs, ["Y"], 17, domain="com.microsoft", **attributes)
    with pytest.raises(tensorbox.ModelError, match=message) as refusal:
        tensorbox.Session(model, compile=False)
    assert op in str(refusal.value)
