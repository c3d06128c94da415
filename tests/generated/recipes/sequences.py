"""Sequences and optionals."""

from __future__ import annotations

import numpy as np

import kinds
from builder import Builder
from recipes import recipe


def items(b: Builder, kind: str, count: int | None = None) -> list[np.ndarray]:
    """Tensors of equal rank."""
    inner = kind.removeprefix("optional(").removeprefix("seq(").split(")")[0] + ")"
    shape = b.shape(1, 3)
    return [b.array(shape, param=inner) for _ in range(b.integer(1, 4) if count is None else count)]


@recipe("SequenceConstruct")
def construct(b: Builder) -> None:
    for value in items(b, b.types["T"]):
        b.give(value)


@recipe("SequenceEmpty")
def empty(b: Builder) -> None:
    b.set(dtype=b.element("S"))


@recipe("SequenceLength")
def length(b: Builder) -> None:
    b.give(items(b, b.types["S"]))


@recipe("SequenceAt", "SequenceErase")
def at(b: Builder) -> None:
    values = items(b, b.types["S"])
    b.give(values)
    if b.schema.name == "SequenceAt" or b.chance(0.7):
        b.give(b.integer(-len(values), len(values) - 1))


@recipe("SequenceInsert")
def insert(b: Builder) -> None:
    values = items(b, b.types["S"])
    b.give(values)
    b.give(b.array(values[0].shape))
    if b.chance(0.7):
        b.give(b.integer(-len(values), len(values)))


@recipe("ConcatFromSequence")
def concat_from_sequence(b: Builder) -> None:
    values = items(b, b.types["S"])
    stacked = b.integer(0, 1)
    b.give(values)
    b.set(axis=b.axis(values[0].ndim, stacked), new_axis=stacked)


@recipe("SplitToSequence")
def split_to_sequence(b: Builder) -> None:
    shape = list(b.shape(1, 3, empty=0))
    axis = b.axis(len(shape))
    how = b.integer(0, 2)
    sizes = [b.integer(1, 2) for _ in range(b.integer(1, 3))]
    if how == 2:
        shape[axis] = sum(sizes)
    b.give(b.array(shape))
    if how == 1:
        b.give(b.integer(1, shape[axis]))
    elif how == 2:
        b.give(np.array(sizes))
    b.set(axis=axis)
    b.maybe(keepdims=b.integer(0, 1))


@recipe("Optional")
def optional(b: Builder) -> None:
    if b.chance(0.25):
        b.set(type=kinds.type_proto(b.types["V"]))
        b.expected = [None]
        return
    kind = b.types["V"]
    value = items(b, kind) if kind.startswith("seq(") else b.array(b.shape(), param=kind)
    b.give(value, constant=False, kind=kind)
    b.expected = [value]


@recipe("OptionalGetElement", "OptionalHasElement")
def optional_element(b: Builder) -> None:
    kind = b.types["O"]
    value = items(b, kind) if "seq(" in kind else b.array(b.shape(), param=kind.removeprefix("optional(").split(")")[0] + ")")
    if b.schema.name == "OptionalHasElement" and kind.startswith("optional(") and b.chance(0.3):
        value = None
    b.give(value, constant=False)
