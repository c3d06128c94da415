"""`./dev wheel` gives a wheel that runs in an empty environment, and beside other engines in one process."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from environment import ROOT, Environment, readme_lines, run

# What manylinux takes for granted on every system.
SYSTEM = re.compile(r"ld-linux-x86-64|lib(c|m|dl|rt|util|pthread|gcc_s|stdc\+\+|z|expat)[.-]")


@pytest.fixture(scope="module")
def wheel():
    return pathlib.Path(run(ROOT / "dev", "wheel").strip())


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("environment") / "venv", wheel)


def test_the_readme_runs(environment):
    assert environment.python(readme_lines()).startswith("accuracy 0.9")


def test_the_readme_runs_without_a_compiler(environment, tmp_path):
    said = environment.python(readme_lines(), PATH="", TBX_CACHE_DIR=str(tmp_path))
    assert said.startswith("accuracy 0.9")


@pytest.mark.skipif(not os.environ.get("TBX_NEWER_PYTHONS"), reason="TBX_NEWER_PYTHONS names no Pythons from 3.12 on")
def test_newer_pythons_share_a_wheel(tmp_path):
    """TBX_NEWER_PYTHONS="<python3.12> <python3.13>": the wheel of the first runs in all. Loads numpy; builds for minutes."""
    pythons = os.environ["TBX_NEWER_PYTHONS"].split()
    wheel = pathlib.Path(run(ROOT / "dev", "wheel", pythons[0]).strip())
    assert "-cp312-abi3-manylinux_2_" in wheel.name
    for number, python in enumerate(pythons):
        run(python, "-m", "venv", tmp_path / str(number))
        new = tmp_path / str(number) / "bin/python"
        run(new, "-m", "pip", "install", wheel)
        said = run(new, "-c", readme_lines(), cwd=ROOT, env={"PATH": "", "TBX_CACHE_DIR": str(tmp_path / "kernels")})
        assert said.startswith("accuracy 0.9"), python


def test_nothing_of_the_system_is_loaded(environment):
    loaded = environment.python("""
import tensorbox, numpy
before = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
tensorbox.Session("examples/digits/digits.onnx").run({"image": numpy.zeros((1, 1, 8, 8), numpy.float32)})
print("\\n".join(before | {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}))""").split()
    ours = [p for p in loaded if p.startswith(str(environment.packages))]
    others = [p for p in loaded if p not in ours and "numpy" not in p and "/kernels/" not in p and "lib-dynload" not in p]
    python = run(environment.bin / "python", "-c", """
import bz2, ctypes, hashlib, lzma, sqlite3, ssl
print("\\n".join(line.split()[-1] for line in open("/proc/self/maps") if ".so" in line))""").split()
    assert {p for p in others if not SYSTEM.match(os.path.basename(p)) and p not in python} == set()
    assert {"libtensorbox.so.0.1", "libdnnl.so.3", "libtbb.so.12"} <= {os.path.basename(p) for p in ours}


def test_the_command(environment):
    assert run(environment.bin / "tbx", "--version", env={}).strip() == re.search(
        r"project\(tensorbox VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    said = run(environment.bin / "tbx", "run", ROOT / "examples/digits/digits.onnx", env=environment.variables)
    assert said.startswith("probabilities")
    failed = subprocess.run([environment.bin / "tbx", "run", "/nowhere.onnx"], capture_output=True, text=True)
    assert failed.returncode == 2 and "/nowhere.onnx" in failed.stderr


@pytest.mark.parametrize("format", ["png", "jpeg", "tiff", "webp", "jpeg2000"])
def test_image_libraries_are_inside(environment, tmp_path, format):
    pixels = np.random.default_rng(7).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    lossless = {"webp": {"lossless": True}, "jpeg2000": {"irreversible": False}}
    Image.fromarray(pixels).save(tmp_path / "image", format, **lossless.get(format, {}))
    wanted = np.asarray(Image.open(tmp_path / "image"))
    node = helper.make_node("ImageDecoder", ["bytes"], ["image"])
    graph = helper.make_graph([node], "decode", [helper.make_tensor_value_info("bytes", TensorProto.UINT8, [None])],
                              [helper.make_tensor_value_info("image", TensorProto.UINT8, [None, None, None])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    environment.python(f"""
