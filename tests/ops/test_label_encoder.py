"""LabelEncoder maps as a dict does, between any two of its types, and refuses the same models in all of its forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tensorbox

LISTS = {"strings": ["a", "", "b", "a"], "int64s": [3, -1, 2**40, 3], "floats": [1.5, -0.0, float("nan"), 1.5]}
TYPES = {"strings": ("string", object), "int64s": ("int64", np.int64), "floats": ("float", np.float32),
         "double": ("double", np.float64), "int16": ("int16", np.int16), "int32": ("int32", np.int32)}


def tensor(kind: str, values: list[Any]) -> Any:
    number = getattr(helper.TensorProto, TYPES[kind][0].upper())
    return helper.make_tensor("t", number, [len(values)], [v.encode() for v in values] if kind == "strings" else values)


def session(source: str, target: str, dims: list[Any], compile: bool = False, **attributes: Any) -> tensorbox.Session:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], "labels", domain="ai.onnx.ml", **attributes)
    info = {kind: getattr(helper.TensorProto, TYPES[kind][0].upper()) for kind in (source, target)}
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", info[source], dims)],
                              [helper.make_tensor_value_info("y", info[target], dims)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return tensorbox.Session(helper.make_model(graph, opset_imports=imports, ir_version=10), compile=compile)


def mapped(x: np.ndarray, keys: list[Any], values: list[Any], otherwise: Any, dtype: Any) -> np.ndarray:
    """The first of equal keys counts; NaN is equal to NaN, -0 to 0."""
    def same(a: Any, b: Any) -> bool:
        return a == b or (a != a and b != b)
    found = [next((v for k, v in zip(keys, values, strict=True) if same(k, e)), otherwise) for e in x.ravel()]
    return np.array(found, dtype).reshape(x.shape)


@pytest.mark.parametrize("target", LISTS)
@pytest.mark.parametrize("source", LISTS)
@pytest.mark.parametrize("given", ["none", "value", "tensor"])
def test_lists(source: str, target: str, given: str) -> None:
    own = {"strings": "none", "int64s": -7, "floats": 0.25}[target]
    otherwise = {"strings": "_Unused", "int64s": -1, "floats": -0.0}[target] if given == "none" else own
    attributes = {f"keys_{source}": LISTS[source], f"values_{target}": LISTS[target]}
    if given == "value":
        attributes[f"default_{target[:-1]}"] = own
    if given == "tensor":
        attributes["default_tensor"] = tensor(target, [own])
    run = session(source, target, ["n", 3], **attributes)
    pool = [*LISTS[source], *{"strings": ["x", "ab"], "int64s": [0, 7], "floats": [2.0, float("inf")]}[source]]
    for rows in (0, 1, 7, 400):
        x = np.array([pool[i] for i in np.random.default_rng(rows).integers(0, len(pool), rows * 3)],
                     TYPES[source][1]).reshape(rows, 3)
        np.testing.assert_array_equal(run.run({"x": x})["y"], mapped(x, LISTS[source], LISTS[target], otherwise, TYPES[target][1]))


@pytest.mark.parametrize(("source", "target"), [("double", "int16"), ("int16", "int32"), ("int32", "strings"), ("strings", "double")])
def test_tensors(source: str, target: str) -> None:
    keys: list[Any] = ["1", "2", ""] if source == "strings" else [1, 2, 0]
    values: list[Any] = ["p", "q", "r"] if target == "strings" else [5, 6, -7]
    run = session(source, target, ["n"], keys_tensor=tensor(source, keys), values_tensor=tensor(target, values),
                  default_tensor=tensor(target, ["s" if target == "strings" else 9]))
    x = np.array([keys[i % 4] if i % 4 < 3 else ("3" if source == "strings" else 3) for i in range(33)], TYPES[source][1])
    want = mapped(x, keys, values, "s" if target == "strings" else 9, TYPES[target][1])
    np.testing.assert_array_equal(run.run({"x": x})["y"], want)


@pytest.mark.parametrize("source", ["strings", "int64s"])
@pytest.mark.parametrize(("attributes", "text"), [
    ({"keys_tensor": 3}, "2 of the attributes 'keys_*' are given, expected one"),
    ({"values_floats": [1.0, 2.0, 3.0, 4.0]}, "2 of the attributes 'values_*' are given, expected one"),
    ({"values_int64s": [1, 2]}, "4 keys for 2 values"),
    ({"values_int64s": None}, "0 of the attributes 'values_*' are given, expected one"),
    ({"default_tensor": tensor("floats", [1.0])}, "the default is float32[1], expected one int64"),
    ({"default_tensor": tensor("int64s", [1, 2])}, "the default is int64[2], expected one int64"),
])
def test_refused(source: str, attributes: dict[str, Any], text: str) -> None:
    """With the same words for numbers, which run compiled, and for strings, which do not."""
    usual = {f"keys_{source}": LISTS[source], "values_int64s": LISTS["int64s"]}
    changed = {**usual, **attributes}
    if "keys_tensor" in changed:
        changed["keys_tensor"] = tensor(source, LISTS[source])
    with pytest.raises(tensorbox.ModelError, match=r"node 'labels' \(ai.onnx.ml.LabelEncoder") as raised:
        session(source, "int64s", ["n"], **{k: v for k, v in changed.items() if v is not None})
    assert text in str(raised.value)


def test_keys_of_another_type() -> None:
    with pytest.raises(tensorbox.ModelError, match="keys of type int64 for an input of type float32"):
        session("floats", "int64s", ["n"], keys_int64s=[1], values_int64s=[2])
