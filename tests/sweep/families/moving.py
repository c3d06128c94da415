"""What moves elements: Resize, Gather, Scatter, and views of all kinds between other operators."""
from __future__ import annotations

from math import floor, prod

import numpy as np

from ..builder import VOCABULARY, Builder, TooLarge, Value, below
from .post import activation, post_operations


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def resize(b: Builder) -> None:
    mode = b.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    side = lambda: b.sizes(lambda: b.choice((1, 2, 3, 4, 7, 8, 13, 14, 16, 28, 32, 56)))  # noqa: E731
    x = b.input([_sizes(b, b.batch()), b.channels(256), _sizes(b, side()), _sizes(b, side())])
    where = b.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    b.terms += 16
    b.gain *= 4
    more = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        more["nearest_mode"] = b.choice(("round_prefer_floor", "floor"))
        if where != "asymmetric":  # else a place may lie between two elements, and rounding decides
            more["coordinate_transformation_mode"] = "asymmetric"
        more["nearest_mode"] = "floor"
    scale = b.choice((2.0, 2.0, 4.0, 3.0, 0.5))
    if b.dynamic or b.chance(0.5):
        shapes = [(*s[:2], floor(s[2] * scale), floor(s[3] * scale)) for s in x.shapes]
        inputs = [x, None, b.constant(np.asarray([1, 1, scale, scale], np.float32))]
    else:
        to = (x.shape[2] * b.choice((1, 2, 3)), x.shape[3] * b.choice((1, 2, 4)))
        shapes = [(*s[:2], *to) for s in x.shapes]
        inputs = [x, None, None, b.ints([*x.shape[:2], *to])]
    if any(min(s) < 1 for s in shapes):
        raise TooLarge
    b.output(post_operations(b, b.node("Resize", inputs, shapes, **more), 1, 2))


def gather(b: Builder) -> None:
    kind = b.choice(("embedding", "embedding", "axis", "elements", "nd", "constant"))
    if kind == "embedding":
        rows, width = b.choice((10, 1000, 30522, VOCABULARY)), b.choice((1, 7, 16, 32, 48))
        table = b.weights([rows, width], 1)
        n, t = b.batch(), b.sizes(lambda: b.choice((1, 2, 7, 16, 77, 128)))
        ids = b.input([_sizes(b, n), _sizes(b, t)], b.choice(("i64", "i64", "i32")), below(rows))
        y = b.node("Gather", [table, ids], [(n[r], t[r], width) for r in range(b.runs)])
        return b.output(post_operations(b, y, -1, 3))
    x = b.input([b.choice((1, 3, 8, 33, 100)), b.choice((1, 2, 16, 65)), b.choice((1, 4, 7, 32, 129))])
    axis = b.integer(0, 2)
    limit = x.shape[axis]
    if kind == "axis":
        n = b.sizes(lambda: b.choice((1, 2, 5, 17)))
        ids = b.input([_sizes(b, n)], "i64", lambda rng, shape: rng.integers(-limit, limit, shape))
        y = b.node("Gather", [x, ids], [tuple(n[r] if d == axis else s for d, s in enumerate(x.shape)) for r in range(b.runs)],
                   axis=axis)
    elif kind == "constant":
        index = b.integer(-limit, limit - 1)
        y = b.node("Gather", [x, b.constant(np.asarray(index, np.int64))],
                   [tuple(s for d, s in enumerate(x.shape) if d != axis)] * b.runs, axis=axis)
    elif kind == "elements":
        n = b.sizes(lambda: b.choice((1, 2, 5, 17)))
        dims = [_sizes(b, n) if d == axis else s for d, s in enumerate(x.shape)]
        ids = b.input(dims, "i64", lambda rng, shape: rng.integers(-limit, limit, shape))
        y = b.node("GatherElements", [x, ids], ids.shapes, axis=axis)
    else:
        n = b.sizes(lambda: b.choice((1, 2, 5, 17)))
        limits = np.asarray(x.shape[:2])
        ids = b.input([_sizes(b, n), 2], "i64", lambda rng, shape: rng.integers(0, limits, shape))
        y = b.node("GatherND", [x, ids], [(n[r], x.shape[2]) for r in range(b.runs)])
    b.output(activation(b, y) if b.chance(0.5) else y)


def scatter(b: Builder) -> None:
    x = b.input([b.choice((3, 8, 33, 100)), b.choice((1, 2, 16, 65)), b.choice((1, 4, 7, 32))])
    how = b.choice(("none", "none", "add", "max", "mul"))
    b.terms += 32
    b.gain *= 8
    if b.chance(0.5):
        axis = b.integer(0, 2)
        limit, n = x.shape[axis], b.choice((1, 2, 3))
        n = min(n, limit)
        dims = tuple(n if d == axis else s for d, s in enumerate(x.shape))
        # Without a reduction no two updates meet.
        def fill(rng, shape):  # noqa: E306
            return np.argsort(rng.random([limit if d == axis else s for d, s in enumerate(shape)]), axis=axis).take(
                range(shape[axis]), axis=axis)
        ids, updates = b.input(dims, "i64", fill), b.input(dims)
        y = b.node("ScatterElements", [x, ids, updates], axis=axis, reduction=how)
    else:
        n = min(b.choice((1, 2, 3, 20)), x.shape[0])
        ids = b.input([n, 1], "i64", lambda rng, shape: rng.permutation(x.shape[0])[:n].reshape(shape))
        y = b.node("ScatterND", [x, ids, b.input([n, *x.shape[1:]])], reduction=how)
    b.output(y)


