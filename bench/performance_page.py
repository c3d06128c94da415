"""docs/performance.md out of what bench/performance.py measured: tables, charts as SVG, and what was not measured."""

from __future__ import annotations

from html import escape
from typing import Any

import machine
import performance_targets

OURS, BF16 = "tensorbox", "tensorbox_bf16"
NAMES = {"ort": "ONNX Runtime", "openvino": "OpenVINO f32", "openvino_default": "OpenVINO default", "torch": "torch.compile"}
FLOPS = {"f32": "f32_flops", "fp16": "f32_flops", "int8": "int8_flops", "int4": "f32_flops"}
PEAKS = ("f32_flops", "bf16_flops", "int8_flops", "bytes", "own_bytes", "neighbour_bytes")
Entry = dict[str, Any]


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A table of Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return ["| " + " | ".join(header) + " |", "|---" * len(header) + "|", *lines]


def bars(title: str, values: dict[str, float], line: float = 1.0) -> str:
    """Horizontal bars with a line at `line`: shorter is better."""
    high, left, right, width = 18, 250, 60, 420
    scale = width / max([*values.values(), line * 1.05])
    height = 40 + high * len(values)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + right}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(values.items()):
        y = 30 + number * high
        colour = "#2b7a3d" if value <= line else "#b5482f"
        parts.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 2}" width="{value * scale:.1f}" height="{high - 5}" fill="{colour}"/>')
        parts.append(f'<text x="{left + value * scale + 4:.1f}" y="{y + 12}">{value:.2f}</text>')
    x = left + line * scale
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="26" y2="{height - 6}" stroke="#333" stroke-dasharray="3 3"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _times(figures: Entry | None) -> str:
    if not figures:
        return ""
    if "error" in figures:
        return "fails"
    wrong = " (wrong)" if figures["check"]["used"] > 1 else ""
    return f"{figures['min_ms']:.3g} / {figures['median_ms']:.3g}{wrong}"


def _ratio(latency: Entry, engine: str = OURS) -> str:
    figures = latency.get(engine, {})
    if "peer_ratio_min_ms" not in figures:
        return ""
    best = NAMES[figures["best_min_ms"]]
    nobody = ", nobody right" if figures.get("all_wrong") else ""
    return f"{figures['peer_ratio_min_ms']:.2f} / {figures['peer_ratio_median_ms']:.2f} of {best}{nobody}"


def _floor(entry: Entry, flops_per_s: float | None, peaks: Entry) -> list[str]:
    """Time of the arithmetic, of the bytes, and what our time is beyond the larger of the two, in ms."""
    work, ours = entry.get("work", {}).get(OURS, {}), entry.get("latency", {}).get(OURS, {})
    if work.get("product_flops") is None or "min_ms" not in ours or not flops_per_s:
        return ["", "", "", ""]
    arithmetic, bytes_ms = work["product_flops"] / flops_per_s * 1e3, work["product_bytes"] / peaks["bytes"] * 1e3
    floor = max(arithmetic, bytes_ms)
    if floor == 0:  # no products: kernels of our own alone
        return ["0", "0", "", ""]
    return [f"{arithmetic:.3g}", f"{bytes_ms:.3g}", f"{ours['min_ms'] - floor:.3g}", f"{ours['min_ms'] / floor:.2f}"]


def _entries(part: Entry | None, precision: dict[str, str], wanted: set[str]) -> dict[str, Entry]:
    """Models of a part whose file has one of the precisions; forms are int8."""
    if part is None:
        return {}
    of = {n: precision[n.split("@")[0]] if "+" not in n else "int8" for n in part["models"]}
    return {n: e for n, e in part["models"].items() if of[n] in wanted}


def _speed(entries: dict[str, Entry], peaks: Entry, kind: str, peers: list[str]) -> list[str]:
    rows = []
    for name, entry in entries.items():
        latency = entry.get("latency", {})
        cells = [_times(latency.get(engine)) for engine in (OURS, *peers)]
        rows.append([name, *cells, _ratio(latency), *_floor(entry, peaks.get(kind), peaks)])
    header = ["model", "tensorbox", *(NAMES[p] for p in peers), "ratio to the best"]
    return table([*header, "arithmetic", "bytes", "rest", "time / limit"], rows)


