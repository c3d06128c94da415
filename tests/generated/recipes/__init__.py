"""What the schemas cannot say: which shapes, values and attributes are valid for an operator.

A recipe is a function that fills a `Builder`; operators without one get `plain_recipe`: inputs of shapes that
broadcast, values in [-3, 3], float attributes near their defaults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from builder import Builder, Case
from targets import Target

Recipe = Callable[[Builder], None]
TABLE: dict[str, Recipe] = {}
FILES = ("attention", "control", "creation", "image", "indexing", "learned", "movement", "normalization", "pointwise",
         "pooling", "products", "quantized", "recurrent", "reductions", "sequences", "signals", "text",
         "training")


def recipe(*operators: str) -> Callable[[Recipe], Recipe]:
    """Use the function for these operators."""

    def register(function: Recipe) -> Recipe:
        for operator in operators:
            assert operator not in TABLE, operator
            TABLE[operator] = function
        return function

    return register


def load() -> None:
    """Fill the table."""
    for name in FILES:
        importlib.import_module(f"recipes.{name}")


def make_case(target: Target, sample: int = 0) -> Case:
    """One case of a target; Skip where there is none."""
    builder = Builder(target, sample)
    TABLE.get(target.operator, TABLE["*"])(builder)
    return builder.case()
