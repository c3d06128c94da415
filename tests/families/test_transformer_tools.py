"""Models through ONNX Runtime's optimizer for transformers: fused attention, norms, embeddings and activations; the
same in float16, and quantised afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from families import STRICT, Tolerance, check

torch = pytest.importorskip("torch", reason="./dev families installs the tools of these tests")
pytest.importorskip("onnxscript", reason="./dev families installs the tools of these tests")
optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")
from onnxruntime import quantization  # noqa: E402
from onnxruntime.transformers.fusion_options import AttentionMaskFormat, FusionOptions  # noqa: E402
from onnxruntime.transformers.optimizer import optimize_model  # noqa: E402
from test_torch import export, feeds_of  # noqa: E402
from torch_models import cnn, diffusion, language, speech, transformer  # noqa: E402

CASES = {case.name: case for family in (cnn, transformer, language, diffusion, speech) for case in family.CASES}
HALF = Tolerance(l2=5e-3)
INT8 = Tolerance(l2=3e-2)

#: The optimizer's type of each case, and what it must have made of the TorchScript exporter's model.
KINDS: dict[str, tuple[str, set[str]]] = {
    "encoder_matmul": ("bert", {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"}),
    "encoder_sdpa": ("bert", {"EmbedLayerNormalization", "Attention", "SkipLayerNormalization", "BiasGelu"}),
    "causal_lm": ("gpt2", {"SkipLayerNormalization", "BiasGelu"}),
    "decoder_gpt2": ("gpt2", {"SkipLayerNormalization", "BiasGelu"}),
    "decoder_llama": ("gpt2", {"SkipSimplifiedLayerNormalization"}),
    "decoder_neox": ("gpt_neox", {"SkipLayerNormalization", "BiasGelu"}),
    "decoder_qwen3": ("qwen3", {"SkipSimplifiedLayerNormalization"}),
    "step_relative": ("t5", {"SkipSimplifiedLayerNormalization", "BiasGelu"}),
    "step_beside_encoder": ("bart", {"SkipLayerNormalization", "BiasGelu"}),
    "speech_encoder": ("bart", set()),
    "windows": ("swin", set()),
    "vision_transformer": ("vit", {"BiasGelu"}),
    "conformer": ("conformer", set()),
    "text_encoder": ("clip", {"QuickGelu"}),
    "denoiser": ("unet", {"NhwcConv", "GroupNorm", "SkipGroupNorm", "MultiHeadAttention", "BiasSplitGelu"}),
    "latent_decoder": ("vae", {"NhwcConv", "GroupNorm", "SkipGroupNorm"}),
}
#: ONNX Runtime has the kernels of these on GPUs only.
GPU = {"NhwcConv", "GroupNorm", "SkipGroupNorm", "BiasSplitGelu", "BiasAdd"}


def optimized(name: str, kind: str, exporter: str, folder: Path, **options: Any) -> tuple[Any, onnx.ModelProto, list]:
    """The optimizer's model, the exported one, and inputs of several sizes."""
    torch.manual_seed(11)
    case = CASES[name]
    model = export(case, exporter)
    onnx.save(model, folder / "exported.onnx")
    fusion = FusionOptions(kind)
    for key, value in options.items():
        setattr(fusion, key, value)
    heads = diffusion.HEADS if case in diffusion.CASES else transformer.HEADS
    result = optimize_model(
        str(folder / "exported.onnx"),
        kind,
        num_heads=heads,
        hidden_size=transformer.WIDTH,
        opt_level=0,
        optimization_options=fusion,
    )
    return result, model, feeds_of(case, exporter, model)


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("exporter", ["script", "dynamo"])
@pytest.mark.parametrize("name", KINDS)
def test_optimizer(name: str, exporter: str, half: bool, tmp_path: Path) -> None:
    kind, wanted = KINDS[name]
    result, model, feeds = optimized(name, kind, exporter, tmp_path)
    if exporter == "script":
        assert wanted <= operators(result.model)
    if half and name in ("vision_transformer", "windows"):
        pytest.skip("ONNX Runtime crashes when it loads this model")
    if half:
        result.convert_float_to_float16(keep_io_types=True)
    instead = model if operators(result.model) & GPU else None
    check(result.model, *feeds, tolerance=HALF if half else STRICT, instead=instead)


