"""The targets of docs/performance.md beside what was measured, and what this machine cannot measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

OURS, BF16 = "tensorbox", "tensorbox_bf16"
AT_THE_LIMIT = ["resnet50", "bert_base_s128", "vit_b_16", "whisper_tiny_encoder"]
BELOW_IT = ["sd_unet_small"]  # Winograd multiplies less than its arithmetic says
NARROW = ["resnet50", "bert_base_s128", "vit_b_16", "sd_unet_small", "swin_t", "whisper_tiny_encoder"]
BYTES = ["resnet50_int8_qdq", "mobilenet_v3_large+qdq", "efficientnet_b0+qdq", "bert_base_int8_dynamic"]
# Why targets are missed, by the beginning of their row. `tbx explain MODEL --profile` shows it, step by step.
CAUSES = {
    "time / time of its arithmetic": "products are oneDNN's and our own, near the peak; the rest is softmax, norms and GELU between them, and what one core "
    "waits for that another one has: of a virtual machine these are near each other at one time and far at another.",
    "8 bits (": "resnet50's convolutions are oneDNN's, near the peak; its first one has three channels where vectors have four.",
    "8 bits on AMX": "resnet50's convolutions of 3 x 3 elements are those of oneDNN here, and of a copy of oneDNN with changes in OpenVINO.",
    "decoding token after token": "steps in float32 read the weights as fast as the memory gives them, and so do the peers: what they lose "
    "beside is all that there is to gain. At one time memory gives half of what it gives at another (see below).",
    "the same of one step": "as above; at a past of 1 there is hardly a cache to copy.",
    "runs/s of 4 callers": "of networks with depthwise layers at one thread: most of the time is that of their 1 x 1 convolutions, which are "
    "oneDNN's, and much of the rest is SiLU, bound by its arithmetic.",
    "warm start": "a kept plan leaves reading the files for their hash, packing weights, and the first run, in which oneDNN makes its code, anew in "
    "each process (`Session.stats` has the time before the first run, `tbx bench MODEL` that of the first run).",
    "peak memory": "both hold the weights once, and beside them Python and its libraries.",
}
Entry = dict[str, Any]
Values = dict[str, float]


def mean(values: Iterable[float]) -> float:
    """The geometric mean of ratios."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _of(part: Entry | None, names: Iterable[str] | None, value: Any) -> Values:
    """`value` of the entries of a part, where they have one."""
    models = (part or {"models": {}})["models"]
    found = {name: value(models[name]) for name in (models if names is None else names) if name in models}
    return {name: number for name, number in found.items() if number is not None}


def _peer_ratio(engine: str = OURS, kind: str = "latency") -> Any:
    return lambda entry: entry.get(kind, {}).get(engine, {}).get("peer_ratio_min_ms")


def _ratio_of(engine: str, to: str) -> Any:
    """Of least times, whatever the precision and whether their results are right."""

    def ratio(entry: Entry) -> float | None:
        times = [entry.get("latency", {}).get(name, {}).get("min_ms") for name in (engine, to)]
        return times[0] / times[1] if all(times) else None

    return ratio


def _start(engine: str, key: str) -> Any:
    return lambda entry: entry.get("start", {}).get(engine, {}).get(key)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _row(what: str, target: str, values: Values, most: float, average: float | None = None) -> list[str]:
    """Each value is `most` at most; if `average` is given, their mean is that at most."""
    if not values:
        return [what, target, "", "not measured"]
    worst = max(values, key=lambda name: values[name])
    told = f"mean {mean(values.values()):.2f}, worst {values[worst]:.2f} ({worst}), {len(values)} models"
    met = values[worst] <= most and (average is None or mean(values.values()) <= average)
    return [what, target, told, _verdict(met)]


def _least(what: str, target: str, values: Values, least: float) -> list[str]:
    if not values:
        return [what, target, "", "not measured"]
    worst = min(values, key=lambda name: values[name])
    told = f"mean {mean(values.values()):.2f}, worst {values[worst]:.2f} ({worst}), {len(values)} models"
    return [what, target, told, _verdict(values[worst] >= least)]


def _elsewhere(part: Entry, row: list[str]) -> list[str]:
    """The row of a part that another machine measured."""
    where = part["machine"]
    on = f"{where['cpu']}, {where['cpu_id']}, {where['cores']} cores, {where['date'].split()[0]}: "
    return [*row[:2], on + row[2], row[3]]


