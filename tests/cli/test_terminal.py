"""Names of a model on the terminal and in archives: nothing that a terminal obeys, and no path out of a folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import TBX, Result
from onnx import helper

Tbx = Callable[..., Result]
ODD = "\x1b[2J\x1b]0;pwn\x07\n\r\ttab\x9b2J\u202enul\x7f"


def two_nodes(path: Path, name: str, output: str | None = None) -> Path:
    """y = exp(-x), all names beginning with `name`."""
    x = helper.make_tensor_value_info(name + "x", 1, [name + "N", 4])
    y = helper.make_tensor_value_info(output or name + "y", 1, [name + "N", 4])
    nodes = [helper.make_node("Neg", [name + "x"], [name + "t"], name + "1"),
             helper.make_node("Exp", [name + "t"], [output or name + "y"], name + "2")]
    onnx.save(helper.make_model(helper.make_graph(nodes, name, [x], [y], doc_string=name), producer_name=name,
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def check(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in text), repr(text)


COMMANDS = [["run"], ["run", "--json"], ["run", "--all-values", "--save", "all.npz"], ["bench", "--repeat", "1", "--warmup", "0"], ["explain"],
            ["explain", "--profile"], ["explain", "--json"], ["compare"], ["compare", "--all"], ["compare", "--every-node", "--json"],
            ["dump", "--stage", "import"], ["dump", "--stage", "lower"], ["dump", "--stage", "schedule"], ["dump", "--stage", "plan"],
            ["dump", "--json"], ["run", "--input", "none=x.npy"], ["run", "--dim", "none=3"], ["optimize", "to.onnx"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_names(tbx: Tbx, tmp_path: Path, command: list[str]) -> None:
    model = two_nodes(tmp_path / "odd.onnx", ODD)
    here = [str(tmp_path / part) if part.endswith((".npz", "to.onnx")) else part for part in command[1:]]
    result: Result = tbx(command[0], model, *here, *([] if command[0] == "dump" else ["--no-compile"] if command[0] != "optimize" else []))
    check(result.out)
    check(result.err)
    assert "InternalError" not in result.err
    if "--json" in command and result.code == 0:
        json.loads(result.out)


def test_lines_of_a_name_are_none_of_ours(tbx: Tbx, tmp_path: Path) -> None:
    """A name that goes on in the next line would stand there as if we had said it."""
    model = two_nodes(tmp_path / "odd.onnx", "a\nok: all is well\nb")
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    commands = [["dump", "--stage", stage] for stage in ("import", "simplify", "lower", "schedule", "plan")]
    commands += [["run", "--no-compile"], ["explain", "--no-compile"], ["run", "--no-compile", "--input", f"none={tmp_path / 'x.npy'}"]]
    for command in commands:
        result = tbx(command[0], model, *command[1:])
        assert not any(line.startswith("ok: all is well") for line in (result.out + result.err).splitlines()), command


def test_messages_of_long_names_are_short(tbx: Tbx, tmp_path: Path) -> None:
    x = [helper.make_tensor_value_info(f"{i}" + "x" * 100_000, 1, [f"{i}" + "n" * 100_000]) for i in range(20)]
    y = helper.make_tensor_value_info("y", 1, None)
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Sum", [v.name for v in x], ["y"])], "g", x, [y]),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    refused = tbx("run", tmp_path / "m.onnx", "--no-compile", "--input", f"{x[3].name}={tmp_path / 'x.npy'}")
    message = refused.err.splitlines()[-1]
    assert refused.code == 3 and "has rank 2" in message and len(message) < 40_000


def test_names_that_are_no_text(tmp_path: Path) -> None:
    model = two_nodes(tmp_path / "odd.onnx", "PLACE")
    model.write_bytes(model.read_bytes().replace(b"PLACE", b"n\xffpe\xc3"))
    for command in (["run"], ["run", "--json"], ["explain"], ["compare"], ["run", "--dim", "none=3"]):
        done = subprocess.run([TBX, command[0], model, *command[1:], "--no-compile"], capture_output=True, check=False)
        check(done.stdout.decode())
        check(done.stderr.decode())
        assert b"InternalError" not in done.stderr


def on_a_terminal(*command: object) -> str:
    """What goes to stderr where that is a terminal."""
    ours, theirs = os.openpty()
    with subprocess.Popen([TBX, *command], stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                said += part
        assert process.wait() == 0
    os.close(ours)
    return said.decode()


def test_progress(model: Path) -> None:
    said = on_a_terminal("compare", model, "--no-compile")
    assert "\rrun of the reference 1/" in said.replace("\x1b[K", "") and said.endswith("\r\x1b[K")
    assert on_a_terminal("compare", model, "--no-compile", "--quiet") == ""


NAMES = ["y", "/model/Add_output_0", "../../up", "..", "a/../../b", "C:\\x", "a//b", "Identity:0", "Umlaut \u00e4", "100%", "%2F", "a\x1bb",
         "./here", "...", "a/"]


@pytest.mark.parametrize("name", NAMES)
def test_members_of_archives(tbx: Tbx, tmp_path: Path, name: str) -> None:
    model = two_nodes(tmp_path / "m.onnx", "v", name)
    saved = tmp_path / "out.npz"
    assert tbx("run", model, "--no-compile", "--save", saved, "--all-values").code == 0
    with zipfile.ZipFile(saved) as archive:
        members = archive.namelist()
        assert len(members) == 2 and archive.testzip() is None
    for member in members:
        assert not member.startswith("/") and "\\" not in member and all(part not in ("", ".", "..") for part in member.split("/"))
        assert not (len(member) > 1 and member[1] == ":") and member.isprintable()
        target = (tmp_path / "folder" / member).resolve()
        assert target.is_relative_to(tmp_path / "folder")
    if name in ("y", "Identity:0", "Umlaut \u00e4", "100%"):
        assert name in np.load(saved)
    again = tbx("compare", model, "--no-compile", "--every-node", "--expected", saved, "--json").json
    assert again["compared"] == 2 and again["first_difference"] is None
