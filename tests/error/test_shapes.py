"""A seeded part of what fuzz_shapes.py runs: compiled models at sizes of 0, 1, smaller and larger, held against the evaluator."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorbox")

import shape_models  # noqa: E402: they need the module, too
from bad_models import run  # noqa: E402
from fuzz_shapes import HANG_SECONDS, jobs  # noqa: E402
from shape_judge import judge  # noqa: E402

PART = 24  # one of so many


@pytest.mark.parametrize("target", ["nodes", "graphs"])
def test_models_at_other_sizes(target: str) -> None:
    chosen = jobs(shape_models.nodes(), PART, runs=8) if target == "nodes" else jobs(shape_models.graphs(16, 5), runs=6)
    outcomes = list(run(chosen, judge=judge, seconds=HANG_SECONDS))
    bad = [f"{o.status} {o.job}\n  {o.message}" for o in outcomes if not o.good]
    assert not bad, "\n".join(bad)
    assert sum(o.status == "ran" for o in outcomes) >= 10
