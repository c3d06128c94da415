"""Products and convolutions that kernels of our own compute: double precision, and what the library has only plain loops for.

The patterns below are what models have: post-operations whose operand comes from outside, a column as bias, depthwise and grouped
transposed convolutions, heads that share their keys.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import tensorbox

ml_dtypes = pytest.importorskip("ml_dtypes")
RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def model(nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray],
          result: np.dtype, opset: int = 22) -> onnx.ModelProto:
    def kind(value: np.ndarray) -> int:
        return helper.np_dtype_to_tensor_dtype(value.dtype)

    infos = [helper.make_tensor_value_info(n, kind(v), v.shape) for n, v in feeds.items()]
    values = [helper.make_tensor(n, kind(v), v.shape, v.tobytes(), raw=True) for n, v in constants.items()]
    out = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)
    graph = helper.make_graph(list(nodes), "own products", infos, [out], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def sessions(m: onnx.ModelProto, **options: Any) -> list[Any]:
    return [tensorbox.Session(m, compile=False, all_dims_dynamic=dynamic, **options) for dynamic in (False, True)]


def conv(x: np.ndarray, w: np.ndarray, transposed: bool, group: int, strides: Sequence[int], dilations: Sequence[int],
         pads: Sequence[int], extra: Sequence[int]) -> np.ndarray:
    """In float64, tap by tap."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    rank, kernel = x.ndim - 2, w.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if transposed:
        out = [(n - 1) * s + r - pads[a] - pads[rank + a] + extra[a]
               for a, (n, s, r) in enumerate(zip(x.shape[2:], strides, reach, strict=True))]
        per_group = w.shape[1]
    else:
        out = [(n + pads[a] + pads[rank + a] - r) // s + 1 for a, (n, s, r) in enumerate(zip(x.shape[2:], strides, reach, strict=True))]
        per_group = w.shape[0] // group
    y = np.zeros((x.shape[0], group * per_group, *out))
    for k in itertools.product(*map(range, kernel)):
        for at in itertools.product(*map(range, x.shape[2:] if transposed else out)):
            other = [at[a] * strides[a] + k[a] * dilations[a] - pads[a] for a in range(rank)]
            limit = out if transposed else x.shape[2:]
            if any(o < 0 or o >= n for o, n in zip(other, limit, strict=True)):
                continue
            source, target = (at, other) if transposed else (other, at)
            taken = x[(slice(None), slice(None), *source)].reshape(x.shape[0], group, x.shape[1] // group)
            factor = w[(slice(None), slice(None), *k)]
            if transposed:
                part = np.einsum("ngc,gcm->ngm", taken, factor.reshape(group, -1, per_group))
            else:
                part = np.einsum("ngc,gmc->ngm", taken, factor.reshape(group, per_group, -1))
            y[(slice(None), slice(None), *target)] += part.reshape(x.shape[0], group * per_group)
    return y


# group, input channels and results of each group
GROUPS = [(1, 1, 1), (1, 3, 3), (1, 16, 33), (17, 1, 1), (21, 1, 1), (6, 1, 4), (3, 5, 7), (2, 1, 40), (100, 1, 1),
          (8, 2, 2), (5, 4, 4), (11, 3, 3), (9, 2, 8), (6, 8, 2), (33, 1, 3), (3, 1, 1), (2, 2, 1)]
# kernel, strides, dilations, pads, sizes, output padding
WINDOWS: list[tuple[list[int], ...]] = [
    ([3], [2], [1], [1, 1], [9], [0]), ([2], [1], [1], [0, 0], [1], [0]), ([5], [4], [1], [2, 2], [8], [3]), ([1], [3], [1], [0, 0], [5], [0]),
    ([4, 4], [2, 2], [1, 1], [1, 1, 1, 1], [5, 6], [0, 0]), ([3, 2], [1, 3], [2, 1], [1, 0, 2, 0], [6, 4], [0, 2]),
    ([3, 3], [3, 2], [2, 3], [0, 1, 1, 2], [7, 8], [0, 1]), ([2, 2, 3], [1, 2, 1], [1, 1, 1], [0, 0, 1, 0, 1, 1], [3, 4, 5], [0, 0, 0]),
]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_convolutions(transposed: bool, group: tuple[int, int, int], kind: type) -> None:
    groups, depth, columns = group
    for number, (kernel, strides, dilations, pads, sizes, extra) in enumerate(WINDOWS):
        if kind not in (np.float64, np.float32) and number % 3:
            continue
        if not transposed and any(n + pads[a] + pads[len(sizes) + a] <= (kernel[a] - 1) * dilations[a] for a, n in enumerate(sizes)):
            continue
        x = normal(2 - number % 2, groups * depth, *sizes).astype(kind)
        w = normal(*((groups * depth, columns) if transposed else (groups * columns, depth)), *kernel).astype(kind)
        b = normal(groups * columns).astype(kind)
        attributes: dict[str, Any] = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
        if transposed:
            attributes["output_padding"] = extra
        with_bias, constant = number % 2 == 0, number % 3 != 1
        names = ["x", "w", "b"][: 3 if with_bias else 2]
        node = helper.make_node("ConvTranspose" if transposed else "Conv", names, ["y"], **attributes)
        given = {"w": w} | ({"b": b} if with_bias else {})
        m = model([node], {"x": x} | ({} if constant else given), given if constant else {}, np.dtype(kind))
        want = conv(x, w, transposed, groups, strides, dilations, pads, extra)
        if with_bias:
            want += b.astype(np.float64).reshape(1, -1, *[1] * len(kernel))
        step = {8: 1e-14, 4: 1e-6, 2: 2**-10 if kind is np.float16 else 2**-7}[np.dtype(kind).itemsize]
        for session in sessions(m, threads=2):
            got = session.run({"x": x} | ({} if constant else given))["y"]
            assert got.shape == want.shape and got.dtype == np.dtype(kind)
            np.testing.assert_allclose(got.astype(np.float64), want, 8 * step, 8 * step * max(1, np.abs(want).max()))


@pytest.mark.parametrize("group", [(96, 1, 1), (32, 4, 4), (43, 3, 3), (64, 1, 2), (13, 1, 3), (32, 2, 8), (40, 8, 2)])
@pytest.mark.parametrize("size", [(0, 5), (1, 1), (28, 31)])
def test_convolutions_of_small_groups(group: tuple[int, int, int], size: tuple[int, int]) -> None:
    """At the sizes of layers. The library takes such groups one after the other."""
    groups, depth, columns = group
    x, w = normal(2, groups * depth, *size), normal(groups * columns, depth, 3, 3)
    node = helper.make_node("Conv", ["x", "w"], ["c"], group=groups, dilations=[2, 1], pads=[2, 1, 2, 1])
    m = model([node, helper.make_node("Relu", ["c"], ["y"])], {"x": x}, {"w": w}, np.dtype(np.float32))
    want = np.maximum(conv(x, w, False, groups, (1, 1), (2, 1), (2, 1, 2, 1), (0, 0)), 0)
    for session in sessions(m, threads=2):
        np.testing.assert_allclose(session.run({"x": x})["y"], want, 1e-4, 1e-4)


@pytest.mark.parametrize("group", [(64, 1, 1), (32, 4, 4), (32, 2, 4)])
def test_small_groups_in_three_dimensions_are_ours(group: tuple[int, int, int]) -> None:
    groups, depth, columns = group
    x, w = normal(1, groups * depth, 5, 6, 7), normal(groups * columns, depth, 3, 3, 3)
    m = model([helper.make_node("Conv", ["x", "w"], ["y"], group=groups)], {"x": x}, {"w": w}, np.dtype(np.float32))
    session = tensorbox.Session(m, compile=False)
    assert any("kernel: direct_conv" in d for step in session.explain() for d in step["decisions"])
    want = conv(x, w, False, groups, (1, 1, 1), (1, 1, 1), (0,) * 6, (0, 0, 0))
    np.testing.assert_allclose(session.run({"x": x})["y"], want, 1e-4, 1e-4)


@pytest.mark.parametrize(("transposed", "depth", "columns", "kernel", "strides", "dilations"), [
    (False, 64, 3, (9, 9), (1, 1), (1, 1)), (False, 33, 1, (3, 5), (1, 1), (2, 1)), (True, 40, 1, (3, 4), (1, 1), (1, 2)),
    (True, 48, 3, (4, 4), (2, 2), (1, 1)), (True, 16, 2, (7, 5), (3, 2), (1, 3)), (True, 130, 1, (1, 7), (4, 4), (1, 1))])
@pytest.mark.parametrize("size", [(0, 3), (1, 1), (2, 7), (13, 22)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_convolutions_of_few_results(transposed: bool, depth: int, columns: int, kernel: tuple[int, ...], strides: tuple[int, ...],
                                     dilations: tuple[int, ...], size: tuple[int, int], kind: type) -> None:
    """Pixels times all elements of the kernel first, sums of what belongs together after."""
    x, b = normal(3, depth, *size).astype(kind), normal(columns).astype(kind)
    w = normal(*((depth, columns) if transposed else (columns, depth)), *kernel).astype(kind)
    pads = [0, 1, 0, 0] if transposed else [(k - 1) * d // 2 for k, d in zip(kernel, dilations, strict=True)] * 2
    node = helper.make_node("ConvTranspose" if transposed else "Conv", ["x", "w", "b"], ["y"], strides=strides, dilations=dilations, pads=pads)
    m = model([node], {"x": x}, {"w": w, "b": b}, np.dtype(kind))
    session = tensorbox.Session(m, compile=False, all_dims_dynamic=True, threads=2)
    assert any("kernel: direct_conv" in d for step in session.explain() for d in step["decisions"])
    if transposed and 0 in size:
        return # ONNX gives such results no size
    want = conv(x, w, transposed, 1, strides, dilations, pads, (0, 0)) + b.astype(np.float64).reshape(1, -1, 1, 1)
    for session in (session, tensorbox.Session(m, compile=False)):
        got = session.run({"x": x})["y"]
        assert got.shape == want.shape
        tolerance = 2e-5 if kind is np.float32 else 1e-13
        np.testing.assert_allclose(got, want, tolerance, tolerance * max(1, np.abs(want).max(initial=0)))


# Groups that fill no vector of channels. Lines are long enough for vectors, or not, or empty.
LINES: list[tuple[bool, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    # transposed, kernel, strides, dilations, pads
    (False, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)), (False, (2, 5), (3, 2), (1, 3), (0, 7, 1, 2)), (False, (1, 4), (2, 5), (1, 1), (0, 0, 0, 3)),
    (True, (1, 3), (2, 2), (3, 3), (0, 2, 0, 2)), (True, (3, 2), (1, 3), (2, 1), (1, 0, 2, 1)), (True, (4, 4), (2, 1), (1, 2), (1, 1, 1, 1)),
    (False, (5,), (1,), (2,), (4, 4)), (True, (3,), (4,), (1,), (1, 0)), (False, (2, 1, 3), (1, 2, 1), (1, 1, 2), (0, 0, 2, 1, 0, 2)),
]


@pytest.mark.parametrize("group", [(2, 1, 1), (3, 1, 1), (3, 1, 2), (2, 9, 1), (3, 5, 3), (5, 33, 2)])
@pytest.mark.parametrize("width", [0, 1, 7, 37, 130])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.uint8])
def test_convolutions_by_lines(group: tuple[int, int, int], width: int, kind: type) -> None:
    groups, depth, columns = group
    for number, (transposed, kernel, strides, dilations, pads) in enumerate(LINES):
        rank = len(kernel)
        sizes = (*[6] * (rank - 1), width)
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        if kind is np.uint8 and transposed:
            continue # ONNX has none
        if transposed and width * strides[-1] <= reach[-1] or not transposed and width + pads[rank - 1] + pads[-1] < reach[-1]:
            continue
        attributes: dict[str, Any] = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
        shape = (*((groups * depth, columns) if transposed else (groups * columns, depth)), *kernel)
        images = number % 3
        if kind is np.uint8:
            x, w = RNG.integers(0, 256, (images, groups * depth, *sizes)).astype(np.uint8), RNG.integers(-128, 128, shape).astype(np.int8)
            m = model([helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attributes)], {"x": x}, {"w": w, "z": np.array(77, np.uint8)},
                      np.dtype(np.int32))
            want = conv(x.astype(np.int64) - 77, w, False, groups, strides, dilations, pads, [0] * rank)
        else:
            x, w, b = normal(images, groups * depth, *sizes).astype(kind), normal(*shape).astype(kind), normal(groups * columns).astype(kind)
            m = model([helper.make_node("ConvTranspose" if transposed else "Conv", ["x", "w", "b"], ["y"], **attributes)], {"x": x},
                      {"w": w, "b": b}, np.dtype(kind))
            want = conv(x, w, transposed, groups, strides, dilations, pads, [0] * rank) + b.astype(np.float64).reshape(1, -1, *[1] * rank)
        tolerance = {np.float32: 2e-5, np.float64: 1e-13, np.uint8: 0.0}[kind]
        for session in sessions(m, threads=2):
            got = session.run({"x": x})["y"]
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, tolerance, tolerance * max(1, np.abs(want).max(initial=0)))


@pytest.mark.parametrize(("kernel", "strides", "dilations", "pads"), [
    ((1, 1), (3, 3), (1, 1), (0, 0, 0, 0)), ((2, 1), (4, 5), (1, 1), (1, 0, 3, 2)), ((3, 2), (4, 3), (3, 2), (5, 2, 0, 3)), ((2, 3), (5, 4), (5, 7), (2, 9, 2, 1))])
@pytest.mark.parametrize("group", [(1, 64, 5), (1, 3, 20), (32, 2, 8), (4, 7, 6)])
@pytest.mark.parametrize("size", [(0, 40), (9, 16), (21, 37)])
@pytest.mark.parametrize("kind", [np.float64, np.uint8])
def test_strides_that_pass_over_pixels(kernel: tuple[int, int], strides: tuple[int, int], dilations: tuple[int, int], pads: tuple[int, ...],
                                       group: tuple[int, int, int], size: tuple[int, int], kind: type) -> None:
    """Only pixels that a tap takes are copied."""
    groups, depth, columns = group
    if any(n + pads[a] + pads[a + 2] < (kernel[a] - 1) * dilations[a] + 1 for a, n in enumerate(size)):
        return
    x, w = RNG.integers(0, 256, (2, groups * depth, *size)), RNG.integers(-128, 128, (groups * columns, depth, *kernel))
    attributes: dict[str, Any] = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
    want = conv(x, w, False, groups, strides, dilations, pads, (0, 0))
    if kind is np.uint8:
        m = model([helper.make_node("ConvInteger", ["x", "w"], ["y"], **attributes)], {"x": x.astype(kind)}, {"w": w.astype(np.int8)}, np.dtype(np.int32))
    else:
        m = model([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], {"x": x.astype(kind)}, {"w": w.astype(kind)}, np.dtype(kind))
    for session in sessions(m, threads=2):
        np.testing.assert_array_equal(session.run({"x": x.astype(kind)})["y"], want)


@pytest.mark.parametrize(("group", "depth", "columns", "kernel"), [
    (1, 700, 9, (1, 1)), (1, 40, 33, (5, 7)), (1, 270, 1, (5, 5)), (1, 64, 2, (3, 7)), (2, 259, 3, (2, 1)), (1, 258, 40, (1, 2)), (24, 1, 2, (5, 5)), (13, 1, 3, (4, 4)), (20, 8, 8, (3, 3))])
@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("size", [(0, 9), (5, 7), (17, 12)])
def test_convolutions_of_bytes_are_exact(group: int, depth: int, columns: int, kernel: tuple[int, int], left: type, size: tuple[int, int]) -> None:
    """Largest values, sums far above what float32 counts in."""
    low = np.iinfo(left).min
    x = RNG.choice(np.array([low, low, np.iinfo(left).max], left), (2, group * depth, *size))
    w = RNG.choice(np.array([-128, -128, 127], np.int8), (group * columns, depth, *kernel))
    zero = np.array(low + 255 if RNG.integers(2) else low, left)
    pads = [kernel[0] // 2, kernel[1] // 2] * 2
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], group=group, pads=pads)
    m = model([node], {"x": x}, {"w": w, "z": zero}, np.dtype(np.int32))
    want = conv(x.astype(np.int64) - int(zero), w, False, group, (1, 1), (1, 1), pads, (0, 0)).astype(np.int64)
    for session in sessions(m, threads=2):
        got = session.run({"x": x})["y"]
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got, want)


