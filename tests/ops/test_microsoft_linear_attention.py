"""LinearAttention and CausalConvWithState of com.microsoft against plain loops, and against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from peers import compare, expected, model_of, tensorbox

Arrays = dict[str, np.ndarray | None]
KINDS = [("float32", 1e-4), ("float16", 4e-3), ("bfloat16", 3e-2)]


def dtype_of(kind: str) -> Any:
    return pytest.importorskip("ml_dtypes").bfloat16 if kind == "bfloat16" else np.dtype(kind)


def check(op: str, inputs: Arrays, want: list[np.ndarray], tolerance: float, ort: bool, compiled: bool = False, **a: Any) -> None:
    model = model_of(op, inputs, ["Y", "present"], 17, domain="com.microsoft", **a)
    for info, w in zip(model.graph.output, want, strict=True):
        info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(w.dtype)
    compare(model, inputs, tolerance, tolerance, want=want)
    if compiled:
        got = tensorbox.Session(model).run({n: v for n, v in inputs.items() if v is not None})
        for name, w in zip(["Y", "present"], want, strict=True):
            np.testing.assert_allclose(got[name], w, tolerance, tolerance)
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return
    if ort:
        for w, theirs in zip(want, expected(model, {n: v for n, v in inputs.items() if v is not None}, "ort"), strict=True):
            np.testing.assert_allclose(w, theirs, tolerance, tolerance)


def recurrence(inputs: Arrays, q_heads: int, heads: int, rule: str, scale: float, window: int) -> list[np.ndarray]:
    i = {name: None if value is None else value.astype(np.float64) for name, value in inputs.items()}
    batch, tokens, _ = i["query"].shape
    dk, dv = i["query"].shape[2] // q_heads, i["value"].shape[2] // heads
    q = i["query"].reshape(batch, tokens, q_heads, dk)
    k = i["key"].reshape(batch, tokens, i["key"].shape[2] // dk, dk)
    v = i["value"].reshape(batch, tokens, heads, dv)
    most, slots = max(q_heads, heads), max(window, 1)
    y = np.zeros((batch, tokens, most, dv))
    states = np.zeros((slots, batch, heads, dk, dv))
    for b in range(batch):
        for h in range(heads):
            s = np.zeros((dk, dv))
            if i["past"] is not None:
                s = (i["past"][-1] if window else i["past"])[b, h].copy()
            for t in range(tokens):
                key = k[b, t, h * k.shape[2] // heads]
                if "gated" in rule:
                    d = i["decay"].reshape(batch, tokens, heads, -1)[b, t, h]
                    s *= np.exp(d)[:, None]
                value = v[b, t, h]
                if "delta" in rule:
                    beta = i["beta"][b, t, h if i["beta"].shape[2] > 1 else 0]
                    value = beta * (value - key @ s)
                s += np.outer(key, value)
                for g in range(most // heads):
                    head = h * (most // heads) + g
                    y[b, t, head] = scale * q[b, t, head * q_heads // most] @ s
                if slots - tokens + t >= 0:
                    states[slots - tokens + t, b, h] = s
            states[-1, b, h] = s
    kind = inputs["query"].dtype
    state_kind = kind if inputs["past"] is None else inputs["past"].dtype
    return [y.reshape(batch, tokens, most * dv).astype(kind), (states if window else states[0]).astype(state_kind)]


def attention_inputs(rng: np.random.Generator, dtype: Any, batch: int, tokens: int, q_heads: int, key_heads: int, heads: int, dk: int,
                     dv: int, rule: str, per_key: bool, one_beta: bool, past: Any, window: int) -> Arrays:
    def f(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    key = f(batch, tokens, key_heads, dk)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    lead = (window,) if window else ()
    return {"query": f(batch, tokens, q_heads * dk).astype(dtype), "key": key.reshape(batch, tokens, key_heads * dk).astype(dtype),
            "value": f(batch, tokens, heads * dv).astype(dtype),
            "past": None if past is None else f(*lead, batch, heads, dk, dv).astype(past),
            "decay": -np.abs(f(batch, tokens, heads * (dk if per_key else 1))).astype(dtype) if "gated" in rule else None,
            "beta": rng.uniform(0, 1, (batch, tokens, 1 if one_beta else heads)).astype(dtype) if "delta" in rule else None}


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("q_heads,key_heads,heads", [(4, 4, 4), (4, 2, 2), (2, 2, 4), (2, 1, 4), (3, 1, 1)])
@pytest.mark.parametrize("past", [True, False])
def test_linear_attention(rule: str, q_heads: int, key_heads: int, heads: int, past: bool) -> None:
    rng = np.random.default_rng(1)
    for tokens, per_key, one_beta, scale in ((1, False, False, 0.0), (7, True, True, 0.5), (0, False, False, 0.0), (33, False, True, 0.0)):
        inputs = attention_inputs(rng, np.float32, 2, tokens, q_heads, key_heads, heads, 8, 20, rule, per_key, one_beta,
                                  np.float32 if past else None, 0)
        want = recurrence(inputs, q_heads, heads, rule, scale or 8**-0.5, 0)
        check("LinearAttention", inputs, want, 1e-4, tokens > 0, q_num_heads=q_heads, kv_num_heads=heads, update_rule=rule, scale=scale)


@pytest.mark.parametrize("kind,tolerance", KINDS)
@pytest.mark.parametrize("state", ["float32", "same"])
def test_linear_attention_of_narrow_floats(kind: str, tolerance: float, state: str) -> None:
    dtype = dtype_of(kind)
    inputs = attention_inputs(np.random.default_rng(2), dtype, 1, 9, 4, 2, 2, 16, 8, "gated_delta", False, False,
                              np.float32 if state == "float32" else dtype, 0)
    want = recurrence(inputs, 4, 2, "gated_delta", 0.25, 0)
    check("LinearAttention", inputs, want, tolerance, False, q_num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("past", [True, False])
def test_linear_attention_window(tokens: int, past: bool) -> None:
    inputs = attention_inputs(np.random.default_rng(3), np.float32, 2, tokens, 2, 2, 2, 4, 5, "gated_delta", True, False,
                              np.float32 if past else None, 3)
    want = recurrence(inputs, 2, 2, "gated_delta", 0.5, 3)
    check("LinearAttention", inputs, want, 1e-4, False, q_num_heads=2, kv_num_heads=2, state_window=3)


@pytest.mark.parametrize("change,attributes,message", [
    ({}, {"q_num_heads": 3}, "multiple"), ({}, {"update_rule": "none"}, "update_rule is 'none'"), ({"beta": None}, {}, "beta is missing"),
    ({"key": (1, 3, 6)}, {}, "key"), ({"decay": (1, 3, 5)}, {}, "decay"), ({"past": (1, 2, 4, 4)}, {}, "past_state"),
    ({"value": (1, 2, 6)}, {}, "dimension 1 of value"), ({}, {"state_window": 9}, "state_window is 9"), ({}, {"kv_num_heads": 0}, "kv_num_heads is 0")])
def test_linear_attention_refuses(change: dict[str, Any], attributes: dict[str, Any], message: str) -> None:
    shapes = {"query": (1, 3, 8), "key": (1, 3, 8), "value": (1, 3, 6), "past": (1, 2, 4, 3), "decay": (1, 3, 2), "beta": (1, 3, 2)} | change
    inputs = {name: None if shape is None else np.zeros(shape, np.float32) for name, shape in shapes.items()}
    model = model_of("LinearAttention", inputs, ["Y", "S"], 17, domain="com.microsoft", **{"q_num_heads": 2, "kv_num_heads": 2, **attributes})
    for info in model.graph.output:
        info.type.tensor_type.elem_type = 1
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model, compile=False).run({n: v for n, v in inputs.items() if v is not None})


# --- CausalConvWithState


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("bias,past", [(True, True), (False, False), (True, False)])
def test_causal_conv(dilation: int, last: int, activation: str, window: int, bias: bool, past: bool) -> None:
    rng = np.random.default_rng(4)

    def f(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    for batch, channels, length, k in ((2, 6, 7, 4), (1, 6, 1, 3), (2, 6, 3, 1), (1, 6, 0, 2)):
        state = (k - 1) * dilation
        x, w, b = f(batch, channels, length), f(channels, 1, k), f(channels)
        before = f(batch, channels, state) if past else np.zeros((batch, channels, state), np.float32)
        padded = np.concatenate([before, x], 2)
        y = np.zeros_like(x) + (b[:, None] if bias else 0)
        for j in range(k):
            y += w[:, 0, j, None] * padded[:, :, j * dilation:j * dilation + length]
        y = y if activation == "none" else y / (1 + np.exp(-y))
        present = padded[:, :, length:]
        if window:
            slots = [padded[:, :, p + 1:p + 1 + state] if p >= 0 or j == window - 1 else np.zeros_like(present)
                     for j, p in enumerate(range(length - window, length))]
            present = np.stack(slots)
            before = np.stack([f(*before.shape)] * (window - 1) + [before])
        if last:
            x, y = (t.transpose(0, 2, 1).reshape(batch, length, 2, 3) for t in (x, y))
            before, present = (np.swapaxes(t, -1, -2).reshape(*t.shape[:-2], state, 2, 3) for t in (before, present))
        inputs = {"x": x, "w": w, "b": b if bias else None, "past": before if past else None}
        check("CausalConvWithState", inputs, [y, present], 1e-4, window == 0 and length > 0, compiled=length == 7 and bias and past and activation == "silu", dilation=dilation, channels_last=last,
              activation=activation, state_window=window)


@pytest.mark.parametrize("kind,tolerance", KINDS[1:])
def test_causal_conv_of_narrow_floats(kind: str, tolerance: float) -> None:
    dtype, rng = dtype_of(kind), np.random.default_rng(5)
    x, w = rng.standard_normal((2, 4, 6)).astype(dtype), rng.standard_normal((4, 1, 3)).astype(dtype)
    padded = np.concatenate([np.zeros((2, 4, 2), dtype), x], 2)
    y = sum(w.astype(np.float32)[:, 0, j, None] * padded.astype(np.float32)[:, :, j:j + 6] for j in range(3))
    check("CausalConvWithState", {"x": x, "w": w}, [y.astype(dtype), padded[:, :, 6:]], tolerance, False)


@pytest.mark.parametrize("shapes,attributes,message", [
    (((1, 2, 3), (2, 1, 2)), {"ndim": 4}, "ndim is 4"), (((1, 2, 3), (2, 1, 2)), {"ndim": 2}, "ndim 2"), (((1, 2, 3), (2, 1, 2)), {"dilation": 0}, "dilation is 0"),
    (((1, 2, 3), (2, 1, 2)), {"state_window": -1}, "state_window is -1"), (((1, 2, 3), (3, 1, 2)), {}, "number of channels"),
    (((1, 2), (2, 1, 2)), {}, "ranks 2 and 3"), (((1, 2, 3), (2, 1, 2)), {"activation": "relu"}, "'relu'"),
    (((1, 2, 3), (2, 1, 2), (2,), (1, 2, 2)), {}, "past_state has another shape"), (((1, 2, 3), (2, 1, 2), (2,), (1, 2, 1)), {"state_window": 2}, "past_state has rank 3")])
def test_causal_conv_refuses(shapes: tuple[tuple[int, ...], ...], attributes: dict[str, Any], message: str) -> None:
    inputs = {f"in{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    model = model_of("CausalConvWithState", inputs, ["Y", "S"], 17, domain="com.microsoft", **attributes)
    for info in model.graph.output:
        info.type.tensor_type.elem_type = 1
    with pytest.raises(tensorbox.Error, match=message):
        tensorbox.Session(model, compile=False)
