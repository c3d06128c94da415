"""Conditions of tree ensembles and kernels of support vector machines, against ONNX Runtime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import expected

tensorbox = pytest.importorskip("tensorbox")

NAN, INF, TINY = np.nan, np.inf, np.float32(1e-45)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
VALUES = [0.0, -0.0, 1.0, -1.0, TINY, -TINY, INF, -INF, NAN, np.nextafter(np.float32(1), np.float32(0)), 1.5]


def model(op: str, features: int, outputs: list[Any], **attributes: Any) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", features))
    results = [helper.make_tensor_value_info(n, *types) for n, types in zip(names, outputs)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], op, [x], results), opset_imports=imports, ir_version=9)


def check(made: onnx.ModelProto, x: np.ndarray, rtol: float = 1e-5) -> None:
    session = tensorbox.Session(made, compile=False)
    for rows in (x, x[:3], x[:1]):
        wanted = expected(made, {"x": rows}, "ort")
        for want, got in zip(wanted, session.run({"x": rows}).values(), strict=True):
            np.testing.assert_allclose(got, want, rtol, 1e-6)


def stumps(modes: list[str], split: float, missing: list[int]) -> onnx.ModelProto:
    """One split and two leaves per tree; leaves add 1, 2, 4, ..."""
    trees = range(len(modes))
    return model(
        "TreeEnsembleRegressor",
        1,
        [(TensorProto.FLOAT, ("n", 1))],
        n_targets=1,
        nodes_treeids=[t for t in trees for _ in range(3)],
        nodes_nodeids=[0, 1, 2] * len(modes),
        nodes_featureids=[0] * 3 * len(modes),
        nodes_modes=[m for mode in modes for m in (mode, "LEAF", "LEAF")],
        nodes_values=[split, 0.0, 0.0] * len(modes),
        nodes_truenodeids=[1, 0, 0] * len(modes),
        nodes_falsenodeids=[2, 0, 0] * len(modes),
        nodes_missing_value_tracks_true=[m for t in trees for m in (missing[t % len(missing)], 0, 0)],
        target_treeids=[t for t in trees for _ in range(2)],
        target_nodeids=[1, 2] * len(modes),
        target_ids=[0] * 2 * len(modes),
        target_weights=[float(2 ** (2 * t + side)) for t in trees for side in range(2)],
    )


X = np.array(VALUES, np.float32)[:, None]


@pytest.mark.parametrize("missing", [[0], [1]])
@pytest.mark.parametrize("split", [0.0, 1.0, -INF, INF])
@pytest.mark.parametrize("mode", MODES)
def test_condition(mode: str, split: float, missing: list[int]) -> None:
    made = stumps([mode] * 3, split, missing)
    check(made, X)
    check(made, X[~np.isnan(X[:, 0])])


@pytest.mark.parametrize("modes", list(itertools.combinations(MODES, 2)), ids=str)
def test_mixed_conditions(modes: tuple[str, str]) -> None:
    check(stumps([*modes, modes[0]], 1.0, [1, 0]), X)


@pytest.mark.parametrize("leaves", ["all", "turned", "some", "none"])
@pytest.mark.parametrize("targets", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("op", ["TreeEnsembleRegressor", "TreeEnsembleClassifier"])
def test_weights_of_leaves(op: str, targets: int, leaves: str) -> None:
    """For all targets, in their order or another, for some, or for none of some leaves; by plain loops."""
    rng = np.random.default_rng(targets)
    trees, depth, features = 70, 3, 5
    nodes, split = 2 ** (depth + 1) - 1, rng.standard_normal((trees, 2**depth - 1)).astype(np.float32)
    feature = rng.integers(0, features, split.shape)
    weights = rng.random((trees, 2**depth, targets)).astype(np.float32)
    if leaves in ("some", "none"):
        weights[rng.random(weights.shape) < 0.4] = 0
    if leaves == "none":
        weights[:, ::3] = 0
    kept = [(t, k, c) for t in range(trees) for k in range(2**depth)
            for c in (range(targets - 1, -1, -1) if leaves == "turned" else range(targets)) if leaves in ("all", "turned") or weights[t, k, c]]
    each = range(nodes)
    attributes: dict[str, Any] = {
        "nodes_treeids": [t for t in range(trees) for _ in each], "nodes_nodeids": [*each] * trees,
        "nodes_featureids": [int(feature[t, i]) if i < len(split[t]) else 0 for t in range(trees) for i in each],
        "nodes_modes": ["BRANCH_LEQ" if i < len(split[0]) else "LEAF" for i in each] * trees,
        "nodes_values": [float(split[t, i]) if i < len(split[t]) else 0.0 for t in range(trees) for i in each],
        "nodes_truenodeids": [2 * i + 1 if i < len(split[0]) else 0 for i in each] * trees,
        "nodes_falsenodeids": [2 * i + 2 if i < len(split[0]) else 0 for i in each] * trees}
    kind = "target" if op.endswith("Regressor") else "class"
    attributes |= {f"{kind}_treeids": [t for t, _, _ in kept], f"{kind}_nodeids": [k + len(split[0]) for _, k, _ in kept],
                   f"{kind}_ids": [c for _, _, c in kept], f"{kind}_weights": [float(weights[k]) for k in kept]}
    scores = (TensorProto.FLOAT, ("n", targets))
    if kind == "target":
        made = model(op, features, [scores], n_targets=targets, **attributes)
    elif targets < 3:
        return  # of two classes leaves may score one; held against ONNX Runtime elsewhere
    else:
        made = model(op, features, [(TensorProto.INT64, ("n",)), scores], classlabels_int64s=[7 * c for c in range(targets)], **attributes)
    session = tensorbox.Session(made, compile=False, threads=2)
    for rows in (0, 1, 2, 7, 8, 9, 65, 300):
        x = rng.standard_normal((rows, features)).astype(np.float32)
        want = np.zeros((rows, targets))
        for r in range(rows):
            for t in range(trees):
                i = 0
                while i < len(split[t]):
                    i = 2 * i + (1 if x[r, feature[t, i]] <= split[t, i] else 2)
                want[r] += weights[t, i - len(split[t])]
        got = list(session.run({"x": x}).values())
        np.testing.assert_allclose(got[-1], want, 1e-5, 1e-5)
        if kind == "class":
            np.testing.assert_array_equal(got[0], 7 * want.argmax(1))


@pytest.mark.parametrize("features", [3, 70])
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel: str, features: int) -> None:
    random = np.random.default_rng(features)
    support, x = random.normal(size=(21, features)), random.normal(size=(9, features)).astype(np.float32)
    made = model(
        "SVMRegressor",
        features,
        [(TensorProto.FLOAT, ("n", 1))],
        kernel_type=kernel,
        kernel_params=[0.4 / features, 0.3, 2.0],
        n_supports=21,
        support_vectors=support.ravel().tolist(),
        coefficients=random.normal(size=21).tolist(),
        rho=[0.2],
    )
    check(made, x, 1e-4)


@pytest.mark.parametrize("gamma", [0.0, 50.0, -0.01])
def test_extreme_widths(gamma: float) -> None:
    x = np.array([[0.0, 0], [3, 4], [1e15, 0]][: 2 if gamma < 0 else 3], np.float32)
    made = model(
        "SVMRegressor",
        2,
        [(TensorProto.FLOAT, ("n", 1))],
        kernel_type="RBF",
        kernel_params=[gamma, 0.0, 0.0],
        n_supports=2,
        support_vectors=[0.0, 0.0, 3.0, 4.0],
        coefficients=[1.0, 2.0],
        rho=[0.0],
    )
    check(made, x)
