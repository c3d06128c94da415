"""A seeded part of the spoilt models of mutate.py: each is refused by an error that names its node, or runs."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("tensorbox")

from bad_models import Job, Outcome, judge, run  # noqa: E402: they need the module, too
from base_models import all_models  # noqa: E402
from mutate import choose  # noqa: E402
from mutations import Mutant  # noqa: E402
from optional_models import missing  # noqa: E402

PART = 33  # one of so many: about three thousand models in a minute


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return list(run(choose(PART)))


def test_every_error_names_node_and_operator(outcomes: list[Outcome]) -> None:
    bad = [f"{o.status} {o.job}\n  {o.message}" for o in outcomes if not o.good]
    assert not bad, "\n".join(bad)


def test_all_operators_are_there(outcomes: list[Outcome]) -> None:
    assert len({o.job.base.operator for o in outcomes}) > 190
    assert sum(o.status == "refused" for o in outcomes) > len(outcomes) / 4


def test_the_models_are_good_unspoilt() -> None:
    bad = []
    for base in all_models():
        feeds = {i.name: value for i, value in zip(base.model.graph.input, base.inputs, strict=True)}
        status, message = judge(Job(base, Mutant("nothing", lambda base=base, feeds=feeds: (base.model, feeds))))
        if status != "ran":
            bad.append(f"{base.name}: {message}")
    assert not bad, "\n".join(bad)


def test_no_two_models_have_one_name() -> None:
    names = Counter(base.name for base in all_models())
    assert not [name for name, count in names.items() if count > 1]


NOT_GIVEN = {  # refused where they are given, or read by nobody
    "DecoderMaskedMultiHeadAttention": {"cache_indirection"},
    "MultiHeadAttention": {"cache_indirection"},
    "QMoE": {"fc1_global_scale", "fc2_global_scale", "fc1_act_scale", "fc2_act_scale", "fc1_act_block_scale", "fc2_act_block_scale"},
    "WhisperBeamSearch": {"cross_qk_layer_head", "extra_decoding_ids"},
}


def test_every_input_is_given() -> None:
    """Of each operator that a schema knows, ONNX's or ONNX Runtime's, every input is in some model, so that it is spoilt."""
    import onnx
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    schemas = [*onnx.defs.get_all_schemas(), *(s for s in get_all_operator_schema() if s.domain == "com.microsoft")]
    refused = {f"com.microsoft {op}: {name}" for op, names in NOT_GIVEN.items() for name in names}
    assert set(missing(all_models(), schemas)) == refused
