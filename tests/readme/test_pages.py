"""What the pages show is run as it stands: each command line of tbx on them and in its help, each block of Python, C and C++.
Lines that build or test this repository are not run, but what they name is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[2]
TBX = ROOT / "build/release/bin/tbx"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = ["run", "bench", "compile", "optimize", "explain", "dump", "compare", "ops", "doctor", "demo"]


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0].strip()}"


def blocks(*languages: str) -> list[Block]:
    found = []
    for page in PAGES:
        for indent, language, text in re.findall(r"^( *)```(\w*)\n(.*?)^ *```", page.read_text(), re.M | re.S):
            lines = [line.removeprefix(indent) for line in text.splitlines()]
            found.append(Block(page.name, language, "\n".join(lines) + "\n"))
    return [b for b in found if not languages or b.language in languages]


def test_blocks_are_of_languages_that_are_run() -> None:
    assert {b.language for b in blocks()} <= {"python", "cpp", "c", "sh", "cmake", "mermaid"}


# --- command lines


def shown_commands() -> list[str]:
    """Whole command lines: in blocks, in lines set in as code, between backticks where they name a file, and in the help."""
    found = []
    for page in PAGES:
        text = page.read_text()
        found += re.findall(r"^ *(tbx (?:\w+)\b.*)$", text, re.M)
        spans = re.findall(r"`(tbx [^`\n|]+)`", text)
        found += [span for span in spans if re.search(r"model\.(onnx|tbx)|examples/|^tbx (ops|doctor)\b", span)]
    if TBX.exists():
        for command in COMMANDS:
            usage = subprocess.run([TBX, command, "--help"], capture_output=True, text=True, timeout=60).stdout
            found += [line.strip() for line in usage.split("Examples:")[1].splitlines() if line.startswith("  tbx ")]
    commands = [re.split(r"\s+#|\s{2,}", line)[0].strip() for line in found]
    return list(dict.fromkeys(c for c in commands if c.split()[1] in COMMANDS and not re.search(r"[…\[]|\.\.\.", c)))


def the_model(path: Path, scale: float = 2.0) -> Path:
    """A model with the inputs and dimensions that the pages speak of."""
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, ["batch", "seq"]), info("image", TensorProto.FLOAT, ["batch", 1, 8, 8]),
              info("ids", TensorProto.INT64, ["texts", "length"]), info("mask", TensorProto.INT64, ["texts", "length"])]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["scaled"], "scale"), helper.make_node("Exp", ["scaled"], ["positive"], "exp"),
             helper.make_node("GlobalAveragePool", ["image"], ["pooled"], "pool"),
             helper.make_node("Reshape", ["pooled", "column"], ["grey"], "column"),
             helper.make_node("Mul", ["ids", "mask"], ["masked"], "mask"),
             helper.make_node("Cast", ["masked"], ["numbers"], "cast", to=TensorProto.FLOAT),
             helper.make_node("ReduceSum", ["numbers"], ["total"], "total", keepdims=0),
             helper.make_node("Add", ["positive", "grey"], ["sum"], "add"), helper.make_node("Add", ["sum", "total"], ["y"], "last")]
    weights = [numpy_helper.from_array(np.array(scale, np.float32), "scale"), numpy_helper.from_array(np.array([-1, 1]), "column")]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, ["batch", "seq"])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def expanding_model(path: Path) -> Path:
    """y = x, expanded to an input `shape`."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Expand", ["x", "shape"], ["y"])], "g",
                              [info("x", TensorProto.FLOAT, ["n", 1]), info("shape", TensorProto.INT64, [2])],
                              [info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    python = os.pathsep.join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    return os.environ | {"PYTHONPATH": python, "TBX_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")), "TBX_FAKE_CUDA": "1",
                         "PATH": f"{TBX.parent}:{os.environ['PATH']}"}


