"""Every public name of the Python module, of the C++ headers and of the C headers says what it is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorbox
from tensorbox import _core

HEADERS = sorted((Path(__file__).parents[2] / "include/tensorbox").glob("*.h"))


def undocumented(module: object, names: list[str]) -> Iterator[str]:
    for name in names:
        value = getattr(module, name)
        if not (inspect.isclass(value) or callable(value)):
            continue
        if not (value.__doc__ or "").strip():
            yield name
        if not inspect.isclass(value) or value.__module__.split(".")[0] != "tensorbox":
            continue
        for member, what in vars(value).items():
            # Fields are described with their class.
            is_field = inspect.ismemberdescriptor(what) or not (callable(what) or isinstance(what, (property, staticmethod)))
            if not member.startswith("_") and not is_field and not (getattr(what, "__doc__", "") or "").strip():
                yield f"{name}.{member}"


def test_python() -> None:
    assert list(undocumented(tensorbox, [name for name in tensorbox.__all__ if name != "__version__"])) == []
    assert (_core.ModelError.__doc__ or "").strip()


def undescribed(text: str) -> Iterator[str]:
    """Declarations at the margin of a header without a comment above or behind them. One comment is for all that follow it
    without a blank line."""
    text = re.sub(r"/\*.*?\*/", lambda comment: "//" + comment[0].count("\n") * "\n//", text, flags=re.S)
    text = re.sub(r"\\\n.*", "", text)  # macros of several lines
    described = False
    for line in text.splitlines():
        if not line.strip():
            described = False
        elif "//" in line:
            described = True
        elif re.match(r"\w", line) and not described and not re.match(r"namespace |extern \"C\"|\w+:$", line):
            # What is declared before, for its definition is further below.
            if not re.match(r"(template <.*> )?constexpr int32_t onnx_type_of", line):
                yield line


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_headers(header: Path) -> None:
    assert list(undescribed(header.read_text())) == []


def test_what_counts_as_described() -> None:
    text = "/* a\n b */\nint one();\nint two();\n\nint three();\n\nstruct Four {\n  int member;\n};\nint five(); // five\n"
    assert list(undescribed(text)) == ["int three();", "struct Four {"]
