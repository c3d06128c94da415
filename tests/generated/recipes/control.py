"""Control flow: bodies that hand values of every type through."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import kinds
from builder import OPSET_OF_OTHER_DOMAINS, Builder
from recipes import recipe


def info(name: str, kind: str) -> Any:
    return helper.make_value_info(name, kinds.type_proto(kind))


def hands_through(b: Builder, kind: str) -> bool:
    """Whether Identity takes the type; the older ones take tensors only, or fewer types than control flow does."""
    version = b.version if b.schema.domain == "" else OPSET_OF_OTHER_DOMAINS
    schema = onnx.defs.get_schema("Identity", version)
    return kind in schema.type_constraints[0].allowed_type_strs


def identity(source: str, result: str) -> Any:
    return helper.make_node("Identity", [source], [result])


def one_round(b: Builder, source: str, result: str, kind: str) -> list[Any]:
    """Nodes that give `result` the value of `source`: where Identity cannot, a loop of one round that carries it."""
    if hands_through(b, kind):
        return [identity(source, result)]
    inputs = [scalar("round", "tensor(int64)"), scalar("go", "tensor(bool)"), info("carry", kind)]
    body = helper.make_graph([identity("go", "go_on")], "round", inputs, [info("go_on", "tensor(bool)"), info("carry", kind)])
    once = helper.make_node("Constant", [], [f"{result}_rounds"], value=numpy_helper.from_array(np.array(1)))
    return [once, helper.make_node("Loop", [f"{result}_rounds", "", source], [result], body=body)]


def scalar(name: str, kind: str) -> Any:
    return helper.make_tensor_value_info(name, kinds.element(kind), ())


@recipe("If")
def branch(b: Builder) -> None:
    """Each branch gives one of two outer values."""
    kind = b.types["V"]
    b.moves = True
    b.give(np.array(b.chance()), constant=False)
    outer = []
    for name in ("outer0", "outer1"):
        value = kinds.random_value(b.rng, kind, b.shape())
        b.infos.append(info(name, kind))
        b.feeds[name] = b.values[name] = value
        outer.append(name)
    for attribute, name in zip(("then_branch", "else_branch"), outer):
        result = f"{attribute}_result"
        graph = helper.make_graph(one_round(b, name, result, kind), attribute, [], [info(result, kind)])
        b.set(**{attribute: graph})
    b.out(kind)


@recipe("Loop")
def loop(b: Builder) -> None:
    """Carries one value; from what is a tensor also collects it."""
    kind = b.types["V"]
    b.moves = True
    b.give(np.array(b.integer(0, 3)))
    b.give(np.array(True)) if b.chance() else b.skip()
    b.give(kinds.random_value(b.rng, kind, b.shape()), constant=False, kind=kind)
    nodes = [identity("condition", "condition_out")]
    carried = "carried"
    if hands_through(b, kind):
        carried = "carried_out"
        nodes.append(identity("carried", carried))
    outputs = [info("condition_out", "tensor(bool)"), info(carried, kind)]
    b.out(kind)
    if kind.startswith("tensor(") and b.chance():
        nodes.append(identity("carried", "collected"))
        outputs.append(info("collected", kind))
        b.out(kind)
    inputs = [scalar("iteration", "tensor(int64)"), scalar("condition", "tensor(bool)"), info("carried", kind)]
    b.set(body=helper.make_graph(nodes, "body", inputs, outputs))


@recipe("Scan")
def scan(b: Builder) -> None:
    """A state that stays and a row that goes through."""
    kind = b.types["V"]
    b.moves = True
    if b.version == 8:
        b.skip()
    batch = (b.integer(1, 2),) if b.version == 8 else ()
    shape = b.shape(1, 3, empty=0)
    b.give(b.array(batch + b.shape(0, 2), param=kind), kind=kind)
    b.give(b.array(batch + shape, param=kind), kind=kind)
    state, row = (info(name, kind) for name in ("state", "row"))
    nodes = [identity("state", "state_out"), identity("row", "row_out")]
    b.set(body=helper.make_graph(nodes, "body", [state, row], [info("state_out", kind), info("row_out", kind)]), num_scan_inputs=1)
    backwards = [b.integer(0, 1)]
    if b.version == 8:
        b.maybe(directions=backwards)
    else:
        b.maybe(scan_input_directions=backwards, scan_output_directions=[b.integer(0, 1)], scan_input_axes=[b.axis(len(shape))])
    b.out(kind), b.out(kind)


@recipe("SequenceMap")
def sequence_map(b: Builder) -> None:
    kind = b.types["S"]
    element = kind.removeprefix("seq(").removesuffix(")")
    b.give(kinds.random_value(b.rng, kind, b.shape(1, 3)))
    inputs = [info("element", element)]
    nodes = [identity("element", "result")]
    outputs = [info("result", element)]
    b.out(kind)
    extra = b.types["V"]
    if b.chance():
        b.give(kinds.random_value(b.rng, extra, b.shape()) if extra.startswith("tensor(") else
               [kinds.random_value(b.rng, extra[4:-1], b.shape(1, 2)) for _ in b.values["x0"]], constant=False, kind=extra)
        inner = extra if extra.startswith("tensor(") else extra[4:-1]
        inputs.append(info("extra", inner))
        nodes.append(identity("extra", "extra_out"))
        outputs.append(info("extra_out", inner))
        b.out(f"seq({inner})")
    b.set(body=helper.make_graph(nodes, "body", inputs, outputs))
