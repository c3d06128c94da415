"""Sessions that answer by the evaluator while the C++ compiler works: what they answer, when they change over, and how
they end. The compiler waits at a gate, so that no test depends on time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

rng = np.random.default_rng(5)
WEIGHTS = rng.standard_normal((8, 5)).astype(np.float32)
F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list]], outputs: dict[str, tuple[int, list]],
             **weights: np.ndarray) -> onnx.ModelProto:
    infos = [[helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in of.items()] for of in (inputs, outputs)]
    graph = helper.make_graph(nodes, "tiered", *infos, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def softmax_of_product() -> onnx.ModelProto:
    """y = softmax(tanh(x) · w): a kernel, a library's product, a kernel."""
    node = helper.make_node
    return model_of([node("Tanh", ["x"], ["t"]), node("MatMul", ["t", "w"], ["p"]), node("Softmax", ["p"], ["y"])],
                    {"x": (F, ["n", 8])}, {"y": (F, ["n", 5])}, w=WEIGHTS)


def expected(x: np.ndarray) -> np.ndarray:
    p = np.tanh(x.astype(np.float64)) @ WEIGHTS.astype(np.float64)
    e = np.exp(p - p.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check(session: tensorbox.Session, n: int = 3) -> None:
    x = rng.standard_normal((n, 8)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], expected(x), rtol=1e-5, atol=1e-6)


class Gate:
    """A compiler that writes its process number into `begun` and waits for the file `open` before it works."""

    def __init__(self, folder: Path, then: str) -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.compiler = folder / "c++"
        self.compiler.write_text('#!/bin/sh\ncase "$*" in *fsyntax-only*) exit 0;; esac\n'
                                 f'echo $$ > "{folder}/part.$$" && mv "{folder}/part.$$" "{folder}/begun"\n'
                                 f'while [ ! -e "{folder}/open" ]; do sleep 0.02; done\n{then}\n')
        self.compiler.chmod(0o755)

    def session(self, model: object = None, **options: object) -> tensorbox.Session:
        return tensorbox.Session(model or softmax_of_product(), tiered=True, cache_dir=str(self.cache), **options)

    def open(self) -> None:
        (self.folder / "open").touch()

    def begun(self) -> int:
        return int(wait_for(lambda: (self.folder / "begun").exists() and (self.folder / "begun").read_text()))

    def left(self) -> list[Path]:
        return list(self.cache.glob(".tmp-*"))


def wait_for(what: Callable[[], object]) -> object:
    for _ in range(6000):
        if found := what():
            return found
        time.sleep(0.01)
    pytest.fail("it did not come")


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate(tmp_path, 'exec c++ "$@"')
    monkeypatch.setenv("TBX_CXX", str(made.compiler))
    return made


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate(tmp_path, "echo 'error: no such luck' >&2; exit 1")
    monkeypatch.setenv("TBX_CXX", str(made.compiler))
    return made


def kinds(session: tensorbox.Session) -> set[str]:
    return {k["kind"] for k in session.explain()}


def decisions(session: tensorbox.Session) -> str:
    return "\n".join(d for k in session.explain() for d in k["decisions"])


def run_until(session: tensorbox.Session, there: Callable[[], object], **how: int) -> None:
    def ran() -> object:
        check(session, **how)
        return there()
    wait_for(ran)


def test_the_first_runs_do_not_wait(gate: Gate) -> None:
    session = gate.session()
    gate.begun()
    for n in (1, 3, 0, 17):
        check(session, n)
    assert kinds(session) == {"evaluated", "extern"} and "tier: evaluated until" in decisions(session)
    assert session.stats.evaluated_kernels == session.stats.generated_kernels > 0
    gate.open()
    run_until(session, lambda: session.stats.evaluated_kernels == 0)
    assert kinds(session) == {"generated", "extern"} and "tier:" not in decisions(session)
    assert session.stats.compiled_units > 0
    for n in (1, 3, 0, 17):
        check(session, n)
    assert not gate.left()


