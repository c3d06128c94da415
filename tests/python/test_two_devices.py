"""Sessions on two GPUs side by side: on the fake device, and on those of the machine where it has two (TBX_TEST_GPU)."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import tensorbox
from tensorbox import _core

from test_device import mlp
from test_state import STATE, decoder, tokens

DEVICES = ("cuda:0", "cuda:1")


@pytest.fixture(autouse=True)
def _two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    if problem := _core.device_problem("cuda:1"):
        pytest.skip(problem)


def inputs(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> bytes:
    return mlp()


def test_both_run(model: bytes) -> None:
    """In turns, each with shapes of its own, which graphs are recorded for on both."""
    plain = tensorbox.Session(model)
    sessions = [tensorbox.Session(model, device=d) for d in DEVICES]
    for turn in range(4):
        for i, session in enumerate(sessions):
            for rows in (1, 5 + i):
                x = inputs(rows, turn)
                np.testing.assert_allclose(session.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_threads(model: bytes) -> None:
    """Callers of both at once: the current device of a thread is that of its session."""
    plain = tensorbox.Session(model)
    sessions = [tensorbox.Session(model, device=d) for d in DEVICES]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(6):
                session = sessions[(number + turn) % 2]
                x = inputs(1 + (number + turn) % 3, number)
                y = session.run({"x": x}, outputs="device")["y"]
                assert y.__dlpack_device__()[1] == (number + turn) % 2
                np.testing.assert_allclose(y.numpy(), plain.run({"x": x})["y"], rtol=1e-4, atol=1e-5)
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed[0]


def test_tensors_of_the_other(model: bytes) -> None:
    """Memory of another GPU is refused by name, for inputs, outputs and states; a copy there is taken."""
    here, there = (tensorbox.Session(model, device=d) for d in DEVICES)
    x = inputs(3)
    y = here.run({"x": x}, outputs="device")["y"]
    for given in (tensorbox.to_device(x, "cuda:0"), y):
        with pytest.raises(tensorbox.ModelError, match="in memory of cuda:0, the session runs on cuda:1"):
            there.run({"x": given})
    copy = tensorbox.to_device(x, "cuda:1")
    want = here.run({"x": x})["y"]
    np.testing.assert_allclose(there.run({"x": copy})["y"], want, rtol=1e-5, atol=1e-6)
    out = tensorbox.to_device(np.zeros_like(want), "cuda:0")
    with pytest.raises(tensorbox.ModelError, match="output 'y' is in memory of cuda:0"):
        there.run({"x": copy}, out={"y": out})
    here.run({"x": x}, out={"y": out})
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-6)


def test_states() -> None:
    """Each session has its state on its own GPU."""
    sessions = [tensorbox.Session(decoder(), device=d, state=STATE, state_capacity=16) for d in DEVICES]
    plain = [tensorbox.Session(decoder(), state=STATE, state_capacity=16) for _ in DEVICES]
    for step in range(3):
        for i in (0, 1):
            x = tokens(2, seed=step + 10 * i)
            np.testing.assert_allclose(sessions[i].run({"x": x})["x1"], plain[i].run({"x": x})["x1"], rtol=1e-4, atol=1e-4)
    past = {f"past.{layer}.{part}": np.zeros((1, 3, 2, 8), np.float32) for layer in range(2) for part in "kv"}
    past["past.0.k"] = tensorbox.to_device(past["past.0.k"], "cuda:0")
    with pytest.raises(tensorbox.ModelError, match="cuda:0"):
        sessions[1].set_state(past)
    sessions[0].set_state(past)
    assert (sessions[0].state_length, sessions[1].state_length) == (2, 6)


def test_packages(model: bytes, tmp_path) -> None:
    """What was compiled on one runs on the other."""
    made = tensorbox.Session(model, device="cuda:0")
    made.save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx", device="cuda:1")
    x = inputs(4)
    np.testing.assert_allclose(loaded.run({"x": x})["y"], made.run({"x": x})["y"], rtol=1e-5, atol=1e-6)
    assert loaded.run({"x": x}, outputs="device")["y"].__dlpack_device__()[1] == 1
