"""What may be given as an input, what is refused, and with which words."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

ml_dtypes = pytest.importorskip("ml_dtypes")
tensorbox = pytest.importorskip("tensorbox")

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def identity(onnx_type: str = "float", shape: str = "[batch, 4]", **options: Any) -> tensorbox.Session:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({onnx_type}{shape} x) => ({onnx_type}{shape} y) {{ y = Identity(x) }}'
    return tensorbox.Session(parser.parse_model(text), compile=False, threads=1, **options)


@pytest.fixture(scope="module")
def same() -> tensorbox.Session:
    return identity()


@pytest.mark.parametrize("x", [
    np.asfortranarray(X), X[::-1, ::-1], np.concatenate([X, X], 1)[:, ::2], X.astype(">f4"), X.copy().astype(">f4").T.copy().T,
    np.broadcast_to(np.float32(3), (2, 4)), X[:0], X.tolist(), tuple(map(tuple, X.tolist())), X.astype(int).tolist(), memoryview(X),
], ids=["fortran", "reversed", "strided", "big-endian", "big-endian fortran", "broadcast", "empty", "list", "tuple", "list of int",
        "memoryview"])
def test_memory_of_any_order(same: tensorbox.Session, x: Any) -> None:
    y = same.run({"x": x})["y"]
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, np.asarray(x, np.float32).reshape(-1, 4))


def test_read_only(same: tensorbox.Session) -> None:
    x = X.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(same.run({"x": x})["y"], X)


@pytest.mark.parametrize(("onnx_type", "value", "expected"), [
    ("float", 2.5, np.float32(2.5)), ("float", 2, np.float32(2)), ("float", True, np.float32(1)), ("double", 2, np.float64(2)),
    ("int64", 7, np.int64(7)), ("uint8", 255, np.uint8(255)), ("bool", True, np.bool_(True)), ("float16", 0.5, np.float16(0.5)),
    ("bfloat16", 2.5, ml_dtypes.bfloat16(2.5)), ("int4", -8, ml_dtypes.int4(-8)), ("uint4", 15, ml_dtypes.uint4(15)),
    ("float8e4m3fn", 1.5, ml_dtypes.float8_e4m3fn(1.5)), ("string", "word", "word"), ("float", np.array(2, np.float32), np.float32(2)),
    ("float", np.float32(2), np.float32(2)),
])
def test_scalars(onnx_type: str, value: Any, expected: Any) -> None:
    y = identity(onnx_type, "").run({"x": value})["y"]
    assert y.shape == () and y == expected


@pytest.mark.parametrize(("onnx_type", "value", "message"), [
    ("int64", 2.5, "has type float64, expected int64"), ("int64", [2.5], "has type float64, expected int64"),
    ("bool", 1, "has type int64, expected bool"), ("float", 2j, "has type complex128, expected float32"),
    ("uint8", 256, "input 'x' is uint8: .*256"), ("int8", [-129], "input 'x' is int8: .*-129"), ("int4", 8, "input 'x' is int4: .*-8 to 7"),
    ("float", "word", "has type string, expected float32"), ("string", 3, "has type int64, expected string"),
    ("float", None, "input 'x' is None"), ("float", [[1.0], [2.0, 3.0]], "input 'x' is no array"),
    ("bfloat16", np.array(1, np.uint16), "has type uint16, expected bfloat16"),
])
def test_numbers_that_the_type_does_not_hold(onnx_type: str, value: Any, message: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=message):
        identity(onnx_type, "[n]" if isinstance(value, list) else "").run({"x": value})


@pytest.mark.parametrize(("feed", "message"), [
    (None, "a mapping {name: array}, not a NoneType"), ([X], "a mapping {name: array}, not a list"), ({3: X}, "the key 3 is no string"),
    ({"x": np.array(["2020-01-01"], "M8[D]")}, r"input 'x': no ONNX element type for numpy dtype datetime64\[D\]; expected float32"),
    ({"x": np.zeros(2, [("a", "f4")])}, "input 'x': no ONNX element type"),
    ({"x": X.astype(np.longdouble)}, "input 'x': no ONNX element type for numpy dtype .*128"),
])
def test_what_is_no_feed(same: tensorbox.Session, feed: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        same.run(feed)


@pytest.mark.parametrize("dtype", ["float16", "uint64", "complex64", "bool"])
def test_arrays_of_numpy(dtype: str) -> None:
    x = np.array([[0, 1, 1, 0]], dtype)
    y = identity(dtype, "[n, 4]").run({"x": x})["y"]
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("words", [
    np.array(["a", "bcd"]), np.array([b"a", b"bcd"]), np.array(["a", "bcd"], object), ["a", "bcd"], ("a", "bcd"),
    np.array([b"a", "bcd"], object), np.array(["a", "-", "bcd", "-"])[::2],
])
def test_strings(words: Any) -> None:
    y = identity("string", "[n]").run({"x": words})["y"]
    assert y.dtype == object and y.tolist() == ["a", "bcd"]


def test_torch(same: tensorbox.Session) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    np.testing.assert_array_equal(same.run({"x": x.requires_grad_()})["y"], X)
    y = identity("bfloat16").run({"x": x.detach().to(torch.bfloat16).T.contiguous().T})["y"]
    np.testing.assert_array_equal(y.astype(np.float32), X)
    with pytest.raises(TypeError, match="numpy cannot take this Tensor"):
        same.run({"x": x.detach().to_sparse()})


@pytest.mark.parametrize(("y", "error", "message"), [
    (np.zeros((2, 4), np.float32, order="F"), ValueError, "C-contiguous"),
    (np.zeros((2, 8), np.float32)[:, ::2], ValueError, "C-contiguous"),
    (np.broadcast_to(np.float32(0), (2, 4)), ValueError, "writable"),
    (np.zeros((2, 4), ">f4"), ValueError, "byte order"),
    (np.zeros((2, 4)), tensorbox.ModelError, "output 'y' has type float64, expected float32"),
    ([[0.0] * 4] * 2, TypeError, r"out\['y'\] is a list"),
    (np.zeros((2, 4), object), TypeError, "only numbers are written directly"),
])
def test_outputs_that_cannot_be_written(same: tensorbox.Session, y: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        same.run({"x": X}, out={"y": y})


def test_outputs_that_do_not_exist(same: tensorbox.Session) -> None:
    with pytest.raises(tensorbox.ModelError, match=r"out has \['z'\]; the model's outputs are \['y'\]"):
        same.run({"x": X}, out={"y": X.copy(), "z": X.copy()})
    with pytest.raises(TypeError, match="only numbers"):
        identity("string", "[n]").run({"x": ["a"]}, out={"y": np.array([""], object)})


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"threads": -1}, tensorbox.ModelError, "option threads is -1: expected 0 to 4096"),
    ({"threads": 100000}, tensorbox.ModelError, "option threads is 100000"),
    ({"threads": 2.5}, TypeError, "threads is an integer, not 2.5"),
    ({"max_memory": -1}, tensorbox.ModelError, "option max_memory is -1"),
    ({"time_limit_ms": -1}, tensorbox.ModelError, "option time_limit_ms is -1"),
    ({"compile_time_limit_ms": -1}, tensorbox.ModelError, "option compile_time_limit_ms is -1"),
    ({"compile_memory": -1}, tensorbox.ModelError, "option compile_memory is -1"),
    ({"dims": {"bach": 2}}, tensorbox.ModelError, "dimension 'bach', which the model does not have; its inputs have: batch"),
    ({"dims": {"batch": -2}}, tensorbox.ModelError, "dimension 'batch' is given the size -2"),
    ({"dims": {"batch": "2"}}, TypeError, r"dims\['batch'\] is an integer, not '2'"),
    ({"disable_passes": "fold_constants"}, TypeError, "disable_passes is a list, not one name"),
    ({"operator_libraries": "lib.so"}, TypeError, "operator_libraries is a list, not one name"),
    ({"log": 3}, TypeError, "3 is no function"),
    ({"threads": 10**30}, TypeError, f"threads is a number that 64 bits hold, not {10**30}"),
    ({"seed": 10**30}, TypeError, f"seed is a number that 64 bits hold, not {10**30}"),
    ({"seed": "x"}, TypeError, "seed is an integer, not 'x'"),
    ({"tiered": "no"}, TypeError, "tiered is True or False, not 'no'"),
    ({"untrusted": None}, TypeError, "untrusted is True or False, not None"),
    ({"precision": None}, TypeError, "precision is a string, not None"),
    ({"device": 0}, TypeError, "device is a string, not 0"),
    ({"isa": 512}, TypeError, "isa is a string, not 512"),
    ({"dims": ["batch"]}, TypeError, r"dims is a mapping, not \['batch'\]"),
    ({"state": "a=b"}, TypeError, "state is a mapping, not 'a=b'"),
    ({"state": {"a": 1}}, TypeError, r"state is a list or mapping of strings, not \{'a': 1\}"),
])
def test_options_that_cannot_be(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        tensorbox.Session(parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu(x) }'),
                          compile=False, **options)


@pytest.mark.parametrize("x", [[[10**400, 1, 2, 3]], np.array([[None] * 4]), np.array([[{}] * 4], object)])
def test_objects_are_no_numbers(x: Any) -> None:
    with pytest.raises(TypeError, match="input 'x' is an array of Python objects; expected float32"):
        identity("float", "[n, 4]").run({"x": x})


@pytest.mark.parametrize("model", [None, 3, open])
def test_what_is_no_model(model: Any) -> None:
    with pytest.raises(TypeError, match="a model is a path, bytes or an onnx.ModelProto, not a"):
        tensorbox.Session(model)


def test_files_that_are_no_model(tmp_path: Any) -> None:
    said = {b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n": "a Git LFS pointer.*git lfs pull",
            b"PK\x03\x04rest": "a zip archive", b"\x1c\0\0\0TFL3rest": "a TensorFlow Lite model", b"\x93NUMPY\x01\x00": "a numpy array",
            b"": "is empty", b"only some text": "not a valid ONNX model"}
    for number, (data, message) in enumerate(said.items()):
        file = tmp_path / f"{number}.onnx"
        file.write_bytes(data)
        with pytest.raises(tensorbox.ModelError, match=f"file '{file}': .*{message}"):
            tensorbox.Session(file)
        with pytest.raises(tensorbox.ModelError, match=message):
            tensorbox.Session(data)


def test_describes_itself(same: tensorbox.Session) -> None:
    assert repr(same) == "<tensorbox.Session x: float32[batch, 4] -> y: float32[batch, 4]>"


def test_a_forked_process_runs_the_session() -> None:
    """As multiprocessing's workers do on Linux. The threads of the library do not follow into the child."""
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[n, 64] x) => (float[n, 64] y) { h = MatMul(x, w) y = Softmax(h) }')
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    session = tensorbox.Session(model, threads=2)
    x = np.ones((20000, 64), np.float32)
    want = session.run({"x": x})["y"]
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(False)
    child = context.Process(target=lambda: send.send(np.array_equal(session.run({"x": x})["y"], want)))
    child.start()
    try:
        assert receive.poll(60) and receive.recv()
    finally:
        child.kill()
        child.join()


