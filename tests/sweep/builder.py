"""Models of a few nodes with concrete sizes per run: what the families draw from and build with."""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Callable, Sequence

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "u8": np.uint8,
         "i8": np.int8, "i32": np.int32, "i64": np.int64, "bool": np.bool_, "i4": ml_dtypes.int4,
         "u4": ml_dtypes.uint4}
ONNX_TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
              "f64": TensorProto.DOUBLE, "u8": TensorProto.UINT8, "i8": TensorProto.INT8, "i32": TensorProto.INT32,
              "i64": TensorProto.INT64, "bool": TensorProto.BOOL, "i4": TensorProto.INT4, "u4": TensorProto.UINT4}
CHANNELS = (1, 1, 2, 3, 3, 4, 5, 7, 8, 8, 12, 13, 16, 16, 17, 24, 31, 32, 32, 33, 40, 48, 63, 64, 64, 65, 80, 96, 100, 127,
            128, 128, 129, 160, 192, 255, 256, 257, 320, 384, 511, 512, 640, 768, 1000, 1024)
SPATIAL = (1, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 12, 13, 14, 14, 15, 16, 17, 19, 20, 24, 27, 28, 28, 31, 32, 33, 35, 40, 48, 56,
           63, 64, 65, 75, 80, 96, 112, 127, 128, 149, 160, 192, 223, 224)
VOCABULARY = 50257

Shape = tuple[int, ...]
Fill = Callable[[np.random.Generator, Shape], Any]


@dataclass
class Value:
    """A value of the model; `shapes` has its sizes in each run."""
    name: str
    shapes: list[Shape]
    dtype: str

    @property
    def shape(self) -> Shape:
        return self.shapes[0]

    @property
    def rank(self) -> int:
        return len(self.shapes[0])


@dataclass
class Input:
    name: str
    dims: list[int | str]
    shapes: list[Shape]
    dtype: str
    fill: Fill | list[Fill]  # a list: one for each run


class TooLarge(Exception):
    """The case would take too long; another one is drawn."""


