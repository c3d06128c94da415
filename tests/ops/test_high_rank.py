"""Tensors of rank 12 in the operators whose loops depend on the rank, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from peers import model_of, tensorbox

SIZES = (2, 1, 3, 1, 2, 1, 2, 2, 1, 2, 1, 3)
RNG = np.random.default_rng(0)
X = RNG.standard_normal(SIZES).astype(np.float32)
Y = RNG.standard_normal((1, 2, 1, 2, 2, 1, 1, 2, 2, 1, 2, 3)).astype(np.float32)
B = RNG.standard_normal(SIZES[:-2] + (3, 4)).astype(np.float32)
ORDER = [11, 0, 10, 1, 9, 2, 8, 3, 7, 4, 6, 5]
WIDER = (2, 2, 3, 1, 2, 2, 2, 2, 1, 2, 1, 3)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scattered() -> np.ndarray:
    want = X.copy()
    want[0] += 2 * X.sum(0)
    return want


CASES: dict[str, tuple[list[np.ndarray], dict[str, Any], np.ndarray]] = {
    "Add": ([X, Y], {}, X + Y),
    "Where": ([X > 0, X, Y], {}, np.where(X > 0, X, Y)),
    "Transpose": ([X], {"perm": ORDER}, X.transpose(ORDER)),
    "ReduceSum": ([X, ints(0, 2, -1)], {"keepdims": 0}, X.sum((0, 2, 11))),
    "Softmax": ([X], {"axis": 2}, np.exp(X) / np.exp(X).sum(2, keepdims=True)),
    "LayerNormalization": ([X, np.ones(3, np.float32)], {"axis": 11},
                           (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 1e-5)),
    "ArgMax": ([X], {"axis": 2, "keepdims": 0}, X.argmax(2)),
    "CumSum": ([X, np.array(-1, np.int64)], {}, X.cumsum(-1)),
    "MatMul": ([X, B], {}, np.matmul(X, B)),
    "Concat": ([X, X], {"axis": 3}, np.concatenate([X, X], 3)),
    "Gather": ([X, np.array([[0, -1], [1, 1]])], {"axis": 0}, np.take(X, [[0, -1], [1, 1]], 0)),
    "GatherND": ([X, np.array([[0, 0, 2], [1, 0, 1]])], {}, X[[0, 1], 0, [2, 1]]),
    "ScatterElements": ([X, np.zeros(SIZES, np.int64), 2 * X], {"axis": 0, "reduction": "add"}, scattered()),
    "Slice": ([X, ints(-1, 2), ints(-100, 0), ints(2, 11), ints(-1, -1)], {}, X[:, :, ::-1][..., 2:0:-1]),
    "Expand": ([X, ints(*WIDER)], {}, np.broadcast_to(X, WIDER)),
    "Tile": ([X, ints(*[1, 2] * 6)], {}, np.tile(X, [1, 2] * 6)),
    "Pad": ([X, ints(*[0] * 23, 2)], {}, np.pad(X, [(0, 0)] * 11 + [(0, 2)])),
    "Reshape": ([X, ints(-1)], {}, X.reshape(-1)),
    "Squeeze": ([X], {}, X.squeeze()),
    "Unsqueeze": ([X, ints(0, 12, 5)], {}, np.expand_dims(X, (0, 12, 5))),
}


@pytest.mark.parametrize("op", CASES)
def test_rank_12(op: str) -> None:
    values, attributes, want = CASES[op]
    feeds = {f"in{i}": value for i, value in enumerate(values)}
    model = model_of(op, feeds, ["y"], 18, **attributes)
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(want.dtype)
    for options in ({"compile": False}, {"compile": True}, {"compile": False, "all_dims_dynamic": True}):
        got = tensorbox.Session(model, **options).run(feeds)["y"]
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=str(options))