def add_twice_to_one_column() -> None:
    x, w, a, b = normal(2, 32, 40, 1), normal(32, 1, 11, 1), normal(2, 32, 40, 1), normal(2, 32, 40, 1)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], group=32, pads=[5, 0, 5, 0]), helper.make_node("Add", ["c", "a"], ["d"]),
             helper.make_node("Add", ["d", "b"], ["y"])]
    m = model(nodes, {"x": x, "a": a, "b": b}, {"w": w}, np.dtype(np.float32))
    want = conv(x, w, False, 32, (1, 1), (1, 1), (5, 0, 5, 0), (0, 0)) + a + b
    for session in sessions(m, threads=2):
        np.testing.assert_allclose(session.run({"x": x, "a": a, "b": b})["y"], want, 1e-4, 1e-4)
        assert not any("plain loop" in d for step in session.explain() for d in step["decisions"])


def transposed_convolution_of_one_channel() -> None:
    x, w, a = normal(1, 1, 31, 19), normal(1, 24, 11, 5), normal(1, 24, 39, 39)
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 2]), helper.make_node("Add", ["c", "a"], ["y"])]
    m = model(nodes, {"x": x, "a": a}, {"w": w}, np.dtype(np.float32))
    want = conv(x, w, True, 1, (1, 2), (1, 1), (1, 1, 1, 1), (0, 0)) + a
    for threads in (1, 2, 3):
        for session in sessions(m, threads=threads):
            np.testing.assert_allclose(session.run({"x": x, "a": a})["y"], want, 1e-4, 1e-4)
            assert not any("a plain loop of the library" in d for step in session.explain() for d in step["decisions"])


