"""Models through ONNX Runtime's quantisers, the converters to float16, and ONNX Runtime's own optimizer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from families import Tolerance, check

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")
quantization = pytest.importorskip("onnxruntime.quantization")
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType  # noqa: E402
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402
from test_torch import export, feeds_of  # noqa: E402
from torch_models import cnn, diffusion, language, recurrent, speech, transformer, vision  # noqa: E402

logging.disable(logging.WARNING)
CASES = {
    case.name: case
    for family in (cnn, transformer, recurrent, language, speech, diffusion, vision)
    for case in family.CASES
}
INT8 = Tolerance(l2=3e-2)


class Calibration(CalibrationDataReader):
    def __init__(self, feeds: list[dict[str, np.ndarray]]):
        self.feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)


def exported(name: str, folder: Path, exporter: str = "script") -> tuple[Path, list[dict[str, np.ndarray]]]:
    """The prepared model's file and inputs for calibration and comparison."""
    torch.manual_seed(11)
    case = CASES[name]
    model = export(case, exporter)
    wanted = {info.name for info in model.graph.input}
    feeds = [{key: value.numpy() for key, value in case.inputs(2).items() if key in wanted} for _ in range(4)]
    del model.graph.value_info[:]  # the quantisers transpose weights and leave their old types there
    onnx.save(model, folder / "exported.onnx")
    quant_pre_process(folder / "exported.onnx", folder / "prepared.onnx", skip_symbolic_shape=True)
    return folder / "prepared.onnx", feeds


PLAIN = {
    "quant_format": QuantFormat.QDQ,
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
}
STATIC: dict[str, dict[str, Any]] = {
    "qdq": {},
    "qdq_per_channel": {"per_channel": True},
    "qdq_unsigned_weights": {"weight_type": QuantType.QUInt8, "activation_type": QuantType.QUInt8},
    "qdq_signed": {
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "qdq_entropy": {"calibrate_method": CalibrationMethod.Entropy},
    "qdq_16_bits": {"activation_type": QuantType.QUInt16, "weight_type": QuantType.QInt8},
    "qdq_4_bit_weights": {"weight_type": QuantType.QInt4},
    "qdq_reduced_range": {"reduce_range": True, "per_channel": True},
    "qoperator": {"quant_format": QuantFormat.QOperator},
    "qoperator_per_channel": {"quant_format": QuantFormat.QOperator, "per_channel": True},
    "qoperator_unsigned": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QUInt8,
        "weight_type": QuantType.QUInt8,
        "extra_options": {"WeightSymmetric": False},
    },
    "qoperator_signed": {
        "quant_format": QuantFormat.QOperator,
        "activation_type": QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True},
    },
    "qdq_asymmetric": {"activation_type": QuantType.QInt8, "extra_options": {"WeightSymmetric": False}},
    "qdq_16_bits_everywhere": {"activation_type": QuantType.QInt16, "weight_type": QuantType.QInt16},
    "qdq_4_bit_channels": {"weight_type": QuantType.QUInt4, "per_channel": True},
    "qdq_weights_as_float": {"extra_options": {"AddQDQPairToWeight": True, "QuantizeBias": False}},
    "qdq_own_pairs": {"extra_options": {"DedicatedQDQPair": True, "QDQKeepRemovableActivations": True}},
    "qdq_contrib": {"extra_options": {"UseQDQContribOps": True}, "activation_type": QuantType.QUInt16},
    "qdq_percentile": {
        "calibrate_method": CalibrationMethod.Percentile,
        "extra_options": {"ForceQuantizeNoInputCheck": True},
    },
    "qdq_some_operators": {"op_types_to_quantize": ["Conv", "MatMul", "Gemm"], "per_channel": True},
}


