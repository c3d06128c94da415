"""The module's type hints: a marker that it has them, a stub for the compiled part that is whole, a program that passes."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

tensorbox = pytest.importorskip("tensorbox")

FOLDER = Path(tensorbox.__file__).parent


def test_the_module_says_that_it_is_typed() -> None:
    assert (FOLDER / "py.typed").exists()


def test_the_stub_has_what_the_compiled_module_has() -> None:
    from tensorbox import _core

    stub: dict[str, set[str]] = {"": set()}
    for node in ast.parse((FOLDER / "_core.pyi").read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            stub[""].add(node.name)
        elif isinstance(node, ast.AnnAssign):
            stub[""].add(node.target.id)  # type: ignore[union-attr]
        if isinstance(node, ast.ClassDef):
            stub[node.name] = {n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in node.body  # type: ignore[union-attr]
                               if isinstance(n, (ast.FunctionDef, ast.AnnAssign))}
            stub[node.name] = {member for member in stub[node.name] if not member.startswith("__")}
    for name, members in stub.items():
        module = {m for m in dir(getattr(_core, name) if name else _core) if not m.startswith("_")} | {"__version__"} & members
        inherited = set(dir(RuntimeError)) if name.endswith("Error") else set()
        assert members == module - inherited, name or "_core"


def test_a_typed_program_passes_mypy() -> None:
    pytest.importorskip("mypy")
    program = Path(__file__).parent / "typed_program.py"
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(program)], capture_output=True,
                          text=True, env={"MYPYPATH": str(FOLDER.parent)}, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
