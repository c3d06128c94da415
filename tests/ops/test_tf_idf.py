"""TfIdfVectorizer counts what plain loops count, whatever numbers the model gives for lengths and gaps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorbox

LARGEST = 2**63 - 1
POOL = [1, 2, 3, 1, 2, 2, 3, 3, 1]  # 1-grams 1, 2, 3; 2-grams (1, 2), (2, 3), (3, 1)
GRAMS = [(1,), (2,), (3,), (1, 2), (2, 3), (3, 1)]


def counted(row: list[int], shortest: int, longest: int, skip: int) -> list[float]:
    counts = [0.0] * len(GRAMS)
    for column, gram in enumerate(GRAMS):
        if not shortest <= len(gram) <= longest:
            continue
        gaps = range(1, min(skip + 1, max(len(row), 1)) + 1) if len(gram) > 1 else [1]
        for gap, start in itertools.product(gaps, range(len(row))):
            counts[column] += tuple(row[start:start + gap * (len(gram) - 1) + 1:gap]) == gram
    return counts


@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 2), (2, 2), (1, LARGEST), (2, LARGEST), (LARGEST, LARGEST)])
@pytest.mark.parametrize("skip", [0, 1, 3, LARGEST])
def test_counts(shortest: int, longest: int, skip: int) -> None:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=shortest, max_gram_length=longest,
                            max_skip_count=skip, ngram_counts=[0, 3], ngram_indexes=list(range(6)), pool_int64s=POOL)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6])])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    rng = np.random.default_rng(3)
    for length in (0, 1, 2, 5, 9):
        row = rng.integers(1, 4, length)
        np.testing.assert_array_equal(session.run({"x": row})["y"], counted(row.tolist(), shortest, longest, skip))
