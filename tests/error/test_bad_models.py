"""A seeded part of the spoilt models of mutate.py: each is refused by an error that names its node, or runs."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorbox")

from bad_models import Outcome, run  # noqa: E402: they need the module, too
from mutate import choose  # noqa: E402

PART = 25  # one of so many: about two thousand models in less than a minute


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return list(run(choose(PART)))


def test_every_error_names_node_and_operator(outcomes: list[Outcome]) -> None:
    bad = [f"{o.status} {o.job}\n  {o.message}" for o in outcomes if not o.good]
    assert not bad, "\n".join(bad)


def test_all_operators_are_there(outcomes: list[Outcome]) -> None:
    assert len({o.job.base.operator for o in outcomes}) > 190
    assert sum(o.status == "refused" for o in outcomes) > len(outcomes) / 4
