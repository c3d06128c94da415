"""The command line: what each command prints, its exit codes, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
TBX = ROOT / "build" / "release" / "bin" / "tbx"
DIGITS = ROOT / "examples" / "digits"
OK, DIFFERS, USAGE, MODEL, UNSUPPORTED = 0, 1, 2, 3, 4


def tbx(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command; output as text."""
    return subprocess.run([str(TBX), *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})


def tbx_json(*arguments: object) -> dict:
    """Runs the command with --json: all of standard output must be one document."""
    result = tbx(*arguments, "--json")
    assert result.returncode == OK, result.stderr
    return json.loads(result.stdout)


def make_model(path: Path, weight: float = 2.0) -> Path:
    """y = relu(x * weight + b), x of [batch, 4], with a middle value called scaled."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["scaled"], "scale"),
             helper.make_node("MatMul", ["scaled", "m"], ["product"], "product"),
             helper.make_node("Relu", ["product"], ["y"], "relu")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.full(4, weight, np.float32), "w"),
         numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "m")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("cli") / "model.onnx")


def test_help_teaches() -> None:
    result = tbx("--help")
    assert result.returncode == OK
    for command in ("run", "bench", "explain", "dump", "compare", "ops", "demo"):
        assert f"\n  {command} " in result.stdout
        own = tbx(command, "--help")
        assert own.returncode == OK
        assert f"tbx {command}" in own.stdout.split("Examples:")[1], command
    assert "Exit codes: 0 done, 1 outputs differ" in result.stdout
    assert tbx("--version").stdout.strip().count(".") == 2


def test_run_reads_npy_and_saves_npz(model: Path, tmp_path: Path) -> None:
    x = np.array([[1, 2, 3, 4], [-1, 0, 1, 2]], np.float32)
    np.save(tmp_path / "x.npy", x)
    out = tmp_path / "out.npz"
    result = tbx("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--save", out)
    assert result.returncode == OK, result.stderr
    assert "y  float32 2x3" in result.stdout
    want = np.maximum(2 * x @ np.arange(12, dtype=np.float32).reshape(4, 3), 0)
    np.testing.assert_allclose(np.load(out)["y"], want, rtol=1e-6)
    # The same from .npz and .pb.
    np.savez(tmp_path / "x.npz", other=x)
    (tmp_path / "x.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    for source in (f"x={tmp_path / 'x.npz'}:other", f"x={tmp_path / 'x.pb'}"):
        report = tbx_json("run", model, "--input", source)
        np.testing.assert_allclose(report["outputs"][0]["first"], want.ravel()[:8], rtol=1e-6)


def test_run_reads_png() -> None:
    image = sorted((DIGITS / "images").glob("*.png"))[0]
    report = tbx_json("run", DIGITS / "digits.onnx", "--input", f"image={image}")
    assert report["outputs"][0]["shape"] == [1, 10]
    assert abs(report["outputs"][0]["mean"] - 0.1) < 1e-6


def test_random_inputs_follow_the_seed(model: Path) -> None:
    first, again, other = (tbx_json("run", model, "--dim", "batch=64", "--seed", s)["outputs"][0]["mean"] for s in (1, 1, 2))
    assert first == again != other


def test_dim_sets_symbols(model: Path) -> None:
    assert tbx_json("run", model, "--dim", "batch=5")["outputs"][0]["shape"] == [5, 3]


def test_bench(model: Path) -> None:
    report = tbx_json("bench", model, "--repeat", 20, "--clients", 2)
    assert report["clients"] == 2 and report["runs"] == 40
    assert 0 < report["min_ms"] <= report["median_ms"] <= report["p90_ms"] <= report["p99_ms"]
    assert "median" in tbx("bench", model, "--repeat", 5).stdout


def test_dump_all_stages(model: Path) -> None:
    texts = {}
    for stage in ("import", "simplify", "lower", "schedule", "source", "cuda", "plan"):
        texts[stage] = tbx("dump", model, "--stage", stage).stdout
        assert texts[stage], stage
        assert tbx_json("dump", model, "--stage", stage)["text"] == texts[stage]
    assert "MatMul" in texts["import"] and "extern MatMul" in texts["lower"]
    assert "__global__" in texts["cuda"] and "batch" in texts["plan"]


def test_explain_gives_reasons_and_times(model: Path, tmp_path: Path) -> None:
    report = tbx_json("explain", model, "--profile", "--trace", tmp_path / "trace.json")
    assert {node for kernel in report["kernels"] for node in kernel["nodes"]} == {
        "scale (Mul)", "product (MatMul)", "relu (Relu)"}
    for kernel in report["kernels"]:
        assert kernel["decisions"] and kernel["time_ns"] > 0 and kernel["bytes"] > 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(events) == len(report["kernels"]) and all(e["ph"] == "X" for e in events)
    assert "fold_constants" in tbx("explain", "--passes").stdout.split()


def test_disable_pass_and_options_change_the_result_of_no_model(model: Path) -> None:
    want = tbx_json("run", model)["outputs"]
    for options in (["--no-compile"], ["--no-fusion"], ["--isa", "sse"], ["--disable-pass", "fold_constants"],
                    ["--disable-pass", "fuse_post_ops"]):
        got = tbx_json("run", model, *options)["outputs"]
        np.testing.assert_allclose(got[0]["first"], want[0]["first"], rtol=1e-5)


def test_steps_of_the_schedule_are_left_out(model: Path) -> None:
    def groups(*options: str) -> int:
        return tbx("dump", model, "--stage", "schedule", *options).stdout.count("\ngroup ")

    assert groups("--disable-pass", "fuse_post_ops") > groups()


def test_ops_lists_operators() -> None:
    operators = json.loads(tbx("ops", "--json").stdout)
    assert {"domain": "ai.onnx", "name": "Softmax"}.items() <= next(
        o for o in operators if o["name"] == "Softmax").items()
    assert f"{len(operators)} operators" in tbx("ops").stdout


def test_compare_finds_the_first_value_that_differs(model: Path, tmp_path: Path) -> None:
    assert tbx("compare", model).returncode == OK
    assert tbx("compare", model, "--isa", "sse", "--reference-compiled").returncode == OK
    changed = make_model(tmp_path / "changed.onnx", weight=2.5)
    result = tbx("compare", model, changed, "--no-fusion")
    assert result.returncode == DIFFERS
    assert "first difference: scaled [1x4]" in result.stdout
    report = json.loads(tbx("compare", model, changed, "--no-fusion", "--json").stdout)
    assert report["first_difference"]["value"] == "scaled"


def test_compare_with_recorded_outputs(model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    given = ("--input", f"x={tmp_path / 'x.npy'}", "--expected", tmp_path / "want.npz")
    np.savez(tmp_path / "want.npz", y=np.array([[36, 44, 52]], np.float32))
    assert tbx("compare", model, *given).returncode == OK
    np.savez(tmp_path / "want.npz", y=np.array([[36, 44, 53]], np.float32))
    result = tbx("compare", model, *given)
    assert result.returncode == DIFFERS
    assert "first difference: y [1x3] at element 2: 52 instead of 53" in result.stdout


def test_demo() -> None:
    report = tbx_json("demo", DIGITS)
    assert report["accuracy"] >= 0.97 and len(report["images"]) == len(list((DIGITS / "images").glob("*.png")))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], USAGE, "tbx: a command is required: run, compile, optimize, bench"),
        (["nonsense"], USAGE, "there is no command 'nonsense'; the commands are: run, compile, optimize, bench"),
        (["--nonsense"], USAGE, "tbx: there is no option --nonsense (`tbx --help` lists what there is)"),
        (["run"], USAGE, "tbx run: model is required (`tbx run --help` lists"),
        (["run", "nowhere.onnx"], USAGE, "File does not exist: nowhere.onnx"),
        (["run", "/"], USAGE, "File is actually a directory"),
        (["run", "MODEL", "--badflag"], USAGE, "tbx run: there is no option --badflag (`tbx run --help` lists"),
        (["run", "MODEL", "--theads", "2"], USAGE, "there is no option --theads; is it --threads?"),
        (["run", "MODEL", "--dims=batch=2"], USAGE, "there is no option --dims=batch=2; is it --dim?"),
        (["compile", "--badflag", "MODEL"], USAGE, "there is no option --badflag"),
        (["run", "MODEL", "more"], USAGE, "not expected: more"),
        (["run", "MODEL", "--threads", "two"], USAGE, "two"),
        (["run", "MODEL", "--input", "x"], USAGE, "expected name=value, got 'x'"),
        (["run", "MODEL", "--input", "z=a.npy"], USAGE, "the model has no input 'z'; its inputs are: x"),
        (["run", "MODEL", "--input", "x=nowhere.npy"], USAGE, "nowhere.npy"),
        (["run", "MODEL", "--dim", "seq=4"], USAGE, "--dim seq: no such dimension; the model's are: batch"),
        (["run", "MODEL", "--dim", "batch=many"], USAGE, "'many' is not a size"),
        (["run", "MODEL", "--save", "/nowhere/out.npz"], USAGE, "/nowhere/out.npz"),
        (["run", "MODEL", "--isa", "neon"], USAGE, "neon not in {avx512,avx2,sse}"),
        (["run", "MODEL", "--disable-pass", "nonsense"], USAGE, "there is no pass 'nonsense'"),
        (["run", "MODEL", "--dim", "batch=2", "--dim", "batch=3"], USAGE, "--dim: 'batch' is given twice"),
        (["run", "MODEL", "--time-limit", "-1"], USAGE, "'-1' is not a number of at least 0"),
        (["run", "TEXT"], MODEL, "text.onnx': the bytes are not a valid ONNX model"),
        (["dump", "MODEL", "--dim", "nonsense=2"], MODEL, "which the model does not have; its inputs have: batch"),
        (["optimize", "MODEL", "out.onnx", "--dim", "nonsense=2"], MODEL, "its inputs have: batch"),
        (["optimize", "MODEL", "/nowhere/out.onnx"], USAGE, "there is no folder /nowhere"),
        (["compare", "MODEL", "TEXT", "--rtol", "-1"], USAGE, "'-1' is not a number of at least 0"),
        (["compare", "MODEL", "TEXT"], MODEL, "not a valid ONNX model"),
        (["compare", "MODEL", "TEXT"], MODEL, "(in the reference: "),
        (["compare", "MODEL", "--expected", "TEXT"], USAGE, "expected values are a FILE.npz"),
        (["ops", "Nonsense"], USAGE, "there is no operator 'Nonsense'"),
        (["dump", "MODEL", "--stage", "nonsense"], USAGE, "nonsense not in {import,simplify"),
        (["explain"], USAGE, "model is required"),
        (["explain", "MODEL", "--trace", "/nowhere/t.json"], USAGE, "--trace /nowhere/t.json: there is no folder /nowhere"),
        (["explain", "MODEL", "--trace", "/tmp"], USAGE, "--trace /tmp: is a folder"),
        (["dump", "MODEL", "--output", "/tmp"], USAGE, "--output /tmp: is a folder"),
        (["compile", "TEXT", "-o", "/nowhere/m.tbx"], USAGE, "--output /nowhere/m.tbx: there is no folder /nowhere"),
        (["compile", "TEXT", "-o", "m.tbx", "--isa", "avx2,neon"], USAGE, "--isa avx2,neon: 'neon' is none of"),
        (["compile", "TEXT", "-o", "/tmp"], USAGE, "--output /tmp: is a folder"),
        (["bench", "MODEL", "--clients", "0"], USAGE, "not in range"),
        (["compare", "MODEL", "--expected", "nowhere.npz"], USAGE, "nowhere.npz"),
        (["demo", "/"], USAGE, "digits.onnx"),
    ],
)
def test_errors_are_clear(arguments: list[str], code: int, message: str, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("this is no model, only some text that goes on for a while\n")
    result = tbx(*[{"MODEL": model, "TEXT": text}.get(a, a) for a in arguments])
    assert message in result.stderr + result.stdout
    assert result.returncode == code, result.stderr
    assert result.stdout == "" or not arguments


def test_wrong_input_shapes_and_types_name_the_input(model: Path, tmp_path: Path) -> None:
    for array, message in ((np.ones((2, 5), np.float32), "dimension 1 of input 'x' is 5, expected 4"),
                           (np.ones(4, np.float32), "input 'x' has rank 1, expected 2"),
                           (np.ones((2, 4), np.int64), "input 'x' has type int64, expected float32")):
        np.save(tmp_path / "x.npy", array)
        result = tbx("run", model, "--input", f"x={tmp_path / 'x.npy'}")
        assert message in result.stderr
        assert result.returncode in (USAGE, MODEL)


def test_unsupported_operator_is_named(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], "frob", domain="example.com")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    path = tmp_path / "custom.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("example.com", 1)],
                                ir_version=10), path)
    result = tbx("run", path)
    assert result.returncode == UNSUPPORTED
    for part in ("frob", "example.com.Frobnicate", "tbx ops"):
        assert part in result.stderr


def test_random_strings_are_refused_with_the_way_out(tmp_path: Path) -> None:
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", TensorProto.STRING, [1])],
                              [helper.make_tensor_value_info("y", TensorProto.STRING, [1])])
    path = tmp_path / "strings.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    result = tbx("run", path)
    assert result.returncode == USAGE
    assert "input 'x' is a string" in result.stderr and "--input x=x.npy" in result.stderr


def test_no_compiler_is_reported_once(model: Path, tmp_path: Path) -> None:
    result = tbx("run", model, "--cache-dir", tmp_path, TBX_CXX="/nowhere/c++")
    assert result.returncode == OK
    assert result.stderr.count("no C++ compiler found") == 1 and "TBX_CXX is '/nowhere/c++'" in result.stderr


@pytest.mark.parametrize("script, cause", [
    ("echo licence expired >&2; echo more; exit 3", "(exit status 3: licence expired)"), ("exit 1", "(exit status 1)"),
    ("kill -9 $$", "(it cannot be started, or was killed)")])
def test_a_compiler_that_does_not_work_is_named_with_what_it_says(model: Path, tmp_path: Path, script: str, cause: str) -> None:
    compiler = tmp_path / "broken c++"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    why = f"the C++ compiler {compiler} does not compile an empty file {cause}"
    result = tbx("run", model, "--cache-dir", tmp_path / "cache", TBX_CXX=str(compiler))
    assert result.returncode == OK, result.stderr
    assert result.stderr == f"note: {why}; not all kernels are in the cache, so they run in the evaluator\n"
    found = json.loads(tbx("doctor", "--json", TBX_CXX=str(compiler)).stdout)[0]
    assert found["what"] == "C++ compiler" and not found["found"] and found["problem"] == why


def test_doctor_says_why_the_cache_is_another(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "open").mkdir(mode=0o755)
    for name, why in (("link", "is a symbolic link"), ("open", "is open to other users")):
        result = tbx("doctor", TBX_CACHE_DIR=str(tmp_path / name), TMPDIR=str(tmp_path))
        assert result.returncode == OK, result.stderr
        lines = result.stdout.splitlines()
        at = next(i for i, line in enumerate(lines) if "kernel cache" in line)
        assert lines[at].startswith("found") and lines[at].endswith(f"/tensorbox-{os.geteuid()}")
        assert f"{tmp_path / name} {why}" in lines[at + 1]


def test_a_truncated_model_is_an_error_not_a_crash(model: Path, tmp_path: Path) -> None:
    whole = model.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 12)):
        (tmp_path / "cut.onnx").write_bytes(whole[:size])
        result = tbx("run", tmp_path / "cut.onnx", "--no-compile")
        assert result.returncode in (OK, MODEL, UNSUPPORTED), (size, result.returncode, result.stderr)
        assert result.returncode == OK or result.stderr.startswith(("ModelError", "UnsupportedError"))


def test_a_filled_cache_starts_no_compiler(model: Path, tmp_path: Path) -> None:
    calls, compiler = tmp_path / "calls", tmp_path / "counting"
    compiler.write_text(f'#!/bin/sh\necho call >> "{calls}"\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    first = tbx("run", model, "--cache-dir", tmp_path / "cache", TBX_CXX=str(compiler))
    assert first.returncode == OK and calls.read_text()
    calls.unlink()
    again = tbx("run", model, "--cache-dir", tmp_path / "cache", TBX_CXX=str(compiler))
    assert again.returncode == OK and not calls.exists()
