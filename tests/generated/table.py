"""Counts of generated cases by operator, version and type, from the verdicts of run_generated.py."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

AGREES = ("pass", "disputed")  # disputed: one reference agrees, another is known to err


@dataclass
class Count:
    """Cases of one version of one operator."""

    passing: int = 0
    cases: int = 0
    types: set[str] = field(default_factory=set)  # "T=float" of passing cases
    missing: set[str] = field(default_factory=set)  # of those that do not pass or that nobody can judge

    def add(self, types: Iterable[str], passes: bool) -> None:
        self.cases += 1
        self.passing += passes
        (self.types if passes else self.missing).update(types)

    def text(self) -> str:
        """As "T: double, float; Tind: int64", with what no passing case has after "not"."""
        parts = [_listed(self.types)]
        if rest := self.missing - self.types:
            parts.append(f"not {_listed(rest)}")
        return "; ".join(filter(None, parts))


def _listed(types: set[str]) -> str:
    by_param: dict[str, list[str]] = defaultdict(list)
    for text in sorted(types):
        param, _, kind = text.partition("=")
        by_param[param].append(kind)
    return "; ".join(f"{param}: {', '.join(kinds)}" for param, kinds in sorted(by_param.items()))


def counts(verdicts: list[dict[str, str]]) -> dict[tuple[str, str], dict[int, Count]]:
    """By (domain, name) and version."""
    found: dict[tuple[str, str], dict[int, Count]] = defaultdict(lambda: defaultdict(Count))
    for verdict in verdicts:
        head, _, types = verdict["test"].split("#")[0].partition("/")
        operator, _, version = head.rpartition("-")
        domain, _, name = operator.rpartition(".")
        found[domain, name][int(version)].add([t for t in types.split(",") if "=" in t], verdict["status"] in AGREES)
    return found
