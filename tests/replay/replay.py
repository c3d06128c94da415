#!/usr/bin/env python3
"""Replay: hold the generated kernels of many models against those of another build, byte by byte.

    python3 tests/replay/replay.py --write base.json           before a change: a hash of each model's schedule and source
    python3 tests/replay/replay.py --compare base.json         after it: names what is not the same
    python3 tests/replay/replay.py --twice                     each model twice: equal input and options give equal text
    python3 tests/replay/replay.py --write b.json --models resnet50 dlrm --suite build/suite-cases --every 8
    python3 tests/replay/replay.py --renew                     the hashes of kept.json, of the zoo, which a test compares

A commit that only moves code leaves every byte as it was. Instructions, threads and caches are fixed (replay_text.cpp), so
that the hashes are the same on every machine. Models are those of the zoo (made on demand) and, with --suite, the cases that
tests/suite/dump_cases.py wrote. $TBX_REPLAY names the program of another build. Exit code: 0 when everything is equal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO_ROOT / "tests" / "zoo"))

import zoo  # noqa: E402

STAGES = ("schedule", "source")
MACHINE = {"TBX_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}  # also where the CPU has more
KEPT = Path(__file__).with_name("kept.json")


def text_of(model: Path, stage: str) -> str:
    """What the compiler makes of a model, or its error: a model that is refused stays refused with the same words."""
    program = os.environ.get("TBX_REPLAY", REPO_ROOT / "build" / "release" / "bin" / "tbx_replay_text")
    done = subprocess.run([program, model, stage], capture_output=True, text=True, env=os.environ | MACHINE)
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}\n{done.stderr}"


def hashes_of(model: Path) -> dict[str, str]:
    """Per stage the hash of its text."""
    return {stage: hashlib.sha256(text_of(model, stage).encode()).hexdigest()[:32] for stage in STAGES}


def models_of(names: list[str], suite: Path | None, every: int) -> dict[str, Path]:
    """Files of the models by name."""
    found = {f"zoo/{name}": zoo.folder(name) / "model.onnx" for name in names}
    if suite:
        files = sorted(suite.glob("*/*/model.onnx"))[::every]
        found |= {"/".join(file.parts[-3:-1]): file for file in files}
    return found


def hash_all(models: dict[str, Path], jobs: int) -> dict[str, dict[str, str]]:
    """Hashes of all models, so many processes at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(models, pool.map(hashes_of, models.values())))


def compared(base: dict[str, dict[str, str]], head: dict[str, dict[str, str]]) -> list[str]:
    """One line for each model and stage that differs."""
    lines = []
    for name in sorted(base.keys() | head.keys()):
        if name not in base or name not in head:
            lines.append(f"{name}: only in {'the other build' if name in base else 'this build'}")
            continue
        lines += [f"{name}: {stage} differs" for stage in STAGES if base[name].get(stage) != head[name].get(stage)]
    return lines


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FILE", help="write the hashes of this build")
    action.add_argument("--compare", type=Path, metavar="FILE", help="compare with hashes that were written")
    action.add_argument("--renew", action="store_true", help=f"write {KEPT.name}")
    action.add_argument("--twice", action="store_true", help="compare two processes of this build")
    parser.add_argument("--models", nargs="*", default=None, help="names of zoo models; default: all")
    parser.add_argument("--suite", type=Path, help="folder of cases written by tests/suite/dump_cases.py")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th case of the suite")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    args = parser.parse_args()
    if args.renew:
        args.write = KEPT
    models = models_of(zoo.names() if args.models is None else args.models, args.suite, args.every)
    head = hash_all(models, args.jobs)
    if args.write:
        args.write.write_text(json.dumps(head, indent=1, sort_keys=True) + "\n")
        print(f"{len(head)} models written")
        return 0
    base = hash_all(models, args.jobs) if args.twice else json.loads(args.compare.read_text())
    lines = compared({name: base[name] for name in base if args.twice or name in head or args.models is None}, head)
    print("\n".join(lines + [f"{len(head)} models, {len(lines)} differences"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
