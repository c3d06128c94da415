"""An If that squeezes an axis where its size is 1, as exporters write it: compiled for that before any run, and right for
every other size, too."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")


def _branch(name: str, nodes: list[onnx.NodeProto], constants: tuple[onnx.TensorProto, ...] = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(nodes[-1].output[0])], constants)


def _model(inverted: bool = False) -> onnx.ModelProto:
    """z = 2·y + (the rank of y), y = 3·x[:, :, ::8] without its last axis where that is of size 1. `inverted`: the If asks
    whether it is not."""
    squeeze = _branch("squeezed", [helper.make_node("Squeeze", ["b", "last"], ["squeezed"])],
                      (helper.make_tensor("last", TensorProto.INT64, [1], [-1]),))
    keep = _branch("kept", [helper.make_node("Identity", ["b"], ["kept"])])
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end", "two", "eight"], ["a"]),
        helper.make_node("Mul", ["a", "three"], ["b"]),
        helper.make_node("Shape", ["b"], ["shape"]),
        helper.make_node("Gather", ["shape", "last_place"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        *([helper.make_node("Not", ["is_one"], ["asked"])] if inverted else []),
        helper.make_node("If", ["asked" if inverted else "is_one"], ["y"],
                         then_branch=keep if inverted else squeeze, else_branch=squeeze if inverted else keep),
        helper.make_node("Shape", ["y"], ["shape_of_y"]),
        helper.make_node("Size", ["shape_of_y"], ["rank"]),
        helper.make_node("Cast", ["rank"], ["rank_as_float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["y", "factor"], ["doubled"]),
        helper.make_node("Add", ["doubled", "rank_as_float"], ["z"]),
    ]
    ints = {"zero": [0], "end": [1 << 40], "two": [2], "eight": [8]}
    constants = [helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in ints.items()]
    constants += [helper.make_tensor("last_place", TensorProto.INT64, [], [2]), helper.make_tensor("one", TensorProto.INT64, [], [1]),
                  helper.make_tensor("three", TensorProto.FLOAT, [], [3.0]), helper.make_tensor("factor", TensorProto.FLOAT, [], [2.0])]
    graph = helper.make_graph(nodes, "squeezes", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5, "length"])],
                              [helper.make_empty_tensor_value_info("z")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    return model


SIZES = ((2, 8), (3, 1), (2, 9), (1, 64), (0, 7), (2, 0), (4, 17), (1, 5))  # of 1 to 8 samples the last axis has one


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("inverted", [False, True])
def test_every_size(inverted: bool, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_CACHE_PLANS", "1")
    model = _model(inverted)
    reference = ReferenceEvaluator(model)
    notes: list[str] = []
    session = tensorbox.Session(model, compile=compiled, cache_dir=tmp_path / "cache", log=notes.append)
    assert not notes, notes  # it does not run in parts
    assert not session.stats.not_kept, session.stats.not_kept
    rng = np.random.default_rng(1)
    for n, length in SIZES * 2:
        x = rng.standard_normal((n, 5, length), np.float32)
        got, want = session.run({"x": x})["z"], reference.run(None, {"x": x})[0]
        assert got.shape == want.shape == ((n, 5) if 1 <= length <= 8 else (n, 5, (length + 7) // 8))
        np.testing.assert_array_equal(got, want)


def test_package(tmp_path: Path) -> None:
    model, file = _model(), tmp_path / "squeezes.tbx"
    made = tensorbox.Session(model, cache_dir=tmp_path / "cache")
    with pytest.raises(tensorbox.UnsupportedError, match="as assumed where a squeeze depends on them"):
        made.save(file)  # it would not serve all sizes
    made.save(file, for_inputs_seen=True)
    session = tensorbox.Session(str(file))
    rng = np.random.default_rng(2)
    for n, length in ((2, 8), (3, 1), (1, 5)):
        x = rng.standard_normal((n, 5, length), np.float32)
        np.testing.assert_array_equal(session.run({"x": x})["z"], ReferenceEvaluator(model).run(None, {"x": x})[0])
    with pytest.raises(tensorbox.Error):
        session.run({"x": np.zeros((2, 5, 9), np.float32)})


def _squeezed_sums(compiled: bool, tmp_path: Path) -> tensorbox.Session:
    """y = Squeeze(x) + 1, of which no size is known, as a session."""
    nodes = [helper.make_node("Squeeze", ["x"], ["s"]), helper.make_node("Add", ["s", "one"], ["y"])]
    graph = helper.make_graph(nodes, "sums", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", "length"])],
                              [helper.make_empty_tensor_value_info("y")], [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    return tensorbox.Session(model, compile=compiled, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize("compiled", [False, True])
def test_any_axes_of_one(compiled: bool, tmp_path: Path) -> None:
    session = _squeezed_sums(compiled, tmp_path)
    rng = np.random.default_rng(3)
    for shape in ((1, 40, 257), (1, 40, 901), (3, 40, 7), (1, 1, 901), (1, 1, 1), (1, 0, 5), (0, 1, 1), (1, 5, 1), (2, 1, 64), (1, 13, 33)):
        x = rng.standard_normal(shape, np.float32)
        got = session.run({"x": x})["y"]
        assert got.shape == tuple(d for d in shape if d != 1)
        np.testing.assert_array_equal(got, np.squeeze(x) + np.float32(1))


def test_a_package_of_what_runs_brought_takes_other_lengths(tmp_path: Path) -> None:
    session = _squeezed_sums(True, tmp_path)
    session.run({"x": np.zeros((1, 3, 4), np.float32)})
    session.save(tmp_path / "m.tbx", for_inputs_seen=True)
    loaded = tensorbox.Session(str(tmp_path / "m.tbx"))
    x = np.arange(1 * 17 * 29, dtype=np.float32).reshape(1, 17, 29)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], x[0] + 1)
    with pytest.raises(tensorbox.UnsupportedError, match="no code for these inputs"):
        loaded.run({"x": np.zeros((1, 1, 29), np.float32)})
