"""Operators that ONNX Runtime's tools put in place of those of ONNX, with channels as the last dimension."""

from __future__ import annotations

import numpy as np
from peers import compare, expected, model_of


def test_nhwc_conv_has_the_channels_of_its_weights_last() -> None:
    """As onnxruntime.transformers writes it: against a convolution of ONNX, for which both are turned."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 7, 8), (6, 2, 3, 2), (6,)))
    attributes = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    first = {"x": x, "w": w, "b": b}
    (want,) = expected(model_of("Conv", first, ["y"], 11, **attributes), first)
    inputs = {"x": np.moveaxis(x, 1, -1).copy(), "w": np.moveaxis(w, 1, -1).copy(), "b": b}
    for constants in (("w", "b"), ()):
        m = model_of("NhwcConv", inputs, ["y"], 21, constants, domain="com.microsoft", **attributes)
        compare(m, inputs, want=[np.moveaxis(want, 1, -1)])
