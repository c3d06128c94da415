"""A part of the fault sweep, another one each day; `./dev python tests/faults/fault_sweep.py` is the whole."""

from __future__ import annotations

import datetime
import random

import pytest
from fault_sweep import KINDS, OF_THE_COMPILER, Bench, by_children, disk, killed, little_memory, racing, sweep
from test_fault_processes import bench  # noqa: F401

SEED = datetime.date.today().toordinal()
MOST = {"malloc": 40, "mmap": 10}


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_fail(bench: Bench, kind: str, warm: bool) -> None:  # noqa: F811
    calls = bench.calls(kind, warm)
    assert (calls == 0) == (warm and kind in OF_THE_COMPILER)
    numbers = random.Random(SEED).sample(range(1, calls + 1), min(calls, MOST.get(kind, 6)))
    counts, bad = sweep(bench, kind, warm, sorted(numbers))
    assert bad == [], f"seed {SEED}"
    assert not numbers or counts.total() > counts["not reached"], f"seed {SEED}: no call failed"


def test_mallocs_that_fail_in_children(bench: Bench) -> None:  # noqa: F811
    calls = bench.calls("malloc", True)
    step = max(1, calls // 40)
    counts, bad = by_children(bench, 1 + SEED % step, calls, step)
    assert bad == [] and counts.total() >= 39, f"seed {SEED}"


def test_mallocs_that_fail_behind_the_run(bench: Bench) -> None:  # noqa: F811
    """What the command says of a run is a JSON value, whose library allocates in destructors."""
    calls = bench.calls("malloc", True)
    counts, bad = sweep(bench, "malloc", True, list(range(calls - 40, calls + 1, 3)))
    assert bad == [] and counts["ModelError"] > 0


def test_full_disks_and_read_only_folders(bench: Bench) -> None:  # noqa: F811
    counts, bad = disk(bench, (0, 8, 64))
    assert bad == [] and counts["right"] >= 4, counts


def test_address_space_that_ends(bench: Bench) -> None:  # noqa: F811
    counts, bad = little_memory(bench, 60)
    assert bad == [] and counts["ModelError"] + counts["BackendError"] > 20, counts


def test_kills_and_races(bench: Bench) -> None:  # noqa: F811
    assert killed(bench, 5, random.Random(SEED))[1] == [], f"seed {SEED}"
    assert racing(bench, 3)[1] == []
