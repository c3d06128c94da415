#!/usr/bin/env python3
"""The model zoo on disk: names, facts and folders of full models, made on demand.

    python3 tests/zoo/zoo.py NAME [NAME ...]        prints the folder of each model, making it first if need be

The light forms lie in models/zoo; the full ones in ${XDG_CACHE_HOME:-~/.cache}/tensorbox/zoo/<hash>/NAME, where
<hash> covers everything the folder is made from. Many processes may ask for the same model at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

REPO_ROOT = Path(__file__).resolve().parents[2]
LIGHT_ROOT = REPO_ROOT / "models" / "zoo"
sys.path.insert(0, str(LIGHT_ROOT))

import materialize  # noqa: E402


@cache
def index() -> dict[str, dict[str, str]]:
    """models/zoo/index.json: precision, group and checksum of every model, in the order of reports."""
    return json.loads((LIGHT_ROOT / "index.json").read_text())


def names(group: str | None = None) -> list[str]:
    """Names of all models, or those of one group ("fp32" is the list held to f32 tolerance and speed)."""
    return [name for name, entry in index().items() if group in (None, entry["group"])]


@cache
def spec(name: str) -> dict[str, Any]:
    """The model's spec.json: inputs, outputs, opset, exporter."""
    return json.loads((LIGHT_ROOT / name / "spec.json").read_text())


@cache
def expected_facts(name: str) -> dict[str, dict[str, Any]]:
    """Per output: shape, dtype and statistics of ONNX Runtime's unoptimised run."""
    return json.loads((LIGHT_ROOT / name / "expected.json").read_text())["outputs"]


def expected_values(name: str) -> dict[str, np.ndarray]:
    """Per output: its values, or the first 4,096 of them where the output is large."""
    with np.load(LIGHT_ROOT / name / "expected.npz") as file:
        return dict(file)


def cache_root() -> Path:
    """The folder below which all caches of this project lie."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tensorbox"


def folder(name: str) -> Path:
    """The full model's folder (model.onnx, weights.bin, inputs.npz, ...); made if it is not there."""
    if name not in index():
        raise KeyError(f"no zoo model {name!r}; there are: {' '.join(names())}")
    target = cache_root() / "zoo" / _content_hash(name) / name
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.parent / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, the others wait
            if not target.is_dir():
                _make(name, target)
    return target


def _content_hash(name: str) -> str:
    digest = hashlib.sha256(Path(materialize.__file__).read_bytes())
    for path in sorted((LIGHT_ROOT / name).iterdir()):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _make(name: str, target: Path) -> None:
    unfinished = target.with_name(f"{name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    materialize.materialize(LIGHT_ROOT / name, unfinished)
    weights = unfinished / "weights.bin"
    want = index()[name].get("weights_sha256")
    if want is not None:
        with open(weights, "rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != want:
            raise ValueError(f"{weights}: SHA-256 is {got}, index.json says {want}")
    unfinished.rename(target)


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    for model_name in sys.argv[1:]:
        print(folder(model_name))
