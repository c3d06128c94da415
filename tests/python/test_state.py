"""Inputs that a session keeps between runs: caches of decoders in place, on the CPU and on the fake device."""

from __future__ import annotations

import os
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox

HEADS, WIDTH = 3, 8


def decoder(batch: int | str = 1, dtype: int = TensorProto.FLOAT, layers: int = 2, append: bool = True) -> bytes:
    """Tokens [batch, n, HEADS * WIDTH]; each layer appends its keys and values to what came before and attends to all."""
    nodes, inputs, outputs, constants = [], [], [], []
    rng = np.random.default_rng(5)
    halves = np.float16 if dtype == TensorProto.FLOAT16 else np.float32

    def weight(name: str, *shape: int) -> str:
        constants.append(onnx.numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(halves), name))
        return name

    constants.append(onnx.numpy_helper.from_array(np.array([0, 0, HEADS, WIDTH]), "split"))
    constants.append(onnx.numpy_helper.from_array(np.array([0, 0, HEADS * WIDTH]), "merge"))
    inputs.append(helper.make_tensor_value_info("x", dtype, [batch, "n", HEADS * WIDTH]))
    x = "x"
    for i in range(layers):
        heads = {}
        for part in "qkv":
            nodes += [helper.make_node("MatMul", [x, weight(f"w{part}{i}", HEADS * WIDTH, HEADS * WIDTH)], [f"{part}{i}m"]),
                      helper.make_node("Reshape", [f"{part}{i}m", "split"], [f"{part}{i}r"]),
                      helper.make_node("Transpose", [f"{part}{i}r"], [f"{part}{i}t"], perm=[0, 2, 1, 3])]
            heads[part] = f"{part}{i}t"
        for part in "kv":
            past, present = f"past.{i}.{part}", f"present.{i}.{part}"
            inputs.append(helper.make_tensor_value_info(past, dtype, [batch, HEADS, "past", WIDTH]))
            outputs.append(helper.make_tensor_value_info(present, dtype, [batch, HEADS, "total", WIDTH]))
            order = [past, heads[part]] if append else [heads[part], past]
            nodes.append(helper.make_node("Concat", order, [present], axis=2))
        nodes += [helper.make_node("Transpose", [f"present.{i}.k"], [f"kt{i}"], perm=[0, 1, 3, 2]),
                  helper.make_node("MatMul", [heads["q"], f"kt{i}"], [f"s{i}"]),
                  helper.make_node("Softmax", [f"s{i}"], [f"p{i}"], axis=-1),
                  helper.make_node("MatMul", [f"p{i}", f"present.{i}.v"], [f"o{i}"]),
                  helper.make_node("Transpose", [f"o{i}"], [f"ot{i}"], perm=[0, 2, 1, 3]),
                  helper.make_node("Reshape", [f"ot{i}", "merge"], [f"om{i}"]),
                  helper.make_node("MatMul", [f"om{i}", weight(f"wo{i}", HEADS * WIDTH, HEADS * WIDTH)], [f"op{i}"]),
                  helper.make_node("Add", [x, f"op{i}"], [f"x{i}"])]
        x = f"x{i}"
    outputs.insert(0, helper.make_tensor_value_info(x, dtype, [batch, "n", HEADS * WIDTH]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


STATE = {"past.*": "present.*"}


def tokens(n: int, batch: int = 1, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, n, HEADS * WIDTH)).astype(dtype)


def empty(session: tensorbox.Session, batch: int = 1, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {i.name: np.zeros((batch, HEADS, 0, WIDTH), dtype) for i in session.inputs if i.name != "x"}


@pytest.mark.parametrize("device, half", [(None, False), ("cuda", False), ("cuda", True)])
def test_runs_append(device: str | None, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step gives what a session gives that is handed its caches, whatever the number of new tokens."""
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    dtype = np.float16 if half else np.float32
    model = decoder(dtype=TensorProto.FLOAT16 if half else TensorProto.FLOAT)
    plain, kept = tensorbox.Session(model), tensorbox.Session(model, device=device, state=STATE, state_capacity=40)
    assert [i.name for i in kept.inputs] == ["x"] and [o.name for o in kept.outputs] == ["x1"]
    for start in range(2):
        past = empty(plain, dtype=dtype)
        for step, n in enumerate([5, 1, 1, 0, 3, 1, 17, 1]):
            assert kept.state_length == past["past.0.k"].shape[2]
            x = tokens(n, dtype=dtype, seed=step)
            want = plain.run({"x": x, **past})
            got = kept.run({"x": x})
            assert list(got) == ["x1"]
            np.testing.assert_allclose(got["x1"], want["x1"], rtol=2e-2 if half else 1e-4, atol=2e-2 if half else 1e-4)
            past = {name.replace("present", "past"): value for name, value in want.items() if name != "x1"}
        kept.set_state({})
        assert start < 2 and kept.state_length == 0


@pytest.mark.parametrize("half", [False, True])
def test_attention_appends_one_token(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs are known to have one token, attention stores it: no kernel of its own does."""
    if os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    dtype = np.float16 if half else np.float32
    model = decoder(dtype=TensorProto.FLOAT16 if half else TensorProto.FLOAT)
    plain = tensorbox.Session(model)
    kept = tensorbox.Session(model, device="cuda", dims={"n": 1}, state=STATE, state_capacity=600)
    plan = kept.dump("plan")
    assert len(re.findall(r"Attention.* appends", plan)) == 2
    assert "past" not in "".join(line for line in plan.splitlines() if "tasks" in line)
    past = empty(plain, dtype=dtype)
    tolerance = dict(rtol=2e-2, atol=2e-2) if half else dict(rtol=1e-4, atol=1e-5)
    for step in range(300):
        x = tokens(1, dtype=dtype, seed=step)
        got, want = kept.run({"x": x}), plain.run({"x": x, **past})
        np.testing.assert_allclose(got["x1"], want["x1"], **tolerance)
        past = {name.replace("present", "past"): value for name, value in want.items() if name != "x1"}
    assert kept.state_length == 300


@pytest.mark.parametrize("device", [None, "cuda"])
def test_state_is_set(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another session computed goes on here; batches by the option dims."""
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    model = decoder(batch="batch")
    plain = tensorbox.Session(model)
    kept = tensorbox.Session(model, device=device, dims={"batch": 2}, state=STATE, state_capacity=9)
    first = plain.run({"x": tokens(7, 2), **empty(plain, 2)})
    past = {name.replace("present", "past"): value for name, value in first.items() if name != "x1"}
    kept.set_state(past)
    assert kept.state_length == 7
    x = tokens(1, 2, seed=1)
    np.testing.assert_allclose(kept.run({"x": x})["x1"], plain.run({"x": x, **past})["x1"], rtol=1e-4, atol=1e-5)
    kept.run({"x": x})
    with pytest.raises(tensorbox.ModelError, match="room for 9.*state_capacity"):
        kept.run({"x": x})
    assert kept.state_length == 9
    with pytest.raises(tensorbox.ModelError, match="room for"):
        kept.set_state({name: np.zeros((2, HEADS, 10, WIDTH), np.float32) for name in past})
    with pytest.raises(tensorbox.ModelError, match="'past.0.v' is missing"):
        kept.set_state({"past.0.k": past["past.0.k"]})
    with pytest.raises(tensorbox.ModelError, match="different lengths"):
        kept.set_state({**past, "past.1.v": past["past.1.v"][:, :, :3]})
    with pytest.raises(tensorbox.ModelError, match="no state"):
        kept.set_state({"x": x})


def causal_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Heads [1, H, S, D] beside fewer of keys, in float64; the last query sees all keys."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    seen = np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    weights = np.exp(np.where(seen, scores - scores.max(-1, keepdims=True), -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("device", "half"), [(None, False), ("cuda", False), ("cuda", True)])
@pytest.mark.parametrize("operator", ["Attention", "MultiHeadAttention"])
def test_attention_with_a_past(operator: str, device: str | None, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that take and give caches themselves."""
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    dtype, kind = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)

    def info(name: str, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [1, *dims])

    caches = [info("past_k", 2, "p", 8), info("past_v", 2, "p", 8)], [info("present_k", 2, "t", 8), info("present_v", 2, "t", 8)]
    if operator == "Attention":
        heads, ours = 4, [info("q", 4, "n", 8), info("k", 2, "n", 8), info("v", 2, "n", 8)]
        node = helper.make_node(operator, ["q", "k", "v", "", "past_k", "past_v"], ["y", "present_k", "present_v"], is_causal=1)
    else:  # of ONNX Runtime: tokens [1, n, heads * width]
        heads, ours = 2, [info(name, "n", 16) for name in "qkv"]
        node = helper.make_node(operator, ["q", "k", "v", "", "", "", "past_k", "past_v"], ["y", "present_k", "present_v"],
                                domain="com.microsoft", num_heads=2, unidirectional=1)
    graph = helper.make_graph([node], "g", ours + caches[0], [helper.make_tensor_value_info("y", kind, None), *caches[1]])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    kept = tensorbox.Session(model, device=device, state={"past_*": "present_*"}, state_capacity=16)
    past = {part: np.zeros((1, 2, 0, 8), dtype) for part in "kv"}
    tolerance = dict(rtol=2e-3, atol=2e-3) if half else dict(rtol=1e-5, atol=1e-6)
    for step, n in enumerate([3, 1, 1, 4]):
        rng = np.random.default_rng(step)
        x = {name: rng.standard_normal((1, count, n, 8)).astype(dtype) for name, count in (("q", heads), ("k", 2), ("v", 2))}
        past = {part: np.concatenate([past[part], x[part]], axis=2) for part in "kv"}
        want = causal_attention(x["q"], past["k"], past["v"])
        if operator == "Attention":
            got = kept.run(x)["y"]
        else:
            flat = {name: value.swapaxes(1, 2).reshape(1, n, 16) for name, value in x.items()}
            got = kept.run(flat)["y"].reshape(1, n, 2, 8).swapaxes(1, 2)
        np.testing.assert_allclose(got, want, **tolerance)
    assert kept.state_length == 9


def test_nothing_but_new_tokens_is_written() -> None:
    """No kernel copies what was there: the caches are in one buffer, which is written in part."""
    plan = tensorbox.Session(decoder(), state=STATE, state_capacity=64).dump("plan")
    assert "1, 3, 64, 8" in plan and "output: present" not in plan
    writers = [line for line in plan.splitlines() if re.search(r"\bb[1-4] written", line)]
    assert len(writers) == 2 and all("past" not in line.split("tasks")[1] for line in writers)
    whole = tensorbox.Session(decoder()).dump("plan")
    assert "carries caches" not in plan and whole.count("carries caches") == 2


def test_packages_keep_state(tmp_path) -> None:
    model = decoder()
    made = tensorbox.Session(model, state=STATE, state_capacity=16)
    file = tmp_path / "decoder.tbx"
    made.save(file)
    loaded = tensorbox.Session(file)
    for step in range(3):
        x = tokens(2, seed=step)
        np.testing.assert_array_equal(loaded.run({"x": x})["x1"], made.run({"x": x})["x1"])
    assert loaded.state_length == 6


@pytest.mark.parametrize("arguments, message", [
    (dict(state={"nothing": "present.0.k"}, state_capacity=4), "names the input 'nothing'"),
    (dict(state={"past.0.k": "nothing"}, state_capacity=4), "names the output 'nothing'"),
    (dict(state={"past.*": "present"}, state_capacity=4), r"a \* stands on both sides"),
    (dict(state={"past.0.k": "x1"}, state_capacity=4), "cannot be kept"),
])
def test_refusals(arguments: dict, message: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(decoder(), **arguments)


def test_what_is_no_appending_is_refused() -> None:
    with pytest.raises(tensorbox.ModelError, match="not the input with something appended"):
        tensorbox.Session(decoder(append=False), state=STATE, state_capacity=4)
    with pytest.raises(tensorbox.UnsupportedError, match="float32 copies"):
        tensorbox.Session(decoder(dtype=TensorProto.FLOAT16), state=STATE, state_capacity=4)
    with pytest.raises(tensorbox.ModelError, match="dimension 0 of the state .* dims"):
        tensorbox.Session(decoder(batch="batch"), state=STATE, state_capacity=4)
    with pytest.raises(tensorbox.ModelError, match="keeps no state"):
        tensorbox.Session(decoder()).set_state({})


@pytest.mark.parametrize("device", [None, "cuda"])
def test_shapes_that_follow_each_other(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of runs take over what other sizes leave as it was: a session of many shapes gives what fresh ones give."""
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    model = decoder(batch="batch")
    session = tensorbox.Session(model, device=device)
    rng = np.random.default_rng(3)
    past, n, batch = 3, 2, 1
    for turn in range(24):  # one size changes at a time, by little and by much
        which = turn % 3
        if which == 0:
            past = int(rng.choice([past + 1, 0, 70, 1]))
        elif which == 1:
            n = int(rng.choice([n + 1, 1, 20, 0]))
        else:
            batch = int(rng.choice([batch + 1, 1, 5]))
        feeds = {"x": tokens(n, batch, seed=turn)} | {
            i.name: rng.standard_normal((batch, HEADS, past, WIDTH)).astype(np.float32) for i in session.inputs if i.name != "x"}
        fresh = tensorbox.Session(model, compile=False) if not device else tensorbox.Session(model)
        got, want = session.run(feeds), fresh.run(feeds)
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=1e-3, atol=1e-4, err_msg=f"{name}: {batch} x {past} + {n}")
