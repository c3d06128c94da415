"""The suite's runner tells wrong results, crashes and hangs apart, and one bad test harms no other."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import manifest
import report
from suite import Outcome
from workers import Limits, run_all

RUN_SUITE = Path(__file__).with_name("run_suite.py")


def die() -> None:
    """Crash without the stack trace that pytest has asked for."""
    faulthandler.disable()
    os.abort()


def run_named(name: str) -> Outcome:
    """Stands for the suite: the test's name says what it does."""
    if "crash" in name:
        os.write(2, b"last words\n")
        die()
    if "exit" in name:
        os._exit(7)
    if "hang" in name:
        time.sleep(60)
    return Outcome(name, "fail", "ValueError", "no") if "fail" in name else Outcome(name, "pass")


def test_each_test_gets_its_own_outcome() -> None:
    names = ["a", "crash1", "b", "hang", "c", "fail", "exit", "d", "crash2"] + [f"n{i}" for i in range(50)]
    outcomes = {o.test: o for o in run_all(names, run_named, 2, Limits(seconds=4.0))}
    assert outcomes.keys() == set(names)
    assert {n for n in names if outcomes[n].status == "pass"} == {n for n in names if len(n) < 4}
    assert [outcomes[n].status for n in ("crash1", "crash2", "exit")] == ["crash"] * 3
    assert outcomes["crash1"].error == "SIGABRT" and outcomes["exit"].error == "exit code 7"
    assert outcomes["crash1"].message == "last words"
    assert outcomes["hang"].status == "timeout" and outcomes["fail"].error == "ValueError"
    assert not any(outcome.unstable for outcome in outcomes.values())


def test_a_crash_that_needs_earlier_tests_is_marked_unstable() -> None:
    ran: list[str] = []  # each worker has its own copy

    def run(name: str) -> Outcome:
        if name == "victim" and ran:
            die()
        ran.append(name)
        return Outcome(name, "pass")

    outcomes = {o.test: o for o in run_all(["culprit", "victim", "after"], run, 1)}
    assert [o.status for o in outcomes.values()] == ["pass"] * 3
    assert outcomes["victim"].unstable.startswith("SIGABRT")
    assert not outcomes["culprit"].unstable and not outcomes["after"].unstable


def test_memory_is_limited() -> None:
    def run(name: str) -> Outcome:
        try:
            bytearray(2 << 30)
        except MemoryError:
            return Outcome(name, "fail", "MemoryError")
        return Outcome(name, "pass")

    assert [o.error for o in run_all(["big"], run, 1, Limits(memory_gib=1.0))] == ["MemoryError"]
    assert [o.status for o in run_all(["big"], run, 1, Limits(memory_gib=0))] == ["pass"]


def outcome(test: str, status: str = "pass", error: str = "", message: str = "") -> Outcome:
    return Outcome(test, status, error, message)


def test_manifest_finds_regressions_and_new_passes(tmp_path: Path) -> None:
    path = tmp_path / "manifest.txt"
    assert manifest.read(path) == set()
    manifest.update(path, [outcome("node/b"), outcome("node/a"), outcome("node/c", "fail")], True)
    assert path.read_text() == manifest.HEADER + "node/a\nnode/b\n"
    change = manifest.compare(manifest.read(path), [outcome("node/a", "crash"), outcome("node/c")], True)
    assert [o.test for o in change.regressions] == ["node/a"]
    assert change.new_passes == ["node/c"] and change.unknown == ["node/b"]
    manifest.update(path, [outcome("node/a", "fail"), outcome("node/c")], False)
    assert manifest.read(path) == {"node/b", "node/c"}


def test_report_groups_failures_by_reason() -> None:
    outcomes = [
        outcome("node/a"),
        outcome("node/b", "fail", "UnsupportedError", "node 'x': Foo(12) is not known"),
        outcome("simple/c", "fail", "UnsupportedError", "node 'y': Foo(7) is not known"),
        outcome("node/d", "crash", "SIGSEGV", "no message"),
        outcome("node/e", "fail", "AssertionError", "\nItems are not equal:\n ACTUAL: dtype('float32')"),
    ]
    text = report.markdown(outcomes, "tensorbox", "1.0")
    assert "**1 of 5 pass**" in text and "| node | 4 | 1 | 2 | 1 | 0 |" in text
    for heading in ("node '…': Foo(N) is not known (2)", "crash: SIGSEGV (1)", "wrong result: type (1)"):
        assert heading in text


FAKE_BACKEND = """
import numpy, os, time
def supports_device(device): return device == "CPU"
class Prepared:
    def __init__(self, model): self.op = model.graph.node[0].op_type
    def run(self, inputs):
        x = inputs[0]
        if self.op == "Abs": return [numpy.abs(x)]
        if self.op == "Acos": return [numpy.arccos(x).astype("float64")]
        if self.op == "Neg": return [x]
        if self.op == "Ceil": return []
        if self.op == "Floor": os.abort()
        if self.op == "Exp": time.sleep(60)
        if self.op == "Sign": raise __import__("unittest").SkipTest("not today")
def prepare(model, device, **options): return Prepared(model)
"""


def test_the_suite_judges_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake_backend.py").write_text(FAKE_BACKEND)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pattern = r"^node/test_(abs|acos|neg|ceil|floor|exp|sign)_cpu$"
    command = [sys.executable, str(RUN_SUITE), "--backend", "fake_backend", "--filter", pattern]
    command += ["--timeout", "2", "--manifest", str(tmp_path / "m.txt"), "--json", str(tmp_path / "r.json")]
    first = subprocess.run([*command, "--update"], capture_output=True, text=True)
    assert first.returncode == 0, first.stderr
    assert "7 tests: 1 pass, 4 fail, 1 crash, 1 timeout" in first.stdout
    errors = {e["test"][10:-4]: e["error"] for e in json.loads((tmp_path / "r.json").read_text())}
    assert errors == {
        "abs": "",
        "acos": "AssertionError",
        "neg": "AssertionError",
        "ceil": "AssertionError",
        "floor": "SIGABRT",
        "exp": "Timeout",
        "sign": "SkipTest",
    }
    assert manifest.read(tmp_path / "m.txt") == {"node/test_abs_cpu"}
    (tmp_path / "fake_backend.py").write_text(FAKE_BACKEND.replace("numpy.abs(x)", "x"))
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1
    assert "REGRESSION node/test_abs_cpu: fail AssertionError" in second.stdout


def test_a_backend_that_cannot_be_imported_is_an_error() -> None:
    command = [sys.executable, str(RUN_SUITE), "--backend", "no_such_backend"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "cannot use no_such_backend: ModuleNotFoundError" in run.stderr
