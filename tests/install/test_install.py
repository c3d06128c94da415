"""`cmake --install` gives a package that another project finds, a command and a Python module that start."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / "build/release", "--prefix", prefix)
    return prefix


def test_another_project_uses_the_package(prefix, tmp_path):
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests/install/consumer", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DEXAMPLE={ROOT}/examples/classify.cpp")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "consumer", cwd=ROOT).startswith("0: ")


def test_licences_are_installed(prefix):
    assert {p.name for p in (prefix / "share/licenses/tensorbox").iterdir()} >= {"LICENSE", "ducc0-fft.txt"}


def test_installed_command_starts(prefix):
    assert "bench" in run(prefix / "bin/tbx", "--help")


def test_installed_module_runs(prefix):
    environment = dict(os.environ, PYTHONPATH=str(prefix / "lib/tensorbox/python"))
    assert run(sys.executable, ROOT / "examples/classify.py", cwd=ROOT, env=environment).startswith("accuracy")
