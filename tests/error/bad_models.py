"""Runs spoilt models in worker processes and says what became of each.

A spoilt model ends well when it is refused by an error that names node and operator, or when it runs (many are legal
still, or are for a lenient reader). Everything else is a failure: an InternalError, an error that names no node, an
exception of another kind, a crash, a model that does not end.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from base_models import BaseModel
from mutations import Mutant

os.environ.setdefault("TBX_CACHE_PLANS", "0")  # of as many models as there are here each is compiled once

TIME_LIMIT_MS = 2_000  # the session's own; a run that exceeds it ends with an error
MEMORY_LIMIT = 1 << 30  # the session's own, too
HANG_SECONDS = 20
MEMORY = 8 << 30  # of the process


class Job(NamedTuple):
    base: BaseModel
    mutant: Mutant

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, self.base.operator))} {self.base.name}: {self.mutant.what}"


Judge = Callable[[Any], tuple[str, str]]  # of a job: status and message


@dataclass(frozen=True)
class Outcome:
    """What became of one job. `status` is refused or ran, both good, or else vague, internal, python, crash, hang."""

    job: Any
    status: str
    message: str = ""

    @property
    def good(self) -> bool:
        return self.status in ("refused", "ran")


def names_its_node(message: str, operator: str) -> bool:
    """The error says which node it is about, and names the operator."""
    return re.search(r"(^|: )node \S.*\(", message) is not None and operator in message


def judge(job: Job) -> tuple[str, str]:
    """Compiles and runs one spoilt model in this process."""
    import tensorbox

    model, feeds = job.mutant.build()
    try:
        session = tensorbox.Session(model, compile=False, threads=1, all_dims_dynamic=job.mutant.dynamic,
                                    time_limit_ms=TIME_LIMIT_MS, load_time_limit_ms=60_000, max_memory=MEMORY_LIMIT)
        session.run({name: value for name, value in feeds.items() if any(i.name == name for i in session.inputs)})
    except tensorbox.InternalError as e:
        return "internal", str(e)
    except tensorbox.Error as e:
        return ("refused" if names_its_node(str(e), job.base.node.op_type) else "vague"), str(e)
    except Exception as e:
        return "python", f"{type(e).__name__}: {e}"
    return "ran", ""


def _work(jobs: Sequence[Any], pipe: int, judge: Judge, seconds: int) -> None:
    """The child: one line when a job begins, one when it ends."""
    if "LSAN_OPTIONS" not in os.environ and "ASAN_OPTIONS" not in os.environ:  # whose shadow memory is huge
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(pipe, "w", 1, encoding="utf-8", errors="backslashreplace") as out:
        for i, job in enumerate(jobs):
            out.write(f"{i}\tstart\n")
            signal.alarm(seconds)
            status, message = judge(job)
            signal.alarm(0)
            out.write(f"{i}\t{status}\t{message[:2000]!r}\n")


def run_in_child(jobs: Sequence[Any], judge: Judge = judge, seconds: int = HANG_SECONDS) -> Iterator[Outcome]:
    """Outcomes in order, from child processes: one more after every job that ends its process."""
    first = 0
    while first < len(jobs):
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                _work(jobs[first:], write, judge, seconds)
            finally:
                os._exit(0)
        os.close(write)
        current = -1
        with os.fdopen(read, encoding="utf-8") as lines:
            for line in lines:
                i, status, *message = line.rstrip("\n").split("\t", 2)
                if status == "start":
                    current = int(i)
                else:
                    yield Outcome(jobs[first + int(i)], status, message[0])
                    current = -1
        status = os.waitpid(pid, 0)[1]
        if status == 0 and current < 0:
            return
        how = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "crash"
        yield Outcome(jobs[first + current], how, f"status {status}")
        first += current + 1


def run(jobs: Iterable[Any], workers: int = 1, judge: Judge = judge, seconds: int = HANG_SECONDS) -> Iterator[Outcome]:
    """Outcomes of all jobs, operator by operator in `workers` processes."""
    from concurrent.futures import ThreadPoolExecutor

    by_base: dict[str, list[Any]] = {}
    for job in jobs:
        by_base.setdefault(job.base.name, []).append(job)
    if workers == 1:
        for group in by_base.values():
            yield from run_in_child(group, judge, seconds)
        return
    with ThreadPoolExecutor(workers) as pool:  # of threads that wait for their child
        for outcomes in pool.map(lambda group: list(run_in_child(group, judge, seconds)), by_base.values()):
            yield from outcomes
