"""Convolutions over no channels: sums of nothing, which leave the bias."""

from __future__ import annotations

import numpy as np
import pytest
from peers import model_of, tensorbox



@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("spatial", [(5,), (7, 6), (3, 4, 5)])
def test_no_channels(op: str, spatial: tuple[int, ...], dtype: type, bias: bool, dynamic: bool, compile: bool) -> None:
    kernel = (3,) * len(spatial)
    weights = (4, 0, *kernel) if op == "Conv" else (0, 4, *kernel)
    b = np.arange(4).astype(dtype) + 1
    inputs = {"x": np.zeros((2, 0, *spatial), dtype), "w": np.zeros(weights, dtype)} | ({"b": b} if bias else {})
    model = model_of(op, inputs, ["y"], 17, ["w", "b"] if bias else ["w"], pads=[1] * 2 * len(spatial))
    y = tensorbox.Session(model, compile=compile, all_dims_dynamic=dynamic).run({"x": inputs["x"]})["y"]
    assert y.shape == (2, 4, *spatial) and y.dtype == dtype
    np.testing.assert_array_equal(y, np.broadcast_to((b if bias else 0 * b).reshape(4, *[1] * len(spatial)), y.shape))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("none", ["batch", "filters", "weights"])
def test_none_of_something(op: str, none: str) -> None:
    """No batch, no filters; and no channels in weights that only a run brings."""
    batch, filters, channels = (0 if none == name else n for name, n in (("batch", 2), ("filters", 4), ("weights", 3)))
    weights = (filters, channels, 3, 3) if op == "Conv" else (channels, filters, 3, 3)
    inputs = {"x": np.ones((batch, channels, 6, 5), np.float32), "w": np.ones(weights, np.float32)}
    model = model_of(op, inputs, ["y"], 17, [] if none == "weights" else ["w"], kernel_shape=[3, 3])
    for compile in (False, True):
        session = tensorbox.Session(model, compile=compile)
        y = session.run({name: inputs[name] for name in [i.name for i in session.inputs]})["y"]
        assert y.shape == (batch, filters, *((4, 3) if op == "Conv" else (8, 7)))
        assert not y.any()
