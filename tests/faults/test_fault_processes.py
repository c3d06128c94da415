"""Processes that are interrupted, that lack what processes usually have, and machines without a compiler."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_sweep import ROOT, Bench

TBX = Path(os.environ.get("TBX_BIN", ROOT / "build" / "release" / "bin" / "tbx"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    if not TBX.exists():
        pytest.skip(f"{TBX} is not built")
    return Bench(TBX, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def slow_compiler(tmp_path: Path) -> Iterator[Path]:
    """Writes its process number beside itself, has a child, and does not end."""
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *fsyntax-only*) exit 0;; esac\n'
                        f'touch "$TMPDIR/cc-temporary"\necho $$ > {tmp_path}/pid.part && mv {tmp_path}/pid.part {tmp_path}/pid\n'
                        'sleep 100\n')
    compiler.chmod(0o755)
    yield compiler


def wait_for(path: Path) -> str:
    for _ in range(3000):
        if path.exists():
            return path.read_text()
        time.sleep(0.01)
    pytest.fail(f"{path} did not come")


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


def gone(group: int) -> bool:
    """The children of a process that was killed are ended by the system, a moment later."""
    for _ in range(300):
        if not is_alive(group):
            return True
        time.sleep(0.01)
    return False


def heed_signals() -> None:
    """A shell starts what it puts into the background with SIGINT ignored, nohup with SIGHUP, and children inherit that."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_nothing_behind(bench: Bench, tmp_path: Path, slow_compiler: Path, number: signal.Signals) -> None:
    cache = tmp_path / "cache"
    child = subprocess.Popen([TBX, "run", bench.folder / "model.onnx"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=dict(os.environ, TBX_CACHE_DIR=str(cache), TBX_CXX=str(slow_compiler)), preexec_fn=heed_signals)
    group = int(wait_for(tmp_path / "pid"))
    child.send_signal(number)
    assert child.wait(30) == -number
    child.stdout.close()
    assert gone(group)
    assert not list(cache.glob(".tmp-*"))


def test_signals_end_a_compiler_behind_runs(bench: Bench, tmp_path: Path, slow_compiler: Path) -> None:
    cache = tmp_path / "cache"
    child = subprocess.Popen([TBX, "bench", bench.folder / "model.onnx", "--tiered", "--duration", "60"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, preexec_fn=heed_signals,
                             env=dict(os.environ, TBX_CACHE_DIR=str(cache), TBX_CXX=str(slow_compiler)))
    group = int(wait_for(tmp_path / "pid"))
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == -signal.SIGINT
    child.stdout.close()
    assert gone(group)
    assert not list(cache.glob(".tmp-*"))


def test_without_a_thread_the_compiler_is_waited_for(bench: Bench, tmp_path: Path) -> None:
    environment = dict(os.environ, TBX_CACHE_DIR=str(tmp_path / "cache"), LD_PRELOAD=str(bench.shim), FAULT="thread:1",
                       FAULT_REPORT=str(tmp_path / "report"))
    done = subprocess.run([TBX, "run", bench.folder / "model.onnx", "--tiered", "--threads", "1"], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "report").read_text().startswith("hit"), done.stderr
    assert "0 kernel(s) in the evaluator" in done.stdout


def test_python_is_interrupted_while_it_compiles(bench: Bench, tmp_path: Path, slow_compiler: Path) -> None:
    script = ("import sys, tensorbox\n"
              "try:\n    tensorbox.Session(sys.argv[1])\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
              "print('goes on', tensorbox.Session(sys.argv[1], compile=False).threads > 0)")
    cache = tmp_path / "cache"
    child = subprocess.Popen([sys.executable, "-c", script, bench.folder / "model.onnx"], stdout=subprocess.PIPE, text=True,
                             env=dict(os.environ, TBX_CACHE_DIR=str(cache), TBX_CXX=str(slow_compiler)), preexec_fn=heed_signals)
    group = int(wait_for(tmp_path / "pid"))
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert out == "interrupted\ngoes on True\n"
    assert gone(group)
    assert not list(cache.glob(".tmp-*"))


def test_compiler_ends_with_a_killed_process(bench: Bench, tmp_path: Path, slow_compiler: Path) -> None:
    slow_compiler.write_text(slow_compiler.read_text().replace("sleep 100", "exec sleep 100"))
    cache = tmp_path / "cache"
    child = subprocess.Popen([TBX, "run", bench.folder / "model.onnx"],
                             env=dict(os.environ, TBX_CACHE_DIR=str(cache), TBX_CXX=str(slow_compiler)))
    group = int(wait_for(tmp_path / "pid"))
    child.kill()
    child.wait()
    assert gone(group)
    assert bench.judge(*bench.run(cache)) == "right"
    assert not list(cache.glob(".tmp-*"))


def test_cached_kernels_serve_where_no_compiler_is(bench: Bench) -> None:
    environment = dict(os.environ, PATH="/nowhere", TBX_CACHE_DIR=str(bench.full))
    environment.pop("TBX_CXX", None)

    def report(**changes: str) -> str:
        done = subprocess.run([TBX, "explain", bench.folder / "model.onnx"], env=environment | changes, capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "no C++ compiler" not in report()
    assert "not all kernels are in the cache" in report(TBX_CACHE_DIR=str(bench.folder / "empty"))


def test_ignored_sigchld(bench: Bench) -> None:
    cache = bench.cache(False)
    assert bench.judge(*bench.run(cache, before="trap '' CHLD")) == "right"
    assert bench.judge(*bench.run(cache)) == "right"


def test_without_home_and_temporary_folder(bench: Bench) -> None:
    assert bench.judge(*bench.run(Path(), before="unset HOME XDG_CACHE_HOME TBX_CACHE_DIR; export TMPDIR=/nowhere")) == "right"


def test_unusable_cache_folder(bench: Bench) -> None:
    code, text = bench.run(Path("/proc/nothing"))
    assert bench.judge(code, text) == "right"
    assert "cannot make the kernel cache /proc/nothing" in text and "kernels are kept in" in text


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files(bench: Bench, closed: str) -> None:
    cache = bench.cache(False)
    bench.run(cache, before=f"exec {closed}")
    assert bench.judge(*bench.run(cache)) == "right"
    assert list(cache.glob("*.so"))


def test_threads_that_do_not_start(bench: Bench) -> None:
    """Each of those that a run starts."""
    calls = bench.calls("thread", False)
    assert calls > 0
    for n in range(1, calls + 1):
        assert bench.one("thread", n, False) == ("right", ""), n  # "not reached" where none failed


def test_limits_of_the_compiler(bench: Bench, tmp_path: Path, slow_compiler: Path) -> None:
    def fails(option: str, value: str, **changes: str) -> str:
        done = subprocess.run([TBX, "run", bench.folder / "model.onnx", option, value], capture_output=True, text=True,
                              env=dict(os.environ, TBX_CACHE_DIR=str(tmp_path / "cache"), **changes))
        assert done.returncode == 5, done.stderr
        return done.stderr

    assert "raise compile_time_limit_ms" in fails("--compile-time-limit-ms", "50", TBX_CXX=str(slow_compiler))
    assert "which compile_memory raises" in fails("--compile-memory", "40mb")
