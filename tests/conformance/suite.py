"""The official ONNX backend suite as a table of single tests, for the backend module that is asked for.

Every CPU test of the installed `onnx` is in the table; a test that the backend skips counts as failed. Beyond what
the suite compares by itself (number, shape, type and values of outputs, within each case's own tolerance), a test
fails that compared nothing, and sequences must have the expected length.
"""

from __future__ import annotations

import importlib
import time
import unittest
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.runner import Runner

KINDS = {
    "NodeModel": "node",
    "SimpleModel": "simple",
    "RealModel": "real",
    "PyTorchConvertedModel": "pytorch-converted",
    "PyTorchOperatorModel": "pytorch-operator",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one test. `status` is pass, fail, crash or timeout."""

    test: str
    status: str
    error: str = ""
    message: str = ""
    seconds: float = 0.0
    unstable: str = ""  # how an earlier try in a process shared with other tests ended

    @property
    def kind(self) -> str:
        return self.test.split("/")[0]


class _ConstantInputs:
    """A prepared model whose tensor inputs become initializers before it is compiled."""

    def __init__(self, module: ModuleType, model: onnx.ModelProto, device: str, options: dict[str, Any]) -> None:
        self._arguments = (module, model, device, options)

    def run(self, inputs: Sequence[Any]) -> Any:
        """Compiles for these inputs and runs."""
        module, original, device, options = self._arguments
        model = onnx.ModelProto()
        model.CopyFrom(original)
        model.ir_version = max(model.ir_version, 4)  # since when initializers need not be inputs
        kept, values = [], []
        constant = {tensor.name for tensor in original.graph.initializer}
        wanted = [info for info in original.graph.input if info.name not in constant]
        for info, value in zip(wanted, inputs, strict=True):
            if info.type.HasField("tensor_type") and isinstance(value, np.ndarray):
                model.graph.initializer.append(onnx.numpy_helper.from_array(value, info.name))
            else:
                kept.append(info)
                values.append(value)
        del model.graph.input[:]
        model.graph.input.extend(kept)
        return module.prepare(model, device, **options).run(values)


class _LateBackend:
    """The backend as the suite sees it; its module is imported when the first test runs."""

    def __init__(self, module_name: str, options: dict[str, Any], device: str) -> None:
        self.module_name = module_name
        self.options = options
        self.device = device  # where the CPU's tests run

    def supports_device(self, device: str) -> bool:
        return device == "CPU"

    def module(self) -> ModuleType:
        """The real module (tensorbox.backend, onnxruntime.backend, ...)."""
        return importlib.import_module(self.module_name)

    def is_compatible(self, model: Any) -> bool:
        ask = getattr(self.module(), "is_compatible", None)
        return True if ask is None else ask(model)

    def prepare(self, model: Any, device: str, **arguments: Any) -> Any:
        options = {**self.options, **arguments}
        if options.pop("inputs_as_constants", False):
            return _ConstantInputs(self.module(), model, self.device, options)
        return self.module().prepare(model, self.device, **options)


class _CountingRunner(Runner):
    """The suite's runner, which also counts comparisons and checks the length of sequences."""

    compared = 0

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Sequence[Any], outputs: Sequence[Any], *arguments: Any, **named: Any
    ) -> None:
        np.testing.assert_equal(len(outputs), len(ref_outputs), "number of outputs or sequence elements")
        for output, expected in zip(outputs, ref_outputs, strict=True):
            if isinstance(expected, (list, tuple)):
                assert isinstance(output, (list, tuple)), f"{type(output).__name__} instead of a sequence"
                np.testing.assert_equal(len(output), len(expected), "length of a sequence")
        super().assert_similar_outputs(ref_outputs, outputs, *arguments, **named)
        cls.compared += len(ref_outputs)


class Suite:
    """All CPU tests of the suite, by name such as `node/test_abs_cpu`."""

    def __init__(self, backend: str, options: dict[str, Any] | None = None, device: str = "CPU") -> None:
        self.backend = _LateBackend(backend, options or {}, device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the suite computes overflows and divisions by zero on purpose
            runner = _CountingRunner(self.backend)
        self._tests: dict[str, Callable[[Any], None]] = {
            f"{KINDS[category]}/{name}": item.func
            for category, items in runner._test_items.items()
            for name, item in items.items()
            if name.endswith("_cpu")
        }

    def names(self) -> list[str]:
        """All test names, sorted; the slow real models first."""
        return sorted(self._tests, key=lambda name: (not name.startswith("real/"), name))

    def run(self, name: str) -> Outcome:
        """Run one test in this process."""
        _CountingRunner.compared = 0
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._tests[name](None)
            if _CountingRunner.compared == 0:
                raise unittest.SkipTest("no output was compared")
        except (Exception, unittest.SkipTest) as error:  # whatever a backend raises is that test's failure
            seconds = time.perf_counter() - begin
            return Outcome(name, "fail", type(error).__name__, str(error).strip(), seconds)
        return Outcome(name, "pass", seconds=time.perf_counter() - begin)
