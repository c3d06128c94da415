"""Valid models with inputs, for fuzz_shapes.py: single nodes, the backend suite, random graphs, and a zoo of files."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from base_models import BaseModel, _value, all_models
from onnx import TensorProto, helper, numpy_helper


def suite() -> Iterator[BaseModel]:
    """Every case of the backend suite that comes as code."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.data_sets:
                yield BaseModel(case.name, case.model, tuple(map(_value, case.data_sets[0][0])))


def zoo(folder: pathlib.Path) -> Iterator[BaseModel]:
    """Folders with model.onnx and inputs.npz. The model stays a path: its weights lie beside it."""
    for path in sorted(folder.glob("**/model.onnx")):
        if not (path.parent / "inputs.npz").exists():
            continue
        feeds = np.load(path.parent / "inputs.npz")
        model = onnx.load(path)
        initializers = {t.name for t in model.graph.initializer}
        inputs = [i.name for i in model.graph.input if i.name not in initializers]
        if all(name in feeds for name in inputs):
            yield BaseModel(f"zoo {path.parent.name}", model, tuple(feeds[name] for name in inputs))


class RandomGraph:
    """Grows a graph node by node. Axes, indices, starts and pads are those of the sizes the inputs have now."""

    UNARY = ("Neg", "Tanh", "Relu", "Sigmoid", "Abs", "Identity")
    BINARY = ("Add", "Mul", "Sub", "Max", "Min")

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[tuple[str, np.ndarray]] = []
        self.values: list[tuple[str, tuple[int, ...]]] = []  # of floats, with their shapes

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def input(self, shape: tuple[int, ...], indices_below: int = 0) -> str:
        name = f"x{len(self.inputs)}"
        data = (self.rng.integers(-indices_below, indices_below, shape) if indices_below
                else self.rng.standard_normal(shape).astype(np.float32))
        self.inputs.append((name, np.asarray(data)))
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], outputs: int = 1, **attributes: Any) -> None:
        names = [f"v{len(self.values)}"] + [f"u{len(self.nodes)}_{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.values.append((names[0], shape))

    def grow(self) -> None:
        name, shape = self.values[-1] if self.rng.random() < 0.7 else self.pick(*self.values)
        rank = len(shape)
        axis = int(self.rng.integers(rank)) if rank else 0
        if rank and (np.prod(shape) > 20_000 or rank > 6):
            self.add("ReduceSum", [name, self.constant([0])], shape[1:], keepdims=0)
            return
        rest = (*shape[:axis], *shape[axis + 1:])
        length = shape[axis] if rank else 1
        replaced = lambda n: (*shape[:axis], n, *shape[axis + 1:])  # noqa: E731
        kinds = ["unary", "binary", "again", "unsqueeze"]
        if rank:
            kinds += ["slice", "slice", "index", "index", "gather", "elements", "pad", "reduce", "softmax", "concat", "transpose",
                      "scan", "expand", "tile", "reverse", "tail", "arg", "scatter", "top"]
        if rank > 1:
            kinds += ["flatten", "matmul", "split", "norm", "trilu", "nd"]
        if rank == 4:
            kinds += ["pool", "pool"]
        if 0 in shape:
            kinds = ["unary", "binary", "unsqueeze", "softmax", "concat", "transpose", "expand", "scan"]
        kind = self.pick(*kinds)
        if kind == "unary":
            self.add(self.pick(*self.UNARY), [name], shape)
        elif kind == "binary":
            same = [v for v, s in self.values if s == shape]
            other = self.pick(*same) if self.rng.random() < 0.5 else self.input(tuple(self.pick(1, n) for n in shape))
            self.add(self.pick(*self.BINARY), [name, other], shape)
        elif kind == "again":  # folds to its operand, or undoes what made it
            self.add(*self.pick(("Max", [name, name]), ("Min", [name, name]), ("Neg", [name])), shape)
        elif kind == "unsqueeze":
            at = int(self.rng.integers(rank + 1))
            self.add("Unsqueeze", [name, self.constant([at])], (*shape[:at], 1, *shape[at:]))
        elif kind == "slice":
            step = self.pick(1, 1, 2, 3, -1, -2)
            a, b = sorted(int(self.rng.integers(-length, length + 1)) for _ in range(2))
            start, end = (a, b) if step > 0 else (b, a)
            kept = len(range(*slice(start, end, step).indices(length)))
            self.add("Slice", [name, *(self.constant([i]) for i in (start, end, axis, step))], replaced(kept))
        elif kind == "index":
            self.add("Gather", [name, self.constant(int(self.rng.integers(-length, length)))], rest, axis=axis)
        elif kind == "gather":
            n = int(self.rng.integers(1, 5))
            self.add("Gather", [name, self.input((n,), length)], replaced(n), axis=axis)
        elif kind == "elements":
            self.add("GatherElements", [name, self.input(shape, length)], shape, axis=axis)
        elif kind == "nd":
            n = int(self.rng.integers(1, 4))
            self.add("GatherND", [name, self.input((n, 1), shape[0])], (n, *shape[1:]))
        elif kind == "scatter":
            n = int(self.rng.integers(1, length + 1))
            self.add("ScatterElements", [name, self.input(replaced(n), length), self.input(replaced(n))], shape, axis=axis,
                     reduction=self.pick("add", "max"))
        elif kind == "pad":
            mode = self.pick("constant", "reflect", "edge", "wrap")
            before, after = (int(self.rng.integers(0, max(1, length - 1))) for _ in range(2))
            if mode == "constant" and before < length:
                before = self.pick(before, -before)
            pads = [0] * (2 * rank)
            pads[axis], pads[rank + axis] = before, after
            self.add("Pad", [name, self.constant(pads)], replaced(length + before + after), mode=mode)
        elif kind == "reduce":
            self.add(self.pick("ReduceSum", "ReduceMax", "ReduceMean"), [name, self.constant([axis])], rest, keepdims=0)
        elif kind == "softmax":
            self.add("Softmax", [name], shape, axis=axis)
        elif kind == "concat":
            self.add("Concat", [name, name], replaced(2 * length), axis=axis)
        elif kind == "transpose":
            order = [int(a) for a in self.rng.permutation(rank)]
            self.add("Transpose", [name], tuple(shape[a] for a in order), perm=order)
        elif kind == "scan":
            self.add("CumSum", [name, self.constant(axis)], shape, reverse=self.pick(0, 1), exclusive=self.pick(0, 1))
        elif kind == "expand":
            self.add("Expand", [name, self.constant([2, *([1] * rank)])], (2, *shape))
        elif kind == "tile":
            self.add("Tile", [name, self.constant([2 if k == axis else 1 for k in range(rank)])], replaced(2 * length))
        elif kind == "reverse":
            self.add("Slice", [name, *(self.constant([i]) for i in (-1, -(2**62), axis, -1))], shape)
        elif kind == "tail":
            # From a position that is computed from the sizes, as models cut what is beyond a window.
            n = max(1, length // 2)
            self.nodes.append(helper.make_node("Shape", [name], [f"n{len(self.nodes)}"], start=axis, end=axis + 1))
            size = self.nodes[-1].output[0]
            self.nodes.append(helper.make_node("Sub", [size, self.constant([n])], [f"n{len(self.nodes)}"]))
            self.add("Slice", [name, self.nodes[-1].output[0], size, self.constant([axis])], replaced(n))
        elif kind == "arg":
            self.nodes.append(helper.make_node("ArgMax", [name], [f"n{len(self.nodes)}"], axis=axis))
            self.add("GatherElements", [name, self.nodes[-1].output[0]], replaced(1), axis=axis)
        elif kind == "top":
            k = int(self.rng.integers(1, length + 1))
            self.add("TopK", [name, self.constant([k])], replaced(k), outputs=2, axis=axis)
        elif kind == "flatten":
            self.add("Reshape", [name, self.constant([0] * (rank - 2) + [-1])], (*shape[:-2], shape[-2] * shape[-1]))
        elif kind == "matmul":
            order = [*range(rank - 2), rank - 1, rank - 2]
            self.nodes.append(helper.make_node("Transpose", [name], [f"n{len(self.nodes)}"], perm=order))
            self.add("MatMul", [name, self.nodes[-1].output[0]], (*shape[:-1], shape[-2]))
        elif kind == "split":
            a = int(self.rng.integers(0, length + 1))
            self.add("Split", [name, self.constant([a, length - a])], replaced(a), outputs=2, axis=axis)
        elif kind == "norm":
            self.add("LayerNormalization", [name, self.input((shape[-1],))], shape)
        elif kind == "trilu":
            self.add("Trilu", [name, self.constant(self.pick(-1, 0, 1))], shape, upper=self.pick(0, 1))
        elif kind == "pool":
            kernel = [min(2, n) for n in shape[2:]]
            sizes = tuple(n - k + 1 for n, k in zip(shape[2:], kernel, strict=True))
            self.add(self.pick("MaxPool", "AveragePool"), [name], (*shape[:2], *sizes), kernel_shape=kernel)

    def model(self, nodes: int) -> tuple[onnx.ModelProto, tuple[np.ndarray, ...]]:
        shape = tuple(int(n) for n in self.rng.choice([1, 2, 3, 4, 5, 7, 8, 16], int(self.rng.integers(1, 5))))
        self.values.append((self.input(shape), shape))
        while len(self.nodes) < nodes:
            self.grow()
        infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in self.inputs]
        # What is shown on the way is in memory, beside what later nodes make of it.
        shown = [name for name, _ in self.values[1:-1] if self.rng.random() < 0.4] + [self.values[-1][0]]
        outputs = [helper.make_empty_tensor_value_info(name) for name in shown]
        for info in outputs:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "random", infos, outputs, self.constants)
        return (helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
                tuple(v for _, v in self.inputs))


def graphs(count: int, seed: int) -> Iterator[BaseModel]:
    for k in range(count):
        model, inputs = RandomGraph(seed * 1_000_003 + k).model(3 + k % 6)
        yield BaseModel(f"graph {seed}/{k}", model, inputs)


def nodes() -> Iterator[BaseModel]:
    yield from all_models()