def groups_of_bytes_whose_weights_have_a_zero_point() -> None:
    """Sums of the image, which the zero point is multiplied by, come with the products: it is turned once."""
    x, w = RNG.integers(0, 256, (1, 12, 9, 8)).astype(np.uint8), RNG.integers(0, 256, (27, 4, 3, 3)).astype(np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "", "z"], ["y"], group=3)
    m = model([node], {"x": x}, {"w": w, "z": np.array(9, np.uint8)}, np.dtype(np.int32))
    want = conv(x, w.astype(np.int64) - 9, False, 3, (1, 1), (1, 1), (0, 0, 0, 0), (0, 0))
    for session in sessions(m):
        np.testing.assert_array_equal(session.run({"x": x})["y"], want)
        calls = [step["name"] for step in session.explain() if step["kind"] == "extern"]
        assert len(calls) == 1 or os.environ["DNNL_MAX_CPU_ISA"] != "AVX2", calls


@pytest.mark.parametrize("case", ["add_twice_to_one_column", "transposed_convolution_of_one_channel",
                                  "groups_of_bytes_whose_weights_have_a_zero_point"])
@pytest.mark.parametrize("isa", ["AVX2", "DEFAULT"])
def test_what_the_library_has_for_an_instruction_set(isa: str, case: str) -> None:
    """It looks at its instruction set once, so that each has a process. What it has depends on the number of threads, too."""
    code = f"import test_own_products; test_own_products.{case}()"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "DNNL_MAX_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.parametrize("constant", [False, True])