def call(*command: object, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """Where the command lines find their files."""
    folder = tmp_path_factory.mktemp("pages")
    the_model(folder / "model.onnx")
    the_model(folder / "other.onnx")
    the_model(folder / "changed.onnx", scale=3.0)
    shutil.copy(next((ROOT / "examples/digits/images").glob("*.png")), folder / "cat.png")
    (folder / "examples").symlink_to(ROOT / "examples")
    x = np.ones((1, 1), np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "data.npz", input_ids=np.arange(5)[None])
    np.save(folder / "mask.npy", np.ones((1, 5), np.int64))
    (folder / "test_data_set_0").mkdir()
    (folder / "test_data_set_0/input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    done = call("bash", "-euc", "tbx compile model.onnx -o cuda.tbx --device cuda && tbx compile model.onnx -o model.tbx && "
                "tbx run model.onnx --save out.npz && tbx optimize model.onnx small.onnx", cwd=folder, environment=environment)
    assert done.returncode == 0, done.stderr
    return folder


def shortened(command: str) -> str:
    """The same with less patience, for the GPU that is emulated."""
    command = re.sub(r":sm_\d+(,sm_\d+)*", "", command)  # which has no such architecture
    command = re.sub(r"--duration \S+", "--duration 0", re.sub(r"--repeat \S+", "--repeat 2", command)).replace(" N", " 2")
    return command if not command.startswith("tbx bench") or "--repeat" in command or "--duration" in command else command + " --repeat 2"


@pytest.mark.parametrize("command", shown_commands())
def test_command(command: str, folder: Path, environment: dict[str, str], tmp_path: Path) -> None:
    if "libtwice.so" in command:
        pytest.skip("run with the library of its page, below")
    shutil.copytree(folder, tmp_path / "pages", symlinks=True)
    if "shape.npy" in command:
        expanding_model(tmp_path / "pages/model.onnx")
        np.save(tmp_path / "pages/shape.npy", np.array([2, 3]))
    if re.match(r"tbx \w+ model.tbx --device cuda", command):
        (tmp_path / "pages/cuda.tbx").rename(tmp_path / "pages/model.tbx")
    done = call("bash", "-euc", shortened(command), cwd=tmp_path / "pages", environment=environment)
    assert done.returncode == ("changed.onnx" in command), done.stdout + done.stderr
    if "--json" not in command:
        assert done.stdout or "--output" in command


def test_commands_are_found() -> None:
    commands = shown_commands()
    assert "tbx compile model.onnx -o m.tbx" in commands and "tbx bench model.onnx --threads 1 --clients 8" in commands
    assert len(commands) > 40


# --- lines that build and test


@pytest.mark.parametrize("block", [b for b in blocks("sh") if "tbx " not in b.text.split("\n")[0].split("./")[0]], ids=lambda b: b.name)
def test_what_such_lines_name_is_there(block: Block) -> None:
    dev = subprocess.run([ROOT / "dev", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    cmake = "\n".join(path.read_text() for path in (ROOT / "CMakePresets.json", ROOT / "build/release/build.ninja"))
    cmake += "".join(f" tbx_fuzz tbx_fuzz_{path.name.removesuffix('_fuzz.cpp')}" for path in (ROOT / "tests/fuzz").glob("*_fuzz.cpp"))
    text = re.sub(r"\s#.*", "", block.text.replace("\\\n", " "))
    assert re.search(r"\./dev|build/", text)
    for command in re.findall(r"\./dev (\w+)", text):
        assert re.search(rf"^  {command}\b", dev, re.M), command
    for words in re.findall(r"\./dev build ([\w -]+)", text):
        for word in words.split():
            assert re.search(rf"\b{word}\b", cmake), word
    for program in re.findall(r"build/[\w-]+/bin/(\w+)", text):
        assert re.search(rf"\b{program}\b", cmake), program
    for path, rest in re.findall(r"(?:^|\s)((?:tests|bench|tools)/[\w/]+\.py)(.*)", text):
        source = (ROOT / path).read_text()
        for option in re.findall(r"\s(--[a-z][a-z-]*)", rest.split("&&")[0]):
            assert f'"{option}"' in source, f"{path} {option}"


# --- Python

# What stands before a block of this page: the models and arrays that it speaks of.
MODEL = """
import numpy as np, tensorbox, torch, cache_model
x = np.ones((2, 3), np.float32)
"""
BEFORE = {
    "README.md": "",
    "decoding.md": MODEL + """
cache_model.save("decoder.onnx")
k0, v0 = np.zeros((1, 2, 5, 4), np.float32), np.ones((1, 2, 5, 4), np.float32)
prompt = [(np.array([[n]]), np.ones((1, n + 1), np.int64)) for n in range(5, 8)]
""",
    "gpu.md": MODEL + """
session = tensorbox.Session(cache_model.double(), device="cuda")
x = tensorbox.to_device(x, "cuda")
""",
    "packages.md": MODEL + """
open("model.onnx", "wb").write(cache_model.double())
if "shape" in BLOCK:
    session = tensorbox.Session(cache_model.expanding(), compile=False)
    x, shape = np.ones((1, 3), np.float32), np.array([2, 3])
elif "input" in BLOCK:
    open("model.onnx", "wb").write(cache_model.double("input"))
""",
    "security.md": MODEL + """
open("model.onnx", "wb").write(cache_model.double())
session, inputs = tensorbox.Session("model.onnx"), {"x": x}
""",
}
HELPERS = '''
import onnx
from onnx import parser


def double(name="x"):
    return parser.parse_model(f\'\'\'<ir_version: 9, opset_import: ["" : 18]> g (float[n, m] {name}) => (float[n, m] y)
        {{ y = Add({name}, {name}) }}\'\'\').SerializeToString()


def expanding():
    return parser.parse_model(\'\'\'<ir_version: 9, opset_import: ["" : 18]> g (float[n, 3] x, int64[2] shape) => (float y)
        { y = Expand(x, shape) }\'\'\').SerializeToString()


def save(path):
    """A decoder of one layer: its logits are sums over the caches and the new token."""
    text = \'\'\'<ir_version: 9, opset_import: ["" : 18]>
        g (int64[1, n] input_ids, int64[1, total] attention_mask, float[1, 2, past, 4] past_key,
           float[1, 2, past, 4] past_value) =>
          (float[1, 2, 4] logits, float[1, 2, total, 4] present_key, float[1, 2, total, 4] present_value)
        {
            ids = Cast<to = 1>(input_ids)
            shape = Constant<value_ints = [1, 1, -1, 1]>()
            column = Reshape(ids, shape)
            one = Constant<value = float[1, 2, 1, 4] {1, 1, 1, 1, 1, 1, 1, 1}>()
            new = Mul(column, one)
            present_key = Concat<axis = 2>(past_key, new)
            present_value = Concat<axis = 2>(past_value, new)
            both = Add(present_key, present_value)
            axis = Constant<value_ints = [2]>()
            sums = ReduceSum<keepdims = 0>(both, axis)
            mask = Cast<to = 1>(attention_mask)
            valid = ReduceSum<keepdims = 0>(mask)
            logits = Div(sums, valid)
        }\'\'\'
    model = parser.parse_model(text)
    for short, name in (("past_key", "past_key_values.0.key"), ("past_value", "past_key_values.0.value"),
                        ("present_key", "present.0.key"), ("present_value", "present.0.value")):
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [name if n == short else n for n in names]
        for value in (*model.graph.input, *model.graph.output):
            value.name = name if value.name == short else value.name
    onnx.save(model, path)
'''
# PyTorch's two functions that the pages call, on tensors of ours.
TORCH = """
class Tensor:
    pass


class cuda:
    class current_stream:
        cuda_stream = 0


def from_dlpack(tensor):
    return tensor
"""


@pytest.mark.parametrize("block", blocks("python"), ids=lambda b: b.name)
def test_python(block: Block, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "cache_model.py").write_text(HELPERS)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "block.py").write_text(BEFORE[block.page].replace("BLOCK", repr(block.text)) + block.text)
    done = call(sys.executable, "block.py", cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr


# --- C and C++

CPP = """#include <tensorbox/tensorbox.h>
#include <atomic>
#include <vector>
void block(tbx::CompileOptions& options, tbx::Session& session, const tbx::Session::Inputs& inputs) {
{
"""
C = """#include <tensorbox/c.h>
#include <stddef.h>
void block(const void* bytes, size_t size) {
  tbx_error* error = NULL;
  {
"""


def inside(block: Block) -> str:
    if "main()" in block.text or "#include" in block.text:
        return block.text
    return (C if block.language == "c" else CPP) + block.text + "}\n}\n"


@pytest.mark.parametrize("block", [b for b in blocks("c", "cpp") if b.page != "values.md"], ids=lambda b: b.name)
def test_c_and_cpp_compile(block: Block, environment: dict[str, str], tmp_path: Path) -> None:
    """values.md shows code inside of the runtime."""
    source = tmp_path / f"block.{block.language}"
    source.write_text(inside(block))
    compiler = ["cc", "-std=c11"] if block.language == "c" else ["c++", "-std=c++20"]
    done = call(*compiler, "-fsyntax-only", "-I", ROOT / "include", source, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr


def test_the_operator_in_five_minutes(environment: dict[str, str], tmp_path: Path) -> None:
    page = (ROOT / "docs/custom_operators.md").read_text()
    code = next(b for b in blocks("c") if b.page == "custom_operators.md")
    (tmp_path / "twice.c").write_text(code.text)
    (tmp_path / "include").symlink_to(ROOT / "include")
    model = helper.make_model(
        helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="my.domain", factor=2.5)], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])]),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    build = re.search(r"`(cc -shared .*?)`", page)[1]
    run = next(c for c in shown_commands() if "libtwice.so" in c)
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.float32))
    done = call("bash", "-euc", f"{build}\n{run} --input x=x.npy --save y.npy".replace("libtwice", "./libtwice"), cwd=tmp_path,
                environment=environment)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [0, 2.5, 5])
    rows = re.findall(r"^ *\| (Python|as ONNX Runtime) \| (.*) \|$", page, re.M)
    lines = "\n".join(line for _, cell in rows for line in re.findall(r"`(.*?)`", cell))
    assert len(rows) == 2
    done = call(sys.executable, "-c", "import tensorbox\n" + lines, cwd=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr
