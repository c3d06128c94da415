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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose(page):
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)


def anchors(page):
    """Of headings, as they become addresses: letters, numbers and dashes."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", prose(page), re.M)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_exist(page):
    missing = []
    for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose(page)):
        target = page.parent / link if link else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{link}#{anchor}")
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}
    for path in re.findall(r"`(\w+/[\w./]+)`", prose(page)):
        if path.split("/")[0] in folders and not (ROOT / path).exists() and not list(ROOT.glob(path + ".*")):
            missing.append(path)
    assert not missing


def test_readme_lists_all_documents():
    listed = set(re.findall(r"\]\(docs/(\w+\.md)\)", (ROOT / "README.md").read_text()))
    assert listed == {page.name for page in PAGES[1:]}


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
