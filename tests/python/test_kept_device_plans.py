"""Kept plans of sessions on a device: the fake one, or with TBX_TEST_GPU the GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from kept_models import KINDS, F, check_reference, check_sums, facts, model_of, node, normal, product, report, same, summing
from onnx.reference import ReferenceEvaluator
from test_kept_plans import plan_files

tensorbox = pytest.importorskip("tensorbox")

HOST_ONLY = ("evaluated", "strict_sse")


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TBX_CACHE_PLANS", raising=False)
    monkeypatch.setenv("TBX_CACHE_DIR", str(tmp_path / "cache"))
    if os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def wide_product() -> tuple[onnx.ModelProto, np.ndarray]:
    """Weights of 16 MiB, which are 8 in a float of 16 bits."""
    weights = normal(2048, 2048)
    return model_of([node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])], {"x": (F, ["n", 2048])}, {"y": (F, ["n", 2048])}, w=weights), weights


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in HOST_ONLY])
def test_as_compiled(kind: str, tmp_path: Path) -> None:
    make, feeds, options = KINDS[kind]
    model = make()
    notes: dict[str, list[str]] = {"compiled": [], "kept": []}
    compiled = tensorbox.Session(model, device="cuda", keep_plans=False, log=notes["compiled"].append, **options)
    first = tensorbox.Session(model, device="cuda", **options)
    kept = tensorbox.Session(model, device="cuda", log=notes["kept"].append, **options)
    assert not first.stats.kept_plan and first.stats.not_kept == ""
    assert kept.stats.kept_plan and kept.stats.compiled_units == 0
    assert notes["kept"] == notes["compiled"]
    assert facts(kept) == facts(compiled)
    assert kept.stats.device_steps == compiled.stats.device_steps
    assert report(kept) == report(compiled)
    for feed in feeds:
        found = kept.run(feed)
        same(found, compiled.run(feed))
        check_reference(kind, model, feed, found)


@pytest.mark.parametrize("rows", [1, 0, 9])
def test_weights_of_16_bits_stay_in_the_model(rows: int, tmp_path: Path) -> None:
    model, weights = wide_product()
    sessions = [tensorbox.Session(model, device="cuda", precision="f16", dims={"n": rows}) for _ in range(2)]
    assert [s.stats.kept_plan for s in sessions] == [False, True]
    assert all(file.stat().st_size < 1 << 20 for file in plan_files(tmp_path))
    x = normal(rows, 2048)
    found = [s.run({"x": x})["y"] for s in sessions]
    np.testing.assert_array_equal(*found)
    halves = [a.astype(np.float16).astype(np.float64) for a in (x, weights)]
    np.testing.assert_allclose(found[0], np.maximum(halves[0] @ halves[1], 0), rtol=2e-3, atol=0.1)


@pytest.mark.parametrize("room", [{"state_capacity": 16}, {"state_capacity": 2, "state_limit": 64}])
def test_state(room: dict[str, int]) -> None:
    sessions = [tensorbox.Session(summing(), device="cuda", state={"past": "present"}, **room) for _ in range(2)]
    assert [s.stats.kept_plan for s in sessions] == [False, True]
    check_sums(sessions)


def test_the_device_is_in_the_key() -> None:
    for options in ({}, {"device": "cuda"}, {"device": "cuda", "precision": "tf32"}, {"device": "cuda", "precision": "f16"}):
        assert [tensorbox.Session(product(), **options).stats.kept_plan for _ in range(2)] == [False, True]


def test_plan_without_its_kernels(tmp_path: Path) -> None:
    x = normal(2, 64)
    wanted = ReferenceEvaluator(product()).run(None, {"x": x})[0]
    tensorbox.Session(product(), device="cuda")
    for file in (tmp_path / "cache").glob("*.so"):
        file.unlink()
    session = tensorbox.Session(product(), device="cuda")
    assert not session.stats.kept_plan and session.stats.compiled_units > 0
    np.testing.assert_allclose(session.run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
    assert tensorbox.Session(product(), device="cuda").stats.kept_plan


def test_errors_are_those_of_compiled_sessions() -> None:
    gather = model_of([node("Gather", ["x", "i"], ["g"]), node("Exp", ["g"], ["y"])], {"x": (F, ["n"]), "i": (onnx.TensorProto.INT64, ["k"])}, {"y": (F, ["k"])})
    said: list[Any] = []
    for _ in range(2):
        session = tensorbox.Session(gather, device="cuda")
        for feed in ({"x": normal(3), "i": np.array([5])}, {"x": normal(3, 2), "i": np.array([0])}, {"x": normal(3)}):
            with pytest.raises(tensorbox.Error) as e:
                session.run(feed)
            said.append(str(e.value))
    assert session.stats.kept_plan and said[:3] == said[3:]