def _ratios(entries: dict[str, Entry], engine: str = OURS) -> dict[str, float]:
    found = {n: e.get("latency", {}).get(engine, {}).get("peer_ratio_min_ms") for n, e in entries.items()}
    return dict(sorted(((n, r) for n, r in found.items() if r), key=lambda item: item[1]))


def _mean(ratios: dict[str, float]) -> str:
    if not ratios:
        return "No model was measured beside a peer."
    over = [name for name, ratio in ratios.items() if ratio > 1]
    text = f"Geometric mean of the ratios of minima: **{performance_targets.mean(ratios.values()):.2f}** over {len(ratios)} models"
    return text + (f"; above 1: {', '.join(over)}." if over else "; none above 1.")


def _bf16(entries: dict[str, Entry]) -> list[str]:
    rows = []
    for name, entry in entries.items():
        latency = entry.get("latency", {})
        ours, strict = latency.get(BF16, {}), latency.get(OURS, {})
        if "min_ms" not in ours or "min_ms" not in strict:
            continue
        own = f"{ours['min_ms'] / strict['min_ms']:.2f} / {ours['median_ms'] / strict['median_ms']:.2f}"
        used = f"{ours['check']['used']:.0%}" if ours["check"]["used"] < 10 else "far outside"  # as where labels differ
        rows.append([name, _times(ours), _times(latency.get("openvino_default")), _ratio(latency, BF16), own, used])
    header = "model|tensorbox bf16|OpenVINO default|ratio to it|ratio to our f32|part of the tolerance used"
    return table(header.split("|"), rows)


def _decode(part: Entry, peaks: Entry, kind: str) -> list[str]:
    rows = []
    for name, entry in part["models"].items():
        latency, work = entry.get(kind, {}), entry.get("work", {}).get(OURS, {})
        ours = latency.get(OURS, {})
        share = moved = ""
        all_bytes = work.get("kept_bytes" if kind == "decode" else "product_bytes")
        if "min_ms" in ours and all_bytes:
            moved, share = f"{all_bytes / 2**20:.0f}", f"{all_bytes / ours['min_ms'] * 1e3 / peaks['bytes']:.0%}"
        model, _, sizes = name.partition("@")
        past = sizes.partition("past_len=")[2].partition(",")[0]
        cells = [_times(latency.get(engine)) for engine in (OURS, "ort", "openvino")]
        rows.append([model, past, *cells, _ratio(latency), moved, share])
    header = "model|past|tensorbox|ONNX Runtime|OpenVINO f32|ratio to the best|MiB moved|of the bandwidth"
    return table(header.split("|"), rows)


def _start(entries: dict[str, Entry]) -> list[str]:
    rows = []
    for name, entry in entries.items():
        start = entry.get("start", {})

        def cell(engine: str, key: str, digits: int, start: Entry = start) -> str:
            figures = start.get(engine, {})
            return f"{figures[key]:.{digits}f}" if key in figures else "fails"

        warm = start.get("tensorbox warm", {})
        ratios = [f"{warm[key]:.2f}" if key in warm else "" for key in ("start_ratio", "memory_ratio")]
        seconds = [cell(engine, "start_s", 2) for engine in ("tensorbox cold", "tensorbox warm", "ort", "openvino")]
        memory = [cell(engine, "peak_mib", 0) for engine in ("tensorbox warm", "ort", "openvino")]
        rows.append([name, *seconds, ratios[0], *memory, ratios[1]])
    header = "model|cold s|warm s|ONNX Runtime s|OpenVINO s|warm / ONNX Runtime|MiB|ONNX Runtime MiB|OpenVINO MiB|ratio"
    return table(header.split("|"), rows)


def _failures(parts: list[Entry | None]) -> list[str]:
    """What peers said of models that they do not run, or run wrong."""
    lines = {}
    for part in parts:
        for name, entry in (part or {"models": {}})["models"].items():
            for kind, about in (("latency", ""), ("decode", " with caches kept")):
                for engine, figures in entry.get(kind, {}).items():
                    told = figures.get("error") or figures.get("check", {}).get("message")
                    if told:
                        text = told.partition(": exit code 1: ")[2] or told
                        lines[f"- {name}{about}, {NAMES.get(engine, engine)}: {text[:160]}"] = None
    return list(lines) or ["- none"]