def test_a_filled_cache_has_no_first_tier(gate: Gate) -> None:
    gate.open()
    tensorbox.Session(softmax_of_product(), cache_dir=str(gate.cache))
    session = gate.session()
    assert kinds(session) == {"generated", "extern"} and session.stats.evaluated_kernels == 0
    check(session)


def test_a_compiler_that_fails_is_reported_once(broken: Gate) -> None:
    notes: list[str] = []
    session = broken.session(log=notes.append)
    check(session)
    assert not notes
    broken.open()
    run_until(session, lambda: notes)
    for _ in range(3):
        check(session)
    assert len(notes) == 1 and "stay in the evaluator" in notes[0] and "no such luck" in notes[0]
    assert "tier:" not in decisions(session) and "no such luck" in decisions(session)
    assert session.stats.evaluated_kernels > 0


def test_callers_and_shapes(gate: Gate) -> None:
    """A program per shape, each with a compilation of its own, and callers of all of them."""
    node = helper.make_node
    model = model_of([node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["zero"]), node("NonZero", ["zero"], ["i"]),
                      node("Sin", ["x"], ["t"]), node("Reshape", ["t", "to"], ["r"]), node("Exp", ["r"], ["y"])],
                     {"x": (F, ["n", "m"]), "to": (I, [2])}, {"y": (F, ["a", "b"]), "i": (I, [2, "k"])})
    session = gate.session(model)
    errors: list[Exception] = []
    rounds, stop = [0] * 6, threading.Event()

    def call(who: int) -> None:
        try:
            while not stop.is_set():
                for n, m in ((1, 1), (2, 3), (who + 1, 5)):
                    x = np.random.default_rng(who).standard_normal((n, m)).astype(np.float32)
                    y = session.run({"x": x, "to": np.array([m, n])})["y"]
                    np.testing.assert_allclose(y, np.exp(np.sin(x)).reshape(m, n), rtol=1e-5)
                rounds[who] += 1
        except Exception as e:  # noqa: BLE001
            errors.append(e)

    callers = [threading.Thread(target=call, args=(who,)) for who in range(6)]
    for caller in callers:
        caller.start()
    gate.begun()
    wait_for(lambda: errors or min(rounds) >= 2)
    assert errors or session.stats.evaluated_kernels > 0
    gate.open()
    wait_for(lambda: errors or session.stats.evaluated_kernels == 0)
    stop.set()
    for caller in callers:
        caller.join()
    assert not errors, errors[0]


def test_parts_of_a_model(gate: Gate) -> None:
    """Control flow that a run decides: bodies are programs, too."""
    node = helper.make_node
    body = helper.make_graph([node("Add", ["h", "h"], ["d"]), node("Cos", ["d"], ["h2"]), node("Identity", ["c"], ["c2"])], "body",
                             [helper.make_tensor_value_info("i", I, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("h", F, ["n"])],
                             [helper.make_tensor_value_info("c2", TensorProto.BOOL, []), helper.make_tensor_value_info("h2", F, ["n"])])
    model = model_of([node("Loop", ["count", "", "x"], ["y"], body=body)], {"count": (I, []), "x": (F, ["n"])}, {"y": (F, ["n"])})
    session = gate.session(model)
    x = rng.standard_normal(9).astype(np.float32)

    def check_loop() -> None:
        want = x.astype(np.float64)
        for _ in range(3):
            want = np.cos(2 * want)
        np.testing.assert_allclose(session.run({"count": np.array(3), "x": x})["y"], want, rtol=1e-4, atol=1e-5)

    check_loop()
    assert session.stats.evaluated_kernels > 0
    gate.open()
    wait_for(lambda: check_loop() or session.stats.evaluated_kernels == 0)
    assert "evaluated" not in kinds(session)


def test_random_numbers_go_on(gate: Gate) -> None:
    """The n-th run of a seed gives what it gives without the option, whatever tier it falls to."""
    node = helper.make_node
    model = model_of([node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])], {"x": (F, ["n"])}, {"y": (F, ["n"])})
    feeds = {"x": np.zeros(33, np.float32)}
    session = gate.session(model, seed=3)
    got = [session.run(feeds)["y"] for _ in range(2)]
    gate.open()
    while session.stats.evaluated_kernels:
        got.append(session.run(feeds)["y"])
    plain = tensorbox.Session(model, seed=3, cache_dir=str(gate.cache))
    for y in got:
        np.testing.assert_allclose(y, plain.run(feeds)["y"], rtol=1e-5, atol=1e-6)


