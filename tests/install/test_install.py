"""`cmake --install` gives a package that another project finds, a command and a Python module that start."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import onnx.parser
import pytest

import tensorbox

ROOT = pathlib.Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/digits.onnx"
SHAPE = tuple(int(d) if d.isdigit() else 2 for d in map(str, tensorbox.Session(DIGITS).inputs[0].shape))


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build/release", "--prefix", prefix)
    return prefix


def test_another_project_uses_the_package(prefix, tmp_path):
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/install/consumer", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DEXAMPLE={ROOT}/examples/classify.cpp")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "consumer", cwd=ROOT).startswith("0: ")


def test_a_project_of_cxx17_is_compiled_as_cxx20(prefix, tmp_path):
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/install/consumer", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DEXAMPLE={ROOT}/examples/classify.cpp", "-DCMAKE_CXX_STANDARD=17", "-DCMAKE_CXX_STANDARD_REQUIRED=ON")
    run("cmake", "--build", tmp_path)


def test_cxx17_is_told_what_to_do(tmp_path):
    def compile(header):
        (tmp_path / "program.cpp").write_text(f"#include <tensorbox/{header}>\nint main() {{ return 0; }}\n")
        return subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                               f"-I{ROOT}/include", tmp_path / "program.cpp"], capture_output=True, text=True)

    refused = compile("tensorbox.h")
    assert refused.returncode and "is C++20 (-std=c++20)" in refused.stderr
    taken = compile("c.h")
    assert taken.returncode == 0, taken.stderr


@pytest.fixture(scope="module")
def runtime_programs(prefix, tmp_path_factory):
    build = tmp_path_factory.mktemp("runtime")
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/install/runtime_consumer", "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", build)
    run(build / "compile_in_c", DIGITS, build / "digits.tbx", env={"PATH": os.environ["PATH"]})
    return build


def test_programs_run_a_package_with_the_runtime_alone(runtime_programs):
    package = runtime_programs / "digits.tbx"
    outputs = {name: run(runtime_programs / name, package, env={"PATH": ""})
               for name in ("run_in_c", "run_in_cpp", "run_static")}
    assert outputs["run_in_c"] == outputs["run_in_cpp"] == outputs["run_static"]
    words = outputs["run_in_c"].split()
    image = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE) / 8
    session = tensorbox.Session(package, threads=1)
    want = session.run({session.inputs[0].name: image})
    assert words[:2] == [session.outputs[0].name, "float32"]
    assert [float.fromhex(w) for w in words[2:]] == want[words[0]].ravel().tolist()


def test_options_of_the_c_interface(runtime_programs, tmp_path):
    graph = onnx.parser.parse_model('''<ir_version: 9, opset_import: ["": 18]>
agraph (float[rows, 4] x, int64[k] axes) => (float[m, n] y) {
  y = ReduceSum <keepdims = 1> (x, axes)
}''')
    onnx.save(graph, tmp_path / "sums.onnx")
    lines = run(runtime_programs / "options_in_c", tmp_path / "sums.onnx", tmp_path / "sums.tbx").splitlines()
    assert any(re.match("log: precision 'bf16' narrows weights .* and nothing else: for isa avx2", line) for line in lines)
    lines = [line for line in lines if not line.startswith("log: ")]
    sums = "sums 12 15 18 21"
    expected = ["rows 3", sums, "error 2: UnsupportedError: .*for_inputs_seen", sums, "error 2: UnsupportedError: the package has no code",
                "error 1: ModelError: option dims is of tbx_compile", "error 1: ModelError: option tiered is of tbx_compile",
                "error 1: ModelError: option no_kept_plans is of tbx_compile", "error 1: ModelError: option state is of tbx_compile", "error 1: ModelError: option dims is 'rows', expected NAME=SIZE",
                "error 1: ModelError: option dims has 'rows=three', expected NAME=NUMBER", "error 1: ModelError: .*no_such",
                "error 1: ModelError: .*no_such", "error 1: ModelError: .*f8", "sums 6 22 38", "error 1: ModelError: .*the run was cancelled",
                "error 1: ModelError: .*max_model_bytes",
                "error 1: ModelError: option limits has no 'no_such'; there are: max_model_bytes, max_nodes",
                "error 1: ModelError: option limits is 'max_nodes', expected NAME=NUMBER",
                "error 1: ModelError: untrusted models may not use operator_libraries", "error .*none.so",
                "error 1: ModelError: option external_data_dir is of tbx_compile_bytes",
                "error 1: ModelError: the size of the options is not set", "error 1: ModelError: the size of the options is not set"]
    assert len(lines) == len(expected) and all(map(re.match, expected, lines)), "\n".join(lines)


def test_values_of_the_c_interface(runtime_programs, tmp_path):
    graph = onnx.parser.parse_model('''<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 1]>
agraph (seq(float[n]) parts, map(string, float) counts, string[k] words, optional(float[2]) maybe)
    => (seq(float[n]) more, float[1, 3] dense, seq(map(string, float)) named, string[k] twice, bool there, optional(float[2]) same) {
  end = Constant <value = float[1] {7.0}> ()
  more = SequenceInsert (parts, end)
  dense = ai.onnx.ml.DictVectorizer <string_vocabulary = ["a", "b", "c"]> (counts)
  named = ai.onnx.ml.ZipMap <classlabels_strings = ["p", "q", "r"]> (dense)
  twice = StringConcat (words, words)
  there = OptionalHasElement (maybe)
  same = Identity (maybe)
}''')
    onnx.save(graph, tmp_path / "values.onnx")
    lines = run(runtime_programs / "values_in_c", tmp_path / "values.onnx").splitlines()
    assert lines[:4] == ["parts: sequence(tensor(float32))", "counts: map(string, tensor(float32))", "words: string",
                         "maybe: optional(tensor(float32))"]

    def outputs(parts, maybe):
        return [f"more = sequence({'; '.join([*parts, '1[1] 7'])})", "dense = 1[1, 3] 2 0.5 0",
                "named = sequence(map(8[3] p q r; 1[3] 2 0.5 0))", "twice = 8[2] redred blueblue", f"there = 9[] {int(maybe != 'none')}",
                f"same = {maybe}"]

    parts = ["1[2] 1 2", "1[3] 3 4 5"]
    assert lines[4:22] == outputs(parts, "1[2] 1 2") + outputs(parts, "none") + outputs([], "none")
    expected = ["input 'parts' has no elements", "input 'counts' is a map without one list", "input 'words' has odd dimensions",
                "input 'words' is of no kind", "input 'parts' is nested too deep", "input 'parts' is missing",
                "there are inputs, and the pointer", "the session is NULL"]
    assert len(lines[22:]) == len(expected)
    assert all(re.match("error 1: ModelError: " + e, line) for e, line in zip(expected, lines[22:])), "\n".join(lines[22:])


def test_the_runtime_needs_no_importer(prefix):
    needed = run("readelf", "-d", prefix / "lib/libtensorbox_runtime.so")
    symbols = run("nm", "-DC", prefix / "lib/libtensorbox_runtime.so")
    assert "protobuf" not in needed and "onnx::" not in symbols and "tbx_compile" not in symbols
    assert "tbx_load" in symbols


@pytest.mark.skipif(not shutil.which("strip"), reason="no strip")
def test_the_runtime_is_small(prefix, tmp_path):
    run("strip", "-o", tmp_path / "stripped.so", prefix / "lib/libtensorbox_runtime.so")
    assert (tmp_path / "stripped.so").stat().st_size <= 6_000_000


def test_a_package_that_is_none_is_an_error_in_c(runtime_programs, tmp_path):
    (tmp_path / "text.tbx").write_text("a text")
    for name in ("run_in_c", "run_static"):
        done = subprocess.run([runtime_programs / name, tmp_path / "text.tbx"], capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith("1: ModelError:") and "is no package" in done.stderr


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config_finds_the_libraries(prefix, tmp_path):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "tensorbox_runtime", env=environment).split()
    program = tmp_path / "run"
    run(os.environ.get("CC", "cc"), "-std=c11", ROOT / "tests/install/runtime_consumer/run.c", *flags,
        f"-Wl,-rpath,{prefix}/lib", "-o", program)
    assert subprocess.run([program, "/nowhere.tbx"], capture_output=True).returncode == 1


def test_licences_are_installed(prefix):
    assert {p.name for p in (prefix / "share/licenses/tensorbox").iterdir()} >= {"LICENSE", "ducc0-fft.txt"}


def test_installed_command_starts(prefix):
    assert "bench" in run(prefix / "bin/tbx", "--help")


def test_installed_module_runs(prefix):
    environment = dict(os.environ, PYTHONPATH=str(prefix / "lib/tensorbox/python"))
    assert run(sys.executable, ROOT / "examples/classify.py", cwd=ROOT, env=environment).startswith("accuracy")
