"""Virtual environments of the tests of what pip installs, and what they run."""

import pathlib
import re
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Environment:
    """A virtual environment with numpy and what pip installs by the arguments `install`, and nothing else. `options`
    are those of its process."""

    def __init__(self, folder, *install, **options):
        self.bin, self.variables = folder / "bin", {"PATH": "/usr/bin:/bin", "TBX_CACHE_DIR": str(folder / "kernels")}
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.packages = next((folder / "lib").glob("python3*/site-packages"))
        here = pathlib.Path(np.__file__).parents[1]
        for found in [*here.glob("numpy"), *here.glob("numpy-*"), *here.glob("numpy.libs")]:
            (self.packages / found.name).symlink_to(found)
        run(sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--no-index", *install, **options)

    def python(self, code, **variables):
        return run(self.bin / "python", "-c", code, cwd=ROOT, env=self.variables | variables)


def readme_lines():
    return re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]
