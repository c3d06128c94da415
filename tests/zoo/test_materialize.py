"""The zoo's light forms make exactly the recorded weights, once, also for many callers at a time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zoo

SMALL_MODELS = ["bilstm", "bigru", "membound_pointwise", "ssdlite320_mobilenet_v3"]


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_weights_have_the_recorded_checksum(name: str, tmp_path: Path) -> None:
    zoo.materialize.materialize(zoo.LIGHT_ROOT / name, tmp_path)
    digest = hashlib.sha256((tmp_path / "weights.bin").read_bytes()).hexdigest()
    assert digest == zoo.index()[name]["weights_sha256"]


def test_index_and_folders_name_the_same_models() -> None:
    assert sorted(zoo.names()) == zoo.materialize.known_models()
    assert len(zoo.names("fp32")) == 16


def test_a_stream_changes_random_inputs_and_nothing_else() -> None:
    spec = zoo.spec("dlrm")
    first, again = (zoo.materialize.make_inputs(spec) for _ in range(2))
    other = zoo.materialize.make_inputs(spec, "other:")
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert other[name].shape == array.shape
        assert not np.array_equal(other[name], array)


def test_callers_at_the_same_time_get_one_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, zoo.__file__, "bilstm"]
    callers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    folders = {caller.communicate(timeout=60)[0].strip() for caller in callers}
    assert [caller.returncode for caller in callers] == [0] * 4
    assert folders == {str(zoo.folder("bilstm"))}
    made = Path(folders.pop())
    assert {p.name for p in made.parent.iterdir()} == {"bilstm", ".lock"}
    assert hashlib.sha256((made / "weights.bin").read_bytes()).hexdigest() == (
        zoo.index()["bilstm"]["weights_sha256"]
    )


def test_an_unknown_model_is_named_in_the_error() -> None:
    with pytest.raises(KeyError, match="no zoo model 'nothing'"):
        zoo.folder("nothing")
