"""What a measurement was made on: processor, memory, load, date and commit."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ISA_FLAGS = ("avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8")


def describe() -> dict[str, Any]:
    """The machine as it is now; plain data for JSON."""
    facts = _cpu_facts()
    flags = set(facts.get("flags", "").split())
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": facts.get("model name", platform.processor()),
        "cpu_id": f"family {facts.get('cpu family', '?')} model {facts.get('model', '?')}",
        "cores": len(os.sched_getaffinity(0)),
        "isa": [flag for flag in ISA_FLAGS if flag in flags],
        "hypervisor": "hypervisor" in flags,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{_distribution()}, Linux {platform.release()}",
        "compiler": _first_line("c++", "--version"),
        "commit": _first_line("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
        "busy_before": round(busy_share(1.0), 2),
    }


def busy_share(seconds: float) -> float:
    """The share of all cores' time that others use, watched for a while in which the caller sleeps."""
    before = _cpu_times()
    time.sleep(seconds)
    after = _cpu_times()
    idle, total = after[0] - before[0], after[1] - before[1]
    return 1 - idle / total if total else 0.0


def one_line(machine: dict[str, Any]) -> str:
    """The description as a sentence for a report."""
    hidden = f" (what else it has was hidden: --isa {machine['kept_isa']})" if "kept_isa" in machine else ""
    virtual = ", virtual" if machine["hypervisor"] else ""
    return (
        f"{machine['cpu']} ({machine['cpu_id']}{virtual}), {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB; {' '.join(machine['isa'])}{hidden}; {machine['system']}; {machine['compiler']}"
    )


def _cpu_facts() -> dict[str, str]:
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


def _cpu_times() -> tuple[int, int]:
    """(idle, total) in clock ticks since the start of the machine."""
    fields = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return "unknown system"


def _first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"
