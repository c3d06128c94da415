"""Attention."""

from __future__ import annotations

from builder import Builder
from recipes import recipe


@recipe("Attention")
def attention(b: Builder) -> None:
    batch, shared, times, size, values = b.integer(1, 2), b.integer(1, 2), b.integer(1, 2), b.integer(1, 4), b.integer(1, 4)
    heads, queries, keys = shared * times, b.integer(1, 4), b.integer(1, 5)
    flat = b.chance(0.4)

    def packed(count: int, length: int, width: int) -> tuple[int, ...]:
        return (batch, length, count * width) if flat else (batch, count, length, width)

    b.types["T2"] = b.types["T1"]  # one type in all references
    past = b.integer(1, 3) if b.chance(0.3) else 0
    b.give(b.array(packed(heads, queries, size)))
    b.give(b.array(packed(shared, keys, size)))
    b.give(b.array(packed(shared, keys, values)))
    total = past + keys
    kind = b.dtype("U")
    if b.chance():
        if kind.kind == "b":
            mask = b.array((queries, total))
            mask[:, 0] = True  # a row without any is left to the implementation in opset 23
        else:
            b.types["U"] = b.types["T1"]
            mask = b.array(b.pick((queries, total), (batch, 1, queries, total), (heads, queries, total)), -2, 2)
        b.give(mask)
    else:
        b.skip()
    b.set(q_num_heads=heads if flat else None, kv_num_heads=shared if flat else None)
    b.out()
    if past:
        b.give(b.array((batch, shared, past, size)))
        b.give(b.array((batch, shared, past, values)))
        b.out(), b.out()
    elif b.version >= 24 and b.chance(0.3):
        b.skip(), b.skip()
        b.give(b.rng.integers(max(1, min(queries, keys)), keys + 1, batch))
    b.set(is_causal=b.integer(0, 1) if queries <= keys and b.chance() else None)
    b.maybe(scale=b.real(0.2, 1))
    if b.chance(0.3):
        b.set(softcap=b.real(1, 4))
    b.terms = 128


@recipe("ai.onnx.preview.FlexAttention")
def flex_attention(b: Builder) -> None:
    batch, heads, size, queries, keys = b.integer(1, 2), b.integer(1, 2), b.integer(1, 4), b.integer(1, 4), b.integer(1, 4)
    b.give(b.array((batch, heads, queries, size)))
    b.give(b.array((batch, heads, keys, size)))
    b.give(b.array((batch, heads, keys, b.integer(1, 4))))
    b.maybe(scale=b.real(0.2, 1))
    b.terms = 128


@recipe("LinearAttention")
def linear_attention(b: Builder) -> None:
    batch, length, shared, times, size, values = (b.integer(1, n) for n in (2, 4, 2, 2, 3, 3))
    rule = b.pick("linear", "gated", "delta", "gated_delta")
    b.give(b.array((batch, length, shared * times * size), -1, 1))
    b.give(b.array((batch, length, shared * size), -0.5, 0.5))
    b.give(b.array((batch, length, shared * values), -1, 1))
    if b.chance():
        b.give(b.array((batch, shared, size, values), -1, 1))
    else:  # a state that starts at zero has the type of the query
        b.types["S"] = b.types["T"]
        b.skip()
    b.give(b.array((batch, length, shared * b.pick(1, size)), -1, 0)) if "gated" in rule else b.skip()
    b.give(b.array((batch, length, b.pick(1, shared)), 0, 1)) if "delta" in rule else b.skip()
    b.set(q_num_heads=shared * times, kv_num_heads=shared, update_rule=rule)
    b.maybe(scale=b.real(0.2, 1))
    b.terms = 32 * length
