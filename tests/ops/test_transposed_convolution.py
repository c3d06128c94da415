"""ConvTranspose with strides and what follows it in decoders, against plain loops."""
from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")


@pytest.mark.parametrize("channels, size, made", [(12, (127, 32), 8), (128, (2, 4), 8), (3, (1, 1), 1), (64, (7, 9), 33)])
@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("steps", [("Add",), ("Relu", "Add"), ("Add", "Mul"), ("Sigmoid", "Add", "Mul", "Mul")])
def test_residuals(channels: int, size: tuple[int, int], made: int, kernel: int, steps: tuple[str, ...]) -> None:
    """A skip connection is added in its own memory, which is no matter of the kernels that are refused."""
    rng = np.random.default_rng(channels)
    pads = [(kernel - 2) // 2] * 4
    out = [1, made, 2 * size[0], 2 * size[1]]
    feeds = {"x": rng.standard_normal((1, channels, *size), np.float32)}
    w = rng.standard_normal((channels, made, kernel, kernel), np.float32) / channels ** 0.5
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["v0"], strides=[2, 2], pads=pads)]
    for i, op in enumerate(steps):
        inputs = [f"v{i}"]
        if op in ("Add", "Mul"):
            inputs.append(f"r{i}")
            feeds[f"r{i}"] = rng.standard_normal(out, np.float32)
        nodes.append(helper.make_node(op, inputs, [f"v{i + 1}"]))
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, out)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(rng.standard_normal(made, np.float32), "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    want = tensorbox.Session(model, reference=True).run(feeds)[last]
    for compiled in (False, True):
        np.testing.assert_allclose(tensorbox.Session(model, compile=compiled).run(feeds)[last], want, 1e-4, 1e-4)
    onnx.checker.check_model(model)


def by_taps(x: np.ndarray, w: np.ndarray, groups: int, strides: list[int], dilations: list[int], pads: list[int],
            more: list[int]) -> np.ndarray:
    """In float64: every pixel times every element of the kernel, added where it belongs."""
    rank, each = x.ndim - 2, x.shape[1] // groups
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *[r + m for r, m in zip(reach, more, strict=True)]))
    for g in range(groups):
        of = slice(g * each, (g + 1) * each)
        for tap in np.ndindex(*w.shape[2:]):
            part = np.einsum("nc...,cm->nm...", x[:, of].astype(np.float64), w[(of, slice(None), *tap)].astype(np.float64))
            to = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, x.shape[2:], strides, strict=True))
            y[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *to)] += part
    cut = tuple(slice(pads[d], y.shape[d + 2] - pads[rank + d]) for d in range(rank))
    return y[(slice(None), slice(None), *cut)]


# image, results of a group, kernel, groups, strides, dilations, pads, output_padding
CROPPED = [
    ((1, 33, 3, 3), 3, (3, 4), 1, [1, 4], [1, 3], [3, 0, 0, 8], [0, 3]),
    ((4, 32, 17, 2), 3, (4, 4), 2, [1, 2], [1, 2], [2, 4, 4, 2], [0, 0]),
    ((1, 64, 17, 5), 3, (3, 3), 1, [1, 3], [1, 1], [2, 2, 2, 3], [0, 0]),
    ((4, 64, 2, 3, 9), 3, (2, 3, 1), 1, [4, 2, 1], [3, 2, 1], [1, 4, 1, 3, 5, 0], [2, 1, 0]),
    ((2, 16, 40, 9), 24, (3, 3), 1, [1, 1], [1, 1], [9, 2, 7, 4], [0, 0]),
    ((2, 5, 60), 7, (3,), 1, [1], [1], [20, 11], [0]),
    ((1, 8, 30, 30), 1, (5, 5), 1, [2, 2], [1, 1], [12, 9, 11, 20], [1, 0]),
    ((1, 6, 30, 30), 1, (3, 3), 6, [1, 1], [2, 1], [12, 9, 11, 10], [0, 0]),
]


