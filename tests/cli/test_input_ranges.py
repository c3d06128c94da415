"""Random integer inputs obey what the graph does with them, so that `tbx run` and `tbx bench` work on any model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Result, save
from onnx import NodeProto, TensorProto, helper

Tbx = Callable[..., Result]
Dim = int | str


def info(name: str, *dims: Dim, kind: int = TensorProto.INT64) -> Any:
    return helper.make_tensor_value_info(name, kind, dims)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def drawn(tbx: Tbx, path: Path, *arguments: str) -> tuple[int, int]:
    """The least and the greatest element of the model's output "ids", which shows an input."""
    result = tbx("run", path, "--no-compile", "--json", *arguments)
    assert result.code == 0, result.err
    ids = next(o for o in result.json["outputs"] if o["name"] == "ids")
    return int(ids["min"]), int(ids["max"])


TABLE = {"table": np.zeros((1000, 4), np.float32)}
FLAT = {"table": np.zeros((1000, 4), np.float32), "zero": np.array(0), "two": np.array(2), "ten": np.array(10)}


@pytest.mark.parametrize("nodes,greatest", [
    ([node("Gather", "table x", "y")], 1000),
    ([node("Cast", "x", "a", to=TensorProto.INT32), node("Gather", "table a", "y", axis=0)], 1000),
    ([node("Transpose", "x", "a"), node("Add", "two a", "b"), node("Gather", "table b", "y")], 998),
    ([node("Mul", "x ten", "a"), node("Sub", "a two", "b"), node("Gather", "table b", "y")], 101),
    ([node("Flatten", "x", "a"), node("Gather", "table a", "b"), node("Gather", "table x", "c", axis=1),
      node("Shape", "b", "d"), node("Shape", "c", "e"), node("Concat", "d e", "y", axis=0)], 4),
])
def test_indices_of_a_table(tbx: Tbx, tmp_path: Path, nodes: list[NodeProto], greatest: int) -> None:
    kind = TensorProto.INT64 if nodes[-1].op_type == "Concat" else TensorProto.FLOAT
    path = save(tmp_path / "m.onnx", [*nodes, node("Identity", "x", "ids")], [info("x", 40, 50)],
                [helper.make_tensor_value_info("y", kind, None), info("ids", 40, 50)], FLAT)
    low, high = drawn(tbx, path)
    assert 0 <= low < high < greatest
    assert high > greatest // 2 or greatest < 8


def test_indices_of_another_input(tbx: Tbx, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("GatherElements", "data x", "y", axis=1), node("Identity", "x", "ids")],
                [info("data", 3, "n", kind=TensorProto.FLOAT), info("x", 3, 500)],
                [info("y", 3, 500, kind=TensorProto.FLOAT), info("ids", 3, 500)])
    assert drawn(tbx, path, "--dim", "n=100")[1] in range(90, 100)
    assert drawn(tbx, path) == (0, 0)


def test_indices_in_a_body(tbx: Tbx, tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Gather", "table x", "row"), node("ReduceSum", "row", "sum", keepdims=0), node("Add", "acc sum", "out"),
         node("Identity", "go", "go_on")], "body",
        [info("i"), info("go", kind=TensorProto.BOOL), info("acc", kind=TensorProto.FLOAT)],
        [info("go_on", kind=TensorProto.BOOL), info("out", kind=TensorProto.FLOAT)])
    loop = helper.make_node("Loop", ["trips", "", "start"], ["y"], body=body)
    path = save(tmp_path / "m.onnx", [loop, node("Identity", "x", "ids")], [info("trips"), info("x", 2000)],
                [info("y", kind=TensorProto.FLOAT), info("ids", 2000)],
                TABLE | {"start": np.array(0, np.float32)})
    assert drawn(tbx, path)[1] in range(900, 1000)


def test_masks_that_are_summed(tbx: Tbx, tmp_path: Path) -> None:
    """Positions are counted from the mask and looked up."""
    nodes = [node("CumSum", "x one", "sums"), node("Sub", "sums one", "at"), node("Gather", "table at", "y"),
             node("Identity", "x", "ids")]
    path = save(tmp_path / "m.onnx", nodes, [info("x", 2, 900)],
                [info("y", 2, 900, 4, kind=TensorProto.FLOAT), info("ids", 2, 900)], TABLE | {"one": np.array(1)})
    assert drawn(tbx, path) == (1, 1)


