"""com.microsoft's GreedySearch, BeamSearch, WhisperBeamSearch and Sampling, against numpy and ONNX Runtime."""

from __future__ import annotations

import pathlib
from typing import Any

import generation_models as models
import numpy as np
import onnx
import pytest
from generation_reference import beam_search, encoder_model, gpt_model, greedy
from peers import expected

tensorbox = pytest.importorskip("tensorbox")

END, PAD, START, VOCABULARY = 4, 0, 2, models.VOCABULARY
TOKENS = {"eos_token_id": END, "pad_token_id": PAD}
Inputs = list[tuple[str, Any]]


def one(value: int) -> np.ndarray:
    return np.array([value], np.int32)


def real(value: float) -> np.ndarray:
    return np.array([value], np.float32)


def tokens(seed: int, batch: int = 3, length: int = 5) -> np.ndarray:
    """Some rows with padding in front."""
    ids = np.random.default_rng(seed).integers(1, VOCABULARY, (batch, length)).astype(np.int32)
    ids[::2, : length // 2] = PAD
    return ids


def masks(seed: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    some, first = rng.random(VOCABULARY) > 0.2, rng.random((batch, VOCABULARY)) > 0.5
    some[END] = True
    return some.astype(np.int32), first.astype(np.int32)


def run(model: onnx.ModelProto, inputs: Inputs, **options: Any) -> list[np.ndarray]:
    session = tensorbox.Session(model, **({"compile": False} | options))
    return list(session.run({name: value for name, value in inputs if value is not None}).values())


def ort(model: onnx.ModelProto, inputs: Inputs) -> list[np.ndarray]:
    """Beam searches need inputs that the schema calls optional: min_length and length_penalty."""
    return expected(model, {name: value for name, value in inputs if value is not None}, "ort")


def greedy_inputs(ids: np.ndarray, max_length: int = 14, **others: np.ndarray) -> Inputs:
    names = ["min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask", "presence_mask",
             "seed"]
    return [("input_ids", ids), ("max_length", one(max_length)), *((name, others.get(name)) for name in names)]


def beam_inputs(ids: np.ndarray, beams: int = 3, returned: int = 2, max_length: int = 14,
                **others: np.ndarray) -> Inputs:
    names = ["length_penalty", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask",
             "decoder_input_ids", "logits_processor", "cross_qk_layer_head", "extra_decoding_ids", "temperature"]
    return [("input_ids", ids), ("max_length", one(max_length)), ("min_length", others.get("min_length")),
            ("num_beams", one(beams)), ("num_return_sequences", one(returned)),
            *((name, others.get(name)) for name in names)]


def check_beams(got: list[np.ndarray], want: Any) -> None:
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-5)


RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "repetition": {"repetition": 1.4},
    "bigrams": {"ngram": 2},
    "unigrams": {"ngram": 1},
    "min_length": {"min_length": 9},
    "masks": {"masks": True},
    "all": {"repetition": 0.8, "ngram": 3, "min_length": 8, "masks": True},
}


