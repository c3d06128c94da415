"""What is measured: a zoo model, or a form of one that is made here, at its own shapes or at others.

    resnet50                                     a zoo model
    efficientnet_b0+qdq                          weights and activations in 8 bits (onnxruntime.quantization, QDQ)
    gpt2_decode+w8                               weights alone in 8 bits, one scale per column (DequantizeLinear)
    gpt2_decode@past_len=512,total_len=513       dynamic axes at other sizes

Forms are made by make_form.py in the peers' Python, once, below the cache of this project.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import subprocess
import sys
from dataclasses import dataclass
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

    def inputs(self) -> dict[str, np.ndarray]:
        """The arrays to run with."""
        if not self.axes:
            return cases.cases(self.model)[0].inputs()
        return zoo.materialize.make_inputs(self.spec(), self.name + ":")

    def spec(self) -> dict[str, Any]:
        """What the zoo says of the model, with the inputs' shapes of this workload."""
        sizes = dict(self.axes)
        spec = copy.deepcopy(zoo.spec(self.model))
        for value in spec["inputs"]:
            for place, axis in value["dynamic"].items():
                value["shape"][int(place)] = sizes.get(axis, value["shape"][int(place)])
        return spec

    def references(self) -> dict[str, list[reference.Reference]]:
        """What ONNX Runtime gave when the zoo was recorded; empty for forms and other shapes."""
        return {} if self.form or self.axes else reference.stored(cases.cases(self.model)[0])


def parse(name: str) -> Workload:
    """A workload by its name; ValueError says what is wrong with it."""
    file, _, sizes = name.partition("@")
    model, _, form = file.partition("+")
    if model not in zoo.index():
        raise ValueError(f"{name}: there is no zoo model {model!r}")
    if form and form not in PRECISION:
        raise ValueError(f"{name}: there is no form {form!r}; forms are {', '.join(PRECISION)}")
    axes = [part.partition("=") for part in sizes.split(",") if part]
    known = {axis for value in zoo.spec(model)["inputs"] for axis in value["dynamic"].values()}
    for axis, _, size in axes:
        if axis not in known or not size.isdigit():
            raise ValueError(f"{name}: {axis}={size} is no size of an axis of {model} ({', '.join(sorted(known))})")
    return Workload(name, model, form, tuple((axis, int(size)) for axis, _, size in axes))


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
