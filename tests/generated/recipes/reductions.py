"""Reductions and softmax: one result from many elements."""

from __future__ import annotations

import math

import numpy as np

from builder import Builder
from recipes import recipe

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


@recipe(*(f"Reduce{name}" for name in REDUCTIONS))
def reduce(b: Builder) -> None:
    name = b.schema.name
    shape = b.shape(0 if b.version >= 11 else 1, 4, empty=0)
    positive = name in ("ReduceLogSum", "ReduceProd")
    b.give(b.array(shape, 1 if positive else -3, 3))
    axes = b.axes(len(shape)) if b.chance(0.8) else []
    if b.has("axes"):
        b.set(axes=axes or None)
    elif axes or b.chance(0.3):
        b.give(np.array(axes, np.int64), kind="tensor(int64)")
    b.maybe(keepdims=b.integer(0, 1), noop_with_empty_axes=b.integer(0, 1))
    b.terms = 4 + math.prod(shape)
    if name in ("ReduceLogSum", "ReduceLogSumExp") and b.dtype("T").kind in "iu":  # a logarithm that is cut
        values = [b.values[x] for x in b.inputs]
        b.refer_to(b.version, [values[0].astype(np.float32), *values[1:]], result="tensor(float)", **b.attributes)


@recipe("ArgMax", "ArgMin")
def arg(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    b.give(b.array(shape))
    b.maybe(axis=b.axis(len(shape)), keepdims=b.integer(0, 1), select_last_index=b.integer(0, 1))


@recipe("Softmax", "LogSoftmax", "Hardmax")
def softmax(b: Builder) -> None:
    shape = b.shape(1 if b.version >= 13 else 2, 4, empty=0)
    b.give(b.array(shape))
    b.maybe(axis=b.axis(len(shape)))
    b.terms = 4 + math.prod(shape)


@recipe("CumSum", "CumProd")
def cumulate(b: Builder) -> None:
    shape = b.shape(1, 4)
    b.give(b.array(shape))
    b.give(b.axis(len(shape)))
    b.maybe(exclusive=b.integer(0, 1), reverse=b.integer(0, 1))
    b.terms = 16


@recipe("TopK")
def top_k(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    axis = b.axis(len(shape))
    count = b.integer(0 if b.version >= 11 else 1, shape[axis])
    size = math.prod(shape)  # all different, as far as the type can
    different = b.rng.permutation(size) - (0 if b.dtype("T").kind == "u" else size // 2)
    if b.dtype("T").name == "bfloat16" or b.dtype("T").itemsize == 1:
        different %= 100
    b.give(different.reshape(shape))
    if b.has("k"):
        b.set(k=max(1, count))
    else:
        b.give(np.array([count]))
    b.set(axis=axis)
    b.maybe(largest=b.integer(0, 1))
    b.set(sorted=1)


@recipe("Det")
def det(b: Builder) -> None:
    size = b.integer(1, 4)
    b.give(b.array(b.shape(0, 2, 3) + (size, size)))
    b.terms = 64


@recipe("Einsum")
def einsum(b: Builder) -> None:
    equation, shapes = b.pick(
        ("ij,jk->ik", [(3, 4), (4, 2)]), ("bij,bjk", [(2, 3, 4), (2, 4, 2)]), ("ii->i", [(3, 3)]), ("i,i", [(4,), (4,)]),
        ("...ii->...i", [(2, 3, 3)]), ("ij->ji", [(2, 3)]), ("bij, bkj -> bik", [(2, 3, 4), (2, 2, 4)]), ("ij->", [(2, 3)]),
        ("i,j,k->kij", [(2,), (3,), (2,)]))
    for shape in shapes:
        b.give(b.array(shape))
    b.set(equation=equation)
    b.terms = 16
