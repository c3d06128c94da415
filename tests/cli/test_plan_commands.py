"""Plans that commands keep, and say so (docs/kernels.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conftest import Result, three_steps

PLANS = {"TBX_CACHE_PLANS": ""}


def test_commands_start_with_kept_plans(tbx: Callable[..., Result], tmp_path: Path) -> None:
    model, cache = three_steps(tmp_path / "model.onnx"), tmp_path / "cache"

    def call(*arguments: object) -> Result:
        done = tbx(*arguments, model, "--cache-dir", cache, environment=PLANS)
        assert done.code == 0, done.err
        return done

    first, kept, again = call("run"), call("run"), call("run", "--no-kept-plans")
    assert "compiled in" in first.out and "started with a kept plan in" in kept.out and "compiled in" in again.out
    assert [line for line in kept.out.splitlines() if "kept plan" not in line] == [line for line in first.out.splitlines() if "compiled in" not in line]
    assert len(list(cache.glob("*.plan"))) == 1
    assert call("run", "--json").json["kept_plan"] and not call("run", "--json", "--no-kept-plans").json["kept_plan"]
    assert call("bench", "--json", "--repeat", "1").json["kept_plan"] and "started with a kept plan" in call("bench", "--repeat", "1").out
    explained, plain = call("explain").out, call("explain", "--no-kept-plans").out
    assert "started with a kept plan\n" in explained and explained.replace("started with a kept plan\n", "") == plain
    assert call("dump", "--stage", "schedule").out == call("dump", "--stage", "schedule", "--no-kept-plans").out


def test_other_sizes_are_other_plans(tbx: Callable[..., Result], tmp_path: Path) -> None:
    """--dim of a command that runs is a size of inputs, and of one that compiles a part of the model."""
    model, cache = three_steps(tmp_path / "model.onnx"), tmp_path / "cache"
    for size, kept in ((1, False), (4, True)):
        assert tbx("run", model, "--dim", f"batch={size}", "--cache-dir", cache, "--json", environment=PLANS).json["kept_plan"] == kept
    dumped = tbx("dump", model, "--dim", "batch=4", "--stage", "plan", "--cache-dir", cache, environment=PLANS)
    assert dumped.code == 0 and len(list(cache.glob("*.plan"))) == 1


def test_notes_are_those_of_a_compilation(tbx: Callable[..., Result], tmp_path: Path) -> None:
    model, cache = three_steps(tmp_path / "model.onnx"), tmp_path / "cache"
    said = [tbx("run", model, "--precision", "f16", "--cache-dir", cache, environment=PLANS).err for _ in range(2)]
    assert said[0] == said[1]
    (plan,) = cache.glob("*.plan")
    plan.write_bytes(b"damaged")
    done = tbx("run", model, "--precision", "f16", "--cache-dir", cache, environment=PLANS)
    assert done.code == 0 and "damaged" in done.err and "compiled anew" in done.err
