"""Conditions of tree ensembles and kernels of support vector machines, against ONNX Runtime."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
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


class RandomTrees:
    """Trees of any shape: branches with probability `grow`, conditions from `modes`, children shared where `shares`."""

    def __init__(self, seed: int, trees: int, levels: int, features: int, targets: int, modes: list[str], grow: float, shares: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.trees, self.features, self.targets, self.modes = trees, features, targets, modes
        self.nodes: list[list[Any]] = []  # tree, id, mode, feature, split, true, false, missing goes to true, weights
        for tree in range(trees):
            first = len(self.nodes)
            self.nodes.append([tree, 0])
            open_nodes = [(first, 0)]
            while open_nodes:
                at, level = open_nodes.pop()
                if level == levels or self.rng.random() > grow:
                    self.nodes[at] += ["LEAF", 0, 0.0, 0, 0, 0, self.rng.standard_normal(targets).astype(np.float32)]
                    continue
                children = []
                for _ in range(1 if shares and self.rng.random() < 0.3 else 2):
                    children.append(len(self.nodes) - first)
                    self.nodes.append([tree, len(self.nodes) - first])
                    open_nodes.append((len(self.nodes) - 1, level + 1))
                split = float(self.rng.choice([-2, -0.5, 0, 0.5, 2] if self.rng.random() < 0.5 else [-INF, 1, -1, 0.25, 1.5]))
                self.nodes[at] += [modes[self.rng.integers(len(modes))], int(self.rng.integers(features)), split, children[0], children[-1],
                                   int(self.rng.integers(2)), None]

    def attributes(self) -> dict[str, Any]:
        names = ["treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true"]
        leaves = [(n, c) for n in self.nodes if n[2] == "LEAF" for c in range(self.targets)]
        return {f"nodes_{name}": [n[i] for n in self.nodes] for i, name in enumerate(names)} | {
            "target_treeids": [n[0] for n, _ in leaves], "target_nodeids": [n[1] for n, _ in leaves],
            "target_ids": [c for _, c in leaves], "target_weights": [float(n[8][c]) for n, c in leaves], "n_targets": self.targets}

    def inputs(self, rows: int, missing: bool) -> np.ndarray:
        values = [-INF, -2, -0.5, 0, 0.3, 0.5, 1, 2, INF] + [NAN] * missing
        return self.rng.choice(values, (rows, self.features))

    def leaves(self, row: np.ndarray) -> list[np.ndarray]:
        compare = {"BRANCH_LEQ": np.less_equal, "BRANCH_LT": np.less, "BRANCH_GTE": np.greater_equal, "BRANCH_GT": np.greater,
                   "BRANCH_EQ": np.equal, "BRANCH_NEQ": np.not_equal}
        first = {n[0]: i for i, n in reversed(list(enumerate(self.nodes)))}
        found = []
        for tree in range(self.trees):
            n = self.nodes[first[tree]]
            while n[2] != "LEAF":
                v = row[n[3]]
                n = self.nodes[first[tree] + (n[5] if compare[n[2]](v, n[4]) or (n[7] and np.isnan(v)) else n[6])]
            found.append(n[8])
        return found


ORDERED = MODES[:4]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("trees", "levels", "features", "targets", "modes", "grow", "shares"), [
    (1, 3, 2, 1, ["BRANCH_LEQ"], 1, False),
    (9, 4, 5, 3, ORDERED, 0.9, False),
    (20, 5, 3, 1, ["BRANCH_LEQ"], 1, False),
    (13, 9, 7, 8, ORDERED, 0.95, False),
    (7, 30, 40, 2, ["BRANCH_LT", "BRANCH_GT"], 0.55, False),
    (3, 6, 300, 1, ORDERED, 1, False),  # more features than are copied
    (12, 6, 4, 2, ORDERED, 0.9, True),
    (12, 6, 4, 9, MODES, 0.95, False),
], ids=str)
def test_shapes_of_trees(trees: int, levels: int, features: int, targets: int, modes: list[str], grow: float, shares: bool, aggregate: str) -> None:
    """By plain walks: full and sparse trees, with and without NaN, rows of f32 and f64."""
    made = RandomTrees(trees, trees, levels, features, targets, modes, grow, shares)
    onnx_model = model("TreeEnsembleRegressor", features, [(TensorProto.FLOAT, ("n", targets))], aggregate_function=aggregate, **made.attributes())
    wide = onnx.ModelProto()
    wide.CopyFrom(onnx_model)
    wide.graph.input[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    combine = {"SUM": np.sum, "AVERAGE": np.mean, "MIN": np.min, "MAX": np.max}[aggregate]
    for of_type, dtype in ((onnx_model, np.float32), (wide, np.float64)):
        session = tensorbox.Session(of_type, compile=False, threads=2)
        for rows, missing in ((0, False), (1, True), (3, False), (4, True), (5, True), (8, False), (9, True), (71, True), (130, False)):
            x = made.inputs(rows, missing).astype(dtype)
            want = np.array([combine(made.leaves(row), axis=0) for row in x]).reshape(rows, targets)
            np.testing.assert_allclose(session.run({"x": x})["y0"], want, 1e-5, 1e-5)


def test_a_long_way_down() -> None:
    """A tree that is a list: each branch has a leaf on one side, in turn."""
    levels = 3000
    nodes = list(range(2 * levels + 1))  # branch 2i has the leaf 2i + 1 and the branch 2i + 2
    branch = [i % 2 == 0 and i < 2 * levels for i in nodes]
    leaf = [i for i in nodes if not branch[i]]
    made = model(
        "TreeEnsembleRegressor", 1, [(TensorProto.FLOAT, ("n", 1))], n_targets=1,
        nodes_treeids=[0] * len(nodes), nodes_nodeids=nodes, nodes_featureids=[0] * len(nodes),
        nodes_modes=["BRANCH_LEQ" if b else "LEAF" for b in branch], nodes_values=[i / 2 if b else 0.0 for i, b in enumerate(branch)],
        nodes_truenodeids=[i + 1 if b else 0 for i, b in enumerate(branch)], nodes_falsenodeids=[i + 2 if b else 0 for i, b in enumerate(branch)],
        target_treeids=[0] * len(leaf), target_nodeids=leaf, target_ids=[0] * len(leaf), target_weights=[float(i) for i in leaf])
    x = np.array([-1, 0, 0.5, 3, 4, 5, 17, 1000, 2998.5, 2999, 3000, NAN], np.float32)[:, None]
    steps = np.where(np.isnan(x), levels, np.clip(np.ceil(x), 0, levels))
    want = np.where(steps == levels, 2 * levels, 2 * steps + 1)
    session = tensorbox.Session(made, compile=False)
    np.testing.assert_array_equal(session.run({"x": x})["y0"], want)
    np.testing.assert_array_equal(session.run({"x": x[:2]})["y0"], want[:2])


def test_other_instruction_sets() -> None:
    chosen = [f"{__file__}::test_shapes_of_trees", f"{__file__}::test_weights_of_leaves"]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen], env={**os.environ, "TBX_ISA": "sse"},
                         capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout[-4000:]


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
