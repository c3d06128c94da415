"""Greedy and beam search in numpy, over bodies run by onnx.reference; nothing is remembered between tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

LOWEST = np.finfo(np.float32).min
Model = Callable[[np.ndarray], np.ndarray]  # sequences [rows, length] -> logits [rows, vocabulary]


def run_body(graph: onnx.GraphProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    body = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return ReferenceEvaluator(body).run(None, {i.name: x for i, x in zip(graph.input, inputs, strict=True)})


def no_past(value: onnx.ValueInfoProto, rows: int, length_at: int) -> np.ndarray:
    dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
    dims[length_at], dims[1 if length_at == 3 else 0] = 0, rows
    return np.zeros(dims, np.float32)


def gpt_model(decoder: onnx.GraphProto, ids: np.ndarray, pad: int, mask: np.ndarray | None = None) -> Model:
    batch, prompt = ids.shape
    kept = ids != pad

    def logits(sequences: np.ndarray) -> np.ndarray:
        rows, length = sequences.shape
        new = np.arange(length - prompt)
        positions = np.where(kept, np.cumsum(kept, 1) - 1, 0)
        positions = np.concatenate([positions, kept.sum(1)[:, None] + new], 1)
        seen = np.concatenate([kept if mask is None else mask, np.ones((batch, len(new)))], 1)
        each = rows // batch
        feeds = [x.astype(np.int32) for x in (sequences, positions.repeat(each, 0), seen.repeat(each, 0))]
        return run_body(decoder, feeds + [no_past(i, rows, 3) for i in decoder.input[3:]])[0][:, -1]

    return logits


def encoder_model(encoder: onnx.GraphProto, decoder: onnx.GraphProto, inputs: list[np.ndarray],
                  prompt: np.ndarray) -> Model:
    """`inputs` are the encoder's, but for the first tokens, which some encoders take and others leave to the
    decoder."""
    starts = len(encoder.input) > len(inputs)
    made = run_body(encoder, inputs + [prompt] if starts else inputs)
    first, known = (made[0], made[1:2]) if starts else (None, [])
    layers = (len(made) - 2) // 4 if starts else len(made) // 2
    past_self, cross = (made[2 : 2 + 2 * layers] if starts else []), made[-2 * layers :]
    names = [i.name for i in decoder.input]
    around = inputs[:1] if "encoder_input_ids" in names else []
    around += inputs[1:2] if "encoder_attention_mask" in names else []
    around += known if "encoder_hidden_states" in names else []

    def logits(sequences: np.ndarray) -> np.ndarray:
        rows, length = sequences.shape
        each = rows // len(prompt)
        out = None if first is None else first.repeat(each, 0)
        first_past = names.index("past_key_self_0")
        past = [p.repeat(each, 0) for p in past_self] or [
            no_past(i, rows, 2) for i in decoder.input[first_past : first_past + 2 * layers]]
        for at in range(prompt.shape[1] if starts else 0, length):  # the decoder looks at the last token
            fixed = [x.repeat(each, 0) for x in around]
            feeds = [sequences[:, at : at + 1].astype(np.int32), *fixed, *past]
            out, *past = run_body(decoder, feeds + [c.repeat(each, 0) for c in cross])
        assert out is not None
        return out[:, -1]

    return logits


def apply_rules(scores: np.ndarray, sequences: np.ndarray, first: bool, *, end: int, min_length: int = 0,
                repetition: float = 1, ngram: int = 0, temperature: float = 1, mask: np.ndarray | None = None,
                first_mask: np.ndarray | None = None) -> np.ndarray:
    scores = scores.copy()
    for row, sequence in zip(scores, sequences.tolist(), strict=True):
        for token in set(sequence):
            row[token] = row[token] * repetition if row[token] < 0 else row[token] / repetition
        for i in range(len(sequence) - ngram + 1 if ngram else 0):
            if sequence[i : i + ngram - 1] == sequence[len(sequence) - ngram + 1 :]:
                row[sequence[i + ngram - 1]] = LOWEST
    if mask is not None:
        scores[:, mask == 0] = LOWEST
    if first_mask is not None and first:
        scores[(first_mask == 0).repeat(len(scores) // len(first_mask), 0)] = LOWEST
    if sequences.shape[1] < min_length:
        scores[:, end] = LOWEST
    return scores / np.float32(temperature) if temperature != 1 else scores


def greedy(model: Model, prompt: np.ndarray, max_length: int, end: int, pad: int, **rules: Any) -> np.ndarray:
    sequences, ended = prompt, np.zeros(len(prompt), bool)
    while sequences.shape[1] < max_length and not ended.all():
        first = sequences.shape[1] == prompt.shape[1]
        tokens = apply_rules(model(sequences), sequences, first, end=end, **rules).argmax(1)
        ended |= tokens == end
        sequences = np.concatenate([sequences, np.where(ended, pad, tokens)[:, None].astype(np.int32)], 1)
    return np.pad(sequences, [(0, 0), (0, max_length - sequences.shape[1])])


def beam_search(model: Model, prompt: np.ndarray, max_length: int, beams: int, returned: int, end: int, pad: int,
                length_penalty: float = 1, early: bool = False, **rules: Any) -> tuple[np.ndarray, np.ndarray]:
    """Sequences [batch, returned, max_length] and their scores."""
    batch = len(prompt)
    sequences = prompt.repeat(beams, 0)
    sums = np.where(np.arange(batch * beams) % beams == 0, 0, -1e9).astype(np.float32)
    finished: list[list[tuple[float, list[int]]]] = [[] for _ in range(batch)]
    done = [False] * batch

    def add(b: int, total: float, sequence: np.ndarray) -> None:
        finished[b].append((total / len(sequence) ** length_penalty, sequence.tolist()))
        finished[b].sort(key=lambda h: -h[0])  # stable: of equals the first stays
        del finished[b][beams:]

    while sequences.shape[1] < max_length and not all(done):
        logits = model(sequences)
        top = logits.max(1, keepdims=True)
        scores = logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))
        scores = apply_rules(scores, sequences, sequences.shape[1] == prompt.shape[1], end=end, **rules)
        with np.errstate(over="ignore"):
            scores = (scores + sums[:, None]).reshape(batch, -1)
        best = np.argsort(-scores, 1, kind="stable")[:, : 2 * beams]
        values = np.take_along_axis(scores, best, 1)
        width = logits.shape[1]
        next_sums, tokens, parents = np.zeros_like(sums), np.full(len(sums), pad, np.int32), np.zeros(len(sums), int)
        for b in range(batch):
            if done[b]:
                continue
            at = b * beams
            for j, (value, index) in enumerate(zip(values[b], best[b], strict=True)):
                parent, token = b * beams + index // width, index % width
                if token == end:
                    if j < beams:
                        add(b, value, sequences[parent])
                elif at < (b + 1) * beams:
                    next_sums[at], tokens[at], parents[at] = value, token, parent
                    at += 1
                if at == (b + 1) * beams:
                    break
            if len(finished[b]) == beams:
                near = values.ravel()[b * beams : (b + 2) * beams].max()
                done[b] = early or finished[b][-1][0] >= near / sequences.shape[1] ** length_penalty
        sequences, sums = np.concatenate([sequences[parents], tokens[:, None]], 1), next_sums
    out = np.full((batch, returned, max_length), pad, np.int32)
    out_scores = np.zeros((batch, returned), np.float32)
    for b in range(batch):
        for k in range(b * beams, (b + 1) * beams) if not done[b] else ():
            add(b, sums[k], sequences[k])
        for r, (score, sequence) in enumerate(finished[b][:returned]):
            out[b, r, : len(sequence)] = sequence
            out_scores[b, r] = score
    return out, out_scores
