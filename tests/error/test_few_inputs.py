"""Every operator that ONNX has no schema for, in every version, with too few inputs and with inputs left out: nothing that
checks a model knows how many it needs, so its lowering has to look."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper

tensorbox = pytest.importorskip("tensorbox")

from bad_models import Job, run  # noqa: E402: they need the module, too
from base_models import BaseModel  # noqa: E402
from mutations import Mutant  # noqa: E402

VALUES = {"f": np.ones((2, 4, 8), np.float32), "i": np.ones((2, 4), np.int32), "b": np.ones((2, 4), np.uint8)}
# What is given, in order; "-" is an input left out.
GIVEN = ["", "-", "f", "-f", "fi", "f--f", "iff"]


def jobs() -> Iterator[Job]:
    for operator in tensorbox.operators():
        domain, name, versions = operator[0], operator[1], operator[2]
        if domain in ("", "ai.onnx", "ai.onnx.ml") or domain.startswith("ai.onnx.preview"):
            continue
        for version in versions:
            for given in GIVEN:
                names = ["" if kind == "-" else f"{kind}{i}" for i, kind in enumerate(given)]
                feeds = {n: VALUES[n[0]] for n in names if n}
                node = helper.make_node(name, names, ["y"], name="bad", domain=domain)
                infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                         for n, v in feeds.items()]
                graph = helper.make_graph([node], name, infos, [onnx.ValueInfoProto(name="y")])
                model = helper.make_model(graph, ir_version=9, opset_imports=[
                    helper.make_opsetid("", 20), helper.make_opsetid(domain, version)])
                base = BaseModel(f"{domain}_{name}", model, tuple(feeds.values()))
                yield Job(base, Mutant(f"given '{given}', version {version}", lambda model=model, feeds=feeds: (model, feeds)))


def test_too_few_inputs_are_an_error_of_the_model() -> None:
    outcomes = list(run(jobs()))
    assert len(outcomes) > 600
    bad = [f"{o.status} {o.job}\n  {o.message}" for o in outcomes if not o.good]
    assert not bad, "\n".join(bad)
