"""Attention spelled with products and a softmax, over a cache whose length a run decides: recognised, and right."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from peers import tensorbox

# One step of a decoder: keys and values appended to those of the past, heads shared by `share` query heads through
# Expand, as the exporters of torch write it.
STEP = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, {heads}, S, 8] q, float[1, 2, P, 8] past_k, float[1, 2, P, 8] past_v, float[1, 2, S, 8] new_k,
   float[1, 2, S, 8] new_v, float[1, 1, S, T] mask, float[1, {heads}, 1, T] bias)
  => (float[1, S, {heads}, 8] y, float[1, 2, T1, 8] k, float[1, 2, T2, 8] v)
  <int64[1] axis = {{2}}, int64[1] share = {{{share}}}, int64[1] ones = {{1}}, int64[4] heads = {{0, {heads}, -1, 8}},
   float root = {{0.6}}, float zero = {{0}}, int64 at2 = {{2}}, int64[1] two = {{2}}, int64[1] eight = {{8}}>
{{
  k = Concat <axis = 2> (past_k, new_k)
  v = Concat <axis = 2> (past_v, new_v)
  shape = Shape <start = 2, end = 3> (k)
  repeat = Concat <axis = 0> (ones, two, share, shape, eight)
  k5 = Unsqueeze (k, axis)
  k_all = Expand (k5, repeat)
  k_heads = Reshape (k_all, heads)
  v5 = Unsqueeze (v, axis)
  v_all = Expand (v5, repeat)
  v_heads = Reshape (v_all, heads)
  swapped = Transpose <perm = [0, 1, 3, 2]> (k_heads)
  k_scaled = Mul (swapped, root)
  q_scaled = Mul (q, root)
  scores = MatMul (q_scaled, k_scaled)
  with_bias = Add (bias, scores)
  masked = Add (with_bias, mask)
  p = Softmax <axis = -1> (masked)
  bad = IsNaN (p)
  guarded = Where (bad, zero, p)
  by_heads = MatMul (guarded, v_heads)
  y = Transpose <perm = [0, 2, 1, 3]> (by_heads)
}}
"""


def step(share: int, queries: int | None) -> onnx.ModelProto:
    text = STEP.format(heads=2 * share, share=share)
    return onnx.parser.parse_model(text if queries is None else text.replace("S,", f"{queries},"))


def feeds_of(share: int, queries: int, past: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(past + 7 * queries)
    length = past + queries
    causal = np.where(np.arange(length) <= np.arange(queries)[:, None] + past, 0, -np.inf)
    sizes = {"q": (1, 2 * share, queries, 8), "past_k": (1, 2, past, 8), "past_v": (1, 2, past, 8),
             "new_k": (1, 2, queries, 8), "new_v": (1, 2, queries, 8), "bias": (1, 2 * share, 1, length)}
    feeds = {name: rng.standard_normal(s).astype(np.float32) for name, s in sizes.items()}
    feeds["mask"] = causal[None, None].astype(np.float32)
    if past > 3:
        feeds["mask"][..., 0, :] = -np.inf  # a row that sees nothing: 0 behind the guard
    return feeds


def expected(feeds: dict[str, np.ndarray], share: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    f = {name: value.astype(np.float64) for name, value in feeds.items()}
    k, v = np.concatenate([f["past_k"], f["new_k"]], 2), np.concatenate([f["past_v"], f["new_v"]], 2)
    scores = f["q"] @ np.repeat(k, share, 1).swapaxes(2, 3) * 0.36 + f["bias"] + f["mask"]
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True))
        p = np.nan_to_num(e / e.sum(-1, keepdims=True))
    return (p @ np.repeat(v, share, 1)).swapaxes(1, 2), k, v


def kernels_of(session: "tensorbox.Session") -> list[str]:
    return [line for part in session.explain() for line in part["decisions"] if line.startswith("kernel: ")]


@pytest.mark.parametrize("share", [1, 3])
@pytest.mark.parametrize("queries", [1, 4])
def test_a_step_reads_the_cache_where_it_lies(share: int, queries: int) -> None:
    session = tensorbox.Session(step(share, queries), compile=False)
    for past in (0, 1, 2, 17, 300):
        feeds = feeds_of(share, queries, past)
        got = session.run(feeds)
        for name, want in zip(("y", "k", "v"), expected(feeds, share), strict=True):
            assert got[name].shape == want.shape
            np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5)
    assert kernels_of(session) == ["kernel: fused_attention"]  # no product, no repeated heads
    generated = [part for part in session.explain() if part["kind"] != "extern"]
    assert len(generated) <= 5, "four parts of two caches, and the sum of two masks"


def test_any_number_of_queries_is_fused() -> None:
    session = tensorbox.Session(step(2, None), compile=False)
    for queries, past in [(1, 0), (5, 0), (7, 3), (1, 40), (33, 5)]:
        feeds = feeds_of(2, queries, past)
        np.testing.assert_allclose(session.run(feeds)["y"], expected(feeds, 2)[0], rtol=2e-5, atol=2e-5)
    assert "kernel: fused_attention" in kernels_of(session)


def test_lengths_of_keys_and_values_that_differ_are_refused() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1, 2, 1, 4] q, float[1, 2, 4, T] k, float[1, 2, U, 3] v) => (float[1, 2, 1, 3] y)
    { s = MatMul (q, k) p = Softmax <axis = -1> (s) y = MatMul (p, v) }"""
    session = tensorbox.Session(onnx.parser.parse_model(text), compile=False)
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 1, 4), (1, 2, 4, 6), (1, 2, 6, 3)))
    assert session.run({"q": q, "k": k, "v": v})["y"].shape == (1, 2, 1, 3)
    with pytest.raises(tensorbox.Error, match="lengths of key and value differ"):
        session.run({"q": q, "k": k, "v": v[:, :, :5]})
