"""Pad by other elements of the axis, of elements of every width, with sizes that a run brings: rows whose ends are looked up
and whose middle lies as it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from peers import model_of, tensorbox

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
