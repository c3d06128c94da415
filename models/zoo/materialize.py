#!/usr/bin/env python3
"""Make a zoo model's weights and inputs again, bit for bit, from its light form (needs numpy only).

    python3 models/zoo/materialize.py NAME [NAME ...] --out DIR [--inline]

A light form is a folder with `model.onnx` (initialisers over 1 KiB are external data in `weights.bin`,
which is not stored), `spec.json` (the rule of every weight and input) and, for look-up tables that no rule
makes, `keep.npz`. DIR/NAME/ receives model.onnx, weights.bin, spec.json, inputs.npz and the expected outputs.

All numbers come from integers: splitmix64, seeded with the CRC-32 of the tensor's name, so any language gives
the same bits. A "normal" value is (sum of the four 16-bit parts of one draw - 131070) / 37837.22.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

LIGHT_ROOT = Path(__file__).resolve().parent
COPIED_FILES = ("model.onnx", "spec.json", "expected.npz", "expected.json")

_GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MASK64 = (1 << 64) - 1
_CHUNK = 1 << 20


def _mix(state: np.ndarray) -> np.ndarray:
    """The output function of splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _seed(name: str) -> int:
    start = (zlib.crc32(name.encode()) * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) & _MASK64
    with np.errstate(over="ignore"):
        return int(_mix(np.array([start], np.uint64))[0])


def draw_chunks(name: str, count: int) -> Iterator[tuple[slice, np.ndarray]]:
    """`count` 64-bit draws of the stream `name`, as (place, draws) pairs of at most one chunk."""
    seed = np.uint64(_seed(name))
    with np.errstate(over="ignore"):
        for begin in range(0, count, _CHUNK):
            end = min(count, begin + _CHUNK)
            step = np.arange(begin + 1, end + 1, dtype=np.uint64)
            yield slice(begin, end), _mix(seed + step * np.uint64(_GOLDEN_GAMMA))


def _normal(draws: np.ndarray) -> np.ndarray:
    low16 = np.uint64(0xFFFF)
    total = (draws & low16) + ((draws >> np.uint64(16)) & low16)
    total += ((draws >> np.uint64(32)) & low16) + (draws >> np.uint64(48))
    return (total.astype(np.float32) - np.float32(131070.0)) * np.float32(1.0 / 37837.22)


def _uniform(draws: np.ndarray, rule: dict[str, Any]) -> np.ndarray:
    low, high = np.float32(rule["lo"]), np.float32(rule["hi"])
    return (draws >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) * (high - low) + low


def _values_of_draws(draws: np.ndarray, rule: dict[str, Any]) -> np.ndarray:
    """The values that one chunk of draws stands for under a random rule."""
    kind = rule["rule"]
    if kind == "normal":
        return _normal(draws) * np.float32(rule.get("std", 1.0)) + np.float32(rule.get("mean", 0.0))
    if kind == "uniform":
        return _uniform(draws, rule)
    if kind == "usign":  # uniform magnitude, random sign
        magnitude = _uniform(draws, rule)
        return np.where(draws & np.uint64(1), magnitude, -magnitude)
    if kind == "randint":
        low, high = int(rule["lo"]), int(rule["hi"])
        return ((draws >> np.uint64(33)) % np.uint64(high - low)).astype(np.int64) + low
    if kind == "qnormal":  # rounded normal, clamped to an integer range
        mean, std = float(np.float32(rule["mean"])), float(np.float32(rule["std"]))
        rounded = np.rint(_normal(draws).astype(np.float64) * std + mean)
        return np.clip(rounded, rule["lo"], rule["hi"])
    if kind == "nib4":  # two rounded normals in the two halves of one byte
        mean, std = float(rule["mean"]), float(rule["std"])
        low = np.clip(np.rint(_normal(draws) * std + mean), 0, 15).astype(np.uint8)
        second = _mix(draws + np.uint64(_GOLDEN_GAMMA))
        high = np.clip(np.rint(_normal(second) * std + mean), 0, 15).astype(np.uint8)
        return low | (high << 4)
    raise ValueError(f"unknown rule {kind!r}")


def generate(name: str, shape: list[int], dtype: str, rule: dict[str, Any]) -> np.ndarray:
    """The array that `rule` makes for the tensor `name`."""
    count = int(np.prod(shape, dtype=np.int64))
    out = np.empty(count, np.dtype(dtype))
    kind = rule["rule"]
    if kind == "fill":
        out[:] = rule["value"]
    elif kind == "arange":
        out[:] = np.arange(count) % rule.get("mod", count or 1) + rule.get("start", 0)
    elif kind == "values":
        out[:] = np.array(rule["values"], out.dtype).ravel()
    else:
        for place, draws in draw_chunks(name, count):
            with np.errstate(over="ignore"):
                out[place] = _values_of_draws(draws, rule).astype(out.dtype)
    return out.reshape(shape)


def make_inputs(spec: dict[str, Any], stream: str = "") -> dict[str, np.ndarray]:
    """The model's inputs at the shapes of `spec`; another `stream` gives other values."""
    return {
        i["name"]: generate(f"input:{stream}{i['name']}", i["shape"], i["dtype"], i["rule"])
        for i in spec["inputs"]
    }


def _write_weights(light: Path, spec: dict[str, Any], path: Path) -> None:
    external = [t for t in spec["initializers"] if not t.get("inline")]
    if not external:
        return
    kept = np.load(light / "keep.npz") if any(t["rule"]["rule"] == "keep" for t in external) else {}
    with open(path, "wb") as file:
        for tensor in external:
            rule = tensor["rule"]
            if rule["rule"] == "keep":
                array = kept[rule["key"]]
            else:
                array = generate(tensor["name"], tensor["shape"], tensor["dtype"], rule)
            data = np.ascontiguousarray(array).tobytes()
            if len(data) != tensor["length"]:
                raise ValueError(f"{tensor['name']}: {len(data)} bytes, spec.json says {tensor['length']}")
            file.seek(tensor["offset"])
            file.write(data)
        file.truncate(max(t["offset"] + t["length"] for t in external))


def materialize(light: Path, target: Path, inline: bool = False) -> None:
    """Fill the folder `target` from the light form in `light`."""
    spec = json.loads((light / "spec.json").read_text())
    target.mkdir(parents=True, exist_ok=True)
    for name in COPIED_FILES:
        shutil.copyfile(light / name, target / name)
    _write_weights(light, spec, target / "weights.bin")
    np.savez(target / "inputs.npz", **make_inputs(spec))
    if inline:
        import onnx  # only for this option

        onnx.save(onnx.load(target / "model.onnx"), target / "model_inline.onnx")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", help="a folder of models/zoo")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--inline", action="store_true", help="also write model_inline.onnx (needs onnx)")
    options = parser.parse_args()
    for name in options.names:
        light = LIGHT_ROOT / name
        if not (light / "spec.json").is_file():
            parser.error(f"no zoo model {name!r}; there are: " + " ".join(known_models()))
        materialize(light, options.out / name, options.inline)
        print(options.out / name)
    return 0


def known_models() -> list[str]:
    """Names of all models that have a light form here."""
    return sorted(p.parent.name for p in LIGHT_ROOT.glob("*/spec.json"))


if __name__ == "__main__":
    sys.exit(main())