def test_products_of_doubles(constant: bool) -> None:
    shapes = [((5, 33), (33, 17)), ((1, 64), (64, 130)), ((70, 3), (3, 1)), ((2, 3, 4, 8), (8, 16)), ((2, 1, 9, 8), (3, 8, 50)), ((9,), (9, 16)),
              ((0, 4), (4, 3)), ((2, 3, 0), (0, 5)), ((65, 100), (100, 48)), ((7,), (7,))]
    for left, right in shapes:
        a, b = RNG.standard_normal(left), RNG.standard_normal(right)
        m = model([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a} | ({} if constant else {"b": b}), {"b": b} if constant else {},
                  np.dtype(np.float64))
        for session in sessions(m):
            got = session.run({"a": a} | ({} if constant else {"b": b}))["y"]
            assert got.shape == np.matmul(a, b).shape
            np.testing.assert_allclose(got, np.matmul(a, b), 1e-12, 1e-12)


@pytest.mark.parametrize(("depth", "columns"), [(1, 1), (64, 3), (33, 100), (128, 127), (3, 0)])
@pytest.mark.parametrize("bias", [None, (1,), (1, 1), "columns"])
def test_products_of_few_numbers(depth: int, columns: int, bias: Any) -> None:
    """Up to some number of products they are ours, in the thread of the caller; above, the library's: both in one session."""
    w, c = normal(depth, columns), None if bias is None else normal(*((columns,) if bias == "columns" else bias))
    node = helper.make_node("Gemm", ["x", "w"] + ["c"] * (c is not None), ["y"], alpha=0.5 if bias == (1,) else 1.0)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", depth])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", columns])
    values = [onnx.numpy_helper.from_array(v, n) for n, v in (("w", w), ("c", c)) if v is not None]
    m = helper.make_model(helper.make_graph([node], "few numbers", [x], [y], values), opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = tensorbox.Session(m, compile=False, threads=2)
    for rows in (0, 1, 2, 7, 9, 130, 1, 0, 400):
        given = normal(rows, depth)
        want = (0.5 if bias == (1,) else 1.0) * (given.astype(np.float64) @ w) + (0 if c is None else c.astype(np.float64))
        got = session.run({"x": given})["y"]
        assert got.shape == want.shape
        roundoff = (depth + 2) * 2.0**-24 * (np.abs(given.astype(np.float64)) @ np.abs(w) + (0 if c is None else np.abs(c)))
        assert np.all(np.abs(got - want) <= roundoff)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int32])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (9,), (1, 9), (6, 1), (6, 9)])
