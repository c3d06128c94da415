"""Attention as products and a softmax, and as operators: ai.onnx, MultiHeadAttention, GroupQueryAttention."""
from __future__ import annotations

import numpy as np

from ..builder import TYPES, Builder, Value

DEPTHS = (8, 16, 32, 33, 40, 64, 64, 80, 128)
TOKENS = (1, 1, 2, 3, 7, 16, 17, 31, 64, 77, 96, 128, 197, 256)


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def _scores(b: Builder, batch: list[int], heads: int, s: list[int], t: list[int], depth: int) -> None:
    count = max(batch[r] * heads * s[r] * t[r] for r in range(b.runs))
    b.sums(count, depth)
    b.sums(count // max(max(t), 1) * depth, max(t))


def _mask(rng: np.random.Generator, shape) -> np.ndarray:
    """Every query sees the first key: where all are masked by the same number, its rounding decides."""
    mask = np.where(rng.random(shape) < 0.2, np.float32(-1e4), np.float32(0))
    mask[..., :1] = 0
    return mask


def scaled_product(b: Builder) -> None:
    batch, heads, depth = b.batch(), b.choice((1, 2, 3, 4, 8, 12)), b.choice(DEPTHS)
    s, same = b.sizes(lambda: b.choice(TOKENS)), b.chance(0.7)
    t = s if same else b.sizes(lambda: b.choice(TOKENS))
    _scores(b, batch, heads, s, t, depth)
    kv_heads = b.choice((heads, heads, 1))
    n, sq, tk = _sizes(b, batch), _sizes(b, s), _sizes(b, t)

    def heads_of(tokens, count: int) -> Value:
        if b.chance(0.5):
            return b.input([n, count, tokens, depth])
        x = b.input([n, tokens, count, depth])
        return b.node("Transpose", [x], [(p[0], p[2], p[1], p[3]) for p in x.shapes], perm=[0, 2, 1, 3])

    q, k, v = heads_of(sq, heads), heads_of(tk, kv_heads), heads_of(tk, kv_heads)
    kt = b.node("Transpose", [k], [(p[0], p[1], p[3], p[2]) for p in k.shapes], perm=[0, 1, 3, 2])
    scale = b.constant(np.asarray(depth ** -0.5).astype(TYPES[b.dtype]))
    early = b.chance(0.3)
    if early:
        q = b.node("Mul", [q, scale])
    shapes = [(batch[r], heads, s[r], t[r]) for r in range(b.runs)]
    scores = b.node("MatMul", [q, kt], shapes)
    if not early:
        scores = b.node(*(("Mul", [scores, scale]) if b.chance(0.6) else
                          ("Div", [scores, b.constant(np.asarray(depth ** 0.5).astype(TYPES[b.dtype]))])))
    mask = b.choice(("none", "none", "full", "row", "head"))
    if mask != "none":
        dims = {"full": [sq, tk], "row": [n, 1, 1, tk], "head": [1, heads, sq, tk]}[mask]
        scores = b.node("Add", [scores, b.input(dims, fill=_mask)])
    p = b.node("Softmax", [scores], axis=-1)
    y = b.node("MatMul", [p, v], [(batch[r], heads, s[r], depth) for r in range(b.runs)])
    if b.chance(0.5):
        y = b.node("Transpose", [y], [(x[0], x[2], x[1], x[3]) for x in y.shapes], perm=[0, 2, 1, 3])
    b.output(y)


def operator(b: Builder) -> None:
    b.domains[""] = 23
    batch, kv, depth = b.batch(), b.choice((1, 2, 3, 4)), b.choice(DEPTHS)
    heads = kv * b.choice((1, 1, 2, 4))
    s, t = b.sizes(lambda: b.choice(TOKENS)), b.sizes(lambda: b.choice(TOKENS))
    causal = b.chance(0.4)
    if causal or b.chance(0.5):
        t = s
    _scores(b, batch, heads, s, t, depth)
    n, sq, tk = _sizes(b, batch), _sizes(b, s), _sizes(b, t)
    width = b.choice((depth, depth, 24))
    more = {"is_causal": int(causal)}
    if b.chance(0.3):
        more["scale"] = 0.1
    if b.chance(0.2):
        more["softcap"] = 5.0
    if b.chance(0.5):  # [batch, tokens, heads * depth]
        q, k, v = b.input([n, sq, heads * depth]), b.input([n, tk, kv * depth]), b.input([n, tk, kv * width])
        more.update(q_num_heads=heads, kv_num_heads=kv)
        shapes = [(batch[r], s[r], heads * width) for r in range(b.runs)]
    else:
        q, k, v = b.input([n, heads, sq, depth]), b.input([n, kv, tk, depth]), b.input([n, kv, tk, width])
        shapes = [(batch[r], heads, s[r], width) for r in range(b.runs)]
    inputs = [q, k, v]
    if b.chance(0.4):
        inputs.append(b.input(b.choice(([sq, tk], [n, 1, sq, tk], [1, heads, sq, tk])), fill=_mask))
    b.output(b.node("Attention", inputs, shapes, **more))


def multi_head(b: Builder) -> None:
    batch, heads, depth = b.batch(), b.choice((1, 2, 4, 8)), b.choice(DEPTHS)
    s, t = b.sizes(lambda: b.choice(TOKENS)), b.sizes(lambda: b.choice(TOKENS))
    if b.chance(0.6):
        t = s
    _scores(b, batch, heads, s, t, depth)
    n, sq, tk, hidden = _sizes(b, batch), _sizes(b, s), _sizes(b, t), heads * depth
    q, k, v = b.input([n, sq, hidden]), b.input([n, tk, hidden]), b.input([n, tk, hidden])
    inputs: list[Value | None] = [q, k, v, b.weights([3 * hidden], 1) if b.chance(0.4) else None, None,
                                  b.input([n, heads, sq, tk], fill=_mask) if b.chance(0.4) else None]
    while inputs[-1] is None:
        inputs.pop()
    more = {"scale": 0.2} if b.chance(0.2) else {}
    if t == s and b.chance(0.3):
        more["unidirectional"] = 1
    b.output(b.node("MultiHeadAttention", inputs, [(batch[r], s[r], hidden) for r in range(b.runs)], domain="com.microsoft",
                    num_heads=heads, **more))


def group_query(b: Builder) -> None:
    batch, kv, depth = b.batch(), b.choice((1, 2, 3)), b.choice((16, 32, 64, 128))
    heads = kv * b.choice((1, 2, 4))
    s = b.sizes(lambda: b.choice(TOKENS))
    past = b.sizes(lambda: b.choice((0, 1, 5, 31))) if b.chance(0.4) else [0] * b.runs
    if any(p > 0 for p in past):
        s = [1] * b.runs
    total = [s[r] + past[r] for r in range(b.runs)]
    _scores(b, batch, heads, s, total, depth)
    n, sq = _sizes(b, batch), _sizes(b, s) if len(set(s)) > 1 or not b.dynamic else s[0]
    q, k, v = b.input([n, sq, heads * depth]), b.input([n, sq, kv * depth]), b.input([n, sq, kv * depth])
    pk, pv = (b.input([n, kv, _sizes(b, past), depth]) for _ in range(2))
    # The lengths follow from the sizes of a run.
    lengths = b.input([n], "i32", [lambda rng, shape, t=t: np.full(shape, t - 1) for t in total])
    whole = b.input([], "i32", [lambda rng, shape, t=t: t for t in total])
    y = b.node("GroupQueryAttention", [q, k, v, pk, pv, lengths, whole],
               [(batch[r], s[r], heads * depth) for r in range(b.runs)], outputs=3, domain="com.microsoft", num_heads=heads,
               kv_num_heads=kv)
    names = b.others()
    present = [(batch[r], kv, total[r], depth) for r in range(b.runs)]
    b.output(y, Value(names[1], present, b.dtype), Value(names[2], present, b.dtype))
