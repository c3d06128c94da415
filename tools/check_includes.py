#!/usr/bin/env python3
"""Checks the #include lines of the sources against the tables in docs/architecture.md, namespaces against folders, that
nobody takes a defect of ours, an Error of kind internal, for an answer, and that the compiler asks its Target about the
machine, not the machine that it runs on.

usage: tools/check_includes.py [root]
Prints "file:line: what is wrong and which rule says so" for each breach; exits 1 if there is one.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
# Literals and comments hold no directives of this file (generated kernels are text in raw strings).
OPAQUE = re.compile(r'R"([^(\s"]*)\(.*?\)\1"|/\*.*?\*/|//[^\n]*', re.S)
# A namespace that is opened at the margin, with all that is in it.
NAMESPACE = re.compile(r"^namespace tbx::(\w+)[\w:]* \{\n(.*?)^\}", re.M | re.S)
# Errors that are caught without a name go on as they are, or their kind was not looked at.
CAUGHT_UNSEEN = re.compile(r"catch \(const Error&\) \{(?!\s*throw;)")
COMPILER = ("ir", "graph", "lowering", "fusion", "codegen")
ASKS_THE_MACHINE = re.compile(r"\b(host_isa|host_caches|host_target) ?\(")
DECLARED_ONLY = re.compile(r"\s*((struct|class) \w+;\s*)*")
STANDARD = re.compile(r"[a-z0-9_]+|(sys|arpa|netinet|linux)/[a-z0-9_.]+|"
                      r"(assert|ctype|cpuid|cxxabi|dirent|dlfcn|elf|errno|fcntl|fenv|float|getopt|immintrin|inttypes|limits|link|locale|"
                      r"malloc|math|poll|pthread|sched|semaphore|setjmp|signal|spawn|stdarg|stdbool|stddef|stdint|stdio|"
                      r"stdlib|string|strings|syslog|termios|time|uchar|ucontext|unistd|utime|wchar|wctype|x86intrin)\.h")


def table(text, heading):
    """Rows of the table whose first column is `heading`: first cell -> list of entries of the second cell."""
    rows, inside = {}, False
    for line in text.splitlines():
        cells = [c.strip() for c in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if cells and cells[0] == heading:
            inside = True
        elif cells is None:
            inside = False
        elif inside and not set(cells[0]) <= set("-: "):
            rows[cells[0].strip("`")] = [e.strip().strip("`") for e in cells[1].split(",") if e.strip()]
    if not rows:
        sys.exit(f"docs/architecture.md has no table with the column '{heading}'")
    return rows


def row_of(path, folders):
    """The folder of the table that a path lies in: the innermost one."""
    parts = path.split("/")
    rows = ("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
    return next((row for row in rows if row in folders), parts[0])


def foreign_namespaces(source, folder, folders):
    """Positions and names of namespaces of other folders in which more than names of types is declared."""
    for match in NAMESPACE.finditer(source):
        name = match.group(1)
        if name in folders and name != folder.split("/")[0] and not DECLARED_ONLY.fullmatch(match.group(2)):
            yield match.start(), name


def is_written_by_build(name, path, root):
    """A CMakeLists.txt above the file names it: it lies in the build folder."""
    lists = (folder / "CMakeLists.txt" for folder in path.parents if folder.is_relative_to(root))
    return "/" not in name and any(f.exists() and f"OUTPUT {name} " in f.read_text() for f in lists)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    text = (root / "docs/architecture.md").read_text()
    folders, libraries = table(text, "folder"), table(text, "library")
    for folder, allowed in folders.items():
        for entry in allowed:
            if entry != "all" and entry not in libraries and entry.split("/")[0] not in folders:
                sys.exit(f"docs/architecture.md: row '{folder}' names '{entry}', which neither table has")

    breaches, checked = [], 0
    for folder, allowed in folders.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".inc", ".cu"):
                continue
            if row_of(path.relative_to(root).as_posix(), folders) != folder:
                continue
            checked += 1
            source = OPAQUE.sub(blank, path.read_text(errors="replace"))
            for position, name in foreign_namespaces(source, folder, folders) if folder != "tests" else ():
                breaches.append(f"{path.relative_to(root)}:{line_of(source, position)}: tbx::{name} is the namespace of {name}/")
            for match in CAUGHT_UNSEEN.finditer(source) if folder != "tests" else ():
                breaches.append(f"{path.relative_to(root)}:{line_of(source, match.start())}: an error is swallowed whose kind may be internal")
            for match in ASKS_THE_MACHINE.finditer(source) if folder.split("/")[0] in COMPILER else ():
                breaches.append(f"{path.relative_to(root)}:{line_of(source, match.start())}: {match.group(1)} is this machine, Target the one compiled for")
            for match in INCLUDE.finditer(source):
                quote, name = match.groups()
                where = f"{path.relative_to(root)}:{line_of(source, match.start())}"
                if quote == "<":
                    library = next((lib for lib, heads in libraries.items() if name.startswith(tuple(heads))), None)
                    if library:
                        if "all" not in allowed and library not in allowed:
                            breaches.append(f"{where}: <{name}> is {library}; '{folder}' may include {', '.join(allowed)}")
                    elif not STANDARD.fullmatch(name) and not (folder == "tests" or name == "Python.h"):
                        breaches.append(f"{where}: <{name}> is neither standard nor in the table of libraries")
                    continue
                if name.startswith("tensorbox/"):
                    name = "include/" + name
                elif not (root / name).exists() and (path.parent / name).exists():
                    name = str((path.parent / name).resolve().relative_to(root))
                target = row_of(name, folders)
                if target not in folders and is_written_by_build(name, path, root):
                    continue
                if target not in folders:
                    breaches.append(f'{where}: "{name}" is not below a folder of the table; '
                                    "paths start at the root of the repository, libraries stand in <>")
                elif target != folder and "all" not in allowed and not {target, name} & set(allowed):
                    breaches.append(f'{where}: "{name}": \'{folder}\' may include {", ".join(allowed) or "only itself"}')
                elif not (root / name).exists():
                    breaches.append(f'{where}: "{name}" does not exist')
    print(*breaches, sep="\n", end="\n" if breaches else "")
    print(f"include check: {checked} files, {len(breaches)} breaches")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
