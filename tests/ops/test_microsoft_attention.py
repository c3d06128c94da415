"""MultiHeadAttention, GroupQueryAttention, Attention, QAttention and RotaryEmbedding of com.microsoft against ONNX
Runtime, and against numpy where its CPU kernels lack a type or form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from peers import REFERENCE_SATURATES, compare, expected, model_of, tensorbox

Array = np.ndarray


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def randn(generator: np.random.Generator, *shape: int, dtype: type = np.float32) -> Array:
    return generator.standard_normal(shape).astype(dtype)


def model(op: str, inputs: Mapping[str, Array | None], outputs: Sequence[str], constants: Sequence[str] = (),
          **attributes: Any) -> onnx.ModelProto:
    return model_of(op, inputs, outputs, 21, constants, domain="com.microsoft", **attributes)


def softmax(scores: Array, sink: Array | None = None) -> Array:
    top = scores.max(-1, keepdims=True)
    if sink is not None:
        top = np.maximum(top, sink)
    e = np.exp(scores - top)
    return e / (e.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink - top)))


def heads(x: Array, count: int) -> Array:
    """[B, S, H * D] -> [B, H, S, D]."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def joined(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


# --- RotaryEmbedding


def rotate(x: Array, cos: Array, sin: Array, positions: Array, interleaved: bool) -> Array:
    """x [B, H, S, D], positions [B, S]."""
    half = cos.shape[1]
    c, s = (t[positions][:, None].astype(np.float32) for t in (cos, sin))
    y = x.astype(np.float32).copy()
    real, imaginary = (np.s_[..., 0:2 * half:2], np.s_[..., 1:2 * half:2]) if interleaved else (
        np.s_[..., :half], np.s_[..., half:2 * half])
    a, b = y[real].copy(), y[imaginary].copy()
    y[real], y[imaginary] = a * c - b * s, b * c + a * s
    return y.astype(x.dtype)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [8, 4])
