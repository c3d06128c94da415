"""What there is to test: every version of every operator's schema, once for each type that it allows."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

import onnx
from onnx.defs import OpSchema

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")


@dataclass(frozen=True)
class Target:
    """One schema and one type for each of its type parameters."""

    schema: OpSchema
    types: tuple[tuple[str, str], ...]  # ("T", "tensor(float)")

    @property
    def operator(self) -> str:
        """As "Add" or "ai.onnx.ml.Scaler"."""
        return ".".join(filter(None, (self.schema.domain, self.schema.name)))

    @property
    def name(self) -> str:
        """As "Cast-13/T1=float,T2=int8"; what has one type only is left out."""
        single = {c.type_param_str for c in self.schema.type_constraints if len(c.allowed_type_strs) == 1}
        types = ",".join(f"{key}={plain(kind)}" for key, kind in self.types if key not in single)
        return f"{self.operator}-{self.schema.since_version}/{types or '-'}"


def plain(kind: str) -> str:
    """ "float" for "tensor(float)", "seq.float" for "seq(tensor(float))"."""
    return kind.replace("tensor(", "").replace("(", ".").replace(")", "").replace(", ", ".")


def seed_of(text: str) -> int:
    """A number that depends on the text alone, whatever Python's hash seed is."""
    return zlib.crc32(text.encode())


def _tied(types: dict[str, str]) -> dict[str, str]:
    """Types that the specification ties together where the schema does not: S is a sequence of T, O an optional of V."""
    fixed = dict(types)
    if "S" in fixed and "T" in fixed and fixed["S"].startswith("seq("):
        fixed["S"] = f"seq({fixed['T']})"
    if "O" in fixed and "V" in fixed:
        if fixed["O"].startswith("optional("):
            fixed["O"] = f"optional({fixed['V']})"
        else:  # OptionalGetElement also takes what is no optional
            fixed["V"] = fixed["O"]
    return fixed


def bindings(schema: OpSchema) -> list[tuple[tuple[str, str], ...]]:
    """Types for the parameters, so that each type of each parameter occurs; which occur together is by chance."""
    rng = random.Random(seed_of(f"{schema.domain}.{schema.name}"))
    columns = []
    for constraint in schema.type_constraints:
        kinds = sorted(constraint.allowed_type_strs)
        rng.shuffle(kinds)
        columns.append((constraint.type_param_str, kinds))
    count = max((len(kinds) for _, kinds in columns), default=1)
    rows = [_tied({key: kinds[i % len(kinds)] for key, kinds in columns}) for i in range(count)]
    return list(dict.fromkeys(tuple(row.items()) for row in rows))


def all_targets() -> list[Target]:
    """Everything that is not deprecated, sorted by name."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in DOMAINS and not s.deprecated]
    found = [Target(schema, types) for schema in schemas for types in bindings(schema)]
    return sorted(found, key=lambda target: target.name)
