"""clang-tidy looks again at what did not pass, and at what changed since it passed; at nothing else."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "tidy.py"
TIDY = """#!/bin/sh
[ "$1" = --version ] && exec cat version
shift 3
echo "$1" >> looked
! grep -n BAD "$1"
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tidy").write_text(TIDY)
    (tmp_path / "tidy").chmod(0o755)
    (tmp_path / "version").write_text("14")
    (tmp_path / ".clang-tidy").write_text("Checks: '*'")
    for folder in ("build", "first include", "include"):
        (tmp_path / folder).mkdir()
    (tmp_path / "include" / "a.h").write_text("int a();\n")
    (tmp_path / "one.cpp").write_text('#include "a.h"\n')
    (tmp_path / "two.cpp").write_text("int two();\n")
    write_commands(tmp_path)
    return tmp_path


def write_commands(project, option=""):
    command = f"{os.environ.get('CXX', 'c++')} {option} '-I../first include' -I{project}/include -o"
    entries = [{"directory": str(project / "build"), "file": str(project / name), "command": f"{command} {name}.o -c {project}/{name}"}
               for name in ("one.cpp", "two.cpp")]
    (project / "build" / "compile_commands.json").write_text(json.dumps(entries))


def run(project, *units):
    """The exit status, what was looked at, and what was printed."""
    (project / "looked").unlink(missing_ok=True)
    units = units or (str(project / "one.cpp"), str(project / "two.cpp"))
    command = [sys.executable, str(TOOL), str(project / "tidy"), "build", "cache", "2", *units]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert not result.stderr
    looked = (project / "looked").read_text().split() if (project / "looked").exists() else []
    return result.returncode, sorted(pathlib.Path(name).name for name in looked), result.stdout


def test_what_passed_is_not_looked_at_again(project):
    assert run(project)[:2] == (0, ["one.cpp", "two.cpp"])
    assert run(project) == (0, [], "2 units, 0 looked at, 0 with findings\n")


def test_what_decides_is_looked_at_again(project):
    run(project)
    changes = {
        "a header": (lambda: (project / "include" / "a.h").write_text("int a(int);\n"), ["one.cpp"]),
        "a comment": (lambda: (project / "include" / "a.h").write_text("int a(int); // NOLINT\n"), ["one.cpp"]),
        "a header in the place of another": (lambda: (project / "first include" / "a.h").write_text("int a(int); // NOLINT\n"), ["one.cpp"]),
        "a source": (lambda: (project / "two.cpp").write_text("int three();\n"), ["two.cpp"]),
        "settings": (lambda: (project / ".clang-tidy").write_text("Checks: '-*'"), ["one.cpp", "two.cpp"]),
        "the tool": (lambda: (project / "version").write_text("15"), ["one.cpp", "two.cpp"]),
        "an option": (lambda: write_commands(project, "-DX=1"), ["one.cpp", "two.cpp"]),
    }
    for what, (change, looked) in changes.items():
        change()
        assert run(project)[:2] == (0, looked), what
        assert run(project)[:2] == (0, []), what


def test_what_did_not_pass_is_looked_at_again(project):
    (project / "two.cpp").write_text("int BAD();\n")
    for looked in (["one.cpp", "two.cpp"], ["two.cpp"]):
        status, seen, printed = run(project)
        assert (status, seen) == (1, looked)
        assert "int BAD();" in printed and printed.endswith("1 with findings\n")
    (project / "two.cpp").write_text("int two();\n")
    assert run(project)[:2] == (0, ["two.cpp"])


def test_a_file_that_is_no_unit_is_looked_at_always(project):
    (project / "part.cpp").write_text("int part();\n")
    for _ in range(2):
        assert run(project, str(project / "part.cpp"))[:2] == (0, ["part.cpp"])


def test_old_entries_go(project):
    run(project)
    old, kept = sorted((project / "cache").iterdir())
    os.utime(old, (0, 0))
    run(project)
    assert set((project / "cache").iterdir()) == {old, kept}  # one was looked at once more
    os.utime(old, (0, 0))
    run(project, str(project / "part.cpp"))
    assert set((project / "cache").iterdir()) == {kept}
