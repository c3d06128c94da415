#!/usr/bin/env python3
"""Decoding on an NVIDIA GPU: steps of decoders of the zoo that keep their caches on the GPU.

    python bench/gpu/decode.py [WORD...]      # only cases whose name has one of the words
    python bench/gpu/decode.py --growing      # caches whose room grows as steps need it, instead of room for all steps
    python bench/gpu/decode.py --without PASS [--without PASS...] [WORD...]    # beside the same without these passes, in turns

Prints the time of a step whose scores the host waits for, that of steps in a row (`run_async`), and that of the GPU alone, whose
inputs are on the GPU, each the least of many; of the latter two the share of the memory's bandwidth, as a copy has it, that reading weights and caches once
takes; and the L2 norm of the difference to ONNX Runtime on the CPU over its norm, after three steps. Needs torch, onnx and onnxruntime, and tensorbox on
the path.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

import tensorbox

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "zoo")]

import decoding  # noqa: E402
import engines  # noqa: E402
import workloads  # noqa: E402

PASTS = (1, 512, 2048)
CASES = {f"{model} {precision}": (model, precision) for model, precision in (
    ("gpt2_decode", "f16"), ("llama100m_decode", "f16"), ("llama100m_decode_int4", "f16"), ("gpt2_decode", "strict"))}
ROUNDS, STEPS = 12, decoding.STEPS
Arrays = dict[str, np.ndarray]


def copy_bytes_per_s() -> float:
    """Read and written by the device's own copy of 1 GiB."""
    x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    best = float("inf")
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        y.copy_(x)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    return 2 * x.numel() / best * 1e3


def weight_bytes(path: Path, halves: bool) -> int:
    """Of what a step has to read: all constants but tables of which it takes a row."""
    graph = onnx.load(path, load_external_data=False).graph
    rows_only = {node.input[0] for node in graph.node if node.op_type in ("Gather", "GatherBlockQuantized")}
    rows_only -= {name for node in graph.node if node.op_type != "Gather" for name in node.input}
    total = 0
    for tensor in graph.initializer:
        if tensor.name in rows_only:
            continue
        size = int(np.prod(tensor.dims)) * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        total += size // 2 if halves and tensor.data_type == onnx.TensorProto.FLOAT else size
    return total


def session_of(model: str, precision: str, past: int, without: Sequence[str] = (),
               growing: bool = False) -> tuple[tensorbox.Session, Arrays, list[Arrays], Path]:
    """A session with a state, its caches at first, inputs of the steps, and the model's file."""
    workload = workloads.parse(f"{model}@past_len={past},total_len={past + 1}")
    inputs = workload.inputs()
    caches = {name: array for name, array in inputs.items() if name.startswith(decoding.GIVEN)}
    feeds = decoding.growing_feeds(workload.spec(), {name: a for name, a in inputs.items() if name not in caches})
    options: dict[str, Any] = {} if precision == "strict" else {"precision": precision}
    options |= {"state_limit": 4 * (past + STEPS)} if growing else {"state_capacity": past + STEPS + 1}
    session = tensorbox.Session(str(workload.path()), device="cuda", state={f"{decoding.GIVEN}*": f"{decoding.LEFT}*"},
                                disable_passes=list(without), **options)
    return session, caches, feeds, workload.path()


class Steps:
    """Steps of one session, and the least time of many."""

    def __init__(self, session: tensorbox.Session, caches: Arrays, feeds: list[Arrays]) -> None:
        self.session, self.caches, self.feeds = session, caches, feeds
        self.there = [{name: torch.from_numpy(np.ascontiguousarray(array)).cuda() for name, array in step.items()} for step in feeds]
        self.wall = self.row = float("inf")
        self.devices: list[float] = []

    @property
    def device(self) -> float:
        return min(self.devices)

    def error(self, expected: list[Arrays]) -> float:
        self.session.set_state(self.caches)
        for step, theirs in zip(self.feeds, expected):
            ours = self.session.run(step)
        return max(float(np.linalg.norm(ours[k].astype("d") - v) / np.linalg.norm(v.astype("d"))) for k, v in theirs.items())

    def measure(self) -> None:
        session, stream = self.session, torch.cuda.current_stream()
        session.set_state(self.caches)
        for number, step in enumerate(self.feeds):
            begin = time.perf_counter()
            session.run(step)
            self.wall = min(self.wall, time.perf_counter() - begin) if number > 1 else self.wall
        session.set_state(self.caches)
        session.run(self.feeds[0])
        begin = time.perf_counter()
        kept = [session.run_async(step, stream) for step in self.feeds[1:]]
        session.synchronize()
        self.row = min(self.row, (time.perf_counter() - begin) / (STEPS - 1))
        del kept
        session.set_state(self.caches)
        session.run(self.feeds[0])
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(10_000_000)  # the host gets ahead meanwhile
        first.record()
        kept = [session.run_async(step, stream) for step in self.there[1:]]
        last.record()
        last.synchronize()
        self.devices.append(first.elapsed_time(last) / (STEPS - 1) * 1e-3)
        del kept


def measure(model: str, precision: str, past: int, bandwidth: float, without: list[str], growing: bool) -> list[str]:
    """A line for each of the sessions: as it is, and without some passes."""
    sessions: list[Steps] = []
    for passes in [[], without] if without else [[]]:
        session, caches, feeds, path = session_of(model, precision, past, passes, growing)
        sessions.append(Steps(session, caches, feeds))
    reference = decoding.Ort(path, engines.LoadOptions(threads=4), caches, past + STEPS)
    reference.reset()
    expected = [reference.step(step) for step in feeds[:3]]
    errors = [s.error(expected) for s in sessions]
    for turn in range(ROUNDS):
        for s in sessions if turn % 2 == 0 else reversed(sessions):
            s.measure()
    moved = weight_bytes(path, precision == "f16") + sum(array.nbytes for array in caches.values())
    lines = []
    for s, error, passes in zip(sessions, errors, [[], without]):
        kernels = sum(k["kind"] != "copy" for k in s.session.explain())
        lines.append(f"{model:22} {precision:7} past {past:5}  step {s.wall * 1e3:7.3f} ms  in a row {s.row * 1e3:7.3f} ms  on the device "
                     f"{s.device * 1e3:7.3f} ms  {moved / 1e6:6.0f} MB  bandwidth {moved / s.row / bandwidth:5.0%} "
                     f"({moved / s.device / bandwidth:5.0%})  error {error:.1e}  {kernels} kernels"
                     + (f"  without {', '.join(passes)}" if passes else ""))
    if without:
        with_all, apart = sessions
        medians = [float(np.median(s.devices)) for s in sessions]
        lines.append(f"{'':22} with / without: in a row {with_all.row / apart.row:.3f}, on the device {with_all.device / apart.device:.3f} "
                     f"(least), {medians[0] / medians[1]:.3f} (median)")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only cases whose name has one of the words")
    parser.add_argument("--growing", action="store_true", help="caches whose room grows as steps need it")
    parser.add_argument("--without", action="append", default=[], metavar="PASS", help="measure beside the same without this pass")
    args, failed = parser.parse_args(), False
    bandwidth = copy_bytes_per_s()
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e9:.0f} GB/s", flush=True)
    for name, (model, precision) in CASES.items():
        if args.words and not any(word in name for word in args.words):
            continue
        for past in PASTS:
            try:
                print("\n".join(measure(model, precision, past, bandwidth, args.without, args.growing)), flush=True)
            except (tensorbox.Error, RuntimeError, ValueError) as error:
                failed = True
                print(f"{name} past {past}: Error: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