def test_gemm_with_any_form_of_c(kind: type, shape: tuple[int, ...]) -> None:
    whole = np.dtype(kind).kind == "i"
    a, b, c = ((RNG.integers(-9, 9, s) if whole else RNG.standard_normal(s)).astype(kind) for s in ((7, 6), (9, 7), shape))
    factors = {"alpha": 2.0, "beta": 3.0} if whole else {"alpha": 0.5, "beta": -1.5}
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], transA=1, transB=1, **factors)
    want = factors["alpha"] * (a.T.astype(np.float64) @ b.T.astype(np.float64)) + factors["beta"] * c.astype(np.float64)
    tolerance = {"f8": 1e-13, "f4": 1e-5, "f2": 4e-3, "i4": 0}[np.dtype(kind).str[1:]]
    for session in sessions(model([node], {"a": a, "b": b, "c": c}, {}, np.dtype(kind))):
        np.testing.assert_allclose(session.run({"a": a, "b": b, "c": c})["y"].astype(np.float64), want, tolerance, tolerance * 8)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], **attributes)


Pattern = tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, np.ndarray], Callable[..., np.ndarray]]


def convolved(then: Sequence[onnx.NodeProto], of: Callable[..., np.ndarray], x: tuple[int, ...], w: tuple[int, ...], bias: int = 0,
              others: dict[str, tuple[int, ...]] | None = None, op: str = "Conv", **attributes: Any) -> Pattern:
    """A convolution of x and w, and what comes after its result t."""
    feeds = {"x": normal(*x)} | {name: normal(*shape) for name, shape in (others or {}).items()}
    constants = {"w": normal(*w)} | ({"b": normal(bias)} if bias else {})
    first = node(op, "x w b" if bias else "x w", "t" if then else "y", **attributes)
    rank = len(x) - 2
    transposed = op == "ConvTranspose"

    def want(**given: np.ndarray) -> np.ndarray:
        t = conv(given["x"], given["w"], transposed, attributes.get("group", 1), attributes.get("strides", [1] * rank), [1] * rank,
                 attributes.get("pads", [0] * 2 * rank), attributes.get("output_padding", [0] * rank))
        if bias:
            t += given["b"].astype(np.float64).reshape(1, -1, *[1] * rank)
        return of(t, **{k: v.astype(np.float64) for k, v in given.items()})

    return [first, *then], feeds, constants, want


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    s = q @ np.swapaxes(k, 2, 3) * scale
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


