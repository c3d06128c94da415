#!/usr/bin/env python3
"""Compare tensorbox with ONNX Runtime and onnx.reference: every operator, version and type that the schemas allow.

    ./dev python tests/generated/run_generated.py                          the whole grid in the evaluator
    ./dev python tests/generated/run_generated.py --options '{}'           the whole grid with generated kernels
    ... --filter '^Conv-' --verbose                                        some cases, each with its outcome
    ... --samples 3                                                        three random cases for each target
    ... --record                                                           write what machines without ONNX Runtime need
    ... --share 8 --options '{}'                                           every eighth case, chosen by its name

Exit code: 0 when everything passes or is explained in known.txt and every entry there is still needed. Without ONNX
Runtime, cases that only it can judge are let through, and entries are not asked whether they are needed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers are forked: no thread may run before

import argparse  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
from collections import Counter  # noqa: E402
from dataclasses import asdict  # noqa: E402
from pathlib import Path  # noqa: E402

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
sys.path.append(str(HERE.parents[1] / "build" / "release" / "python"))

import known  # noqa: E402
import recipes  # noqa: E402
import record  # noqa: E402
import references  # noqa: E402
from judge import Verdict, judge  # noqa: E402
from targets import Target, all_targets, seed_of  # noqa: E402
from workers import Limits, run_all  # noqa: E402

LOOK_AGAIN = 8
GOOD = ("pass",) if references.onnxruntime else ("pass", "disputed", "unjudged")


def chosen(options: argparse.Namespace) -> dict[str, tuple[Target, int]]:
    """The cases to run, by name."""
    pattern = re.compile(options.filter)
    targets = [t for t in all_targets() if pattern.search(t.name) and seed_of(t.name) % options.share == 0]
    return {t.name + (f"#{i}" if i else ""): (t, i) for t in targets for i in range(options.samples)}


def run(cases: dict[str, tuple[Target, int]], options: argparse.Namespace) -> list[Verdict]:
    """Verdicts in the order of names."""
    arguments = json.loads(options.options)

    def one(name: str) -> Verdict:
        return judge(*cases[name], arguments)

    verdicts = {}
    for verdict in run_all(list(cases), one, options.workers, Limits(options.timeout, 8.0)):
        verdicts[verdict.test] = verdict
        if len(verdicts) % 1000 == 0:
            print(f"{len(verdicts)} of {len(cases)}", file=sys.stderr, flush=True)
    return [verdicts[name] for name in sorted(verdicts)]


def still_stale(entries: list[known.Entry], stale: list[known.Entry], options: argparse.Namespace) -> list[known.Entry]:
    """Those of the entries that explain nothing in `LOOK_AGAIN` more samples of what they match either: ONNX Runtime reads
    what it has not written in some cases, and comes out otherwise from run to run."""
    targets = [t for t in all_targets() if any(entry.matches(t.name) for entry in stale)]
    samples = range(options.samples, options.samples + LOOK_AGAIN)
    verdicts = run({f"{t.name}#{i}": (t, i) for t in targets for i in samples}, options) if targets else []
    needed = {known.explain(entries, v.test, v.status) for v in verdicts if v.status not in GOOD}
    return [entry for entry in stale if entry not in needed]


def report(verdicts: list[Verdict], options: argparse.Namespace) -> bool:
    """Print what is wrong and the counts; True when nothing is."""
    entries = known.read(options.known or known.PATH)
    explained: Counter[known.Entry] = Counter()
    unexplained = []
    for verdict in verdicts:
        entry = known.explain(entries, verdict.test, verdict.status) if verdict.status not in GOOD else None
        if entry:
            explained[entry] += 1
        elif verdict.status not in GOOD:
            unexplained.append(verdict)
        if options.verbose:
            print(f"{verdict.status:9} {verdict.test} {verdict.error} {verdict.message}{' [known]' if entry else ''}")
    filtered = options.filter and not options.known
    partial = filtered or options.share > 1 or options.keep_stale or references.onnxruntime is None
    stale = [] if partial else still_stale(entries, [
        entry for entry in entries if not explained[entry] and any(entry.matches(v.test) for v in verdicts)], options)
    if not options.verbose:
        for verdict in unexplained:
            print(f"{verdict.status:9} {verdict.test} {verdict.error} {verdict.message}")
    for entry in stale:
        print(f"STALE     {entry.pattern}: nothing that it matches fails any more; delete it from known.txt")
    counts = Counter(verdict.status for verdict in verdicts)
    print(f"{len(verdicts)} cases: " + ", ".join(f"{count} {status}" for status, count in counts.most_common())
          + f"; {sum(explained.values())} explained, {len(unexplained)} not")
    return not unexplained and not stale


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="every N-th target only")
    parser.add_argument("--samples", type=int, default=1, help="cases for each target")
    parser.add_argument("--options", default='{"compile": false}', metavar="JSON", help="of tensorbox.Session")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds per case")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict here")
    parser.add_argument("--record", action="store_true", help="write the results of ONNX Runtime that others need")
    parser.add_argument("--known", type=Path, metavar="FILE", help="instead of known.txt, made for what --filter chooses")
    parser.add_argument("--keep-stale", action="store_true", help="allow entries of known.txt that nothing needs")
    parser.add_argument("--verbose", action="store_true", help="print every case")
    options = parser.parse_args(arguments)
    recipes.load()
    cases = chosen(options)
    verdicts = run(cases, options)
    if options.json:
        options.json.write_text(json.dumps([asdict(v) for v in verdicts], indent=1) + "\n")
    if options.record:
        judges = {v.test: v.error for v in verdicts if v.status in ("pass", "disputed") and v.error in record.ENGINES}
        count = record.record({name: (recipes.make_case(*cases[name]), engine) for name, engine in judges.items()})
        print(f"{count} results recorded in {record.PATH.name}")
    return 0 if report(verdicts, options) else 1


if __name__ == "__main__":
    sys.exit(main())