@pytest.mark.parametrize("form", ["3d", "4d"])
@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rotary_embedding(interleaved: int, width: int, form: str, first_only: bool, dtype: type) -> None:
    g = rng(width)
    x = randn(g, 2, 5, 3 * 8, dtype=dtype) if form == "3d" else randn(g, 2, 3, 5, 8, dtype=dtype)
    angles = g.uniform(-3, 3, (20, width // 2))
    positions = np.array([7], np.int64) if first_only else g.integers(0, 20, (2, 5))
    inputs = {"x": x, "positions": positions, "cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    attributes = {"interleaved": interleaved}
    if width != 8:
        attributes |= {"num_heads": 3, "rotary_embedding_dim": width}
    tolerance = 1e-5 if dtype == np.float32 else 5e-3
    m = model("RotaryEmbedding", inputs, ["y"], ["cos", "sin"], **attributes)
    compare(m, inputs, rtol=tolerance, atol=tolerance, engine="ort")
    spread = np.broadcast_to(7 + np.arange(5), (2, 5)) if first_only else positions
    want = rotate(heads(x, 3) if form == "3d" else x, inputs["cos"], inputs["sin"], spread, bool(interleaved))
    compare(m, inputs, rtol=tolerance, atol=tolerance, want=[joined(want) if form == "3d" else want])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("layout,section", [(0, [2, 1, 1]), (0, [4, 0, 0]), (1, [2, 1, 1]), (1, [0, 2, 2])])
@pytest.mark.parametrize("form", ["3d", "4d"])
def test_mrotary_embedding(interleaved: int, layout: int, section: list[int], form: str) -> None:
    g = rng(13)
    x = randn(g, 2, 5, 3 * 8) if form == "3d" else randn(g, 2, 3, 5, 8)
    angles = g.uniform(-3, 3, (20, 4))
    inputs = {"x": x, "positions": g.integers(0, 20, (3, 2, 5)), "cos": np.cos(angles).astype(np.float32),
              "sin": np.sin(angles).astype(np.float32)}
    m = model("MRotaryEmbedding", inputs, ["y"], ["cos", "sin"], mrope_section=section, mrope_layout=layout,
              interleaved=interleaved, num_heads=3, rotary_embedding_dim=8)
    compare(m, inputs, engine="ort")


@pytest.mark.parametrize("both_ways", [0, 1])
@pytest.mark.parametrize("constants", [[], ["queries", "keys"]])
def test_relative_position_bias(both_ways: int, constants: list[str]) -> None:
    table = randn(rng(14), 4, 32)  # by head
    distance = np.arange(300)[None] - np.arange(300)[:, None]
    buckets = 16 if both_ways else 32
    size = np.abs(distance) if both_ways else np.maximum(-distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(size, 1).astype(np.float32) / np.float32(exact)) / np.log(np.float32(128 / exact))
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(int), buckets - 1)
    bucket = np.where(size < exact, size, far) + (both_ways * buckets * (distance > 0))
    inputs = {"table": table.reshape(32, 4), "queries": np.array([300]), "keys": np.array([300])}
    m = model("RelativePositionBias", inputs, ["y"], constants, max_distance=128, is_bidirectional=both_ways)
    session = tensorbox.Session(m, compile=False)
    got = session.run({k: v for k, v in inputs.items() if k not in constants})["y"]
    wrong = got != table[:, bucket][None]
    assert wrong.mean() < 0.01  # a distance may lie on the border of two buckets


# --- MultiHeadAttention


def attention(q: Array, k: Array, v: Array, mask: Array | float = 0, causal: bool = False) -> Array:
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask
    if causal:
        queries, keys = scores.shape[-2:]
        scores = np.where(np.tri(queries, keys, keys - queries, dtype=bool), scores, -np.inf)
    return softmax(scores) @ v


def padding(kind: str, batch: int, queries: int, keys: int) -> Array | None:
    g = rng(7)
    if kind == "lengths":
        return np.array([keys, max(1, keys - 2)][:batch], np.int32)
    if kind == "keys":
        mask = g.integers(0, 2, (batch, keys)).astype(np.int32)
        mask[:, 0] = 1
        return mask
    if kind == "all":
        mask = g.integers(0, 2, (batch, queries, keys)).astype(np.int32)
        mask[:, :, 0] = 1
        return mask
    return None


@pytest.mark.parametrize("packing", ["none", "qkv", "kv", "past"])
@pytest.mark.parametrize("mask", ["none", "lengths", "keys", "all"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(packing: str, mask: str, bias: bool, causal: int) -> None:
    g = rng(1)
    batch, n, d, queries, keys = 2, 3, 8, 5, 5 if packing == "qkv" else 7
    if causal and keys != queries:
        queries = keys
    q, k, v = randn(g, batch, queries, n * d), randn(g, batch, keys, n * d), randn(g, batch, keys, n * d)
    plain: dict[str, Array | None] = {"query": q, "key": k, "value": v}
    first = dict(plain)
    if packing == "qkv":
        first = {"query": np.stack([x.reshape(batch, keys, n, d) for x in (q, k, v)], 3), "key": None, "value": None}
    elif packing == "kv":
        first = {"query": q, "key": np.stack([x.reshape(batch, keys, n, d) for x in (k, v)], 3), "value": None}
    elif packing == "past":
        plain = first = {"query": q, "key": heads(k, n).copy(), "value": heads(v, n).copy()}
    rest = {"bias": randn(g, 3 * n * d) if bias else None, "mask": padding(mask, batch, queries, keys),
            "scores": randn(g, 1, n, queries, keys) if causal else randn(g, batch, 1, queries, keys)}

    def node(inputs: Mapping[str, Array | None]) -> onnx.ModelProto:
        return model("MultiHeadAttention", inputs, ["out"], ["bias"], num_heads=n, unidirectional=causal)

    # The CPU kernels of ONNX Runtime do not take packed inputs.
    feeds = {name: x for name, x in (plain | rest).items() if x is not None and name != "bias"}
    want = expected(node(plain | rest), feeds, "ort")
    compare(node(first | rest), first | rest, want=want, atol=1e-4)


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("mask", ["none", "keys"])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_past(queries: int, mask: str, causal: int) -> None:
    g = rng(2)
    batch, n, d, past = 2, 4, 8, 6
    inputs = {name: randn(g, batch, queries, n * d) for name in ("query", "key", "value")}
    inputs |= {"bias": None, "mask": padding(mask, batch, queries, past + queries), "scores": None,
               "past_key": randn(g, batch, n, past, d), "past_value": randn(g, batch, n, past, d)}
    outputs = ["out", "present_key", "present_value"]
    attributes = {"num_heads": n, "unidirectional": causal, "scale": 0.3}
    compare(model("MultiHeadAttention", inputs, outputs, **attributes), inputs, engine="ort", atol=1e-4)
    m = model("MultiHeadAttention", inputs, [*outputs, "qk"], **attributes)
    want = expected(m, {k: v for k, v in inputs.items() if v is not None}, "ort")
    compare(m, inputs, want=want, atol=2e-3)  # masked scores are near -10000


def test_multi_head_attention_buffer() -> None:
    g = rng(3)
    inputs = {name: randn(g, 2, 1, 16) for name in ("query", "key", "value")}
    inputs |= {"bias": None, "mask": None, "scores": None, "past_key": randn(g, 2, 2, 9, 8),
               "past_value": randn(g, 2, 2, 9, 8), "past_length": np.array([4], np.int32)}
    m = model("MultiHeadAttention", inputs, ["out", "present_key", "present_value"], ["past_length"], num_heads=2)
    k, v = inputs["past_key"].copy(), inputs["past_value"].copy()
    k[:, :, 4:5], v[:, :, 4:5] = heads(inputs["key"], 2), heads(inputs["value"], 2)
    out = joined(attention(heads(inputs["query"], 2), k[:, :, :5], v[:, :, :5]))
    compare(m, inputs, want=[out, k, v])


@pytest.mark.parametrize("form", ["buffer", "packed", "growing", "cross"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_decoder_masked_multi_head_attention(form: str, mask: bool, bias: bool) -> None:
    g = rng(12)
    q, k, v = (randn(g, 2, 1, 16) for _ in range(3))
    past = [randn(g, 2, 2, 4 if form == "growing" else 8, 8) for _ in range(2)]
    total = 8 if form == "cross" else 5
    inputs = {"query": q, "key": k, "value": v, "mask": np.eye(2, total, 1, np.int32) ^ 1 if mask else None,
              "scores": randn(g, 2, 1, 1, total), "past_key": past[0], "past_value": past[1],
              "length": None if form == "growing" else np.array([4], np.int32), "beam": None, "indirection": None,
              "bias": randn(g, 48) if bias else None}
    if form == "packed":
        inputs |= {"query": np.concatenate([q, k, v], -1), "key": None, "value": None}
    if form == "cross":
        inputs |= {"key": past[0], "value": past[1], "past_key": None, "past_value": None, "length": None}
    outputs = ["out"] if form == "cross" else ["out", "present_key", "present_value"]
    shares = {} if form in ("growing", "cross") else {"past_present_share_buffer": 1}
    m = model("DecoderMaskedMultiHeadAttention", inputs, outputs, ["length"], num_heads=2, **shares)
    parts = np.split(inputs["bias"], 3) if bias else [0, 0, 0]
    q, k, v = (heads(x + part, 2) for x, part in zip((q, k, v), parts))
    if form == "cross":
        keys, values = past
    elif form == "growing":
        keys, values = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    else:
        keys, values = (x.copy() for x in past)
        keys[:, :, 4:5], values[:, :, 4:5] = k, v
    added = inputs["scores"] + (np.where(inputs["mask"] > 0, 0, -10000)[:, None, None] if mask else 0)
    out = joined(attention(q, keys[:, :, :total], values[:, :, :total], added))
    compare(m, inputs, want=[out, keys, values][:len(outputs)], atol=1e-3)


@pytest.mark.parametrize("sizes", [(3, 3), (1, 300), (40, 40), (300, 900), (600, 600)])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_multi_head_attention_sizes(sizes: tuple[int, int], causal: int, dtype: type) -> None:
    g = rng(4)
    queries, keys = sizes
    past = keys - queries
    inputs = {"query": randn(g, 1, queries, 16, dtype=dtype), "key": randn(g, 1, queries, 16, dtype=dtype),
              "value": randn(g, 1, queries, 24, dtype=dtype)}
    k, v = heads(inputs["key"], 2), heads(inputs["value"], 2)
    if past:
        inputs |= {"bias": None, "mask": None, "scores": None, "past_key": randn(g, 1, 2, past, 8, dtype=dtype),
                   "past_value": randn(g, 1, 2, past, 12, dtype=dtype)}
        k, v = np.concatenate([inputs["past_key"], k], 2), np.concatenate([inputs["past_value"], v], 2)
    want = joined(attention(heads(inputs["query"], 2), k, v, causal=bool(causal))).astype(dtype)
    m = model("MultiHeadAttention", inputs, ["out"], num_heads=2, unidirectional=causal)
    tolerance = 1e-4 if dtype == np.float32 else 4e-3
    compare(m, inputs, want=[want], rtol=tolerance, atol=tolerance)

@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("new,own", [(3, 5), (5, 3), (1, 6), (6, 1), (4, 4), (300, 260)])
def test_unidirectional_of_other_lengths(new: int, own: int, past: int) -> None:
    """Query i sees what is past and the new keys up to its own number, whatever the lengths are; the last sees them all."""
    g = rng(new)
    inputs = {"q": randn(g, 2, new, 16), "k": randn(g, 2, own, 16), "v": randn(g, 2, own, 16), "bias": None, "mask": None, "scores": None,
              "past_k": randn(g, 2, 2, past, 8) if past else None, "past_v": randn(g, 2, 2, past, 8) if past else None}
    k, v = (np.concatenate([inputs[f"past_{n}"], heads(inputs[n], 2)], 2) if past else heads(inputs[n], 2) for n in "kv")
    scores = heads(inputs["q"], 2).astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(8)
    seen = np.arange(past + own) <= past + np.arange(new)[:, None]
    seen[-1] = True
    want = joined(softmax(np.where(seen, scores, -np.inf)) @ v)
    # Without outputs for what it stores, ONNX Runtime reads memory that nobody wrote.
    m = model("MultiHeadAttention", inputs, ["out", "present_k", "present_v"], num_heads=2, unidirectional=1)
    compare(m, inputs, rtol=1e-5, atol=2e-6, want=[want, k, v])
    compare(m, inputs, rtol=1e-5, atol=2e-6, engine="ort")


@pytest.mark.parametrize("change,message", [
    ({"num_heads": 3}, "divisible into 3 heads"), ({"mask": np.ones((2, 5), np.int32)}, "lengths of mask and keys"),
    ({"mask": np.ones(5, np.int32)}, "mask has 5 elements"), ({"value": np.ones((2, 2, 16), np.float32)}, "lengths"),
    ({"key": None}, "key is missing"), ({"bias": np.ones(40, np.float32)}, "length of bias")])
def test_multi_head_attention_refuses(change: dict[str, Any], message: str) -> None:
    inputs = {"query": np.ones((2, 4, 16), np.float32), "key": np.ones((2, 4, 16), np.float32),
              "value": np.ones((2, 4, 16), np.float32), "bias": None, "mask": None} | change
    count = inputs.pop("num_heads", 2)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model("MultiHeadAttention", inputs, ["out"], num_heads=count), compile=False)


# --- Attention and QAttention


@pytest.mark.parametrize("mask", ["none", "lengths", "keys", "all", "ends"])
@pytest.mark.parametrize("past", [0, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, past: int, causal: int) -> None:
    g = rng(5)
    batch, queries, n, d = 2, 3, 2, 8
    keys = past + queries
    m = np.array([keys, keys - 1, 0, 1], np.int32) if mask == "ends" else padding(mask, batch, queries, keys)
    inputs = {"x": randn(g, batch, queries, 20), "w": randn(g, 20, 3 * n * d) * 0.3, "bias": randn(g, 3 * n * d),
              "mask": m, "past": randn(g, 2, batch, n, past, d) if past else None,
              "scores": None if past else randn(g, batch, n, queries, keys)}
    compare(model("Attention", inputs, ["out", "present"], ["w", "bias"], num_heads=n, unidirectional=causal,
                  mask_filter_value=-5000.0), inputs, engine="ort", atol=1e-3)


def test_attention_value_size() -> None:
    g = rng(6)
    inputs = {"x": randn(g, 2, 3, 20), "w": randn(g, 20, 16 + 16 + 10), "bias": randn(g, 42)}
    compare(model("Attention", inputs, ["out"], ["w"], num_heads=2, qkv_hidden_sizes=[16, 16, 10], scale=0.1), inputs,
            engine="ort", atol=1e-4)


def test_attention_large_mask_and_buffer() -> None:
    g = rng(7)
    x, w, past = randn(g, 1, 2, 12), randn(g, 12, 3 * 8), randn(g, 2, 1, 2, 6, 4)
    mask = np.tri(9, 9, dtype=np.int32)[None, None]
    inputs = {"x": x, "w": w, "bias": None, "mask": mask, "past": past, "scores": None,
              "length": np.array([3], np.int32)}
    q, k, v = (heads(t, 2) for t in np.split(x @ w, 3, -1))
    state = past.copy()
    state[0, :, :, 3:5], state[1, :, :, 3:5] = k, v
    out = joined(attention(q, state[0, :, :, :5], state[1, :, :, :5], causal=True))
    compare(model("Attention", inputs, ["out", "present"], ["length", "w"], num_heads=2, past_present_share_buffer=1),
            inputs, want=[out, state])


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("weights", [np.int8, np.uint8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("past", [0, 3])
def test_qattention(per_column: bool, weights: type, zeros: bool, past: int) -> None:
    g = rng(8)
    batch, queries, n, d = 2, 4, 2, 8
    columns = 3 * n * d
    low, high = (0, 256) if weights == np.uint8 else (-64, 64) if REFERENCE_SATURATES else (-128, 128)
    inputs = {
        "x": g.integers(0, 256, (batch, queries, 20)).astype(np.uint8),
        "w": g.integers(low, high, (20, columns)).astype(weights), "bias": randn(g, columns),
        "x_scale": np.array(0.02, np.float32),
        "w_scale": g.uniform(0.001, 0.01, columns).astype(np.float32) if per_column else np.array(0.01, np.float32),
        "mask": np.array([4 + past, 2 + past], np.int32),
        "x_zero": np.array(117, np.uint8) if zeros else None,
        "w_zero": (np.full(columns, 3, weights) if per_column else np.array(3, weights)) if zeros else None,
        "past": randn(g, 2, batch, n, past, d) if past else None}
    m = model("QAttention", inputs, ["out", "present"], ["w", "bias", "w_scale", "w_zero"], num_heads=n, unidirectional=1)
    for info in m.graph.output:
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    compare(m, inputs, engine="ort", atol=1e-3)


# --- GroupQueryAttention


def cache(angles: int, half: int) -> tuple[Array, Array]:
    a = np.outer(np.arange(angles), 10000.0 ** (-np.arange(half) / half))
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


def gqa_inputs(queries: int, past: int | None, lengths: Sequence[int], n: int = 4, kv: int = 2, d: int = 16,
               packed: bool = False, rotary: bool = False, dtype: type = np.float32) -> dict[str, Array | None]:
    g = rng(queries)
    batch = len(lengths)
    q, k, v = (randn(g, batch, queries, c * d, dtype=dtype) for c in (n, kv, kv))
    inputs: dict[str, Array | None] = {"query": q, "key": k, "value": v}
    if packed:
        inputs = {"query": np.concatenate([q, k, v], -1), "key": None, "value": None}
    for name in ("past_key", "past_value"):
        inputs[name] = None if past is None else randn(g, batch, kv, past, d, dtype=dtype)
    inputs["seqlens"] = np.array(lengths, np.int32) - 1
    inputs["total"] = np.array(max(lengths), np.int32)
    cos, sin = cache(64, d // 2)
    inputs["cos"], inputs["sin"] = (cos.astype(dtype), sin.astype(dtype)) if rotary else (None, None)
    return inputs


OUTPUTS = ["out", "present_key", "present_value"]
GQA = {"num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize("case", ["prompt", "prompt in buffer", "decode", "ragged decode", "decode in buffer", "chunk"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [None, 0, 1])
@pytest.mark.parametrize("extra", [{}, {"softcap": 5.0}, {"local_window_size": 3}, {"smooth_softmax": 1}])
def test_group_query_attention(case: str, packed: bool, rotary: int | None, extra: dict[str, Any]) -> None:
    sizes = {"prompt": (6, None, [6, 6]), "prompt in buffer": (6, 11, [6, 6]), "decode": (1, 7, [8, 8]),
             "ragged decode": (1, 7, [8, 5]), "decode in buffer": (1, 12, [8, 5]), "chunk": (3, 7, [10])}[case]
    inputs = gqa_inputs(*sizes, packed=packed, rotary=rotary is not None)
    attributes = GQA | extra
    if rotary is not None:
        attributes |= {"do_rotary": 1, "rotary_interleaved": rotary}
    for constants in ([], ["total"]):
        m = model("GroupQueryAttention", inputs, OUTPUTS, constants, **attributes)
        compare(m, inputs, engine="ort", atol=1e-4)


def test_group_query_attention_padded_prompt() -> None:
    inputs = gqa_inputs(6, None, [6, 4], rotary=True)
    m = model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=1, **GQA)
    feeds = {k: v for k, v in inputs.items() if v is not None}
    want = expected(m, feeds, "ort")
    got = tensorbox.Session(m, compile=False).run(feeds)
    for b, length in enumerate((6, 4)):  # what lies behind the end is unspecified
        np.testing.assert_allclose(got["out"][b, :length], want[0][b, :length], 1e-4, 1e-5)
        for i, name in ((1, "present_key"), (2, "present_value")):
            np.testing.assert_allclose(got[name][b, :, :length], want[i][b, :, :length], 1e-4, 1e-5)


@pytest.mark.parametrize("queries,past,total", [(6, None, 6), (1, 7, 8)])
@pytest.mark.parametrize("extra", ["bias", "sink", "positions"])
def test_group_query_attention_extras(queries: int, past: int | None, total: int, extra: str) -> None:
    g = rng(9)
    inputs = gqa_inputs(queries, past, [total, total], rotary=extra == "positions")
    inputs["positions"] = np.array([[3 + i for i in range(queries)]] * 2, np.int64) if extra == "positions" else None
    inputs["bias"] = randn(g, 1, 4, queries, total) if extra == "bias" else None
    inputs["sink"] = randn(g, 4) if extra == "sink" else None
    if extra == "positions" and queries > 1:
        inputs["positions"] -= 3
    m = model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=int(extra == "positions"), **GQA)
    compare(m, inputs, engine="ort", atol=1e-4)


@pytest.mark.parametrize("positions,cause", [
    (np.full(2, 7, np.int64), "position_ids has rank 1, expected 2"),
    (np.full((2, 1, 1), 7, np.int64), "position_ids has rank 3, expected 2"),
    (np.full((1, 1), 7, np.int64), "batch sizes of query and position_ids"),
    (np.full((3, 1), 7, np.int64), "batch sizes of query and position_ids"),
    (np.full((2, 0), 7, np.int64), "position_ids is shorter than the query"),
    (np.full((2, 1), 7, np.float32), "position_ids is of type float32, expected int64"),
])
@pytest.mark.parametrize("compiled", [False, True])
def test_group_query_attention_refuses_positions(positions: Array, cause: str, compiled: bool) -> None:
    inputs = gqa_inputs(1, 7, [8, 8], rotary=True) | {"positions": positions}
    m = model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=1, **GQA)
    with pytest.raises(tensorbox.ModelError, match=cause):
        tensorbox.Session(m, compile=compiled).run({k: v for k, v in inputs.items() if v is not None})


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("queries,past,total", [(6, None, 6), (1, 7, 8)])
def test_group_query_attention_scores(which: int, queries: int, past: int | None, total: int) -> None:
    inputs = gqa_inputs(queries, past, [total, total])
    m = model("GroupQueryAttention", inputs, [*OUTPUTS, "qk"], qk_output=which, softcap=4.0, local_window_size=3, **GQA)
    compare(m, inputs, engine="ort", atol=1e-4)


@pytest.mark.parametrize("queries,past,lengths", [(6, None, [6, 6]), (1, 7, [8, 6])])
def test_group_query_attention_half(queries: int, past: int | None, lengths: list[int]) -> None:
    inputs = gqa_inputs(queries, past, lengths, rotary=True, dtype=np.float16)
    compare(model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=1, **GQA), inputs, engine="ort", rtol=5e-3,
            atol=5e-3)


def test_group_query_attention_normalised() -> None:
    inputs = gqa_inputs(5, None, [5, 5])
    g = rng(10)
    inputs |= {"positions": None, "bias": None, "sink": None, "k_scale": None, "v_scale": None,
               "q_norm": randn(g, 16), "k_norm": randn(g, 16)}
    m = model("GroupQueryAttention", inputs, ["out"], qk_norm_epsilon=1e-5, causal=0, **GQA)

    def norm(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    q, k, v = (heads(inputs[name], n) for name, n in (("query", 4), ("key", 2), ("value", 2)))
    k, v = (np.repeat(x, 2, 1) for x in (norm(k, inputs["k_norm"]), v))
    compare(m, inputs, want=[joined(attention(norm(q, inputs["q_norm"]), k, v))])


@pytest.mark.parametrize("window", [-1, 40, 300])
@pytest.mark.parametrize("queries,past,length", [(1, 700, 500), (3, 511, 514), (600, None, 600), (200, 500, 700)])
def test_group_query_attention_long(window: int, queries: int, past: int | None, length: int) -> None:
    inputs = gqa_inputs(queries, past, [length])
    m = model("GroupQueryAttention", inputs, OUTPUTS, local_window_size=window, **GQA)
    compare(m, inputs, engine="ort", atol=1e-4)


@pytest.mark.parametrize("mode", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("queries,past,lengths", [(1, 7, [8, 5]), (5, 9, [5, 5])])
def test_group_query_attention_quantised(mode: str, bits: int, queries: int, past: int, lengths: list[int]) -> None:
    g = rng(11)
    inputs = gqa_inputs(queries, past, lengths)
    for name in ("past_key", "past_value"):
        inputs[name] = (g.integers(-128, 128, (2, 2, past, 16)).astype(np.int8) if bits == 8 else
                        g.integers(0, 256, (2, 2, past, 8)).astype(np.uint8))
    scale = (g.uniform(0.01, 0.03, (1, 2, 1, 16) if mode == "PER_CHANNEL" else 1) * (1 if bits == 8 else 16))
    inputs |= {"positions": None, "bias": None, "sink": None, "k_scale": scale.astype(np.float32),
               "v_scale": scale.astype(np.float32)[..., ::-1].copy()}
    m = model("GroupQueryAttention", inputs, OUTPUTS, k_quant_type=mode, v_quant_type=mode, kv_cache_bit_width=bits, **GQA)
    for info in m.graph.output[1:]:
        info.type.tensor_type.elem_type = onnx.TensorProto.INT8 if bits == 8 else onnx.TensorProto.UINT8
    compare(m, inputs, engine="ort", atol=1e-4)


@pytest.mark.parametrize("attributes,message", [
    ({"num_heads": 3}, "num_heads is 3, kv_num_heads is 2"), ({"local_window_size": 0}, "local_window_size is 0"),
    ({"causal": 0, "local_window_size": 2}, "without causal"), ({"do_rotary": 1}, "without cos_cache"),
    ({"qk_output": 4}, "qk_output is 4")])
def test_group_query_attention_refuses(attributes: dict[str, Any], message: str) -> None:
    m = model("GroupQueryAttention", gqa_inputs(4, None, [4]), OUTPUTS, **GQA | attributes)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(m, compile=False)


def test_group_query_attention_bad_lengths() -> None:
    """Lengths are data: wrong ones give wrong numbers, no reads outside."""
    inputs = gqa_inputs(1, 7, [8, 8])
    session = tensorbox.Session(model("GroupQueryAttention", inputs, OUTPUTS, ["total"], **GQA), compile=False)
    for bad in ([100, -100], [2**31 - 1, -2**31]):
        feeds = {k: v for k, v in inputs.items() if v is not None and k != "total"} | {"seqlens": np.array(bad, np.int32)}
        assert session.run(feeds)["out"].shape == (2, 1, 64)
