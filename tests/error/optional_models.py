"""Good models with the inputs that operators may leave out and that no other list of models gives: one node each.

`missing` says which inputs are given by no model at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from microsoft_models import f, generation_models, i32, i64, q, scale, zero
from one_node import one_node

Parts = tuple[str, onnx.ModelProto, tuple[Any, ...]]


def models() -> Iterator[Parts]:
    """Name, model and inputs."""
    yield from _convolutions()
    yield from _recurrent()
    yield from _transforms()
    yield from _attention()
    yield from _microsoft_attention()
    yield from _microsoft()
    yield from _experts()
    yield from _generation()


def _model(op: str, inputs: Sequence[Any], outputs: int = 1, domain: str = "", opset: int = 0, **attributes: Any) -> Parts:
    model, values = one_node(op, inputs, outputs, domain, **attributes)
    if opset:
        model.opset_import[0].version = opset
    return f"{domain}_{op}_all_inputs_" + "_".join(attributes), model, values


def _m(op: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Parts:
    return _model(op, inputs, outputs, "com.microsoft", **attributes)


def _convolutions() -> Iterator[Parts]:
    image = f(1, 2, 5, 5)
    yield _model("Conv", [image, f(3, 2, 3, 3), f(3)], kernel_shape=[3, 3], strides=[2, 1], dilations=[1, 2], pads=[1, 2, 1, 2])
    yield _model("ConvTranspose", [image, f(2, 3, 3, 3), f(3)], kernel_shape=[3, 3], strides=[2, 1], output_padding=[1, 0])
    to = [scale(), zero()]
    yield _model("QLinearConv", [q(1, 2, 5, 5), *to, q(3, 2, 3, 3), *to, *to, q(3, dtype=np.int32)], kernel_shape=[3, 3])
    yield _model("DeformConv", [image, f(3, 2, 3, 3), f(1, 18, 3, 3), f(3), f(1, 9, 3, 3)], kernel_shape=[3, 3])


def _recurrent() -> Iterator[Parts]:
    x, lengths, state = f(3, 2, 4), i32(3, 1), f(2, 2, 5)
    both = {"hidden_size": 5, "direction": "bidirectional"}
    yield _model("RNN", [x, f(2, 5, 4), f(2, 5, 5), f(2, 10), lengths, state], 2, clip=2.0, **both)
    yield _model("GRU", [x, f(2, 15, 4), f(2, 15, 5), f(2, 30), lengths, state], 2, linear_before_reset=1, **both)
    yield _model("LSTM", [x, f(2, 20, 4), f(2, 20, 5), f(2, 40), lengths, state, state, f(2, 15)], 3, input_forget=0, **both)


def _transforms() -> Iterator[Parts]:
    yield _model("DFT", [f(2, 8, 1), np.array(6, np.int64), np.array(1, np.int64)], onesided=1)
    yield _model("STFT", [f(1, 16, 1), np.array(4, np.int64), f(8), np.array(8, np.int64)], onesided=1)


def _attention() -> Iterator[Parts]:
    heads = f(2, 4, 3, 8)
    yield _model("Attention", [heads, f(2, 2, 6, 8), f(2, 2, 6, 8), f(3, 6), None, None, i64(6, 4)], opset=24, softcap=2.0)
    yield _model("Attention", [f(2, 3, 16), f(2, 3, 8), f(2, 3, 8), f(2, 1, 3, 7), f(2, 1, 4, 8), f(2, 1, 4, 8)], 4, opset=24,
                 q_num_heads=2, kv_num_heads=1, is_causal=1, qk_matmul_output_mode=1)
    yield _model("LinearAttention", [f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), f(2, 2, 4, 4), f(2, 3, 2), f(2, 3, 2)], 2, opset=27,
                 q_num_heads=2, kv_num_heads=2)
    yield _model("CausalConvWithState", [f(1, 3, 4), f(3, 1, 2), f(3), f(1, 3, 1)], 2, opset=27, activation="silu")


def _microsoft_attention() -> Iterator[Parts]:
    x, past, bias = f(2, 3, 8), f(2, 2, 4, 4), f(2, 2, 3, 7)
    seen = np.ones((2, 7), np.int32)
    yield _m("Attention", [x, f(8, 24), f(24), seen, f(2, 2, 2, 4, 4), bias], 2, num_heads=2)
    yield _m("Attention", [x, f(8, 24), f(24), None, f(2, 2, 2, 9, 4), bias, i32(4).reshape(1)], 2, num_heads=2,
            past_present_share_buffer=1)
    yield _m("QAttention", [q(2, 3, 8), q(8, 24), f(24), scale(), scale(), seen, zero(), zero(), f(2, 2, 2, 4, 4)], 2,
            num_heads=2)
    yield _m("MultiHeadAttention", [x, x, x, f(24), seen, bias, past, past], 3, num_heads=2)
    yield _m("MultiHeadAttention", [x, x, x, None, None, bias, f(2, 2, 9, 4), f(2, 2, 9, 4), i32(4).reshape(1)], 3, num_heads=2,
            past_present_share_buffer=1)
    one = f(2, 1, 8)
    yield _m("DecoderMaskedMultiHeadAttention", [one, one, one, seen[:, :4], f(2, 1, 1, 4), f(2, 2, 6, 4), f(2, 2, 6, 4),
                                                i32(3).reshape(1), i32(2).reshape(1), None, f(24)], 3,
            num_heads=2, past_present_share_buffer=1)
    grouped = [f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), f(1, 1, 4, 8), f(1, 1, 4, 8), i32(6).reshape(1), i32(7), f(16, 4), f(16, 4),
               i64(4, 5, 6).reshape(1, 3), f(1, 2, 3, 7), f(2)]
    kinds = {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}
    yield _m("GroupQueryAttention", grouped, 3, softcap=3.0, **kinds)
    yield _m("GroupQueryAttention", [*grouped[:3], *[q(1, 1, 4, 8, dtype=np.int8)] * 2, *grouped[5:11], None, scale().reshape(1),
                                    f(1, 1, 1, 8), f(8), f(8)], 3, k_quant_type="PER_TENSOR", v_quant_type="PER_CHANNEL", **kinds)
    starts, blocks = np.array([[0, 1, 3]], np.int32), np.array([[0, 0, 1]], np.int32)
    yield _m("SparseAttention", [*grouped[:3], f(1, 1, 20, 8), f(1, 1, 20, 8), starts, blocks, i32(18), i32(18).reshape(1),
                                f(32, 4), f(32, 4)], 3, num_heads=2, kv_num_heads=1, sparse_block_size=16, do_rotary=1)


def _microsoft() -> Iterator[Parts]:
    x, row = f(2, 3, 8), f(8)
    yield _m("SkipLayerNormalization", [x, x, row, row, row], 4, epsilon=1e-5)
    yield _m("SkipSimplifiedLayerNormalization", [x, x, row, row], 4, epsilon=1e-5)
    words = i32(1, 2, 3).reshape(1, 3)
    yield _m("EmbedLayerNormalization", [words, i32(0, 1, 1).reshape(1, 3), f(10, 8), f(5, 8), f(2, 8), row, row,
                                        i32(1, 1, 1).reshape(1, 3), i32(2, 0, 4).reshape(1, 3)], 3, epsilon=1e-5)
    groups = (np.arange(32) // 16)[::-1].astype(np.int32)
    yield _m("MatMulNBits", [f(2, 32), q(5, 2, 8), f(5, 2), q(5, 1), groups, f(5)], K=32, N=5, bits=4, block_size=16)
    yield _m("MatMulNBits", [f(2, 32), q(5, 2, 16), f(5, 2), q(5, 2), None, f(5)], K=32, N=5, bits=8, block_size=16)
    yield _m("GatherBlockQuantized", [q(4, 8), i64(1, 3), f(4, 1), q(4, 1)], bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    yield _m("NhwcFusedConv", [f(1, 5, 5, 2), f(3, 2, 3, 3), f(3), f(1, 3, 3, 3)], activation="Relu", kernel_shape=[3, 3])
    yield _m("ConvTransposeWithDynamicPads", [f(1, 2, 5, 5), f(2, 3, 3, 3), i64(1, 1, 1, 1), f(3)], strides=[2, 2])
    yield _m("DynamicQuantizeLSTM", [f(3, 2, 4), q(1, 4, 12), q(1, 3, 12), f(1, 24), i32(3, 1), f(1, 2, 3), f(1, 2, 3), f(1, 9),
                                    f(1), q(1), f(1), q(1)], 3, hidden_size=3)
    yield _m("TorchEmbedding", [f(5, 3), i64(1, 2), np.array(1, np.int64), np.array(False)])
    yield _m("VarlenNGramHashMapping", [i32(1, 2, 3, 4), i32(3, 5, 7), i32(11, 13, 17, 19), i32(0, 1, 4), i32(1, 2, 3, 4).reshape(2, 2),
                                       i32(0, 11, 24, 41), i32(2), i32(0, 0, 1, 1), i32(0, 0, 1, 1).reshape(2, 2), i32(1, 2)], 4,
            max_ngram_size=3, n_head_per_ngram=2, pad_id=0, reset_on_eos=1, state_update_capacity=2)


def _experts() -> Iterator[Parts]:
    third = [f(4, 12, 8), f(4, 12)]
    yield _m("MoE", [f(3, 8), f(3, 4), f(4, 12, 8), f(4, 12), f(4, 8, 12), f(4, 8), *third], k=2, activation_type="silu")
    gate = [q(4, 16, 8), f(4, 16, 1), f(4, 16)]
    yield _m("QMoE", [f(3, 16), f(3, 4), *gate, q(4, 16, 8), f(4, 16, 1), f(4, 16), *gate, *[q(4, 16, 1)] * 3, f(3, 4)], k=2,
            activation_type="silu", expert_weight_bits=4, block_size=16)


def _generation() -> Iterator[Parts]:
    """Both from sound. The processor of logits that knows timestamps needs tokens that one of them has attributes for."""
    inputs = {"input_ids": f(2, 5, 7), "max_length": i32(8), "min_length": i32(1), "num_beams": i32(2), "num_return_sequences": i32(2),
              "length_penalty": np.array(1.5, np.float32), "repetition_penalty": np.array(1.5, np.float32),
              "vocab_mask": np.ones(23, np.int32), "prefix_vocab_mask": np.ones((2, 23), np.int32),
              "attention_mask": np.ones((2, 5), np.int32), "decoder_input_ids": i32(2, 5, 2, 6).reshape(2, 2),
              "logits_processor": i32(1), "temperature": np.array(0.7, np.float32)}
    bodies = {"encoder": generation_models.encoder(features=5), "decoder": generation_models.decoder(hidden=False, mask=False)}
    numbers = {"model_type": 2, "decoder_start_token_id": 2, "eos_token_id": 4, "pad_token_id": 0}
    times = {"beginning_timestamp_token_id": 15, "no_timestamps_token_id": 14, "start_of_lm_token_id": 13, "translate_token_id": 5,
             "transcribe_token_id": 6, "no_speech_token_id": 7}
    listed = list(inputs.items())
    for op, given, more in (("BeamSearch", [*listed[:-2], ("logits_processor", i32(0))], {}),
                            ("WhisperBeamSearch", [*listed[:-1], ("", None), ("", None), listed[-1]], times)):
        model = generation_models.model(op, given, 2, fixed=True, **bodies, **numbers, **more)
        yield f"com.microsoft_{op}_all_inputs", model, tuple(value for _, value in given if value is not None)


def missing(given: Iterable[Any], schemas: Iterable[Any]) -> list[str]:
    """Inputs of these schemas that no model gives, as "domain operator: input"; variadic ones are one."""
    seen: dict[tuple[str, str], set[int]] = {}
    for model in given:
        seen.setdefault(model.operator, set()).update(i for i, name in enumerate(model.node.input) if name)
    found = []
    for schema in schemas:
        places = seen.get((schema.domain, schema.name))
        if places is not None:
            found += [f"{schema.domain or 'ai.onnx'} {schema.name}: {p.name}" for i, p in enumerate(schema.inputs)
                      if i not in places and "Variadic" not in str(p.option)]
    return sorted(found)
