"""Small random language models, as the bodies that GreedySearch and its like of com.microsoft take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE, VOCABULARY = 2, 4, 23
WIDTH = HEADS * SIZE
INT, FLOAT = TensorProto.INT32, TensorProto.FLOAT


class Builder:
    """A graph under construction; values are names."""

    def __init__(self, seed: int, dtype: type = np.float32) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        made = list(outputs) or [f"v{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, list(inputs), made, **attributes))
        return made[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        self.weights.append(numpy_helper.from_array(np.array(value, dtype), f"c{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.rng.standard_normal(shape) * scale, self.dtype)

    def heads(self, x: str) -> str:
        """[B, S, WIDTH] -> [B, HEADS, S, SIZE]."""
        return self("Transpose", self("Reshape", x, self.constant([0, -1, HEADS, SIZE])), perm=[0, 2, 1, 3])

    def attend(self, q: str, k: str, v: str, bias: str) -> str:
        scores = self("Mul", self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2])),
                      self.constant(SIZE**-0.5, self.dtype))
        mixed = self("MatMul", self("Softmax", self("Add", scores, bias), axis=-1), v)
        return self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), self.constant([0, -1, WIDTH]))

    def mask_bias(self, mask: str) -> str:
        """[B, T] of 0 and 1 -> [B, 1, 1, T], what to add to scores."""
        away = self("Sub", self.constant(1, self.dtype), self("Cast", mask, to=self.type))
        return self("Mul", self("Unsqueeze", away, self.constant([1, 2])), self.constant(-1e4, self.dtype))

    def causal_bias(self, queries: str, keys: str) -> str:
        """Queries are the last of the keys; [S, T]."""
        s = self("Gather", self("Shape", queries), self.constant(2))
        t = self("Gather", self("Shape", keys), self.constant(2))
        one = self.constant(1)
        at_q = self("Unsqueeze", self("Range", self("Sub", t, s), t, one), self.constant([1]))
        at_k = self("Range", self.constant(0), t, one)
        later = self("Cast", self("Greater", at_k, at_q), to=self.type)
        return self("Mul", later, self.constant(-1e4, self.dtype))

    @property
    def type(self) -> int:
        return helper.np_dtype_to_tensor_dtype(self.dtype)

    def self_attention(self, x: str, past: tuple[str, str] | None, bias: str = "") -> tuple[str, str, str]:
        q, k, v = (self.heads(self("MatMul", x, self.weight(WIDTH, WIDTH))) for _ in range(3))
        if past:
            k, v = self("Concat", past[0], k, axis=2), self("Concat", past[1], v, axis=2)
        causal = self.causal_bias(q, k)
        mixed = self.attend(q, k, v, self("Add", causal, bias) if bias else causal)
        return self("Add", x, self("MatMul", mixed, self.weight(WIDTH, WIDTH, scale=0.5))), k, v

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
        infos = [[helper.make_tensor_value_info(n, t, s) for n, t, s in group] for group in (inputs, outputs)]
        return helper.make_graph(self.nodes, name, infos[0], infos[1], self.weights)


def gpt(layers: int = 2, seed: int = 0, vocabulary: int = VOCABULARY, dtype: type = np.float32) -> onnx.GraphProto:
    """input_ids, position_ids, attention_mask, past_i -> logits, present_i."""
    b = Builder(seed, dtype)
    table = b.weight(vocabulary, WIDTH)
    x = b("Add", b("Gather", table, "input_ids"), b("Gather", b.weight(64, WIDTH), "position_ids"))
    bias = b.mask_bias("attention_mask")
    for i in range(layers):
        k, v = (b("Gather", f"past_{i}", b.constant(j), axis=0) for j in range(2))
        x, k, v = b.self_attention(x, (k, v), bias)
        first = b.constant([0])
        b("Concat", b("Unsqueeze", k, first), b("Unsqueeze", v, first), axis=0, outputs=[f"present_{i}"])
    b("MatMul", x, b.weight(WIDTH, vocabulary), outputs=["logits"])
    past = [2, "batch_size", HEADS, "past_seq_len", SIZE]
    present = [2, "batch_size", HEADS, "total_seq_len", SIZE]
    inputs = [("input_ids", INT, ["batch_size", "seq_len"]), ("position_ids", INT, ["batch_size", "seq_len"]),
              ("attention_mask", INT, ["batch_size", "total_seq_len"])]
    inputs += [(f"past_{i}", b.type, past) for i in range(layers)]
    outputs = [("logits", b.type, ["batch_size", "seq_len", vocabulary])]
    outputs += [(f"present_{i}", b.type, present) for i in range(layers)]
    return b.graph("decoder", inputs, outputs)


def fused_gpt(layers: int = 2, seed: int = 0) -> onnx.GraphProto:
    """The same of com.microsoft's operators, as convert_generation writes it."""
    b, domain = Builder(seed), {"domain": "com.microsoft"}
    ones, zeros = b.constant(np.ones(WIDTH), np.float32), b.constant(np.zeros(WIDTH), np.float32)
    x = b("Add", b("Gather", b.weight(VOCABULARY, WIDTH), "input_ids"), b("Gather", b.weight(64, WIDTH), "position_ids"))
    normal = b("LayerNormalization", x, ones, zeros)
    for i in range(layers):
        attended, again, total = f"attended_{i}", f"normal_{i}", f"sum_{i}"
        b("Attention", normal, b.weight(WIDTH, 3 * WIDTH), b.weight(3 * WIDTH), "attention_mask", f"past_{i}",
          outputs=[attended, f"present_{i}"], num_heads=HEADS, unidirectional=1, **domain)
        b("SkipLayerNormalization", x, b("MatMul", attended, b.weight(WIDTH, WIDTH)), ones, zeros,
          outputs=[again, "", "", total], **domain)
        inner = b("FastGelu", b("MatMul", again, b.weight(WIDTH, 2 * WIDTH)), b.weight(2 * WIDTH), **domain)
        x = b("Add", total, b("MatMul", inner, b.weight(2 * WIDTH, WIDTH)))
        normal = b("LayerNormalization", x, ones, zeros)
    b("MatMul", normal, b.weight(WIDTH, VOCABULARY), outputs=["logits"])
    plain = gpt(layers)
    graph = b.graph("decoder", [], [])
    graph.input.extend(plain.input)
    graph.output.extend(plain.output)
    return graph


