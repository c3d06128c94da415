"""GroupQueryAttention with a cache of the last tokens only (sliding_window_cache): against the whole sequence at once
in numpy, and against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from peers import expected, tensorbox
from test_microsoft_attention import GQA, OUTPUTS, Array, cache, heads, joined, model, randn, rng, rotate, softmax

N, KV, D = 4, 2, 16


def used(total: int, capacity: int, window: int) -> int:
    """How many of `total` tokens are in the cache, as the operator's description says."""
    lost = capacity - window + 1
    return total if total <= capacity else total - lost * -(-(total - capacity) // lost)


def inputs_of(past: tuple[Array, ...], new: Sequence[Array], totals: Sequence[int],
              bias: Array | None = None) -> dict[str, Array | None]:
    cos, sin = cache(64, D // 2)
    return {
        **dict(zip(("query", "key", "value"), new)), "past_key": past[0], "past_value": past[1],
        "seqlens": np.array(totals, np.int32) - 1, "total": np.array(max(totals), np.int32), "cos": cos, "sin": sin,
        **({} if bias is None else {"positions": None, "bias": bias}),
    }


@pytest.mark.parametrize("capacity", [4, 5, 9])
@pytest.mark.parametrize("steps", [[6, 1, 1, 1, 1, 1, 1, 1, 1], [3, 1, 12, 2], [1] * 14, [14, 1]], ids=str)
@pytest.mark.parametrize("extra", ["", "bias"])
def test_steps_give_the_whole_sequence(capacity: int, steps: list[int], extra: str) -> None:
    window, size, g = 4, sum(steps), rng(capacity)
    q, k, v = (randn(g, 1, size, n * D) for n in (N, KV, KV))
    bias = randn(g, 1, N, size, size) if extra else None
    turned = [rotate(heads(x, n), *cache(64, D // 2), np.arange(size)[None], False) for x, n in ((q, N), (k, KV))]
    far = np.arange(size)[:, None] - np.arange(size)[None]
    scores = turned[0] @ np.repeat(turned[1], N // KV, 1).swapaxes(2, 3) / 4 + (0 if bias is None else bias)
    scores = np.where((far >= 0) & (far < window), scores, -np.inf)
    want = joined(softmax(scores) @ np.repeat(heads(v, KV), N // KV, 1))

    garbage = np.full((1, KV, capacity, D), np.nan, np.float32)
    sessions: dict[int, Any] = {}
    past, begin = (garbage, garbage.copy()), 0
    for step in steps:
        end = begin + step
        inputs = inputs_of(past, [x[:, begin:end] for x in (q, k, v)], [end],
                           None if bias is None else np.ascontiguousarray(bias[:, :, begin:end, :end]))
        m = model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=1, local_window_size=window, sliding_window_cache=1,
                  **GQA)
        if step not in sessions:
            sessions[step] = tensorbox.Session(m, compile=False, all_dims_dynamic=True)
        got = sessions[step].run({key: value for key, value in inputs.items() if value is not None})
        np.testing.assert_allclose(got["out"], want[:, begin:end], 1e-4, 1e-5)
        rows = used(end, capacity, window)
        for name, whole in (("present_key", turned[1]), ("present_value", heads(v, KV))):
            assert got[name].shape == garbage.shape
            np.testing.assert_allclose(got[name][:, :, :rows], whole[:, :, end - rows : end], 1e-5, 1e-6)
        past, begin = (got["present_key"], got["present_value"]), end


@pytest.mark.parametrize("capacity", [6, 8])
@pytest.mark.parametrize("queries,totals", [(5, [5, 5]), (9, [9, 9]), (1, [20, 4]), (1, [9, 31])])
@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_ragged_batches(capacity: int, queries: int, totals: list[int], kind: str) -> None:
    g, window, attributes = rng(queries), 6, {}
    past = tuple(randn(g, 2, KV, capacity, D) for _ in range(2))
    new = [randn(g, 2, queries, n * D) for n in (N, KV, KV)]
    if kind == "float16":
        past, new = tuple(x.astype(np.float16) for x in past), [x.astype(np.float16) for x in new]
    inputs = inputs_of(past, new, totals)
    if kind == "float16":
        inputs |= {key: inputs[key].astype(np.float16) for key in ("cos", "sin")}
    if kind == "int8":
        inputs |= {key: g.integers(-128, 128, past[0].shape).astype(np.int8) for key in ("past_key", "past_value")}
        inputs |= {"positions": None, "bias": None, "sink": None, "k_scale": np.array([0.02], np.float32),
                   "v_scale": np.array([0.03], np.float32)}
        attributes = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
    m = model("GroupQueryAttention", inputs, OUTPUTS, do_rotary=1, local_window_size=window, sliding_window_cache=1,
              **GQA, **attributes)
    if kind == "int8":
        for info in m.graph.output[1:]:
            info.type.tensor_type.elem_type = onnx.TensorProto.INT8
    feeds = {key: value for key, value in inputs.items() if value is not None}
    want = expected(m, feeds, "ort")
    for dynamic in (False, True):
        got = tensorbox.Session(m, compile=False, all_dims_dynamic=dynamic).run(feeds)
        close = 5e-3 if kind == "float16" else 1e-4
        np.testing.assert_allclose(got["out"].astype(np.float32), want[0].astype(np.float32), close, close)
        for b, total in enumerate(totals):  # what lies behind is unspecified
            rows = used(total, capacity, window)
            for i, name in ((1, "present_key"), (2, "present_value")):
                a, e = (x[b, :, :rows].astype(np.float32) for x in (got[name], want[i]))
                np.testing.assert_allclose(a, e, close, 1 if kind == "int8" else close)


@pytest.mark.parametrize("capacity,attributes,message", [
    (6, {"local_window_size": 7}, "a cache of 6 tokens is shorter than local_window_size, 7"),
    (6, {}, "sliding_window_cache without local_window_size"),
    (None, {"local_window_size": 4}, "without past_key and past_value"),
])
def test_refused(capacity: int | None, attributes: dict[str, Any], message: str) -> None:
    g = rng()
    past, new = tuple(randn(g, 1, KV, capacity or 1, D) for _ in range(2)), [randn(g, 1, 2, n * D) for n in (N, KV, KV)]
    inputs = inputs_of(past, new, [2])
    if capacity is None:
        inputs |= {"past_key": None, "past_value": None}
    m = model("GroupQueryAttention", inputs, OUTPUTS, sliding_window_cache=1, **GQA, **attributes)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(m, compile=False)


def test_lengths_are_data() -> None:
    """Wrong ones give wrong numbers, no reads outside; a cache that the run makes too short is refused."""
    g = rng()
    past, new = tuple(randn(g, 2, KV, 7, D) for _ in range(2)), [randn(g, 2, 1, n * D) for n in (N, KV, KV)]
    inputs = inputs_of(past, new, [8, 8])
    inputs |= {"cos": None, "sin": None}
    m = model("GroupQueryAttention", inputs, OUTPUTS, local_window_size=5, sliding_window_cache=1, **GQA)
    feeds = {key: value for key, value in inputs.items() if value is not None}
    session = tensorbox.Session(m, compile=False, all_dims_dynamic=True)
    for bad in ([100, -100], [2**31 - 1, -(2**31)]):
        assert session.run(feeds | {"seqlens": np.array(bad, np.int32)})["out"].shape == (2, 1, 64)
    short = {key: feeds[key][:, :, :3].copy() for key in ("past_key", "past_value")}
    with pytest.raises(tensorbox.Error, match="shorter than local_window_size"):
        session.run(feeds | short)
