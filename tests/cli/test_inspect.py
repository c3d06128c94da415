"""tbx dump, explain, ops, compare, demo and the help."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import TBX, Result, products
from onnx import TensorProto, helper, numpy_helper

Tbx = Callable[..., Result]
DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"


@pytest.mark.parametrize(("stage", "text"), [("import", "graph"), ("simplify", "graph"), ("lower", "input float32"),
                                             ("schedule", "group 0"), ("source", "#define"), ("plan", "symbols: batch")])
def test_dump(tbx: Tbx, model: Path, tmp_path: Path, stage: str, text: str) -> None:
    done = tbx("dump", model, "--stage", stage)
    assert (done.code, done.err) == (0, "") and text in done.out
    assert tbx("dump", model, "--stage", stage, "--json").json == {"stage": stage, "text": done.out}
    assert tbx("dump", model, "--stage", stage, "--output", tmp_path / "text").out == ""
    assert (tmp_path / "text").read_text() == done.out


def test_dump_fixes_dimensions(tbx: Tbx, model: Path) -> None:
    assert "[7, 3]" in tbx("dump", model, "--stage", "import", "--dim", "batch=7").out
    assert tbx("dump", model, "--dim", "batch=x").code == 2
    assert "nix" in tbx("dump", model, "--stage", "nix").err
    assert "there is no folder /none" in tbx("dump", model, "--output", "/none/x").err


def test_explain(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    done = tbx("explain", model, "--no-compile")
    assert done.code == 0 and "add (Add)" in done.out
    trace = tmp_path / "trace.json"
    report = tbx("explain", model, "--no-compile", "--trace", trace, "--json").json
    assert report["nodes"] == 3 and not report["flops_are_estimates"]
    for kernel in report["kernels"]:
        assert kernel["time_ns"] > 0 and kernel["bytes"] > 0 and kernel["nodes"] and kernel["decisions"]
    events = json.loads(trace.read_text())["traceEvents"]
    assert len(events) == len(report["kernels"]) and all(e["ph"] == "X" for e in events)
    assert "there is no folder" in tbx("explain", model, "--trace", tmp_path / "none" / "t").err


def test_profiles_count_at_the_sizes_of_the_run(tbx: Tbx, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("NonZero", ["p"], ["i"]),
         helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT), helper.make_node("Exp", ["c"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((5, 7), np.float32), "w")])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    guess = tbx("explain", path, "--no-compile", "--json").json
    assert guess["flops_are_estimates"]
    assert all(any("guessed sizes" in d for d in k["decisions"]) for k in guess["kernels"])
    for n in (1, 3, 33):
        report = tbx("explain", path, "--no-compile", "--json", "--profile", "--dim", f"n={n}").json
        product = next(k for k in report["kernels"] if "MatMul" in k["nodes"][0])
        last = report["kernels"][-1]  # two indices of each of n * 7 elements: what the library drew is not 0
        assert product["flops"] == 2 * n * 5 * 7 and product["bytes"] == 4 * (n * 5 + 5 * 7 + n * 7)
        assert last["flops"] > 0 and last["flops"] % (2 * n * 7) == 0
        assert not report["flops_are_estimates"]
        assert not any("guessed sizes" in d for k in report["kernels"] for d in k["decisions"])


def test_attention_and_recurrent_layers_are_counted(tbx: Tbx, tmp_path: Path) -> None:
    info, heads, width, hidden = helper.make_tensor_value_info, 2, 8, 4
    weights = {"w": np.ones((1, 4 * hidden, width), np.float32), "r": np.ones((1, 4 * hidden, hidden), np.float32)}
    nodes = [helper.make_node("Attention", ["x", "x", "x"], ["a"], "attention", q_num_heads=heads, kv_num_heads=heads),
             helper.make_node("LSTM", ["a", "w", "r"], ["y"], "lstm", hidden_size=hidden)]
    for rows in (4, "n"):
        graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [3, rows, width])],
                                  [info("y", TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(value, name) for name, value in weights.items()])
        path = tmp_path / f"{rows}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
        sizes = ["--dim", "n=4"] if rows == "n" else []
        for profile in ([], ["--profile", *sizes]) if rows == "n" else ([], ["--profile"]):
            report = tbx("explain", path, "--no-compile", "--json", *profile).json
            told = {kernel["name"]: kernel for kernel in report["kernels"] if kernel["kind"] == "extern"}
            attention = next(k for k in told.values() if k["nodes"] == ["attention (Attention)"])
            steps = next(k for name, k in told.items() if "LSTM" in name)
            n = 4 if rows == 4 or profile else 128  # what is assumed where nothing is known
            assert attention["flops"] == 2 * 3 * n * n * 2 * width
            assert attention["bytes"] == 4 * 2 * 3 * n * width  # one input, read once, and the result
            assert steps["flops"] == 2 * 3 * n * 4 * hidden * hidden


def test_precision(tbx: Tbx, tmp_path: Path) -> None:
    model = products(tmp_path / "products.onnx")
    for precision, shown in (("strict", False), ("bf16", True)):
        done = tbx("explain", model, "--no-compile", "--precision", precision)
        without = "and nothing else" in done.err
        assert done.code == 0 and ("in bfloat16" in done.out) == (shown and not without)
        assert not without or shown
    done = tbx("explain", model, "--precision", "half")
    assert done.code == 2 and "half not in {strict,tf32,bf16,f16,any}" in done.err
    done = tbx("explain", model, "--precision", "tf32")
    assert done.code == 3 and "precision 'tf32' is a way in which GPUs multiply, and no device is given (give device 'cuda' too" in done.err
    gpu = {"TBX_FAKE_CUDA": "1"}
    done = tbx("explain", model, "--device", "cuda", "--precision", "tf32", environment=gpu)
    assert done.code == 0 and "operands of float32 are rounded to TF32" in done.out
    done = tbx("compare", model, "--device", "cuda", "--precision", "tf32", "--json", environment=gpu)
    assert done.code == 0, done.err
    assert "--precision" in tbx("run", "--help").out


def test_passes(tbx: Tbx) -> None:
    names = tbx("explain", "--passes", "--json").json
    assert names == tbx("explain", "--passes").out.split() and "fold_constants" in names
    assert "fuse_post_ops" in names and "assign_layouts" not in names  # steps of the schedule that can be left out
    done = tbx("explain")
    assert done.code == 2 and "model is required" in done.err


def test_ops(tbx: Tbx) -> None:
    rows = tbx("ops", "--json").json
    relu = next(r for r in rows if r["domain"] == "ai.onnx" and r["name"] == "Relu")
    assert relu["since"] and all(isinstance(opset, int) for opset in relu["since"])
    assert f"{len(rows)} operators" in tbx("ops").out
    assert re.search(r"Relu .* since [\d, ]+; suite \d+ of \d+, generated \d+ of \d+\n", tbx("ops", "Relu").out)
    assert re.search(r"FastGelu .* since 1\n", tbx("ops", "FastGelu").out)  # has no such cases


def test_ops_lists_all_of_onnx(tbx: Tbx) -> None:
    rows = {(row["domain"], row["name"]) for row in tbx("ops", "--json").json}
    declared = {(s.domain or "ai.onnx", s.name) for s in onnx.defs.get_all_schemas_with_history() if s.since_version > 0}
    assert declared - rows == set()


def test_compare_agrees(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    done = tbx("compare", model)
    assert done.code == 0 and "no difference" in done.out
    chain = products(tmp_path / "products.onnx")
    assert tbx("run", chain, "--no-compile", "--save", tmp_path / "v.npz", "--all-values").code == 0
    report = tbx("compare", chain, tmp_path / "v.npz", "--no-compile", "--json")
    assert report.code == 0 and report.json["compared"] == 3 and report.json["first_difference"] is None


def test_compare_two_instruction_sets(tbx: Tbx, digits: Path) -> None:
    done = tbx("compare", digits / "digits.onnx", "--isa", "sse", "--reference-isa", "sse", "--json")
    assert done.code == 0 and done.json["compared"] > 3, done.out


def test_compare_finds_a_changed_weight(tbx: Tbx, tmp_path: Path) -> None:
    chain, other = products(tmp_path / "a.onnx"), products(tmp_path / "b.onnx", scale=1.1)
    done = tbx("compare", chain, other, "--no-compile", "--json")
    assert done.code == 1
    assert done.json["first_difference"]["value"] == "b"
    assert [r["ok"] for r in done.json["values"]] == [True, False, False]
    assert "first difference: b [1x3]" in tbx("compare", chain, other, "--no-compile").out
    assert tbx("compare", chain, other, "--no-compile", "--atol", 100).code == 0


def test_compare_every_node(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    """With kernels ending at every node the values between are there, in order and with their nodes."""
    report = tbx("compare", model, "--every-node", "--json")
    assert report.code == 0 and report.json["first_difference"] is None
    assert [(v["value"], v["node"]) for v in report.json["values"]] == [
        ("sum", "add (Add)"), ("positive", "relu (Relu)"), ("y", "mul (Mul)")]
    assert all({"max_abs", "max_rel", "max_ulp"} <= set(v) for v in report.json["values"])
    chain, other = products(tmp_path / "a.onnx"), products(tmp_path / "b.onnx", scale=1.1)
    done = tbx("compare", chain, other, "--every-node", "--no-compile", "--json")
    assert done.code == 1 and [r["ok"] for r in done.json["values"]] == [True, False, False, False]
    first = done.json["first_difference"]
    assert (first["value"], first["node"]) == ("p", "one (MatMul)") and first["max_ulp"] > 100
    assert tbx("run", other, "--no-compile", "--save", tmp_path / "v.npz", "--all-values").code == 0
    recorded = tbx("compare", chain, tmp_path / "v.npz", "--every-node", "--no-compile")
    assert recorded.code == 1 and "first difference: p, computed by one (MatMul), [1x3]" in recorded.out


def test_compare_finds_a_broken_kernel(tbx: Tbx, tmp_path: Path) -> None:
    """A compiler that miscompiles tanh: the first value that differs is the first Tanh's."""
    compiler = shutil.which("c++")
    if not compiler:
        pytest.skip("no compiler")
    broken = tmp_path / "c++"
    broken.write_text(f"""#!/bin/bash
for a in "$@"; do case $a in *.cpp) sed -i 's/= m_tanh(/= 0.5f * m_tanh(/' "$a"; esac; done
exec {compiler} "$@"
""")
    broken.chmod(0o755)
    chain = products(tmp_path / "chain.onnx")
    options = ("compare", chain, "--every-node", "--cache-dir", tmp_path / "kernels", "--json")
    done = tbx(*options, environment={"TBX_CXX": str(broken)})
    assert done.code == 1, done.err
    assert done.json["first_difference"]["node"] == "first (Tanh)"