def _keys_and_values(kind: str, what: str, layers: int, length: str) -> list[Any]:
    shape = ["batch_size", HEADS, length, SIZE]
    return [(f"{what}_{part}_{kind}_{i}", FLOAT, shape) for i in range(layers) for part in ("key", "value")]


def decoder(layers: int = 1, seed: int = 1, hidden: bool = True, mask: bool = True, whole: bool = False,
            text: bool = False) -> onnx.GraphProto:
    """Of a model with an encoder. `hidden`: it takes encoder_hidden_states; `whole`: it declares to take any
    number of tokens; `text`: it reads the encoder's tokens, as one does that copies words."""
    b = Builder(seed)
    last = b("Gather", "input_ids", b.constant([-1]), axis=1)
    x = b("Gather", b.weight(VOCABULARY, WIDTH), last)
    bias = b.mask_bias("encoder_attention_mask") if mask else b.constant(0, np.float32)
    for i in range(layers):
        x, k, v = b.self_attention(x, (f"past_key_self_{i}", f"past_value_self_{i}"))
        for part, value in (("key", k), ("value", v)):
            b("Identity", value, outputs=[f"present_{part}_self_{i}"])
        q = b.heads(b("MatMul", x, b.weight(WIDTH, WIDTH)))
        x = b("Add", x, b.attend(q, f"past_key_cross_{i}", f"past_value_cross_{i}", bias))
    if text:
        words = b("Gather", b.weight(VOCABULARY, WIDTH), "encoder_input_ids")
        x = b("Add", x, b("ReduceMean", words, axes=[1]))
    b("MatMul", x, b.weight(WIDTH, VOCABULARY), outputs=["logits"])
    inputs: list[Any] = [("input_ids", INT, ["batch_size", "seq_len" if whole else 1])]
    if text:
        inputs.append(("encoder_input_ids", INT, ["batch_size", "encode_sequence_length"]))
    if mask:
        inputs.append(("encoder_attention_mask", INT, ["batch_size", "encode_sequence_length"]))
    if hidden:
        inputs.append(("encoder_hidden_states", FLOAT, ["batch_size", "encode_sequence_length", WIDTH]))
    inputs += _keys_and_values("self", "past", layers, "past_decode_sequence_length")
    inputs += _keys_and_values("cross", "past", layers, "encode_sequence_length")
    outputs = [("logits", FLOAT, ["batch_size", 1, VOCABULARY])]
    outputs += _keys_and_values("self", "present", layers, "decode_sequence_length")
    return b.graph("decoder", inputs, outputs)


