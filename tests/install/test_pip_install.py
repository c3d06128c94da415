"""`pip install .` in a copy of the tree, with the dependencies that are there, into an empty environment."""

import os
import pathlib
import shutil
import subprocess

import pytest
import scikit_build_core

from environment import ROOT, Environment, readme_lines, run

pytestmark = pytest.mark.skipif(not (shutil.which("ccache") or os.environ.get("TBX_TEST_PIP_INSTALL")),
                                reason="no ccache, and TBX_TEST_PIP_INSTALL is not set: all is compiled once more")


def copy_of_the_tree(to):
    """What git has or would add, as it is now."""
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in listed.split("\0"):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def test_the_readme_runs(tmp_path):
    tree = copy_of_the_tree(tmp_path / "tree")
    tools = pathlib.Path(scikit_build_core.__file__).parents[1]  # the build needs no network
    variables = os.environ | {"PYTHONPATH": str(tools), "PATH": f"{tools.parents[2]}/bin:{os.environ['PATH']}",
                              "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1",
                              "CXX": os.environ.get("CXX", "c++")}  # not that of the Python: ccache has what this one compiled
    environment = Environment(tmp_path / "venv", "--no-build-isolation", "--no-deps", tree, env=variables)
    shutil.rmtree(tree)
    assert environment.python(readme_lines()).startswith("accuracy 0.9")
    assert subprocess.run([environment.bin / "tbx", "--version"], env={}).returncode == 0
