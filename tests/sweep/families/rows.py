"""Normalisations, reductions, softmax, TopK: what works along rows."""
from __future__ import annotations

from math import prod

import numpy as np

from ..builder import VOCABULARY, Builder, TooLarge, Value, ranked
from .post import activation, per_channel, post_operations

WIDTHS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 96, 127, 128, 192, 256, 257, 320, 384, 512, 768, 1000, 1024, 2048, 4097)


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def _tensor(b: Builder, rank: int | None = None, fill=None) -> Value:
    rank = rank or b.integer(1, 5)
    sizes = [b.choice(WIDTHS) if d == rank - 1 else b.sizes(lambda: b.choice((1, 2, 3, 4, 7, 12, 16, 33, 77))) for d in range(rank)]
    return b.input([s if isinstance(s, int) else _sizes(b, s) for s in sizes], fill=fill)


def normalisation(b: Builder) -> None:
    op = b.choice(("LayerNormalization", "LayerNormalization", "RMSNormalization", "GroupNormalization",
                   "InstanceNormalization", "BatchNormalization", "LRN", "MeanVarianceNormalization",
                   "SkipLayerNormalization", "LpNormalization"))
    b.gain *= 8
    if op in ("LayerNormalization", "RMSNormalization", "SkipLayerNormalization"):
        x = _tensor(b, b.choice((2, 3, 3)) if op[0] != "S" else 3)
        size = x.shape[-1]
        if size < 4:
            raise TooLarge  # the variance of few values may be next to nothing
        b.terms += size
        if b.chance(0.4):
            x = b.node("Add", [x, b.input([s if len(set(c)) > 1 else s for c in zip(*x.shapes) for s in [list(c)]]
                                          if b.dynamic else list(x.shape))])
        scale, bias = b.weights([size], 1), b.weights([size], 1)
        if op == "LayerNormalization":
            y = b.node(op, [x, scale] + ([bias] if b.chance(0.7) else []), axis=-1, epsilon=1e-5)
        elif op == "RMSNormalization":
            b.domains[""] = 23
            y = b.node(op, [x, scale], axis=-1, epsilon=1e-5)
        else:
            skip = b.input([list(c) if b.dynamic and len(set(c)) > 1 else c[0] for c in zip(*x.shapes)])
            y = b.node(op, [x, skip, scale, bias], domain="com.microsoft", epsilon=1e-5)
        return b.output(post_operations(b, y, -1, 2))
    c = b.choice((2, 4, 6, 8, 32, 64, 96))
    x = b.input([_sizes(b, b.batch()), c, _sizes(b, b.sizes(lambda: b.choice((3, 4, 7, 14, 28, 33)))),
                 _sizes(b, b.sizes(lambda: b.choice((3, 4, 7, 14, 28, 33))))])
    b.terms += max(prod(s[1:]) for s in x.shapes)
    if op == "GroupNormalization":
        y = b.node(op, [x, b.weights([c], 1), b.weights([c], 1)], num_groups=b.choice([g for g in (1, 2, c // 2, c) if c % g == 0]))
    elif op == "InstanceNormalization":
        y = b.node(op, [x, b.weights([c], 1), b.weights([c], 1)])
    elif op == "BatchNormalization":
        scale = per_channel(b, Value("", [(c,)], b.dtype), 0, True)
        y = b.node(op, [x, scale, b.weights([c], 1), b.weights([c], 1), per_channel(b, Value("", [(c,)], b.dtype), 0, True)])
    elif op == "LRN":
        y = b.node(op, [x], size=b.choice((3, 5)), alpha=0.001)
    elif op == "LpNormalization":
        y = b.node(op, [x], axis=b.choice((1, -1)), p=b.integer(1, 2))
    else:
        y = b.node(op, [x], axes=b.choice(([0, 2, 3], [2, 3], [1])))
        b.gain *= 4
    b.output(activation(b, y) if b.chance(0.5) else y)


def reduction(b: Builder) -> None:
    op = b.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2", "ReduceL1",
                   "ReduceLogSumExp", "ReduceProd", "ArgMax", "ArgMin", "CumSum"))
    if op.startswith("Arg"):
        x = _tensor(b, fill=ranked)
        axis, keep = b.integer(-x.rank, x.rank - 1), b.integer(0, 1)
        at = axis % x.rank
        shapes = [(*s[:at], *([1] if keep else []), *s[at + 1:]) for s in x.shapes]
        return b.output(b.node(op, [x], shapes, "i64", axis=axis, keepdims=keep))
    x = _tensor(b)
    if op == "CumSum":
        axis = b.integer(0, x.rank - 1)
        b.terms += max(s[axis] for s in x.shapes)
        b.gain *= 2
        return b.output(b.node(op, [x, b.constant(np.asarray(axis, np.int64))], reverse=b.integer(0, 1), exclusive=b.integer(0, 1)))
    axes = sorted({b.integer(0, x.rank - 1) for _ in range(b.integer(1, x.rank))})
    length = max(prod(s[a] for a in axes) for s in x.shapes)
    if op == "ReduceProd" and length > 20:
        raise TooLarge
    b.terms += length
    b.gain *= 4
    keep = b.integer(0, 1)
    shapes = [tuple(1 if d in axes else n for d, n in enumerate(s) if keep or d not in axes) for s in x.shapes]
    y = x
    if b.chance(0.4) and op not in ("ReduceSumSquare", "ReduceProd"):
        y = activation(b, y)
    given = [a - x.rank if b.chance(0.3) else a for a in axes]
    r = b.node(op, [y, b.ints(given)], shapes, keepdims=keep)
    if keep and b.chance(0.5):
        r = b.node("Sub", [y, r], list(x.shapes))
    b.output(r)


LENGTHS = (4095, 4096, 16384, 16411, 65536, 100_003, 1 << 17, 250_000, 262_143, 1 << 18, 262_147, 400_000, 1 << 19, 1_000_003)


def long_rows(b: Builder) -> None:
    """Few rows, columns or images with many elements each: threads share one of them in parts."""
    form = b.choice(("rows", "rows", "rows", "columns", "image", "all"))
    length = b.sizes(lambda: b.choice(LENGTHS))
    few = lambda: _sizes(b, b.sizes(lambda: b.choice((1, 1, 1, 2, 3, 7))))  # noqa: E731
    if form == "rows":
        dims, axis = [*[few() for _ in range(b.integer(0, 2))], _sizes(b, length)], -1
    elif form == "columns":
        dims, axis = [few(), _sizes(b, [min(n, 100_003) for n in length]), b.choice((2, 3, 16, 17, 32, 100))], 1
    elif form == "image":
        side = _sizes(b, b.sizes(lambda: b.choice((33, 64, 100, 127, 224))))
        dims, axis = [1, b.choice((1, 3, 8, 17, 64)), side, _sizes(b, b.sizes(lambda: b.choice((33, 64, 100, 127, 224))))], -1
    else:
        dims, axis = [few(), _sizes(b, b.sizes(lambda: b.choice((100, 512, 777)))), _sizes(b, b.sizes(lambda: b.choice((100, 512, 777))))], -1
    op = b.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax",
                   "ArgMin", "Softmax", "LogSoftmax", "LayerNormalization", "siblings", "CumSum", "quantised"))
    x = b.input(dims, fill=ranked if op.startswith("Arg") else None)
    b.terms += max(prod(s) // s[0] if form in ("image", "all") else s[axis] for s in x.shapes)
    b.gain *= 8
    y = activation(b, x) if b.chance(0.3) and not op.startswith("Arg") else x
    if op.startswith("Arg"):
        keep = b.integer(0, 1)
        at = axis % x.rank
        shapes = [(*s[:at], *([1] if keep else []), *s[at + 1:]) for s in x.shapes]
        return b.output(b.node(op, [y], shapes, "i64", axis=axis, keepdims=keep, select_last_index=b.integer(0, 1)))
    if op in ("Softmax", "LogSoftmax"):
        return b.output(b.node(op, [y], axis=axis))
    if op == "CumSum":
        return b.output(b.node(op, [y, b.constant(np.asarray(axis % x.rank, np.int64))], reverse=b.integer(0, 1)))
    if op == "LayerNormalization":
        size = x.shape[-1]
        if any(s[-1] != size for s in x.shapes) or size < 4:
            raise TooLarge
        return b.output(b.node(op, [y, b.weights([size], 1)], axis=-1, epsilon=1e-5))
    if op == "quantised":  # in one pass over rows that a row kernel makes
        b.off_by_one = True
        b.dtype = "f32"
        if x.dtype != "f32":
            raise TooLarge
        q = b.node("DynamicQuantizeLinear", [y], None, "u8", outputs=3)
        scale, zero = b.others()[1:]
        return b.output(q, Value(scale, [()] * b.runs, "f32"), Value(zero, [()] * b.runs, "u8"))
    axes = [a for a in range(x.rank)] if form == "all" else [2, 3] if form == "image" else [axis % x.rank]
    keep = b.integer(0, 1)
    shapes = [tuple(1 if d in axes else n for d, n in enumerate(s) if keep or d not in axes) for s in x.shapes]
    if op == "siblings":  # two that look at the same rows
        first, second = b.choice(("ReduceMin", "ReduceSum")), b.choice(("ReduceMax", "ReduceMean"))
        return b.output(b.node(first, [y, b.ints(axes)], shapes, keepdims=keep), b.node(second, [y, b.ints(axes)], shapes, keepdims=keep))
    r = b.node(op, [y, b.ints(axes)], shapes, keepdims=keep)
    b.output(b.node("Sub", [y, r], list(x.shapes)) if keep and b.chance(0.4) else r)


def softmax(b: Builder) -> None:
    x = _tensor(b) if not b.chance(0.05) else b.input([_sizes(b, b.batch()), VOCABULARY])
    axis = b.choice((-1, -1, b.integer(0, x.rank - 1)))
    b.terms += max(s[axis] for s in x.shapes)
    b.gain *= 8
    b.output(b.node(b.choice(("Softmax", "Softmax", "LogSoftmax")), [x], axis=axis))


def top_k(b: Builder) -> None:
    x = _tensor(b, fill=ranked) if not b.chance(0.05) else b.input([_sizes(b, b.batch()), 2000], fill=ranked)
    axis = b.choice((-1, -1, b.integer(0, x.rank - 1)))
    least = min(s[axis] for s in x.shapes)
    k = b.integer(1, least)
    shapes = [tuple(k if d == axis % x.rank else n for d, n in enumerate(s)) for s in x.shapes]
    y = b.node("TopK", [x, b.ints([k])], shapes, outputs=2, axis=axis, largest=b.integer(0, 1))
    b.output(y, Value(b.others()[1], shapes, "i64"))
