"""GroupQueryAttention of com.microsoft with caches that the session keeps (option state): against float64 loops over the
whole sequence, and against ONNX Runtime, which is handed its caches; on the CPU and on the fake device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
import tensorbox
from onnx import TensorProto, helper

HEADS, KV_HEADS, WIDTH = 4, 2, 16
STATE = {"past_*": "present_*"}


def angles(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    a = np.outer(np.arange(count), 100.0 ** (-np.arange(WIDTH // 2) / (WIDTH / 2)))
    return np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)


def model(batch: int = 2, lengths: str = "inputs", **attributes: Any) -> bytes:
    """`lengths`: seqlens_k and total_sequence_length are inputs, or come from a mask as exporters write it."""
    dtype = attributes.pop("dtype", TensorProto.FLOAT)
    cache_type = attributes.pop("cache_type", dtype)

    def info(name: str, *dims: int | str, kind: int = dtype) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [info("query", batch, "n", HEADS * WIDTH), info("key", batch, "n", KV_HEADS * WIDTH),
              info("value", batch, "n", KV_HEADS * WIDTH)]
    cos, sin = angles()
    constants = [onnx.numpy_helper.from_array(cos, "cos"), onnx.numpy_helper.from_array(sin, "sin")]
    nodes = []
    if lengths == "inputs":
        inputs += [info("seqlens", batch, kind=TensorProto.INT32), info("total", kind=TensorProto.INT32)]
    else:
        inputs.append(info("mask", batch, "all", kind=TensorProto.INT64))
        constants += [onnx.numpy_helper.from_array(np.array([1]), "one"), onnx.numpy_helper.from_array(np.array(1), "at")]
        nodes = [helper.make_node("ReduceSum", ["mask", "one"], ["seen"], keepdims=0), helper.make_node("Sub", ["seen", "one"], ["last"]),
                 helper.make_node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32), helper.make_node("Shape", ["mask"], ["shape"]),
                 helper.make_node("Gather", ["shape", "at"], ["length"]),
                 helper.make_node("Cast", ["length"], ["total"], to=TensorProto.INT32)]
    inputs += [info(f"past_{part}", batch, KV_HEADS, "past", WIDTH, kind=cache_type) for part in ("key", "value")]
    rotary = ["cos", "sin"] if attributes.get("do_rotary") else ["", ""]
    names = ["query", "key", "value", "past_key", "past_value", "seqlens", "total", *rotary]
    if "k_quant_type" in attributes:
        constants.append(onnx.numpy_helper.from_array(np.array([0.05], np.float32), "scale"))
        names += ["", "", "", "scale", "scale"]
    nodes.append(helper.make_node("GroupQueryAttention", names, ["out", "present_key", "present_value"], domain="com.microsoft",
                                  num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes))
    outputs = [info("out", batch, "n", HEADS * WIDTH)] + [
        info(f"present_{part}", batch, KV_HEADS, "longer", WIDTH, kind=cache_type) for part in ("key", "value")]
    graph = helper.make_graph(nodes, "gqa", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def heads(x: np.ndarray, count: int) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3).astype(np.float64)


def rotated(x: np.ndarray, positions: np.ndarray, interleaved: bool) -> np.ndarray:
    cos, sin = (t[positions].astype(np.float64) for t in angles())
    real, imaginary = (np.s_[..., 0::2], np.s_[..., 1::2]) if interleaved else (np.s_[..., :WIDTH // 2], np.s_[..., WIDTH // 2:])
    y, a, b = x.copy(), x[real], x[imaginary]
    y[real], y[imaginary] = a * cos - b * sin, b * cos + a * sin
    return y


class Loops:
    """Each batch entry by itself: all of its keys and values so far in float64."""

    def __init__(self, batch: int, **attributes: Any) -> None:
        self.keys = [np.zeros((KV_HEADS, 0, WIDTH)) for _ in range(batch)]
        self.values = [np.zeros((KV_HEADS, 0, WIDTH)) for _ in range(batch)]
        self.attributes = attributes

    def step(self, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        a, out = self.attributes, np.zeros(q.shape)
        q, k, v = heads(q, HEADS), heads(k, KV_HEADS), heads(v, KV_HEADS)
        for b in range(q.shape[0]):
            start, new = self.keys[b].shape[1], q.shape[2]
            positions = np.arange(start, start + new)
            qb, kb = q[b], k[b]
            if a.get("do_rotary"):
                qb, kb = (rotated(t, positions, bool(a.get("rotary_interleaved"))) for t in (qb, kb))
            self.keys[b] = np.concatenate([self.keys[b], kb], 1)
            self.values[b] = np.concatenate([self.values[b], v[b]], 1)
            for h in range(HEADS):
                shared = h // (HEADS // KV_HEADS)
                for i in range(new):
                    end = start + i + 1
                    first = max(0, end - a.get("local_window_size", end))
                    scores = self.keys[b][shared, first:end] @ qb[h, i] * a.get("scale", WIDTH ** -0.5)
                    if a.get("softcap"):
                        scores = a["softcap"] * np.tanh(scores / a["softcap"])
                    e = np.exp(scores)
                    p = e / (e.sum() + (1.0 if a.get("smooth_softmax") else 0.0))
                    out[b, i, h * WIDTH:(h + 1) * WIDTH] = p @ self.values[b][shared, first:end]
        return out


def feeds_of(n: int, start: int, batch: int, lengths: str, seed: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    g = np.random.default_rng(seed)
    feeds = {name: g.standard_normal((batch, n, count * WIDTH)).astype(dtype)
             for name, count in (("query", HEADS), ("key", KV_HEADS), ("value", KV_HEADS))}
    if lengths == "inputs":
        feeds |= {"seqlens": np.full(batch, start + n - 1, np.int32), "total": np.array(start + n, np.int32)}
    else:
        feeds["mask"] = np.ones((batch, start + n), np.int64)
    return feeds


def use_fake(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if device and os.environ.get("TBX_TEST_GPU") is None:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def session(made: bytes, device: str | None, **room: int) -> tensorbox.Session:
    where: dict[str, Any] = {"device": device} if device else {"compile": False}
    return tensorbox.Session(made, state=STATE, **room, **where)


FORMS = [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}, {"local_window_size": 3, "softcap": 4.0},
         {"smooth_softmax": 1, "scale": 0.5}]


@pytest.mark.parametrize("device", [None, "cuda"])
@pytest.mark.parametrize("lengths", ["inputs", "mask"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "+".join(form) or "plain")
@pytest.mark.parametrize("room", [{"state_capacity": 40}, {"state_capacity": 3, "state_limit": 40}, {}], ids=["fixed", "grows", "any"])
def test_tokens_follow_each_other(device: str | None, lengths: str, form: dict[str, Any], room: dict[str, int],
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake(device, monkeypatch)
    made = model(lengths=lengths, **form)
    kept = session(made, device, **room)
    assert not {"past_key", "past_value"} & {i.name for i in kept.inputs}
    assert [o.name for o in kept.outputs] == ["out"]
    plain = tensorbox.Session(made, compile=False)
    for _turn in range(2):
        loops, start = Loops(2, **form), 0
        past = {f"past_{part}": np.zeros((2, KV_HEADS, 0, WIDTH), np.float32) for part in ("key", "value")}
        for seed, n in enumerate([5, 1, 1, 3, 1, 1, 17, 1]):
            feeds = feeds_of(n, start, 2, lengths, seed)
            got = kept.run(feeds)["out"]
            np.testing.assert_allclose(got, loops.step(feeds["query"], feeds["key"], feeds["value"]), rtol=2e-5, atol=2e-5)
            want = plain.run(feeds | past)
            np.testing.assert_allclose(got, want["out"], rtol=2e-5, atol=2e-5)
            past = {name.replace("present", "past"): value for name, value in want.items() if name != "out"}
            start += n
            assert kept.state_length == start
        kept.set_state({})


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "+".join(form) or "plain")
def test_as_onnx_runtime_with_its_caches(form: dict[str, Any]) -> None:
    ort = pytest.importorskip("onnxruntime")
    made = model(**form)
    peer = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    kept = tensorbox.Session(made, compile=False, state=STATE, state_capacity=40)
    past = {f"past_{part}": np.zeros((2, KV_HEADS, 0, WIDTH), np.float32) for part in ("key", "value")}
    start = 0
    for seed, n in enumerate([6, 1, 1, 1]):
        feeds = feeds_of(n, start, 2, "inputs", seed)
        want = peer.run(None, feeds | past)
        np.testing.assert_allclose(kept.run(feeds)["out"], want[0], rtol=1e-4, atol=1e-5)
        past = {"past_key": want[1], "past_value": want[2]}
        start += n


@pytest.mark.parametrize("room", [{"state_capacity": 16}, {"state_capacity": 6, "state_limit": 16}], ids=["fixed", "grows"])
@pytest.mark.parametrize("device", [None, "cuda"])
def test_entries_of_different_lengths(device: str | None, room: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded prompt: the second entry has 3 tokens of 6, and goes on behind these."""
    use_fake(device, monkeypatch)
    kept = session(model(do_rotary=1), device, **room)
    long, short = Loops(1, do_rotary=1), Loops(1, do_rotary=1)
    feeds = feeds_of(6, 0, 2, "inputs", 1) | {"seqlens": np.array([5, 2], np.int32)}
    got = kept.run(feeds)["out"]
    q, k, v = (feeds[name] for name in ("query", "key", "value"))
    np.testing.assert_allclose(got[:1], long.step(q[:1], k[:1], v[:1]), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(got[1:, :3], short.step(q[1:, :3], k[1:, :3], v[1:, :3]), rtol=2e-5, atol=2e-5)
    for step in range(4):
        feeds = feeds_of(1, 6 + step, 2, "inputs", 9 + step) | {"seqlens": np.array([6 + step, 3 + step], np.int32)}
        got = kept.run(feeds)["out"]
        q, k, v = (feeds[name] for name in ("query", "key", "value"))
        np.testing.assert_allclose(got[:1], long.step(q[:1], k[:1], v[:1]), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(got[1:], short.step(q[1:], k[1:], v[1:]), rtol=2e-5, atol=2e-5)
    assert kept.state_length == 10


@pytest.mark.parametrize("room", [{"state_capacity": 16}, {"state_capacity": 4, "state_limit": 16}], ids=["fixed", "grows"])
def test_kernels_of_the_cpu(room: dict[str, int]) -> None:
    made = model(do_rotary=1, lengths="mask")
    kept, loops, start = tensorbox.Session(made, state=STATE, **room), Loops(2, do_rotary=1), 0
    for seed, n in enumerate([4, 1, 1, 3]):
        feeds = feeds_of(n, start, 2, "mask", seed)
        want = loops.step(feeds["query"], feeds["key"], feeds["value"])
        np.testing.assert_allclose(kept.run(feeds)["out"], want, rtol=2e-5, atol=2e-5)
        start += n


def test_caches_of_bytes() -> None:
    """8-bit caches with a scale: what a session gives that is handed its caches."""
    made = model(k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", kv_cache_bit_width=8, cache_type=TensorProto.INT8)
    kept, plain = tensorbox.Session(made, compile=False, state=STATE, state_capacity=12), tensorbox.Session(made, compile=False)
    past = {f"past_{part}": np.zeros((2, KV_HEADS, 0, WIDTH), np.int8) for part in ("key", "value")}
    start = 0
    for seed, n in enumerate([4, 1, 1]):
        feeds = feeds_of(n, start, 2, "inputs", seed)
        want = plain.run(feeds | past)
        np.testing.assert_allclose(kept.run(feeds)["out"], want["out"], rtol=1e-6, atol=1e-6)
        past = {"past_key": want["present_key"], "past_value": want["present_value"]}
        start += n


def test_halves_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake("cuda", monkeypatch)
    kept = tensorbox.Session(model(dtype=TensorProto.FLOAT16), device="cuda", state=STATE, state_capacity=16)
    loops, start = Loops(2), 0
    for seed, n in enumerate([5, 1, 1, 1, 2, 1]):
        feeds = feeds_of(n, start, 2, "inputs", seed, np.float16)
        want = loops.step(feeds["query"], feeds["key"], feeds["value"])
        np.testing.assert_allclose(kept.run(feeds)["out"], want, rtol=2e-2, atol=2e-2)
        start += n


def test_what_is_refused() -> None:
    with pytest.raises(tensorbox.UnsupportedError, match="sliding_window_cache.*option state"):
        tensorbox.Session(model(sliding_window_cache=1, local_window_size=4), compile=False, state=STATE, state_capacity=8)
    with pytest.raises(tensorbox.ModelError, match="'present_key' cannot be kept as the state 'past_key'"):
        tensorbox.Session(model(), compile=False, state={"past_key": "present_key"}, state_capacity=8)
    with pytest.raises(tensorbox.ModelError, match="cannot be kept"):
        tensorbox.Session(model(), compile=False, state={"past_key": "present_value", "past_value": "present_key"}, state_capacity=8)
    kept = tensorbox.Session(model(), compile=False, state=STATE, state_capacity=8)
    kept.run(feeds_of(3, 0, 2, "inputs", 0))
    with pytest.raises(tensorbox.ModelError, match="outside an axis"):
        kept.run(feeds_of(1, 3, 2, "inputs", 0) | {"seqlens": np.array([3, 9], np.int32)})
    assert kept.state_length == 3
    with pytest.raises(tensorbox.ModelError, match="room for 8"):
        kept.run(feeds_of(6, 3, 2, "inputs", 0))
    longer = tensorbox.Session(model(lengths="mask"), compile=False, state=STATE, state_capacity=8)
    with pytest.raises(tensorbox.ModelError, match="total_sequence_length"):
        longer.run(feeds_of(2, 1, 2, "mask", 0))
