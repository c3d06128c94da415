"""NGramHashMapping and VarlenNGramHashMapping against plain loops, and against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from peers import compare, expected, model_of, tensorbox

Arrays = dict[str, np.ndarray | None]
LONGEST, HEADS, PAD = 4, 3, 7
ATTRIBUTES = {"max_ngram_size": LONGEST, "n_head_per_ngram": HEADS, "pad_id": PAD}


def hashes_of(ids: np.ndarray, past: np.ndarray, segments: list[Any] | None, eos: int | None, resets: bool, inputs: Arrays) -> np.ndarray:
    """Of one sequence; `segments` has entries for `past`, too, None where no boundary is to be seen."""
    kind, history = ids.dtype.type, LONGEST - 1
    everything = np.concatenate([past, ids])
    fill = kind(PAD if eos is None else eos)
    out = np.zeros((len(ids), history * HEADS), ids.dtype)
    with np.errstate(over="ignore"):
        for t in range(len(ids)):
            at, crossed = t + history, False
            mix = kind(everything[at] * inputs["multipliers"][0])
            for k in range(1, LONGEST):
                token = everything[at - k]
                crossed |= resets and eos is not None and token == eos
                if segments is not None and segments[at - k] is not None:
                    crossed |= segments[at - k] != segments[at - k + 1]
                mix ^= kind((fill if crossed else token) * inputs["multipliers"][k])
                for h in range(HEADS):
                    head = (k - 1) * HEADS + h
                    value = kind(int(mix) % int(inputs["vocab_sizes"][head]))
                    out[t, head] = value if inputs["offsets"] is None else value + inputs["offsets"][head]
    return out


def common(rng: np.random.Generator, kind: Any, offsets: bool) -> Arrays:
    heads = (LONGEST - 1) * HEADS
    return {"multipliers": rng.integers(-2**30, 2**30, LONGEST + 1).astype(kind),
            "vocab_sizes": rng.integers(1, 1000, heads).astype(kind),
            "offsets": rng.integers(0, 1000, heads).astype(kind) if offsets else None}


def check(op: str, inputs: Arrays, outputs: list[str], want: list[np.ndarray], compiled: bool = False, **a: Any) -> None:
    model = model_of(op, inputs, outputs, 17, domain="com.microsoft", **ATTRIBUTES, **a)
    for info, w in zip(model.graph.output, want, strict=True):
        info.type.tensor_type.elem_type = 6 if w.dtype == np.int32 else 7
    compare(model, inputs, 0, 0, want=want)
    if compiled:
        got = tensorbox.Session(model).run({n: v for n, v in inputs.items() if v is not None})
        for name, w in zip([o for o in outputs if o], want, strict=True):
            np.testing.assert_array_equal(got[name], w)
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return
    for w, theirs in zip(want, expected(model, {n: v for n, v in inputs.items() if v is not None}, "ort"), strict=True):
        np.testing.assert_array_equal(w, theirs)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("eos,resets", [(None, 0), (None, 1), (3, 0), (3, 1)])
@pytest.mark.parametrize("segments", [True, False])
def test_ngram_hash_mapping(kind: Any, past: bool, eos: int | None, resets: int, segments: bool) -> None:
    rng = np.random.default_rng(1)
    for batch, length in ((2, 9), (1, 1), (2, 2), (3, 0)):
        history = LONGEST - 1
        inputs: Arrays = {"ids": rng.integers(0, 6, (batch, length)).astype(kind)} | common(rng, kind, past)
        inputs = {name: inputs[name] for name in ("ids", "multipliers", "vocab_sizes")} | {
            "past": rng.integers(0, 6, (batch, history)).astype(kind) if past else None, "offsets": inputs["offsets"],
            "eos": None if eos is None else np.array(eos, kind),
            "segments": rng.integers(0, 2, (batch, length)).astype(np.int32) if segments else None}
        before = inputs["past"] if past else np.full((batch, history), PAD if eos is None else eos, kind)
        want = [hashes_of(inputs["ids"][b], before[b], [None] * history + list(inputs["segments"][b]) if segments else None, eos,
                          bool(resets), inputs) for b in range(batch)]
        present = np.concatenate([before, inputs["ids"]], 1)[:, length:]
        check("NGramHashMapping", inputs, ["hashes", "present"], [np.stack(want), present], compiled=resets == 1 and segments and past and batch == 2, reset_on_eos=resets)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("eos,resets", [(None, 0), (3, 0), (3, 1)])
@pytest.mark.parametrize("segments", ["none", "now", "past"])
def test_varlen_ngram_hash_mapping(kind: Any, past: bool, eos: int | None, resets: int, segments: str) -> None:
    rng = np.random.default_rng(2)
    history, capacity = LONGEST - 1, 3
    for lengths in ((5, 1, 2), (9,)):
        batch, starts = len(lengths), np.cumsum([0, *lengths]).astype(np.int32)
        base = common(rng, kind, past)
        inputs: Arrays = {"ids": rng.integers(0, 6, int(starts[-1])).astype(kind), "multipliers": base["multipliers"],
                          "vocab_sizes": base["vocab_sizes"], "starts": starts,
                          "past": rng.integers(0, 6, (batch, history)).astype(kind) if past else None, "offsets": base["offsets"],
                          "eos": None if eos is None else np.array(eos, kind),
                          "segments": None if segments == "none" else rng.integers(0, 2, int(starts[-1])).astype(np.int32),
                          "past_segments": rng.integers(0, 2, (batch, history)).astype(np.int32) if segments == "past" else None,
                          "captures": rng.integers(0, 4, batch).astype(np.int32)}
        fill = PAD if eos is None else eos
        want, present, update = [], [], np.full((batch, capacity, history), PAD, kind)
        for b, n in enumerate(lengths):
            ids = inputs["ids"][starts[b]:starts[b + 1]]
            before = inputs["past"][b] if past else np.full(history, fill, kind)
            marks = None
            if segments != "none":
                old = list(inputs["past_segments"][b]) if segments == "past" else [None] * history
                marks = old + list(inputs["segments"][starts[b]:starts[b + 1]])
            want.append(hashes_of(ids, before, marks, eos, bool(resets), inputs))
            everything = np.concatenate([before, ids])
            present.append(everything[n:])
            for c in range(min(n, capacity, inputs["captures"][b])):
                update[b, c] = everything[c + 1:c + 1 + history]
        outputs, values = ["hashes", "present"], [np.concatenate(want), np.stack(present)]
        check("VarlenNGramHashMapping", inputs, [*outputs, "", "update"], [*values, update], reset_on_eos=resets, state_update_capacity=capacity)
        if segments == "past":
            marks = [np.concatenate([inputs["past_segments"][b], inputs["segments"][starts[b]:starts[b + 1]]])[-history:] for b in range(batch)]
            check("VarlenNGramHashMapping", inputs | {"captures": None}, [*outputs, "marks"], [*values, np.stack(marks)], compiled=resets == 1 and past, reset_on_eos=resets)


@pytest.mark.parametrize("change,attributes,message", [
    ({}, {"max_ngram_size": 1}, "max_ngram_size is 1"), ({}, {"n_head_per_ngram": 0}, "n_head_per_ngram is 0"), ({}, {"pad_id": 2**40}, "pad_id is"),
    ({"ids": np.zeros((2, 3, 4), np.int32)}, {}, "rank 3"), ({"vocab_sizes": np.ones(5, np.int32)}, {}, "vocab_sizes and"),
    ({"vocab_sizes": np.zeros(9, np.int32)}, {}, "vocab_sizes has 0"), ({"past": np.zeros((2, 2), np.int32)}, {}, "past_ids"),
    ({"multipliers": np.zeros(4, np.int64)}, {}, "multipliers is int64"), ({"ids": np.zeros((2, 3), np.float32)}, {}, "input_ids are of type float32")])
def test_refused(change: Arrays, attributes: dict[str, int], message: str) -> None:
    inputs: Arrays = {"ids": np.zeros((2, 3), np.int32), "multipliers": np.zeros(4, np.int32), "vocab_sizes": np.ones(9, np.int32),
                      "past": None} | change
    model = model_of("NGramHashMapping", inputs, ["Y"], 17, ["vocab_sizes"], domain="com.microsoft", **ATTRIBUTES | attributes)
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(model, compile=False)


def test_starts_beyond_the_tokens() -> None:
    """What starts say is data: no memory outside of the tokens is read."""
    inputs: Arrays = {"ids": np.zeros(3, np.int32), "multipliers": np.zeros(4, np.int32), "vocab_sizes": np.ones(9, np.int32)}
    for starts in ([5, 9], [-4, 100], [2, 1], [0, 3]):
        inputs["starts"] = np.array(starts, np.int32)
        model = model_of("VarlenNGramHashMapping", inputs, ["Y", "P"], 17, domain="com.microsoft", **ATTRIBUTES)
        for info in model.graph.output:
            info.type.tensor_type.elem_type = 6
        try:
            tensorbox.Session(model, compile=False).run(inputs)
        except tensorbox.Error as e:
            assert "VarlenNGramHashMapping" in str(e) or "index" in str(e)
