"""com.microsoft LongformerAttention against loops of numpy in float64: ONNX Runtime has no kernel for it on the CPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from peers import compare, model_of, tensorbox

Array = np.ndarray


def softmax(scores: Array) -> Array:
    e = np.exp(scores - scores.max())
    return e / e.sum()


def reference(x: dict[str, Array], heads: int, window: int) -> Array:
    """One token and head after the other: a token sees those of its window and the global ones, a global token all of them in
    its own projections. Where the mask is not 0 there is nothing."""
    w = {name: value.astype(np.float64) for name, value in x.items()}
    batch, length, hidden = w["input"].shape
    size = hidden // heads
    local = [w["input"] @ part + bias for part, bias in
             zip(np.split(w["weight"], 3, 1), np.split(w["bias"], 3), strict=True)]
    far = [w["input"] @ part + bias for part, bias in
           zip(np.split(w["global_weight"], 3, 1), np.split(w["global_bias"], 3), strict=True)]
    out = np.zeros((batch, length, hidden))
    for b in range(batch):
        for i in range(length):
            if w["mask"][b, i] != 0:
                continue
            is_global = x["global"][b, i] != 0
            q, k, v = far if is_global else local
            seen = np.array([j for j in range(length) if is_global or abs(i - j) <= window or x["global"][b, j] != 0])
            for h in range(heads):
                part = slice(h * size, (h + 1) * size)
                scores = k[b, seen, part] @ q[b, i, part] / np.sqrt(size) + w["mask"][b, seen]
                out[b, i, part] = softmax(scores) @ v[b, seen, part]
    return out


def inputs_of(batch: int, length: int, hidden: int, globals_: list[list[int]], padding: int = 0,
              dtype: Any = np.float32) -> dict[str, Array]:
    """The last `padding` tokens of each sequence are masked."""
    rng = np.random.default_rng(length * 7 + hidden)
    x: dict[str, Array] = {"input": rng.standard_normal((batch, length, hidden))}
    for name in ("", "global_"):
        x[name + "weight"] = rng.standard_normal((hidden, 3 * hidden)) / np.sqrt(max(hidden, 1))
        x[name + "bias"] = rng.standard_normal(3 * hidden)
    x["mask"] = np.zeros((batch, length))
    x["mask"][:, max(0, length - padding):] = -10000
    flags = np.zeros((batch, length), np.int32)
    for row, places in zip(flags, globals_, strict=True):
        row[places] = 1
    order = ("input", "weight", "bias", "mask", "global_weight", "global_bias")
    return {**{name: x[name].astype(dtype) for name in order}, "global": flags}


def model(x: dict[str, Array], heads: int, window: int, constants: tuple[str, ...] = ()) -> Any:
    return model_of("LongformerAttention", x, ["y"], 17, constants, domain="com.microsoft", num_heads=heads, window=window)


SIZES = {
    "no_tokens": (2, 0, 8, 2, 2, [[], []], 0),
    "no_sequences": (0, 4, 8, 2, 2, [], 0),
    "one_token": (1, 1, 4, 1, 1, [[]], 0),
    "one_global_token": (1, 1, 4, 1, 1, [[0]], 0),
    "odd": (2, 13, 15, 3, 2, [[], [5, 12]], 0),
    "a_window_of_all": (1, 7, 8, 2, 9, [[0]], 0),
    "globals_in_windows": (2, 12, 8, 2, 3, [[0, 1], [3, 4, 11]], 0),
    "padding": (2, 16, 8, 2, 4, [[0], [0, 2]], 5),
    "global_padding": (1, 12, 8, 2, 2, [[0, 11]], 3),
    "all_global": (1, 9, 8, 2, 1, [list(range(9))], 0),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    batch, length, hidden, heads, window, flags, padding = SIZES[name]
    x = inputs_of(batch, length, hidden, flags, padding)
    compare(model(x, heads, window), x, want=[reference(x, heads, window)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("flags", [[], [0], [0, 1, 7, 300]])
@pytest.mark.parametrize("window", [64, 256])
def test_sizes_of_models(window: int, flags: list[int], constant: bool) -> None:
    """A sequence of 512 tokens, as models pad them; weights, and perhaps the flags, are constants there."""
    x = inputs_of(1, 512, 96, [flags], padding=30)
    constants = ("weight", "bias", "global_weight", "global_bias", *(("global",) if constant else ()))
    made = model(x, 4, window, constants)
    want = reference(x, 4, window)
    feeds = {name: value for name, value in x.items() if name not in constants}
    for threads in (1, 2):
        got = tensorbox.Session(made, threads=threads).run(feeds)["y"]
        np.testing.assert_allclose(got, want, 1e-4, 2e-5)


def test_halves() -> None:
    """Rounded between the products at most: the sums are those of float32."""
    x = inputs_of(2, 24, 16, [[0], [1, 20]], 4, np.float16)
    want = reference(x, 2, 3)
    for options in ({"compile": False}, {"reference": True}, {}):
        got = tensorbox.Session(model(x, 2, 3), **options).run(x)["y"]
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float64), want, 4e-3, 4e-3)


def test_sizes_that_change() -> None:
    """One session, windows that reach over both ends and not."""
    small, large = inputs_of(1, 5, 8, [[0]]), inputs_of(2, 40, 8, [[3], []], 7)
    large = {name: large[name] if name in ("input", "mask", "global") else small[name] for name in small}
    session = tensorbox.Session(model(small, 2, 4), all_dims_dynamic=True)
    for x in (small, large, small):
        np.testing.assert_allclose(session.run(x)["y"], reference(x, 2, 4), 1e-4, 1e-5)


@pytest.mark.parametrize("attributes, change, text", [
    ({"num_heads": 0, "window": 2}, {}, "num_heads"),
    ({"num_heads": 3, "window": 2}, {}, "8 columns are not divisible into 3 heads"),
    ({"num_heads": 2, "window": 0}, {}, "window is 0"),
    ({"num_heads": 2}, {}, "attribute 'window' is missing"),
    ({"num_heads": 2, "window": 2}, {"weight": (8, 23)}, "columns of weight and three widths"),
    ({"num_heads": 2, "window": 2}, {"global_bias": (23,)}, "length of global_bias and columns of global_weight"),
    ({"num_heads": 2, "window": 2}, {"mask": (1, 5)}, "sizes of input and mask"),
    ({"num_heads": 2, "window": 2}, {"mask": (4,)}, "mask has rank 1, expected 2")])
def test_errors(attributes: dict[str, int], change: dict[str, tuple[int, ...]], text: str) -> None:
    x = inputs_of(1, 4, 8, [[0]])
    x.update({name: np.zeros(shape, np.float32) for name, shape in change.items()})
    made = model_of("LongformerAttention", x, ["y"], 17, domain="com.microsoft", **attributes)
    with pytest.raises(tensorbox.ModelError, match=re.escape(text)):
        tensorbox.Session(made, compile=False).run(x)
