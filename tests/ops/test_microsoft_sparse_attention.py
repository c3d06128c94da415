"""com.microsoft SparseAttention against numpy, and ONNX Runtime, whose caches are updated in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from peers import model_of, tensorbox

Array = np.ndarray
HEADS, KV_HEADS, SIZE, BLOCK, BLOCKS, CACHE = 4, 2, 16, 16, 4, 56


def layouts(count: int = 2, seed: int = 0) -> tuple[Array, Array, Array]:
    """Blocks that are seen [count, BLOCKS, BLOCKS], and as compressed rows."""
    rng = np.random.default_rng(seed)
    seen = np.tril(rng.random((count, BLOCKS, BLOCKS)) > 0.5) | np.eye(BLOCKS, dtype=bool)
    starts = np.concatenate([np.zeros((count, 1)), seen.sum(2).cumsum(1)], 1).astype(np.int32)
    columns = np.full((count, seen.sum((1, 2)).max()), -1, np.int32)
    for row, table in zip(columns, seen, strict=True):
        row[: table.sum()] = np.nonzero(table)[1]
    return seen, starts, columns


def heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def rotate(x: Array, cos: Array, sin: Array, positions: Array, interleaved: bool) -> Array:
    half = cos.shape[1]
    c, s = cos[positions][:, None], sin[positions][:, None]
    y = x.copy()
    first, second = (np.s_[..., 0 : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]) if interleaved else (
        np.s_[..., :half], np.s_[..., half : 2 * half])
    a, b = x[first], x[second]
    y[first], y[second] = a * c - b * s, b * c + a * s
    return y


def reference(inputs: dict[str, Array], seen: Array, scale: float, interleaved: bool) -> list[Array]:
    q, k, v = inputs["query"], inputs.get("key"), inputs.get("value")
    if k is None:
        q, k, v = np.split(q, [HEADS * SIZE, (HEADS + KV_HEADS) * SIZE], 2)
    q, k, v = heads(q, HEADS), heads(k, KV_HEADS), heads(v, KV_HEADS)
    batch, _, queries, _ = q.shape
    lengths = inputs["key_total_sequence_lengths"]
    start = np.zeros(batch, int) if inputs["total_sequence_length"] == queries else lengths - queries
    if "cos_cache" in inputs:
        positions = start[:, None] + np.arange(queries)
        q, k = (rotate(x, inputs["cos_cache"], inputs["sin_cache"], positions, interleaved) for x in (q, k))
    keys, values = inputs["past_key"].copy(), inputs["past_value"].copy()
    out = np.zeros_like(q)
    for b in range(batch):
        keys[b, :, start[b] : start[b] + queries], values[b, :, start[b] : start[b] + queries] = k[b], v[b]
        for h in range(HEADS):
            for s in range(queries):
                at = start[b] + s
                to = np.arange(at + 1)
                visible = seen[h % len(seen)][at // BLOCK, to // BLOCK]
                group = h // (HEADS // KV_HEADS)
                scores = np.where(visible, keys[b, group, : at + 1] @ q[b, h, s] * scale, -np.inf)
                p = np.exp(scores - scores.max())
                out[b, h, s] = p / p.sum() @ values[b, group, : at + 1]
    return [out.transpose(0, 2, 1, 3).reshape(batch, queries, -1), keys, values]


def make_inputs(queries: int, lengths: list[int], packed: bool, rotary: bool, seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    _, starts, columns = layouts()

    def f(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    batch = len(lengths)
    inputs = {"query": f(batch, queries, (HEADS + 2 * KV_HEADS * packed) * SIZE)}
    if not packed:
        inputs |= {name: f(batch, queries, KV_HEADS * SIZE) for name in ("key", "value")}
    inputs |= {name: f(batch, KV_HEADS, CACHE, SIZE) for name in ("past_key", "past_value")}
    inputs |= {"block_row_indices": starts, "block_col_indices": columns,
               "total_sequence_length": np.array([max(lengths)], np.int32),
               "key_total_sequence_lengths": np.array(lengths, np.int32)}
    if rotary:
        inputs |= {name: f(64, 8) for name in ("cos_cache", "sin_cache")}
    return inputs


NAMES = ["query", "key", "value", "past_key", "past_value", "block_row_indices", "block_col_indices",
         "total_sequence_length", "key_total_sequence_lengths", "cos_cache", "sin_cache"]


def sparse_model(inputs: dict[str, Array], **attributes: Any) -> onnx.ModelProto:
    ordered = {name: inputs.get(name) for name in NAMES}
    attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "sparse_block_size": BLOCK,
                  "do_rotary": int("cos_cache" in inputs)} | attributes
    return model_of("SparseAttention", ordered, ["output", "present_key", "present_value"], 20,
                    domain="com.microsoft", **attributes)


def by_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding, values = session.io_binding(), {}
    kept = {name: value.copy() for name, value in inputs.items()}  # OrtValues look into the arrays
    for name, value in kept.items():
        values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(value)
        binding.bind_ortvalue_input(name, values[name])
    binding.bind_output("output")
    for name in ("key", "value"):
        binding.bind_ortvalue_output("present_" + name, values["past_" + name])
    session.run_with_iobinding(binding)
    return [out.numpy().copy() for out in binding.get_outputs()]


FORMS: dict[str, dict[str, Any]] = {
    "prompt": {"queries": 37, "lengths": [37, 37]},
    "padded_prompt": {"queries": 20, "lengths": [20, 13]},
    "one_token": {"queries": 1, "lengths": [50, 17]},
    "some_tokens": {"queries": 5, "lengths": [50, 33]},
}


def check(got: list[Array], want: list[Array], queries: int, lengths: list[int]) -> None:
    """What is padding, and caches behind their end, may be anything."""
    for b, length in enumerate(lengths):
        real = length if queries == max(lengths) else queries
        np.testing.assert_allclose(got[0][b, :real], want[0][b, :real], rtol=1e-4, atol=1e-5)
        for have, cache in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(have[b, :, :length], cache[b, :, :length], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("packed", "rotary", "interleaved"), [(0, 0, 0), (1, 1, 0), (0, 1, 1)])
def test_sparse_attention(form: str, packed: int, rotary: int, interleaved: int) -> None:
    inputs = make_inputs(**FORMS[form], packed=bool(packed), rotary=bool(rotary))
    model = sparse_model(inputs, rotary_interleaved=interleaved, scale=0.3)
    want = reference(inputs, layouts()[0], 0.3, bool(interleaved))
    check(list(tensorbox.Session(model, compile=False).run(inputs).values()), want, **FORMS[form])


@pytest.mark.parametrize(("queries", "length"), [(37, 37), (1, 50), (5, 33)])
@pytest.mark.parametrize("packed", [False, True])
def test_as_onnxruntime(queries: int, length: int, packed: bool) -> None:
    """Of one length: where the batch has several, ONNX Runtime 1.31's CPU kernel takes the probabilities of the
    second from where they are not."""
    inputs = make_inputs(queries, [length] * 2, packed=packed, rotary=packed)
    model = sparse_model(inputs)
    got = list(tensorbox.Session(model, compile=False).run(inputs).values())
    check(got, by_onnxruntime(model, inputs), queries, [length] * 2)


def test_compiled() -> None:
    inputs = make_inputs(5, [50, 33], packed=True, rotary=True)
    got = list(tensorbox.Session(sparse_model(inputs)).run(inputs).values())
    want = reference(inputs, layouts()[0], SIZE**-0.5, False)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "value", "message"), [
    ("block_row_indices", np.array([[0, 1, 2, 3, 99]] * 2, np.int32), "from 3 to 99 of"),
    ("block_row_indices", np.array([[0, 3, 2, 3, 4]] * 2, np.int32), "from 3 to 2 of"),
    ("block_row_indices", np.zeros((3, 5), np.int32), "4 heads cannot share 3 layouts"),
    ("block_col_indices", np.full((2, 8), 4, np.int32), "holds 4 for 4 blocks"),
    ("total_sequence_length", np.array([60], np.int32), "total_sequence_length|cache"),
])
def test_bad_inputs(name: str, value: Array, message: str) -> None:
    inputs = make_inputs(5, [50, 33], packed=False, rotary=False) | {name: value}
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(sparse_model(inputs), compile=False).run(inputs)
