"""Holds tensorbox against ONNX Runtime on a model as a tool has written it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

tensorbox = pytest.importorskip("tensorbox")
onnxruntime = pytest.importorskip("onnxruntime", reason="./dev families installs the tools of these tests")


@dataclass(frozen=True)
class Tolerance:
    """A difference is allowed up to `relative` of the value plus `of_scale` of the largest finite value of the
    output, at least 1e-6. Results of integer arithmetic, where a rounding may go the other way, are held to a relative L2 distance
    instead, but for integers wider than 8 bits, which are equal."""

    relative: float = 1e-4
    of_scale: float = 1e-5
    l2: float | None = None


STRICT = Tolerance()


def ort_session(model: onnx.ModelProto, optimize: bool = True) -> Any:
    """A session of ONNX Runtime on the CPU, silent, with two threads."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.Fail,
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph,
        onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented,
    ) as error:
        pytest.skip(f"ONNX Runtime refuses the model: {' '.join(str(error).split())[:150]}")  # a tool made it wrong


def check(
    model: onnx.ModelProto,
    *feeds: Mapping[str, Any],
    tolerance: Tolerance = STRICT,
    compile: Sequence[bool] = (False, True),
    optimize: bool = True,
    instead: onnx.ModelProto | None = None,
    **options: Any,
) -> None:
    """Runs every set of inputs in one session of each kind: AssertionError where a type, a shape or a value is not
    ONNX Runtime's. `optimize=False` takes ONNX Runtime's graph as it stands for the reference; `instead` is the model
    that ONNX Runtime runs, where it cannot run the model itself on a CPU."""
    reference = ort_session(instead or model, optimize)
    names = [output.name for output in model.graph.output]
    wanted = [dict(zip(names, reference.run(None, dict(feed)), strict=True)) for feed in feeds]
    for compiled in compile:
        session = tensorbox.Session(model, compile=compiled, **options)
        for number, (feed, want) in enumerate(zip(feeds, wanted, strict=True)):
            got = session.run(feed)
            assert list(got) == names
            for name in names:
                where = f"{name}, inputs {number}, {'compiled' if compiled else 'evaluator'}"
                compare(got[name], want[name], tolerance, where)


def compare(got: Any, want: Any, tolerance: Tolerance, where: str) -> None:
    """AssertionError at the first difference of two values: tensors, sequences or maps."""
    if isinstance(want, dict):
        assert list(got) == list(want), f"{where}: keys {list(got)}, expected {list(want)}"
        compare(np.asarray(list(got.values())), np.asarray(list(want.values())), tolerance, where)
        return
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), f"{where}: not a sequence of {len(want)} elements"
        for i, (one, other) in enumerate(zip(got, want)):
            compare(one, other, tolerance, f"{where}[{i}]")
        return
    want = np.asarray(want)
    got = np.asarray(got)
    assert got.shape == want.shape, f"{where}: shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "OSU":
        assert got.ravel().tolist() == want.ravel().tolist(), f"{where}: strings differ"
        return
    assert got.dtype == want.dtype, f"{where}: type {got.dtype}, expected {want.dtype}"
    # Of integers, those of 8 bits may be quantised numbers; wider ones are positions, labels and counts.
    quantised = want.dtype.kind in "iu" and want.dtype.itemsize == 1 and tolerance.l2 is not None
    if want.dtype.kind not in "fc" and got.dtype.name not in ("bfloat16", "float16") and not quantised:
        np.testing.assert_array_equal(got, want, err_msg=where)
        return
    exact, found = want.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(exact)
    if tolerance.l2 is not None and finite.all():
        distance = np.linalg.norm(found - exact) / max(float(np.linalg.norm(exact)), 1e-12)
        assert distance <= tolerance.l2, f"{where}: relative L2 distance {distance:.3g}, at most {tolerance.l2:.3g}"
        return
    scale = max(float(np.abs(exact[finite]).max()) if finite.any() else 0.0, 1e-6)
    np.testing.assert_allclose(
        found, exact, tolerance.relative, tolerance.of_scale * scale, equal_nan=True, err_msg=where
    )
