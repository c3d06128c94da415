"""manifest.txt: the tests of the suite that pass, one name per line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suite import Outcome

PATH = Path(__file__).with_name("manifest.txt")
HEADER = "# Tests of the ONNX backend suite that pass. Written by run_suite.py --update.\n"


@dataclass(frozen=True)
class Change:
    """How a run differs from the manifest."""

    regressions: list[Outcome]  # listed, and did not pass
    new_passes: list[str]  # passed, and not listed
    unknown: list[str]  # listed, and not in the suite


def read(path: Path) -> set[str]:
    """The names in the manifest; an absent file is an empty one."""
    if not path.is_file():
        return set()
    return {line for line in path.read_text().splitlines() if line and not line.startswith("#")}


def compare(listed: set[str], outcomes: Sequence[Outcome], whole_suite: bool) -> Change:
    """Hold a run, of the whole suite or of some of its tests, against the listed names."""
    ran = {outcome.test for outcome in outcomes}
    return Change(
        [o for o in outcomes if o.test in listed and o.status != "pass"],
        [o.test for o in outcomes if o.test not in listed and o.status == "pass"],
        sorted(listed - ran) if whole_suite else [],
    )


def update(path: Path, outcomes: Sequence[Outcome], whole_suite: bool) -> None:
    """Write what passes now; tests that did not run keep their place unless the whole suite ran."""
    kept = set() if whole_suite else read(path) - {outcome.test for outcome in outcomes}
    passed = {outcome.test for outcome in outcomes if outcome.status == "pass" and not outcome.unstable}
    path.write_text(HEADER + "".join(f"{name}\n" for name in sorted(kept | passed)))
