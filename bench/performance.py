#!/usr/bin/env python3
"""Write docs/performance.md and its charts.

    ./dev python bench/performance.py --run              measure, then write the page: 20 minutes on a quiet machine
    ./dev python bench/performance.py --run --quick      fewer rounds, pasts, shapes and models with other threads: half of it
    ./dev python bench/performance.py --run --resume     go on where a run was stopped; what is measured stays
    ./dev python bench/performance.py                    the page alone, from what was measured before

All measuring is bench/compare.py's, one call for each part of the page (PARTS); its results lie in build/performance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import compare
import machine
import peak
import performance_page
import zoo

REPO_ROOT = Path(__file__).resolve().parents[1]
RESULTS = REPO_ROOT / "build" / "performance"
ELSEWHERE = REPO_ROOT / "bench" / "results"  # what compare.py measured on other machines
PAGE = REPO_ROOT / "docs" / "performance.md"
CORES = len(os.sched_getaffinity(0))
WIDE = "tensorbox ort openvino openvino_default tensorbox_bf16 torch".split()
NARROW = "tensorbox ort openvino".split()
PASTS = [1, 512, 2048]
DECODE = ["gpt2_decode", "gpt2_decode+w8", "llama100m_decode", "llama100m_decode+w8", "llama100m_decode_int4"]
SHAPED = [f"bert_base_dyn@batch={b},sequence={s}" for b, s in ((1, 16), (1, 512), (4, 128), (16, 32))]
THREADED = "resnet50 mobilenet_v3_large efficientnet_b0 bert_base_s128 llama100m_decode swin_t dlrm".split()


def parts(quick: bool = False) -> dict[str, list[str]]:
    """Name of a part and what compare.py is told."""
    some_pasts, shaped, threaded = (PASTS[1:2], SHAPED[:2], THREADED[:4]) if quick else (PASTS, SHAPED, THREADED)
    at = ["--threads", str(min(2, CORES))]
    forms = ["efficientnet_b0+qdq", "mobilenet_v3_large+qdq"]
    pasts = [f"{model}@past_len={past},total_len={past + 1}" for model in DECODE for past in some_pasts]
    found = {
        "models": ["--models", "all", *forms, "--engines", *WIDE, "--measure", "latency", "work", "start", *at],
        "decode": ["--models", *pasts, "--engines", *NARROW, "--measure", "latency", "decode", "work", *at],
        "shapes": ["--models", *shaped, "--engines", *NARROW, "--measure", "latency", *at],
        "one_thread": ["--models", *threaded, "--engines", *NARROW, "--measure", "latency", "--threads", "1"],
        "callers": ["--models", *threaded, "--engines", *NARROW, "--measure", "callers", "--threads", "1"],
    }
    if CORES > 2:
        some = ["--engines", *NARROW, "--measure", "latency", "--threads"]
        for threads in sorted({min(8, CORES), min(16, CORES)}):
            found[f"threads_{threads}"] = ["--models", *zoo.names("fp32"), *some, str(threads)]
    return found


def measure_peaks(again: bool) -> None:
    """What the machine can do; `again`: the best of now and before, since its memory is faster at one time than at another."""
    file = RESULTS / "peak.json"
    now = [peak.measure(count) for count in sorted({1, min(2, CORES), min(8, CORES), min(16, CORES)})]
    before = [json.loads(file.read_text())] if again and file.is_file() else []
    file.write_text(json.dumps(peak.best(now, *before)))


def run(options: argparse.Namespace) -> None:
    """Measure all parts; every model's figures are on disk as soon as there are any."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name, arguments in parts(options.quick).items():
        if name not in (options.parts or parts()):
            continue
        print(f"[performance] {name}", file=sys.stderr, flush=True)
        file = RESULTS / f"{name}.json"
        if not options.resume:
            file.unlink(missing_ok=True)
        measure_peaks(again=options.resume or name != "models")
        if options.without:
            start = arguments.index("--engines")
            arguments = [a for i, a in enumerate(arguments) if i <= start or a not in options.without]
        count, seconds = options.rounds or (3 if options.quick else 5), options.round_seconds or (0.1 if options.quick else 0.2)
        rounds = ["--rounds", str(count), "--round-seconds", str(seconds), "--repeat", "1"]
        compare.main([*arguments, *rounds, "--json", os.path.relpath(file), *(["--resume"] if options.resume else [])])


def results() -> dict[str, Any]:
    """What was measured, by part."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="measure first")
    parser.add_argument("--resume", action="store_true", help="with --run: keep what a stopped run has measured")
    parser.add_argument("--parts", nargs="+", choices=list(parts()), help="measure these only")
    parser.add_argument("--without", nargs="+", default=[], metavar="ENGINE", help="leave engines out, torch for one")
    parser.add_argument("--quick", action="store_true", help="with --run: a part of it, in half of the time")
    parser.add_argument("--rounds", type=int, help="default: 5, quick 3")
    parser.add_argument("--round-seconds", type=float, help="default: 0.2, quick 0.1")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args()
    if options.run:
        run(options)
    found = results()
    if "models" not in found or "peak" not in found:
        print(f"{RESULTS} has no results: use --run", file=sys.stderr)
        return 1
    precision = {name: entry["precision"] for name, entry in zoo.index().items()}
    others = {part: json.loads((ELSEWHERE / f"xeon_{part}.json").read_text()) for part in ("threads_16", "amx_bf16")}
    text, charts = performance_page.page(found, precision, CORES, others)
    options.page.write_text(text)
    folder = options.page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for name, chart in charts.items():
        (folder / f"{name}.svg").write_text(chart)
    print(options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
