"""Elements that neighbours share, as the scales of groups of channels with channels innermost: vectors of a kernel have a few
different ones. Against numpy, for each length of a group, type and vector width, where groups begin within a vector, too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
import tensorbox
from onnx import TensorProto, helper, numpy_helper

LENGTHS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 33, 40)
TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, ml_dtypes.bfloat16: TensorProto.BFLOAT16, np.float64: TensorProto.DOUBLE,
         np.int64: TensorProto.INT64, np.int32: TensorProto.INT32, np.int16: TensorProto.INT16, np.uint8: TensorProto.UINT8}


def repeated_sums(dtype: type, cases: list[tuple[int, int, int]]) -> onnx.ModelProto:
    """For each (groups, length, skipped): y[n, c] = x[n, c] + (each element of s `length` times)[c + skipped]."""
    make, info = helper.make_node, helper.make_tensor_value_info
    nodes, inputs, outputs = [], [], []
    numbers = {"one": [1], "flat": [-1]}
    for i, (groups, length, skipped) in enumerate(cases):
        total = groups * length
        numbers |= {f"sizes{i}": [groups, length], f"from{i}": [skipped], f"to{i}": [total]}
        nodes += [make("Unsqueeze", [f"s{i}", "one"], [f"a{i}"]), make("Expand", [f"a{i}", f"sizes{i}"], [f"b{i}"]), make("Reshape", [f"b{i}", "flat"], [f"c{i}"]),
                  make("Slice", [f"c{i}", f"from{i}", f"to{i}"], [f"d{i}"]), make("Add", [f"x{i}", f"d{i}"], [f"y{i}"])]
        inputs += [info(f"x{i}", TYPES[dtype], [3, total - skipped]), info(f"s{i}", TYPES[dtype], [groups])]
        outputs.append(info(f"y{i}", TYPES[dtype], [3, total - skipped]))
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in numbers.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("isa", [None, "avx2", "sse"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_each_is_added_to_its_neighbours(dtype: type, isa: str | None) -> None:
    rng = np.random.default_rng(5)
    cases = [(groups, length, skipped) for length in LENGTHS for groups, skipped in ((7, 0), (16, 0), (9, 5), (5, length - 1)) if skipped < groups * length]
    inputs, wanted = {}, []
    for i, (groups, length, skipped) in enumerate(cases):
        inputs[f"s{i}"] = rng.integers(0, 60, groups).astype(dtype)
        all_of_them = np.repeat(inputs[f"s{i}"], length)[skipped:]
        inputs[f"x{i}"] = rng.integers(0, 60, (3, len(all_of_them))).astype(dtype)
        wanted.append(inputs[f"x{i}"] + all_of_them)
    outputs = tensorbox.Session(repeated_sums(dtype, cases).SerializeToString(), isa=isa).run(inputs)
    for i, (case, y) in enumerate(zip(cases, wanted)):
        assert (outputs[f"y{i}"] == y).all(), case


@pytest.mark.parametrize("length", [4, 6, 8, 10, 12, 16, 20, 24, 40])
def test_groups_of_channels_are_normalised(length: int) -> None:
    """A convolution, whose channels lie innermost, then a norm of groups, scale, shift and SiLU, as diffusion models have them."""
    rng, groups = np.random.default_rng(length), 8
    channels = groups * length
    weights = {"w": rng.standard_normal((channels, 4, 1, 1)), "scale": rng.standard_normal((channels, 1, 1)), "shift": rng.standard_normal((channels, 1, 1)),
               "ones": np.ones(groups), "zeros": np.zeros(groups)}
    shapes = {"grouped": [0, groups, -1], "image": [1, channels, 9, 7]}
    make = helper.make_node
    nodes = [make("Conv", ["x", "w"], ["c"]), make("Reshape", ["c", "grouped"], ["r"]),
             make("InstanceNormalization", ["r", "ones", "zeros"], ["n"], epsilon=1e-5), make("Reshape", ["n", "image"], ["i"]),
             make("Mul", ["i", "scale"], ["m"]), make("Add", ["m", "shift"], ["a"]), make("Sigmoid", ["a"], ["g"]), make("Mul", ["a", "g"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 7])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()] +
                              [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in shapes.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = rng.standard_normal((1, 4, 9, 7)).astype(np.float32)
    f = {n: v.astype(np.float32).astype(np.float64) for n, v in weights.items()}
    c = np.einsum("oc,bchw->bohw", f["w"][:, :, 0, 0], x.astype(np.float64)).reshape(1, groups, -1)
    n = ((c - c.mean(-1, keepdims=True)) / np.sqrt(c.var(-1, keepdims=True) + 1e-5)).reshape(1, channels, 9, 7)
    a = n * f["scale"] + f["shift"]
    np.testing.assert_allclose(tensorbox.Session(model.SerializeToString()).run({"x": x})["y"], a / (1 + np.exp(-a)), rtol=1e-4, atol=1e-5)