def test_external_data_of_a_model_in_memory(tmp_path: Path) -> None:
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Add(x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(4, 3, np.float32), "w"))
    (tmp_path / "weights").mkdir()
    onnx.save(model, tmp_path / "weights" / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    data = (tmp_path / "weights" / "m.onnx").read_bytes()
    with pytest.raises(tensorbox.ModelError, match=r"external data in 'w.bin', but .*give its folder as external_data_dir"):
        tensorbox.Session(data, compile=False)
    options = tensorbox.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path / "weights"))
    for session in (tensorbox.Session(data, compile=False, external_data_dir=tmp_path / "weights"),
                    tensorbox.InferenceSession(data, options, compile=False)._session):
        np.testing.assert_array_equal(session.run({"x": X})["y"], X + 3)
    with pytest.raises(tensorbox.ModelError, match="'w.bin' cannot be opened"):
        tensorbox.Session(data, compile=False, external_data_dir=tmp_path)


def test_names_of_files(tmp_path: Path) -> None:
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu(x) }')
    for name in ("m o d.onnx", "\u6a21.onnx", os.fsdecode(b"\xff.onnx")):
        (tmp_path / name).write_bytes(model.SerializeToString())
        assert tensorbox.Session(tmp_path / name, compile=False).inputs[0].name == "x"
    with pytest.raises(tensorbox.ModelError, match="has a zero byte in it"):
        tensorbox.Session(str(tmp_path / "m o d.onnx") + "\0", compile=False)


def test_arguments_of_optimize(tmp_path: Path) -> None:
    for arguments, message in (({"opset": "17"}, "opset is an integer"), ({"dims": {"n": 1.5}}, r"dims\['n'\] is an integer"),
                               ({"disable_passes": "fuse_gelu"}, "disable_passes is a list")):
        with pytest.raises(TypeError, match=message):
            tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "small.onnx", **arguments)
