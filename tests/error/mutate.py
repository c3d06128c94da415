"""Spoils every base model in every way (or a seeded part of them) and lists those that do not end well.

usage: ./dev python tests/error/mutate.py [--part 20] [--seed 1] [--only REGEX] [--show] [--save FOLDER]

With the sanitizers, after `./dev build asan-ubsan tbx_python`:
  ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/asan-ubsan/python \\
  LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libstdc++.so)" \\
    <python of ./dev deps> tests/error/mutate.py
"""

from __future__ import annotations

import argparse
import pathlib
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator

from bad_models import Job, Outcome, run
from base_models import all_models
from mutations import mutants


def choose(part: int = 1, seed: int = 1, only: str = "") -> Iterator[Job]:
    """One of `part` jobs, by a hash: the same ones on every machine, and others for another seed."""
    for base in all_models():
        for mutant in mutants(base):
            job = Job(base, mutant)
            if re.search(only, str(job)) and zlib.crc32(f"{seed} {job}".encode()) % part == 0:
                yield job


def save(outcome: Outcome, folder: pathlib.Path) -> None:
    """The model as a file, for `tbx run`."""
    folder.mkdir(parents=True, exist_ok=True)
    model, _ = outcome.job.mutant.build()
    name = re.sub(r"\W+", "_", str(outcome.job))
    (folder / f"{outcome.status}_{name}.onnx").write_bytes(model.SerializeToString())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=int, default=1, help="run one of so many (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", default="", help="those whose 'operator case: mutation' matches")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--show", action="store_true", help="list the good ones, too, with their messages")
    parser.add_argument("--save", type=pathlib.Path, help="folder for the models that do not end well")
    args = parser.parse_args()
    start, count = time.time(), Counter[str]()
    for outcome in run(choose(args.part, args.seed, args.only), args.workers):
        count[outcome.status] += 1
        if args.show or not outcome.good:
            print(f"{outcome.status:8} {outcome.job}\n         {outcome.message}", flush=True)
        if args.save and not outcome.good:
            save(outcome, args.save)
    bad = sum(n for status, n in count.items() if status not in ("refused", "ran"))
    print(f"{sum(count.values())} models in {time.time() - start:.0f} s: {dict(count)}; {bad} did not end well")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
