"""Convolutions of 3 x 3 elements that Winograd's transforms compute, against loops in float64: values, the bound of their error
(docs/precision.md), numbers that are not finite, and when they are chosen.

With all dimensions dynamic a session decides by the weights alone, so that images of every size come to the same kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import tensorbox

RNG = np.random.default_rng(5)
UNIT = 2.0**-24
OURS, THEIRS = "kernel: winograd_conv", "kernel: onednn_conv"


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None, after: Sequence[onnx.NodeProto] = (),
          others: dict[str, np.ndarray] | None = None, constant: bool = True, **attributes: Any) -> onnx.ModelProto:
    """x -> Conv -> t -> `after` -> y"""
    given = {"w": w} | ({} if bias is None else {"b": bias})
    feeds = {"x": x} | (others or {}) | ({} if constant else given)
    node = helper.make_node("Conv", ["x", *given], ["t" if after else "y"], **attributes)
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in feeds.items()]
    values = [onnx.numpy_helper.from_array(v, n) for n, v in given.items()] if constant else []
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node, *after], "winograd", infos, [out], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def conv(x: np.ndarray, w: np.ndarray, pads: Sequence[int] = (0,) * 4, dilations: Sequence[int] = (1, 1), of: type = np.float64) -> np.ndarray:
    """Tap by tap and channel by channel, in the order of the loops."""
    x, w = x.astype(of), w.astype(of)
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    high, wide = (x.shape[d + 2] - 2 * dilations[d] for d in range(2))
    y = np.zeros((x.shape[0], w.shape[0], high, wide), of)
    for i in range(3):
        for j in range(3):
            part = x[:, :, i * dilations[0]:i * dilations[0] + high, j * dilations[1]:j * dilations[1] + wide]
            if of is np.float64:
                y += np.einsum("nchw,kc->nkhw", part, w[:, :, i, j], optimize=True)
            else:
                for c in range(x.shape[1]):
                    y += part[:, c, None] * w[None, :, c, i, j, None, None]
    return y


def decisions(session: Any) -> list[str]:
    return [line for step in session.explain() for line in step["decisions"]]


def check(m: onnx.ModelProto, feeds: dict[str, np.ndarray], want: np.ndarray, step: float = 4e-6, **options: Any) -> None:
    session = tensorbox.Session(m, compile=False, all_dims_dynamic=True, **options)
    assert OURS in decisions(session)
    got = session.run(feeds)["y"]
    assert got.shape == want.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, want, step, step * max(1, np.abs(want).max(initial=0)))


# channels in and out, images, size, pads, dilations
SHAPES: list[tuple[int, ...]] = [
    (27, 97, 1, 1, 1), (64, 64, 1, 2, 3), (64, 65, 2, 5, 4), (100, 40, 3, 7, 1), (33, 130, 1, 1, 12), (128, 128, 1, 28, 28), (511, 64, 1, 6, 7),
    (64, 512, 2, 7, 7), (96, 31, 1, 0, 5), (48, 64, 0, 5, 5), (31, 97, 5, 13, 9)]
WINDOWS = [((1, 1, 1, 1), (1, 1)), ((2, 0, 1, 3), (1, 1)), ((2, 2, 2, 2), (2, 2)), ((4, 5, 6, 3), (3, 2))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["strict", "any"])
def test_sizes(shape: tuple[int, ...], precision: str) -> None:
    depth, columns, images, high, wide = shape
    for number, (pads, dilations) in enumerate(WINDOWS):
        if min(high + pads[0] + pads[2] - 2 * dilations[0], wide + pads[1] + pads[3] - 2 * dilations[1]) < 0:
            continue
        x, w = normal(images, depth, high, wide), normal(columns, depth, 3, 3) / np.float32(3 * depth**0.5)
        bias = normal(columns) if number % 2 else None
        want = conv(x, w, pads, dilations) + (0 if bias is None else bias.astype(np.float64)[:, None, None])
        m = model(x, w, bias, pads=pads, dilations=dilations)
        check(m, {"x": x}, want, threads=1 + number, precision=precision, disable_passes=["narrow_storage"])


def sigmoid(t: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-t))


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


AFTER: dict[str, tuple[list[onnx.NodeProto], Callable[..., np.ndarray], dict[str, tuple[int, ...]]]] = {
    "relu": ([node("Relu", "t", "y")], lambda t: np.maximum(t, 0), {}),
    "leaky relu": ([node("LeakyRelu", "t", "y", alpha=0.3)], lambda t: np.where(t < 0, 0.3 * t, t), {}),
    "sigmoid": ([node("Sigmoid", "t", "y")], sigmoid, {}),
    "silu": ([node("Sigmoid", "t", "s"), node("Mul", "t s", "y")], lambda t: t * sigmoid(t), {}),
    "hard swish": ([node("HardSwish", "t", "y")], lambda t: t * np.clip(t / 6 + 0.5, 0, 1), {}),
    "hard sigmoid": ([node("HardSigmoid", "t", "y", alpha=0.2, beta=0.4)], lambda t: np.clip(0.2 * t + 0.4, 0, 1), {}),
    "residual": ([node("Add", "t r", "s"), node("Relu", "s", "y")], lambda t, r: np.maximum(t + r, 0), {"r": (2, 70, 9, 11)}),
    "residual in place": ([node("Exp", "r", "e"), node("Add", "t e", "s"), node("Relu", "s", "y")],
                          lambda t, r: np.maximum(t + np.exp(r), 0), {"r": (2, 70, 9, 11)}),
    "gate": ([node("Mul", "t g", "y")], lambda t, g: t * g, {"g": (1, 70, 1, 1)}),
    "less, over": ([node("Sub", "t r", "s"), node("Div", "s d", "y")], lambda t, r, d: (t - r) / d, {"r": (2, 70, 9, 11), "d": (1, 1, 1, 1)}),
    "gelu": ([node("Gelu", "t", "y")], lambda t: 0.5 * t * (1 + np.vectorize(__import__("math").erf)(t / 2**0.5)), {}),
}


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("precision", ["strict", "any"])
def test_what_comes_after(name: str, precision: str) -> None:
    nodes, of, sizes = AFTER[name]
    x, w, bias = normal(2, 40, 9, 11), normal(70, 40, 3, 3) / np.float32(19), normal(70)
    others = {k: normal(*v) if k != "d" else np.full(v, 1.5, np.float32) for k, v in sizes.items()}
    want = of(conv(x, w, (1,) * 4) + bias.astype(np.float64)[:, None, None], **{k: v.astype(np.float64) for k, v in others.items()})
    m = model(x, w, bias, nodes, others, pads=[1] * 4)
    for dynamic in (False, True):
        session = tensorbox.Session(m, compile=False, all_dims_dynamic=dynamic, threads=2, precision=precision, disable_passes=["narrow_storage"])
        got = session.run({"x": x} | others)["y"]
        # Where the library takes it after all, "any" lets tiles (AMX) round what they multiply to bfloat16.
        rounds = precision == "any" and any("avx512_core_amx" in d for d in decisions(session))
        np.testing.assert_allclose(got, want, 1e-5, (2**-8 if rounds else 4e-6) * max(1, np.abs(want).max()))


@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_other_instruction_sets(isa: str) -> None:
    """The same loops for CPUs with narrower vectors."""
    chosen = [f"{__file__}::test_sizes", f"{__file__}::test_what_comes_after", f"{__file__}::test_numbers_that_are_not_finite"]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen], env={**os.environ, "TBX_ISA": isa},
                         capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout[-4000:]


# The largest product of Winograd's transforms of 1-D inputs and kernels of ones, times roundings per result.
def bound(x: np.ndarray, w: np.ndarray, tile: int) -> np.ndarray:
    depth = x.shape[1]
    growth, roundings = {2: (8.0**2, depth + 7), 4: (25.0**2, depth + 20)}[tile]
    tiles = -(-(x.shape[2] - 2) // tile), -(-(x.shape[3] - 2) // tile)
    padded = np.pad(np.abs(x.astype(np.float64)), [(0, 0), (0, 0), (0, tile * tiles[0] + 2 - x.shape[2]), (0, tile * tiles[1] + 2 - x.shape[3])])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (tile + 2, tile + 2), (2, 3))[:, :, ::tile, ::tile].max((-2, -1))
    of_tile = np.einsum("nchw,kc->nkhw", windows, np.abs(w.astype(np.float64)).max((2, 3)))
    full = of_tile.repeat(tile, 2).repeat(tile, 3)[:, :, :x.shape[2] - 2, :x.shape[3] - 2]
    return growth * roundings * UNIT * full


INPUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": lambda x: x, "after relu": lambda x: np.maximum(x, 0), "positive": np.abs,
    "large mean": lambda x: x + np.float32(100), "many magnitudes": lambda x: x * np.exp2(16 * RNG.standard_normal(x.shape)).astype(np.float32)}


@pytest.mark.parametrize("depth", [27, 64, 320])
@pytest.mark.parametrize("kind", INPUTS)
def test_error(depth: int, kind: str) -> None:
    """F(2) keeps its bound, which is that of sums in float32 (of terms as large as the largest of a tile), and is on average no worse than
    the sum of all products one after the other; F(4) keeps its own."""
    x, w = INPUTS[kind](normal(1, depth, 18, 18)), normal(96, depth, 3, 3)
    want, direct = conv(x, w), conv(x, w, of=np.float32)
    m = model(x, w)

    def error(y: np.ndarray) -> float:
        return float(np.sqrt(np.mean((y - want) ** 2)))

    for tile, options in (2, {}), (4, {"precision": "any", "disable_passes": ["narrow_storage"]}):
        session = tensorbox.Session(m, compile=False, **options)
        assert any(f"F({tile}x{tile}, 3x3)" in step["name"] for step in session.explain())
        got = session.run({"x": x})["y"]
        assert np.all(np.abs(got - want) <= bound(x, w, tile))
        if kind != "many magnitudes":
            assert error(got) <= {2: 1.0, 4: 4.0}[tile] * error(direct)
    assert 64 * (depth + 7) <= 9 * 9 * depth  # as the rule says: the bound of F(2) is within that of the sum


@pytest.mark.parametrize("precision", ["strict", "any"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_numbers_that_are_not_finite(precision: str, value: float) -> None:
    """They reach the results whose pixels they are, and no others; sums that only the transforms let overflow do not."""
    x, w = normal(2, 40, 13, 14), normal(33, 40, 3, 3) / np.float32(20)
    x[0, 3, 6, 7] = x[1, 39, 0, 13] = value
    with np.errstate(invalid="ignore", over="ignore"):
        want = conv(x, w, (1,) * 4).astype(np.float32)
        want = np.where(want < 0, np.float32(0), want)
    session = tensorbox.Session(model(x, w, None, [node("Relu", "t", "y")], pads=[1] * 4), compile=False, precision=precision,
                                disable_passes=["narrow_storage"])
    assert OURS in decisions(session)
    got = session.run({"x": x})["y"]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    clean = np.isfinite(want)
    # Beside a large number the bound is what holds: a small element of the kernel does not make its own error small.
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    allowed = 1e-4 + (bound(padded, w, 2 if precision == "strict" else 4) if np.isfinite(value) else np.zeros_like(want))
    assert np.all(np.abs(got[clean].astype(np.float64) - want[clean]) <= allowed[clean])


def sparse(w: np.ndarray) -> np.ndarray:
    return np.where(RNG.random(w.shape) < 0.6, np.float32(0), w)


def uneven(w: np.ndarray) -> np.ndarray:
    """Elements that the sums of their kernel hide: of either sign, below its rounding."""
    return w * np.where(RNG.random(w.shape) < 0.3, np.float32(2.0**-30), np.float32(1)) * np.where(RNG.random(w.shape) < 0.3, np.float32(1e-35), np.float32(1))


def huge(w: np.ndarray) -> np.ndarray:
    """Whose transforms are no float."""
    w[3, 5], w[32, 39, 1, 1] = 3.4e38, -3.4e38
    return w


def infinite(w: np.ndarray) -> np.ndarray:
    w[3, 5, 1, 1], w[4, 0, 0, 1], w[32, 39, 2, 2], w[7, 7, 1, 0] = np.inf, -np.inf, np.inf, np.nan
    return w


@pytest.mark.parametrize("precision", ["strict", "any"])
@pytest.mark.parametrize("kind", [sparse, uneven, huge, infinite])
def test_weights_that_transforms_hide(kind: Callable[[np.ndarray], np.ndarray], precision: str) -> None:
    """Tiles with infinities take the weights back from the transformed ones: 0 times infinity is NaN, and all else has its sign."""
    x, w = normal(2, 40, 13, 14), kind(normal(33, 40, 3, 3) / np.float32(20))
    x[0, 3, 6, 7], x[1, 39, 0, 13], x[0, 8, 2, 2] = np.inf, -np.inf, np.nan
    x[:, 5] *= np.float32(1e-10)  # with weights near the end of float32
    x[:, 39] *= np.float32(1e-10)
    with np.errstate(invalid="ignore", over="ignore"):
        want = conv(x, w, (1,) * 4).astype(np.float32)
    session = tensorbox.Session(model(x, w, pads=[1] * 4), compile=False, precision=precision, disable_passes=["narrow_storage"])
    assert OURS in decisions(session)
    got = session.run({"x": x})["y"]
    clean = np.isfinite(want)
    np.testing.assert_array_equal(got[~clean], want[~clean])
    assert np.all(np.isfinite(got[clean]))
    with np.errstate(invalid="ignore"):
        terms = conv(np.abs(np.where(np.isfinite(x), x, 0)), np.abs(np.where(np.isfinite(w), w, 0)), (1,) * 4)
    allowed = np.broadcast_to(1e-5 * terms.max((0, 2, 3), keepdims=True) + 1e-30, want.shape)
    np.testing.assert_array_less(np.abs(got[clean].astype(np.float64) - want[clean]), allowed[clean])


def test_choice() -> None:
    """By the sizes and the precision alone."""
    def kernel(x: tuple[int, ...], w: tuple[int, ...], threads: int = 1, precision: str = "strict", constant: bool = True, **attributes: Any) -> str:
        m = model(normal(*x), normal(*w), constant=constant, **attributes)
        session = tensorbox.Session(m, compile=False, threads=threads, precision=precision, disable_passes=["narrow_storage"])
        step = next(step for step in session.explain() if any(d.startswith("kernel: ") for d in step["decisions"]))
        return " ".join([step["name"], *step["decisions"]])

    x, w = (1, 64, 28, 28), (64, 64, 3, 3)
    for threads in (1, 2, 5):
        assert "Winograd F(2x2, 3x3)" in kernel(x, w, threads)
        assert "Winograd F(4x4, 3x3)" in kernel(x, w, threads, "any")
    assert "26 channels: sums of 27 and more lose no digits" in kernel((1, 26, 28, 28), (64, 26, 3, 3))
    assert "of the work of a direct convolution" in kernel((1, 64, 3, 3), w)
    refused = {"strides": [2, 2]}, {"group": 2}
    for attributes in refused:
        depth = 64 // attributes.get("group", 1)  # type: ignore[operator]
        assert THEIRS in kernel(x, (64, depth, 3, 3), **attributes)
    assert THEIRS in kernel(x, (64, 64, 5, 5)) and THEIRS in kernel(x, (64, 64, 1, 1))
    assert "weights that change" in kernel(x, w, constant=False)


def test_threads_and_packages_give_the_same_bits(tmp_path: Path) -> None:
    x, w = normal(1, 96, 30, 17), normal(80, 96, 3, 3)
    m = model(x, w, normal(80), pads=[1] * 4)
    first = tensorbox.Session(m, compile=False, threads=1)
    want = first.run({"x": x})["y"]
    for threads in (2, 3, 7):
        np.testing.assert_array_equal(tensorbox.Session(m, compile=False, threads=threads).run({"x": x})["y"], want)
    batch = tensorbox.Session(m, compile=False, threads=2, all_dims_dynamic=True).run({"x": np.concatenate([x, x])})["y"]
    np.testing.assert_array_equal(batch, np.concatenate([want, want]))
    first.save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx")
    assert OURS in decisions(loaded)
    np.testing.assert_array_equal(loaded.run({"x": x})["y"], want)
