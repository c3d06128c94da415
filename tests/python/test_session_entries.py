"""Initializers and configuration entries of SessionOptions, of ONNX Runtime's own class and of ours."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

from tensorbox import config_entries  # noqa: E402


def added_constant(where: str) -> bytes:
    """x + w, where w is an initializer, the value of a Constant, or an initializer of a subgraph; [1, 1, 1]."""
    w = numpy_helper.from_array(np.ones(3, np.float32), "w")
    x, y, c = (helper.make_tensor_value_info(n, t, d) for n, t, d in (("x", 1, [3]), ("y", 1, [3]), ("c", 9, [])))
    add = [helper.make_node("Add", ["x", "w"], ["y"])]
    if where == "constant":
        add.insert(0, helper.make_node("Constant", [], ["w"], value=w))
    graph = helper.make_graph(add, "g", [x], [y], [w] if where == "initializer" else [])
    if where == "subgraph":
        branch = helper.make_graph([helper.make_node("Add", ["x", "w"], ["b"])], "b", [],
                                   [helper.make_tensor_value_info("b", 1, [3])], [w])
        graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], "g",
                                  [x, c], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("shape", [(3,), (), (0,), (2, 1, 2)])
def test_initializers_of_the_other_class(dtype: Any, shape: tuple[int, ...]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype))
    options.add_initializer("w", value)
    with pytest.raises(tensorbox.UnsupportedError, match="initializer 'w' cannot be replaced"):
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)
    assert options.log_severity_level == onnxruntime.SessionOptions().log_severity_level
    assert options.graph_optimization_level == onnxruntime.SessionOptions().graph_optimization_level


@pytest.mark.parametrize("where", ["initializer", "constant", "subgraph"])
def test_what_initializers_of_the_other_class_replace(where: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = added_constant(where), {"x": np.zeros(3, np.float32)} | ({"c": np.array(True)} if where == "subgraph" else {})
    options = onnxruntime.SessionOptions()
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.full(3, 100, np.float32))
    options.add_initializer("w", value)
    theirs = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, x)
    np.testing.assert_array_equal(theirs[0], [100, 100, 100])
    (tmp_path / "m.onnx").write_bytes(model)
    for given in (model, tmp_path / "m.onnx", onnx.load_from_string(model)):
        with pytest.raises(tensorbox.UnsupportedError, match="initializer 'w' cannot be replaced"):
            tensorbox.InferenceSession(given, options, compile=False)
    unused = onnxruntime.SessionOptions()
    unused.add_initializer("of another model", value)  # which is no error there either
    np.testing.assert_array_equal(tensorbox.InferenceSession(model, unused, compile=False).run(None, x)[0], [1, 1, 1])


def test_external_initializers_of_the_other_class() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_external_initializers(["w"], [onnxruntime.OrtValue.ortvalue_from_numpy(np.full(3, 100, np.float32))])
    with pytest.raises(tensorbox.UnsupportedError, match=r"add_external_initializers.*with name w"):
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)


def entries(of: str) -> Any:
    return pytest.importorskip("onnxruntime").SessionOptions() if of == "theirs" else tensorbox.SessionOptions()


@pytest.mark.parametrize("of", ["theirs", "ours"])
@pytest.mark.parametrize("key", ["session.set_denormal_as_zero", "optimization.enable_gelu_approximation",
                                 "session.disable_quant_qdq"])
def test_entries_that_change_results_are_named(of: str, key: str) -> None:
    options = entries(of)
    options.add_session_config_entry(key, "1")
    with pytest.warns(UserWarning, match=f"{key}=1 of SessionOptions has no effect"):
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)
    options.add_session_config_entry(key, "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)


@pytest.mark.parametrize("of", ["theirs", "ours"])
def test_hints_are_not_warned_of(of: str) -> None:
    options = entries(of)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)


def test_entries_that_nobody_knows_are_named() -> None:
    options = tensorbox.SessionOptions()
    options.add_session_config_entry("no.such", "7")
    with pytest.warns(UserWarning, match="no.such=7 of SessionOptions is not known"):
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)


@pytest.mark.parametrize("of", ["theirs", "ours"])
def test_a_model_in_another_format_is_not_written(of: str) -> None:
    with pytest.raises(tensorbox.UnsupportedError, match="format ORT cannot be written"):
        options = entries(of)
        options.add_session_config_entry("session.save_model_format", "ORT")
        tensorbox.InferenceSession(added_constant("initializer"), options, compile=False)


def test_every_entry_of_the_other_module_is_known() -> None:
    """Those that its shared library has as text of its own."""
    onnxruntime = pytest.importorskip("onnxruntime")
    known = set(config_entries.KNOWN)
    library = next((Path(onnxruntime.__file__).parent / "capi").glob("onnxruntime_pybind11_state*.so")).read_bytes()
    found = {m.decode() for m in re.findall(rb"\0((?:session|optimization|mlas|ep|memory)\.[a-z0-9_.]*[a-z0-9])(?=\0)", library)}
    assert len(found) > 50
    assert found <= known
