"""A few hundred cases of the sweep, others every day. The seed is printed; TBX_SWEEP_SEED sets it."""
import datetime
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sweep import cases, tolerance  # noqa: E402

HERE = Path(__file__).resolve().parent
SEED = int(os.environ.get("TBX_SWEEP_SEED") or datetime.date.today().toordinal())
SERIES = cases.Series(SEED)


@pytest.mark.timeout(400)
def test_sweep(tmp_path):
    command = [sys.executable, str(HERE / "run_sweep.py"), "--seed", str(SEED), "--count", "400", "--seconds", "75", "--out",
               str(tmp_path)]
    print("seed", SEED)
    done = subprocess.run(command, capture_output=True, text=True)
    again = f"python tests/sweep/run_sweep.py --seed {SEED} --first NUMBER --count 1"
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\none case again: {again}"


def test_equal_numbers_give_equal_cases():
    for number in range(40):
        a, b = cases.make(SERIES, number), cases.make(SERIES, number)
        assert a.builder.model() == b.builder.model()
        for run in range(a.builder.runs):
            first, second = a.builder.feeds(run), b.builder.feeds(run)
            assert all(np.array_equal(first[k], second[k]) for k in first)


def test_every_family_makes_valid_models():
    onnx = pytest.importorskip("onnx")
    seen = set()
    for number in range(300):
        family = cases.plan(SERIES, number)[0]
        if family in seen:
            continue
        seen.add(family)
        onnx.checker.check_model(cases.make(SERIES, number).builder.model())
    assert len(seen) > 15
    for family in (name for name, (often, _) in cases.FAMILIES.items() if not often):
        for number in range(8):
            onnx.checker.check_model(cases.make(cases.Series(SEED, family), number).builder.model())


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_the_bound_lets_rounding_pass_and_nothing_else(dtype):
    """Sums of n random products: an error of rounding passes, a term left out does not."""
    rng = np.random.default_rng(3)
    n = 256
    bound = tolerance.Bound(dtype, n, 1, 1.0, False, False)
    a, b = rng.standard_normal((64, n)), rng.standard_normal((n, 64)) / n ** 0.5
    want = a @ b
    largest = float(np.abs(a).max())
    storage = {"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(dtype)
    if storage is None:
        import ml_dtypes
        storage = ml_dtypes.bfloat16
    rounded = want.astype(storage)
    assert tolerance.difference(rounded, want.astype(storage), bound, largest) == ""
    if dtype == "f32":
        sequential = np.zeros((64, 64), np.float32)
        for k in range(n):
            sequential += np.outer(a[:, k].astype(np.float32), b[k].astype(np.float32))
        assert tolerance.difference(sequential, want.astype(np.float32), bound, largest) == ""
    short = (a[:, 1:] @ b[1:]).astype(storage)
    assert tolerance.difference(short, want.astype(storage), bound, largest) != ""
