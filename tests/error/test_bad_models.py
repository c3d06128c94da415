"""A seeded part of the spoilt models of mutate.py: each is refused by an error that names its node, or runs."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorbox")

from bad_models import Job, Outcome, judge, run  # noqa: E402: they need the module, too
from base_models import all_models  # noqa: E402
from mutate import choose  # noqa: E402
from mutations import Mutant  # noqa: E402

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


def test_the_models_are_good_unspoilt() -> None:
    bad = []
    for base in all_models():
        feeds = {i.name: value for i, value in zip(base.model.graph.input, base.inputs, strict=True)}
        status, message = judge(Job(base, Mutant("nothing", lambda base=base, feeds=feeds: (base.model, feeds))))
        if status != "ran":
            bad.append(f"{base.name}: {message}")
    assert not bad, "\n".join(bad)
