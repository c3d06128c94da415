"""Kinds of models: name -> (how often it is drawn, builder function). A function builds one model or raises TooLarge."""
from __future__ import annotations

from typing import Callable

from ..builder import Builder
from . import attention, convolutions, moving, networks, products, quantised, recurrent, rows

FAMILIES: dict[str, tuple[int, Callable[[Builder], None]]] = {
    "conv": (20, convolutions.conv),
    "conv_transpose": (10, convolutions.conv_transpose),
    "pool": (5, convolutions.pool),
    "matmul": (14, products.matmul),
    "gemm": (8, products.gemm),
    "einsum": (4, products.einsum),
    "attention": (6, attention.scaled_product),
    "attention_op": (4, attention.operator),
    "mha": (4, attention.multi_head),
    "gqa": (3, attention.group_query),
    "rnn": (6, recurrent.layer),
    "norm": (7, rows.normalisation),
    "reduce": (6, rows.reduction),
    "softmax": (3, rows.softmax),
    "top_k": (3, rows.top_k),
    "resize": (4, moving.resize),
    "gather": (6, moving.gather),
    "scatter": (4, moving.scatter),
    "shape": (5, moving.views),
    "qlinear": (7, quantised.qlinear),
    "integer": (5, quantised.integer),
    "qdq": (6, quantised.qdq),
    "packed": (4, quantised.packed),
    "dynamic_quantised": (4, quantised.dynamic),
    "network": (8, networks.network),
    "pointwise": (5, networks.pointwise),
    # By name only (--family): numbers of older sweeps stay what they were.
    "conv_tiles": (0, convolutions.tiles),
    "conv_padded": (0, convolutions.padded),
    "conv_pieces": (0, convolutions.pieces),
    "conv_transpose_padded": (0, convolutions.transpose_padded),
    "long_rows": (0, rows.long_rows),
    "weights_alone": (0, quantised.weights_alone),
}
# Which element types a family is drawn in, and how often.
FLOATS = {"f32": 12, "f16": 4, "bf16": 2, "f64": 2}
EIGHT_BITS = {"u8": 2, "i8": 1}
DTYPES = {name: FLOATS for name in FAMILIES} | {
    "qlinear": EIGHT_BITS, "integer": EIGHT_BITS, "qdq": {"f32": 1},
    "packed": {"f32": 4, "f16": 1}, "dynamic_quantised": {"f32": 1}, "mha": {"f32": 4, "f16": 1}, "gqa": {"f32": 4, "f16": 1},
    "conv_tiles": {"f32": 1}, "weights_alone": {"f32": 4, "f16": 1},
    "top_k": {"f32": 4, "f16": 1, "f64": 1}, "einsum": {"f32": 4, "f16": 1, "f64": 1}}