@pytest.mark.parametrize("case", CROPPED, ids=[f"{c[0]} {c[2]} {c[6]}" for c in CROPPED])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constant", [False, True])
def test_padding_that_leaves_less_than_the_image(case: tuple, dtype: type, constant: bool) -> None:
    image, made, kernel, groups, strides, dilations, pads, more = case
    rng = np.random.default_rng(2)
    x = rng.standard_normal(image).astype(dtype)
    w = rng.standard_normal((image[1], made, *kernel)).astype(dtype) / image[1] ** 0.5
    w = w.astype(dtype)
    want = by_taps(x, w, groups, strides, dilations, pads, more)
    of = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    feeds = {"x": x} | ({} if constant else {"w": w})
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], group=groups, strides=strides, dilations=dilations, pads=pads,
                            output_padding=more)
    model = helper.make_model(helper.make_graph(
        [node], "cropped", [helper.make_tensor_value_info(n, of, v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info("y", of, None)], [numpy_helper.from_array(w, "w")] if constant else []),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for dynamic in (False, True):
        for isa in ("sse", ""):
            session = tensorbox.Session(model, all_dims_dynamic=dynamic, threads=1, compile=False, **({"isa": isa} if isa else {}))
            for _ in range(2):
                got = session.run(feeds)["y"]
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, 1e-4, 1e-4 * np.abs(want).max())


# Few results for each group, which are made tap by tap: image, results of a group, kernel, groups, strides, dilations, pads,
# output_padding
FEW = [
    ((2, 10, 3, 4), 1, (3, 3), 2, [5, 3], [1, 1], [0, 0, 0, 0], [0, 0]),
    ((1, 64, 9, 31), 1, (3, 3), 4, [5, 3], [1, 1], [1, 0, 0, 2], [4, 1]),
    ((3, 4, 5, 6, 7), 1, (1, 1, 1), 1, [2, 2, 2], [1, 1, 1], [0, 0, 0, 0, 0, 0], [1, 0, 1]),
    ((1, 96, 7, 5), 1, (16, 16), 2, [2, 2], [1, 1], [7, 0, 7, 0], [0, 1]),
    ((2, 65, 7, 5), 7, (11, 11), 1, [3, 1], [2, 2], [6, 3, 6, 3], [0, 0]),
    ((2, 1, 8, 33), 1, (3, 3), 1, [5, 5], [1, 1], [0, 1, 0, 1], [0, 0]),
    ((1, 9, 1, 1), 2, (2, 5), 3, [1, 4], [3, 2], [0, 1, 1, 0], [0, 3]),
    ((2, 21, 35), 3, (4,), 7, [3], [1], [2, 1], [0]),
    ((0, 8, 3, 3), 1, (3, 3), 2, [2, 2], [1, 1], [0, 0, 0, 0], [0, 0]),
]


@pytest.mark.parametrize("case", FEW, ids=[f"{c[0]} {c[2]} {c[3]}" for c in FEW])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("constant", [False, True])
def test_few_results_of_groups(case: tuple, dtype: type, constant: bool) -> None:
    """As the model has the image, with channels last (between two transpositions), with a bias, on one thread and two."""
    image, made, kernel, groups, strides, dilations, pads, more = case
    rng = np.random.default_rng(5)
    x = rng.standard_normal(image).astype(dtype)
    w = (rng.standard_normal((image[1], made, *kernel)) / (image[1] // groups) ** 0.5).astype(dtype)
    bias = rng.standard_normal(made * groups).astype(dtype)
    want = by_taps(x, w, groups, strides, dilations, pads, more) + bias.reshape(-1, *[1] * len(kernel)).astype(np.float64)
    sizes = by_taps(np.abs(x), np.abs(w), groups, strides, dilations, pads, more) + np.abs(bias).max()
    of = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    last, first = [0, *range(2, x.ndim), 1], [0, x.ndim - 1, *range(1, x.ndim - 1)]
    for turned in (False, True):
        given = x.transpose(last) if turned else x
        feeds = {"x": np.ascontiguousarray(given)} | ({} if constant else {"w": w})
        node = helper.make_node("ConvTranspose", ["t" if turned else "x", "w", "b"], ["c" if turned else "y"], group=groups,
                                strides=strides, dilations=dilations, pads=pads, output_padding=more)
        around = [helper.make_node("Transpose", ["x"], ["t"], perm=first), node, helper.make_node("Transpose", ["c"], ["y"], perm=last)]
        model = helper.make_model(helper.make_graph(
            around if turned else [node], "few", [helper.make_tensor_value_info(n, of, v.shape) for n, v in feeds.items()],
            [helper.make_tensor_value_info("y", of, None)],
            [numpy_helper.from_array(bias, "b"), *([numpy_helper.from_array(w, "w")] if constant else [])]),
            opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        for dynamic in (False, True):
            for isa, threads in (("sse", 1), ("avx2", 1), ("", 2)):
                session = tensorbox.Session(model, all_dims_dynamic=dynamic, threads=threads, compile=False, **({"isa": isa} if isa else {}))
                for _ in range(2):
                    got = session.run(feeds)["y"].transpose(first) if turned else session.run(feeds)["y"]
                    assert got.shape == want.shape
                    assert (np.abs(got - want) <= np.finfo(dtype).eps * 64 * sizes).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dilation", [2**20 - 3, 2**20 + 1])
@pytest.mark.parametrize("stride", [1, 3])
def test_a_kernel_that_spans_a_long_line(dilation: int, stride: int, dtype: type) -> None:
    """Our own kernel looks for the taps of a phase among all places that the kernel spans, up to a number of them."""
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((1, 2, 5)).astype(dtype), rng.standard_normal((2, 3, 2)).astype(dtype)
    want = by_taps(x, w, 1, [stride], [dilation], [0, 0], [0])
    of = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[stride], dilations=[dilation])
    graph = helper.make_graph([node], "far", [helper.make_tensor_value_info("x", of, x.shape)],
                              [helper.make_tensor_value_info("y", of, None)], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = tensorbox.Session(model, compile=False).run({"x": x})["y"]
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= np.finfo(dtype).eps * 16