FUSIONS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "raw_mask": (
        "encoder_matmul",
        {"attention_mask_format": AttentionMaskFormat.AttentionMask},
        {"Attention", "EmbedLayerNormalization"},
    ),
    "end_and_start": (
        "encoder_matmul",
        {"attention_mask_format": AttentionMaskFormat.MaskIndexEndAndStart},
        {"Attention"},
    ),
    "multi_head": ("encoder_matmul", {"use_multi_head_attention": True}, {"MultiHeadAttention"}),
    "no_embedding": ("encoder_matmul", {"enable_embed_layer_norm": False}, {"Attention"}),
    "fast_gelu": ("encoder_matmul", {"enable_gelu_approximation": True}, {"FastGelu"}),
    "gemm_fast_gelu": (
        "encoder_matmul",
        {"enable_gelu_approximation": True, "enable_gemm_fast_gelu": True},
        set(),
    ),
    "norms_only": (
        "encoder_matmul",
        {"enable_attention": False, "enable_bias_gelu": False, "enable_bias_skip_layer_norm": False},
        {"SkipLayerNormalization", "Gelu"},
    ),
    "separate_heads": ("denoiser", {"enable_packed_qkv": False, "enable_packed_kv": False}, {"MultiHeadAttention"}),
    "channels_first": ("denoiser", {"group_norm_channels_last": False, "enable_nhwc_conv": False}, {"GroupNorm"}),
}


@pytest.mark.parametrize("form", FUSIONS)
def test_fusions(form: str, tmp_path: Path) -> None:
    """What people switch on and off."""
    name, options, wanted = FUSIONS[form]
    result, model, feeds = optimized(name, KINDS[name][0], "script", tmp_path, **options)
    assert wanted <= operators(result.model)
    check(
        result.model,
        *feeds,
        tolerance=Tolerance(l2=2e-3) if "approximation" in str(options) else STRICT,
        instead=model if operators(result.model) & (GPU | {"GemmFastGelu"}) else None,
    )


@pytest.mark.parametrize(
    "kept", [["LayerNormalization", "Softmax", "Pow", "ReduceMean"], ["MatMul", "Gemm"]], ids=["norms", "products"]
)
@pytest.mark.parametrize("name", ["encoder_matmul", "decoder_gpt2", "decoder_llama", "step_relative", "decoder_gemma2"])
def test_float16_with_blocks(name: str, kept: list[str], tmp_path: Path) -> None:
    """Halves except for operators, and for one node by its name."""
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    torch.manual_seed(11)
    case = CASES[name]
    model = export(case, "script")
    feeds = feeds_of(case, "script", model)
    names = [node.name for node in model.graph.node if node.op_type == "Add"][:1]
    model = convert_float_to_float16(
        model,
        keep_io_types=["ids", "seen"] if name == "decoder_gpt2" else True,
        op_block_list=[*DEFAULT_OP_BLOCK_LIST, *kept],
        node_block_list=names,
        force_fp16_initializers=name == "decoder_llama",
    )
    types = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
    feeds = [
        {
            key: value.astype("float16") if types[key] == onnx.TensorProto.FLOAT16 else value
            for key, value in feed.items()
        }
        for feed in feeds
    ]
    check(model, *feeds, tolerance=HALF)


@pytest.mark.parametrize("form", ["uint8", "int8", "per_channel", "reduced"])
@pytest.mark.parametrize("name", ["encoder_matmul", "decoder_gpt2", "step_relative", "conformer", "deep_speech_lstm"])
def test_quantized_after(name: str, form: str, tmp_path: Path) -> None:
    """Fused, then dynamically quantised: quantised attention, embeddings and networks."""
    kind = KINDS[name][0] if name in KINDS else "bert"
    result, _, feeds = optimized(name, kind, "script", tmp_path)
    result.save_model_to_file(str(tmp_path / "fused.onnx"))
    quantization.quantize_dynamic(
        tmp_path / "fused.onnx",
        tmp_path / "quantized.onnx",
        weight_type=quantization.QuantType.QUInt8 if form == "uint8" else quantization.QuantType.QInt8,
        per_channel=form in ("per_channel", "reduced"),
        reduce_range=form == "reduced",
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},  # of what ONNX's shape inference does not know
    )
    check(onnx.load(tmp_path / "quantized.onnx"), *feeds, tolerance=INT8, optimize=False)
