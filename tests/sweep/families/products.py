"""Matrix products: MatMul of any rank and order, Gemm in all forms of C, Einsum."""
from __future__ import annotations

from math import prod

import numpy as np

from ..builder import VOCABULARY, Builder, TooLarge, Value
from .post import post_operations

INNER = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 64, 65, 96, 100, 127, 128, 192, 255, 256, 320, 384, 512, 768, 1000, 1024)
ROWS = (1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 50, 64, 77, 96, 128, 197, 256, 384)


def _rows(b: Builder) -> list[int]:
    return b.sizes(lambda: b.choice(ROWS), may_be_zero=True)


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def matmul(b: Builder) -> None:
    k = b.choice(INNER)
    n = VOCABULARY if b.chance(0.03) and k <= 64 else b.choice(INNER)
    m = _rows(b) if n != VOCABULARY else b.sizes(lambda: b.choice((1, 2, 5)))
    batch = [b.sizes(lambda: b.choice((1, 2, 3, 4, 8, 12))) for _ in range(b.choice((0, 0, 1, 1, 2, 2, 3)))]
    constant = b.chance(0.6)
    b.sums(max(prod(x[r] for x in batch) * m[r] for r in range(b.runs)) * n, k)
    a_sizes = [_sizes(b, x) for x in batch] + [_sizes(b, m), k]
    if b.chance(0.2) and len(batch) >= 1:  # as attention reads its heads
        order = list(range(len(a_sizes)))
        order[-3], order[-2] = order[-2], order[-3]
        turned = b.input([a_sizes[d] for d in order])
        a = b.node("Transpose", [turned], [tuple(s[d] for d in order) for s in turned.shapes], perm=order)
    else:
        a = b.input(a_sizes)
    form = b.choice(("matrix", "matrix", "batched", "broadcast"))
    if constant:
        extent = [x[0] if form == "batched" and not b.dynamic else 1 for x in batch] if form != "matrix" else []
        w = b.weights([*extent, k, n], k)
    else:
        dims = [_sizes(b, x) if form == "batched" else 1 for x in batch] if form != "matrix" else []
        if b.chance(0.3) and n != VOCABULARY:
            turned = b.input([*dims, n, k])
            order = [*range(len(dims)), len(dims) + 1, len(dims)]
            w = b.node("Transpose", [turned], [tuple(s[d] for d in order) for s in turned.shapes], perm=order)
        else:
            w = b.input([*dims, k, n])
    y = b.node("MatMul", [a, w], [(*s[:-1], n) for s in a.shapes])
    if not constant:
        y = b.node("Mul", [y, b.constant(np.asarray(k ** -0.5).astype(_np(b)))])
    b.output(post_operations(b, y, -1))


def _np(b: Builder):
    from ..builder import TYPES
    return TYPES[b.dtype]


def gemm(b: Builder) -> None:
    k, n, m = b.choice(INNER), b.choice(INNER), _rows(b)
    trans_a, trans_b = b.integer(0, 1), b.integer(0, 1)
    b.sums(max(m) * n, k)
    a = b.input([k, _sizes(b, m)] if trans_a else [_sizes(b, m), k])
    shape = [n, k] if trans_b else [k, n]
    w = b.weights(shape, k) if b.chance(0.7) else b.input(shape)
    if w.name.startswith("x"):
        b.gain *= 1
    out = [(m[r], n) for r in range(b.runs)]
    inputs: list[Value] = [a, w]
    form = b.choice(("none", "n", "1n", "m1", "mn", "one", "scalar"))
    rows = _sizes(b, m)
    sizes = {"n": [n], "1n": [1, n], "m1": [rows, 1], "mn": [rows, n], "one": [1], "scalar": []}.get(form)
    if sizes is not None:
        fixed = all(isinstance(s, int) for s in sizes)
        inputs.append(b.weights(sizes, 1) if fixed and b.chance(0.6) else b.input(sizes))
    y = b.node("Gemm", inputs, out, transA=trans_a, transB=trans_b, alpha=b.choice((1.0, 1.0, 0.5)),
               beta=b.choice((1.0, 1.0, 2.0, 0.25)))
    b.output(post_operations(b, y, -1))


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "bhid,bhjd->bhij", "bhij,bhjd->bhid", "bid,hdk->bhik", "bi,bi->b",
             "bij->bji", "bij->bi", "ij,kj->ik", "bihd,bjhd->bhij", "i,j->ij", "bij,jk->bik", "bchw,cm->bmhw", "bii->bi",
             "abc,cd->abd", "bxy,bxyc->bc", "ij,ij->", "bnd,mnd->bm")


def einsum(b: Builder) -> None:
    equation = b.choice(EQUATIONS)
    left, right = equation.split("->")
    extent = {c: b.sizes(lambda: b.choice((1, 2, 3, 4, 7, 8, 12, 16, 17, 32, 48, 64))) for c in sorted(set(left) - {","})}
    summed = [c for c in extent if c not in right]
    shapes = [tuple(extent[c][r] for c in right) for r in range(b.runs)]
    length = max(prod(extent[c][r] for c in summed) for r in range(b.runs))
    b.sums(max(prod(s) for s in shapes), length)
    if max(prod(s) for s in shapes) * length > b.most_products:
        raise TooLarge
    operands = [b.input([_sizes(b, extent[c]) for c in operand]) for operand in left.split(",")]
    y = b.node("Einsum", operands, shapes, equation=equation)
    b.output(y)