def test_compare_narrow_values(tbx: Tbx, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    nodes, constants = [], []
    for i in range(3):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]))
        nodes.append(helper.make_node("Add", [f"p{i}", f"b{i}"], [f"x{i + 1}"]))
        constants.append(numpy_helper.from_array(rng.standard_normal((64, 64), np.float32) / 8, f"w{i}"))
        constants.append(numpy_helper.from_array(rng.standard_normal(64, np.float32), f"b{i}"))
    ends = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [40, 64]) for i in (0, 3)]
    model = tmp_path / "narrow.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)), model)
    x = rng.standard_normal((40, 64), np.float32)
    np.save(tmp_path / "x.npy", x)
    done = tbx("compare", model, "--precision", "bf16", "--json", "--input", f"x0={tmp_path / 'x.npy'}")
    if "and nothing else" in done.err:
        pytest.skip("this CPU multiplies float32 faster than bfloat16")
    assert done.code == 0, done.out + done.err
    rows = {row["value"]: row for row in done.json["values"]}
    assert set(rows) == {"x1", "x2", "x3"}
    for row in rows.values():  # of many rounded values: about the root mean square of one rounding each
        assert 2**-11 < row["rel_l2"] < 2**-6
    assert tbx("compare", model, "--precision", "bf16", "--rtol", "0", "--atol", "0", "--no-compile").code == 1


