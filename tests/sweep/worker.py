"""The cases of one lane in one process: numbers come in on standard input, a line of JSON per case goes out.

A process for itself, since oneDNN looks at DNNL_MAX_CPU_ISA once, and a crash must take one case only: the line
{"begin": number} says which."""
from __future__ import annotations

import json
import sys
import traceback

from .cases import Series, make
from .judge import LibraryLog, run_case


def main() -> None:
    series, device, log = Series(**json.loads(sys.argv[1])), sys.argv[2], LibraryLog()
    for line in sys.stdin:
        number = int(line)
        log.print(json.dumps({"begin": number}))
        try:
            result = run_case(make(series, number), log, device)
        except Exception:
            result = {"number": number, "verdict": "broken", "detail": traceback.format_exc()[-1500:]}
        log.print(json.dumps(result))


if __name__ == "__main__":
    main()