@pytest.mark.parametrize("form", STATIC)
@pytest.mark.parametrize(
    "name", ["residual", "inverted_residual_hard", "unet_bilinear", "dense_block", "vision_transformer"]
)
def test_static(name: str, form: str, tmp_path: Path) -> None:
    path, feeds = exported(name, tmp_path)
    options: dict[str, Any] = {**PLAIN, **STATIC[form]}
    quantization.quantize_static(path, tmp_path / "quantized.onnx", Calibration(feeds), **options)
    check(onnx.load(tmp_path / "quantized.onnx"), *feeds[:2], tolerance=INT8, optimize=False)


@pytest.mark.parametrize(
    "form", ["qdq", "qdq_per_channel", "qoperator", "qdq_16_bits_everywhere", "qdq_4_bit_channels"]
)
@pytest.mark.parametrize(
    "name",
    [
        "encoder_matmul",
        "decoder_gpt2",
        "decoder_llama",
        "step_beside_encoder",
        "conformer",
        "deep_speech_gru",
        "denoiser",
        "yolo",
    ],
)
def test_static_dynamic_axes(name: str, form: str, tmp_path: Path) -> None:
    """Calibrated at some sizes, run at others; shapes of the prepared model by symbolic inference."""
    if form == "qdq_16_bits_everywhere" and name in ("encoder_matmul", "step_beside_encoder"):
        pytest.skip("the scale of the mask is so large that dequantised it is infinite, and times 0 no number")
    torch.manual_seed(11)
    case = CASES[name]
    model = export(case, "script")
    feeds = feeds_of(case, "script", model)
    onnx.save(model, tmp_path / "exported.onnx")
    path = tmp_path / "prepared.onnx"
    try:
        quant_pre_process(tmp_path / "exported.onnx", path, auto_merge=True)
    except (AssertionError, TypeError):  # its symbolic inference cannot compare floors of sizes
        quant_pre_process(tmp_path / "exported.onnx", path, skip_symbolic_shape=True)
    try:
        quantization.quantize_static(path, tmp_path / "quantized.onnx", Calibration(feeds), **{**PLAIN, **STATIC[form]})
    except RuntimeError as error:
        if "unknown initializers" not in str(error):
            raise
        pytest.skip(f"ONNX Runtime's quantiser: {str(error)[:80]}")
    check(onnx.load(tmp_path / "quantized.onnx"), *feeds, tolerance=INT8, optimize=False)


def test_mixed_types(tmp_path: Path) -> None:
    """One tensor in 16 bits among tensors of 8, converted between; nodes left in float32."""
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    path, feeds = exported("residual", tmp_path)
    model = onnx.load(path)
    middle = next(node.output[0] for node in model.graph.node if node.op_type == "Relu")
    config = get_qnn_qdq_config(
        path,
        Calibration(feeds),
        activation_type=QuantType.QUInt8,
        init_overrides={middle: [{"quant_type": QuantType.QUInt16}]},
        add_qtype_converts=True,
    )
    config.nodes_to_exclude = [model.graph.node[-1].name]
    quantization.quantize(path, tmp_path / "quantized.onnx", config)
    check(onnx.load(tmp_path / "quantized.onnx"), *feeds[:2], tolerance=INT8, optimize=False)