def as_inputs(rules: dict[str, Any], batch: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """For numpy, as inputs, as attributes."""
    rules = dict(rules)
    inputs: dict[str, Any] = {}
    if rules.pop("masks", False):
        rules["mask"], rules["first_mask"] = masks(5, batch)
        inputs["vocab_mask"], inputs["prefix_vocab_mask"] = rules["mask"], rules["first_mask"]
    if "repetition" in rules:
        inputs["repetition_penalty"] = real(rules["repetition"])
    if "min_length" in rules:
        inputs["min_length"] = one(rules["min_length"])
    return rules, inputs, {"no_repeat_ngram_size": rules.get("ngram", 0)}


@pytest.mark.parametrize("rules", RULES)
def test_greedy(rules: str) -> None:
    for seed in range(3):
        ids, decoder = tokens(seed), models.gpt(seed=seed)
        for_numpy, given, attributes = as_inputs(RULES[rules], len(ids))
        inputs = greedy_inputs(ids, **given)
        (got,) = run(models.model("GreedySearch", inputs, decoder=decoder, **TOKENS, **attributes), inputs)
        want = greedy(gpt_model(decoder, ids, PAD), ids, 14, END, PAD, **for_numpy)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("early", [0, 1])
def test_beams(rules: str, early: int) -> None:
    for seed, (beams, returned) in enumerate([(1, 1), (3, 2), (4, 4)]):
        ids, decoder = tokens(seed), models.gpt(seed=seed)
        for_numpy, given, attributes = as_inputs(RULES[rules], len(ids))
        inputs = beam_inputs(ids, beams, returned, length_penalty=real(1.3), **given)
        model = models.model("BeamSearch", inputs, 2, decoder=decoder, early_stopping=early, **TOKENS, **attributes)
        want = beam_search(gpt_model(decoder, ids, PAD), ids, 14, beams, returned, END, PAD, 1.3, early, **for_numpy)
        check_beams(run(model, inputs), want)


T5_FORMS = {
    "encoder_starts": {"starts": True, "hidden": True},
    "no_hidden_states": {"starts": True, "hidden": False},
    "decoder_starts": {"starts": False, "hidden": False},
    "all_tokens": {"starts": True, "hidden": True, "whole": True},
    "copies_words": {"starts": True, "hidden": False, "text": True},
}


@pytest.mark.parametrize("form", T5_FORMS)
@pytest.mark.parametrize("given_mask", [False, True])
def test_beams_of_a_model_with_an_encoder(form: str, given_mask: bool) -> None:
    ids, how = tokens(1, 2, 6), dict(T5_FORMS[form])
    encoder, decoder = models.encoder(2, starts=how.pop("starts")), models.decoder(2, **how)
    mask = (np.cumsum(ids != PAD, 1) > 0).astype(np.int32)
    if given_mask:
        mask[:, 3] = 0
    inputs = beam_inputs(ids, min_length=one(6), **({"attention_mask": mask} if given_mask else {}))
    model = models.model("BeamSearch", inputs, 2, encoder=encoder, decoder=decoder, model_type=1,
                         decoder_start_token_id=START, **TOKENS)
    prompt = np.full((2, 1), START, np.int32)
    predict = encoder_model(encoder, decoder, [ids, mask], prompt)
    check_beams(run(model, inputs), beam_search(predict, prompt, 14, 3, 2, END, PAD, min_length=6))


@pytest.mark.parametrize("op", ["GreedySearch", "BeamSearch"])
def test_compiled_and_run_again(op: str) -> None:
    """The bodies are compiled for any sizes; other ones in the next run change nothing."""
    decoder = models.gpt()
    make = greedy_inputs if op == "GreedySearch" else beam_inputs
    model = models.model(op, make(tokens(0)), decoder=decoder, **TOKENS)
    session = tensorbox.Session(model)
    for ids in (tokens(0), tokens(1, 1, 7), tokens(2, 4, 2), tokens(0)):
        got = session.run({name: value for name, value in make(ids) if value is not None})["out0"]
        predict = gpt_model(decoder, ids, PAD)
        want = greedy(predict, ids, 14, END, PAD) if op == "GreedySearch" else beam_search(
            predict, ids, 14, 3, 2, END, PAD)[0]
        np.testing.assert_array_equal(got, want)


def test_sizes_given_by_name() -> None:
    """Those of the caller's batch, not those that the decoder calls the same."""
    ids, decoder = tokens(0), models.gpt()
    model = models.model("BeamSearch", beam_inputs(ids), decoder=decoder, **TOKENS)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch_size"
    want = beam_search(gpt_model(decoder, ids, PAD), ids, 14, 3, 2, END, PAD)[0]
    for options in ({"dims": {"batch_size": 3}}, {"all_dims_dynamic": True}):
        np.testing.assert_array_equal(run(model, beam_inputs(ids), **options)[0], want)


def test_given_mask() -> None:
    ids, decoder = tokens(3), models.gpt(seed=3)
    mask = (np.random.default_rng(1).random(ids.shape) > 0.4).astype(np.int32)
    inputs = greedy_inputs(ids, attention_mask=mask)
    (got,) = run(models.model("GreedySearch", inputs, decoder=decoder, **TOKENS), inputs)
    np.testing.assert_array_equal(got, greedy(gpt_model(decoder, ids, PAD, mask), ids, 14, END, PAD))


def test_half_precision() -> None:
    ids, decoder = tokens(3), models.gpt(seed=3, dtype=np.float16)
    inputs = greedy_inputs(ids)
    (got,) = run(models.model("GreedySearch", inputs, decoder=decoder, **TOKENS), inputs)
    np.testing.assert_array_equal(got, run(models.model("GreedySearch", inputs, decoder=models.gpt(seed=3), **TOKENS),
                                           inputs)[0])


def test_first_decoder() -> None:
    """init_decoder makes the first token, decoder the others."""
    ids, first, decoder = tokens(3), models.gpt(seed=3), models.gpt(seed=4)
    inputs = greedy_inputs(ids, 7)
    attributes = {"decoder": decoder, "init_decoder": first} | TOKENS
    (got,) = run(models.model("GreedySearch", inputs, **attributes), inputs)
    logits = gpt_model(first, ids, PAD)(ids)
    np.testing.assert_array_equal(got[:, 5], logits.argmax(1))
    np.testing.assert_array_equal(got, ort(models.model("GreedySearch", inputs, **attributes), inputs)[0])


def test_smaller_vocabulary() -> None:
    """Logits behind 'vocab_size' are padding."""
    ids, decoder = tokens(3) % 18, models.gpt(seed=3)
    inputs = greedy_inputs(ids)
    (got,) = run(models.model("GreedySearch", inputs, decoder=decoder, vocab_size=18, **TOKENS), inputs)
    predict = gpt_model(decoder, ids, PAD)
    np.testing.assert_array_equal(got, greedy(lambda s: predict(s)[:, :18], ids, 14, END, PAD))


def test_captured_weights() -> None:
    """convert_generation puts weights that bodies share into the graph around them."""
    ids, decoder = tokens(3), models.gpt(seed=3)
    inputs = greedy_inputs(ids)
    model = models.model("GreedySearch", inputs, decoder=decoder, **TOKENS)
    (want,) = run(model, inputs)
    body = model.graph.node[0].attribute[0].g
    assert len(body.initializer) > 5
    model.graph.initializer.extend(body.initializer)
    del body.initializer[:]
    np.testing.assert_array_equal(run(model, inputs)[0], want)


def test_optimized_file(tmp_path: pathlib.Path) -> None:
    """The bodies keep the names that the operator asks for."""
    ids = tokens(3)
    inputs = beam_inputs(ids)
    model = models.model("BeamSearch", inputs, 2, decoder=models.gpt(seed=3), **TOKENS)
    source, optimized = tmp_path / "model.onnx", tmp_path / "optimized.onnx"
    onnx.save(model, source)
    tensorbox.optimize(source, optimized)
    decoder = next(a.g for a in onnx.load(optimized).graph.node[0].attribute if a.name == "decoder")
    assert [i.name for i in decoder.input][:4] == ["input_ids", "position_ids", "attention_mask", "past_0"]
    assert [o.name for o in decoder.output] == ["logits", "present_0", "present_1"]
    check_beams(run(onnx.load(optimized), inputs), run(model, inputs))


def test_no_rows() -> None:
    inputs = greedy_inputs(np.zeros((0, 5), np.int32))
    (got,) = run(models.model("GreedySearch", inputs, decoder=models.gpt(), **TOKENS), inputs)
    assert got.shape == (0, 14)


def sampling(inputs: Inputs, outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    return models.model("Sampling", inputs, outputs, decoder=models.gpt(seed=3), **TOKENS, **attributes)


def test_sampling_by_seed() -> None:
    ids = tokens(3)
    drawn = []
    for seed in (1, 1, 987654321):
        inputs = greedy_inputs(ids, seed=one(seed))
        drawn.append(run(sampling(inputs, top_p=0.9, temperature=2.0), inputs)[0])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()


def test_sampling_distribution() -> None:
    """The first token of many equal sequences; tokens outside of top_p are never drawn."""
    count, top_p = 4000, 0.8
    ids = np.tile(tokens(3, 1), (count, 1))
    inputs = greedy_inputs(ids, 6, seed=one(11))
    got, filtered = run(sampling(inputs, 2, top_p=top_p, filter_value=-1e20), inputs)
    logits = gpt_model(models.gpt(seed=3), ids[:1], PAD)(ids[:1])[0]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    order = np.argsort(p)
    p[order[np.cumsum(p[order]) <= 1 - top_p]] = 0
    p[PAD], p[END] = p[PAD] + p[END], 0
    seen = np.bincount(got[:, 5], minlength=VOCABULARY) / count
    np.testing.assert_allclose(seen, p / p.sum(), atol=5 * np.sqrt(0.25 / count))
    assert (seen[p == 0] == 0).all()
    assert (filtered == np.float32(-1e20)).any(1).all()


def test_presence_penalty() -> None:
    ids = tokens(3)
    forbidden = np.zeros((3, VOCABULARY), np.int32)
    forbidden[:, 5:] = 1
    inputs = greedy_inputs(ids, presence_mask=forbidden, seed=one(1))
    (got,) = run(sampling(inputs, top_p=1.0, presence_penalty=1e6), inputs)
    assert (got[:, 5:] < 5).all()


WHISPER = {"encoder": models.encoder(features=5), "decoder": models.decoder(hidden=False, mask=False), "model_type": 2,
           "decoder_start_token_id": START, "beginning_timestamp_token_id": 15, "no_timestamps_token_id": 14,
           "start_of_lm_token_id": 13, "translate_token_id": 5, "transcribe_token_id": 6, "no_speech_token_id": 7}
WHISPER_BODIES = {name: WHISPER[name] for name in ("encoder", "decoder", "model_type", "decoder_start_token_id")}
FEATURES = np.random.default_rng(2).standard_normal((2, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("given", [False, True])
def test_whisper(given: bool) -> None:
    prompt = tokens(4, 2, 3) if given else np.full((2, 1), START, np.int32)
    inputs = beam_inputs(FEATURES, decoder_input_ids=prompt if given else None, temperature=real(0.7))
    model = models.model("WhisperBeamSearch", inputs, 2, **WHISPER, **TOKENS)
    predict = encoder_model(WHISPER["encoder"], WHISPER["decoder"], [FEATURES], prompt)
    check_beams(run(model, inputs), beam_search(predict, prompt, 14, 3, 2, END, PAD, temperature=0.7))


def test_whisper_as_beam_search() -> None:
    """Older tools write the operator of the other models."""
    prompt = tokens(4, 2, 3)
    inputs = beam_inputs(FEATURES, decoder_input_ids=prompt, min_length=one(0), length_penalty=real(1))
    model = models.model("BeamSearch", inputs, 2, **WHISPER_BODIES, **TOKENS)
    predict = encoder_model(WHISPER["encoder"], WHISPER["decoder"], [FEATURES], prompt)
    want = beam_search(predict, prompt, 14, 3, 2, END, PAD)
    got = run(model, inputs)
    check_beams(got, want)
    check_beams(got, ort(model, inputs))


def test_timestamps() -> None:
    inputs = beam_inputs(FEATURES, logits_processor=one(1), min_length=one(0), length_penalty=real(1))
    model = models.model("WhisperBeamSearch", inputs, 2, **WHISPER, **TOKENS)
    got = run(model, inputs)
    for sequence in got[0].reshape(-1, 14):
        times = sequence[sequence >= 15]
        assert (np.diff(times) >= 0).all()
        assert not np.isin(sequence, [13, 14]).any()
    check_beams(got, ort(model, inputs))


def test_no_speech() -> None:
    prompt = tokens(4, 2, 3)
    inputs = beam_inputs(FEATURES, decoder_input_ids=prompt)
    model = models.model("WhisperBeamSearch", inputs, 5, left_out=(1, 2, 3), **WHISPER, **TOKENS)
    logits = encoder_model(WHISPER["encoder"], WHISPER["decoder"], [FEATURES], prompt)(prompt)
    p = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(run(model, inputs)[1], p[:, 7] / p.sum(1), rtol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_scores_as_onnxruntime(seed: int) -> None:
    rng = np.random.default_rng(seed)
    beams, max_length = int(rng.integers(1, 6)), int(rng.integers(7, 16))
    some, first = masks(seed, 3)
    inputs = beam_inputs(tokens(seed), beams, max(1, beams - 1), max_length, length_penalty=real(rng.uniform(0, 2)),
                         min_length=one(seed),
                         repetition_penalty=real(rng.uniform(0.7, 1.5)), vocab_mask=some,
                         prefix_vocab_mask=first if seed % 2 else None)
    model = models.model("BeamSearch", inputs, 3, decoder=models.gpt(seed=seed), no_repeat_ngram_size=seed % 3, **TOKENS)
    got, want = run(model, inputs), ort(model, inputs)
    check_beams(got, want)
    assert got[2].shape == want[2].shape == (max_length - 5, 3, beams, VOCABULARY)
    np.testing.assert_allclose(got[2][:2], want[2][:2], rtol=1e-4, atol=1e-3)  # the last may be reached by neither


@pytest.mark.parametrize("compiled", [False, True])
def test_fused_decoder_as_onnxruntime(compiled: bool) -> None:
    inputs = beam_inputs(tokens(2), min_length=one(3), length_penalty=real(1))
    model = models.model("BeamSearch", inputs, 2, decoder=models.fused_gpt(), **TOKENS)
    check_beams(run(model, inputs, compile=compiled), ort(model, inputs))


@pytest.mark.parametrize("seed", range(6))
def test_sampling_as_onnxruntime(seed: int) -> None:
    inputs = greedy_inputs(tokens(seed), seed=one(seed * 123456789 % 2**31))
    model = sampling(inputs, top_p=[0.0, 0.5, 0.8, 0.95][seed % 4], temperature=[1.0, 3.0][seed % 2],
                     min_tokens_to_keep=seed % 3, custom=int(seed > 3))
    np.testing.assert_array_equal(run(model, inputs)[0], ort(model, inputs)[0])


def without(graph: onnx.GraphProto, inputs: int = 0, outputs: int = 0) -> onnx.GraphProto:
    """With so many inputs or outputs less."""
    changed = onnx.GraphProto()
    changed.CopyFrom(graph)
    del changed.input[len(changed.input) - inputs :], changed.output[len(changed.output) - outputs :]
    return changed


def renamed(graph: onnx.GraphProto, old: str, new: str) -> onnx.GraphProto:
    return onnx.GraphProto.FromString(graph.SerializeToString().replace(old.encode(), new.encode()))


IDS = tokens(0)
BAD_INPUTS = {
    "max_length' is -3": {"max_length": one(-3)},
    "max_length' is 5, expected more than the 5": {"max_length": one(5)},
    "at most 4096": {"max_length": one(2000000000)},
    "num_beams' is 0": {"num_beams": one(0)},
    "num_beams' is 1000000": {"num_beams": one(1000000)},
    "num_return_sequences' is 4, expected 1 to the 3": {"num_return_sequences": one(4)},
    "num_return_sequences' is 0": {"num_return_sequences": one(0)},
    "min_length' is 14": {"min_length": one(14)},
    "repetition_penalty' is 0": {"repetition_penalty": real(0)},
    "vocab_mask' is for 22 tokens": {"vocab_mask": np.ones(22, np.int32)},
    r"prefix_vocab_mask' has the shape \[2, 23\]": {"prefix_vocab_mask": np.ones((2, 23), np.int32)},
    "attention_mask' has another shape": {"attention_mask": np.ones((3, 6), np.int32)},
    "expected one number": {"num_beams": np.array([1, 2], np.int32)},
    "no token to start with": {"input_ids": np.zeros((3, 0), np.int32)},
}


@pytest.mark.parametrize("message", BAD_INPUTS)
def test_bad_inputs(message: str) -> None:
    bad = BAD_INPUTS[message]
    inputs = [(name, bad.get(name, value)) for name, value in beam_inputs(IDS)]
    model = models.model("BeamSearch", inputs, 2, decoder=models.gpt(), **TOKENS)
    with pytest.raises(tensorbox.ModelError, match=message) as error:
        run(model, inputs)
    assert "node 'generate' (com.microsoft.BeamSearch" in str(error.value)


GPT, T5 = models.gpt(), {"model_type": 1, "decoder_start_token_id": START, "encoder": models.encoder()}
BAD_MODELS: dict[str, dict[str, Any]] = {
    "'eos_token_id' is missing": {"eos_token_id": None},
    "'eos_token_id' is 23, the vocabulary has 23": {"eos_token_id": 23},
    "'pad_token_id' is -1": {"pad_token_id": -1},
    "'decoder' is missing": {"decoder": None},
    "'model_type' is 3": {"model_type": 3},
    "'vocab_size' is 24, there are 23": {"vocab_size": 24},
    "'no_repeat_ngram_size' is -1": {"no_repeat_ngram_size": -1},
    "'encoder' is missing": {"model_type": 1},
    "named 'position_idx', expected 'position_ids'": {"decoder": renamed(GPT, "position_ids", "position_idx")},
    "5 inputs and 2 outputs": {"decoder": without(GPT, outputs=1)},
    "named 'encoder_attention_mask', expected 'position_ids'": {"decoder": models.decoder()},
    "'decoder_start_token_id' is missing": T5 | {"decoder": models.decoder(), "decoder_start_token_id": -1},
    "for the 1 layers": T5 | {"decoder": models.decoder(), "encoder": models.encoder(2)},
    "the encoder has 3 inputs and 9 outputs": T5 | {"decoder": models.decoder(2), "encoder": without(models.encoder(2), 0, 1)},
}


@pytest.mark.parametrize("message", BAD_MODELS)
def test_bad_models(message: str) -> None:
    inputs = beam_inputs(IDS)
    attributes = {"decoder": GPT} | TOKENS | BAD_MODELS[message]
    model = models.model("BeamSearch", inputs, 2, **{k: v for k, v in attributes.items() if v is not None})
    with pytest.raises(tensorbox.ModelError, match=message):
        run(model, inputs)


def test_refused() -> None:
    inputs = greedy_inputs(IDS)
    attributes: dict[str, Any] = T5 | {"decoder": models.decoder()} | TOKENS
    with pytest.raises(tensorbox.UnsupportedError, match="BeamSearch with one beam"):
        run(models.model("GreedySearch", inputs, **attributes), inputs)
    shared = models.gpt()
    shared.input.append(onnx.helper.make_tensor_value_info("past_sequence_length", models.INT, [1]))
    with pytest.raises(tensorbox.UnsupportedError, match="past_present_share_buffer"):
        run(models.model("GreedySearch", inputs, decoder=shared, **TOKENS), inputs)


def test_limits() -> None:
    """Memory for the scores of all steps, and time."""
    inputs = beam_inputs(IDS, 128, 1, 4096)
    model = models.model("BeamSearch", inputs, 3, decoder=models.gpt(), **TOKENS)
    with pytest.raises(tensorbox.ModelError, match="the limit is 10000000"):
        run(model, inputs, max_memory=10_000_000)
    with pytest.raises(tensorbox.ModelError, match="longer than the limit of 100 ms"):
        run(models.model("BeamSearch", inputs, 2, decoder=models.gpt(), min_length=1, **TOKENS), inputs, time_limit_ms=100,
            load_time_limit_ms=60_000)
