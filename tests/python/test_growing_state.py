"""States whose memory grows as runs need it, against ONNX Runtime, which is handed its caches; on the CPU and on the fake
device."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorbox
from onnx import TensorProto, helper
from test_state import HEADS, STATE, WIDTH, decoder, tokens

ort = pytest.importorskip("onnxruntime")

BYTES = HEADS * WIDTH * 4  # of one token in one of the four caches


class Reference:
    """ONNX Runtime with caches as inputs and outputs."""

    def __init__(self, model: bytes, batch: int = 1, dtype: type = np.float32) -> None:
        self.session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        self.none = {i.name: np.zeros((batch, HEADS, 0, WIDTH), dtype) for i in self.session.get_inputs() if i.name != "x"}
        self.past = dict(self.none)

    def step(self, x: np.ndarray) -> np.ndarray:
        made = dict(zip(self.names, self.session.run(None, {"x": x, **self.past}), strict=True))
        self.past = {name.replace("present", "past"): value for name, value in made.items() if name != "x1"}
        return made["x1"]

    def length(self) -> int:
        return self.past["past.0.k"].shape[2]


def use_fake(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def follow(kept: tensorbox.Session, reference: Reference, steps: Sequence[int], batch: int = 1, dtype: type = np.float32) -> None:
    tolerance = dict(rtol=2e-2, atol=2e-2) if dtype == np.float16 else dict(rtol=1e-4, atol=1e-5)
    for seed, n in enumerate(steps):
        x = tokens(n, batch, dtype, seed)
        got, before = kept.run({"x": x})["x1"], reference.length()
        np.testing.assert_allclose(got, reference.step(x), **tolerance, err_msg=f"{n} tokens behind {before}")
        assert kept.state_length == reference.length() == before + n


WHERE = [(None, False, True), (None, False, False), ("cuda", False, True), ("cuda", True, True)]


@pytest.mark.parametrize("device, half, compiled", WHERE)
@pytest.mark.parametrize("steps", [
    [0, 1, 3, 1, 1, 3, 1, 1, 0, 8, 1, 1],  # to 4, 5, 6, 9, 10, 11, 19, 20, 21: rooms for 5, 10, 20, 40
    [5, 1, 4, 1, 60, 1, 0, 7],  # full, one more, full, one more, a prompt of more than twice the room
    [6], [77, 1], [0, 0, 1],
])
def test_borders(steps: list[int], device: str | None, half: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(device, monkeypatch)
    dtype, kind = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    model = decoder(dtype=kind)
    kept = tensorbox.Session(model, device=device, compile=compiled, state=STATE, state_capacity=5, state_limit=1000)
    reference = Reference(model, dtype=dtype)
    for _turn in range(2):
        follow(kept, reference, steps, dtype=dtype)
        kept.set_state({})
        reference.past = dict(reference.none)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_without_a_capacity(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token after token past 256, 512 and 1,024, in batches."""
    use_fake(device, monkeypatch)
    model = decoder(batch="batch")
    kept = tensorbox.Session(model, device=device, dims={"batch": 2}, state=STATE)
    follow(kept, Reference(model, 2), [0, 1, 250, *[1] * 9, 248, *[1] * 8, 505, *[1] * 6, 0, 1100, 1], batch=2)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_the_limit(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run beyond it changes nothing: shorter ones, and others after a reset, go on."""
    use_fake(device, monkeypatch)
    model = decoder()
    kept, reference = tensorbox.Session(model, device=device, state=STATE, state_limit=300), Reference(model)
    follow(kept, reference, [298])
    with pytest.raises(tensorbox.ModelError, match=r"state 'past.0.k' has a length of 298 and room for 300, and would need "
                                                   r"room for 301: its limit is 300 \(option state_limit\).*set_state"):
        kept.run({"x": tokens(3)})
    with pytest.raises(tensorbox.ModelError, match="limit is 300"):
        kept.set_state({name: np.zeros((1, HEADS, 301, WIDTH), np.float32) for name in reference.none})
    assert kept.state_length == 298
    follow(kept, reference, [1, 1, 0])
    kept.set_state({})
    reference.past = dict(reference.none)
    follow(kept, reference, [300])


@pytest.mark.parametrize("device", [None, "cuda"])
def test_memory_is_a_limit(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near max_memory the room grows by less, to the last token; the run's own memory counts, too."""
    use_fake(device, monkeypatch)
    model = decoder()
    most = 4 * BYTES * 400 + (128 << 10)
    kept, reference = tensorbox.Session(model, device=device, state=STATE, max_memory=most), Reference(model)
    follow(kept, reference, [64] * 4)
    length = 256
    while length < 2000:
        x = tokens(1, seed=length)
        try:
            got = kept.run({"x": x})["x1"]
        except tensorbox.ModelError as e:
            message = str(e)
            break
        np.testing.assert_allclose(got, reference.step(x), rtol=1e-4, atol=1e-5)
        length += 1
    assert 400 < length < 400 + (128 << 10) // (4 * BYTES)
    assert re.search(rf"state 'past.0.k' has a length of {length} and room for {length}, and would need room for {length + 1}: all states "
                     rf"would take {4 * BYTES * (length + 1)} bytes.*limit is {most} \(option max_memory\).*set_state", message), message
    assert kept.state_length == length
    with pytest.raises(tensorbox.ModelError, match="option max_memory"):
        kept.run({"x": tokens(1)})
    follow(kept, reference, [0])  # what was there is there
    kept.set_state({})
    reference.past = dict(reference.none)
    follow(kept, reference, [3, 1])
    with pytest.raises(tensorbox.ModelError, match=rf"takes {4 * BYTES * 100} bytes of memory, the limit is 1000 \(option max_memory\)"):
        tensorbox.Session(model, device=device, state=STATE, state_capacity=100, state_limit=200, max_memory=1000)


@pytest.mark.parametrize("device", [None, "cuda"])
def test_bad_runs_move_nothing(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(device, monkeypatch)
    model = decoder()
    kept, reference = tensorbox.Session(model, device=device, state=STATE, state_capacity=2, state_limit=64), Reference(model)
    follow(kept, reference, [2])
    for bad in (np.zeros((1, 9, 7), np.float32), np.zeros((2, 9, HEADS * WIDTH), np.float32), np.zeros((1, 9, HEADS * WIDTH))):
        with pytest.raises((tensorbox.ModelError, TypeError)):
            kept.run({"x": bad})
        assert kept.state_length == 2
    follow(kept, reference, [1, 1])


@pytest.mark.parametrize("device", [None, "cuda"])
def test_state_is_set_longer(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(device, monkeypatch)
    model = decoder()
    kept, reference, other = tensorbox.Session(model, device=device, state=STATE, state_capacity=3, state_limit=90), Reference(model), Reference(model)
    follow(kept, reference, [2])
    other.step(tokens(40, seed=3))
    wrong = dict(other.past) | {"past.1.v": other.past["past.1.v"].astype(np.float64)}
    with pytest.raises(tensorbox.ModelError, match="past.1.v"):
        kept.set_state(wrong)
    follow(kept, reference, [1, 1])  # as if nothing had been given
    kept.set_state(other.past)
    follow(kept, other, [1, 40, 0, 1])


def test_no_copy_of_what_is_there() -> None:
    """The plan writes what is new alone; its strides are of the room, a symbol for each state. Fixed ones are numbers."""
    model = decoder()
    grows, fixed = (tensorbox.Session(model, state=STATE, **how).dump("plan") for how in ({}, {"state_capacity": 64}))
    assert "output: present" not in grows and "carries caches" not in grows
    assert "bind: room(past.0.k) = room along dimension 2 of input 1" in grows and "1, 3, room(past.0.k), 8" in grows
    assert "room(" not in fixed and "1, 3, 64, 8" in fixed

    def kernels(plan: str) -> list[str]:
        return [line for line in plan.splitlines() if re.match(r"\d+: ", line)]

    assert len(kernels(grows)) == len(kernels(fixed))


def test_names_that_the_model_has() -> None:
    """A dimension may be called as the room of a state."""
    node = helper.make_node("Concat", ["rows", "x"], ["longer"], axis=0)
    total = helper.make_node("ReduceSum", ["longer", "axes"], ["y"], keepdims=0)

    def info(name: str, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    graph = helper.make_graph([node, total], "g", [info("x", "room(rows)", 2), info("rows", "past", 2)], [info("y", 2), info("longer", "all", 2)],
                              [onnx.numpy_helper.from_array(np.array([0]), "axes")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    kept = tensorbox.Session(model, state={"rows": "longer"}, state_capacity=1, state_limit=50)
    for n in (1, 1, 7, 0, 20):
        kept.run({"x": np.full((n, 2), 3, np.float32)})
    np.testing.assert_array_equal(kept.run({"x": np.zeros((0, 2), np.float32)})["y"], [87, 87])


@pytest.mark.parametrize("device", [None, "cuda"])
def test_states_grow_apart(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by a column a run, one by three rows for each of the input's."""
    use_fake(device, monkeypatch)

    def info(name: str, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)

    nodes = [helper.make_node("Concat", ["rows", "x", "x", "x"], ["more_rows"], axis=0),
             helper.make_node("ReduceSum", ["x", "first"], ["column"], keepdims=1),
             helper.make_node("Transpose", ["column"], ["upright"]),
             helper.make_node("Concat", ["columns", "upright"], ["more_columns"], axis=1),
             helper.make_node("ReduceSum", ["more_rows", "first"], ["of_rows"], keepdims=0),
             helper.make_node("ReduceMax", ["more_columns", "second"], ["of_columns"], keepdims=0)]
    constants = [onnx.numpy_helper.from_array(np.array([0]), "first"), onnx.numpy_helper.from_array(np.array([1]), "second")]
    graph = helper.make_graph(nodes, "g", [info("x", "n", 2), info("rows", "r", 2), info("columns", 2, "c")],
                              [info("of_rows", 2), info("of_columns", 2), info("more_rows", "rr", 2), info("more_columns", 2, "cc")], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    theirs = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    kept = tensorbox.Session(model, device=device, state={"rows": "more_rows", "columns": "more_columns"}, state_capacity=1, state_limit=5000)
    past = {"rows": np.zeros((0, 2), np.float32), "columns": np.zeros((2, 0), np.float32)}
    for seed, n in enumerate([1, 0, 1, 5, 1, 1, 100, 1, 1, 1, 1, 1]):
        x = np.random.default_rng(seed).standard_normal((n, 2)).astype(np.float32)
        got, want = kept.run({"x": x}), theirs.run(None, {"x": x, **past})
        np.testing.assert_allclose(got["of_rows"], want[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got["of_columns"], want[1], rtol=1e-5, atol=1e-6)
        past = {"rows": want[2], "columns": want[3]}
    assert past["columns"].shape == (2, 12) and past["rows"].shape == (342, 2)


@pytest.mark.parametrize("compiled", [True, False])
def test_packages(tmp_path: Path, compiled: bool) -> None:
    """Sessions of one package grow by themselves, and have the limit it was made with."""
    model = decoder()
    made = tensorbox.Session(model, state=STATE, state_capacity=4, state_limit=30)
    made.save(tmp_path / "decoder.tbx")
    loaded = [tensorbox.Session(tmp_path / "decoder.tbx", compile=compiled) for _ in range(2)]
    assert "option: state past.*=present.*, capacity 4 to 30" in loaded[0].dump("plan")
    references = [Reference(model), Reference(model)]
    follow(loaded[0], references[0], [3, 1, 1, 12, 1])
    follow(loaded[1], references[1], [1])
    follow(loaded[0], references[0], [1, 11])
    for session in (made, loaded[0]):
        with pytest.raises(tensorbox.ModelError, match="limit is 30"):
            session.run({"x": tokens(31)})
    tensorbox.Session(model, state=STATE).save(tmp_path / "any.tbx")
    any_length = tensorbox.Session(tmp_path / "any.tbx", compile=compiled, max_memory=4 * BYTES * 800)
    assert "capacity grows" in any_length.dump("plan")
    follow(any_length, Reference(model), [300, 1])
    with pytest.raises(tensorbox.ModelError, match="max_memory"):
        any_length.run({"x": tokens(700)})


@pytest.mark.parametrize("arguments, message", [
    (dict(state_capacity=4), "state_capacity is given without the option state"),
    (dict(state_limit=4), "state_limit is given without the option state"),
    (dict(state=STATE, state_capacity=5, state_limit=4), "state_capacity is 5, which is more than the option state_limit, 4"),
    (dict(state=STATE, state_limit=-1), "neither is negative"),
])
def test_refusals(arguments: dict, message: str) -> None:
    with pytest.raises((tensorbox.ModelError, ValueError), match=message):
        tensorbox.Session(decoder(), **arguments)
