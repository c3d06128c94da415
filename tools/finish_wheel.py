#!/usr/bin/env python3
"""Makes a wheel whole, so that `pip install` takes it where nothing of what it was built with is.

usage: tools/finish_wheel.py <wheel> <build folder> <folder of the dependencies> <out folder>

1. auditwheel puts the system's libraries into the wheel, under file names that nothing else has, and finds its tag.
2. Their symbols get names that nothing else has: another protobuf in the process, of whatever version, stays another.
3. The licences of all that is inside are copied from the packages that it came from.
Needs the packages of deps/wheel.txt; prints the path of the wheel.
"""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

from elftools.elf.elffile import ELFFile

# Compiled in: headers of system packages, and Python packages that hold C++ (ONNX's schemas, the bindings, oneDNN, ...).
HEADERS = ("CLI/CLI.hpp", "nlohmann/json.hpp", "fmt/format.h", "google/protobuf/message.h")
PYTHON_PACKAGES = ("nanobind", "onnx", "onednn_cpu_tbb", "tbb", "intel_cmplr_lib_rt")
# Whose names are everybody's: what a library defines of them is not its own.
COMMON = ("libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6")


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def defined_symbols(path):
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        return {s.name for s in table.iter_symbols()
                if s["st_shndx"] != "SHN_UNDEF" and s["st_info"]["bind"] != "STB_LOCAL" and s.name}


def system_library(name):
    for line in run("ldconfig", "-p", env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}).splitlines():
        if line.split(" ")[0].strip() == name and "x86-64" in line:
            return pathlib.Path(line.split("=> ")[1])
    sys.exit(f"the system has no {name}")


def rename_symbols(tree):
    """Every symbol that a library of tensorbox.libs defines gets a prefix, there and where it is used."""
    bundled = sorted((tree / "tensorbox.libs").iterdir())
    common = set().union(*(defined_symbols(system_library(name)) for name in COMMON))
    names = set().union(*(defined_symbols(library) for library in bundled)) - common
    with tempfile.NamedTemporaryFile("w") as table:
        table.writelines(f"{name} tensorbox_{name}\n" for name in sorted(names))
        table.flush()
        for file in [*bundled, *(tree / "tensorbox/lib").glob("libtensorbox.so*"), tree / "tensorbox/bin/tbx"]:
            run("patchelf", "--rename-dynamic-symbols", table.name, file)


def package_of(pattern):
    """The system package that a file belongs to."""
    found = run("dpkg-query", "-S", pattern).splitlines()
    return next(line for line in found if not line.startswith("diversion")).split(":")[0]


def licences(tree, deps):
    """{file name: text} of everything inside that is not ours."""
    packages = {package_of(f"/usr/include/{header}") for header in HEADERS}
    for library in (tree / "tensorbox.libs").iterdir():
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)
        if not name.startswith("libjbig."):  # ours (cmake/no_jbig.cpp)
            packages.add(package_of(f"*/{name}"))
    texts = {f"{package}.txt": pathlib.Path(f"/usr/share/doc/{package}/copyright").read_text() for package in packages}
    for package in PYTHON_PACKAGES:
        found = [p for info in deps.glob(f"venv/lib/python3*/site-packages/{package}-*.dist-info") for p in info.rglob("*LICENSE*")]
        if not found:
            sys.exit(f"the package {package} has no licence file below {deps}")
        texts[f"{package}.txt"] = "\n".join(p.read_text() for p in found)
    for path in (deps / "prefix/share/licenses").iterdir():
        texts[path.name] = path.read_text()
    return texts


def write(tree, path):
    """The wheel of a folder. Equal folders give equal files."""
    info = next(tree.glob("*.dist-info"))
    record = info / "RECORD"
    files = sorted(p for p in tree.rglob("*") if p.is_file() and p != record)
    digest = {p: base64.urlsafe_b64encode(hashlib.sha256(p.read_bytes()).digest()).decode().rstrip("=") for p in files}
    lines = [f"{p.relative_to(tree)},sha256={digest[p]},{p.stat().st_size}" for p in files]
    record.write_text("\n".join([*lines, f"{record.relative_to(tree)},,"]) + "\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for p in [*files, record]:
            entry = zipfile.ZipInfo(str(p.relative_to(tree)))
            entry.external_attr = (0o100755 if os.access(p, os.X_OK) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, p.read_bytes())


def main():
    wheel, build, deps, out = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", scratch / "repaired", wheel,
            env={**os.environ, "LD_LIBRARY_PATH": str(build / "wheel-libraries")})
        repaired = next((scratch / "repaired").iterdir())
        tree = scratch / "tree"
        with zipfile.ZipFile(repaired) as archive:
            archive.extractall(tree)
            for entry in archive.infolist():
                if not entry.is_dir():
                    (tree / entry.filename).chmod(entry.external_attr >> 16 & 0o777 or 0o644)
        run("patchelf", "--set-rpath", "$ORIGIN/lib", next((tree / "tensorbox").glob("_core.*so")))
        rename_symbols(tree)
        info = next(tree.glob("*.dist-info"))
        folder = info / "licenses/inside"
        folder.mkdir(parents=True)
        texts = licences(tree, deps)
        for name, text in texts.items():
            (folder / name).write_text(text)
        metadata = info / "METADATA"
        entries = "".join(f"License-File: inside/{name}\n" for name in sorted(texts))
        metadata.write_text(metadata.read_text().replace("License-File: LICENSE\n", "License-File: LICENSE\n" + entries, 1))
        write(tree, out / repaired.name)
    print(out / repaired.name)


if __name__ == "__main__":
    main()