def _threads(results: dict[str, Entry], cores: int) -> list[str]:
    one, callers, two = results.get("one_thread"), results.get("callers"), results["models"]
    lines = []
    if one:
        rows = []
        for name, entry in one["models"].items():
            latency, more = entry["latency"], two["models"].get(name, {}).get("latency", {})
            both = [more.get(OURS, {}).get("min_ms"), latency.get(OURS, {}).get("min_ms")]
            gain = f"{both[1] / both[0]:.2f}" if all(both) else ""
            rates = (callers or {"models": {}})["models"].get(name, {}).get("callers", {}).get(OURS, {})
            rate = f"{rates['throughput_ratio']:.2f}" if "throughput_ratio" in rates else ""
            rate += f" / {1 / rates['cpu_ratio']:.2f}" if "cpu_ratio" in rates else ""
            cells = [_times(latency.get(engine)) for engine in (OURS, "ort", "openvino")]
            rows.append([name, *cells, _ratio(latency), gain, rate])
        header = "model|tensorbox, 1 thread|ONNX Runtime|OpenVINO f32|ratio to the best"
        header += f"|speed-up at {two['threads']} threads|4 callers × 1 thread: runs/s / runs per CPU second to ONNX Runtime's"
        lines += [*table(header.split("|"), rows), ""]
    for name in sorted(n for n in results if n.startswith("threads_")):
        part = results[name]
        ratios = _ratios(part["models"])
        rows = [[n, *(_times(e["latency"].get(x)) for x in (OURS, "ort", "openvino")), _ratio(e["latency"])] for n, e in part["models"].items()]
        head = ["model", f"tensorbox, {part['threads']} threads", "ONNX Runtime", "OpenVINO f32", "ratio to the best"]
        lines += [_mean(ratios), "", *table(head, rows), ""]
    if cores < 8:
        lines += [f"8 and 16 threads: not measured, this machine has {cores} cores.", ""]
    return lines