@dataclass
class Builder:
    """Draws and builds one model. Sizes that runs differ in are drawn with `size`."""
    rng: np.random.Generator
    dtype: str
    dynamic: bool
    runs: int
    most_products: float = 2.5e7  # multiplications of one run
    most_elements: float = 3e6
    inputs: list[Input] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    terms: int = 1  # of all sums behind each other
    gain: float = 1.0  # by which operators make errors larger
    off_by_one: bool = False  # 8-bit results are rounded from floats, where two roundings may meet a tie
    domains: dict[str, int] = field(default_factory=lambda: {"": 22})
    products: float = 0
    count: int = 0

    # --- drawing

    def choice(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def channels(self, most: int = 1024) -> int:
        return self.choice([c for c in CHANNELS if c <= most])

    def spatial(self, most: int = 224, least: int = 1) -> int:
        return self.choice([s for s in SPATIAL if least <= s <= most])

    def sizes(self, draw: Callable[[], int], may_be_zero: bool = False) -> list[int]:
        """One size per run: the same in all unless the model is dynamic."""
        if not self.dynamic:
            return [draw()] * self.runs
        drawn = [draw() for _ in range(self.runs)]
        if may_be_zero and self.chance(0.08):
            drawn[self.integer(0, self.runs - 1)] = 0
        return drawn

    def batch(self) -> list[int]:
        return self.sizes(lambda: self.choice((1, 1, 1, 2, 3, 4, 8)), may_be_zero=True)

    # --- building

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, sizes: Sequence[int | list[int]], dtype: str | None = None, fill: Fill | list[Fill] | None = None) -> Value:
        """`sizes` has a number or one number per run for each dimension."""
        shapes = [tuple(s if isinstance(s, int) else s[r] for s in sizes) for r in range(self.runs)]
        for shape in shapes:
            if prod(shape) > self.most_elements:
                raise TooLarge
        name = self.name("x")
        dims: list[int | str] = [s if isinstance(s, int) or not self.dynamic else f"{name}_d{d}"
                                 for d, s in enumerate(sizes)]
        dims = [d if isinstance(d, (int, str)) else d[0] for d in dims]
        dtype = dtype or self.dtype
        self.inputs.append(Input(name, dims, shapes, dtype, fill or normal(dtype)))
        return Value(name, shapes, dtype)

    def constant(self, array: np.ndarray) -> Value:
        if array.size > 2 * self.most_elements:
            raise TooLarge
        name = self.name("w")
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        dtype = next(k for k, v in TYPES.items() if np.dtype(v) == array.dtype)
        return Value(name, [array.shape] * self.runs, dtype)

    def weights(self, shape: Sequence[int], terms: int, dtype: str | None = None) -> Value:
        """Normal values with which a sum of `terms` products keeps its size."""
        if prod(shape) > 2 * self.most_elements:
            raise TooLarge
        values = self.rng.standard_normal(tuple(shape), np.float32) / np.sqrt(max(terms, 1))
        return self.constant(values.astype(TYPES[dtype or self.dtype]))

    def ints(self, values: Sequence[int]) -> Value:
        return self.constant(np.asarray(values, np.int64))

    def node(self, op: str, inputs: Sequence[Value | None], shapes: list[Shape] | None = None, dtype: str | None = None,
             outputs: int = 1, domain: str = "", **attributes: Any) -> Value:
        """The first output; `shapes` are those of the first input unless given."""
        names = [self.name("v") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, [i.name if i else "" for i in inputs], names, domain=domain,
                                           **{k: v for k, v in attributes.items() if v is not None}))
        if domain:
            self.domains.setdefault(domain, 1)
        first = inputs[0]
        shapes = shapes if shapes is not None else list(first.shapes)
        for shape in shapes:
            if any(s < 0 for s in shape) or prod(shape) > self.most_elements:
                raise TooLarge
        return Value(names[0], shapes, dtype or first.dtype)

    def others(self) -> list[str]:
        """Names of all outputs of the last node."""
        return list(self.nodes[-1].output)

    def sums(self, count: float, length: int) -> None:
        """Notes `count` sums of `length` products each."""
        self.products += count * length
        if self.products > self.most_products:
            raise TooLarge
        self.terms += max(int(length), 1)

    def output(self, *values: Value) -> None:
        self.outputs += [v for v in values if v.name not in {o.name for o in self.outputs}]

    def model(self) -> onnx.ModelProto:
        def info(name: str, dtype: str, dims: Sequence[int | str] | None) -> Any:
            return helper.make_tensor_value_info(name, ONNX_TYPES[dtype], dims)

        outputs = [info(o.name, o.dtype, [f"{o.name}_d{d}" for d in range(o.rank)] if self.dynamic else list(o.shape))
                   for o in self.outputs]
        graph = helper.make_graph(self.nodes, "sweep", [info(i.name, i.dtype, i.dims) for i in self.inputs], outputs,
                                  self.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in self.domains.items()],
                                 ir_version=10)

    def feeds(self, run: int) -> dict[str, np.ndarray]:
        """The inputs of a run; to be asked for in order."""
        fills = [i.fill[run] if isinstance(i.fill, list) else i.fill for i in self.inputs]
        return {i.name: np.asarray(fill(self.rng, i.shapes[run])).astype(TYPES[i.dtype])
                for i, fill in zip(self.inputs, fills)}


def normal(dtype: str) -> Callable[[np.random.Generator, Shape], np.ndarray]:
    """Values of size 1; integers from their whole range."""
    if dtype in ("u8", "i8"):
        low = 0 if dtype == "u8" else -128
        return lambda rng, shape: rng.integers(low, low + 256, shape)
    if dtype == "bool":
        return lambda rng, shape: rng.random(shape) < 0.7
    if dtype in ("i32", "i64"):
        return lambda rng, shape: rng.integers(-100, 100, shape)
    return lambda rng, shape: rng.standard_normal(shape, np.float32)


def below(limit: int) -> Callable[[np.random.Generator, Shape], np.ndarray]:
    return lambda rng, shape: rng.integers(0, limit, shape)


def positive(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    return rng.random(shape, np.float32) + np.float32(0.5)


def ranked(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers that every type holds as they are, and equal ones among many: which comes first is not left open."""
    return rng.permutation(prod(shape)).reshape(shape) % 1999 / 8 - 100
