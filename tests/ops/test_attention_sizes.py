"""ONNX Attention with dimensions that are known at run time only, each input with names of its own: empty batches, one row,
odd and usual sizes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from peers import tensorbox

HEADS, KV_HEADS, WIDTH, VALUE_WIDTH = 4, 2, 8, 6


def model() -> onnx.ModelProto:
    widths = {"q": HEADS * WIDTH, "k": KV_HEADS * WIDTH, "v": KV_HEADS * VALUE_WIDTH}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [f"{n}_batch", f"{n}_rows", w]) for n, w in widths.items()]
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=HEADS, kv_num_heads=KV_HEADS)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", HEADS * VALUE_WIDTH])
    return helper.make_model(helper.make_graph([node], "attention", inputs, [result]),
                             opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    batch, rows, keys = q.shape[0], q.shape[1], k.shape[1]
    y = np.zeros((batch, rows, HEADS, VALUE_WIDTH))
    for b in range(batch):
        for h in range(HEADS):
            group = h // (HEADS // KV_HEADS)
            scores = (q[b].reshape(rows, HEADS, WIDTH)[:, h].astype(np.float64)
                      @ k[b].reshape(keys, KV_HEADS, WIDTH)[:, group].T / np.sqrt(WIDTH))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            y[b, :, h] = weights / weights.sum(-1, keepdims=True) @ v[b].reshape(keys, KV_HEADS, VALUE_WIDTH)[:, group]
    return y.reshape(batch, rows, HEADS * VALUE_WIDTH)


@pytest.mark.parametrize("compile", [False, True])
def test_sizes_of_one_session(compile: bool) -> None:
    session = tensorbox.Session(model(), compile=compile)
    rng = np.random.default_rng(5)
    for batch, rows, keys in [(2, 3, 7), (0, 17, 17), (1, 1, 1), (3, 64, 77), (0, 1, 5), (1, 0, 4)]:
        q = rng.standard_normal((batch, rows, HEADS * WIDTH)).astype(np.float32)
        k = rng.standard_normal((batch, keys, KV_HEADS * WIDTH)).astype(np.float32)
        v = rng.standard_normal((batch, keys, KV_HEADS * VALUE_WIDTH)).astype(np.float32)
        got = session.run({"q": q, "k": k, "v": v})["y"]
        want = expected(q, k, v)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{batch} x {rows} x {keys}")


def test_a_batch_of_keys_that_does_not_fit_is_refused() -> None:
    f = np.ones
    with pytest.raises(tensorbox.ModelError):
        tensorbox.Session(model(), compile=False).run({"q": f((2, 3, 32), np.float32), "k": f((3, 3, 16), np.float32),
                                                       "v": f((3, 3, 12), np.float32)})


@pytest.mark.parametrize(("options", "queries"), [
    ({"compile": False}, 1), ({"compile": False}, 4), ({"compile": False}, 31), ({"compile": False}, "t"), ({"reference": True}, 4),
    ({"compile": False, "precision": "bf16"}, "t"), ({"device": "cuda"}, 4), ({"device": "cuda", "precision": "f16"}, "t")], ids=str)
@pytest.mark.parametrize("keys", [0, "s"])
def test_no_keys(options: dict[str, Any], queries: int | str, keys: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two products and a softmax over no keys are sums of no terms, as one kernel, too."""
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
g (float[b, 4, {queries}, 8] q, float[b, 4, {keys}, 8] k, float[b, 4, {keys}, 6] v, float[b, 1, 1, {keys}] m) => (float[b, 4, {queries}, 6] y)
<float scale = {{0.25}}>
{{ t = Transpose<perm = [0, 1, 3, 2]>(k)
  a = MatMul(q, t)
  c = Mul(a, scale)
  d = Add(c, m)
  p = Softmax<axis = -1>(d)
  y = MatMul(p, v) }}""")
    session = tensorbox.Session(model, **options)
    assert keys == 0 or any("Attention" in step["name"] for step in session.explain())
    rng = np.random.default_rng(3)
    for rows, columns in ((31, 0), (5, 9), (1, 0), (40, 300)):
        rows, columns = (size if isinstance(known, str) else known for size, known in ((rows, queries), (columns, keys)))
        q, k, v, m = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, rows, 8), (2, 4, columns, 8), (2, 4, columns, 6), (2, 1, 1, columns)))
        want = np.zeros((2, 4, rows, 6))
        if columns:
            shares = np.exp(q.astype(np.float64) @ k.swapaxes(2, 3).astype(np.float64) / 4 + m)
            want = shares @ v.astype(np.float64) / shares.sum(-1, keepdims=True)
        got = session.run({"q": q, "k": k, "v": v, "m": m})["y"]
        tolerance = 0.03 if "precision" in options else 1e-5
        np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=f"{rows} queries, {columns} keys")
