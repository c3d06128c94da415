"""ai.onnx.ml: features, linear models, support vectors and trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

import kinds
from builder import Builder
from recipes import recipe

ML = "ai.onnx.ml."
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def rows(b: Builder, width: int, low: float = -3, high: float = 3) -> None:
    b.give(b.array((b.integer(1, 4), width), low, high))


def reals(b: Builder, count: int) -> list[float]:
    return [b.real(-1, 1) for _ in range(count)]


def in_float(b: Builder) -> None:
    """onnx.reference takes coefficients to the type of an integral input: it is given the input as floats."""
    if b.dtype(b.schema.inputs[0].type_str).kind == "i":
        b.refer_to(b.version, [b.values["x0"].astype(np.float32)], **b.attributes)


def class_labels(b: Builder, param: str, ints: str, count: int) -> None:
    """Labels of the type that the output has."""
    if b.types[param] == "tensor(string)":
        b.set(classlabels_strings=[f"class{i}" for i in range(count)])
    else:
        b.set(**{ints: [i * 2 for i in range(count)]})


@recipe(ML + "ArrayFeatureExtractor")
def array_feature_extractor(b: Builder) -> None:
    width = b.integer(1, 5)
    rows(b, width)
    b.give(b.rng.integers(0, width, b.integer(1, 4)))


@recipe(ML + "Binarizer")
def binarizer(b: Builder) -> None:
    rows(b, 3)
    b.maybe(threshold=b.real(-1, 1))


@recipe(ML + "Scaler")
def scaler(b: Builder) -> None:
    rows(b, 3)
    count = b.pick(1, 3)
    b.set(scale=reals(b, count), offset=reals(b, count))


@recipe(ML + "Normalizer")
def normalizer(b: Builder) -> None:
    rows(b, 3, 1, 5)
    b.maybe(norm=b.pick("MAX", "L1", "L2"))


@recipe(ML + "Imputer")
def imputer(b: Builder) -> None:
    value = b.array((b.integer(1, 4), 3))
    count = b.pick(1, 3)
    if b.dtype("T").kind == "f":
        if b.chance():
            value[0, 0] = np.nan
            b.set(replaced_value_float=float("nan"))
        b.set(imputed_value_floats=reals(b, count))
    else:
        b.set(imputed_value_int64s=[b.integer(1, 9) for _ in range(count)], replaced_value_int64=b.integer(-1, 1))
    b.give(value)


@recipe(ML + "FeatureVectorizer")
def feature_vectorizer(b: Builder) -> None:
    widths = [b.integer(1, 3) for _ in range(b.integer(1, 3))]
    for width in widths:
        b.give(b.array((2, width)))
    b.set(inputdimensions=widths)


@recipe(ML + "OneHotEncoder")
def one_hot_encoder(b: Builder) -> None:
    value = b.array(b.shape(1, 2, empty=0), 0, 3)
    if value.dtype.kind == "O":
        b.set(cats_strings=list(kinds.WORDS))
    else:
        b.set(cats_int64s=[0, 1, 2, 3])
    b.give(np.trunc(value) if value.dtype.kind == "f" else value)
    b.set(zeros=1)


@recipe(ML + "CategoryMapper")
def category_mapper(b: Builder) -> None:
    if b.types["T1"] == b.types["T2"]:  # it maps between strings and numbers
        b.types["T2"] = "tensor(int64)" if b.types["T1"] == "tensor(string)" else "tensor(string)"
    b.give(b.array(b.shape(), 0, 3))
    b.set(cats_strings=["", "a", "bc"], cats_int64s=[0, 1, 2])
    b.maybe(default_string="none", default_int64=-7)


@recipe(ML + "LabelEncoder")
def label_encoder(b: Builder) -> None:
    source, target = b.types["T1"], b.types["T2"]
    if b.version == 1:
        if source == target:
            b.types["T2"] = "tensor(int64)" if source == "tensor(string)" else "tensor(string)"
        b.give(b.array(b.shape(1, 2, empty=0), 0, 3))
        b.set(classes_strings=["", "a", "bc"])
        b.maybe(default_string="none", default_int64=-7)
        return
    suffix = {"tensor(string)": "strings", "tensor(int64)": "int64s", "tensor(float)": "floats"}
    b.give(np.round(b.array(b.shape(1, 2, empty=0), 0, 3).astype(np.float64)) if b.dtype("T1").kind != "O"
           else b.array(b.shape(1, 2, empty=0)))
    sample: dict[str, list[Any]] = {"strings": ["", "a", "bc"], "int64s": [0, 1, 2], "floats": [0.0, 1.0, 2.0]}
    for side, kind in (("keys", source), ("values", target)):
        if kind in suffix and (b.version < 4 or b.chance()):
            b.set(**{f"{side}_{suffix[kind]}": sample[suffix[kind]]})
        else:
            b.set(**{f"{side}_tensor": _tensor(kind, sample["strings" if kind == "tensor(string)" else "int64s"])})
    if target in suffix and b.version < 4 or f"values_{suffix.get(target)}" in b.attributes:
        b.maybe(**{f"default_{suffix[target][:-1]}": {"strings": "none", "int64s": -7, "floats": -7.0}[suffix[target]]})
    else:
        b.set(default_tensor=_tensor(target, ["none" if target == "tensor(string)" else 7]))


def _tensor(kind: str, values: list[Any]) -> Any:
    number = kinds.element(kind)
    data = [v.encode() for v in values] if kind == "tensor(string)" else values
    return helper.make_tensor("t", number, (len(values),), data)


@recipe(ML + "LinearClassifier")
def linear_classifier(b: Builder) -> None:
    width, classes = b.integer(1, 4), b.integer(2, 4)
    rows(b, width)
    b.set(coefficients=reals(b, width * classes), intercepts=reals(b, classes))
    b.maybe(post_transform=b.pick(*TRANSFORMS))
    class_labels(b, "T2", "classlabels_ints", classes)
    b.terms = 32
    in_float(b)


@recipe(ML + "LinearRegressor")
def linear_regressor(b: Builder) -> None:
    width, targets = b.integer(1, 4), b.integer(1, 3)
    rows(b, width)
    b.set(coefficients=reals(b, width * targets), intercepts=reals(b, targets), targets=targets)
    b.maybe(post_transform="NONE")
    b.terms = 32
    in_float(b)


@recipe(ML + "SVMRegressor")
def svm_regressor(b: Builder) -> None:
    width, count = b.integer(1, 3), b.integer(1, 4)
    rows(b, width)
    b.set(kernel_type=b.pick("LINEAR", "POLY", "RBF", "SIGMOID"), kernel_params=[0.5, 0.25, 2.0], rho=reals(b, 1),
          support_vectors=reals(b, count * width), coefficients=reals(b, count), n_supports=count)
    b.terms = 64
    in_float(b)


@recipe(ML + "SVMClassifier")
def svm_classifier(b: Builder) -> None:
    width, classes = b.integer(1, 3), b.integer(2, 3)
    per_class = [b.integer(1, 2) for _ in range(classes)]
    count = sum(per_class)
    rows(b, width)
    b.set(kernel_type=b.pick("LINEAR", "POLY", "RBF", "SIGMOID"), kernel_params=[0.5, 0.25, 2.0],
          rho=reals(b, classes * (classes - 1) // 2), support_vectors=reals(b, count * width),
          coefficients=reals(b, count * (classes - 1)), vectors_per_class=per_class)
    class_labels(b, "T2", "classlabels_ints", classes)
    b.terms = 64
    in_float(b)


def forest(b: Builder, width: int) -> tuple[dict[str, list[Any]], list[tuple[int, int]]]:
    """Nodes of full trees of depth one or two; the leaves as (tree, node)."""
    nodes: dict[str, list[Any]] = {key: [] for key in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    leaves = []
    mode = b.pick("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
    for tree in range(b.integer(1, 3)):
        inner = b.pick(1, 3)
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            leaves += [(tree, node)] if is_leaf else []
            row = (tree, node, 0 if is_leaf else b.integer(0, width - 1), "LEAF" if is_leaf else mode,
                   0.0 if is_leaf else b.real(-2, 2), 0 if is_leaf else 2 * node + 1, 0 if is_leaf else 2 * node + 2)
            for key, value in zip(nodes, row):
                nodes[key].append(value)
    return {f"nodes_{key}": value for key, value in nodes.items()}, leaves


@recipe(ML + "TreeEnsembleRegressor")
def tree_regressor(b: Builder) -> None:
    width, targets = b.integer(1, 3), b.integer(1, 2)
    nodes, leaves = forest(b, width)
    rows(b, width)
    b.set(**nodes, n_targets=targets, target_treeids=[t for t, _ in leaves], target_nodeids=[n for _, n in leaves],
          target_ids=[b.integer(0, targets - 1) for _ in leaves], target_weights=reals(b, len(leaves)))
    b.maybe(aggregate_function=b.pick("SUM", "AVERAGE", "MIN", "MAX"), base_values=reals(b, targets))
    b.terms = 32
    in_float(b)


@recipe(ML + "TreeEnsembleClassifier")
def tree_classifier(b: Builder) -> None:
    width, classes = b.integer(1, 3), b.integer(2, 3)
    nodes, leaves = forest(b, width)
    rows(b, width)
    b.set(**nodes, class_treeids=[t for t, _ in leaves], class_nodeids=[n for _, n in leaves],
          class_ids=[i % classes for i, _ in enumerate(leaves)], class_weights=[b.real(0.1, 1) for _ in leaves])
    b.maybe(post_transform=b.pick(*TRANSFORMS))
    class_labels(b, "T2", "classlabels_int64s", classes)
    b.terms = 32
    in_float(b)


@recipe(ML + "TreeEnsemble")
def tree_ensemble(b: Builder) -> None:
    """Two leaves for each tree."""
    width, targets, trees = b.integer(1, 3), b.integer(1, 2), b.integer(1, 3)
    number, dtype = b.element("T"), b.dtype("T")
    rows(b, width)

    def tensor(count: int) -> Any:
        return helper.make_tensor("t", number, (count,), b.array((count,), -1, 1, "T").astype(dtype))

    b.set(tree_roots=list(range(trees)), nodes_featureids=[b.integer(0, width - 1) for _ in range(trees)],
          nodes_splits=tensor(trees), nodes_modes=helper.make_tensor("m", 2, (trees,), [b.integer(0, 5) for _ in range(trees)]),
          nodes_truenodeids=[2 * i for i in range(trees)], nodes_falsenodeids=[2 * i + 1 for i in range(trees)],
          nodes_trueleafs=[1] * trees, nodes_falseleafs=[1] * trees, n_targets=targets,
          leaf_targetids=[b.integer(0, targets - 1) for _ in range(2 * trees)], leaf_weights=tensor(2 * trees))
    b.maybe(aggregate_function=b.integer(0, 3))
    b.terms = 32