def test_closing_stops_the_compiler(gate: Gate) -> None:
    session = gate.session()
    process = gate.begun()
    check(session)
    del session
    assert not is_alive(process) and not gate.left()


def test_what_waits_for_a_compiler_is_given_up(gate: Gate) -> None:
    first, second = gate.session(), gate.session(helper_model())
    process = gate.begun()
    del second  # it waits for the first one's compiler
    assert is_alive(process)
    del first
    assert not is_alive(process) and not gate.left()


def helper_model() -> onnx.ModelProto:
    return model_of([helper.make_node("Erf", ["x"], ["y"])], {"x": (F, [7])}, {"y": (F, [7])})


def in_child(work: Callable[[], bool]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    end = time.time() + 60
    while time.time() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -9


def test_a_forked_process_goes_on(gate: Gate) -> None:
    """It has not the thread that compiles: it runs, ends, and compiles by itself."""
    sessions = [gate.session(threads=1)]
    process = gate.begun()

    def run_and_close() -> bool:
        check(sessions[0])
        sessions.clear()
        return is_alive(process)  # it is the other process's

    def change_over() -> bool:
        gate.open()
        run_until(sessions[0], lambda: sessions[0].stats.evaluated_kernels == 0)
        return True

    assert in_child(run_and_close) == 0
    assert in_child(change_over) == 0
    run_until(sessions[0], lambda: sessions[0].stats.evaluated_kernels == 0)


SCRIPT = """
import os, signal, sys
import numpy as np, tensorbox
session = tensorbox.Session(sys.argv[1], tiered=True, cache_dir=sys.argv[2])
session.run({"x": np.ones((2, 8), np.float32)})
while not os.path.exists(sys.argv[3]): pass
print("ran", flush=True)
%s
"""


@pytest.mark.parametrize(("end", "code"), [
    ("", 0), ("sys.exit(3)", 3), ("tensorbox.kept = [session]; session.cycle = session", 0),
    ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT)])
def test_the_end_of_a_process_ends_the_compiler(gate: Gate, end: str, code: int) -> None:
    onnx.save(softmax_of_product(), gate.folder / "model.onnx")
    done = subprocess.run([sys.executable, "-c", SCRIPT % end, gate.folder / "model.onnx", gate.cache, gate.folder / "begun"],
                          capture_output=True, text=True, timeout=100,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert done.stdout == "ran\n" and done.returncode == code, done.stderr
    assert not is_alive(gate.begun()) and not gate.left()


def test_a_saved_session_is_compiled(gate: Gate) -> None:
    session = gate.session()
    gate.begun()
    gate.open()
    session.save(gate.folder / "model.tbx")
    loaded = tensorbox.Session(str(gate.folder / "model.tbx"))
    assert kinds(loaded) == {"generated", "extern"}
    check(loaded)
    with pytest.raises(tensorbox.ModelError, match="option tiered is given for a package"):
        tensorbox.Session(str(gate.folder / "model.tbx"), tiered=True)


def test_what_it_is_not_for() -> None:
    for option in ("compile", "reference"):
        with pytest.raises(tensorbox.ModelError, match="option tiered is for kernels that the C.. compiler builds"):
            tensorbox.Session(softmax_of_product(), tiered=True, **{option: option == "reference"})


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_CXX", "/nowhere/c++")
    notes: list[str] = []
    session = tensorbox.Session(softmax_of_product(), tiered=True, cache_dir=str(tmp_path), log=notes.append)
    check(session)
    assert len(notes) == 1 and "no C++ compiler found" in notes[0] and "tier:" not in decisions(session)
