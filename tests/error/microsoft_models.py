"""Good models of com.microsoft's operators, of which ONNX has no schemas: one node each, as small as can be."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from one_node import one_node

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "ops"))
import generation_models  # noqa: E402

_rng = np.random.default_rng(3)
Array = np.ndarray | None  # None: an optional input that is left out


def f(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


def q(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    return _rng.integers(0, 100, shape).astype(dtype)


def i32(*values: int) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.int32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def scale() -> np.ndarray:
    return np.array(0.05, np.float32)


def zero() -> np.ndarray:
    return np.array(7, np.uint8)


def quantized(*shape: int) -> list[Array]:
    """Values, scale, zero point."""
    return [q(*shape), scale(), zero()]


def _model(op: str, inputs: Sequence[Array], outputs: int = 1, domain: str = "com.microsoft",
           **attributes: Any) -> tuple[str, onnx.ModelProto, tuple[np.ndarray, ...]]:
    return f"{domain}_{op}", *one_node(op, inputs, outputs, domain, **attributes)


def models() -> Iterator[tuple[str, onnx.ModelProto, tuple[np.ndarray, ...]]]:
    """Name, model and inputs."""
    yield from _normalisations()
    yield from _products()
    yield from _quantized()
    yield from _attention()
    yield from _others()
    yield from _blocked()
    yield from _generation()


def _normalisations() -> Iterator[Any]:
    x, row = f(2, 3, 8), f(8)
    yield _model("Gelu", [x])
    yield _model("BiasGelu", [x, row])
    yield _model("FastGelu", [x, row])
    yield _model("QuickGelu", [x], alpha=1.5)
    yield _model("BiasAdd", [x, row, x])
    yield _model("BiasSplitGelu", [f(2, 3, 16), f(16)])
    yield _model("BiasDropout", [x, row, x, np.array(0.5, np.float32), np.array(False)], 2)
    yield _model("BiasSoftmax", [x, f(1, 3, 8)], axis=2, is_inner_broadcast=0)
    yield _model("SkipLayerNormalization", [x, x, row, row], epsilon=1e-5)
    yield _model("SkipSimplifiedLayerNormalization", [x, x, row], epsilon=1e-5)
    yield _model("SimplifiedLayerNormalization", [x, row], epsilon=1e-5, axis=-1)
    yield _model("GroupNorm", [f(1, 4, 4, 8), row, row], groups=2, activation=0, channels_last=1)
    yield _model("EmbedLayerNormalization", [i32(1, 2, 3).reshape(1, 3), i32(0, 1, 1).reshape(1, 3), f(10, 8), f(5, 8),
                                             f(2, 8), row, row, i32(1, 1, 1).reshape(1, 3)], 2, epsilon=1e-5)
    streams = f(2, 3, 4, 8)
    yield _model("GatedRMSNorm", [x, f(4), x], epsilon=1e-5, activation="silu")
    yield _model("BranchwiseRMSNorm", [f(2, 3, 32), f(32)], num_branches=4, epsilon=1e-5)
    yield _model("GatedAdd", [x, x, f(2, 3, 1)])
    yield _model("LinearAttentionGate", [x, row, row, x], 2)
    yield _model("ScaledSiLU", [x, scale()], alpha=1.5)
    yield _model("HyperConnectionPreMix", [f(2, 3, 32), f(2, 3, 4)], num_branches=4, reduction_scale=0.5)
    yield _model("HyperConnectionPostMix", [streams, x, f(2, 3, 4), f(2, 3, 4, 4)])
    yield _model("EngramGate", [streams, streams, x, f(4, 8), f(4, 8), f(4, 8)], 2, epsilon=1e-5)


def _products() -> Iterator[Any]:
    image, weights = f(1, 2, 5, 5), f(3, 2, 3, 3)
    yield _model("FusedMatMul", [f(2, 3, 4), f(4, 5)], alpha=0.5, transA=0, transB=0)
    yield _model("TransposeMatMul", [f(2, 3, 4), f(4, 5)], alpha=0.5, transA=0, transB=0)
    yield _model("FusedMatMulActivation", [f(3, 4), f(4, 5)], activation="Relu")
    yield _model("FusedGemm", [f(3, 4), f(4, 5), f(5)], activation="Relu", alpha=0.5, transB=0)
    yield _model("GemmFastGelu", [f(3, 4), f(4, 5), f(5)])
    yield _model("FusedConv", [image, weights, f(3), f(1, 3, 3, 3)], activation="Relu", kernel_shape=[3, 3])
    yield _model("NhwcConv", [f(1, 5, 5, 2), f(3, 3, 3, 2), f(3)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    yield _model("NhwcFusedConv", [f(1, 5, 5, 2), weights, f(3)], activation="Relu", kernel_shape=[3, 3])
    yield _model("ConvTransposeWithDynamicPads", [image, f(2, 3, 3, 3), i64(1, 1, 1, 1)], strides=[2, 2])
    yield _model("MatMulBnb4", [f(2, 16), q(40), f(5)], K=16, N=5, block_size=16, quant_type=1)
    yield _model("MatMulFpQ4", [f(2, 32), q(105), i64(32, 5)], blk_quant_type=1)
    yield _model("MatMulNBits", [f(2, 32), q(5, 2, 8), f(5, 2)], K=32, N=5, bits=4, block_size=16)
    yield _model("MatMulInteger16", [q(3, 4, dtype=np.int16), q(4, 5, dtype=np.int16)])
    yield _model("Inverse", [f(3, 3)])
    mixture = [f(3, 8), f(3, 4), f(4, 24, 8), f(4, 24), f(4, 8, 12), f(4, 8)]
    yield _model("MoE", mixture, k=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1)
    yield _model("QMoE", [f(3, 16), f(3, 4), q(4, 32, 8), f(4, 32, 1), f(4, 32), q(4, 16, 16), f(4, 16, 2), f(4, 16), None, None,
                          None, q(4, 32, 1), q(4, 16, 1)], k=2, activation_type="silu", expert_weight_bits=4, block_size=16)


def _quantized() -> Iterator[Any]:
    to = [scale(), zero()]
    for op in ("QLinearAdd", "QLinearMul"):
        yield _model(op, [*quantized(2, 3), *quantized(2, 3), *to])
    for op in ("QLinearLeakyRelu", "QLinearSigmoid"):
        yield _model(op, [*quantized(2, 3), *to])
    yield _model("QLinearSoftmax", [*quantized(2, 3), *to], axis=-1, opset=13)
    yield _model("QLinearReduceMean", [*quantized(2, 3), *to], axes=[1], keepdims=1)
    yield _model("QLinearAveragePool", [*quantized(1, 2, 4, 4), *to], kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    yield _model("QLinearGlobalAveragePool", [*quantized(1, 2, 4, 4), *to], channels_last=0)
    yield _model("QLinearConcat", [*to, *quantized(2, 3), *quantized(2, 4)], axis=1)
    yield _model("QLinearWhere", [np.ones((2, 3), bool), *quantized(2, 3), *quantized(2, 3), *to])
    yield _model("QLinearConv", [*quantized(1, 2, 4, 4), *quantized(3, 2, 3, 3), *to, q(3, dtype=np.int32)],
                 kernel_shape=[3, 3], channels_last=0)
    yield _model("QGemm", [*quantized(2, 3), *quantized(3, 4), q(4, dtype=np.int32), *to], transA=0, transB=0)
    yield _model("MatMulIntegerToFloat", [q(3, 4), q(4, 5), scale(), scale(), zero(), zero(), f(5)])
    yield _model("DynamicQuantizeMatMul", [f(3, 4), q(4, 5), scale(), zero(), f(5)])
    yield _model("DynamicQuantizeLSTM", [f(3, 2, 4), q(1, 4, 12), q(1, 3, 12), f(1, 24), None, None, None, None,
                                         f(1), q(1), f(1), q(1)], 3, hidden_size=3)
    yield _model("MulInteger", [q(2, 3), zero(), q(2, 3), zero()])
    yield _model("ReduceSumInteger", [q(2, 3)], axes=[1], keepdims=1)
    yield _model("NhwcMaxPool", [q(1, 4, 4, 2)], kernel_shape=[2, 2])
    yield _model("QuantizeLinear", [f(2, 3), scale(), zero()])
    yield _model("DequantizeLinear", quantized(2, 3))
    yield _model("GatherBlockQuantized", [q(4, 16), i64(1, 3), f(4, 1)], bits=8, block_size=16, gather_axis=0,
                 quantize_axis=1)


def _attention() -> Iterator[Any]:
    x = f(2, 3, 8)
    yield _model("Attention", [x, f(8, 24), f(24)], num_heads=2)
    yield _model("MultiHeadAttention", [x, x, x], num_heads=2)
    yield _model("GroupQueryAttention", [f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), None, None, i32(2).reshape(1), i32(3)], 3,
                 num_heads=2, kv_num_heads=1)
    yield _model("AttnLSTM", [f(3, 2, 4), f(1, 12, 6), f(1, 12, 3), f(1, 24), i32(3, 2), f(1, 2, 3), f(1, 2, 3), f(1, 9),
                              f(1, 3, 5), f(1, 2, 5), f(1, 5), f(2, 4, 2), i32(4, 1), f(1, 5, 2)], 3, hidden_size=3,
                 direction="forward", clip=2.0, activations=["Sigmoid", "Tanh", "Tanh"])
    starts, blocks = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)
    yield _model("SparseAttention", [f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), f(1, 1, 20, 8), f(1, 1, 20, 8), starts, blocks,
                                     i32(18), i32(18).reshape(1)], 3, num_heads=2, kv_num_heads=1, sparse_block_size=16)
    flags = np.array([[1, 0, 0], [0, 0, 0]], np.int32)
    yield _model("LongformerAttention", [x, f(8, 24), f(24), f(2, 3), f(8, 24), f(24), flags], num_heads=2, window=1)
    yield _model("RotaryEmbedding", [f(1, 3, 8), i64(0), f(4, 2), f(4, 2)], num_heads=2)
    yield _model("LinearAttention", [x, x, x, f(2, 2, 4, 4), f(2, 3, 2), f(2, 3, 2)], 2, q_num_heads=2, kv_num_heads=2)
    yield _model("CausalConvWithState", [f(1, 3, 4), f(3, 1, 2), f(3), f(1, 3, 2)], 2, dilation=2, activation="silu")
    yield _model("QAttention", [q(2, 3, 8), q(8, 24), f(24), scale(), scale(), None, zero(), zero()], num_heads=2)


def _others() -> Iterator[Any]:
    yield _model("Trilu", [f(3, 4), np.array(1, np.int64)], upper=1)
    yield _model("CropAndResize", [f(1, 1, 4, 4), f(2, 4), i32(0, 0), i32(2, 2)])
    yield _model("CDist", [f(3, 4), f(5, 4)], metric="euclidean")
    yield _model("ComplexMul", [f(2, 3, 2), f(2, 3, 2)])
    yield _model("ComplexMulConj", [f(2, 3, 2), f(2, 3, 2)])
    yield _model("Rfft", [f(2, 8)], normalized=0, onesided=1, signal_ndim=1)
    yield _model("Irfft", [f(2, 5, 2)], normalized=0, onesided=1, signal_ndim=1)
    yield _model("BifurcationDetector", [i64(1, 2, 3, 4), i64(1, 2), np.array(0, np.int64), i64(1, 2, 3, 4, 5)], 2,
                 min_ngram_size=1, max_ngram_size=3)
    yield _model("DynamicTimeWarping", [f(1, 4, 5)])
    yield _model("ExpandDims", [f(2, 3), i32(1)])
    yield _model("GatherND", [f(3, 4), i64(0, 2).reshape(2, 1)])
    yield _model("GridSample", [f(1, 1, 4, 4), f(1, 3, 3, 2)], mode="bilinear", padding_mode="zeros", align_corners=0)
    yield _model("IsAllFinite", [f(2, 3), f(4)], isinf_only=0)
    yield _model("MaxpoolWithMask", [f(1, 1, 4, 4), np.ones((1, 1, 4, 4), np.int32)], kernel_shape=[2, 2])
    yield _model("MurmurHash3", [i32(1, 2, 3)], positive=1, seed=0)
    yield _model("NGramHashMapping", [i32(1, 2, 3, 4).reshape(1, 4), i32(3, 5, 7), i32(11, 13, 17, 19), i32(1, 2).reshape(1, 2),
                                      i32(0, 11, 24, 41), i32(2), i32(0, 0, 1, 1).reshape(1, 4)], 2, max_ngram_size=3,
                 n_head_per_ngram=2, pad_id=0, reset_on_eos=1)
    yield _model("VarlenNGramHashMapping", [i32(1, 2, 3, 4), i32(3, 5, 7), i32(11, 13, 17, 19), i32(0, 1, 4),
                                            i32(1, 2, 3, 4).reshape(2, 2)], 2, max_ngram_size=3, n_head_per_ngram=2, pad_id=0)
    yield _model("NGramRepeatBlock", [i64(1, 2, 1, 2).reshape(1, 4), f(1, 8)], ngram_size=2)
    yield _model("Pad", [f(2, 3), i64(0, 1, 0, 1), np.array(1, np.float32)], mode="constant")
    yield _model("Range", [np.array(v, np.float32) for v in (0, 5, 1)])
    yield _model("SampleOp", [f(2, 3)])
    yield _model("TorchEmbedding", [f(5, 3), i64(1, 2), np.array(1, np.int64)])
    yield _model("UnfoldTensor", [f(2, 8)], dim=-1, size=3, step=1)
    yield _model("Unique", [f(6)], 3)
    yield _model("WordConvEmbedding", [q(4, 5, dtype=np.int32) % 10, f(3, 1, 2, 6), f(3), f(10, 6)], embedding_size=3,
                 conv_window_size=2, char_embedding_size=6)


def _blocked() -> Iterator[Any]:
    domain, x = "com.microsoft.nchwc", f(1, 16, 4, 4)
    yield _model("ReorderInput", [x], domain=domain, channels_last=0)
    yield _model("ReorderOutput", [x], domain=domain, channels=16)
    yield _model("Conv", [x, f(16, 16, 3, 3), f(16)], domain=domain, kernel_shape=[3, 3], activation="Relu")
    for op in ("MaxPool", "AveragePool"):
        yield _model(op, [x], domain=domain, kernel_shape=[2, 2], strides=[1, 1])
    for op in ("GlobalMaxPool", "GlobalAveragePool"):
        yield _model(op, [x], domain=domain)
    yield _model("Upsample", [x], domain=domain, scales=[1, 1, 2, 2], mode="nearest")


def _generation() -> Iterator[Any]:
    ids, tokens = np.array([[0, 5, 6], [7, 8, 9]], np.int32), {"eos_token_id": 4, "pad_token_id": 0}
    one = {"input_ids": ids, "max_length": i32(6), "min_length": i32(1), "repetition_penalty": np.array(1.5, np.float32),
           "vocab_mask": np.ones(23, np.int32), "prefix_vocab_mask": np.ones((2, 23), np.int32),
           "attention_mask": np.ones((2, 3), np.int32)}
    first = {"input_ids": ids, "max_length": i32(6), "min_length": i32(1), "num_beams": i32(2),
             "num_return_sequences": i32(2), "length_penalty": np.array(1.5, np.float32)}
    beams = first | {name: one[name] for name in list(one)[3:]}

    def build(op: str, inputs: dict[str, np.ndarray], outputs: int, **attributes: Any) -> Any:
        model = generation_models.model(op, list(inputs.items()), outputs, fixed=True, **tokens, **attributes)
        return f"com.microsoft_{op}", model, tuple(inputs.values())

    decoder = generation_models.gpt(1)
    yield build("GreedySearch", one, 1, decoder=decoder, no_repeat_ngram_size=2)
    chance = {"presence_mask": np.ones((2, 23), np.int32), "seed": i32(3)}
    yield build("Sampling", one | chance, 2, decoder=decoder, top_p=0.5, presence_penalty=0.5, custom=0)
    yield build("BeamSearch", beams, 3, decoder=decoder, init_decoder=decoder, early_stopping=0)
    encoded = {"encoder": generation_models.encoder(), "decoder": generation_models.decoder()}
    yield build("BeamSearch", beams, 2, model_type=1, decoder_start_token_id=2, **encoded)
    heard = {"encoder": generation_models.encoder(features=5), "decoder": generation_models.decoder(hidden=False, mask=False)}
    features = first | {"input_ids": f(2, 5, 7)}
    yield build("WhisperBeamSearch", features, 3, model_type=2, decoder_start_token_id=2, **heard)
