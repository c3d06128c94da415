"""Plans that sessions keep in the cache (docs/kernels.md): a session that starts with one does what one that is compiled does;
whatever a plan depends on is in its key; and what is wrong with the cache is a compilation, said and put right."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from kept_models import F, I, KINDS, WIDE, check_reference, check_sums, convolution, facts, model_of, node, normal, product, report, rng, same, summing, text
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")

C_ABI = (Path(__file__).resolve().parents[1] / "install" / "c_abi.txt").read_text()


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TBX_CACHE_PLANS", raising=False)
    monkeypatch.setenv("TBX_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("kind", KINDS)
def test_as_compiled(kind: str, tmp_path: Path) -> None:
    make, feeds, options = KINDS[kind]
    model = make()
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for source in (str(tmp_path / "model.onnx"), model):
        notes: dict[str, list[str]] = {"compiled": [], "first": [], "kept": []}
        compiled = tensorbox.Session(source, seed=3, keep_plans=False, log=notes["compiled"].append, **options)
        first = tensorbox.Session(source, seed=3, log=notes["first"].append, **options)
        kept = tensorbox.Session(source, seed=3, log=notes["kept"].append, **options)
        assert not compiled.stats.kept_plan and "keep_plans" in compiled.stats.not_kept
        assert first.stats.kept_plan == (source is model) and first.stats.not_kept == ""  # the key is the model's bytes
        assert kept.stats.kept_plan and kept.stats.not_kept == "" and kept.stats.compiled_units == 0
        assert (kept.stats.import_ms, kept.stats.lower_ms, kept.stats.schedule_ms) == (0, 0, 0)
        assert notes["kept"] == notes["compiled"]
        assert facts(kept) == facts(compiled)
        assert report(kept) == report(compiled)
        for feed in feeds:
            found = kept.run(feed)
            same(found, compiled.run(feed))
            check_reference(kind, model, feed, found)
        assert [k["flops"] for k in kept.profile(feeds[0])] == [k["flops"] for k in compiled.profile(feeds[0])]
        assert kept.dump("plan") == compiled.dump("plan")
        kept.save(tmp_path / "kept.tbx")
        compiled.save(tmp_path / "compiled.tbx")
        for feed in feeds:
            same(tensorbox.Session(tmp_path / "kept.tbx").run(feed), tensorbox.Session(tmp_path / "compiled.tbx").run(feed))


def test_random_numbers() -> None:
    model = model_of([node("RandomNormalLike", ["x"], ["r"]), node("Bernoulli", ["p"], ["b"], seed=2.0), node("Add", ["r", "b"], ["y"])],
                     {"x": (F, ["n"]), "p": (F, ["n"])}, {"y": (F, ["n"])})
    feed = {"x": normal(9), "p": np.full(9, 0.5, np.float32)}
    compiled, first = (tensorbox.Session(model, seed=7, keep_plans=k) for k in (False, True))
    kept, other = (tensorbox.Session(model, seed=s) for s in (7, 8))
    assert kept.stats.kept_plan and other.stats.kept_plan  # the seed is of the runs
    runs = [[s.run(feed)["y"].tolist() for _ in range(3)] for s in (compiled, first, kept)]
    assert runs[0] == runs[1] == runs[2] and runs[0][0] != runs[0][1]
    assert other.run(feed)["y"].tolist() != runs[0][0]


def test_state() -> None:
    model, options = summing(), {"state": {"past": "present"}, "state_capacity": 16}
    sessions = [tensorbox.Session(model, **options) for _ in range(2)]
    assert [s.stats.kept_plan for s in sessions] == [False, True]
    check_sums(sessions)
    assert not tensorbox.Session(model, state=options["state"], state_capacity=17).stats.kept_plan


def test_errors_are_those_of_compiled_sessions() -> None:
    gather = model_of([node("Gather", ["x", "i"], ["y"])], {"x": (F, ["n"]), "i": (I, ["k"])}, {"y": (F, ["k"])})
    said = []
    for _ in range(2):
        session = tensorbox.Session(gather, max_memory=1 << 20)
        for feed in ({"x": normal(3), "i": np.array([5])}, {"x": normal(3, 2), "i": np.array([0])}, {"x": normal(3)},
                     {"x": normal(3), "i": np.zeros(1 << 20, np.int64)}):
            with pytest.raises(tensorbox.Error) as e:
                session.run(feed)
            said.append(str(e.value))
    assert session.stats.kept_plan and said[:4] == said[4:]


def test_model_that_cannot_be_compiled_stays_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(tensorbox.Error, match="nowhere"):
            tensorbox.Session(tmp_path / "nowhere.onnx")
        with pytest.raises(tensorbox.ModelError):
            tensorbox.Session(b"\x08\x08\x3a\x00")
        with pytest.raises(tensorbox.ModelError, match="isa"):
            tensorbox.Session(product(), isa="mmx")
    tensorbox.Session(product())
    with pytest.raises(tensorbox.ModelError, match="max_nodes"):
        tensorbox.Session(product(), max_nodes=1)


CHANGES: dict[str, dict[str, Any]] = {
    "threads": {"threads": 1}, "compile": {"compile": False}, "isa": {"isa": "sse"}, "fuse": {"fuse": False}, "fuse_extern": {"fuse_extern": False},
    "passes": {"disable_passes": ["fold_constants"]}, "dims": {"dims": {"n": 3}}, "precision": {"precision": "any"}, "max_memory": {"max_memory": 1 << 30},
    "time_limit": {"time_limit_ms": 100_000}, "max_nodes": {"max_nodes": 1000}, "dynamic": {"all_dims_dynamic": True}, "untrusted": {"untrusted": True},
    "folder": {"external_data_dir": "."}, "private_threads": {"private_threads": True},
}


@pytest.mark.parametrize("change", CHANGES)
def test_options_are_in_the_key(change: str) -> None:
    tensorbox.Session(product(), threads=2)
    assert tensorbox.Session(product(), threads=2).stats.kept_plan
    options = {"threads": 2} | CHANGES[change]
    assert not tensorbox.Session(product(), **options).stats.kept_plan
    assert tensorbox.Session(product(), **options).stats.kept_plan
    x = normal(3, 64)
    np.testing.assert_allclose(tensorbox.Session(product(), **options).run({"x": x})["y"], ReferenceEvaluator(product()).run(None, {"x": x})[0],
                               atol=0.1 if change == "precision" else 1e-5)  # bfloat16 of logits of some 20


@pytest.mark.parametrize("variable", ["TBX_ISA=sse", "TBX_CXXFLAGS=-fno-math-errno", "ONEDNN_DEFAULT_FPMATH_MODE=BF16", "DNNL_VERBOSE=0"])
def test_environment_is_in_the_key(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorbox.Session(product())
    monkeypatch.setenv(*variable.split("="))
    assert not tensorbox.Session(product()).stats.kept_plan
    assert tensorbox.Session(product()).stats.kept_plan


def test_every_byte_of_the_model_is_in_the_key(tmp_path: Path) -> None:
    """The weights, too, that the plan does not have; and the path is not."""
    x = normal(2, 64)
    path = tmp_path / "model.onnx"
    for scale in (1.0, 1.5, 1.0):
        path.write_bytes(product(scale).SerializeToString())
        session = tensorbox.Session(path)
        np.testing.assert_allclose(session.run({"x": x})["y"], ReferenceEvaluator(product(scale)).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert session.stats.kept_plan
    (tmp_path / "other.onnx").write_bytes(path.read_bytes())
    assert tensorbox.Session(tmp_path / "other.onnx").stats.kept_plan
    assert not tensorbox.Session(path.read_bytes() + b"\xa0\x06\x01").stats.kept_plan  # an unknown field behind it


def external(folder: Path, weights: np.ndarray) -> Path:
    """`product` with its weights in a file beside it, both older than the clock of files is coarse."""
    folder.mkdir(exist_ok=True)
    model = product()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "64"), ("length", str(weights.nbytes))):
        tensor.external_data.add(key=key, value=value)
    (folder / "new.bin").write_bytes(bytes(64) + weights.tobytes())
    (folder / "new.bin").replace(folder / "weights.bin")
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for file in folder.iterdir():
        os.utime(file, (1e9, 1e9))
    return folder / "model.onnx"


def test_external_data(tmp_path: Path) -> None:
    """Its contents count, not its time or folder; two folders of one model have a plan each."""
    x = normal(2, 64)

    def check(path: Path, scale: float, kept: bool) -> None:
        session = tensorbox.Session(path)
        assert (session.stats.kept_plan, session.stats.not_kept) == (kept, "")
        np.testing.assert_allclose(session.run({"x": x})["y"], ReferenceEvaluator(product(scale)).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)

    one, two = external(tmp_path / "one", WIDE), external(tmp_path / "two", WIDE * np.float32(2))
    for kept in (False, True):
        check(one, 1, kept)
        check(two, 2, kept)
    check(external(tmp_path / "one", WIDE * np.float32(3)), 3, False)  # of the same size and time
    check(external(tmp_path / "one", WIDE * np.float32(2)), 2, True)
    data = (tmp_path / "two" / "model.onnx").read_bytes()
    assert not tensorbox.Session(data, external_data_dir=tmp_path / "two").stats.kept_plan  # another option
    assert tensorbox.Session(data, external_data_dir=tmp_path / "two").stats.kept_plan
    os.utime(tmp_path / "two" / "weights.bin")
    assert tensorbox.Session(two).stats.kept_plan
    (tmp_path / "two" / "weights.bin").unlink()
    with pytest.raises(tensorbox.ModelError, match=r"weights\.bin"):
        tensorbox.Session(two)


def test_external_data_changed_just_now(tmp_path: Path) -> None:
    path = external(tmp_path / "model", WIDE)
    os.utime(path.parent / "weights.bin", (time.time() + 60, time.time() + 60))
    assert "changed just now" in tensorbox.Session(path).stats.not_kept


LARGE = 20 << 20


def test_a_large_file_changed_just_now(tmp_path: Path) -> None:
    path = external(tmp_path / "model", WIDE)
    with (path.parent / "weights.bin").open("ab") as file:
        file.truncate(LARGE)
    os.utime(path.parent / "weights.bin", (1e9, 1e9))  # that it was told so was just now
    for _ in range(2):
        stats = tensorbox.Session(path).stats
        assert not stats.kept_plan and "changed less than 60 seconds ago" in stats.not_kept


def test_a_large_file_is_known_by_its_facts() -> None:
    """Of files that nobody has changed for a while there are the libraries that tensorbox has loaded."""
    tensorbox.Session(product(1).SerializeToString())
    loaded = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if "/libdnnl" in line}
    file = next(iter(loaded)).resolve()
    assert file.stat().st_size > LARGE
    at, shape = 1 << 20, (64, 64)
    weights = np.fromfile(file, np.uint8, 64 * 64, offset=at).reshape(shape)
    graph = onnx.parser.parse_graph("g (uint8[n, 64] x) => (uint8[n, 64] y) { a = BitwiseXor(x, w) y = BitwiseNot(a) }")
    tensor = graph.initializer.add(name="w", dims=shape, data_type=onnx.TensorProto.UINT8, data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", file.name), ("offset", str(at)), ("length", str(64 * 64))):
        tensor.external_data.add(key=key, value=value)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    x = np.arange(64 * 64, dtype=np.uint8).reshape(shape)
    for kept in (False, True):
        session = tensorbox.Session(model, external_data_dir=file.parent)
        assert (session.stats.kept_plan, session.stats.not_kept) == (kept, "")
        np.testing.assert_array_equal(session.run({"x": x})["y"], ~(x ^ weights))


def plan_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.plan"))


def test_weights_are_not_stored_twice(tmp_path: Path) -> None:
    weights = {f"w{i}": normal(256, 256) for i in range(4)}
    nodes = [node("MatMul", ["x" if i == 0 else f"y{i - 1}", f"w{i}"], [f"y{i}"]) for i in range(4)]
    model = model_of(nodes, {"x": (F, ["n", 256])}, {"y3": (F, ["n", 256])}, **weights)
    tensorbox.Session(model)
    (plan,) = plan_files(tmp_path)
    assert plan.stat().st_size < 64 << 10 and plan.stat().st_mode & 0o777 == 0o600
    kept, x = tensorbox.Session(model), normal(3, 256)
    assert kept.stats.kept_plan
    want = x.astype(np.float64)
    for w in weights.values():
        want = want @ w.astype(np.float64)
    assert np.abs(kept.run({"x": x})["y3"] - want).max() <= 2e-6 * np.abs(want).max()


def test_plans_with_many_constants_of_their_own_are_not_kept(tmp_path: Path) -> None:
    model = model_of([node("Exp", ["w"], ["e"]), node("Mul", ["x", "e"], ["y"])], {"x": (F, [3000, 3000])}, {"y": (F, [3000, 3000])},
                     w=np.zeros((3000, 3000), np.float32))
    assert "34 MiB" in tensorbox.Session(model).stats.not_kept
    assert plan_files(tmp_path) == []


def test_many_constants_beside_many_in_the_model() -> None:
    """34 MiB that compiling makes, and 137 that stay in the model."""
    w, large = normal(3000, 3000), normal(3000, 12000)
    model = model_of([node("Exp", ["w"], ["e"]), node("Mul", ["x", "e"], ["m"]), node("ReduceSum", ["m", "axes"], ["s"]),
                      node("MatMul", ["s", "large"], ["y"])],
                     {"x": (F, [3000, 3000])}, {"y": (F, [1, 12000])}, w=w, large=large, axes=np.array([0]))
    sessions = [tensorbox.Session(model) for _ in range(2)]
    assert [s.stats.kept_plan for s in sessions] == [False, True], sessions[0].stats.not_kept
    x = normal(3000, 3000)
    found = [s.run({"x": x})["y"] for s in sessions]
    np.testing.assert_array_equal(*found)
    want = (x.astype(np.float64) * np.exp(w.astype(np.float64))).sum(0, keepdims=True) @ large.astype(np.float64)
    assert np.abs(found[0] - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("options", [{"reference": True}, {"every_value": True}, {"keep_plans": False}])
def test_not_kept(options: dict[str, bool], tmp_path: Path) -> None:
    tensorbox.Session(product())
    session = tensorbox.Session(product(), **options)
    assert not session.stats.kept_plan and next(iter(options)).split("_")[0] in session.stats.not_kept
    assert len(plan_files(tmp_path)) == 1


def test_not_kept_where_a_variable_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_CACHE_PLANS", "0")
    assert "TBX_CACHE_PLANS" in tensorbox.Session(product()).stats.not_kept and plan_files(tmp_path) == []


def test_models_that_wait_for_shapes_are_not_kept(tmp_path: Path) -> None:
    model = model_of([node("ReduceSum", ["x"], ["y"]), node("Exp", ["x"], ["e"])], {"x": (F, None)}, {"y": (F, None), "e": (F, None)})
    for _ in range(2):
        session, x = tensorbox.Session(model), normal(2, 3)
        np.testing.assert_allclose(session.run({"x": x})["y"], x.astype(np.float64).sum(keepdims=True), rtol=1e-5, atol=1e-6)
        assert not session.stats.kept_plan and session.stats.not_kept != ""
    assert plan_files(tmp_path) == []


def check_product(session: tensorbox.Session) -> None:
    x = normal(2, 64)
    np.testing.assert_allclose(session.run({"x": x})["y"], ReferenceEvaluator(product()).run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", ["cut", "empty", "longer", "renamed", "flipped"])
def test_damaged_plans_are_replaced(what: str, tmp_path: Path) -> None:
    tensorbox.Session(product())
    (plan,) = plan_files(tmp_path)
    whole = plan.read_bytes()
    bits = [(int(at), 1 << int(bit)) for at, bit in zip(rng.integers(0, len(whole), 25), rng.integers(0, 8, 25), strict=True)] if what == "flipped" else [(0, 0)]
    for at, bit in bits:
        changed = {"cut": whole[:-9], "empty": b"", "longer": whole + b"0",
                   "renamed": whole, "flipped": whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1:]}[what]
        if what == "renamed":  # another model's plan under this name
            tensorbox.Session(product(2.0))
            changed = next(f for f in plan_files(tmp_path) if f != plan).read_bytes()
        plan.write_bytes(changed)
        notes: list[str] = []
        session = tensorbox.Session(product(), log=notes.append)
        assert not session.stats.kept_plan and session.stats.not_kept == ""
        assert len(notes) == 1 and "damaged" in notes[0] and plan.name in notes[0] and "anew" in notes[0]
        check_product(session)
        assert tensorbox.Session(product()).stats.kept_plan


def test_other_things_under_the_name_of_a_plan(tmp_path: Path) -> None:
    tensorbox.Session(product())
    (plan,) = plan_files(tmp_path)
    plan.unlink()
    for put in (lambda: plan.mkdir(), lambda: plan.symlink_to("/etc/hostname"), lambda: os.mkfifo(plan)):
        put()
        check_product(tensorbox.Session(product()))
        assert tensorbox.Session(product()).stats.kept_plan
        plan.unlink()


def test_plan_without_its_kernels(tmp_path: Path) -> None:
    tensorbox.Session(product())
    for file in (tmp_path / "cache").glob("*.so"):
        file.unlink()
    session = tensorbox.Session(product())
    assert not session.stats.kept_plan and session.stats.compiled_units > 0
    check_product(session)
    assert tensorbox.Session(product()).stats.kept_plan


def test_another_compiler_makes_its_own_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorbox.Session(product())
    (tmp_path / "other").write_text('#!/bin/sh\nexec c++ "$@"\n')
    (tmp_path / "other").chmod(0o755)
    with monkeypatch.context() as m:
        m.setenv("TBX_CXX", str(tmp_path / "other"))
        assert not tensorbox.Session(product()).stats.kept_plan
        assert tensorbox.Session(product()).stats.kept_plan
    with monkeypatch.context() as m:
        m.setenv("TBX_CXX", "/nowhere")  # any compiler's objects serve
        session = tensorbox.Session(product())
        assert session.stats.kept_plan and session.stats.evaluated_kernels == 0
        check_product(session)
        for file in (tmp_path / "cache").glob("*.so"):
            file.unlink()
        session = tensorbox.Session(product())
        assert session.stats.evaluated_kernels > 0 and "compiler" in session.stats.not_kept
        check_product(session)


def test_tiered(tmp_path: Path) -> None:
    first = tensorbox.Session(product(), tiered=True)
    assert "tiered" in first.stats.not_kept
    check_product(first)
    first = None
    tensorbox.Session(product())
    kept = tensorbox.Session(product(), tiered=True)
    assert kept.stats.kept_plan and kept.stats.evaluated_kernels == 0
    check_product(kept)


def test_plans_count_for_the_limit_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorbox.Session(product())
    (plan,) = plan_files(tmp_path)
    for file in (tmp_path / "cache").iterdir():
        os.utime(file, (1e9, 1e9))
    assert tensorbox.Session(product()).stats.kept_plan and plan.stat().st_mtime > 1e9 + 1  # used
    os.utime(plan, (1e9, 1e9))
    monkeypatch.setenv("TBX_CACHE_LIMIT", "1kb")
    tensorbox.Session(convolution())
    assert not plan.exists() and len(plan_files(tmp_path)) == 1
    check_product(tensorbox.Session(product()))


def test_option_of_c(tmp_path: Path) -> None:
    library = Path(__file__).resolve().parents[2] / "build/release/lib/libtensorbox.so"
    if not library.exists():
        pytest.skip("the shared library is not built")
    c = ctypes.CDLL(str(library))
    c.tbx_compile_bytes.restype = ctypes.c_void_p
    model = product().SerializeToString()
    layout = {name: int(at) for name, at in re.findall(r"^  (\w+) at (\d+)", C_ABI.split("struct tbx_options ")[1].split("\nstruct")[0], re.M)}
    for no, count in ((1, 0), (0, 1)):
        options = bytearray(int(re.search(r"struct tbx_options of (\d+)", C_ABI)[1]))
        struct.pack_into("q", options, layout["size"], len(options))
        struct.pack_into("i", options, layout["no_kept_plans"], no)
        session = c.tbx_compile_bytes(model, ctypes.c_size_t(len(model)), (ctypes.c_char * len(options)).from_buffer(options), None)
        assert session
        c.tbx_session_free(ctypes.c_void_p(session))
        assert len(plan_files(tmp_path)) == count


RUN = """
import sys, numpy, tensorbox
session = tensorbox.Session(sys.argv[1])
x = numpy.ones((2, 64), numpy.float32)
print(session.stats.kept_plan, float(session.run({"x": x})["y"][0, 0]))
"""


def test_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(product().SerializeToString())
    want = ReferenceEvaluator(product()).run(None, {"x": np.ones((2, 64), np.float32)})[0][0, 0]
    for kept in (False, True):
        started = [subprocess.Popen([sys.executable, "-c", RUN, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(4)]
        for process in started:
            said, found = process.communicate()[0].split()
            assert process.returncode == 0 and (said == "True" or not kept)
            np.testing.assert_allclose(float(found), want, rtol=1e-5)
    assert len(plan_files(tmp_path)) == 1 and not list((tmp_path / "cache").glob(".tmp-*"))


def test_replaced_while_used(tmp_path: Path) -> None:
    """Constants of the plan live in its session: the file may go, or be another one."""
    tensorbox.Session(convolution())
    kept, compiled = tensorbox.Session(convolution()), tensorbox.Session(convolution(), keep_plans=False)
    (plan,) = plan_files(tmp_path)
    plan.write_bytes(b"another")
    x = normal(1, 3, 9, 7)
    same(kept.run({"x": x}), compiled.run({"x": x}))


READ_ONLY = """
import os, sys, tensorbox
model = open(sys.argv[1], "rb").read()
os.setuid(65534)
for _ in range(2):
    session = tensorbox.Session(model, compile=False)
    print(session.stats.kept_plan, session.stats.not_kept)
"""


def test_read_only_cache(tmp_path: Path) -> None:
    """Of a user who is not root, as whom root runs this: one plan is there, another cannot be kept."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    with tempfile.TemporaryDirectory() as folder:
        cache, path = Path(folder) / "cache", tmp_path / "model.onnx"
        environment = os.environ | {"TBX_CACHE_DIR": str(cache)}
        os.chmod(folder, 0o755)

        def said(scale: float) -> list[str]:
            path.write_bytes(product(scale).SerializeToString())
            done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True, env=environment)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        cache.mkdir(mode=0o700)
        os.chown(cache, 65534, 65534)
        assert said(1) == ["False ", "True "]
        cache.chmod(0o500)
        assert said(1) == ["True ", "True "]
        assert [line.startswith("False cannot write to the kernel cache") for line in said(2)] == [True, True]
