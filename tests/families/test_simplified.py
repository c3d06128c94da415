"""Models through onnxsim, onnxslim, ONNX's version converter and the tools that change a file but not its meaning."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from families import check

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")
from test_torch import export, feeds_of  # noqa: E402
from torch_models import cnn, functions, recurrent, transformer, vision  # noqa: E402

NAMES = [
    "residual",
    "inverted_residual_hard",
    "channel_shuffle",
    "unet_transposed",
    "conv3d",
    "encoder_matmul",
    "encoder_einsum",
    "causal_lm",
    "llama",
    "vision_transformer",
    "windows",
    "relative_bias",
    "experts_dense",
    "lstm_deep",
    "gru",
    "yolo",
    "pyramid",
    "centers",
    "write",
    "size_math",
]
CASES = {case.name: case for family in (cnn, transformer, recurrent, vision, functions) for case in family.CASES}


def simplify(model: onnx.ModelProto, tool: str) -> onnx.ModelProto:
    if tool == "onnxsim":
        onnxsim = pytest.importorskip("onnxsim", reason="./dev families installs the tools of these tests")
        model, right = onnxsim.simplify(model)
        assert right
        return model
    if tool == "onnxslim":
        return pytest.importorskip("onnxslim", reason="./dev families installs the tools of these tests").slim(model)
    if tool == "inferred":
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    if tool == "inlined":
        return onnx.inliner.inline_local_functions(model)
    return onnx.version_converter.convert_version(model, 21)


@pytest.mark.parametrize("tool", ["onnxsim", "onnxslim", "inferred", "newer"])
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_simplified(name: str, exporter: str, tool: str) -> None:
    torch.manual_seed(5)
    case = CASES[name]
    model = export(case, exporter)
    try:
        model = simplify(model, tool)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        pytest.skip(f"{tool}: {str(error)[:80]}")
    check(model, *feeds_of(case, exporter, model))


@pytest.mark.parametrize("name", ["residual", "encoder_matmul", "llama"])
def test_external_data(name: str, tmp_path: Path) -> None:
    """Weights beside the file; and in the dynamo exporter's own way of saving."""
    import tensorbox
    import numpy as np

    torch.manual_seed(5)
    case = CASES[name]
    model = export(case, "dynamo")
    wanted = {info.name for info in model.graph.input}
    feed = {key: value.numpy() for key, value in case.inputs(2).items() if key in wanted}
    want = tensorbox.Session(model, compile=False).run(feed)
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="model.data")
    got = tensorbox.Session(tmp_path / "model.onnx", compile=False).run(feed)
    for key, value in want.items():
        np.testing.assert_array_equal(got[key], value)