def rows(results: dict[str, Any], f32: list[str], peaks: Entry, cores: int, others: dict[str, Entry] | None = None) -> list[list[str]]:
    """What, target, measured, verdict. `f32`: the models of that precision. `others`: parts that other machines measured, for
    what this one cannot: threads_16, amx_bf16."""
    others = others or {}
    models = results["models"]
    isa, threads = models["machine"]["isa"], models["threads"]

    def limit(entry: Entry) -> float | None:
        flops, ours = (entry.get("work", {}).get(OURS, {}).get("product_flops"), entry.get("latency", {}).get(OURS, {}).get("min_ms"))
        return ours / 1e3 * peaks["f32_flops"] / flops if flops and ours else None

    infinite = float("inf")
    decode = results.get("decode")
    found = [
        _row(f"f32, {threads} threads, to the best peer", "mean ≤ 0.75, none above 1", _of(models, f32, _peer_ratio()), 1, 0.75),
        _row("time / time of its arithmetic", "≤ 1.2", _of(models, AT_THE_LIMIT, limit), 1.2),
        _row("the same of networks of 3 × 3 convolutions", "< 1", _of(models, BELOW_IT, limit), 1),
    ]
    amx, plain = "bf16 on AMX to OpenVINO's default", "bf16 on AVX512-BF16 without AMX to our own f32"
    if "amx_bf16" in isa:
        found.append(_row(amx, "mean ≤ 0.9, none above 1.1", _of(models, NARROW, _peer_ratio(BF16)), 1.1, 0.9))
        found.append([plain, "≤ 0.6", "", "this machine has AMX"])
    else:
        part = others.get("amx_bf16")
        row = _row(amx, "mean ≤ 0.9, none above 1.1", _of(part, NARROW, _peer_ratio(BF16)), 1.1, 0.9)
        found.append(_elsewhere(part, row) if part else [*row[:3], "this machine has no AMX"])
        row = _row(plain, "mean ≤ 0.6", _of(models, NARROW, _ratio_of(BF16, OURS)), infinite, 0.6)
        slow = peaks.get("bf16_flops", infinite) < peaks["f32_flops"]
        found.append([*row[:3], "no target: this machine multiplies float32 faster"] if slow else row)
    instructions = "AMX" if "amx_int8" in isa else "VNNI" if "avx512_vnni" in isa else "neither VNNI nor AMX"
    found.append(_row(f"8 bits ({instructions}) to the best peer", "≤ 0.9", _of(models, BYTES, _peer_ratio()), 0.9))
    if "amx_int8" not in isa:
        part = others.get("amx_bf16")
        row = _row("8 bits on AMX to the best peer", "≤ 0.9", _of(part, BYTES, _peer_ratio()), 0.9)
        found.append(_elsewhere(part, row) if part else [*row[:3], "this machine has no AMX"])
    kept = _of(decode, None, _peer_ratio(kind="decode"))
    found.append(_row("decoding token after token to the best peer", "≤ 0.75", kept, 0.75))
    given = "the same of one step that takes and gives the caches"
    found.append(_row(given, "≤ 0.75", _of(decode, None, _peer_ratio()), 0.75))
    many, there = results.get("threads_16"), others.get("threads_16")
    wide = _row("f32, 16 threads, to ONNX Runtime", "mean ≤ 0.75, none above 1", _of(many or there, None, _ratio_of(OURS, "ort")), 1, 0.75)
    found.append(wide if many else _elsewhere(there, wide) if there else [*wide[:3], f"this machine has {cores} cores"])
    found.append(_row("other batches and lengths to the best peer", "none above 1", _of(results.get("shapes"), None, _peer_ratio()), 1))
    rate = lambda entry: entry.get("callers", {}).get(OURS, {}).get("throughput_ratio")  # noqa: E731
    found.append(_least("runs/s of 4 callers × 1 thread to ONNX Runtime's", "≥ 1.1", _of(results.get("callers"), None, rate), 1.1))
    cold = _of(models, None, _start("tensorbox cold", "start_s"))
    late = "ssdlite320_mobilenet_v3"
    small = {name: seconds for name, seconds in cold.items() if name != late}
    found.append(_row("cold start, seconds", "≤ 2", small, 2))
    found.append(_row(f"the same of {late}", "≤ 4", {late: cold[late]} if late in cold else {}, 4))
    found.append(_row("warm start to ONNX Runtime's", "≤ 0.8", _of(models, None, _start("tensorbox warm", "start_ratio")), 0.8))
    found.append(_row("peak memory to ONNX Runtime's", "≤ 0.95", _of(models, None, _start("tensorbox warm", "memory_ratio")), 0.95))
    return found


def causes(table: list[list[str]]) -> list[str]:
    """Why rows are missed, as far as profiles tell."""
    missed = [what for what, _, _, verdict in table if verdict == _verdict(met=False)]
    return [f"- {what}: {cause}" for what in missed for begin, cause in CAUSES.items() if what.startswith(begin)]
