"""Files of a model that change while a session lives, which reads them again for shapes that it was not compiled for: never
another model's results, and never the end of the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

SIZE = 70  # 19,600 bytes of weights


def save(path: Path, factor: float, external: bool) -> None:
    """y = x @ w + z. That rows of x and z are as many is taken for granted until a run has a single row of one of them."""
    weights = np.full((SIZE, SIZE), factor / SIZE, np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "z"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [dim, SIZE]) for name, dim in (("x", "n"), ("z", "m"))]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, SIZE])],
                              [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="model.data", size_threshold=1024)


def feeds(x_rows: int, z_rows: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((x_rows, SIZE), np.float32), "z": np.zeros((z_rows, SIZE), np.float32)}


def shorten(file: Path) -> None:
    os.truncate(file, 100)


def remove(file: Path) -> None:
    file.unlink()


def write_another(file: Path) -> None:
    """In place, of the same size."""
    other = file.parent / "other"
    other.mkdir()
    save(other / "model.onnx", 2.0, (file.parent / "model.data").exists())
    file.write_bytes((other / file.name).read_bytes())


def put_another(file: Path) -> None:
    """A new file of the same name."""
    other = file.with_name("renamed")
    other.write_bytes(file.read_bytes())
    other.rename(file)


def run_all(session) -> list[np.ndarray | str]:
    """Results, or the error: of what is compiled already, and of what is not."""
    results: list[np.ndarray | str] = []
    for rows in ((3, 3), (8, 8), (3, 1), (1, 8)):
        try:
            results.append(session.run(feeds(*rows))["y"])
        except tensorbox.ModelError as error:
            results.append(str(error))
    return results


def expect_right_or(results: list[np.ndarray | str], *errors: str) -> None:
    for result in results:
        if isinstance(result, str):
            assert any(error in result for error in errors), result
        else:
            np.testing.assert_allclose(result, 1.0, rtol=1e-5)


CHANGED = "is not what it was when the model was loaded"


@pytest.mark.parametrize("change", [shorten, remove, write_another, put_another])
def test_a_model_file_that_changes_is_never_another_model(tmp_path: Path, change: Callable[[Path], None]) -> None:
    save(tmp_path / "model.onnx", 1.0, external=False)
    session = tensorbox.Session(str(tmp_path / "model.onnx"))
    change(tmp_path / "model.onnx")
    results = run_all(session)
    assert not isinstance(results[0], str) and not isinstance(results[1], str), "compiled before the change"
    expect_right_or(results, CHANGED, "cannot open the model file")


@pytest.mark.parametrize("change", [remove, put_another, write_another])
def test_a_package_has_the_weights_of_the_session(tmp_path: Path, change: Callable[[Path], None]) -> None:
    save(tmp_path / "model.onnx", 1.0, external=False)
    session = tensorbox.Session(str(tmp_path / "model.onnx"))
    change(tmp_path / "model.onnx")
    try:
        session.save(str(tmp_path / "model.tbx"))
    except tensorbox.ModelError as error:
        assert CHANGED in str(error) or "cannot open the model file" in str(error)
    else:
        expect_right_or(run_all(tensorbox.Session(str(tmp_path / "model.tbx"))))


@pytest.mark.parametrize("change", [remove, put_another])
def test_external_data_that_changes_is_never_another_model(tmp_path: Path, change: Callable[[Path], None]) -> None:
    save(tmp_path / "model.onnx", 1.0, external=True)
    session = tensorbox.Session(str(tmp_path / "model.onnx"))
    change(tmp_path / "model.data")
    expect_right_or(run_all(session), CHANGED, "external data file")


@pytest.mark.parametrize("external", [False, True])
def test_other_sizes_are_compiled_while_the_files_stay(tmp_path: Path, external: bool) -> None:
    save(tmp_path / "model.onnx", 1.0, external)
    session = tensorbox.Session(str(tmp_path / "model.onnx"))
    expect_right_or(run_all(session))
    session.save(str(tmp_path / "model.tbx"))
    expect_right_or(run_all(tensorbox.Session(str(tmp_path / "model.tbx"))))
