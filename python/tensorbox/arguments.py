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
    return {name: integer(f"{option}[{name!r}]", size) for name, size in mapping(option, given).items()}


def mapping(option: str, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{option} is a mapping, not {given!r}")
    return given or {}


def set_integers(options: Any, **values: Any) -> None:
    """Sets the fields of these names."""
    set_fields(options, **{name: integer(name, value) for name, value in values.items()})


_KINDS = {bool: "True or False", int: "a number that 64 bits hold", type(None): "a number that 64 bits hold", str: "a string"}


def set_fields(options: Any, **values: Any) -> None:
    """Sets the fields of these names of a `_core.CompileOptions`. TypeError for a value of another type, with its name."""
    for name, value in values.items():
        try:
            setattr(options, name, value)
        except TypeError:  # which speaks of C++
            kind = _KINDS.get(type(getattr(options, name)), "a list or mapping of strings")
            raise TypeError(f"{name} is {kind}, not {value!r}") from None
