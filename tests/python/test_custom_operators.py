"""Custom operators from Python: the example library, built as its README says, and the command line."""

from __future__ import annotations

import pathlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx.parser
import pytest

tensorbox = pytest.importorskip("tensorbox")
ROOT = pathlib.Path(__file__).parents[2]


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    build = tmp_path_factory.mktemp("example")
    run("cmake", "-G", "Ninja", "-S", ROOT / "examples/custom_operator", "-B", build)
    run("cmake", "--build", build)
    return build / "signal_operators.so"


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """The model that the README of the example shows."""
    readme = (ROOT / "examples/custom_operator/README.md").read_text()
    return onnx.parser.parse_model(re.search(r'parse_model\("""(.*?)"""\)', readme, re.S)[1])


X = np.array([[1, 0, 0, 0, 0], [0, 1, 2, 3, 4]], np.float32)
Y = np.array([[0.5, 0, 0], [2, 4, 6]], np.float32)


@pytest.mark.parametrize("compile", [False, True])
def test_session(library: pathlib.Path, model: onnx.ModelProto, compile: bool) -> None:
    session = tensorbox.Session(model, operator_libraries=[library], compile=compile)
    np.testing.assert_array_equal(session.run({"x": X})["y"], Y)
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: session.run({"x": X})["y"], range(20)):
            np.testing.assert_array_equal(y, Y)


def test_inference_session(library: pathlib.Path, model: onnx.ModelProto) -> None:
    options = tensorbox.SessionOptions()
    options.register_custom_ops_library(library)
    session = tensorbox.InferenceSession(model.SerializeToString(), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


def test_errors(library: pathlib.Path, model: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    with pytest.raises(tensorbox.UnsupportedError, match="operator_libraries"):
        tensorbox.Session(model)
    with pytest.raises(tensorbox.BackendError, match="nowhere.so"):
        tensorbox.Session(model, operator_libraries=[tmp_path / "nowhere.so"])
    session = tensorbox.Session(model, operator_libraries=[library])
    with pytest.raises(tensorbox.ModelError, match=r"FirFilter.*3 taps do not fit into 2 samples"):
        session.run({"x": X[:, :2]})


def test_command_line(library: pathlib.Path, model: onnx.ModelProto, tmp_path: pathlib.Path) -> None:
    onnx.save(model, tmp_path / "smooth.onnx")
    command = [ROOT / "build/release/bin/tbx", "run", tmp_path / "smooth.onnx", "--operators", library, "--dim", "n=8"]
    assert "y" in run(*command)


def test_the_guide_compiles(tmp_path: pathlib.Path) -> None:
    source = re.search(r"```c\n(.*?)```", (ROOT / "docs/custom_operators.md").read_text(), re.S)[1]
    (tmp_path / "twice.c").write_text(source)
    run("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-I", ROOT / "include", "-o",
        tmp_path / "libtwice.so", tmp_path / "twice.c")
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21, "my.domain": 1]>'
                                    "g (float[n] x) => (float[n] y) { y = my.domain.Twice<factor = 3.0>(x) }")
    session = tensorbox.Session(model, operator_libraries=[tmp_path / "libtwice.so"], compile=False)
    np.testing.assert_array_equal(session.run({"x": np.arange(3, dtype=np.float32)})["y"], [0, 3, 6])