import numpy, tensorbox
data = numpy.fromfile("{tmp_path}/image", numpy.uint8)
numpy.save("{tmp_path}/got.npy", tensorbox.Session("{tmp_path}/m.onnx").run({{"bytes": data}})["image"])""")
    assert np.abs(np.load(tmp_path / "got.npy").astype(int) - wanted).max() <= (1 if format == "jpeg" else 0)


@pytest.mark.parametrize("order", [["onnxruntime", "onnx", "tensorbox"], ["tensorbox", "onnx", "onnxruntime"]])
def test_other_engines_in_the_process(environment, order):
    """onnxruntime and onnx bring protobufs of their own."""
    folders = {str(pathlib.Path(pytest.importorskip(name).__file__).parents[1]) for name in ("onnx", "onnxruntime")}
    said = environment.python(f"""
import sys
sys.path += {sorted(folders)}
import {", ".join(order)}
import numpy
x = {{"image": numpy.ones((1, 1, 8, 8), numpy.float32)}}
model = "examples/digits/digits.onnx"
onnx.checker.check_model(onnx.load(model), full_check=True)
a = tensorbox.Session(model).run(x)["probabilities"]
b = onnxruntime.InferenceSession(model).run(None, x)[0]
print(tensorbox.__file__, abs(a - b).max() < 1e-5)""").split()
    assert said == [str(environment.packages / "tensorbox/__init__.py"), "True"]


def test_symbols_of_others_are_not_taken(environment, tmp_path):
    """A library that gives every process-wide name of protobuf, re2, fmt and the image libraries, wrongly."""
    names = set()
    for library in ("libprotobuf.so", "libre2.so", "libfmt.so", "libtiff.so", "libpng16.so"):
        path = next(pathlib.Path("/usr/lib/x86_64-linux-gnu").glob(library))
        names |= {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", path).splitlines()
                  if line.split()[1] in "TWVBDu"}
    names = {n for n in names if re.fullmatch(r"\w+", n) and not re.match(r"_ZN?K?St|_ZT[ISV]St|_init$|_fini$|_edata|_end|__bss", n)}
    assert len(names) > 1000
    (tmp_path / "wrong.c").write_text("void abort(void);\n" + "".join(f"void {n}(void) {{ abort(); }}\n" for n in sorted(names)))
    run(os.environ.get("CC", "cc"), "-w", "-shared", "-fPIC", "-o", tmp_path / "wrong.so", tmp_path / "wrong.c")
    said = environment.python(f"""
import ctypes
ctypes.CDLL("{tmp_path}/wrong.so", ctypes.RTLD_GLOBAL)
{readme_lines()}""")
    assert said.startswith("accuracy 0.9")


def test_licences_of_all_that_is_inside(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        texts = {pathlib.Path(n).name: archive.read(n).decode() for n in names if "/licenses/" in n}
        listed = re.findall(r"^License-File: (.*)$", archive.read(next(n for n in names if n.endswith("/METADATA"))).decode(), re.M)
    libraries = {re.match(r"lib([A-Za-z]+)", pathlib.Path(n).name)[1].lower() for n in names if n.startswith("tensorbox.libs/")}
    libraries -= {"jbig"}  # ours: names without JBIG-KIT behind them
    unlicensed = {library for library in libraries if not any(library in t.lower() for t in texts)}
    assert unlicensed == set()
    assert {"LICENSE", "onnx.txt", "nanobind.txt", "onednn_cpu_tbb.txt", "tbb.txt", "ducc0-fft.txt"} <= set(texts)
    assert all(texts.values()) and {pathlib.Path(l).name for l in listed} == set(texts)


def test_what_a_wheel_holds(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "manylinux_2_" in wheel.name and "linux_x86_64" not in wheel.name.split("manylinux")[0]
    assert {"tensorbox/py.typed", "tensorbox/_core.pyi", "tensorbox/bin/tbx", "tensorbox/lib/libtensorbox.so.0.1"} <= set(names)
    assert ("-abi3-" in wheel.name) == (sys.version_info >= (3, 12))
