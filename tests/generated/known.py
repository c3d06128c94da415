"""The list of disagreements that are known: known.txt, with whose fault each is and why."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import references

PATH = Path(__file__).with_name("known.txt")
CULPRITS = ("onnxruntime", "onnx.reference", "tensorbox", "specification", "references")


@dataclass(frozen=True)
class Entry:
    """Names that match `pattern` (as shells match) may have one of the `statuses`."""

    pattern: str
    statuses: tuple[str, ...]
    reason: str

    def matches(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name.split("#")[0], self.pattern)


def read(path: Path = PATH) -> list[Entry]:
    """Lines of "pattern status[,status] culprit: reason"; ValueError on what is no entry."""
    entries = []
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        pattern, statuses, reason = line.split(maxsplit=2)
        if reason.split(":")[0] not in CULPRITS:
            raise ValueError(f"known.txt: '{line}' does not name one of {', '.join(CULPRITS)} and a reason")
        entries.append(Entry(pattern, tuple(statuses.split(",")), reason))
    return entries


def explain(entries: Sequence[Entry], name: str, status: str) -> Entry | None:
    """The entry that allows this outcome. Without ONNX Runtime nobody is left who agrees where one reference errs."""
    allowed = {status} | ({"disputed"} if status == "differs" and references.onnxruntime is None else set())
    return next((entry for entry in entries if allowed & set(entry.statuses) and entry.matches(name)), None)
