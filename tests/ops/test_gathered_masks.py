"""Masks whose elements are found by index, for all rows of a softmax: they are found once. Against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import expected, tensorbox


def model() -> onnx.ModelProto:
    """As torch exports a padding mask: found by GatherND, joined with another one, hides what it hides from a softmax."""
    constants = [onnx.numpy_helper.from_array(np.float32(-3e38), "low"), onnx.numpy_helper.from_array(np.array([1, 2], np.int64), "axes")]
    nodes = [helper.make_node("Cast", ["mask"], ["seen"], to=TensorProto.BOOL), helper.make_node("GatherND", ["seen", "at"], ["found"]),
             helper.make_node("Unsqueeze", ["found", "axes"], ["wide"]), helper.make_node("And", ["rows", "wide"], ["both"]),
             helper.make_node("Where", ["both", "bias", "low"], ["added"]), helper.make_node("Add", ["scores", "added"], ["sum"]),
             helper.make_node("Softmax", ["sum"], ["y"], axis=-1)]
    inputs = [helper.make_tensor_value_info(*info) for info in [
        ("mask", TensorProto.INT64, ["b", "k"]), ("at", TensorProto.INT64, ["b", "t", 2]), ("rows", TensorProto.BOOL, [1, 1, "q", 1]),
        ("bias", TensorProto.FLOAT, [1, "h", "q", "t"]), ("scores", TensorProto.FLOAT, ["b", "h", "q", "t"])]]
    graph = helper.make_graph(nodes, "mask", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def feeds_of(b: int, h: int, q: int, t: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(b + q + t)
    mask = (random.random((b, t + 1)) < 0.7).astype(np.int64)
    mask[:, 0] = 1
    places = np.broadcast_to(np.arange(t) - (t > 1), (b, t))  # -1 is the last one
    at = np.stack([np.broadcast_to(np.arange(b)[:, None], (b, t)), places], -1).astype(np.int64)
    return {"mask": mask, "at": at, "rows": random.random((1, 1, q, 1)) < 0.9, "bias": random.normal(size=(1, h, q, t)).astype(np.float32),
            "scores": random.normal(size=(b, h, q, t)).astype(np.float32)}


def test_masks_are_found_once() -> None:
    m = model()
    session = tensorbox.Session(m.SerializeToString())
    for sizes in [(1, 1, 1, 1), (2, 3, 5, 7), (1, 8, 128, 128), (3, 2, 33, 65), (2, 1, 4, 300)]:
        feeds = feeds_of(*sizes)
        np.testing.assert_allclose(session.run(feeds)["y"], expected(m, feeds)[0], rtol=1e-5, atol=1e-6)
    assert session.run(feeds_of(2, 3, 0, 5))["y"].shape == (2, 3, 0, 5)
    found = [step for step in session.explain() if any("found by index" in decision for decision in step["decisions"])]
    assert len(found) == 1 and not any("Softmax" in node for node in found[0]["nodes"])


def test_a_place_outside_is_an_error() -> None:
    feeds = feeds_of(2, 3, 5, 7)
    feeds["at"] = feeds["at"] + 9
    with pytest.raises(tensorbox.ModelError, match=r"GatherND.*outside an axis of size"):
        tensorbox.Session(model().SerializeToString()).run(feeds)