def test_compare_with_a_package(tbx: Tbx, tmp_path: Path) -> None:
    chain, other = products(tmp_path / "a.onnx"), products(tmp_path / "b.onnx", scale=1.1)
    package = tmp_path / "a.tbx"
    assert tbx("compile", chain, "-o", package).code == 0
    same, differs = (tbx("compare", m, package, "--json") for m in (chain, other))
    assert same.code == 0 and same.json["compared"] >= 1 and same.json["reference"] == str(package)
    assert differs.code == 1 and not differs.json["first_difference"]["ok"]
    assert tbx("compare", package, package).code == 0
    for model, reference in ((chain, package), (package, chain)):
        done = tbx("compare", model, reference, "--every-node")
        assert done.code == 2 and f"--every-node needs ONNX models: {package} is a package" in done.err
    done = tbx("compare", chain, package, "--reference-isa", "sse")
    assert done.code == 2 and f"{package} is a package, which is compiled already: leave out how" in done.err


def test_compare_says_which_references_contradict(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", y=np.zeros((1, 3), np.float32))
    for how in (["--reference-compiled"], ["--reference-evaluated"], ["--reference-isa", "sse"]):
        for recorded in ([tmp_path / "v.npz"], ["--expected", tmp_path / "v.npz"]):
            done = tbx("compare", model, *recorded, *how)
            assert done.code == 2 and "v.npz is recorded values: leave out how" in done.err
    done = tbx("compare", model, "--reference-evaluated", "--reference-isa", "sse")
    assert done.code == 2 and "excludes" in done.err
    done = tbx("compare", model, model, "--reference-evaluated", "--json")
    assert done.code == 0 and done.json["reference"] == f"{model}, the evaluator without fusion"


def test_compare_shape_and_type(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "shape.npz", y=np.zeros((2, 3), np.float32))
    np.savez(tmp_path / "type.npz", y=np.zeros((1, 3), np.float64))
    np.savez(tmp_path / "other.npz", z=np.zeros(3))
    shape = tbx("compare", model, "--no-compile", "--expected", tmp_path / "shape.npz")
    assert shape.code == 1 and "shape 1x3 instead of 2x3" in shape.out
    assert "DIFFER" in shape.out and "rel L2" not in shape.out  # nothing was measured
    given = ("compare", model, "--no-compile", tmp_path / "type.npz")
    assert "first difference: y: type float32 instead of float64" in tbx(*given).out
    row = tbx(*given, "--json").json["first_difference"]
    assert (row["differs_in"], row["type"], row["expected_type"]) == ("type", "float32", "float64")
    nothing = tbx("compare", model, "--no-compile", tmp_path / "other.npz")
    assert nothing.code == 2 and "no value is common" in nothing.err
    assert tbx("compare", model, tmp_path / "none.npz").code == 2


def test_demo(tbx: Tbx, digits: Path, tmp_path: Path) -> None:
    report = tbx("demo", digits, "--json").json
    assert report["accuracy"] > 0.9 and {"file", "label", "digit", "confidence"} <= set(report["images"][0])
    done = tbx("demo", tmp_path)
    assert done.code == 2 and "digits.onnx" in done.err


@pytest.mark.parametrize("command", ["run", "bench", "explain", "dump", "compare", "ops"])
def test_help_has_examples(tbx: Tbx, command: str) -> None:
    done = tbx(command, "--help")
    assert done.code == 0 and f"  tbx {command}" in done.out.split("Examples:")[1]


def test_general_help(tbx: Tbx) -> None:
    done = tbx("--help")
    assert done.code == 0 and "Exit codes: 0 done" in done.out
    assert tbx().code == 2 and tbx("nix").code == 2
    assert tbx("--version").out.strip()


def test_a_dash_is_stdout_or_nothing(tbx: Tbx, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tbx("dump", model, "--output", "-").out == tbx("dump", model).out != ""
    for arguments in (["optimize", model, "-"], ["compile", model, "-o", "-"], ["explain", model, "--trace", "-"]):
        refused = tbx(*arguments)
        assert refused.code == 2 and "-: expected the name of a file" in refused.err
    assert not (tmp_path / "-").exists()


def test_a_device_is_no_model(tbx: Tbx) -> None:
    refused = tbx("run", "/dev/null")
    assert refused.code == 3 and "'/dev/null' is not a regular file (write the model to one, or give its bytes)" in refused.err


def test_a_pipe_is_no_model(tbx: Tbx, tmp_path: Path) -> None:
    """Nobody writes to it: who opened it as a file waited for ever."""
    os.mkfifo(tmp_path / "pipe")
    for command in (["run"], ["dump"], ["compile", "-o", tmp_path / "out.tbx"], ["explain"], ["bench"], ["optimize", tmp_path / "out.onnx"]):
        refused = tbx(command[0], tmp_path / "pipe", *command[1:])
        assert refused.code == 3 and "is not a regular file" in refused.err


def test_full_disk_is_an_error(tbx: Tbx, model: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    assert tbx("dump", model, "--output", "/dev/full/x").code == 2


def test_what_is_no_file_is_not_replaced(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    """A pipe here; /dev/null and /dev/stdout for root."""
    pipe, link, text = tmp_path / "pipe", tmp_path / "link", tmp_path / "text"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert tbx("dump", model, "--stage", "import", "--output", pipe).code == 0
        assert reader.stdout is not None and b"graph" in reader.stdout.read()
    for command in (["compile", "-o", pipe], ["optimize", pipe]):
        refused = tbx(command[0], model, *command[1:])
        assert refused.code == 5 and "it is no regular file" in refused.err
    assert pipe.is_fifo() and sorted(tmp_path.iterdir()) == [pipe]
    text.write_text("before")
    link.symlink_to(text)
    assert tbx("dump", model, "--stage", "import", "--output", link).code == 0
    assert link.is_symlink() and "graph" in text.read_text()


def test_files_that_may_not_grow(model: Path, tmp_path: Path) -> None:
    """As on a full disk: the cause is said, and nothing half written is left."""
    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    (tmp_path / "out").mkdir()
    for command in (["run", "--save", "o.npz"], ["dump", "--output", "o.txt"], ["explain", "--trace", "o.json"]):
        done = subprocess.run([TBX, command[0], model, command[1], tmp_path / "out" / command[2], *(["--no-compile"] if command[0] != "dump" else [])],
                              preexec_fn=small_files, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "cannot be written: File too large" in done.stderr
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("arguments", [("ops",), ("ops", "--json"), ("dump", "MODEL", "--stage", "source"), ("explain", "MODEL"), ("--help",),
                                       ("run", "--help")])
def test_stdout_that_takes_nothing_is_an_error(model: Path, arguments: tuple[str, ...]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run([TBX, *(str(model) if a == "MODEL" else a for a in arguments)], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=60)
    assert (done.returncode, done.stderr) == (2, "tbx: stdout cannot be written\n")


def test_operators_by_name(tbx: Callable[..., Result]) -> None:
    rows = tbx("ops", "Relu", "com.microsoft.Gelu", "--json").json
    assert [(row["domain"], row["name"]) for row in rows] == [("ai.onnx", "Relu"), ("com.microsoft", "Gelu")]
    assert tbx("ops", "conv").code == 2


def test_help_is_a_command_as_well(tbx: Callable[..., Result]) -> None:
    assert tbx("help") == tbx("--help") and tbx("help").code == 0
    assert tbx("help", "run") == tbx("run", "--help") and tbx("help", "run").code == 0


def test_packages_where_a_model_is_needed(tbx: Tbx, model: Path, tmp_path: Path) -> None:
    package, want = tmp_path / "m.tbx", tmp_path / "want.npz"
    assert tbx("compile", model, "-o", package).code == 0
    refused = tbx("compare", package)
    assert refused.code == 2 and "m.tbx is a package, which has no plain loops" in refused.err
    refused = tbx("optimize", package, tmp_path / "small.onnx")
    assert refused.code == 3 and "m.tbx' is a package" in refused.err
    assert tbx("compare", package, model).code == 0
    assert tbx("run", package, "--save", want).code == 0 and tbx("compare", package, want).code == 0


def test_doctor(tbx: Tbx) -> None:
    rows = json.loads(tbx("doctor", "--json").out)
    by_name = {row["what"]: row for row in rows}
    compiler = by_name["C++ compiler"]
    assert compiler["found"] and compiler["where"].startswith("/") and compiler["version"]
    said = subprocess.run([compiler["where"], "--version"], capture_output=True, text=True, check=True).stdout
    assert compiler["version"] == said.splitlines()[0]
    for library in ("libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"):
        row = by_name[library]
        assert row["where"].startswith("/") if row["found"] else "was not found" in row["problem"]
    assert "cuda:0" in by_name
    assert "C++ compiler" in tbx("doctor").out


def test_kernels_of_equal_text_are_launched_for_their_own_sizes(tbx: Tbx, tmp_path: Path) -> None:
    sizes = {"a": 16 * 1024, "b": 64 * 1024}  # both of many blocks: kernels of few start early
    graph = helper.make_graph([helper.make_node("Exp", [n], [f"e{n}"]) for n in sizes], "g",
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, [s]) for n, s in sizes.items()],
                              [helper.make_tensor_value_info(f"e{n}", TensorProto.FLOAT, [s]) for n, s in sizes.items()])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    plan = tbx("dump", path, "--stage", "plan", "--device", "cuda", environment={"TBX_FAKE_CUDA": "1"}).out
    steps = re.findall(r"kernel (\w+) .* tasks (\d+) blocks (\d+) of (\d+) threads", plan)
    assert len(steps) == 2 and steps[0][0] == steps[1][0]
    for _, tasks, blocks, threads in steps:
        assert int(blocks) == -(-int(tasks) // int(threads))
