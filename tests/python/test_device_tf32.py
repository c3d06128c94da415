"""precision="tf32": on a GPU (the fake one here, which rounds as tensor cores do) products and convolutions of float32 take
operands of 11 significant bits; everywhere else it is refused. The reference is numpy in double."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorbox
from test_device import model_of

RNG = np.random.default_rng(23)
F32 = TensorProto.FLOAT
ON_GPU = bool(os.environ.get("TBX_TEST_GPU"))
ROUNDED = "operands of float32 are rounded to TF32"


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_GPU:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def draw(*sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes).astype("f")


def tf32(x: np.ndarray) -> np.ndarray:
    """The nearest numbers of 11 significant bits, ties away from 0, as double."""
    bits = x.astype("f").view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("f").astype(np.float64)


def within_bound(got: np.ndarray, exact: np.ndarray, sizes: np.ndarray, terms: int) -> None:
    """The bound of docs/precision.md, `sizes` being the sums of magnitudes."""
    unit = 2.0**-11
    assert (np.abs(got - exact) <= (2 * unit + unit**2 + (terms + 2) * 2.0**-24) * sizes + 1e-30).all()


def product(rows: Any, weights: np.ndarray) -> Any:
    return model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F32, [rows, weights.shape[0]])},
                    {"y": (F32, [rows, weights.shape[1]])}, w=weights)


def decisions(session: tensorbox.Session) -> list[str]:
    return [line for kernel in session.explain() for line in kernel["decisions"]]


@pytest.mark.parametrize("n", [1, 7, 768])
def test_products(n: int) -> None:
    w = draw(96, n)
    session = tensorbox.Session(product("rows", w), device="cuda", precision="tf32")
    strict = tensorbox.Session(product("rows", w), device="cuda")
    assert ROUNDED in decisions(session) and ROUNDED not in decisions(strict)
    for rows in (0, 1, 33, 33, 33):  # the last ones are recorded and replayed
        x = draw(rows, 96)
        got = session.run({"x": x})["y"]
        within_bound(got, x.astype(np.float64) @ w, np.abs(x) @ np.abs(w), 96)
        if not ON_GPU:  # libraries may cut what the fake device rounds
            np.testing.assert_allclose(got, tf32(x) @ tf32(w), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(strict.run({"x": x})["y"], x.astype(np.float64) @ w, rtol=1e-4, atol=1e-5)


def test_operands_are_rounded_indeed() -> None:
    """1 + 2^-12 is 1 in TF32 and itself in float32."""
    w, x = np.full((8, 16), 1 + 2.0**-12, "f"), np.ones((4, 8), "f")
    got = {p: tensorbox.Session(product(4, w), device="cuda", precision=p).run({"x": x})["y"] for p in ("strict", "tf32")}
    assert (got["strict"] == 8 * (1 + 2.0**-12)).all()
    assert ON_GPU or (got["tf32"] == 8).all()


@pytest.mark.parametrize("kernel", [1, 3])
def test_convolutions(kernel: int) -> None:
    w, b, x = draw(24, 8, kernel, kernel), draw(24), draw(2, 8, 9, 11)
    model = model_of([helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4), helper.make_node("Relu", ["c"], ["y"])],
                     {"x": (F32, list(x.shape))}, {"y": (F32, [2, 24, 9, 11])}, w=w, b=b)

    def exact(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
        k = kernel // 2
        padded = np.pad(image, [(0, 0), (0, 0), (k, k), (k, k)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))
        return np.einsum("nchwij,ocij->nohw", windows, weights)

    session = tensorbox.Session(model, device="cuda", precision="tf32")
    assert ROUNDED in decisions(session)
    for _ in range(3):
        got = session.run({"x": x})["y"]
        bias = b.astype(np.float64)[:, None, None]
        within_bound(got, np.maximum(exact(x.astype(np.float64), w) + bias, 0), exact(np.abs(x), np.abs(w)) + np.abs(bias),
                     8 * kernel * kernel)
        if not ON_GPU:
            np.testing.assert_allclose(got, np.maximum(exact(tf32(x), tf32(w)) + bias, 0), rtol=1e-4, atol=1e-5)


def test_what_is_no_product_of_float32_stays_as_it_is() -> None:
    """Memory, reductions and elementwise work are float32; double is multiplied as double."""
    x, w = draw(5, 64), RNG.standard_normal((64, 3))
    nodes = [helper.make_node("LayerNormalization", ["x", "scale"], ["n"]), helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
             helper.make_node("MatMul", ["d", "w"], ["y"])]
    model = model_of(nodes, {"x": (F32, [5, 64])}, {"n": (F32, [5, 64]), "y": (TensorProto.DOUBLE, [5, 3])}, scale=np.ones(64, "f"), w=w)
    session = tensorbox.Session(model, device="cuda", precision="tf32")
    assert ROUNDED not in decisions(session)
    got, wide = session.run({"x": x}), x.astype(np.float64)
    np.testing.assert_allclose(got["y"], wide @ w, rtol=1e-12, atol=1e-12)
    centred = wide - wide.mean(1, keepdims=True)
    np.testing.assert_allclose(got["n"], centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5), rtol=1e-5, atol=1e-5)


def test_it_is_refused_without_a_gpu() -> None:
    with pytest.raises(tensorbox.ModelError, match="precision 'tf32' is a way in which GPUs multiply, and no device is given.*device 'cuda'"):
        tensorbox.Session(product(4, draw(8, 4)), precision="tf32")
    x, w = draw(4, 8), draw(8, 4)  # the reference is strict whatever the option says
    got = tensorbox.Session(product(4, w), precision="tf32", reference=True).run({"x": x})["y"]
    np.testing.assert_allclose(got, x.astype(np.float64) @ w, rtol=1e-6, atol=1e-6)


def test_the_option_of_the_execution_provider() -> None:
    w, x = np.full((8, 16), 1 + 2.0**-12, "f"), np.ones((4, 8), "f")
    model = product(4, w).SerializeToString()
    for value, rounds in ((1, True), ("1", True), ("True", True), (0, False), (None, False)):
        options = {} if value is None else {"use_tf32": value}
        session = tensorbox.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])
        assert (ROUNDED in decisions(session._session)) == rounds
        assert ON_GPU or (session.run(None, {"x": x})[0] == (8 if rounds else 8 * (1 + 2.0**-12))).all()