def heads() -> Pattern:
    feeds = {"q": normal(1, 4, 17, 32), "k": normal(1, 1, 17, 32), "v": normal(1, 1, 17, 32)}
    return ([node("Attention", "q k v", "y", is_causal=1)], feeds, {},
            lambda q, k, v: attention(*(t.astype(np.float64) for t in (q, k, v)), 32**-0.5, True))


def expanded_heads() -> Pattern:
    feeds = {"q": normal(1, 4, 17, 32), "k": normal(1, 1, 17, 32), "v": normal(1, 1, 17, 32)}
    constants = {"two": np.array([2], np.int64), "wide": np.array([1, 1, 4, 17, 32], np.int64), "flat": np.array([1, 4, 17, 32], np.int64),
                 "scale": np.array([0.25], np.float32)}
    nodes = []
    for name in "kv":
        nodes += [node("Unsqueeze", f"{name} two", f"{name}1"), node("Expand", f"{name}1 wide", f"{name}2"), node("Reshape", f"{name}2 flat", f"{name}3")]
    nodes += [node("Transpose", "k3", "kt", perm=[0, 1, 3, 2]), node("MatMul", "q kt", "s"), node("Mul", "s scale", "scaled"),
              node("Softmax", "scaled", "p", axis=-1), node("MatMul", "p v3", "y")]
    return nodes, feeds, constants, lambda q, k, v, **_: attention(*(t.astype(np.float64) for t in (q, k, v)), 0.25, False)


def column() -> Pattern:
    feeds, constants = {"x": normal(33, 40)}, {"w": normal(40, 48), "c": normal(33, 1)}
    return [node("Gemm", "x w c", "y", alpha=0.5)], feeds, constants, lambda x, w, c: 0.5 * (x.astype(np.float64) @ w) + c


