#!/usr/bin/env python3
"""All that is to be seen on an NVIDIA GPU, in one command, what matters most first: tests, then measurements.

    python bench/gpu/everything.py [--limit SECONDS] [--logs FOLDER] [--only WORD,...] [--list]

Prints a few lines of each part; its whole output is in FOLDER/<part>.log. A part that would not end before the limit is left
out or ended, and the summary says so. The exit status is 1 where a part failed. Run it in the root of a build
(`PYTHONPATH=build/release/python`); parts whose programs were not built are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path("build/release/bin")
TESTS = {"TBX_TEST_GPU": "1"}


@dataclass(frozen=True)
class Part:
    name: str
    command: list[str]
    most_s: float  # after which it is ended
    show: str  # regular expression: the lines that count
    environment: dict[str, str] = field(default_factory=dict)


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, script, *arguments]


def sanitized(tool: str, *command: str) -> list[str]:
    """Under compute-sanitizer, with its findings as a failure."""
    return ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", "9", *command]


def tests(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]


def device_tests(which: str) -> list[str]:
    return [str(BUILD / "tbx_device_tests"), f"--gtest_filter={which}", "--gtest_brief=1"]


GTEST = r"FAILED|PASSED|SKIPPED"
VERDICT = r"^(FAILED|ERROR)|passed|failed"
NUMBERS = r"over copy|ratio|NOT|rror:"
PARTS = [
    Part("device", device_tests("*/cuda:-*LibraryKernels*"), 90, GTEST, TESTS),
    Part("sessions", tests("tests/python/test_device.py", "tests/python/test_device_memory.py", "tests/python/test_kept_device_plans.py"), 90, VERDICT, TESTS),
    Part("kernels", tests("tests/python/test_device_kernels.py"), 90, VERDICT, TESTS),
    Part("state", tests("tests/python/test_state.py", "tests/python/test_growing_state.py", "tests/ops/test_kept_cache.py"), 60, VERDICT, TESTS),
    Part("forks", python("bench/gpu/forks.py"), 100, NUMBERS),
    Part("copies", python("bench/gpu/kernels.py", "running", "50257", "odd"), 60, NUMBERS),
    Part("decode", python("bench/gpu/decode.py"), 100, r"bandwidth|rror:"),
    Part("where", python("bench/gpu/where.py", "gpt2_decode:f16:512", "llama100m_decode_int4:f16:512", "bert_b1_f16"), 60, r"^==|few_rows|_row|row_"),
    Part("tf32", python("bench/gpu/run.py", "--models", "resnet50_b1_tf32,bert_b1_tf32", "--peers", "eager", "--seconds", "2"),
         80, r"^\|"),
    Part("models", python("bench/gpu/run.py", "--models", "bert_b1_f16,bert_b32_f16,resnet50_b1_f16,gpt2_s64_f16,vit_b1_f16",
                          "--peers", "graph", "--seconds", "2"), 200, r"^\|"),
    Part("start", python("bench/gpu/start.py"), 120, r"^\|"),
    Part("halves", tests("tests/python/test_device_halves.py", "tests/python/test_device_tf32.py"), 60, VERDICT, TESTS),
    Part("torch", tests("tests/python/test_device_torch.py", "tests/python/test_device_compatible.py"), 60, VERDICT, TESTS),
    Part("libraries", device_tests("*LibraryKernels*/cuda"), 240, GTEST, TESTS),  # most of it: cuDNN makes plans of all forms
    Part("suite", python("tests/conformance/run_suite.py", "--device", "CUDA"), 300, r"pass|fail|differ"),
    Part("sweep", python("tests/sweep/run_sweep.py", "--device", "cuda", "--processes", str(max(1, (os.cpu_count() or 2) - 4)),
                         "--count", "100000", "--seconds", "240", "--seed", str(date.today().toordinal())), 300, r"wrong|pass|slow|FAILED"),
    *(Part(tool, sanitized(tool, *kernels), 150, r"ERROR SUMMARY|RACECHECK SUMMARY|passed|failed|PASSED|FAILED", TESTS)
      for tool, kernels in (("memcheck", tests("tests/python/test_device_kernels.py")),
                            ("racecheck", device_tests("*/cuda:-*LibraryKernels*")))),
]


def lines_of(part: Part, text: str, most: int = 14) -> list[str]:
    found = [line.rstrip()[:160] for line in text.splitlines() if re.search(part.show, line)]
    return found if len(found) <= most else [*found[: most - 1], f"... and {len(found) - most + 1} lines more in {part.name}.log"]


def run(part: Part, seconds: float, logs: Path) -> tuple[str, list[str]]:
    missing = [word for word in part.command if word.startswith(str(BUILD)) and not (ROOT / word).exists()]
    if missing or not (shutil.which(part.command[0]) or (ROOT / part.command[0]).exists()):
        return f"left out: no {(missing or part.command)[0]}", []
    log = logs / f"{part.name}.log"
    with log.open("w") as out:
        try:
            done = subprocess.run(part.command, cwd=ROOT, env={**os.environ, **part.environment}, stdout=out, timeout=seconds,
                                  stderr=subprocess.STDOUT, check=False)
            verdict = "ok" if done.returncode == 0 else f"FAILED ({done.returncode})"
        except subprocess.TimeoutExpired:
            verdict = f"ended after {seconds:.0f} s"
    text = log.read_text(errors="replace")
    shown = lines_of(part, text)
    if verdict.startswith("FAILED") and not shown:
        shown = [line[:160] for line in text.splitlines()[-3:]]
    return verdict, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=540, help="seconds for all parts (%(default)s)")
    parser.add_argument("--logs", type=Path, default=Path(os.environ.get("OUT", "build/gpu-logs")), help="folder (%(default)s)")
    parser.add_argument("--only", default="", help="parts with one of these words in their names")
    parser.add_argument("--list", action="store_true", help="print the parts and their commands")
    args = parser.parse_args()
    parts = [p for p in PARTS if not args.only or any(word in p.name for word in args.only.split(","))]
    if args.list:
        for part in parts:
            print(f"{part.name:10} at most {part.most_s:4.0f} s  {' '.join(part.command)}")
        return
    args.logs.mkdir(parents=True, exist_ok=True)
    end, failed, summary = time.monotonic() + args.limit, False, []
    for part in parts:
        begin = time.monotonic()
        left = end - begin
        if left < min(20, part.most_s / 3):
            verdict, shown = "left out: no time", []
        else:
            verdict, shown = run(part, min(left, part.most_s), args.logs)
        failed |= verdict.startswith("FAILED")
        print(f"== {part.name}: {verdict}, {time.monotonic() - begin:.0f} s", *shown, sep="\n   ", flush=True)
        summary.append(f"{part.name}: {verdict}")
    print("== all:", "; ".join(summary))
    sys.exit(failed)


if __name__ == "__main__":
    main()
