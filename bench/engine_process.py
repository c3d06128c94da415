"""A measuring process (measure.py) as compare.py sees it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
BUILT_MODULE = BENCH.parent / "build" / "release" / "python"
TIMEOUT = 600.0


class EngineError(Exception):
    """The engine cannot do what was asked, or died on it; the message is its last line of output."""


@cache
def peers_python(engine: str) -> str:
    """The Python that has the peer; installs it when it is not there."""
    command = [str(BENCH / "setup-peers"), str(BENCH / ("torch.txt" if engine == "torch" else "peers.txt"))]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


class EngineProcess:
    """One engine with one model; use as a context manager."""

    def __init__(self, engine: str, model: str, threads: int, cache_folder: Path | None = None) -> None:
        self.name = f"{engine} on {model}"
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BUILT_MODULE), os.getenv("PYTHONPATH")]))
        # NumPy only makes inputs here, but its threads would spin on the cores that the engine starts on.
        environment["OPENBLAS_NUM_THREADS"] = "1"
        if cache_folder is not None:
            environment["TBX_CACHE_DIR"] = str(cache_folder)
        python = sys.executable if engine.startswith("tensorbox") else peers_python(engine)
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [python, str(BENCH / "measure.py"), engine, model, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )

    def ask(self, *command: str) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin and self._process.stdout
        try:
            print(*command, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._failure() from None
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT)
        if not ready:
            self._process.kill()
            raise EngineError(f"{self.name}: no answer within {TIMEOUT:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        return json.loads(line)

    def _failure(self) -> EngineError:
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["no message"]
        return EngineError(f"{self.name}: exit code {code}: {lines[-1]}")

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            if file:
                try:
                    file.close()
                except BrokenPipeError:
                    pass
