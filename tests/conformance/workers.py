"""Run tests in forked worker processes, so that a crash or a hang is the failure of one test only.

The suite is loaded once, before forking; a worker runs many tests and is replaced when it dies, when a test takes
too long, and after RECYCLE tests. A test that kills a worker which had run others before is tried once more in a
fresh one, so that it does not pay for memory that an earlier test spoilt; such a test is marked unstable.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import IO

from suite import Outcome

RECYCLE = 400
_FORK = multiprocessing.get_context("fork")

RunTest = Callable[[str], Outcome]


@dataclass(frozen=True)
class Limits:
    """What one test may use. `memory_gib` 0 means no limit (needed under AddressSanitizer)."""

    seconds: float = 60.0
    memory_gib: float = 12.0


class _Worker:
    """One process and the test it has in hand."""

    def __init__(self, run: RunTest, limits: Limits) -> None:
        self.limits = limits
        self.log: IO[bytes] = tempfile.TemporaryFile()
        self.connection, far_end = _FORK.Pipe()
        arguments = (run, far_end, self.connection, self.log.fileno(), limits)
        self.process = _FORK.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        far_end.close()
        self.test: str | None = None
        self.begin = 0.0
        self.count = 0

    def give(self, test: str) -> None:
        self.test, self.begin = test, time.monotonic()
        self.count += 1
        try:
            self.connection.send(test)
        except BrokenPipeError:
            pass  # it died while idle; take() finds that out

    def time_left(self) -> float:
        return self.begin + self.limits.seconds - time.monotonic()

    def take(self) -> Outcome:
        """The outcome of the test in hand; call when the connection is ready or the time is over."""
        assert self.test is not None
        test, self.test = self.test, None
        if not self.connection.poll():
            self.end()
            message = f"no result within {self.limits.seconds:g} s"
            return Outcome(test, "timeout", "Timeout", message, self.limits.seconds)
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return Outcome(test, "crash", self._death(), self._last_words(), time.monotonic() - self.begin)

    def _death(self) -> str:
        code = self.process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        text = os.pread(self.log.fileno(), 1 << 16, 0).decode(errors="replace").strip("\0\n ")
        return text.splitlines()[-1] if text else "no message"

    def alive(self) -> bool:
        return self.process.is_alive()

    def end(self) -> None:
        """Stop the process and whatever it started."""
        self.connection.close()
        if self.process.is_alive():
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self.process.kill()  # it has not made its group yet
        self.process.join()
        self.log.close()


def _serve(run: RunTest, connection: Connection, parents_end: Connection, log: int, limits: Limits) -> None:
    """The worker process: tests in, outcomes out, until the connection closes."""
    os.setsid()
    parents_end.close()
    os.dup2(log, 1)
    os.dup2(log, 2)
    if limits.memory_gib:
        limit = int(limits.memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    while True:
        try:
            test = connection.recv()
        except EOFError:
            return
        os.ftruncate(log, 0)
        os.lseek(log, 0, os.SEEK_SET)
        connection.send(run(test))


def run_all(
    tests: Sequence[str], run: RunTest, worker_count: int = 2, limits: Limits = Limits()
) -> Iterator[Outcome]:
    """Run every test and yield its outcome, in the order in which they end."""
    waiting = deque(tests)
    retries: dict[str, Outcome] = {}  # crashed in a worker that had run other tests
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.test for worker in workers):
            workers = [worker for worker in workers if not _is_done(worker)]
            _hand_out(waiting, retries, workers, run, worker_count, limits)
            busy = [worker for worker in workers if worker.test]
            timeout = max(0.0, min(worker.time_left() for worker in busy))
            ready = wait([worker.connection for worker in busy], timeout)
            for worker in busy:
                if worker.connection not in ready and worker.time_left() > 0:
                    continue
                outcome = worker.take()
                if outcome.status == "crash" and worker.count > 1:
                    retries[outcome.test] = outcome
                    waiting.appendleft(outcome.test)
                    continue
                first = retries.get(outcome.test)
                if first and outcome.status != "crash":
                    outcome = replace(outcome, unstable=f"{first.error}: {first.message}")
                yield outcome
    finally:
        for worker in workers:
            worker.end()


def _is_done(worker: _Worker) -> bool:
    if worker.test or (worker.alive() and worker.count < RECYCLE):
        return False
    worker.end()
    return True


def _hand_out(
    waiting: deque[str],
    retries: dict[str, Outcome],
    workers: list[_Worker],
    run: RunTest,
    worker_count: int,
    limits: Limits,
) -> None:
    """Give a test to every idle worker; a test that is tried again gets a fresh one."""
    for place in range(worker_count):
        if not waiting:
            return
        fresh = waiting[0] in retries
        if place == len(workers):
            workers.append(_Worker(run, limits))
        worker = workers[place]
        if worker.test:
            continue
        if fresh and worker.count:
            worker.end()
            worker = workers[place] = _Worker(run, limits)
        worker.give(waiting.popleft())
