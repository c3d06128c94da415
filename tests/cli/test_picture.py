"""tbx explain --picture: an SVG that says what the report says, whatever names a model has."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Result, save
from onnx import TensorProto, helper

Tbx = Callable[..., Result]
SVG = "{http://www.w3.org/2000/svg}"


def diamond(path: Path, name: str = "split") -> Path:
    """y = concat(r @ v, r @ w) - the largest of each column of r, with r = relu(x)."""
    info = helper.make_tensor_value_info
    rng = np.random.default_rng(1)
    weights = {n: rng.standard_normal((5, 5), np.float32) for n in "vw"}
    nodes = [helper.make_node("Relu", ["x"], ["r"], name), helper.make_node("MatMul", ["r", "v"], ["a"], "one"),
             helper.make_node("MatMul", ["r", "w"], ["b"], "other"), helper.make_node("Concat", ["a", "b"], ["c"], "joined", axis=0),
             helper.make_node("ReduceMax", ["r"], ["most"], "largest", axes=[0]), helper.make_node("Sub", ["c", "most"], ["y"], "last")]
    return save(path, nodes, [info("x", TensorProto.FLOAT, [3, 5])], [info("y", TensorProto.FLOAT, [6, 5])], weights)


def parts(svg: Path) -> tuple[list[ElementTree.Element], list[ElementTree.Element]]:
    """The groups of kernels, and the lines between them."""
    root = ElementTree.fromstring(svg.read_bytes())
    assert root.tag == SVG + "svg" and not root.findall(f".//{SVG}script")
    return root.findall(SVG + "g"), [p for p in root.findall(SVG + "path") if p.get("class") == "edge"]


def test_kernels_read_what_the_graph_says(tbx: Tbx, tmp_path: Path) -> None:
    path = diamond(tmp_path / "m.onnx")
    kernels = tbx("explain", path, "--no-compile", "--no-fusion", "--disable-pass", "join_products", "--json").json["kernels"]
    graph = onnx.load(path).graph
    of = [{n.split(" ")[0] for n in k["nodes"]} for k in kernels]
    assert sorted(name for names in of for name in names) == sorted(node.name for node in graph.node)  # each in one kernel
    kernel = {value: i for i, names in enumerate(of) for node in graph.node if node.name in names for value in node.output}
    for i, names in enumerate(of):
        read = {kernel[value] for node in graph.node if node.name in names for value in node.input if value in kernel}
        assert kernels[i]["reads_from"] == sorted(read - {i})


@pytest.mark.parametrize("profile", [True, False])
def test_picture_shows_the_report(tbx: Tbx, tmp_path: Path, profile: bool) -> None:
    path, svg = diamond(tmp_path / "m.onnx"), tmp_path / "m.svg"
    kernels: list[dict[str, Any]] = tbx("explain", path, "--no-compile", "--json", "--picture", svg, *["--profile"] * profile).json["kernels"]
    groups, lines = parts(svg)
    assert len(groups) == len(kernels) > 1
    assert len(lines) == sum(len(k["reads_from"]) for k in kernels) > 0
    weights = [k["time_ns" if profile else "bytes"] for k in kernels]
    bars = [float(next(r.get("width") for r in g.findall(SVG + "rect") if "bar" in r.get("class", "").split())) for g in groups]
    assert bars == pytest.approx([250 * w / max(weights) for w in weights], abs=0.06)
    for k, g in zip(kernels, groups):
        title = g.findtext(SVG + "title") or ""
        assert all(text in title for text in [k["name"], *k["nodes"], *k["decisions"]])


@pytest.mark.parametrize("name", ["</title><script>alert(1)</script>", "a & b \"c\" 'd'", "\x01\x1b[31m\n", "\ufffe\uffff", "名前" * 60])
def test_names_of_a_model_are_text(tbx: Tbx, tmp_path: Path, name: str) -> None:
    path, svg = diamond(tmp_path / "m.onnx", name), tmp_path / "m.svg"
    assert tbx("explain", path, "--no-compile", "--picture", svg).code == 0
    groups, _ = parts(svg)
    titles = "".join(g.findtext(SVG + "title") or "" for g in groups)
    assert (name if name.isprintable() and "\ufffe" not in name else "(Relu)") in titles


def test_nothing_to_run_is_a_picture(tbx: Tbx, tmp_path: Path) -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    path, svg = save(tmp_path / "m.onnx", [], [info], [info]), tmp_path / "m.svg"
    kernels = tbx("explain", path, "--json", "--picture", svg).json["kernels"]
    assert len(parts(svg)[0]) == len(kernels)


def test_packages_have_pictures(tbx: Tbx, tmp_path: Path) -> None:
    path, package, svg = diamond(tmp_path / "m.onnx"), tmp_path / "m.tbx", tmp_path / "m.svg"
    assert tbx("compile", path, "-o", package).code == 0
    kernels = tbx("explain", package, "--profile", "--json", "--picture", svg).json["kernels"]
    groups, lines = parts(svg)
    assert len(groups) == len(kernels) and len(lines) == sum(len(k["reads_from"]) for k in kernels) > 0


def test_pictures_replace_no_model(tbx: Tbx, tmp_path: Path) -> None:
    path = diamond(tmp_path / "m.onnx")
    before = path.read_bytes()
    for where in (path, tmp_path, tmp_path / "none" / "m.svg"):
        done = tbx("explain", path, "--no-compile", "--picture", where)
        assert done.code == 2 and "--picture" in done.err
    assert path.read_bytes() == before


def test_pictures_are_svg(tbx: Tbx, tmp_path: Path) -> None:
    path = diamond(tmp_path / "m.onnx")
    for name in ("m.png", "m", "svg"):
        done = tbx("explain", path, "--picture", tmp_path / name)
        assert done.code == 2 and "expected a name ending in .svg" in done.err and not (tmp_path / name).exists()
