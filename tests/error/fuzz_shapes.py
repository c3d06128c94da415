"""Runs valid models at sizes that nobody thought of, and lists those that do not end well (shape_judge.py says what that is).

usage: ./dev python tests/error/fuzz_shapes.py [--target nodes] [--part 20] [--seed 1] [--only REGEX] [--runs 12] [--peer] [--save FOLDER]

Targets: nodes (one node of every operator), suite (every case of the backend suite), graphs (--count random ones), zoo
(--zoo FOLDER with <name>/model.onnx and inputs.npz).

docs/architecture.md has the line that runs it with kernels that the address sanitizer watches.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator

import onnx
import shape_models
from bad_models import Outcome, run
from base_models import BaseModel
from shape_judge import ShapeJob, judge, with_symbols

HANG_SECONDS = 180


def jobs(models: Iterable[BaseModel], part: int = 1, seed: int = 1, only: str = "", runs: int = 12,
         peer: bool = False) -> Iterator[ShapeJob]:
    """One of `part` models, by a hash: the same ones on every machine, and others for another seed."""
    for base in models:
        job = ShapeJob(base, seed, runs, peer)
        if re.search(only, str(job)) and zlib.crc32(f"{seed} {base.name}".encode()) % part == 0:
            yield job


def save(outcome: Outcome, folder: pathlib.Path) -> None:
    """The model as it ran, with its symbols."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    model, _ = with_symbols(outcome.job.base.model, np.random.default_rng(zlib.crc32(str(outcome.job).encode())))
    onnx.save(model, folder / f"{outcome.status}_{re.sub(r'[^a-zA-Z0-9]+', '_', str(outcome.job))}.onnx")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="nodes", choices=["nodes", "suite", "graphs", "zoo"])
    parser.add_argument("--count", type=int, default=200, help="random graphs")
    parser.add_argument("--zoo", type=pathlib.Path, help="folder of the zoo")
    parser.add_argument("--part", type=int, default=1, help="run one of so many (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="which ones, and which sizes")
    parser.add_argument("--only", default="", help="those whose 'operator case' matches")
    parser.add_argument("--runs", type=int, default=12, help="sizes per model")
    parser.add_argument("--peer", action="store_true", help="compare with ONNX Runtime, too")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--show", action="store_true", help="list the good ones, too, with their messages")
    parser.add_argument("--save", type=pathlib.Path, help="folder for the models that do not end well")
    args = parser.parse_args()
    models = {"nodes": shape_models.nodes, "suite": shape_models.suite, "zoo": lambda: shape_models.zoo(args.zoo),
              "graphs": lambda: shape_models.graphs(args.count, args.seed)}[args.target]()
    start, count, executions, results = time.time(), Counter[str](), 0, 0
    chosen = jobs(models, args.part, args.seed, args.only, args.runs, args.peer)
    for outcome in run(chosen, args.workers, judge, HANG_SECONDS):
        count[outcome.status] += 1
        if outcome.status == "ran":
            ran, good = outcome.message.strip("'").split()
            executions, results = executions + int(ran), results + int(good)
        if args.show or not outcome.good:
            print(f"{outcome.status:8} {outcome.job}\n         {outcome.message}", flush=True)
        if args.save and not outcome.good:
            save(outcome, args.save)
    bad = sum(n for status, n in count.items() if status not in ("refused", "ran"))
    print(f"{args.target}: {sum(count.values())} models in {time.time() - start:.0f} s, {executions} runs, {results} results "
          f"compared: {dict(count)}; {bad} did not end well")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