def encoder(layers: int = 1, seed: int = 2, starts: bool = True, features: int = 0) -> onnx.GraphProto:
    """Of T5's kind, or with `features` of Whisper's. `starts`: it runs the decoder's first tokens, too."""
    b = Builder(seed)
    ids = "encoder_input_ids"
    if features:
        encoded = b("MatMul", b("Transpose", ids, perm=[0, 2, 1]), b.weight(features, WIDTH))
    else:
        encoded = b("Gather", b.weight(VOCABULARY, WIDTH), ids)
    inputs: list[Any] = [(ids, FLOAT, ["batch_size", features, "encode_sequence_length"]) if features else
                         (ids, INT, ["batch_size", "encode_sequence_length"])]
    if not features:
        inputs.append(("encoder_attention_mask", INT, ["batch_size", "encode_sequence_length"]))
    outputs: list[Any] = []
    if starts:
        inputs.append(("decoder_input_ids", INT, ["batch_size", "decode_sequence_length"]))
        x = b("Gather", b.weight(VOCABULARY, WIDTH), "decoder_input_ids")
        for i in range(layers):
            x, k, v = b.self_attention(x, None)
            for part, value in (("key", k), ("value", v)):
                b("Identity", value, outputs=[f"present_{part}_self_{i}"])
        b("Identity", b("MatMul", x, b.weight(WIDTH, VOCABULARY)), outputs=["logits"])
        b("Identity", encoded, outputs=["encoder_hidden_states"])
        outputs = [("logits", FLOAT, ["batch_size", "decode_sequence_length", VOCABULARY]),
                   ("encoder_hidden_states", FLOAT, ["batch_size", "encode_sequence_length", WIDTH])]
        outputs += _keys_and_values("self", "present", layers, "decode_sequence_length")
    for i in range(layers):
        for part in ("key", "value"):
            cross = b("MatMul", encoded, b.weight(WIDTH, WIDTH))
            b("Identity", b.heads(cross), outputs=[f"present_{part}_cross_{i}"])
    outputs += _keys_and_values("cross", "present", layers, "encode_sequence_length")
    return b.graph("encoder", inputs, outputs)


def model(op: str, inputs: Sequence[tuple[str, np.ndarray | None]], outputs: int = 1, left_out: Sequence[int] = (),
          fixed: bool = False, **attributes: Any) -> onnx.ModelProto:
    """One node; `None` is an input left out. Its attributes that are graphs are the bodies."""
    names = [name if value is not None else "" for name, value in inputs]
    while not names[-1]:
        names.pop()
    made = ["" if i in left_out else f"out{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, name="generate", domain="com.microsoft",
                            **attributes)
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype),
                                           value.shape if fixed else [f"{name}_{d}" for d in range(value.ndim)])
             for name, value in inputs if value is not None]
    ranks = [3, 2, 4, 5, 1] if "Beam" in op else [2, 2]
    results = [helper.make_tensor_value_info(name, INT if i == 0 else FLOAT, [None] * ranks[i])
               for i, name in enumerate(made) if name]
    graph = helper.make_graph([node], op, infos, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
