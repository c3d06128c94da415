"""The exact texts of errors. Every case of texts/*.txt is a model, the inputs of a run where one is needed, and the
error that must come of it: of `compile`, where the model alone shows it, or of `run`.

`./dev python tests/error/test_error_texts.py --update` writes the texts anew: read the difference.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper

tensorbox = pytest.importorskip("tensorbox")

FOLDER = pathlib.Path(__file__).parent / "texts"
HEADER = '<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]> '


@dataclass
class Case:
    title: str
    text: str  # of the model
    inputs: list[str] = field(default_factory=list)  # "x = [1, 2]"
    expected: str = ""

    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(self.text if self.text.lstrip().startswith("<") else HEADER + self.text)

    def feeds(self, model: onnx.ModelProto) -> dict[str, np.ndarray]:
        types = {i.name: i.type.tensor_type.elem_type for i in model.graph.input}
        pairs = (line.split(" = ", 1) for line in self.inputs)
        return {name: np.array(ast.literal_eval(value), helper.tensor_dtype_to_np_dtype(types[name]))
                for name, value in pairs}

    def outcome(self) -> str:
        """The error of compiling or running, or what happened instead."""
        model = self.model()
        stage = "compile"
        try:
            session = tensorbox.Session(model, compile=False, threads=1, time_limit_ms=300,
                                          load_time_limit_ms=60_000)
            if not self.inputs:
                return "compiles"
            stage = "run"
            session.run(self.feeds(model))
        except tensorbox.Error as e:
            return f"{stage}: {type(e).__name__}: {e}"
        return "runs"


def read(path: pathlib.Path) -> tuple[str, list[Case]]:
    """The comment on top, and the cases."""
    head, *sections = re.split(r"^== ", path.read_text(), flags=re.MULTILINE)
    cases = []
    for section in sections:
        title, *lines = section.rstrip().split("\n")
        case = Case(title, "")
        for line in lines:
            if line.startswith(("compile", "run")):
                case.expected = line
            elif re.match(r"\w+ = ", line):
                case.inputs.append(line)
            else:
                case.text += line + "\n"
        cases.append(case)
    return head, cases


def all_cases() -> Iterator[tuple[str, Case]]:
    for path in sorted(FOLDER.glob("*.txt")):
        for case in read(path)[1]:
            yield path.stem, case


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{family}-{c.title}") for family, c in all_cases()])
def test_text(case: Case) -> None:
    # Memory is the machine's: its size is no part of the text.
    assert without_machine(case.outcome()) == without_machine(case.expected)


def without_machine(text: str) -> str:
    return re.sub(r"the machine has \d+", "the machine has N", text)


def update() -> None:
    for path in sorted(FOLDER.glob("*.txt")):
        head, cases = read(path)
        parts = [head.rstrip("\n") + "\n"]
        for case in cases:
            inputs = "".join(line + "\n" for line in case.inputs)
            parts.append(f"== {case.title}\n{case.text}{inputs}{without_machine(case.outcome())}\n")
        path.write_text("\n".join(parts))


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        update()
    else:
        print(__doc__)
