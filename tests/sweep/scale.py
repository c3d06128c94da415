"""The size that errors of a value count against.

Rounding errs relative to what is rounded, and what is subtracted may be larger than the difference: so an output's errors
count against the largest value among those that it is computed from. Where an operator makes an error smaller or larger
together with the value, it does so with the size as well: sums of integers are large, and are as exact as their multiples
by a scale. Squashing functions make an error smaller where their argument is large, and keep it where that is small,
however large the terms were that gave it: their outputs have a size for each value."""
from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

# They multiply floats, whose operands precision="bf16" may round. Products of integers are exact.
FLOAT_PRODUCTS = {"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "Attention", "MultiHeadAttention", "GroupQueryAttention",
                  "RNN", "LSTM", "GRU", "MatMulNBits"}
# No steeper than 1 / (1 + |x|), but for a factor below 2.
SQUASHES = {"Sigmoid", "Tanh", "HardSigmoid", "Softsign", "Erf"}


class Size(NamedTuple):
    """What errors of a tensor count against."""
    each: Any  # of each value: a number for all, or an array
    mean: float  # of the tensor as a whole

    @property
    def most(self) -> float:
        return float(np.max(self.each, initial=0.0))


def largest(value: Any) -> float:
    """The largest finite float of a tensor; 0 of anything else."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "iubO" or value.size == 0:
        return 0.0
    a = value.astype(np.float64)
    a = a[np.isfinite(a) & (a > -5000)]  # what a mask takes out has no part in the result
    return float(np.abs(a).max(initial=0))


def scales(graph: onnx.GraphProto, values: Mapping[str, Any]) -> dict[str, Size]:
    """Of every value; `values` has the inputs and what the nodes give."""
    own = {i.name: largest(numpy_helper.to_array(i)) for i in graph.initializer} | {k: largest(v) for k, v in values.items()}
    found = {name: Size(size, size) for name, size in own.items()}

    def steep(name: str) -> tuple[float, float]:
        """By how much the size is above the largest value."""
        size = found[name]
        return (size.most / own[name], size.mean / own[name]) if own.get(name) else (1.0, 1.0)

    for node in graph.node:
        given = [i for i in node.input if i in found]
        for out in node.output:
            size = own.get(out, 0.0)
            if node.op_type in ("Mul", "Div"):
                factors = [steep(i) for i in given] or [(1.0, 1.0)]
                found[out] = Size(size * max(f[0] for f in factors), size * max(f[1] for f in factors))
            elif node.op_type in SQUASHES:
                each = 1 + found[node.input[0]].each / (1 + np.abs(np.asarray(values.get(node.input[0], 0), np.float64)))
                found[out] = Size(each, max([1.0, *(steep(i)[1] for i in given)]))
            elif node.op_type == "Softmax":  # an error of the scores is a relative one of the shares
                found[out] = Size(size * max(1.0, found[node.input[0]].most), size * max(1.0, found[node.input[0]].mean))
            else:
                found[out] = Size(max([size, *(found[i].most for i in given)]), max([size, *(found[i].mean for i in given)]))
    return {name: size if size.most else Size(1.0, 1.0) for name, size in found.items()}


def multiplies_floats(graph: onnx.GraphProto) -> bool:
    return any(n.op_type in FLOAT_PRODUCTS for n in graph.node)


def may_multiply_one_row(model: onnx.ModelProto, dynamic: bool) -> bool:
    """Whether a MatMul or Gemm has a left-hand side of one row, or of a number that its shape does not tell."""
    products = [node for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    if dynamic or not products:
        return bool(products)
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*graph.input, *graph.value_info]}
    return any(node.input[0] not in shapes or set(shapes[node.input[0]][:-1]) <= {1} or 0 in shapes[node.input[0]] for node in products)
