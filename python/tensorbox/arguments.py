"""Checks of arguments, with the name of the argument in the message."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any


def integer(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {value!r}") from None


def names(option: str, given: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(given, (str, bytes, os.PathLike)):
        raise TypeError(f"{option} is a list, not one name: [{given!r}]")
    return [os.fsdecode(name) for name in given]


def sizes(option: str, given: Mapping[str, int] | None) -> dict[str, int]:
    """Of dimension symbols."""
    return {name: integer(f"{option}[{name!r}]", size) for name, size in (given or {}).items()}


def set_integers(options: Any, **values: Any) -> None:
    """Sets the fields of these names."""
    for name, value in values.items():
        setattr(options, name, integer(name, value))
