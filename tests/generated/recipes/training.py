"""Optimisers."""

from __future__ import annotations

import numpy as np

from builder import Builder
from recipes import recipe

STATES = {"Adagrad": 1, "Adam": 2, "Momentum": 1}


@recipe(*(f"ai.onnx.preview.training.{name}" for name in STATES))
def optimiser(b: Builder) -> None:
    name = b.schema.name
    tensors = b.integer(1, 2)
    shapes = [b.shape(0, 3) for _ in range(tensors)]
    b.give(np.array(b.real(0.01, 0.2)))
    b.give(np.array(b.integer(0, 5)))
    for group in range(2 + STATES[name]):  # values, gradients, then what is never negative for Adagrad and Adam
        for shape in shapes:
            b.give(b.array(shape, 0.1 if group > 1 and name != "Momentum" else -2, 2))
    for _ in range(tensors * (1 + STATES[name])):
        b.out()
    b.maybe(norm_coefficient=b.real(0, 0.1), decay_factor=b.real(0, 0.1), epsilon=b.real(1e-4, 1e-2))
    b.maybe(norm_coefficient_post=b.real(0, 0.1))
    if name == "Momentum":
        b.set(mode=b.pick("standard", "nesterov"), alpha=b.real(0.5, 0.9), beta=b.real(0.5, 1), norm_coefficient=b.real(0, 0.1))
    elif name == "Adam":
        b.maybe(alpha=b.real(0.5, 0.9), beta=b.real(0.5, 0.9))
    b.roundoff = 2.0**-24 if b.types["T1"] == "tensor(float)" else 0.0
    b.terms = 64