def test_axes_and_counts(tbx: Tbx, tmp_path: Path) -> None:
    nodes = [node("ReduceSum", "x axes", "y", keepdims=0), node("TopK", "x k", "values ids"), node("Mod", "k by", "z")]
    path = save(tmp_path / "m.onnx", nodes,
                [info("x", 2, 3, 5, kind=TensorProto.FLOAT), info("axes", 3), info("k", 1), info("by", 1)],
                [info("y", kind=TensorProto.FLOAT), info("ids", 2, 3, "k"), info("z", 1)])
    for seed in range(5):
        low, high = drawn(tbx, path, "--seed", str(seed))
        assert 0 <= low <= high < 5


def test_dimensions_named_as_sums(tbx: Tbx, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Shape", "mask", "ids"), node("Concat", "past new", "all", axis=0),
                                      node("Add", "all mask", "y")],
                [info("past", "past", kind=TensorProto.INT64), info("new", "new"), info("mask", "past + new")],
                [info("ids", 1), info("y", "past + new")])
    assert drawn(tbx, path) == (2, 2)
    assert drawn(tbx, path, "--dim", "past=7", "--dim", "new=3") == (10, 10)
    assert tbx("bench", path, "--no-compile", "--repeat", "2", "--dim", "past=4").code == 0


def test_a_dimension_that_only_fits_as_a_sum(tbx: Tbx, tmp_path: Path) -> None:
    """The length of a mask is that of a cache and one more, which its name does not say."""
    nodes = [node("Concat", "past x", "all", axis=0), node("Shape", "all", "n"), node("Squeeze", "n", "count"),
             node("Range", "zero count one", "at"), node("Gather", "mask at", "m"), node("Add", "all m", "y"),
             node("Shape", "mask", "ids")]
    path = save(tmp_path / "m.onnx", nodes, [info("past", "past_len"), info("x", 1), info("mask", "total_len")],
                [info("y", "n"), info("ids", 1)], {"zero": np.array(0), "one": np.array(1)})
    assert drawn(tbx, path) == (2, 2)
    assert drawn(tbx, path, "--dim", "past_len=9") == (10, 10)
    noted = tbx("bench", path, "--no-compile", "--repeat", "2", "--dim", "past_len=4")
    assert (noted.code, noted.err) == (0, "note: taken as --dim total_len=5, with which the model runs\n")
    for how in ([], ["--every-node"]):
        compared = tbx("compare", path, "--no-compile", "--dim", "past_len=4", *how)
        assert (compared.code, compared.err) == (0, noted.err) and "no difference" in compared.out
    refused = tbx("run", path, "--no-compile", "--dim", "total_len=1")
    assert refused.code == 3 and "Gather" in refused.err


def test_sizes_that_were_chosen_are_named_where_the_model_refuses_them(tbx: Tbx, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("MatMul", "x five", "y"), node("Shape", "z", "n")],
                [info("x", "batch", "width", kind=TensorProto.FLOAT), info("z", "batch", kind=TensorProto.FLOAT)],
                [info("y", "batch", kind=TensorProto.FLOAT), info("n", 1)], {"five": np.ones(5, np.float32)})
    note = "were chosen by tbx, and may not be what the model needs: "
    refused = tbx("run", path, "--no-compile")
    assert refused.code == 3 and note + "batch, width\n" in refused.err and "ModelError" in refused.err
    refused = tbx("run", path, "--no-compile", "--dim", "batch=2")
    assert refused.code == 3 and note + "width\n" in refused.err
    assert tbx("run", path, "--no-compile", "--dim", "width=5").code == 0
    refused = tbx("run", path, "--no-compile", "--dim", "batch=2", "--dim", "width=4")
    assert refused.code == 3 and "chosen" not in refused.err


def test_integers_that_were_drawn_are_named_where_the_model_refuses_them(tbx: Tbx, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Reshape", "x shape", "y")],
                [info("x", 23, kind=TensorProto.FLOAT), info("shape", 2)], [info("y", "a", "b", kind=TensorProto.FLOAT)])
    note = "note: of these inputs the values are random: shape (--input shape=FILE gives others)\n"
    refused = tbx("run", path, "--no-compile")
    assert refused.code == 3 and note in refused.err and "cannot reshape" in refused.err
    np.save(tmp_path / "shape.npy", np.array([4, 4]))
    given = tbx("run", path, "--no-compile", "--input", f"shape={tmp_path / 'shape.npy'}")
    assert given.code == 3 and "random" not in given.err
