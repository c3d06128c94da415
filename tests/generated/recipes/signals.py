"""Signal processing."""

from __future__ import annotations

from builder import Builder
from recipes import recipe


@recipe("DFT")
def dft(b: Builder) -> None:
    rank = b.integer(1, 2)
    parts = b.integer(1, 2)
    shape = (b.integer(1, 2), *(b.integer(2, 6) for _ in range(rank)), parts)
    axis = b.integer(1, rank)
    b.give(b.array(shape))
    b.give(b.integer(2, 7)) if b.chance(0.4) else b.skip()
    inverse = int(parts == 2 and b.chance(0.4))
    if b.has("axis"):
        b.set(axis=axis)
    else:
        b.give(axis)
    b.set(inverse=inverse)
    if not inverse and parts == 1:
        b.maybe(onesided=b.integer(0, 1))
    b.terms = 64


@recipe("STFT")
def stft(b: Builder) -> None:
    frame = b.integer(2, 6)
    b.give(b.array((b.integer(1, 2), b.integer(8, 16), 1)))
    b.give(b.integer(1, 4))
    windowed = b.chance()
    b.give(b.array((frame,), 0, 1)) if windowed else b.skip()
    if not windowed or b.chance():
        b.give(frame)
    b.maybe(onesided=b.integer(0, 1))
    b.terms = 64


@recipe("HannWindow", "HammingWindow", "BlackmanWindow")
def window(b: Builder) -> None:
    b.give(b.integer(2, 12))
    b.set(output_datatype=b.element("T2"))
    b.maybe(periodic=b.integer(0, 1))
    b.wide = False


@recipe("MelWeightMatrix")
def mel_weight_matrix(b: Builder) -> None:
    b.give(b.integer(2, 6))
    b.give(b.pick(16, 32, 64) if b.dtype("T1").itemsize > 1 else 64)
    b.give(b.pick(8000, 16000))
    b.give(0.0)
    b.give(float(b.pick(2048, 3072)))
    b.set(output_datatype=b.element("T3"))
    b.wide = False


@recipe("RotaryEmbedding")
def rotary(b: Builder) -> None:
    batch, heads, length, size = b.integer(1, 2), b.integer(1, 2), b.integer(1, 3), b.pick(4, 8)
    flat = b.chance()
    b.give(b.array((batch, length, heads * size) if flat else (batch, heads, length, size)))
    rotated = size if b.chance() else size // 2
    positions = b.chance()
    shape = (length + 3, rotated // 2) if positions else (batch, length, rotated // 2)
    b.give(b.array(shape, -1, 1))
    b.give(b.array(shape, -1, 1))
    if positions:
        b.give(b.rng.integers(0, length + 3, (batch, length)))
    b.set(num_heads=heads if flat else None, rotary_embedding_dim=rotated if rotated != size else None)
    b.maybe(interleaved=b.integer(0, 1))