def depthwise(op: str, channels: int, columns: int, rank: int, kernel: int, size: int, stride: int, **more: Any) -> dict[str, Any]:
    return {"x": (1, channels, *[size] * rank), "w": (channels, columns, *[kernel] * rank), "op": op, "group": channels, "strides": [stride] * rank} | more


PATTERNS: dict[str, Callable[[], Pattern]] = {
    "two residuals": lambda: convolved([node("Add", "t x", "u"), node("Add", "u z", "y")], lambda t, x, z, **_: t + x + z,
                                       (1, 64, 9, 9), (64, 64, 3, 3), others={"z": (1, 64, 9, 9)}, pads=[1] * 4),
    "less the input": lambda: convolved([node("Sub", "t x", "y")], lambda t, x, **_: t - x, (1, 64, 9, 9), (64, 64, 3, 3), pads=[1] * 4),
    "depthwise times the input": lambda: convolved([node("Mul", "t x", "y")], lambda t, x, **_: t * x, (1, 48, 9, 9), (48, 1, 3, 3), group=48, pads=[1] * 4),
    "three channels times a gate": lambda: convolved([node("Mul", "t z", "y")], lambda t, z, **_: t * z, (1, 32, 9, 9), (3, 32, 3, 3),
                                                     others={"z": (1, 3, 9, 9)}, pads=[1] * 4),
    "depthwise, 1-D": lambda: convolved([], lambda t, **_: t, (1, 48, 40), (48, 1, 2), group=48),
    "depthwise transposed, 1-D": lambda: convolved([node("Relu", "t", "y")], lambda t, **_: np.maximum(t, 0), bias=20, pads=[1, 1],
                                                   **depthwise("ConvTranspose", 20, 1, 1, 3, 25, 2)),
    "depthwise transposed": lambda: convolved([], lambda t, **_: t, bias=21, pads=[1] * 4, **depthwise("ConvTranspose", 21, 1, 2, 4, 8, 2)),
    "depthwise transposed, 1-D, sum": lambda: convolved([node("Add", "t z", "y")], lambda t, z, **_: t + z, bias=8, others={"z": (1, 8, 64)}, pads=[2, 2],
                                                        output_padding=[3], **depthwise("ConvTranspose", 8, 1, 1, 5, 16, 4)),
    "depthwise transposed, stride 1": lambda: convolved([node("Relu", "t", "y")], lambda t, **_: np.maximum(t, 0), bias=24,
                                                        **depthwise("ConvTranspose", 24, 1, 2, 2, 9, 1)),
    "depthwise transposed, sum": lambda: convolved([node("Add", "t z", "y")], lambda t, z, **_: t + z, bias=64, others={"z": (1, 64, 12, 12)}, pads=[1] * 4,
                                                   **depthwise("ConvTranspose", 64, 1, 2, 4, 6, 2)),
    "depthwise transposed, four results": lambda: convolved([], lambda t, **_: t, bias=48, pads=[1] * 4, **depthwise("ConvTranspose", 12, 4, 2, 3, 8, 1)),
    "grouped transposed": lambda: convolved([], lambda t, **_: t, (1, 24, 9, 9), (24, 16, 3, 7), op="ConvTranspose", group=8, pads=[1, 3, 1, 3]),
    "super resolution": lambda: convolved([], lambda t, **_: t, (1, 16, 6, 6), (16, 3, 9, 9), bias=3, op="ConvTranspose", strides=[4, 4], pads=[4] * 4),
    "column as bias": column,
    "heads that share keys": heads,
    "expanded heads": expanded_heads,
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_end_in_no_plain_loops(name: str) -> None:
    nodes, feeds, constants, of = PATTERNS[name]()
    want = of(**feeds, **constants)
    for session in sessions(model(nodes, feeds, constants, np.dtype(np.float32), 23)):
        got = session.run(feeds)["y"]
        np.testing.assert_allclose(got, want, 1e-4, 1e-5 * np.abs(want).max())
        # What stands behind "in one call" was passed over.
        said = [line.split("; in one call:")[0] for kernel in session.explain() for line in [kernel["name"], *kernel["decisions"]]]
        text = " ".join(said)
        assert "slow" not in text and "kernel: reference" not in text, text


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
def test_large_windows(op: str) -> None:
    x = normal(2, 3, 17, 15)
    m = model([node(op, "x", "y", kernel_shape=[7, 9], strides=[2, 1], pads=[3, 4, 2, 1])], {"x": x}, {}, np.dtype(np.float32))
    inside = np.pad(np.ones_like(x), [(0, 0), (0, 0), (3, 2), (4, 1)])
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (3, 2), (4, 1)], constant_values=0 if op == "AveragePool" else -np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 9), (2, 3))[:, :, ::2]
    counts = np.lib.stride_tricks.sliding_window_view(inside, (7, 9), (2, 3))[:, :, ::2].sum((-2, -1))
    want = windows.sum((-2, -1)) / counts if op == "AveragePool" else windows.max((-2, -1))
    for session in sessions(m):
        np.testing.assert_allclose(session.run({"x": x})["y"], want, 1e-5, 1e-6)


