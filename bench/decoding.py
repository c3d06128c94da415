"""Decoding as a program does it: each step takes one token and the caches that the step before left.

Every engine keeps the caches in its best form: tensorbox with the option `state`, OpenVINO as variables of a stateful
model (MakeStateful), ONNX Runtime as OrtValues, of which those that a run made are bound as inputs of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import engines
import numpy as np
import workloads

STEPS = 16  # tokens that are decoded before the caches are what they were at first
GIVEN, LEFT = "past_key_values.", "present."
Arrays = dict[str, np.ndarray]


class Decoder(Protocol):
    """One engine with one model; `longest` is what the caches may grow to."""

    def __init__(self, path: Path, options: engines.LoadOptions, caches: Arrays, longest: int) -> None: ...

    def reset(self) -> None:
        """The caches are those of the beginning."""

    def step(self, feeds: Arrays) -> Arrays:
        """Outputs without caches."""


class Tensorbox:
    """The session keeps the caches."""

    def __init__(self, path: Path, options: engines.LoadOptions, caches: Arrays, longest: int) -> None:
        self._caches = caches
        tensorbox = engines.import_tensorbox()
        state = {f"{GIVEN}*": f"{LEFT}*"}
        self._session = tensorbox.Session(str(path), threads=options.threads, state=state, state_capacity=longest)

    def reset(self) -> None:
        self._session.set_state(self._caches)

    def step(self, feeds: Arrays) -> Arrays:
        return self._session.run(feeds)


class Ort:
    """What a run leaves is bound to the next, without a copy between them."""

    def __init__(self, path: Path, options: engines.LoadOptions, caches: Arrays, longest: int) -> None:
        self._ort, self._session = engines.ort_session(path, options)
        self._caches = caches
        self._outputs = [value.name for value in self._session.get_outputs()]
        self._binding = self._session.io_binding()
        self._now: dict[str, Any] = {}

    def reset(self) -> None:
        self._now = {name: self._ort.OrtValue.ortvalue_from_numpy(array) for name, array in self._caches.items()}

    def step(self, feeds: Arrays) -> Arrays:
        for name, array in feeds.items():
            self._binding.bind_cpu_input(name, array)
        for name, value in self._now.items():
            self._binding.bind_ortvalue_input(name, value)
        for name in self._outputs:
            self._binding.bind_output(name)  # memory of its own in every run
        self._session.run_with_iobinding(self._binding)
        left = dict(zip(self._outputs, self._binding.get_outputs(), strict=True))
        self._now = {name: left.pop(name.replace(GIVEN, LEFT)) for name in self._now}
        return {name: value.numpy() for name, value in left.items()}


class OpenVino:
    """A stateful model, the form in which optimum-intel gives decoders to OpenVINO."""

    def __init__(self, path: Path, options: engines.LoadOptions, caches: Arrays, longest: int) -> None:
        import openvino
        from openvino.passes import MakeStateful, Manager

        core = openvino.Core()
        model = core.read_model(str(path))
        manager = Manager()
        manager.register_pass(MakeStateful({name: name.replace(GIVEN, LEFT) for name in caches}))
        manager.run_passes(model)
        settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self._request = core.compile_model(model, "CPU", settings).create_infer_request()
        self._caches = {name: openvino.Tensor(array) for name, array in caches.items()}

    def reset(self) -> None:
        for state in self._request.query_state():  # its name begins with the input's
            state.state = next(tensor for name, tensor in self._caches.items() if state.name.startswith(name))

    def step(self, feeds: Arrays) -> Arrays:
        results = self._request.infer(feeds, share_inputs=True, share_outputs=True)
        return {name: array for port, array in results.items() for name in port.get_names()}


DECODERS: dict[str, Callable[[Path, engines.LoadOptions, Arrays, int], Decoder]] = {
    "tensorbox": Tensorbox,
    "ort": Ort,
    "openvino": OpenVino,
}


class Decoding:
    """Steps on the caches of a workload, which grow by STEPS tokens and then begin again."""

    def __init__(self, engine: str, workload: workloads.Workload, options: engines.LoadOptions) -> None:
        inputs = workload.inputs()
        caches = {name: array for name, array in inputs.items() if name.startswith(GIVEN)}
        if engine not in DECODERS or not caches:
            raise ValueError(f"{engine} on {workload.name}: nobody decodes with caches there")
        self.feeds = growing_feeds(workload.spec(), {name: a for name, a in inputs.items() if name not in caches})
        longest = max(max(array.shape) for feeds in self.feeds for array in feeds.values()) + STEPS
        self._decoder = DECODERS[engine](workload.path(), options, caches, longest)
        self._done = STEPS

    def prepare(self) -> None:
        """What is no part of a step: caches are set back, and a first step finds them in its memory."""
        if self._done == STEPS:
            self._decoder.reset()
            self._decoder.step(self.feeds[0])
            self._done = 1

    def step(self) -> Arrays:
        """One token more."""
        self._done += 1
        return self._decoder.step(self.feeds[self._done - 1])

    def outputs(self) -> Arrays:
        """Of the third step from the beginning, which needs what two have left."""
        self._decoder.reset()
        for feeds in self.feeds[:3]:
            found = self._decoder.step(feeds)
        self._done = STEPS
        return {name: np.array(array) for name, array in found.items()}


def growing_feeds(spec: dict[str, Any], inputs: Arrays) -> list[Arrays]:
    """Inputs of each step beside the caches: another token, a mask that is one longer. Positions stay, since a model may
    have fewer of them than its cache is long here."""
    tokens = np.random.default_rng(0)
    steps: list[Arrays] = [{} for _ in range(STEPS)]
    for value in spec["inputs"]:
        if value["name"] not in inputs:
            continue
        array, rule = inputs[value["name"]], value["rule"]
        for number, feeds in enumerate(steps):
            if rule["rule"] == "randint":
                feeds[value["name"]] = tokens.integers(rule["lo"], rule["hi"], array.shape, array.dtype)
            else:
                longer = [(0, number if str(place) in value["dynamic"] else 0) for place in range(array.ndim)]
                feeds[value["name"]] = np.pad(array, longer, mode="edge")
    return steps
