"""Pad by other elements of the axis, of elements of every width, with sizes that a run brings: rows whose ends are looked up
and whose middle lies as it is; and pads that take elements away."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from peers import expected, model_of, tensorbox

TYPES = ["float64", "int64", "float32", "int32", "float16", "int16", "uint8"]


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_rows_of_all_widths(mode: str, isa: str) -> None:
    rng = np.random.default_rng(2)
    pads = ((0, 0), (2, 1), (3, 4))
    for dtype in TYPES:
        x = (rng.standard_normal((2, 5, 64)) * 50).astype(dtype)
        model = model_of("Pad", {"x": x, "pads": np.array([p for side in zip(*pads) for p in side])}, ["y"], 19, ["pads"], mode=mode)
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", "h", "w"]))
        model.graph.output[0].type.tensor_type.ClearField("shape")
        try:
            session = tensorbox.Session(model, isa=isa)
        except tensorbox.ModelError as e:
            assert "does not run isa" in str(e)
            return
        for w in (5, 9, 15, 16, 17, 31, 64, 65, 100):
            given = np.resize(x, (2, 5, w)) + np.arange(w).astype(dtype)
            np.testing.assert_array_equal(session.run({"x": given})["y"], np.pad(given, pads, mode))


@pytest.mark.parametrize("where", ["compiled", "evaluated", "reference", "fake"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_what_negative_pads_take_away_is_not_repeated(mode: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ONNX Runtime and PyTorch do it. ONNX says nothing, and numpy takes no such pads."""
    if where == "fake":
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    how = {"compiled": {}, "evaluated": {"compile": False}, "reference": {"reference": True}, "fake": {"device": "cuda"}}[where]
    x = np.arange(4 * 9, dtype=np.float32).reshape(4, 9)
    for pads in [(-1, 0, 2, 0), (0, 2, 0, -1), (1, -3, -2, 4), (-1, -2, -1, -3), (0, 3, 0, -5), (0, -8, 0, 3), (0, -9, 0, 0), (0, -4, 0, -5)]:
        cuts, adds = ([max(sign * p, 0) for p in pads] for sign in (-1, 1))
        left = x[cuts[0]:4 - cuts[2], cuts[1]:9 - cuts[3]]
        want = np.pad(left, [(adds[0], adds[2]), (adds[1], adds[3])], mode)  # type: ignore[call-overload]
        feeds = {"x": x, "pads": np.array(pads)}
        fixed, given = (model_of("Pad", feeds, ["y"], 21, constants, mode=mode) for constants in (["pads"], []))
        if mode in ("edge", "wrap") and left.size:
            np.testing.assert_array_equal(expected(fixed, {"x": x})[0], want)
        np.testing.assert_array_equal(tensorbox.Session(fixed, **how).run({"x": x})["y"], want)
        np.testing.assert_array_equal(tensorbox.Session(given, all_dims_dynamic=True, **how).run(feeds)["y"], want)


@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_left_to_repeat(dynamic: bool) -> None:
    for mode in ("edge", "reflect", "wrap"):
        feeds = {"x": np.ones(3, np.float32), "pads": np.array([4, -3])}
        model = model_of("Pad", feeds, ["y"], 21, ["pads"], mode=mode)
        with pytest.raises(tensorbox.ModelError, match="nothing is left of axis 0 that pads could repeat"):
            tensorbox.Session(model, compile=False, all_dims_dynamic=dynamic).run({"x": feeds["x"]})
