"""docs/command.md, the options of the command, of Python and of C++, and the variables that are read: all the same names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorbox
from conftest import Result

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "command.md").read_text()
LIMITS = (ROOT / "docs" / "security.md").read_text()
COMMANDS = ["run", "bench", "compile", "optimize", "explain", "dump", "compare", "ops", "doctor", "demo"]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def options_of(tbx: Callable[..., Result], *command: str) -> set[str]:
    """Those that --help lists: `  -o,--output TEXT   ...`, not those that its texts mention."""
    text = tbx(*command, "--help").out.split("Examples:")[0]
    listed = re.findall(r"^ {2}(-\S*)", text, re.M)
    return {flag for names in listed for flag in FLAG.findall(names.replace(",", " "))}


@pytest.fixture(scope="module")
def options(tbx: Callable[..., Result]) -> dict[str, set[str]]:
    return {command: options_of(tbx, command) for command in COMMANDS} | {"": options_of(tbx)}


def test_all_options_are_documented(options: dict[str, set[str]]) -> None:
    assert "--threads" in options["run"] and "--opset" in options["optimize"]
    documented = set(FLAG.findall(PAGE)) | set(FLAG.findall(LIMITS))
    assert set().union(*options.values()) - documented == set()


def test_no_page_has_an_option_that_there_is_not(options: dict[str, set[str]]) -> None:
    """Of commands as they are written out on all pages, and of the tables of docs/command.md."""
    assert set(FLAG.findall(PAGE)) - set().union(*options.values()) - {"--help"} == set()
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for command, rest in re.findall(r"\btbx (\w+)([^`\n|#]*)", page.read_text()):
            if command in options:
                assert set(FLAG.findall(rest)) - options[command] - {"--help"} == set(), f"{page.name}: tbx {command}{rest}"


def test_options_beside_those_of_other_tools(options: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "other_tools.md").read_text()
    ours = [flag for row in re.findall(r"^\|.*\|$", page, re.M) for flag in FLAG.findall(row.split("|")[2])]
    assert len(ours) > 30 and set(ours) - set().union(*options.values()) == set()


def test_commands(tbx: Callable[..., Result]) -> None:
    listed = re.findall(r"^  (\w+) {2,}", tbx("--help").out.split("Examples:")[0], re.M)
    assert set(listed) == set(COMMANDS) == set(re.findall(r"^\| `tbx (\w+)", PAGE, re.M)) - {"itself"}


def test_names_of_python_and_of_cpp() -> None:
    header = (ROOT / "include/tensorbox/tensorbox.h").read_text()
    fields = re.search(r"struct TBX_API CompileOptions \{(.*?)\n\};", header, re.S)[1]
    fields = set(re.findall(r"(\w+)(?: = [^;]*)?;", re.sub(r"//.*", "", fields)))
    python = set(inspect.signature(tensorbox.Session.__init__).parameters) - {"self", "model"}
    table = PAGE.split("## How a model")[1].split("## Of single")[0]
    documented = {"python": set(), "cpp": set()}
    for row in re.findall(r"^\| `--.*", table, re.M):
        cells = [re.findall(r"`(\w+)", cell) for cell in row.split("|")[2:4]]
        documented["python"].update(cells[0])
        documented["cpp"].update(cells[1])
    alone = set(re.findall(r"`(\w+)`", re.search(r"Without an option of the command are .*?\.", table, re.S)[0]))
    limits = set(re.findall(r"^\| `(\w+)` \| `--", LIMITS, re.M)) | {"untrusted"}
    assert documented["python"] | alone | limits == python
    assert documented["cpp"] | alone | limits | {"interrupted"} == fields


def test_options_of_c() -> None:
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/tensorbox/c.h").read_text(), flags=re.S)
    fields = set(re.findall(r"(\w+);", re.search(r"typedef struct \{([^}]*)\} tbx_options;", header)[1]))
    documented = re.search(r"`tbx_options` of C.*?\n\n", PAGE, re.S)[0]
    assert set(re.findall(r"`(\w+)`", documented)) - {"tbx_options"} == fields - {"size"}


def test_variables(tbx: Callable[..., Result]) -> None:
    read = set()
    for folder in ["base", "codegen", "device", "driver", "extern_kernels", "lowering", "package", "runtime", "tools"]:
        for source in (ROOT / folder).rglob("*.cpp"):
            read.update(re.findall(r'"(TBX_[A-Z_]+)"', source.read_text()))
    assert read == set(re.findall(r"TBX_[A-Z_]+", PAGE.split("## Variables")[1]))
    assert read == set(re.findall(r"TBX_[A-Z_]+", tbx("--help").out))
