"""com.microsoft Tokenizer and classifiers that name their classes, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import expected

tensorbox = pytest.importorskip("tensorbox")

TEXTS = ["the cat's mat", "", "  two  spaces ", "ä öü ß", "日本 語", "a,b;c", "x" * 40, "1.5 2,5"]
FORMS: dict[str, dict[str, Any]] = {
    "words": {"tokenexp": r"[a-zA-Z0-9_]+"},
    "words_of_two": {"tokenexp": r"\w\w+", "mincharnum": 2},
    "longest": {"tokenexp": "a|ab|abc|c.|t"},
    "may_be_empty": {"tokenexp": "[a-z]*"},
    "any_character": {"tokenexp": "."},
    "characters": {"separators": [""]},
    "spaces": {"separators": [" "]},
    "spaces_of_two": {"separators": [" ", "[,;.]"], "mincharnum": 2},
    "runs": {"separators": [r"\s+"]},
    "marked": {"separators": [" "], "mark": 1},
    "marked_characters": {"separators": [""], "mark": 1, "pad_value": ""},
}


def tokenizer(shape: tuple[Any, ...], **attributes: Any) -> onnx.ModelProto:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#"} | attributes
    node = helper.make_node(
        "Tokenizer", ["x"], ["y"], domain="com.microsoft", **{k: v for k, v in attributes.items() if v is not None}
    )
    x = helper.make_tensor_value_info("x", TensorProto.STRING, shape)
    y = helper.make_tensor_value_info("y", TensorProto.STRING, [None] * (len(shape) + 1))
    graph = helper.make_graph([node], "tokenizer", [x], [y])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rank", [1, 2])
def test_tokens(form: str, rank: int) -> None:
    model = tokenizer(("n", "c")[:rank], **FORMS[form])
    session = tensorbox.Session(model, compile=False)
    for texts in (TEXTS, TEXTS[:1], ["", ""]):
        x = np.array(texts, dtype=object)
        x = x if rank == 1 else x.reshape(-1, 2 if len(texts) % 2 == 0 else 1)
        (want,) = expected(model, {"x": x}, "ort")
        got = session.run({"x": x})["y"]
        assert got.shape == want.shape
        assert got.ravel().tolist() == want.ravel().tolist()


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_no_strings(shape: tuple[int, ...]) -> None:
    model = tokenizer(("n", "c")[: len(shape)], **FORMS["words"])
    feed = {"x": np.empty(shape, dtype=object)}
    (want,) = expected(model, feed, "ort")
    assert tensorbox.Session(model, compile=False).run(feed)["y"].shape == want.shape


@pytest.mark.parametrize(
    "attributes,message",
    [
        ({"tokenexp": "("}, "no regular expression"),
        ({"separators": ["["]}, "no regular expression"),
        ({}, "'separators' and 'tokenexp'"),
        ({"tokenexp": "a", "mincharnum": 0}, "expected at least 1"),
        ({"tokenexp": ".", "mincharnum": 2}, "tokens are characters"),
        ({"tokenexp": "a", "pad_value": None}, "'pad_value' is missing"),
    ],
)
def test_bad_attributes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(tensorbox.Error, match=message):
        tensorbox.Session(tokenizer(("n",), **attributes), compile=False)


def test_bad_rank() -> None:
    with pytest.raises(tensorbox.Error, match="rank 3"):
        session = tensorbox.Session(tokenizer((1, 1, 1), tokenexp="a"), compile=False)
        session.run({"x": np.array([[["a"]]], dtype=object)})


@pytest.mark.parametrize("op", ["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"])
def test_names_of_classes(op: str) -> None:
    """A second label that is the empty string, and scores of which none is above zero."""
    labels = ["zebra", "", "ü"]
    attributes: dict[str, Any] = {
        "LinearClassifier": {
            "coefficients": [1.0, 0, 0, 1, -1, -1],
            "intercepts": [0.0, 0.1, 0.2],
            "post_transform": "SOFTMAX",
        },
        "SVMClassifier": {
            "coefficients": [1.0, 0, 0, 1, -1, -1],
            "rho": [0.1],
            "kernel_type": "LINEAR",
            "kernel_params": [0.1, 0.0, 3.0],
        },
        "TreeEnsembleClassifier": {
            "nodes_treeids": [0, 0, 0],
            "nodes_nodeids": [0, 1, 2],
            "nodes_featureids": [0, 0, 0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
            "nodes_values": [0.0, 0, 0],
            "nodes_truenodeids": [1, 0, 0],
            "nodes_falsenodeids": [2, 0, 0],
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [1, 2],
            "class_weights": [1.0, 1.0],
        },
    }[op]
    key = "classlabels_strings"
    node = helper.make_node(op, ["x"], ["label", "scores"], domain="ai.onnx.ml", **{key: labels}, **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 2))],
        [
            helper.make_tensor_value_info("label", TensorProto.STRING, ("n",)),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("n", 3)),
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9
    )
    x = np.array([[2.0, 0], [0, 3], [-2, -2], [0.1, 0]], np.float32)
    label, scores = expected(model, {"x": x}, "ort")
    got = tensorbox.Session(model, compile=False).run({"x": x})
    assert got["label"].tolist() == label.tolist()
    np.testing.assert_allclose(got["scores"], scores, 1e-5, 1e-6)
