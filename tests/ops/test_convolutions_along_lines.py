"""Convolutions of an only channel along lines, as short-time Fourier transforms are exported: their windows are rows of a product, which overlap."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox


def plain(x: np.ndarray, w: np.ndarray, stride: int, pads: tuple[int, int], dilation: int = 1) -> np.ndarray:
    """[n, 1, ..., length] and [results, 1, ..., window] by loops in float64."""
    line = np.pad(x.astype(np.float64), [(0, 0)] * (x.ndim - 1) + [pads])
    window = (w.shape[-1] - 1) * dilation + 1
    places = (line.shape[-1] - window) // stride + 1
    taken = np.stack([line[..., i * stride:i * stride + window:dilation] for i in range(places)], -2)
    return np.einsum("n...pk,ok->no...p", taken[:, 0], w.reshape(w.shape[0], -1).astype(np.float64))


def model_of(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, relu: bool, sizes: list[object], turned: bool = False, **attributes: object) -> bytes:
    given = "xt" if turned else "x"
    nodes = [helper.make_node("Transpose", ["x"], [given], perm=[1, 0, *range(2, x.ndim)])] if turned else []
    nodes.append(helper.make_node("Conv", [given, "w", *(["b"] if bias is not None else [])], ["c" if relu else "y"], **attributes))
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    constants = [numpy_helper.from_array(w, "w"), *([numpy_helper.from_array(bias, "b")] if bias is not None else [])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(got: np.ndarray, want: np.ndarray, x: np.ndarray, w: np.ndarray) -> None:
    assert got.shape == want.shape
    if want.size:
        bound = 2e-7 * w.shape[-1] * max(1.0, float(np.abs(x).max(initial=0)) * float(np.abs(w).max()))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=bound)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("n,length,results,window,stride,pads", [
    (1, 16000, 64, 400, 160, (200, 200)), (1, 3001, 514, 512, 128, (256, 255)), (3, 1000, 9, 16, 1, (0, 0)), (2, 517, 130, 33, 7, (0, 5)),
    (1, 400, 33, 400, 1, (0, 0)), (1, 399, 8, 400, 3, (1, 0)), (2, 0, 40, 17, 2, (20, 9)), (2, 0, 40, 17, 2, (16, 9)), (0, 100, 16, 20, 5, (3, 3)), (1, 100, 7, 25, 25, (0, 0))])
def test_windows_are_rows(isa: str, n: int, length: int, results: int, window: int, stride: int, pads: tuple[int, int]) -> None:
    rng = np.random.default_rng(length)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, 1, length), (results, 1, window)))
    bias = rng.standard_normal(results).astype(np.float32)
    want = plain(x, w, stride, pads) + bias[:, None]
    model = model_of(x, w, bias, True, ["n", 1, "length"], strides=[stride], pads=list(pads))
    for threads in (1, 2, 3):
        try:
            session = tensorbox.Session(model, threads=threads, isa=isa)
        except tensorbox.ModelError as e:
            assert "does not run isa" in str(e)
            return
        check(session.run({"x": x})["y"], np.maximum(want, 0), x, w)


@pytest.mark.parametrize("height", [1, 3])
def test_lines_of_images(height: int) -> None:
    rng = np.random.default_rng(height)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 1, height, 900), (65, 1, 1, 64)))
    model = model_of(x, w, None, False, [2, 1, height, 900], strides=[1, 16], pads=[0, 30, 0, 31])
    session = tensorbox.Session(model)
    assert any("own tiles" in step["name"] for step in session.explain())
    check(session.run({"x": x})["y"], plain(x, w, 16, (30, 31)), x, w)


def test_lines_that_lie_apart_and_dilated_ones() -> None:
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 4, 700), (40, 1, 50)))
    turned = model_of(x, w, None, False, [1, 4, 700], turned=True, strides=[11], pads=[25, 25])
    check(tensorbox.Session(turned).run({"x": x})["y"], plain(x.transpose(1, 0, 2), w, 11, (25, 25)), x, w)
    dilated = model_of(x[:, :1], w, None, False, [1, 1, 700], strides=[3], dilations=[2], pads=[4, 4])
    check(tensorbox.Session(dilated).run({"x": x[:, :1].copy()})["y"], plain(x[:, :1], w, 3, (4, 4), 2), x, w)


def test_a_residual_and_shapes_one_after_the_other() -> None:
    rng = np.random.default_rng(3)
    w = rng.standard_normal((32, 1, 48)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[4], pads=[22, 22]), helper.make_node("Add", ["c", "r"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "l"]),
                                           helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 32, "m"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    for length in (4, 1000, 16, 8000, 7, 1000):
        x = rng.standard_normal((1, 1, length)).astype(np.float32)
        want = plain(x, w, 4, (22, 22))
        r = rng.standard_normal(want.shape).astype(np.float32)
        check(session.run({"x": x, "r": r})["y"], want + r, x, w)


def test_several_callers() -> None:
    """Each has a padded copy of its own."""
    rng = np.random.default_rng(4)
    w = rng.standard_normal((24, 1, 100)).astype(np.float32)
    lines = [rng.standard_normal((2, 1, length)).astype(np.float32) for length in (16000, 1, 777, 4001)]
    session = tensorbox.Session(model_of(lines[0], w, None, False, ["n", 1, "length"], strides=[10], pads=[50, 50]))

    def call(number: int) -> None:
        x = lines[number % len(lines)]
        check(session.run({"x": x})["y"], plain(x, w, 10, (50, 50)), x, w)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(64)))
