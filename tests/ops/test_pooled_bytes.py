"""MaxPool between DequantizeLinear and QuantizeLinear: the pool is of bytes. Against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import expected, tensorbox

CASES: dict[str, dict[str, Any]] = {
    "of resnet": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "even": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "same": {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 1]},
    "dilated": {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
    "ceiling": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
}


def model(kind: type, pool: dict[str, Any], zero: int, after: tuple[float, int], opset: int) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    constants = [onnx.numpy_helper.from_array(np.array(value, dtype), name) for name, value, dtype in
                 [("s", 0.0371, np.float32), ("z", zero, kind), ("t", after[0], np.float32), ("u", after[1], kind)]]
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]), helper.make_node("MaxPool", ["d"], ["p"], **pool),
             helper.make_node("QuantizeLinear", ["p", "t", "u"], ["q"]), helper.make_node("DequantizeLinear", ["q", "t", "u"], ["y"]),
             helper.make_node("Relu", ["p"], ["r"])]
    inputs = [helper.make_tensor_value_info("x", element, ["n", "c", "h", "w"])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "r")]
    graph = helper.make_graph(nodes, "pool", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("zero", "after"), [(0, (0.0371, 0)), (3, (0.0371, 3)), (17, (0.05, -4))])
def test_pools_of_bytes(kind: type, name: str, zero: int, after: tuple[float, int]) -> None:
    limits = np.iinfo(kind)
    m = model(kind, CASES[name], zero, (after[0], max(limits.min, after[1])), 17)
    sessions = [tensorbox.Session(m.SerializeToString(), **how) for how in ({}, {"compile": False}, {"disable_passes": ["pool_integers"]})]
    for shape in [(1, 1, 7, 7), (2, 3, 8, 9), (1, 64, 28, 30), (1, 70, 15, 15), (0, 3, 8, 8)]:
        x = np.random.default_rng(shape[1]).integers(limits.min, limits.max + 1, shape, kind)
        want = expected(m, {"x": x}) if x.size else None
        for session in sessions:
            got = session.run({"x": x})
            for output, value in zip(("y", "r"), want or [got["y"], got["r"]], strict=True):
                np.testing.assert_array_equal(got[output], value)
                assert want or got[output].shape[:2] == shape[:2]


def test_the_pool_reads_bytes() -> None:
    m = model(np.uint8, CASES["of resnet"], 3, (0.0371, 3), 11)  # which has no pool of bytes
    session = tensorbox.Session(m.SerializeToString())
    assert "MaxPool" in session.dump("simplify")
    assert "uint8[" in next(line for line in session.dump("simplify").splitlines() if "= MaxPool" in line)


def pooled(x: np.ndarray, kernel: list[int], pads: list[int], dilations: list[int]) -> np.ndarray:
    """The greatest of each window in steps of one, one window after the other; of none -inf."""
    h, w = ((x.shape[2 + d] + pads[d] + pads[2 + d] - (kernel[d] - 1) * dilations[d] - 1) + 1 for d in range(2))
    y = np.full((*x.shape[:2], h, w), -np.inf)
    for i in range(h):
        for j in range(w):
            rows = [r for r in (i - pads[0] + k * dilations[0] for k in range(kernel[0])) if 0 <= r < x.shape[2]]
            columns = [c for c in (j - pads[1] + k * dilations[1] for k in range(kernel[1])) if 0 <= c < x.shape[3]]
            if rows and columns:
                y[:, :, i, j] = x[:, :, rows][:, :, :, columns].max((2, 3))
    return y


def quantised(y: np.ndarray, scale: float, zero: int, kind: type) -> np.ndarray:
    limits = np.iinfo(kind)
    return np.clip(np.rint(np.clip(y, -1e300, 1e300) / np.float64(np.float32(scale))) + zero, limits.min, limits.max)


NEAR_MISSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "a negative scale": {"scale": -0.05, "after": -0.05},
    "a scale whose products overflow": {"scale": 3e37, "zero": 0, "after": 3e37, "last": 0},
    "a scale for each channel, one of them negative": {"scale": [0.05, -0.05], "axis": 1},
    "a scale for each column": {"scale": [0.1, 0.2, 0.3, 0.05, 0.7, 0.2, 0.1, 0.9], "axis": 3},
    "a block": {"block": True},
    "windows of padding between": {"kernel": [2, 1], "dilations": [8, 1], "pads": [1, 0, 1, 0]},
    "windows of padding at an end": {"kernel": [3, 1], "pads": [0, 1, 0, 0]},
    "places": {"places": True},
    "another zero point": {"last": 9},
    "another scale": {"after": 0.03},
    "a zero point behind alone": {"zero": None, "last": 5},
    "no zero points, and bytes of another kind": {"kind": np.int8, "zero": None, "last": None},
    "16 bits": {"kind": np.int16},
}


@pytest.mark.parametrize("how", [{"compile": False}, {}], ids=["evaluated", "compiled"])
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_what_looks_like_a_pool_of_bytes(name: str, how: dict[str, bool]) -> None:
    """Against windows one after the other in float64."""
    case = {"kind": np.uint8, "scale": 0.05, "zero": 3, "after": 0.05, "last": 3, "axis": 1, "kernel": [2, 3], "pads": [0, 0, 0, 0],
            "dilations": [1, 1]} | NEAR_MISSES[name]
    kind, scale, zero, last = case["kind"], np.array(case["scale"], np.float32), case["zero"], case["last"]
    limits = np.iinfo(kind)
    shape = (1, 1, 1, 8) if case.get("block") else (2, 2, 7, 8)
    kernel = [1, 3] if case.get("block") else case["kernel"]
    x = np.random.default_rng(5).integers(limits.min, limits.max + 1, shape).astype(kind)
    constants = {"s": scale.reshape(1, 1, 1, 1) if case.get("block") else scale, "t": np.array(case["after"], np.float32)}
    given = {"d": ["x", "s"], "q": ["p", "t"]}
    if zero is not None:
        constants["z"] = np.full(constants["s"].shape, zero, kind)
        given["d"].append("z")
    if last is not None:
        constants["u"] = np.array(last, kind)
        given["q"].append("u")
    places = ["p", "i"] if case.get("places") else ["p"]
    nodes = [helper.make_node("DequantizeLinear", given["d"], ["d"], **({"axis": 3, "block_size": 8} if case.get("block") else {"axis": case["axis"]})),
             helper.make_node("MaxPool", ["d"], places, kernel_shape=kernel, pads=case["pads"], dilations=case["dilations"]),
             helper.make_node("QuantizeLinear", given["q"], ["q"]), helper.make_node("Cast", ["q"], ["c"], to=TensorProto.INT32)]
    result = np.uint8 if last is None else kind
    outputs = {"p": np.float32, "c": np.int32} | ({"i": np.int64} if case.get("places") else {})
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)],
                              [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), None) for n, t in outputs.items()],
                              [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = tensorbox.Session(m.SerializeToString(), **how)
    got = session.run({"x": x})
    along = scale.reshape([-1 if d == case["axis"] else 1 for d in range(4)]) if scale.ndim else scale
    with np.errstate(over="ignore"):
        floats = (x.astype(np.float32) - np.float32(zero or 0)) * along
    want = pooled(floats, kernel, case["pads"], case["dilations"])
    nothing = np.isinf(want) & (want < 0)
    np.testing.assert_array_equal(got["p"][~nothing], want[~nothing])
    assert (got["p"][nothing] < -1e30).all()
    np.testing.assert_array_equal(got["c"], quantised(want, case["after"], last or 0, result))
    if case.get("places"):
        np.testing.assert_array_equal(floats.reshape(-1)[got["i"]], want)
    integers = "= DequantizeLinear" in session.dump("simplify").split("= MaxPool")[-1]
    assert integers == (name in ("plain", "another zero point", "another scale", "a zero point behind alone",
                                 "no zero points, and bytes of another kind"))
