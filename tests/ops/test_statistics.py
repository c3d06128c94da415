"""Means and variances of rows whose mean is far larger than their deviation, against float64: all normalisations and the
chains of reductions that exporters write for a variance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

EPSILON = 1e-5
SHAPES = [(3, 6, 40), (2, 4, 3, 70), (1, 2, 700, 400), (5, 4, 1), (1, 2, 1)]
OFFSETS = [0.0, 1e3, -1e4, 1e6]


def rows(shape: tuple[int, ...], offset: float) -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) + offset).astype(np.float32)


def exact(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and normalised values in float64, of the float32 values as they are."""
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return mean, variance, (wide - mean) / np.sqrt(variance + EPSILON)


def model(nodes: list[onnx.NodeProto], shape: tuple[int, ...], outputs: list[str], opset: int,
          weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "statistics", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
                              [numpy_helper.from_array(w, name) for name, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def ones(n: int) -> dict[str, np.ndarray]:
    return {"s": np.ones(n, np.float32), "b": np.zeros(n, np.float32)}


def layer(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "mean", "inverse"], axis=2, epsilon=EPSILON)
    return model([node], shape, ["y", "mean", "inverse"], 17, {"s": np.ones(shape[2:], np.float32)}), tuple(range(2, len(shape)))


def instance(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=EPSILON)
    return model([node], shape, ["y"], 17, ones(shape[1])), tuple(range(2, len(shape)))


def group(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], epsilon=EPSILON, num_groups=1)
    return model([node], shape, ["y"], 21, ones(shape[1])), tuple(range(1, len(shape)))


def batch(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """With momentum 0 the running statistics are those of the batch."""
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "mean", "variance"], epsilon=EPSILON,
                            training_mode=1, momentum=0.0)
    weights = ones(shape[1]) | {"m": np.zeros(shape[1], np.float32), "v": np.zeros(shape[1], np.float32)}
    return model([node], shape, ["y", "mean", "variance"], 15, weights), (0, *range(2, len(shape)))


def mean_variance(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=list(range(1, len(shape))))
    return model([node], shape, ["y"], 13, {}), tuple(range(1, len(shape)))


def chain(shape: tuple[int, ...]) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """As PyTorch exports var and a layer normalisation written by hand."""
    axes = tuple(range(2, len(shape)))
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=axes), helper.make_node("Sub", ["x", "mean"], ["d"]),
             helper.make_node("Mul", ["d", "d"], ["square"]), helper.make_node("ReduceMean", ["square"], ["variance"], axes=axes),
             helper.make_node("Add", ["variance", "epsilon"], ["shifted"]), helper.make_node("Sqrt", ["shifted"], ["root"]),
             helper.make_node("Div", ["d", "root"], ["y"])]
    return model(nodes, shape, ["y", "mean", "variance"], 17, {"epsilon": np.float32(EPSILON)}), axes


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
@pytest.mark.parametrize("build", [layer, instance, group, batch, mean_variance, chain])
def test_far_from_zero(build: Callable[..., tuple[onnx.ModelProto, tuple[int, ...]]], compiled: bool, dynamic: bool) -> None:
    """The mean is right to two ulps, the variance to 1e-5 (and the square of the mean's error), and what is
    normalised to what a mean in float32 allows."""
    for shape in SHAPES:
        proto, axes = build(shape)
        session = tensorbox.Session(proto, compile=compiled, all_dims_dynamic=dynamic)
        for offset in OFFSETS:
            x = rows(shape, offset)
            mean, variance, normalised = exact(x, axes)
            got = {name: np.asarray(value, np.float64) for name, value in session.run({"x": x}).items()}
            error = 2 * np.spacing(np.abs(mean).astype(np.float32)).astype(np.float64) + 1e-7  # of the mean
            deviation = np.sqrt(variance + (0 if build is mean_variance else EPSILON))
            where = f"{build.__name__} {shape} {offset}"
            if build is mean_variance:
                normalised = (x.astype(np.float64) - mean) / (deviation + 1e-9)
            if np.any(variance == 0):  # equal values in a row: their distance from their mean
                np.testing.assert_array_less(np.abs(got["y"]), 1e-3, where)
                continue
            bound = 2 * error / deviation + 1e-5 * (1 + np.abs(normalised))
            assert np.all(np.abs(got["y"] - normalised) <= bound), where
            for name, want, allowed in (("mean", mean, error), ("variance", variance, 1e-5 * variance + error**2),
                                        ("inverse", 1 / deviation, (1e-5 + error**2 / variance) / deviation)):
                if name in got:
                    assert np.all(np.abs(got[name].reshape(want.shape) - want) <= allowed), f"{where}: {name}"


@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
def test_half_precision(compiled: bool) -> None:
    """Statistics of float16 are float32: nothing overflows or vanishes on the way."""
    x = rows((4, 3, 5000), 1e3).astype(np.float16)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=2, epsilon=EPSILON)
    graph = helper.make_graph([node], "half", [helper.make_tensor_value_info("x", TensorProto.FLOAT16, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT16, x.shape)],
                              [numpy_helper.from_array(np.ones(5000, np.float16), "s")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    got = tensorbox.Session(proto, compile=compiled).run({"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(got, exact(x, (2,))[2], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
@pytest.mark.parametrize("deviation", [1.0, 1e-9, 0.0])
@pytest.mark.parametrize("axes", [[0, 2, 3], [1, 2], [3]])
def test_mean_variance_normalization_of_doubles(axes: list[int], deviation: float, compiled: bool) -> None:
    """In double precision throughout. The body that ONNX defines adds a float32 constant to doubles, which no Add takes;
    the 1e-9 that it means matters where deviations are as small."""
    x = np.random.default_rng(7).standard_normal((3, 4, 5, 6)) * deviation + 0.25
    graph = helper.make_graph([helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=axes)], "double",
                              [helper.make_tensor_value_info("x", TensorProto.DOUBLE, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10),
                                compile=compiled)
    y = session.run({"x": x})["y"]
    assert y.dtype == np.float64
    along = tuple(axes)
    want = (x - x.mean(along, keepdims=True)) / (x.std(along, keepdims=True) + 1e-9)
    if deviation >= 1:
        np.testing.assert_allclose(y, want, rtol=1e-11, atol=1e-13)
    else:  # a mean of numbers of 0.25 is off by some 1e-17, 1e-8 of these deviations
        np.testing.assert_allclose(y, want, rtol=0, atol=1e-7)


@pytest.mark.parametrize("compile", [False, True])
def test_instances_of_halves_are_rounded_once(compile: bool) -> None:
    """The operator's formula has no value of the data type between input and result."""
    rng = np.random.default_rng(8)
    x = (rng.standard_normal((2, 5, 33, 7)) * 3 + 20).astype(np.float16)
    s, b = (rng.standard_normal(5).astype(np.float16) for _ in range(2))
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=EPSILON)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "halves", infos[:1], infos[1:], [numpy_helper.from_array(w, n) for n, w in (("s", s), ("b", b))])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    got = tensorbox.Session(m, compile=compile).run({"x": x})["y"].astype(np.float64)
    scale, bias = (w.astype(np.float64)[:, None, None] for w in (s, b))
    want = exact(x, (2, 3))[2] * scale + bias
    assert (np.abs(got - want) <= 2.0**-11 * np.abs(want) + 1e-5).all()