@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("form", ["int8", "uint8", "per_channel"])
@pytest.mark.parametrize(
    "name", ["encoder_matmul", "causal_lm", "llama", "vision_transformer", "lstm", "residual", "gru"]
)
def test_dynamic(name: str, form: str, exporter: str, tmp_path: Path) -> None:
    path, feeds = exported(name, tmp_path, exporter)
    options = {
        "int8": {"weight_type": QuantType.QInt8},
        "uint8": {"weight_type": QuantType.QUInt8},
        "per_channel": {"weight_type": QuantType.QInt8, "per_channel": True},
    }[form]
    quantization.quantize_dynamic(path, tmp_path / "quantized.onnx", **options)
    check(onnx.load(tmp_path / "quantized.onnx"), *feeds[:2], tolerance=INT8, optimize=False)


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_n_bits(form: str, symmetric: bool, bits: int, block: int, tmp_path: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    if bits == 8 and form == "QDQ":
        pytest.skip("MatMulNBitsQuantizer writes QDQ for 4 bits only")
    path, feeds = exported("llama", tmp_path)
    quantizer = MatMulNBitsQuantizer(
        onnx.load(path),
        block_size=block,
        is_symmetric=symmetric,
        bits=bits,
        quant_format=QuantFormat[form],
        op_types_to_quantize=("MatMul", "Gather") if bits == 4 and form == "QOperator" else ("MatMul",),
    )
    quantizer.process()
    # optimized, ONNX Runtime computes products of the QDQ form with rows of 8-bit integers
    check(quantizer.model.model, *feeds[:2], tolerance=Tolerance(l2=5e-3), optimize=form == "QOperator")


@pytest.mark.parametrize("algorithm", ["hqq", "rtn"])
def test_n_bits_algorithms(algorithm: str, tmp_path: Path) -> None:
    from onnxruntime.quantization import matmul_nbits_quantizer as quantizers

    path, feeds = exported("llama", tmp_path)
    try:
        config = (
            quantizers.HQQWeightOnlyQuantConfig(block_size=16)
            if algorithm == "hqq"
            else quantizers.RTNWeightOnlyQuantConfig()
        )
        quantizer = quantizers.MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
        quantizer.process()
    except (ModuleNotFoundError, ValueError) as error:
        pytest.skip(f"{algorithm}: {error}")  # the tool's
    check(quantizer.model.model, *feeds[:2], tolerance=Tolerance(l2=5e-3))


#: Without the vision transformer and the LSTM: ONNX Runtime crashes when it loads their float16 forms.
FLOAT16 = [
    "residual",
    "inverted_residual_silu",
    "unet_transposed",
    "convnext",
    "encoder_matmul",
    "causal_lm",
    "llama",
    "instance_norm",
]


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("tool", ["onnxconverter_common", "onnxruntime"])
@pytest.mark.parametrize("name", FLOAT16)
def test_float16(name: str, tool: str, keep_io: bool, tmp_path: Path) -> None:
    path, feeds = exported(name, tmp_path)
    if tool == "onnxruntime":
        transformers = pytest.importorskip("onnxruntime.transformers.float16")
        model = transformers.convert_float_to_float16(onnx.load(path), keep_io_types=keep_io)
    else:
        from onnxconverter_common import float16

        model = float16.convert_float_to_float16(onnx.load(path), keep_io_types=keep_io)
    if not keep_io:
        feeds = [
            {key: value.astype(np.float16) if value.dtype == np.float32 else value for key, value in feed.items()}
            for feed in feeds
        ]
    check(model, *feeds[:2], tolerance=Tolerance(l2=5e-3))


@pytest.mark.parametrize("name", ["residual", "convnext", "unet_transposed", "encoder_matmul"])
def test_float16_mixed(name: str, tmp_path: Path) -> None:
    """The converter that keeps what would leave the range of float16 in float32."""
    from onnxconverter_common import auto_mixed_precision
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    path, feeds = exported(name, tmp_path)
    try:
        model = auto_mixed_precision.auto_convert_mixed_precision(
            onnx.load(path), feeds[0], rtol=0.01, atol=0.01, keep_io_types=True
        )
    except Fail as error:  # the converter tries its results in ONNX Runtime; it leaves a Cast to float32 as it is
        pytest.skip(f"the converter made a model that ONNX Runtime refuses: {' '.join(str(error).split())[:150]}")
    check(model, *feeds[:2], tolerance=Tolerance(l2=5e-3))


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    "name",
    [
        "encoder_matmul",
        "encoder_sdpa",
        "causal_lm",
        "llama",
        "vision_transformer",
        "residual",
        "inverted_residual_hard",
        "lstm",
    ],
)
def test_optimized_offline(name: str, level: int, tmp_path: Path) -> None:
    """Graphs as ONNX Runtime's own optimizer saves them."""
    import onnxruntime

    path, feeds = exported(name, tmp_path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    check(onnx.load(tmp_path / "optimized.onnx"), *feeds[:2])