@pytest.mark.parametrize("shape,repeats", [((5, 7, 5, 3, 8), (3, 1, 2, 1, 3)), ((2, 16), (3, 2)), ((3, 1, 9), (1, 4, 5)), ((0, 8), (2, 2)), ((33,), (3,)),
                                           ((4, 8), (0, 2))])
@pytest.mark.parametrize("compiled", [False, True])
def test_tiles(shape: tuple[int, ...], repeats: tuple[int, ...], compiled: bool) -> None:
    x = normal(*shape)
    m = model([node("Tile", "x r", "y")], {"x": x}, {"r": np.array(repeats, np.int64)}, np.dtype(np.float32))
    for dynamic in (False, True):
        got = tensorbox.Session(m, compile=compiled, all_dims_dynamic=dynamic).run({"x": x})["y"]
        np.testing.assert_array_equal(got, np.tile(x, repeats))


def test_dimensions_that_the_library_cannot_count() -> None:
    """oneDNN counts in 32 bits: it threw what is no error of ours while it was asked for an implementation, or divided by zero."""
    wide = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 3, 2**31])
    weights = onnx.numpy_helper.from_array(normal(2, 1, 3, 7).astype(np.float32), "w")
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    for op in "ConvTranspose", "Conv":
        graph = helper.make_graph([helper.make_node(op, ["x", "w"], ["y"], group=2)], "wide", [wide], [result], [weights])
        session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), compile=False)
        assert "kernel: direct_conv" in [line for kernel in session.explain() for line in kernel["decisions"]]


@pytest.mark.parametrize("op,x,w", [("ConvTranspose", (1, 1, 3), (1, 2**31 - 1, 3)), ("Conv", (1, 1, 3), (2**31 - 1, 1, 3)),
                                    ("ConvTranspose", (1, 4, 3), (4, 2**30, 1)), ("Conv", (1, 2**16, 3), (2**16, 2**16, 1))])
def test_weights_that_the_library_cannot_count(op: str, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    infos = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", x), ("w", w))]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(op, ["x", "w"], ["y"])], "many weights", infos, [result])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), compile=False)
    assert any("2^3" in line or "kernel: direct_conv" in line for kernel in session.explain() for line in kernel["decisions"])


@pytest.mark.parametrize("terms, columns", [(1, 1), (31, 17), (32, 16), (33, 15), (64, 10), (64, 64), (100, 1), (2, 257), (0, 3), (5, 0)])
def test_products_of_few_numbers_around_what_is_little(terms: int, columns: int) -> None:
    w, bias = normal(terms, columns), normal(columns)
    # Up to the largest products that are not the library's, by factors and by whole vectors, and one row more.
    most = [limit // max(1, terms * width) for limit, width in [(1 << 14, columns), (1 << 16, (columns + 15) // 16 * 16)]]
    for rows in sorted({0, 1, 7, *(n + more for n in most for more in (0, 1) if 0 < n < 5000)}):
        x = normal(rows, terms)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
        want = x.astype(np.float64) @ w.astype(np.float64) + bias
        for session in sessions(model(nodes, {"x": x}, {"w": w, "b": bias}, np.float32)):
            np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


def test_a_small_product_starts_no_thread() -> None:
    program = """
import os, sys, numpy as np, tensorbox
session = tensorbox.Session(sys.argv[1], threads=2, all_dims_dynamic=True, compile=False)
before = len(os.listdir("/proc/self/task"))
session.run({"x": np.ones((64, 64), np.float32)})
print(len(os.listdir("/proc/self/task")) - before)
"""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "model.onnx")
        onnx.save(model(nodes, {"x": normal(64, 64)}, {"w": normal(64, 10)}, np.float32), file)
        done = subprocess.run([sys.executable, "-c", program, file], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
