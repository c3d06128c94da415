#!/usr/bin/env python3
"""Which source files may be compiled together as one translation unit: prints one line of files per unit.

usage: cmake/large_units.py <lines per unit> <file>...

Most of the time of a file of 150 lines goes into the headers that it includes, so a unit of many files takes a third of the
time of its files. Files that use one name for things of their own cannot be in one unit; they are kept apart here, so
that nobody has to look for names that no other file of the folder has. Names of functions that would be overloads of
each other are kept apart as well: joined, a call could mean the other one. So is a type of one file from a file that
only mentions its name: that one means a type of a header.
"""

import re
import sys
from pathlib import Path

OWN = re.compile(r"^namespace \{\n(.*?)(?:^\} // namespace$|\Z)", re.S | re.M)
STATIC = re.compile(r"^static .*$", re.M)
GLOBAL_ALIAS = re.compile(r"^(?:using (?!namespace).*;|namespace \w+ = .*)$", re.M)
MACRO = re.compile(r"^#define (\w+)", re.M)
TYPE = re.compile(r"(?:struct|class|enum class|enum)\s+(\w+)")
ALIAS = re.compile(r"(?:using|namespace) (?:\w+::)*(\w+)(?: = .*|;)")
# What is declared by a line that begins at the margin: the name before the first parenthesis, or before "=", "{", "[", ";".
DECLARED = re.compile(r"[^(={;]*?\b(\w+)(?:<[^()]*>)?\s*(?:\(|\[|=|\{|;|$)")
TESTS = re.compile(r"(?:TEST|TEST_F|TEST_P|INSTANTIATE_TEST_SUITE_P)\(")  # it declares nothing that is named
ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)\)?|alignas\(\w+\) |^template <.*?> ?")
# It changes what the files behind it see: only files with the same are joined.
WORD = re.compile(r"\b[A-Z]\w*")
SEES = re.compile(r"^using namespace .*;|^#(?:undef|define) _.*", re.M)


def own_names(text):
    """The names that a source file declares for itself alone, and perhaps some more: what they mean, or None."""
    names = dict.fromkeys(set(MACRO.findall(text)) - set(re.findall(r"^#undef (\w+)", text, re.M)))
    parts = [part.splitlines() for part in OWN.findall(text)] + [STATIC.findall(text), GLOBAL_ALIAS.findall(text)]
    for line in (line for part in parts for line in part):
        if line[:1] in (" ", "}", "#", "/", "") or TESTS.match(line):
            continue
        line = ATTRIBUTE.sub("", line)
        alias = ALIAS.match(line)
        found = alias or TYPE.match(line) or DECLARED.match(line)
        if found:
            names[found.group(1)] = line if alias else None
    return names


def fit(some, others):
    """Whether no name of one is in the other, but for what means the same in both."""
    return all(some[name] and some[name] == others[name] for name in some.keys() & others.keys())


def means_other(names, words):
    """Whether a file of these words means the type of a header by a name that is another file's own."""
    return any(not meaning and name[0].isupper() and name in words for name, meaning in names.items())


def units(files, most_lines):
    """Lists of files, in their order as far as names and sizes allow."""
    made = []  # [files, names, lines, what they see, words]
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        names, lines, sees = own_names(text), text.count("\n"), SEES.findall(text)
        words = set(WORD.findall(text))
        for unit in made:
            fits = unit[2] + lines <= most_lines and unit[3] == sees and fit(names, unit[1])
            if fits and not means_other(names, unit[4]) and not means_other(unit[1], words):
                unit[0].append(file)
                unit[1].update(names)
                unit[2] += lines
                unit[4] |= words
                break
        else:
            made.append([[file], names, lines, sees, words])
    return [unit[0] for unit in made]


if __name__ == "__main__":
    for unit in units(sys.argv[2:], int(sys.argv[1])):
        print(";".join(unit))
