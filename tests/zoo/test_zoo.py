"""The models of the zoo, run by tensorbox, agree with ONNX Runtime in every configuration.

manifest.json lists, per configuration, the models that are known not to pass, each with its reason. A listed model
that passes is a failure of this test: take it off the list.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engines
import zoo
from check_model import Task
from run_zoo import run_model, summary

CONFIGURATIONS = {
    "compiled": {},
    "evaluator": {"compile": False},
    "avx2": {"isa": "avx2"},
    "sse": {"isa": "sse"},
}
EXPECTED_FAILURES: dict[str, dict[str, str]] = json.loads(
    Path(__file__).with_name("manifest.json").read_text()
)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("model", zoo.names())
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_model_agrees(model: str, configuration: str) -> None:
    engines.import_engine("tensorbox")
    result = run_model(Task(model, **CONFIGURATIONS[configuration]))
    reason = EXPECTED_FAILURES[configuration].get(model)
    if reason is None:
        assert result["status"] == "pass", summary(result)
    else:
        assert result["status"] != "pass", f"passes: take it off {configuration} in manifest.json ({reason})"
        pytest.xfail(reason)


def test_manifest_names_only_what_exists() -> None:
    assert EXPECTED_FAILURES.keys() == CONFIGURATIONS.keys()
    for models in EXPECTED_FAILURES.values():
        assert set(models) <= set(zoo.names())
        assert all(models.values()), "every expected failure needs a reason"