def views(b: Builder) -> None:
    """A few views behind each other, with something to compute in between."""
    v: Value = b.input([_sizes(b, b.batch()), b.choice((2, 4, 6, 12, 33, 64)), _sizes(b, b.sizes(lambda: b.choice((2, 7, 16, 31)))),
                        b.choice((1, 3, 8, 17, 64))])
    for _ in range(b.integer(1, 4)):
        kind = b.choice(("transpose", "slice", "pad", "concat", "split", "tile", "flatten", "unary", "depth", "expand", "where"))
        if kind == "transpose":
            order = [int(i) for i in b.rng.permutation(v.rank)]
            v = b.node("Transpose", [v], [tuple(s[d] for d in order) for s in v.shapes], perm=order)
        elif kind == "slice":
            axis = b.integer(0, v.rank - 1)
            least = min(s[axis] for s in v.shapes)
            start, step = b.integer(0, max(0, least - 1)), b.choice((1, 1, 2, 3))
            if b.chance(0.2):
                shapes = list(v.shapes)
                v = b.node("Slice", [v, b.ints([-1]), b.ints([-2 ** 62]), b.ints([axis]), b.ints([-1])], shapes)
            else:
                shapes = [tuple(-(-(n - start) // step) if d == axis else n for d, n in enumerate(s)) for s in v.shapes]
                v = b.node("Slice", [v, b.ints([start]), b.ints([2 ** 62]), b.ints([axis]), b.ints([step])], shapes)
        elif kind == "pad":
            mode = b.choice(("constant", "constant", "edge", "reflect"))
            least = [min(s[d] for s in v.shapes) for d in range(v.rank)]
            most = [3 if mode == "constant" else min(3, n) if mode == "edge" else min(3, max(n - 1, 0)) for n in least]
            pads = [b.integer(0, most[d % v.rank]) for d in range(2 * v.rank)]  # an empty axis has nothing to repeat
            shapes = [tuple(n + pads[d] + pads[v.rank + d] for d, n in enumerate(s)) for s in v.shapes]
            v = b.node("Pad", [v, b.ints(pads)], shapes, mode=mode)
        elif kind == "concat":
            axis = b.integer(0, v.rank - 1)
            v = b.node("Concat", [v, activation(b, v), v][:b.integer(2, 3)],
                       None, axis=axis)
            count = len(b.nodes[-1].input)
            v.shapes = [tuple(n * count if d == axis else n for d, n in enumerate(s)) for s in v.shapes]
        elif kind == "split":
            axis = b.integer(0, v.rank - 1)
            if any(s[axis] % 2 for s in v.shapes):
                continue
            shapes = [tuple(n // 2 if d == axis else n for d, n in enumerate(s)) for s in v.shapes]
            first = b.node("Split", [v], shapes, outputs=2, axis=axis, num_outputs=2)
            second = Value(b.others()[1], shapes, v.dtype)
            v = b.node("Mul", [first, b.node("Sigmoid", [second])])
            b.gain *= 2
        elif kind == "tile":
            times = [b.choice((1, 1, 2, 3)) for _ in range(v.rank)]
            v = b.node("Tile", [v, b.ints(times)], [tuple(n * t for n, t in zip(s, times)) for s in v.shapes])
        elif kind == "flatten":
            v = b.node("Flatten", [v], [(s[0], prod(s[1:])) for s in v.shapes], axis=1)
        elif kind == "unary":
            v = activation(b, v)
        elif kind == "depth" and v.rank == 4 and all(s[1] % 4 == 0 for s in v.shapes):
            v = b.node("DepthToSpace", [v], [(s[0], s[1] // 4, s[2] * 2, s[3] * 2) for s in v.shapes], blocksize=2,
                       mode=b.choice(("DCR", "CRD")))
        elif kind == "expand":
            v = b.node("Expand", [v, b.ints([2] + [1] * v.rank)], [(2, *s) for s in v.shapes])
        elif kind == "where":
            mask = b.node("Greater", [v, b.constant(np.asarray(0).astype(_np(v)))], None, "bool")
            v = b.node("Where", [mask, v, b.node("Neg", [v])], list(v.shapes), v.dtype)
    b.output(v)


def _np(v: Value):
    from ..builder import TYPES
    return TYPES[v.dtype]
