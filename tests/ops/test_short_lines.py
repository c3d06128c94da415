"""Lines of a few elements, of a length that is known at run time only: in compiled kernels some are done element by element."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

WIDTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 18, 33]


def session(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[type, list[int | str]]], result: type, constants: dict[str, np.ndarray], isa: str):
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, (kind, _) in inputs.items()}
    graph = helper.make_graph(nodes, "short lines", [helper.make_tensor_value_info(n, kinds[n], dims) for n, (_, dims) in inputs.items()],
                              [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(result)), None)],
                              [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()])
    return tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), isa=isa, threads=2)


@pytest.mark.parametrize("isa", ["avx2", "sse"])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_resized(isa: str, kind: type) -> None:
    """As in lines of a network's smallest images."""
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["r"], mode="linear", coordinate_transformation_mode="align_corners"),
             helper.make_node("Mul", ["r", "z"], ["y"])]
    s = session(nodes, {"x": (kind, ["n", 5, "h", "w"]), "z": (kind, ["n", 5, "H", "W"])}, kind, {"scales": np.array([1, 1, 2, 2], np.float32)}, isa)
    rng = np.random.default_rng(3)
    for width in WIDTHS[1:]:
        x, z = rng.standard_normal((2, 5, 3, width)).astype(kind), rng.standard_normal((2, 5, 6, 2 * width)).astype(kind)
        want = x.astype(np.float64)
        for axis in (2, 3):
            size = want.shape[axis]
            at = np.arange(2 * size) * (size - 1) / (2 * size - 1)
            low = np.floor(at).astype(int)
            high, part = np.minimum(low + 1, size - 1), (at - low).reshape([-1 if a == axis else 1 for a in range(4)])
            want = want.take(low, axis) * (1 - part) + want.take(high, axis) * part
        want *= z.astype(np.float64)
        tolerance = 4e-3 if kind is np.float16 else 1e-5
        np.testing.assert_allclose(s.run({"x": x, "z": z})["y"].astype(np.float64), want, tolerance, tolerance)


@pytest.mark.parametrize("isa", ["avx2", "sse"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.uint8, np.int64])
def test_gathered_and_narrow(isa: str, kind: type) -> None:
    nodes = [helper.make_node("Gather", ["x", "i"], ["g"], axis=2), helper.make_node("Add", ["g", "z"], ["y"])]
    s = session(nodes, {"x": (kind, ["n", "h", 11]), "i": (np.int64, ["w"]), "z": (kind, ["n", "h", "w"])}, kind, {}, isa)
    rng = np.random.default_rng(5)
    for width in WIDTHS:
        x, z = (rng.integers(0, 100, shape).astype(kind) for shape in ((3, 4, 11), (3, 4, width)))
        i = rng.integers(-11, 11, width)
        np.testing.assert_array_equal(s.run({"x": x, "i": i, "z": z})["y"], x[:, :, i] + z)
        for place in range(0, min(width, 3)):
            wrong = i.copy()
            wrong[-1 - place] = 11
            with pytest.raises(tensorbox.ModelError, match="index 11"):
                s.run({"x": x, "i": wrong, "z": z})


@pytest.mark.parametrize("isa", ["avx2", "sse"])
@pytest.mark.parametrize("kind", [np.float16, np.int8, np.uint16])
def test_beside_each_other(isa: str, kind: type) -> None:
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]), helper.make_node("Add", ["t", "z"], ["a"]),
             helper.make_node("Where", ["c", "a", "z"], ["y"])]
    s = session(nodes, {"x": (kind, ["n", "h", "w"]), "z": (kind, ["h", "n", "w"]), "c": (np.bool_, ["h", "n", "w"])}, kind, {}, isa)
    rng = np.random.default_rng(7)
    for width in WIDTHS:
        x, z = (rng.integers(0, 60, shape).astype(kind) for shape in ((3, 4, width), (4, 3, width)))
        c = rng.random((4, 3, width)) < 0.5
        np.testing.assert_array_equal(s.run({"x": x, "z": z, "c": c})["y"], np.where(c, x.transpose(1, 0, 2) + z, z))
