"""Names and paths are any bytes: what is no UTF-8 comes as lone surrogates, as in the names of files, and goes back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorbox
from onnx import helper

BAD = b"n\xffpe\xc3"
NAME = os.fsdecode(BAD)


def renamed(model: onnx.ModelProto, placeholder: bytes = b"PLACE", name: bytes = BAD) -> bytes:
    assert len(placeholder) == len(name)
    return model.SerializeToString().replace(placeholder, name)


def model(op: str = "Neg", dims: list[object] | None = None, domain: str = "") -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, 1, dims or ["PLACE", 2]) for name in ("PLACE", "y"))
    node = helper.make_node(op, ["PLACE"], ["y"], "PLACE", domain=domain)
    imports = [helper.make_opsetid("", 20)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=9)


def test_names_of_values_and_dimensions() -> None:
    session = tensorbox.Session(renamed(model()), compile=False)
    assert (session.inputs[0].name, session.inputs[0].shape) == (NAME, [NAME, 2])
    x = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(session.run({NAME: x})["y"], -x)
    fixed = tensorbox.Session(renamed(model()), compile=False, dims={NAME: 4})
    assert fixed.inputs[0].shape == [4, 2]
    assert NAME in session.outputs[0].node
    assert session.explain()[0]["nodes"]
    for stage in ("import", "simplify", "lower", "schedule", "plan"):
        assert "\ufffd" not in session.dump(stage)


@pytest.mark.parametrize("op,kind", [("Nagation", tensorbox.UnsupportedError), ("Concat", tensorbox.ModelError)])
def test_errors(op: str, kind: type[Exception]) -> None:
    """Bytes that are no text are shown as such."""
    with pytest.raises(tensorbox.Error, match=r"n\\xffpe\\xc3") as raised:
        tensorbox.Session(renamed(model(op)), compile=False)
    assert str(raised.value).isprintable()
    del kind


def test_unknown_input() -> None:
    session = tensorbox.Session(renamed(model()), compile=False)
    with pytest.raises(tensorbox.ModelError, match=r"no input 'y'; its inputs are: n\\xffpe\\xc3"):
        session.run({"y": np.ones((3, 2), np.float32)})


def test_paths(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/" + BAD
    os.mkdir(folder)
    path = folder + b"/m\xff.onnx"
    with open(path, "wb") as file:
        file.write(model().SerializeToString())
    x = np.ones((3, 2), np.float32)
    for spelt in (os.fsdecode(path), Path(os.fsdecode(path))):
        session = tensorbox.Session(spelt, cache_dir=os.fsdecode(folder) + "/cache", external_data_dir=os.fsdecode(folder))
        np.testing.assert_array_equal(session.run({"PLACE": x})["y"], -x)
    assert os.listdir(folder + b"/cache")
    with pytest.raises(tensorbox.ModelError, match=r"n\\xffpe\\xc3/none"):
        tensorbox.Session(os.fsdecode(folder) + "/none.onnx")
    tensorbox.optimize(os.fsdecode(path), os.fsdecode(folder) + "/to.onnx")
    assert b"to.onnx" in os.listdir(folder)
    with pytest.raises(tensorbox.Error, match=r"n\\xffpe\\xc3/lib"):
        tensorbox.Session(os.fsdecode(path), operator_libraries=[folder + b"/lib.so"])


@pytest.mark.parametrize("text", ["\x1b[2J", "\x07", "\x9b2J", "\u202eabc", "\x7f", "a\rb"])
def test_errors_are_nothing_that_a_terminal_obeys(text: str) -> None:
    odd = model("Nagation")
    odd.graph.node[0].name = text
    odd.graph.node[0].op_type = f"Nagation{text}"
    with pytest.raises(tensorbox.Error, match="Nagation") as raised:
        tensorbox.Session(odd, compile=False)
    assert text not in str(raised.value)
    assert all(c.isprintable() or c in "\n\t" for c in str(raised.value))


@pytest.mark.parametrize("dims", [[4, 2], [-1, 2], [2**62, 4], [1, 2, 3, 4]])
def test_the_module_does_not_trust_dims(dims: list[int]) -> None:
    """tensorbox._core is no public interface, and still reads nothing behind the memory that it is given."""
    session = tensorbox.Session(model(), compile=False)
    memory = np.ones((3, 2), np.float32)
    with pytest.raises(tensorbox.ModelError, match="fewer than its dims"):
        session._core.run([("PLACE", 1, dims, memory)])
    with pytest.raises(tensorbox.ModelError, match="fewer than its dims"):
        session._core.run_values([("PLACE", ("tensor", 1, dims, memory))])
    with pytest.raises(tensorbox.ModelError, match="fewer than its dims"):
        session._core.run_into([("PLACE", 1, [3, 2], memory)], [(1, dims, memory)])


def test_messages_with_names_of_sizes_are_lines() -> None:
    """A size that the model does not name is named after its input."""
    def product(rows: int) -> bytes:
        x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, dims) for n, dims in (("a\nb\tc", [None, 3]), ("y", None)))
        w = helper.make_tensor("w", onnx.TensorProto.FLOAT, [rows, 2], np.zeros(2 * rows, np.float32))
        graph = helper.make_graph([helper.make_node("MatMul", ["a\nb\tc", "w"], ["y"])], "g", [x], [y], [w])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()

    assert tensorbox.Session(product(3)).inputs[0].shape[0] == "'a\\x0ab\\x09c'_dim0"
    with pytest.raises(tensorbox.ModelError) as raised:
        tensorbox.Session(product(4)).run({"a\nb\tc": np.zeros((2, 3), np.float32)})
    assert str(raised.value).isprintable()
