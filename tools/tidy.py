#!/usr/bin/env python3
"""clang-tidy on translation units, several at a time. What passed is not looked at again while nothing that decides it changes.

usage: tools/tidy.py <clang-tidy> <build folder> <cache folder> <jobs> <unit>...

A unit that passed leaves an empty file in the cache folder, named by a hash of the tool's version, .clang-tidy, the compile
command and the files that the unit reads, by path and content. The compiler lists them anew every time, so that a header
that takes the place of another one counts; the folder of the checkout does not. Findings are printed; the exit status is 1
where there are some.
"""

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

UNUSED_DAYS = 30


@functools.cache
def content(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def read_by(command, folder):
    """The files that a unit reads, in the compiler's order."""
    arguments = shlex.split(command)
    if os.path.basename(arguments[0]) == "ccache":
        del arguments[0]
    if "-o" in arguments:
        at = arguments.index("-o")
        del arguments[at : at + 2]
    rule = subprocess.run([*arguments, "-M"], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = re.sub(r"\\\n", " ", rule).split(":", 1)[1]
    return [name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", names)]


def key(tool, settings, command, folder):
    parts = [tool, settings, command]
    parts += [f"{name} {content(os.path.join(folder, name))}" for name in read_by(command, folder)]
    return hashlib.sha256("\n".join(parts).replace(os.getcwd(), "").encode()).hexdigest()


def main(tidy, build, cache, jobs, *units):
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    for entry in cache.iterdir():
        if entry.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
            entry.unlink(missing_ok=True)
    tool = subprocess.run([tidy, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    settings = pathlib.Path(".clang-tidy").read_text(encoding="utf-8")
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = {entry["file"]: entry for entry in json.load(file)}

    def look(unit):
        """Whether the unit passed, and whether it had to be looked at."""
        entry = commands.get(os.path.abspath(unit))
        passed = cache / key(tool, settings, entry["command"], entry["directory"]) if entry else None
        if passed and passed.exists():
            passed.touch()
            return True, False
        result = subprocess.run([tidy, "-p", build, "--quiet", unit], capture_output=True, text=True)
        if result.returncode != 0:
            print(result.stdout or f"{unit}: {result.stderr}", flush=True)
        elif passed:
            passed.touch()
        return result.returncode == 0, True

    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        results = list(pool.map(look, units))
    failed, looked = sum(not ok for ok, _ in results), sum(at for _, at in results)
    print(f"{len(results)} units, {looked} looked at, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
