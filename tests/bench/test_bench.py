"""The benchmark's bookkeeping: ratios, verdicts, failing engines, and the page made from them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "zoo")]

import compare  # noqa: E402
import decoding  # noqa: E402
import engine_process  # noqa: E402
import engines  # noqa: E402
import machine  # noqa: E402
import peak  # noqa: E402
import performance  # noqa: E402
import performance_page  # noqa: E402
import performance_targets  # noqa: E402
import status  # noqa: E402
import workloads  # noqa: E402

TARGETS = json.loads((BENCH / "targets.json").read_text())
FAKE_MODULE = """
import os, time, numpy
__version__ = "fake"
class Session:
    def __init__(self, path, threads, compile):
        if "fails" in os.environ.get("FAKE", ""): raise RuntimeError("no such kernel")
        cache = os.environ.get("TBX_CACHE_DIR")
        if cache and not os.path.isdir(cache):
            os.makedirs(cache); time.sleep(0.3)
    def run(self, feeds):
        time.sleep(0.002)
        return {"y": numpy.zeros(4)}
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A module `tensorbox` that sleeps instead of working."""
    (tmp_path / "tensorbox.py").write_text(FAKE_MODULE)
    monkeypatch.setattr(engine_process, "BUILT_MODULE", tmp_path)
    return monkeypatch


def options(**changes: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"engines": ["tensorbox"], "threads": 2, "rounds": 3, "round_seconds": 0.02, "repeat": 1} | changes
    )


def test_latency_is_that_of_the_engine(fake: pytest.MonkeyPatch) -> None:
    figures = compare.measure_latency("bilstm", options())["tensorbox"]
    assert figures["rounds"] == 3
    assert 2.0 <= figures["min_ms"] <= figures["median_ms"] <= figures["max_ms"]
    assert figures["min_ms"] < 50


def test_a_cold_start_has_an_empty_cache_and_a_warm_one_has_not(fake: pytest.MonkeyPatch) -> None:
    figures = compare.measure_start("bilstm", options())
    assert figures["tensorbox cold"]["start_s"] > 0.3
    assert figures["tensorbox warm"]["start_s"] < figures["tensorbox cold"]["start_s"]
    assert figures["tensorbox warm"]["peak_mib"] >= figures["tensorbox warm"]["before_mib"] > 5


def test_an_engine_that_fails_is_reported_as_failing(fake: pytest.MonkeyPatch) -> None:
    fake.setenv("FAKE", "fails")
    assert "RuntimeError: no such kernel" in compare.measure_latency("bilstm", options())["tensorbox"]["error"]
    start = compare.measure_start("bilstm", options())
    assert set(start) == {"tensorbox cold", "tensorbox warm"}
    assert all("no such kernel" in figures["error"] for figures in start.values())


def test_ratios_are_ours_to_the_yardstick() -> None:
    found = {"tensorbox": {"median_ms": 3.0}, "ort": {"median_ms": 4.0}, "openvino": {"error": "no"}}
    compare._add_ratio(found, "median_ms", "latency_ratio")
    assert found["tensorbox"]["latency_ratio"] == 0.75
    alone = {"tensorbox": {"median_ms": 3.0}, "ort": {"error": "no"}}
    compare._add_ratio(alone, "median_ms", "latency_ratio")
    assert "latency_ratio" not in alone["tensorbox"]


def test_the_machine_is_described() -> None:
    found = machine.describe()
    assert found["cores"] >= 1 and found["memory_gib"] > 0 and 0 <= found["busy_before"] <= 1
    assert found["cpu"] in machine.one_line(found)


@pytest.mark.parametrize(
    ("value", "target", "at_least", "text"),
    [
        (0.84, 0.85, False, "≤ 0.85: met"),
        (0.86, 0.85, False, "≤ 0.85: **missed**"),
        (1200, 1200, True, "≥ 1200: met"),
        (1199, 1200, True, "≥ 1200: **missed**"),
        (None, 1.0, False, "1: **not measured**"),
        (5.0, None, False, ""),
    ],
)
def test_verdicts(value: float | None, target: float | None, at_least: bool, text: str) -> None:
    assert status.verdict(value, target, at_least) == text


def test_the_page_says_what_is_met_and_what_is_missed() -> None:
    latency = {
        "tensorbox": {"min_ms": 1.0, "median_ms": 2.0, "latency_ratio": 0.5},
        "ort": {"min_ms": 3.0, "median_ms": 4.0},
        "openvino": {"min_ms": 2.0, "median_ms": 2.5},
    }
    start = {
        "tensorbox cold": {"start_s": 4.5, "peak_mib": 100.0, "version": "0.1"},
        "tensorbox warm": {"start_s": 0.5, "peak_mib": 90.0, "start_ratio": 2.0, "memory_ratio": 1.1},
        "ort": {"start_s": 0.25, "peak_mib": 81.8, "version": "1.31.1"},
    }
    compared = {
        "machine": machine.describe() | {"busy_after": 0.1},
        "threads": 2,
        "command": "bench/compare.py --engines tensorbox ort",
        "models": {"resnet50": {"latency": latency, "start": start}},
    }
    outcomes = [{"test": "node/a", "status": "pass"}, {"test": "real/b", "status": "crash"}]
    zoo_results = [
        {"model": "resnet50", "status": "pass", "cases": [{"outputs": [{"used": 0.25}]}]},
        {"model": "dlrm", "status": "crash", "message": "SIGSEGV"},
    ]
    slower = {"tensorbox": {"min_ms": 5.0, "median_ms": 6.0, "latency_ratio": 1.5}, "ort": {"error": "no"}}
    other = compared | {"machine": compared["machine"] | {"cpu": "Another"}, "models": {"resnet50": {"latency": slower}}}
    results = {"compare": compared, "conformance": outcomes, "zoo": zoo_results, "others": [other], "tested": "2026-11-23"}
    text = status.page(results, TARGETS)
    for line in (
        "| resnet50 | 1 / 2 | 3 / 4 | 0.50 | ≤ 1: met |",
        "### On Another",
        "| resnet50 | 5 / 6 | fails | 1.50 | ≤ 1: **missed** |",
        "| resnet50 | 4.50 | ≤ 4: **missed** | 0.50 | 0.25 | 2.00 | ≤ 1.5: **missed** | 90 | 82 | 1.10 | ≤ 1.2: met |",
        "| resnet50 | pass | 1 | 25.0% |",
        "| dlrm | crash | 0 |  |",
        "**1 of 2** pass (target ≥ 1200: **missed**)",
        "tensorbox 0.1, ort 1.31.1",
        "conformance and models were tested 2026-11-23",
    ):
        assert line in text, text


def test_workloads_have_forms_and_shapes() -> None:
    found = workloads.parse("gpt2_decode+w8@past_len=5,total_len=6")
    assert (found.model, found.form, found.precision) == ("gpt2_decode", "w8", "int8")
    assert found.inputs()["past_key_values.0.key"].shape == (1, 12, 5, 64)
    for wrong in ("nothing", "resnet50+w3", "gpt2_decode@past_len=x", "gpt2_decode@depth=1"):
        with pytest.raises(ValueError, match="there is no|is no size"):
            workloads.parse(wrong)


def test_any_file_is_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "mine.onnx"
    infos = [("x", onnx.TensorProto.FLOAT, ["batch", 3]), ("ids", onnx.TensorProto.INT64, ["batch", None])]
    weights = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [300, 5], np.ones(1500, np.float32).tobytes(), raw=True)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])], "mine",
        [onnx.helper.make_tensor_value_info(*info) for info in infos],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], [weights])
    onnx.save(onnx.helper.make_model(graph), file, save_as_external_data=True, location="mine.bin")
    found = workloads.parse(f"{file}@batch=4")
    inputs = found.inputs()
    assert {name: (array.dtype.name, array.shape) for name, array in inputs.items()} == {"x": ("float32", (4, 3)), "ids": ("int64", (4, 1))}
    assert set(np.unique(inputs["ids"])) <= {0, 1} and found.precision == "f32" and found.references() == {}
    assert found.files() == [file, tmp_path / "mine.bin"]
    for wrong, message in ((f"{file}@depth=1", "depth=1 is no size"), (str(tmp_path / "none.onnx"), "No such file")):
        with pytest.raises(ValueError, match=message):
            workloads.parse(wrong)
    with pytest.raises(SystemExit):
        compare.main(["--models", f"{file}@depth=1"])


def test_a_stopped_run_goes_on(fake: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    told = ["--models", "bilstm", "--engines", "tensorbox", "--rounds", "1", "--round-seconds", "0.01", "--json", str(file)]
    compare.main([*told, "--measure", "latency"])
    first = json.loads(file.read_text())["models"]["bilstm"]
    compare.main([*told, "--measure", "latency", "callers", "--resume"])
    second = json.loads(file.read_text())["models"]["bilstm"]
    assert second["latency"] == first["latency"] and set(second) == {"latency", "callers"}


def test_peers_that_are_wrong_are_no_yardstick() -> None:
    right, wrong = {"check": {"used": 0.5}}, {"check": {"used": 2.0}}
    found = {
        "tensorbox": {"min_ms": 2.0, "median_ms": 3.0} | right,
        "ort": {"min_ms": 4.0, "median_ms": 4.0} | right,
        "openvino": {"min_ms": 1.0, "median_ms": 1.0} | wrong,
        "torch": {"error": "no torch form"},
    }
    compare._add_peer_ratios(found)
    assert (found["tensorbox"]["best_min_ms"], found["tensorbox"]["peer_ratio_median_ms"]) == ("ort", 0.75)


def test_where_nobody_is_right_the_ratio_is_marked() -> None:
    wrong = {"check": {"used": 2.0}}
    found = {"tensorbox": {"min_ms": 2.0, "median_ms": 3.0} | wrong, "ort": {"min_ms": 4.0, "median_ms": 4.0} | wrong, "openvino": {"error": "no"}}
    compare._add_peer_ratios(found)
    assert performance_page._ratio(found) == "0.50 / 0.75 of ONNX Runtime, nobody right"
    ours_right = {"tensorbox": {"min_ms": 2.0, "median_ms": 3.0, "check": {"used": 0.5}}, "ort": {"min_ms": 4.0, "median_ms": 4.0} | wrong}
    compare._add_peer_ratios(ours_right)
    assert performance_page._ratio(ours_right) == ""


def test_targets_say_what_was_missed_and_what_the_machine_cannot_measure() -> None:
    def entry(ratio: float, ms: float = 10) -> dict[str, object]:
        ours = {"min_ms": ms, "peer_ratio_min_ms": ratio}
        timed = {"tensorbox": ours, "tensorbox_bf16": {"min_ms": ms / 2}, "ort": {"min_ms": ms / ratio * 1.25}}
        return {"latency": timed, "work": {"tensorbox": {"product_flops": 9e6}}}

    models = {"resnet50": entry(0.5), "dlrm": entry(1.1), "resnet50_int8_qdq": entry(0.8), "efficientnet_b0+qdq": entry(0.9)}
    where = {"isa": ["avx512_vnni", "avx512_bf16"]}
    results = {"models": {"models": models, "machine": where, "threads": 2}}
    table = performance_targets.rows(results, ["resnet50", "dlrm"], {"f32_flops": 1e9}, 2)
    rows = {row[0]: row[2:] for row in table}
    assert rows["f32, 2 threads, to the best peer"] == ["mean 0.74, worst 1.10 (dlrm), 2 models", "**missed**"]
    assert rows["time / time of its arithmetic"] == ["mean 1.11, worst 1.11 (resnet50), 1 models", "met"]
    assert rows["bf16 on AMX to OpenVINO's default"][1] == "this machine has no AMX"
    assert rows["bf16 on AVX512-BF16 without AMX to our own f32"][1] == "met"
    assert rows["8 bits (VNNI) to the best peer"][1] == "met"
    assert rows["8 bits on AMX to the best peer"][1] == "this machine has no AMX"
    slow = performance_targets.rows(results, [], {"f32_flops": 1e9, "bf16_flops": 5e8}, 2)
    told = next(row for row in slow if row[0] == "bf16 on AVX512-BF16 without AMX to our own f32")
    assert told[2:] == ["mean 0.50, worst 0.50 (resnet50), 1 models", "no target: this machine multiplies float32 faster"]
    assert rows["f32, 16 threads, to ONNX Runtime"][1] == "this machine has 2 cores"
    assert rows["decoding token after token to the best peer"][1] == rows["cold start, seconds"][1] == "not measured"
    for begin, cause in performance_targets.CAUSES.items():
        concerned = [[*row[:3], "**missed**"] for row in table if row[0].startswith(begin)]
        assert len(concerned) == 1 and performance_targets.causes([*concerned, ["others", "", "", "met"]]) == [f"- {concerned[0][0]}: {cause}"]
    there = {"cpu": "Big", "cpu_id": "model 7", "cores": 16, "date": "2026-01-02 10:00 UTC"}
    others = {"threads_16": {"models": {"dlrm": entry(0.75), "vit_b_16": entry(0.5)}, "machine": there},
              "amx_bf16": {"models": {"resnet50_int8_qdq": entry(1.05)}, "machine": there}}
    rows = {row[0]: row[2:] for row in performance_targets.rows(results, [], {"f32_flops": 1e9}, 2, others)}
    told = "Big, model 7, 16 cores, 2026-01-02: mean 0.49, worst 0.60 (dlrm), 2 models"
    assert rows["f32, 16 threads, to ONNX Runtime"] == [told, "met"]
    told = "Big, model 7, 16 cores, 2026-01-02: mean 1.05, worst 1.05 (resnet50_int8_qdq), 1 models"
    assert rows["8 bits on AMX to the best peer"] == [told, "**missed**"]
    on_amx = {"models": results["models"] | {"machine": {"isa": ["amx_bf16", "amx_int8"]}}}
    rows = {row[0]: row[2:] for row in performance_targets.rows(on_amx, [], {"f32_flops": 1e9}, 2)}
    assert rows["bf16 on AVX512-BF16 without AMX to our own f32"][1] == "this machine has AMX"
    assert rows["8 bits (AMX) to the best peer"][1] == "met"


def test_a_quick_run_is_a_part_of_the_whole() -> None:
    whole, quick = performance.parts(), performance.parts(quick=True)
    assert whole.keys() == quick.keys()
    assert all(set(quick[name]) <= set(whole[name]) for name in whole) and len(quick["decode"]) < len(whole["decode"])


def test_steps_of_a_decoder_grow_and_begin_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[object] = []

    class Recorder:
        def __init__(self, path: Path, options: object, caches: dict[str, np.ndarray], longest: int) -> None:
            told.append((len(caches), next(iter(caches.values())).shape[2], longest))

        def reset(self) -> None:
            told.append("reset")

        def step(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            told.append(feeds["attention_mask"].shape[1])
            return {"logits": feeds["input_ids"].astype(np.float32)}

    monkeypatch.setitem(decoding.DECODERS, "ort", Recorder)
    monkeypatch.setattr(workloads.Workload, "path", lambda self: tmp_path)
    decoder = decoding.Decoding("ort", workloads.parse("llama100m_decode@past_len=5,total_len=6"), engines.LoadOptions())
    tokens = [feeds["input_ids"].item() for feeds in decoder.feeds]
    assert len(set(tokens)) > 1 and 0 <= min(tokens) <= max(tokens) < 32000
    assert all((feeds["attention_mask"] == 1).all() for feeds in decoder.feeds)
    for _ in range(decoding.STEPS):
        decoder.prepare()
        decoder.step()
    steps = list(range(6, 6 + decoding.STEPS))
    longest = told[0][2]  # type: ignore[index]
    assert told[0] == (24, 5, longest) and longest >= 5 + decoding.STEPS
    assert told[1:] == ["reset", *steps, "reset", 6, 7]
    told.clear()
    assert decoder.outputs()["logits"].item() == tokens[2] and told == ["reset", 6, 7, 8]
    decoder.prepare()
    assert told[4:] == ["reset", 6]
    with pytest.raises(ValueError, match="nobody decodes"):
        decoding.Decoding("ort", workloads.parse("bilstm"), engines.LoadOptions())


def test_charts_mark_what_is_slower() -> None:
    chart = performance_page.bars("ratios <1>", {"a": 0.5, "b": 2.0})
    assert chart.count("#2b7a3d") == chart.count("#b5482f") == 1 and "ratios &lt;1&gt;" in chart


def test_peak_of_this_machine() -> None:
    """It is compiled for this machine, and reads no slower than a disk; 3 threads divide nothing evenly."""
    for threads in (1, 3):
        found = peak.measure(threads, 0.02)
        assert found["threads"] == threads and 1e8 < found["bytes"] < 1e13
        assert all(1e8 < rate < 1e15 for name, rate in found.items() if name.endswith("_flops"))
        written = {name: rate for name, rate in found.items() if name in ("own_bytes", "neighbour_bytes")}
        assert len(written) == (0 if threads == 1 else 2) and all(1e6 < rate < 1e13 for rate in written.values())
    one, two = {"threads": 1, "bytes": 3.0, "f32_flops": 5.0}, {"threads": 2, "bytes": 4.0, "f32_flops": 9.0}
    assert peak.best([one, two], [one | {"bytes": 2.0}, two | {"bytes": 6.0}]) == [one, two | {"bytes": 6.0}]
