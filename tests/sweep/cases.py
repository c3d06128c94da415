"""A case: what its number and the seed make of it. Equal numbers give equal cases on every machine."""
from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from .builder import Builder, TooLarge
from .families import DTYPES, FAMILIES

# Our instruction set, and the most that oneDNN may use: one process each, since oneDNN looks at it once.
LANES = (("avx512", "ALL"), ("avx2", "AVX2"), ("avx512", "ALL"), ("sse", "SSE41"), ("avx512", "AVX512_CORE"),
         ("avx2", "AVX512_CORE_VNNI"), ("avx512", "ALL"), ("avx2", "AVX2"), ("sse", "SSE41"), ("avx512", "AVX512_CORE_BF16"),
         ("avx2", "AVX2_VNNI"), ("avx512", "AVX512_CORE_FP16"))
KINDS = ("compiled", "compiled", "compiled", "compiled", "bf16", "evaluator", "compiled", "bf16", "compiled", "compiled")


@dataclass(frozen=True)
class Mode:
    isa: str
    library: str  # DNNL_MAX_CPU_ISA
    kind: str  # compiled, bf16, f16, any (precision="bf16", ...), tiles (any without narrow values), evaluator
    threads: int
    dynamic: bool

    def __str__(self) -> str:
        return f"{self.isa}/{self.library} {self.kind} threads={self.threads} {'dynamic' if self.dynamic else 'static'}"


@dataclass(frozen=True)
class Series:
    """What the numbers of a sweep are cases of."""
    seed: int
    family: str = ""  # of all cases; none: drawn
    kind: str = ""  # the same


@dataclass
class Case:
    number: int
    family: str
    dtype: str
    mode: Mode
    builder: Builder


def lane(number: int) -> tuple[str, str]:
    return LANES[number % len(LANES)]


def _weighted(rng: np.random.Generator, weights: dict[str, int]) -> str:
    names = list(weights)
    share = np.asarray([weights[n] for n in names], float)
    return names[int(rng.choice(len(names), p=share / share.sum()))]


def plan(series: Series, number: int) -> tuple[str, str, Mode]:
    """Family, element type and mode of a case, without building it."""
    rng = np.random.default_rng([series.seed, number])
    family = _weighted(rng, {name: often for name, (often, _) in FAMILIES.items()})
    family = series.family or family
    dtype = _weighted(rng, DTYPES[family])
    isa, library = lane(number)
    kind = series.kind or KINDS[number // len(LANES) % len(KINDS)]
    return family, dtype, Mode(isa, library, kind, int(rng.integers(1, 3)), bool(rng.random() < 0.4))


def matches(pattern: str, series: Series, number: int) -> bool:
    family, dtype, mode = plan(series, number)
    return re.search(pattern, f"{family} {dtype} {mode}") is not None


def make(series: Series, number: int) -> Case:
    family, dtype, mode = plan(series, number)
    for attempt in range(200):
        rng = np.random.default_rng([series.seed, number, attempt])
        runs = 3 if mode.dynamic and mode.kind != "evaluator" else 1 if not mode.dynamic else 2
        builder = Builder(rng, dtype, mode.dynamic, runs)
        try:
            FAMILIES[family][1](builder)
        except (TooLarge, StopIteration):
            continue
        if builder.nodes and builder.outputs:
            return Case(number, family, dtype, mode, builder)
    raise RuntimeError(f"case {number} of family {family} is always too large")
