"""Generated cases: each version and type of each operator agrees with ONNX Runtime or onnx.reference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

HERE = Path(__file__).resolve().parent
pytest.importorskip("tensorbox")
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

import agreement  # noqa: E402
import recipes  # noqa: E402
import references  # noqa: E402
from builder import Skip  # noqa: E402
from targets import DOMAINS, all_targets  # noqa: E402

COMPILED_SHARE = 30  # of the targets one in so many also runs with generated kernels
recipes.load()


def run(*arguments: str) -> None:
    command = [sys.executable, str(HERE / "run_generated.py"), *arguments]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800)
    assert result.returncode == 0, result.stdout[-5000:]


@pytest.mark.timeout(900)
def test_every_operator_version_and_type() -> None:
    run("--samples", "4")  # as known.txt was made; an entry that nothing needs fails it


def test_needless_entries_are_found(tmp_path: Path) -> None:
    if references.onnxruntime is None:
        pytest.skip("without ONNX Runtime entries are not asked whether they are needed")
    needed, needless = "Cast-23/T1=bool,T2=string differs onnx.reference: is wrong\n", "Abs-13/T=float differs onnx.reference: is wrong\n"
    (tmp_path / "known.txt").write_text(needed)
    chosen = ("--known", str(tmp_path / "known.txt"), "--filter", "^(Cast-23/T1=bool,T2=string|Abs-13/T=float)$")
    run(*chosen)
    (tmp_path / "known.txt").write_text(needed + needless)
    with pytest.raises(AssertionError, match="STALE     Abs-13/T=float: nothing"):
        run(*chosen)


def test_zeros_are_no_sum_however_long() -> None:
    want = np.linspace(0.5, 1, 50)
    for kind in (onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT):
        zeros = np.zeros(50, onnx.helper.tensor_dtype_to_np_dtype(kind))
        assert agreement.difference(zeros, want, kind, 100_000)


@pytest.mark.timeout(900)
def test_some_with_generated_kernels() -> None:
    run("--options", "{}", "--share", str(COMPILED_SHARE), "--keep-stale")


def test_targets_bind_every_type_of_every_schema() -> None:
    bound = {(t.operator, t.schema.since_version, *pair) for t in all_targets() for pair in t.types}
    tied = {"S", "O", "V"}  # sequences of and optionals of another parameter
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain not in DOMAINS or schema.deprecated:
            continue
        operator = ".".join(filter(None, (schema.domain, schema.name)))
        for constraint in schema.type_constraints:
            for kind in constraint.allowed_type_strs:
                if constraint.type_param_str not in tied:
                    assert (operator, schema.since_version, constraint.type_param_str, kind) in bound


def test_cases_depend_on_their_name_alone() -> None:
    for target in all_targets()[::97]:
        try:
            first, second = recipes.make_case(target), recipes.make_case(target)
        except Skip:
            continue
        assert first.model.SerializeToString() == second.model.SerializeToString()
        assert list(first.feeds) == list(second.feeds)
        assert recipes.make_case(target, 1).name == target.name + "#1"


def test_comparison() -> None:
    single, integer = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
    one = np.ones(3, np.float32)
    near = one + np.float32(2.0**-22)
    assert not agreement.difference(near, one, single, 8)
    assert "3 of 3 differ" in agreement.difference(near, one, single, 1)
    assert not agreement.difference(near, one.astype(np.float64), single, 8)
    assert "type float64" in agreement.difference(one.astype(np.float64), one, single, 8)
    assert "shape (3,) instead of (1, 3)" in agreement.difference(one, one[None], single, 8)
    assert "1 of 3 differ" in agreement.difference(np.array([1, 2, 3], np.int32), np.array([1, 2, 4]), integer, 8)
    assert not agreement.difference([one], [one], single, 8)
    assert agreement.difference([one], [one, one], single, 8)
    assert agreement.difference(None, one, single, 8)
    nan = np.array([np.nan, np.inf], np.float32)
    assert not agreement.difference(nan, nan, single, 8)
    assert agreement.difference(nan, -nan, single, 8)
