"""Normalisations and losses."""

from __future__ import annotations

import math

import numpy as np

import kinds
from builder import Builder
from recipes import recipe


@recipe("BatchNormalization")
def batch_normalization(b: Builder) -> None:
    shape = b.shape(2, 4, empty=0)
    size = (shape[1],)
    b.give(b.array(shape))
    for low in (0.2, -1, -1):
        b.give(b.array(size, low, 1))
    b.give(b.array(size, 0.2, 2))
    b.set(is_test=1, consumed_inputs=[0, 0, 0, 1, 1] if b.version == 1 else None)
    b.maybe(epsilon=b.real(1e-3, 1e-1), momentum=b.real(0.5, 0.95))
    if b.has("training_mode") and b.chance():
        b.set(training_mode=1)
        b.out(), b.out(), b.out()
    else:
        b.out()
    b.terms = 8 + 4 * math.prod(shape)
    if len(set(b.types.values())) > 1:  # statistics may be computed in either type
        b.roundoff = 2.0**-24
    if b.version < 9:
        values = [b.values[name] for name in b.inputs]
        b.refer_to(15, values, epsilon=b.attributes.get("epsilon", 1e-5))


@recipe("InstanceNormalization")
def instance_normalization(b: Builder) -> None:
    shape = b.shape(3, 4, empty=0)
    b.give(b.array(shape))
    b.give(b.array((shape[1],)))
    b.give(b.array((shape[1],)))
    b.maybe(epsilon=b.real(1e-3, 1e-1))
    b.terms = 8 + 4 * math.prod(shape)
    if b.version < 6:
        b.refer_to(6, [b.values[name] for name in b.inputs], epsilon=b.attributes.get("epsilon", 1e-5))


@recipe("GroupNormalization")
def group_normalization(b: Builder) -> None:
    groups, each = b.integer(1, 3), b.integer(1, 3)
    shape = (b.integer(1, 2), groups * each, b.integer(1, 4), b.integer(1, 4))[: b.integer(3, 4)]
    size = (groups if b.version < 21 else groups * each,)
    b.give(b.array(shape))
    b.give(b.array(size))
    b.give(b.array(size))
    b.set(num_groups=groups)
    b.roundoff = 2.0**-24 if b.has("stash_type") else 0.0  # its statistics are floats
    b.maybe(epsilon=b.real(1e-3, 1e-1))
    b.terms = 8 + 4 * math.prod(shape)


@recipe("LayerNormalization", "RMSNormalization")
def layer_normalization(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    axis = b.integer(0, len(shape) - 1)
    b.give(b.array(shape))
    b.give(b.array(shape[axis:]))
    if b.schema.name == "LayerNormalization":
        b.give(b.array(shape[axis:])) if b.chance() else b.skip()
        b.types["U"] = "tensor(float)"
    b.set(axis=b.pick(axis, axis - len(shape)), stash_type=1)
    b.maybe(epsilon=b.real(1e-3, 1e-1))
    b.terms = 8 + 4 * math.prod(shape)
    b.roundoff = kinds.ROUNDOFF[b.element("T")] if b.types.get("V", b.types["T"]) != b.types["T"] else 0.0  # scaled in T


@recipe("LpNormalization")
def lp_normalization(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    b.give(b.array(shape, 0.5, 3))
    b.maybe(axis=b.axis(len(shape)) % len(shape), p=b.integer(1, 2))
    b.terms = 8 + math.prod(shape)


@recipe("MeanVarianceNormalization")
def mean_variance_normalization(b: Builder) -> None:
    shape = b.shape(4, 4, empty=0)
    b.give(b.array(shape))
    b.maybe(axes=b.axes(4, 1))
    b.terms = 8 + 8 * math.prod(shape)


@recipe("LRN")
def lrn(b: Builder) -> None:
    b.give(b.array(b.shape(4, 4, empty=0)))
    b.set(size=b.pick(1, 3, 5))
    b.maybe(alpha=b.real(0.01, 0.5), beta=b.real(0.3, 1.0), bias=b.real(0.5, 2))
    b.terms = 16


def labels(b: Builder, shape: tuple[int, ...]) -> np.ndarray:
    classes = shape[1]
    target = b.rng.integers(0, classes, shape[:1] + shape[2:])
    if b.chance(0.4):
        b.set(ignore_index=b.integer(0, classes - 1))
    return target


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(b: Builder) -> None:
    shape = b.shape(2, 4, 4, empty=0)
    target = labels(b, shape)
    if (target == b.attributes.get("ignore_index", -1)).all():  # a mean of nothing
        b.attributes.pop("ignore_index", None)
    b.give(b.array(shape))
    b.give(target)
    b.give(b.array((shape[1],), 0.3, 1)) if b.chance() else b.skip()
    b.maybe(reduction=b.pick("none", "sum", "mean"))
    b.terms = 16 + math.prod(shape)
