"""The README's examples are the files in examples/, and these compile and run."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("language, file", [("cpp", "classify.cpp"), ("python", "classify.py")])
def test_readme_shows_the_example(language, file):
    blocks = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert (ROOT / "examples" / file).read_text() in blocks


def test_readme_links_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    missing = [link for link in links if not (ROOT / link).exists()]
    assert not missing


def run(command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout


def test_cpp_example():
    lines = run([ROOT / "build/release/bin/example_classify"]).splitlines()
    probability = {digit: float(p) for digit, p in (line.split(": ") for line in lines)}
    assert max(probability, key=probability.get) == "1"
    assert abs(sum(probability.values()) - 1) < 1e-3


def test_python_example():
    name, accuracy = run([sys.executable, "examples/classify.py"]).split()
    assert name == "accuracy" and float(accuracy) >= 0.97
