"""The C interface as programs that are compiled already see it: symbols of the libraries, sizes and offsets of structs, numbers
of enumerators. c_abi.txt has them; what changes there is a decision:

    ./dev python tests/install/test_c_abi.py --update
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
HEADER = ROOT / "include/tensorbox/c.h"
KEPT = pathlib.Path(__file__).with_name("c_abi.txt")


def symbols(library: str) -> list[str]:
    listed = subprocess.run(["nm", "-D", "--defined-only", ROOT / "build/release/lib" / library], check=True,
                            capture_output=True, text=True).stdout
    return sorted(line.split()[-1] for line in listed.splitlines() if line.split()[-1].startswith("tbx_"))


def layout() -> list[str]:
    """What a C compiler says of each struct and enumerator that the header defines."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    lines = []
    for tag, fields, alias in re.findall(r"struct (\w*)\s*\{(.*?)\}\s*(\w*);", text, re.S):
        name = alias or tag
        lines.append(f'printf("struct {name} of %zu bytes, aligned to %zu\\n", sizeof({name}), _Alignof({name}));')
        for field in re.findall(r"(\w+);", fields):
            at = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
            lines.append(f'printf("  {field} at %zu, %zu bytes\\n", {at});')
    for enumerators, name in re.findall(r"typedef enum \{(.*?)\} (\w+);", text, re.S):
        lines.append(f'printf("enum {name}\\n");')
        lines += [f'printf("  {e} = %d\\n", (int){e});' for e in re.findall(r"(\w+) =", enumerators)]
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
        source.write_text('#include <stdio.h>\n#include "tensorbox/c.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0;\n}\n")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Werror", f"-I{ROOT}/include", source, "-o", program],
                       check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def prototypes() -> list[str]:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    functions = re.findall(r"^TBX_C_API .*?;", text, re.S | re.M) + re.findall(r"^typedef \w+ \(\*.*?;", text, re.S | re.M)
    return sorted(re.sub(r"\s+", " ", f).replace("TBX_C_API ", "") for f in functions)


def text() -> str:
    runtime, whole = symbols("libtensorbox_runtime.so"), symbols("libtensorbox.so")
    parts = {"libtensorbox_runtime": runtime, "libtensorbox besides": sorted(set(whole) - set(runtime)),
             "libtensorbox without": sorted(set(runtime) - set(whole)), "functions": prototypes(), "layout on 64 bits": layout()}
    return "\n".join(line for title, lines in parts.items() for line in [f"[{title}]", *lines, ""])


def test_the_interface_of_programs_that_are_compiled_is_as_it_was():
    assert text() == KEPT.read_text(), "a change of the ABI that is meant: tests/install/test_c_abi.py --update"


def test_every_function_of_the_header_is_in_the_library():
    declared = set(re.findall(r"TBX_C_API [^;(]*?(tbx_\w+)\(", HEADER.read_text()))
    assert declared and declared == set(symbols("libtensorbox.so"))


if __name__ == "__main__":
    if sys.argv[1:] != ["--update"]:
        sys.exit(__doc__)
    KEPT.write_text(text())
