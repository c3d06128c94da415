#!/usr/bin/env python3
"""Run the official ONNX backend suite, count every test, and hold the result against the manifest.

    PYTHONPATH=build/release/python python3 tests/conformance/run_suite.py
    ... run_suite.py --filter 'node/test_softmax'           some tests only, with messages
    ... run_suite.py --update                               rewrite manifest.txt and docs/conformance.md
    ... run_suite.py --backend onnxruntime.backend --no-manifest

Exit code: 0 when every test of the manifest passes and no test is unstable, 1 otherwise, 2 when the backend cannot
be imported.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers are forked: no thread may run before

import argparse  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402

import onnx  # noqa: E402

import manifest  # noqa: E402
import report  # noqa: E402
from suite import Outcome, Suite  # noqa: E402
from workers import Limits, run_all  # noqa: E402

REPO_ROOT = Path(__file__).resolve().parents[2]
REPORT = REPO_ROOT / "docs" / "conformance.md"
# Where float16 is multiplied as what it is, on GPUs and on CPUs with AMX-FP16.
DIFFERENCES = Path(__file__).with_name("float16_differences.txt")
BUILT_MODULE = REPO_ROOT / "build" / "release" / "python"


def run_tests(suite: Suite, names: Sequence[str], options: argparse.Namespace) -> list[Outcome]:
    """Run the tests in workers; the outcomes in the order of `names`."""
    outcomes: dict[str, Outcome] = {}
    begin = time.monotonic()
    limits = Limits(options.timeout, options.memory_gib)
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as onnx_home:
        os.environ["ONNX_HOME"] = onnx_home  # the suite unpacks its real models there
        for outcome in run_all(names, suite.run, options.workers, limits):
            outcomes[outcome.test] = outcome
            if sys.stderr.isatty() or len(outcomes) % 200 == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                seconds = time.monotonic() - begin
                print(f"{len(outcomes)} of {len(names)}, {seconds:.0f} s", end=end, file=sys.stderr, flush=True)
    missing = set(names) - outcomes.keys()
    if missing:
        raise RuntimeError(f"{len(missing)} tests have no outcome, such as {min(missing)}")
    return [outcomes[name] for name in names]


def probe(suite: Suite) -> str:
    """Import the backend in a process of its own; "" or what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ok = suite.backend.module().supports_device("CPU")
            text = "" if ok else "it does not support the device CPU"
        except BaseException as error:  # anything: the child only reports it
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    text = os.fdopen(reader).read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text or (f"its import ended with {status}" if status else "")


def multiplies_float16(device: str) -> bool:
    """Whether models in float16 are computed in it there."""
    return device == "CUDA" or "amx_fp16" in Path("/proc/cpuinfo").read_text()


def judge(outcomes: Sequence[Outcome], options: argparse.Namespace) -> bool:
    """Print what changed against the manifest; False on a regression or an unstable test."""
    ok = True
    unstable = [outcome for outcome in outcomes if outcome.unstable]
    for outcome in unstable:
        print(f"unstable: {outcome.test} crashed in a shared process ({outcome.unstable})")
        ok = False
    if options.no_manifest:
        return ok
    differs = manifest.read(DIFFERENCES) if multiplies_float16(options.device) else set()
    for outcome in outcomes:
        if outcome.test in differs and (outcome.status, outcome.error) != ("fail", "AssertionError"):
            print(f"OUT OF DATE {outcome.test}: its values do not differ on {options.device}")
            ok = False
    change = manifest.compare(manifest.read(options.manifest) - differs, outcomes, not options.filter)
    for outcome in change.regressions:
        print(f"REGRESSION {outcome.test}: {outcome.status} {outcome.error}: {report.first_line(outcome.message)}")
    for name in change.unknown:
        print(f"UNKNOWN {name}: the manifest names a test that the suite does not have")
    if change.new_passes:
        print(f"{len(change.new_passes)} tests pass that the manifest does not list: run with --update")
    return ok and not change.regressions and not change.unknown


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    options = _parser().parse_args(arguments)
    if options.backend.startswith("tensorbox") and BUILT_MODULE.is_dir():
        sys.path.append(str(BUILT_MODULE))
    suite = Suite(options.backend, json.loads(options.options), options.device)
    problem = probe(suite)
    if problem:
        print(f"cannot use {options.backend}: {problem}", file=sys.stderr)
        return 2
    pattern = re.compile(options.filter)
    names = [name for name in suite.names() if pattern.search(name)]
    if not names:
        print(f"no test matches {options.filter!r}", file=sys.stderr)
        return 2
    outcomes = run_tests(suite, names, options)
    for outcome in outcomes:
        if options.filter and outcome.status != "pass" or options.verbose:
            print(f"{outcome.status:8} {outcome.test} {outcome.error} {report.first_line(outcome.message)}")
    print(report.counts(outcomes))
    if options.json:
        text = json.dumps([asdict(o) | {"message": report.first_line(o.message)} for o in outcomes], indent=1)
        options.json.write_text(text + "\n")
    if options.report or options.update:
        target = options.report or REPORT
        if options.filter:
            print(f"{target} is not written: it needs all tests", file=sys.stderr)
        else:
            engine = options.backend.split(".")[0]
            target.write_text(report.markdown(outcomes, engine, onnx.__version__))
    if options.update:
        manifest.update(options.manifest, outcomes, not options.filter)
        return 0
    return 0 if judge(outcomes, options) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="tensorbox.backend", metavar="MODULE")
    parser.add_argument("--options", default="{}", metavar="JSON", help='for prepare(), as {"compile": false}')
    parser.add_argument("--device", default="CPU", help="CUDA: a GPU, or with TBX_FAKE_CUDA=1 the fake device")
    parser.add_argument("--filter", default="", metavar="REGEX", help="run the tests whose kind/name matches")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds per test")
    parser.add_argument("--memory-gib", type=float, default=12.0, help="per worker; 0 is no limit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every test's outcome here")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument("--manifest", type=Path, default=manifest.PATH, metavar="FILE")
    parser.add_argument("--no-manifest", action="store_true", help="do not compare with the manifest")
    parser.add_argument("--update", action="store_true", help="rewrite the manifest and docs/conformance.md")
    parser.add_argument("--verbose", action="store_true", help="print every test")
    return parser


if __name__ == "__main__":
    sys.exit(main())
