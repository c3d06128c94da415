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


def session_of(tokens: type, shape: list[str], **attributes: object) -> tensorbox.Session:
    """TfIdfVectorizer of this pool of integers, or of the strings of their digits."""
    pool = {"pool_int64s": POOL} if tokens is int else {"pool_strings": [str(p) for p in POOL]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{"ngram_counts": [0, 3], "ngram_indexes": list(range(6)),
                                                               "max_skip_count": 0} | pool | attributes)
    kind = TensorProto.INT64 if tokens is int else TensorProto.STRING
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape[:-1], None])])
    return tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def given(tokens: type, row: np.ndarray) -> np.ndarray:
    return row if tokens is int else row.astype(str).astype(object)


@pytest.mark.parametrize("tokens", [int, str])
@pytest.mark.parametrize(("shortest", "longest"), [(1, 1), (1, 2), (2, 2), (1, LARGEST), (2, LARGEST), (LARGEST, LARGEST)])
@pytest.mark.parametrize("skip", [0, 1, 3, LARGEST])
def test_counts(tokens: type, shortest: int, longest: int, skip: int) -> None:
    session = session_of(tokens, ["n"], mode="TF", min_gram_length=shortest, max_gram_length=longest, max_skip_count=skip)
    rng = np.random.default_rng(3)
    for length in (0, 1, 2, 5, 9):
        row = rng.integers(1, 4, length)
        np.testing.assert_array_equal(session.run({"x": given(tokens, row)})["y"], counted(row.tolist(), shortest, longest, skip))


@pytest.mark.parametrize("tokens", [int, str])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, -1.0, 3.0, 0.0, 7.0]])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_weights(tokens: type, mode: str, weights: list[float] | None, rows: int) -> None:
    more = {"weights": weights} if weights else {}
    session = session_of(tokens, ["rows", "n"], mode=mode, min_gram_length=1, max_gram_length=2, **more)
    x = np.random.default_rng(4).integers(1, 4, (rows, 7))
    expected = np.array([counted(row.tolist(), 1, 2, 0) for row in x]).reshape(rows, len(GRAMS))
    if mode == "IDF":
        expected = np.minimum(expected, 1)
    if mode != "TF" and weights:
        expected *= weights
    np.testing.assert_array_equal(session.run({"x": given(tokens, x)})["y"], expected)


@pytest.mark.parametrize("tokens", [int, str])
@pytest.mark.parametrize(("attributes", "text"), [
    ({"ngram_counts": [0, 10]}, "ngram_counts does not fit a pool of 9 items"),
    ({"ngram_counts": [4, 3]}, "ngram_counts does not fit a pool of 9 items"),
    ({"ngram_indexes": [0, 1]}, "ngram_indexes has 2 entries for 6 n-grams"),
    ({"ngram_indexes": [0, 1, 2, 3, 4, -5]}, "ngram_indexes holds -5"),
    ({"ngram_indexes": [0, 1, 2, 3, 4, 1 << 31]}, "ngram_indexes holds 2147483648"),
    ({"min_gram_length": 0}, "n-grams of 0 to 2 items"), ({"min_gram_length": 3}, "n-grams of 3 to 2 items"),
    ({"max_skip_count": -1}, "max_skip_count is -1"), ({"mode": "TI"}, "mode is 'TI'"),
    ({"weights": [1.0]}, "1 weights for 6 n-grams"),
    ({"pool_int64s": POOL, "pool_strings": ["a"]}, "attribute 'pool_(int64s|strings)' and not 'pool_(strings|int64s)'")])
def test_what_is_refused(tokens: type, attributes: dict[str, object], text: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=text):
        session_of(tokens, ["n"], **{"mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2} | attributes)


@pytest.mark.parametrize("tokens", [int, str])
@pytest.mark.parametrize(("rows", "length"), [(1, 3000), (300, 40), (2000, 1)])
def test_a_large_vocabulary(tokens: type, rows: int, length: int) -> None:
    """Of numbers far from each other, in as many rows as threads share."""
    rng = np.random.default_rng(rows)
    known = np.unique(rng.integers(-(2**62), 2**62, 900))
    singles, pairs = known[:700], rng.choice(known, (1500, 2))
    pairs = np.unique(pairs, axis=0)
    pool = np.concatenate([singles, pairs.ravel()]).tolist()
    columns = rng.permutation(len(singles) + len(pairs))
    named = {"pool_int64s": pool} if tokens is int else {"pool_strings": [str(p) for p in pool]}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2,
                            max_skip_count=0, ngram_counts=[0, len(singles)], ngram_indexes=columns.tolist(), **named)
    kind = TensorProto.INT64 if tokens is int else TensorProto.STRING
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, [rows, length])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    x = rng.choice(np.concatenate([known, known + 1]), (rows, length))
    at = rng.integers(0, max(1, length - 1), rows)
    if length > 1:  # pairs of the vocabulary, of which chance makes few
        x[np.arange(rows)[:, None], at[:, None] + [0, 1]] = pairs[rng.integers(0, len(pairs), rows)]
    of_gram = {tuple(np.atleast_1d(g)): columns[i] for i, g in enumerate([*singles, *pairs])}
    want = np.zeros((rows, len(columns)), np.float32)
    for r, row in enumerate(x):
        for gram in [*((t,) for t in row), *itertools.pairwise(row)]:
            if gram in of_gram:
                want[r, of_gram[gram]] += 1
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = tensorbox.Session(model, threads=2).run({"x": given(tokens, x)})["y"]
    assert want.sum() > rows * length / 5
    np.testing.assert_array_equal(got, want)
