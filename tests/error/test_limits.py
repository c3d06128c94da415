"""Limits of a model: each holds from the first byte, by its own option, which the error names."""

from __future__ import annotations

import os
import pathlib
import resource
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")

HEADER = '<ir_version: 10, opset_import: ["": 21]> '


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def chain(nodes: int, op: str = "Neg", reverse: bool = False) -> onnx.ModelProto:
    made = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i in range(nodes)]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("v0", f"v{nodes}")]
    graph = helper.make_graph(made[::-1] if reverse else made, "g", value[:1], value[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def doublings(times: int) -> onnx.ModelProto:
    """A tensor of 4 elements joined with itself, again and again."""
    text = "".join(f" a{i + 1} = Concat<axis = 0>(a{i}, a{i})" for i in range(times))
    return model(f"g (float[4] x) => (float[M] y) {{ a0 = Neg(x) {text} y = Neg(a{times}) }}")


def nested(depth: int) -> onnx.ModelProto:
    body = "y0 = Relu(x)"
    for i in range(depth):
        body = f"y{i + 1} = If<then_branch = t{i} () => (float[2] y{i}) {{ {body} }}, else_branch = e{i} () => (float[2] z{i}) {{ z{i} = Neg(x) }}>(c)"
    return model(f"g (bool c, float[2] x) => (float[2] y{depth}) {{ {body} }}")


def with_weights(count: int, elements: int = 2) -> onnx.ModelProto:
    made = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    made.graph.initializer.extend(
        helper.make_tensor(f"w{i}", TensorProto.FLOAT, [elements], [0.0] * elements) for i in range(count))
    return made


def sparse() -> onnx.ModelProto:
    made = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0]), helper.make_tensor("i", TensorProto.INT64, [1], [3]), [1000]))
    return made


def folded() -> onnx.ModelProto:
    """A constant of 16 MB made of one of 4 bytes."""
    return model("g (float[N] x) => (float[N] y) { size = Constant<value_ints = [4000000]>() one = Constant<value_float = 1.0>()"
                 " many = Expand(one, size) more = Exp(many) least = ReduceMin<keepdims = 0>(more) y = Add(x, least) }")


CASES = [
    ("max_nodes", 5, chain(6), "nodes"),
    ("max_nesting", 3, nested(5), "levels"),
    ("max_model_bytes", 50, chain(6), "over the limit of 50"),
    ("max_tensors", 3, with_weights(4), "over 3 tensors"),
    ("max_tensor_bytes", 7, with_weights(1), "over the limit of 7"),
    ("max_dense_bytes", 3999, sparse(), "too large to be made dense"),
    ("load_memory", 1 << 20, folded(), "the limit of 1048576 bytes"),
    ("load_time_limit_ms", 1, chain(5000, "Exp"), "the limit of 1 ms"),
]


@pytest.mark.parametrize(("option", "value", "made", "message"), CASES, ids=[case[0] for case in CASES])
def test_each_limit_has_its_option(option: str, value: int, made: onnx.ModelProto, message: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=f"{message}.*raise {option}"):
        tensorbox.Session(made, compile=False, **{option: value})
    tensorbox.Session(made, compile=False, **{option: 0})


def test_limits_given_for_runs_hold_while_loading() -> None:
    with pytest.raises(tensorbox.ModelError, match="loading the model took longer than the limit of 1 ms"):
        tensorbox.Session(chain(5000, "Exp"), compile=False, time_limit_ms=1)
    tensorbox.Session(chain(500, "Exp"), compile=False, time_limit_ms=1, load_time_limit_ms=600_000)


@pytest.mark.parametrize("compiled", [False, True])
def test_untrusted_models_within_the_limits(compiled: bool) -> None:
    session = tensorbox.Session(nested(20), compile=compiled, untrusted=True)
    y = session.run({"c": np.array(True), "x": np.array([-1, 2], np.float32)})["y20"]
    np.testing.assert_array_equal(y, [0, 2])


def test_untrusted_models_nest_less() -> None:
    tensorbox.Session(nested(28), compile=False)
    with pytest.raises(tensorbox.ModelError, match="levels.*raise max_nesting"):
        tensorbox.Session(nested(28), compile=False, untrusted=True)
    tensorbox.Session(nested(28), compile=False, untrusted=True, max_nesting=64)


def test_untrusted_models_use_no_libraries() -> None:
    with pytest.raises(tensorbox.ModelError, match="operator_libraries"):
        tensorbox.Session(chain(2), untrusted=True, operator_libraries=["mine.so"])


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_untrusted_models_use_no_links(link: Any, tmp_path: pathlib.Path) -> None:
    made = model("g (float[2] x) => (float[2] y) { y = Add(x, w) }")
    weights = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[2],
                                         data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value="w.bin")
    np.array([1, 2], np.float32).tofile(tmp_path / "real.bin")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    link(tmp_path / "real.bin", tmp_path / "w.bin")
    assert tensorbox.Session(tmp_path / "m.onnx", compile=False).run({"x": np.zeros(2, np.float32)})["y"].tolist() == [1, 2]
    with pytest.raises(tensorbox.ModelError, match="strict_links"):
        tensorbox.Session(tmp_path / "m.onnx", compile=False, untrusted=True)


def test_a_tensor_joined_with_itself_takes_little_to_load() -> None:
    before = peak_memory()
    session = tensorbox.Session(doublings(20), compile=False, load_memory=64 << 20)
    assert peak_memory() - before < 100 << 20
    y = session.run({"x": np.arange(4, dtype=np.float32)})["y"]
    np.testing.assert_array_equal(y, np.tile(np.arange(4, dtype=np.float32), 1 << 20))


def test_long_chains_in_any_order() -> None:
    """Of any length they load in the memory of one expression for each node."""
    x = np.array([3, -4], np.float32)
    for reverse in (False, True):
        session = tensorbox.Session(chain(4000, reverse=reverse), compile=False, load_memory=32 << 20)
        np.testing.assert_array_equal(session.run({"v0": x})["v4000"], x)
        nodes = [kernel["nodes"] for kernel in session.explain()]
        assert 0 < max(map(len, nodes)) <= 256


def test_optimize_has_the_limits(tmp_path: pathlib.Path) -> None:
    onnx.save(nested(28), tmp_path / "m.onnx")
    with pytest.raises(tensorbox.ModelError, match="levels.*raise max_nesting"):
        tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", untrusted=True)
    with pytest.raises(tensorbox.ModelError, match="raise max_nodes"):
        tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", max_nodes=3)
    assert tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", untrusted=True, max_nesting=64)["nodes_before"] > 0
