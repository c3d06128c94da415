"""RNN, GRU and LSTM."""

from __future__ import annotations

import numpy as np
from onnx import helper

from builder import Builder
from recipes import recipe

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@recipe("RNN", "GRU", "LSTM")
def recurrent(b: Builder) -> None:
    name = b.schema.name
    gates = GATES[name]
    direction = b.pick("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    length, batch, width, hidden = b.integer(1, 4), b.integer(1, 3), b.integer(1, 3), b.integer(1, 3)
    by_batch = b.has("layout") and b.chance(0.3)

    def state() -> None:
        b.give(b.array((batch, ways, hidden) if by_batch else (ways, batch, hidden), param="T"))

    b.give(b.array((batch, length, width) if by_batch else (length, batch, width)))
    b.give(b.array((ways, gates * hidden, width), -1, 1))
    b.give(b.array((ways, gates * hidden, hidden), -1, 1))
    b.give(b.array((ways, 2 * gates * hidden), -1, 1)) if b.chance() else b.skip()
    b.give(b.rng.integers(1, length + 1, batch).astype(np.int32)) if b.chance(0.3) else b.skip()
    state() if b.chance() else b.skip()
    if name == "LSTM":
        state() if b.chance() else b.skip()
        b.give(b.array((ways, 3 * hidden), -1, 1)) if b.chance(0.3) else b.skip()
    b.set(hidden_size=hidden, direction=direction, layout=1 if by_batch else None)
    if b.chance(0.2):
        b.set(clip=b.real(0.5, 2))
    if name == "GRU":
        b.maybe(linear_before_reset=b.integer(0, 1))
    if b.chance(0.3):
        per_way = {"RNN": 1, "GRU": 2, "LSTM": 3}[name]
        b.set(activations=[b.pick("Tanh", "Sigmoid", "Relu") for _ in range(per_way * ways)])
    b.set(output_sequence=1)
    for _ in b.schema.outputs:
        b.out()
    b.terms = 8 + 16 * length * (width + hidden)
    if b.version < 7:
        attributes = {key: value for key, value in b.attributes.items() if key != "output_sequence"}
        if name == "GRU" and b.version < 3:
            attributes["linear_before_reset"] = 0
        b.refer_to(7, [b.values.get(x) for x in b.inputs], **attributes)
    elif by_batch:
        time_first(b)


def time_first(b: Builder) -> None:
    """No reference knows layout 1 of all directions and activations: they get layout 0 between transpositions."""
    values = [b.values.get(x) for x in b.inputs]
    for place in (0, 5, 6):
        if place < len(values) and values[place] is not None:
            values[place] = values[place].swapaxes(0, 1)
    b.refer_to(b.version, values, **{**b.attributes, "layout": 0})
    assert b.stand_in
    graph = b.stand_in[0].graph
    for place, name in enumerate(graph.node[0].output):
        if name:
            graph.node[0].output[place] = f"{name}_time_first"
            order = (2, 0, 1, 3) if place == 0 else (1, 0, 2)
            graph.node.append(helper.make_node("Transpose", [f"{name}_time_first"], [name], perm=order))
