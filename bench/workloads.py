"""What is measured: a zoo model, or a form of one that is made here, at its own shapes or at others.

    resnet50                                     a zoo model
    efficientnet_b0+qdq                          weights and activations in 8 bits (onnxruntime.quantization, QDQ)
    gpt2_decode+w8                               weights alone in 8 bits, one scale per column (DequantizeLinear)
    gpt2_decode@past_len=512,total_len=513       dynamic axes at other sizes
    path/model.onnx@batch=8                      any file, with random inputs; dynamic axes are 1 where no size is given

Forms are made by make_form.py in the peers' Python, once, below the cache of this project.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "tests" / "zoo"))

import cases  # noqa: E402
import reference  # noqa: E402
import zoo  # noqa: E402

PRECISION = {"qdq": "int8", "w8": "int8"}


@dataclass(frozen=True)
class Workload:
    """One model file with one set of inputs."""

    name: str
    model: str
    form: str
    axes: tuple[tuple[str, int], ...]

    @property
    def precision(self) -> str:
        """The precision of the file itself: f32, fp16, int8 or int4."""
        return PRECISION[self.form] if self.form else zoo.index()[self.model]["precision"]

    def path(self) -> Path:
        """The model file; made when it is not there."""
        original = zoo.folder(self.model) / "model.onnx"
        return _made(original, self.form) if self.form else original

    def files(self) -> list[Path]:
        """The model file, and those with its weights."""
        return list(self.path().parent.iterdir())

    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays to run with."""
        if not self.axes:
            return cases.cases(self.model)[0].inputs()
        return zoo.materialize.make_inputs(self.spec(), self.name + ":")

    def spec(self) -> dict[str, Any]:
        """What the zoo says of the model, with the inputs' shapes of this workload."""
        return _sized(zoo.spec(self.model), self.axes)

    def references(self) -> dict[str, list[reference.Reference]]:
        """What ONNX Runtime gave when the zoo was recorded; empty for forms and other shapes."""
        return {} if self.form or self.axes else reference.stored(cases.cases(self.model)[0])


@dataclass(frozen=True)
class FileWorkload:
    """An ONNX file of the user's, with random inputs."""

    name: str
    file: Path
    axes: tuple[tuple[str, int], ...]

    @property
    def precision(self) -> str:
        """That of the file itself: f32, fp16 or int8."""
        return _described(self.file)["precision"]

    def path(self) -> Path:
        """The model file."""
        return self.file

    def files(self) -> list[Path]:
        """The model file, and those with its weights."""
        return [self.file, *(self.file.parent / place for place in _described(self.file)["data"])]

    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays to run with."""
        return zoo.materialize.make_inputs(self.spec())

    def spec(self) -> dict[str, Any]:
        """The inputs with their shapes."""
        return _sized(_described(self.file), self.axes)

    def references(self) -> dict[str, list[reference.Reference]]:
        """None: ONNX Runtime without its optimisations is asked."""
        return {}


def parse(name: str) -> Workload | FileWorkload:
    """A workload by its name; ValueError says what is wrong with it."""
    file, _, sizes = name.partition("@")
    axes = [part.partition("=") for part in sizes.split(",") if part]
    if file.endswith(".onnx"):
        _check_axes(name, file, axes, _described(Path(file)))
        return FileWorkload(name, Path(file), tuple((axis, int(size)) for axis, _, size in axes))
    model, _, form = file.partition("+")
    if model not in zoo.index():
        raise ValueError(f"{name}: there is no zoo model {model!r}")
    if form and form not in PRECISION:
        raise ValueError(f"{name}: there is no form {form!r}; forms are {', '.join(PRECISION)}")
    _check_axes(name, model, axes, zoo.spec(model))
    return Workload(name, model, form, tuple((axis, int(size)) for axis, _, size in axes))


def _check_axes(name: str, model: str, axes: list[tuple[str, str, str]], spec: dict[str, Any]) -> None:
    known = {axis for value in spec["inputs"] for axis in value["dynamic"].values()}
    for axis, _, size in axes:
        if axis not in known or not size.isdigit():
            raise ValueError(f"{name}: {axis}={size} is no size of an axis of {model} ({', '.join(sorted(known))})")


def _sized(spec: dict[str, Any], axes: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    sizes = dict(axes)
    spec = copy.deepcopy(spec)
    for value in spec["inputs"]:
        for place, axis in value["dynamic"].items():
            value["shape"][int(place)] = sizes.get(axis, value["shape"][int(place)])
    return spec


@cache
def _described(file: Path) -> dict[str, Any]:
    """What describe_model.py says: in a process of its own, for an engine's process is measured with all that it loads."""
    command = [sys.executable, str(BENCH / "describe_model.py"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{file}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _made(original: Path, form: str) -> Path:
    maker = BENCH / "make_form.py"
    key = hashlib.sha256(maker.read_bytes() + str(original).encode()).hexdigest()[:16]
    target = zoo.cache_root() / "forms" / key / form / "model.onnx"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            from engine_process import peers_python

            command = [peers_python("ort"), str(maker), form, str(original), str(target)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return target
