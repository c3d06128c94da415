"""Attention over batches without padding (com.microsoft) against numpy: ONNX Runtime's CPU kernels lack it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from peers import compare, model_of, tensorbox

Array = np.ndarray


def layout(counts: list[int], length: int) -> tuple[Array, Array, int]:
    """token_offset, cumulative_sequence_length and the number of tokens."""
    kept = np.arange(length)[None] < np.array(counts)[:, None]
    places = np.arange(kept.size).reshape(kept.shape)
    offsets = np.concatenate([places[kept], places[~kept]]).astype(np.int32).reshape(kept.shape)
    return offsets, np.cumsum([0, *counts]).astype(np.int32), sum(counts)


def attention(q: Array, k: Array, v: Array, counts: list[int], bias: Array | None) -> Array:
    """q, k, v [tokens, heads, size]."""
    out, first = [], 0
    for b, n in enumerate(counts):
        own = slice(first, first + n)
        scores = np.einsum("qhd,khd->hqk", q[own], k[own]) / np.sqrt(q.shape[-1])
        if bias is not None:
            scores = scores + bias[b % len(bias), :, :n, :n]
        e = np.exp(scores - scores.max(-1, keepdims=True, initial=0))
        out.append(np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v[own]).reshape(n, v[0].size))
        first += n
    return np.concatenate(out)


@pytest.mark.parametrize("counts", [[1, 2, 4], [4, 4, 4], [3, 0, 1]])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_packed_attention(counts: list[int], bias: bool, dtype: type) -> None:
    g = np.random.default_rng(0)
    offsets, cumulative, tokens = layout(counts, 4)
    x, w = g.standard_normal((tokens, 10)), g.standard_normal((10, 16 + 16 + 12)) * 0.3
    scores = g.standard_normal((1, 2, 4, 4)) if bias else None
    inputs = {"x": x, "w": w, "bias": g.standard_normal(44), "offsets": offsets, "cumulative": cumulative,
              "scores": scores}
    inputs = {k: v.astype(dtype) if v is not None and v.dtype == np.float64 else v for k, v in inputs.items()}
    qkv = x @ w + inputs["bias"].astype(np.float64)
    q, k, v = (part.reshape(tokens, 2, -1) for part in np.split(qkv, [16, 32], -1))
    m = model_of("PackedAttention", inputs, ["y"], 17, ["w", "bias"], domain="com.microsoft", num_heads=2,
                 qkv_hidden_sizes=[16, 16, 12])
    tolerance = 1e-4 if dtype == np.float32 else 2e-2
    compare(m, inputs, tolerance, tolerance, want=[attention(q, k, v, counts, scores).astype(dtype)])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_packed_multi_head_attention(packed: bool, bias: bool) -> None:
    g = np.random.default_rng(1)
    counts = [3, 1, 5]
    offsets, cumulative, tokens = layout(counts, 5)
    qkv = g.standard_normal((tokens, 2, 3, 8)).astype(np.float32)
    q, k, v = (qkv[:, :, i] for i in range(3))
    inputs = {"query": qkv, "key": None, "value": None}
    if not packed:
        inputs = {name: part.reshape(tokens, -1) for name, part in zip(("query", "key", "value"), (q, k, v))}
    inputs["bias"] = g.standard_normal(48).astype(np.float32) if bias else None
    inputs |= {"offsets": offsets, "cumulative": cumulative}
    if bias:
        q, k, v = (part + b.reshape(2, 8) for part, b in zip((q, k, v), np.split(inputs["bias"], 3)))
    m = model_of("PackedMultiHeadAttention", inputs, ["y"], 17, domain="com.microsoft", num_heads=2)
    compare(m, inputs, want=[attention(q, k, v, counts, None)])


@pytest.mark.parametrize("counts", [[1, 2, 4], [4, 4, 4], [3, 0, 1], [0, 0, 0]])
def test_remove_and_restore_padding(counts: list[int]) -> None:
    g = np.random.default_rng(2)
    offsets, cumulative, tokens = layout(counts, 4)
    x = g.standard_normal((3, 4, 6)).astype(np.float32)
    packed = x.reshape(12, 6)[offsets.ravel()[:tokens]]
    inputs = {"x": x, "counts": np.array(counts, np.int32)}
    m = model_of("RemovePadding", inputs, ["y", "offsets", "cumulative", "most"], 17, domain="com.microsoft")
    for info in m.graph.output[1:]:
        info.type.tensor_type.elem_type = onnx.TensorProto.INT32
    compare(m, inputs, want=[packed, offsets, cumulative, np.array([max(counts)], np.int32)])
    inputs = {"x": packed, "offsets": offsets}
    want = np.where((np.arange(4)[None] < np.array(counts)[:, None])[..., None], x, 0)
    compare(model_of("RestorePadding", inputs, ["y"], 17, domain="com.microsoft"), inputs, want=[want])


@pytest.mark.parametrize("compile", [False, True])
def test_a_bias_with_other_sizes_than_the_scores(compile: bool) -> None:
    """Its dimensions are known when it comes: 1 is repeated, whatever else is not that of the scores is refused."""
    g = np.random.default_rng(3)
    counts = [3, 1, 4]
    offsets, cumulative, tokens = layout(counts, 4)
    parts = [g.standard_normal((tokens, 16)).astype(np.float32) for _ in range(3)]
    inputs = dict(zip(("query", "key", "value"), parts)) | {"bias": None, "offsets": offsets, "cumulative": cumulative,
                                                             "scores": np.zeros((1, 2, 4, 4), np.float32)}
    m = model_of("PackedMultiHeadAttention", inputs, ["y"], 17, domain="com.microsoft", num_heads=2)
    for k, dim in enumerate(next(i for i in m.graph.input if i.name == "scores").type.tensor_type.shape.dim):
        dim.dim_param = f"scores_{k}"
    session = tensorbox.Session(m, compile=compile)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    q, k, v = (p.reshape(tokens, 2, 8) for p in parts)
    for batch, heads in ((3, 2), (1, 1), (3, 1), (1, 2)):
        feeds["scores"] = g.standard_normal((batch, heads, 4, 4)).astype(np.float32)
        want = attention(q, k, v, counts, np.broadcast_to(feeds["scores"], (3, 2, 4, 4)))
        np.testing.assert_allclose(session.run(feeds)["y"], want, rtol=1e-4, atol=1e-5)
    for sizes in ((3, 3, 4, 4), (3, 0, 4, 4), (2, 2, 4, 4), (0, 2, 4, 4), (4, 2, 4, 4), (3, 2, 3, 4), (3, 2, 4, 3), (3, 2, 4, 1)):
        feeds["scores"] = np.zeros(sizes, np.float32)
        with pytest.raises(tensorbox.ModelError):
            session.run(feeds)
    # The same where all sizes are fixed.
    for sizes in ((3, 3, 4, 4), (3, 0, 4, 4), (1, 0, 4, 4), (1, 3, 4, 4)):
        feeds["scores"] = inputs["scores"] = np.zeros(sizes, np.float32)
        m = model_of("PackedMultiHeadAttention", inputs, ["y"], 17, domain="com.microsoft", num_heads=2)
        with pytest.raises(tensorbox.ModelError):
            tensorbox.Session(m, compile=compile).run(feeds)
