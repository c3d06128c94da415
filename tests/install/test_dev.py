"""./dev, as somebody who asks it what a command does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], *([command, "--help"] for command in (
    "build", "test", "ctest", "deps", "format", "tidy", "wheel", "install", "clean")), ["build", "release", "-h"]], ids=" ".join)
def test_help_does_nothing_else(arguments: list[str], tmp_path: Path) -> None:
    """In a copy without anything that could be built: `clean --help` removed what was."""
    shutil.copy(ROOT / "dev", tmp_path)
    (tmp_path / "build").mkdir()
    done = subprocess.run(["./dev", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("usage: ./dev <command>") and not done.stderr
    assert (tmp_path / "build").is_dir()


def stub(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("runs", [False, True])
def test_names_of_no_test_are_an_error(runs: bool, tmp_path: Path) -> None:
    """With programs in the place of cmake, ctest and pytest, of which the last finds a test or none."""
    for name in ("dev", "tests/summary.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    programs = tmp_path / "made/venv/bin"
    stub(tmp_path / "deps/build.sh", f"echo {tmp_path}/made")
    for name in ("apt.txt", "tests.txt"):
        (tmp_path / "deps" / name).touch()
    stub(programs / "cmake", "exit 0")
    stub(programs / "ctest", "mkdir -p build/release/test-results; [[ $* != *--no-tests=error* ]]")
    report = '<testsuite><testcase classname="c" name="n"/></testsuite>'
    found = f"echo '{report}' > build/release/test-results/pytest.xml" if runs else "exit 5"
    install = 'while [ "$1" != --target ]; do shift; done; mkdir -p "$2"'
    stub(programs / "python", f'case "$*" in "-m pytest"*) {found} ;; "-m pip"*) {install} ;; *) exec {sys.executable} "$@" ;; esac')
    environment = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(["./dev", "test", "no_such_test"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == (0 if runs else 1), done.stderr
    assert done.stdout.endswith("1 passed, 0 failed, 0 skipped\n" if runs else "0 passed, 0 failed, 0 skipped\n")
    assert ("no test has a name that contains: no_such_test" in done.stderr) != runs
    assert subprocess.run(["./dev", "ctest", "release", "none"], cwd=tmp_path, capture_output=True, timeout=60, env=environment).returncode == 1
