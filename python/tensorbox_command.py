"""The command `tbx` of an installed wheel: the program lies in the package. Apart from it, so that numpy is not loaded."""

import os
import pathlib
import sys


def main():
    program = pathlib.Path(__file__).with_name("tensorbox") / "bin/tbx"
    os.execv(program, ["tbx", *sys.argv[1:]])
