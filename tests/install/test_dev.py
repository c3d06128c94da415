"""./dev, as somebody who asks it what a command does."""

from __future__ import annotations

import shutil
import subprocess
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
