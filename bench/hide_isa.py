"""Programs that find fewer instruction sets than the CPU has (hide_isa.c)."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
COMPILE = ["cc", "-O2", "-shared", "-fPIC", "-Wl,-z,initfirst"]
HIDDEN = {"avx512-vnni": ("amx",), "avx-vnni": ("amx", "avx512"), "avx2": ("amx", "avx512", "avx_vnni")}


class CannotHide(Exception):
    """Why sets are not hidden here."""


def environment(isa: str) -> dict[str, str]:
    """What processes are to be started with that have no more than `isa`."""
    found = {"KEEP_ISA": isa, "LD_PRELOAD": str(_library())}
    done = subprocess.run(["true"], env=os.environ | found, capture_output=True, text=True)
    if done.returncode:
        raise CannotHide(done.stderr.strip())
    return found


def left(flags: list[str], isa: str) -> list[str]:
    """The names in /proc/cpuinfo that are not hidden."""
    return [flag for flag in flags if not flag.startswith(HIDDEN[isa])]


def _library() -> Path:
    """Compiled once for each text of the source."""
    key = hashlib.sha256(SOURCE.read_bytes() + " ".join(COMPILE).encode()).hexdigest()[:16]
    cache = Path(os.getenv("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensorbox" / "hide_isa"
    library = cache / f"{key}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f"{key}.{os.getpid()}"
        done = subprocess.run([*COMPILE, str(SOURCE), "-o", str(unfinished)], capture_output=True, text=True)
        if done.returncode:
            raise CannotHide(f"{SOURCE.name} does not compile: {done.stderr.strip()}")
        unfinished.replace(library)
    return library
