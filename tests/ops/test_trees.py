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