def page(
    results: dict[str, Any], precision: dict[str, str], cores: int, others: dict[str, Entry]
) -> tuple[str, dict[str, str]]:
    """The page and its charts by name. `others`: as performance_targets.rows() has them."""
    models = results["models"]
    where, threads = models["machine"], models["threads"]
    peaks = next(p for p in results["peak"] if p["threads"] == threads)
    f32 = _entries(models, precision, {"f32"})
    narrow = _entries(models, precision, {"fp16", "int8", "int4"})
    ratios, small, halves = _ratios(f32), _ratios(narrow), _ratios(f32, BF16)
    charts = {
        "f32": bars(f"f32, {threads} threads: our time / best peer's (minima)", ratios),
        "narrow": bars(f"16, 8 and 4 bits, {threads} threads: our time / best peer's (minima)", small),
    }
    if halves:
        charts["bf16"] = bars(f"bf16, {threads} threads: our time / OpenVINO's default (minima)", halves)
    targets = performance_targets.rows(results, list(f32), peaks, cores, others)
    causes = performance_targets.causes(targets)
    picture = {name: f"![Ratios by model](performance/{name}.svg)" for name in charts}
    versions = {}
    for entry in models["models"].values():
        for engine, figures in entry.get("start", {}).items():
            versions |= {engine.split()[0]: figures["version"]} if "version" in figures else {}
        for engine, figures in entry.get("latency", {}).items():
            versions |= {engine: figures["version"]} if figures.get("version") else {}
    lines = [
        "# Performance",
        "",
        "<!-- Generated by bench/performance.py; do not edit. -->",
        "",
        f"Measured {where['date']} at commit {where['commit']} with `./dev python bench/performance.py --run`, which calls "
        f"`{models['command']}` and others like it.",
        f"Machine: {machine.one_line(where)}. Others kept it **{where['busy_before']:.0%} busy** before the run and "
        f"{where.get('busy_after', 0):.0%} after it" + (": minima say more than medians here." if where["busy_before"] > 0.2 else "."),
        "",
        f"Versions: {', '.join(f'{NAMES.get(k, k)} {v}' for k, v in versions.items())}.",
        "",
        "Times are ms, minimum / median of the rounds' medians; all engines of a model are measured in turn in the same rounds. "
        "Before that the outputs of each are held against those of ONNX Runtime without optimisations, at the tolerance of "
        "the precision (`tests/zoo/tolerance.py`); *wrong* marks what is outside of it. Ratios are ours to the best peer's "
        "*of the same precision* whose outputs are right, by minima / by medians; *nobody right*: the model amplifies what engines "
        "may round as they like, so that not even ONNX Runtime with its optimisations is inside the tolerance.",
        "",
        "## Targets",
        "",
        *table(["what", "target", "measured (minima)", ""], targets),
        "",
        *(["Where the time of missed ones goes:", "", *causes, ""] if causes else []),
        "## What the machine can do",
        "",
        *table(
            ["threads", "f32 GFLOP/s", "bf16 GFLOP/s", "8 bits GOP/s", "memory GB/s", "own GB/s", "neighbour's GB/s"],
            [
                [str(p["threads"]), *(f"{p[k] / 1e9:.4g}" if k in p else "not there" for k in PEAKS)]
                for p in results["peak"]
            ],
        ),
        "",
        "Measured beside the parts of the run (`bench/peak.cpp`), of which the best counts: products out of registers, and "
        "reading 512 MiB; *own* is what a core reads of 256 KiB that it has just written, *neighbour's* of 256 KiB that another one has. *arithmetic* and *bytes* below "
        "are the times that the operations of products and the bytes of their operands and results take at these "
        "speeds; *rest* is our minimum less the larger of them. Bytes that stay in caches take less than said; of a virtual "
        "machine's memory neighbours take a part that changes from minute to minute. Empty: models of dynamic shapes, whose "
        "operations are not counted.",
        "",
        f"## f32, {threads} threads",
        "",
        picture["f32"],
        "",
        _mean(ratios),
        "",
        *_speed(f32, peaks, "f32_flops", ["ort", "openvino", "torch"]),
        "",
        f"## bf16, {threads} threads",
        "",
        *([picture["bf16"], "", _mean(halves), ""] if halves else []),
        *_bf16(f32),
        "",
        *([] if "amx_bf16" in where["isa"] else ["This machine has no AMX: [the targets](#targets) say what another one took.", ""]),
        f"## 16, 8 and 4 bits, {threads} threads",
        "",
        picture["narrow"],
        "",
        _mean(small),
        "",
        *_speed(narrow, peaks, "int8_flops", ["ort", "openvino"]),
        "",
        "`+qdq`: quantised by ONNX Runtime's tools (QDQ, weights per channel). *arithmetic* is that of 8-bit products here, also "
        "for models of 16 and 4 bits.",
        "",
        "## Decoding one token",
        "",
        "Token after token with the caches of the step before, each engine in its best form: tensorbox with the option `state`, "
        "OpenVINO with a stateful model, ONNX Runtime with its outputs bound as the next inputs (`bench/decoding.py`).",
        "",
        *(_decode(results["decode"], peaks, "decode") if "decode" in results else ["Not measured."]),
        "",
        "One step that takes the caches as arrays and gives them as arrays:",
        "",
        *(_decode(results["decode"], peaks, "latency") if "decode" in results else ["Not measured."]),
        "",
        "`+w8`: weights alone in 8 bits, one scale per column. *MiB moved* is what products and attention read and write: weights "
        "once, and caches once with `state`, else twice, for they are copied.",
        "",
        "## Shapes",
        "",
        *(_speed(results["shapes"]["models"], peaks, "", ["ort", "openvino"]) if "shapes" in results else ["Not measured."]),
        "",
        "## Threads and callers",
        "",
        *_threads(results, cores),
        "## Start and memory",
        "",
        "File to first output with libraries imported and files in the page cache: cold with an empty cache, warm with what the "
        "cold start left in it: kernels and the [plan](kernels.md#kept-plans). ONNX Runtime and OpenVINO keep nothing unless they are told to, "
        "and are measured as they are by default. Peak memory of the whole process.",
        "",
        *_start(models["models"]),
        "",
        "## What does not run, or is wrong",
        "",
        *_failures([models, results.get("decode"), results.get("shapes")]),
    ]
    return "\n".join(lines) + "\n", charts
