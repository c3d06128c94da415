#!/usr/bin/env bash
# Builds the pinned dependencies once per machine and prints the folder that holds them on stdout.
# usage: deps/build.sh [--print-only]
#   <cache>/tensorbox/deps/<key>/venv     Python with cmake, ninja and the Python packages of python.txt
#   <cache>/tensorbox/deps/<key>/prefix   headers and libraries: onnx, oneDNN, oneTBB; the FFT of ducc0 as source
# The key is a hash of the files of this folder, the system and its compiler and Python.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
say() { printf '[deps] %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

python=${TBX_PYTHON:-/usr/bin/python3}
command -v "$python" >/dev/null || die "no $python: install the system packages first (./dev deps), or set TBX_PYTHON"
[ "$(uname -m)" = x86_64 ] || die "the pinned libraries are built for x86_64; this machine is $(uname -m)"

key=$({
  cat "$here"/python.txt "$here"/sources.txt "$here"/build.sh
  (. /etc/os-release && echo "$ID $VERSION_ID") 2>/dev/null || true
  "$python" -c 'import sys; print(sys.version)'
  "${CXX:-g++}" -dumpfullversion
} | sha256sum | cut -c1-16)
root=${XDG_CACHE_HOME:-$HOME/.cache}/tensorbox/deps/$key
if [ -e "$root/complete" ] || [ "${1:-}" = --print-only ]; then echo "$root"; exit 0; fi

mkdir -p "$(dirname "$root")"
exec 9>"$root.lock"
flock -n 9 || { say "another build of the dependencies is running; waiting for it"; flock 9; }
if [ -e "$root/complete" ]; then echo "$root"; exit 0; fi
rm -rf "$root"  # leavings of an interrupted build
mkdir -p "$root"
log=$root/build.log
step() {  # step <what> <command...>: runs quietly, shows the log's end when it fails
  local what=$1 start=$SECONDS; shift
  say "$what ..."
  { echo "### $what"; "$@"; } >>"$log" 2>&1 || { tail -n 40 "$log" >&2; die "$what failed; whole log: $log"; }
  say "$what: $((SECONDS - start)) s"
}
jobs=${TBX_JOBS:-$(nproc)}
venv=$root/venv prefix=$root/prefix

say "building into $root (a few minutes, once)"
step "Python environment" "$python" -m venv "$venv"
step "pinned packages" "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps \
  --only-binary=:all: --require-hashes -r "$here/python.txt"
step "source packages" "$venv/bin/python" -m pip download --disable-pip-version-check --no-deps --no-binary onnx,ducc0 \
  --no-build-isolation --require-hashes -r "$here/sources.txt" -d "$root/source"
for package in onnx ducc0; do tar -xzf "$root/source/$package"-*.tar.gz -C "$root/source"; done

ducc0_fft() {  # templates and one source file, compiled with ours; only what carries the BSD licence
  local file from
  from=$(echo "$root"/source/ducc0-*/src/ducc0)
  for file in fft/{fft,fft1d_impl}.h math/{cmplx,unity_roots}.h \
    infra/{aligned_array,error_handling,mav,misc_utils,simd,string_utils,threading,useful_macros}.h infra/threading.cc; do
    grep -q 'SPDX-License-Identifier: BSD-3-Clause' "$from/$file" || return 1
    install -D -m 644 "$from/$file" "$prefix/include/ducc0/$file" || return 1
  done
  mkdir -p "$prefix/share/licenses"
  sed -E '/This code is free software/,$d; /SPDX/d; /^(\/\*|\*\/)$/d' "$from/fft/fft.h" >"$prefix/share/licenses/ducc0-fft.txt"
}
step "FFT of ducc0" ducc0_fft

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
PATH=$venv/bin:$PATH
step "ONNX: configure" cmake -G Ninja -S "$root"/source/onnx-*/ -B "$root/build-onnx" \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" -DCMAKE_INSTALL_PREFIX="$prefix" \
  -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_VISIBILITY_PRESET=hidden \
  -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON -DBUILD_SHARED_LIBS=OFF -DONNX_ML=ON -DONNX_BUILD_PYTHON=OFF \
  -DONNX_BUILD_TESTS=OFF -DONNX_USE_LITE_PROTO=OFF -DONNX_USE_PROTOBUF_SHARED_LIBS=ON \
  -DONNX_NAMESPACE=tbx_onnx -DONNX_GEN_PB_TYPE_STUBS=OFF -DONNX_USE_UNITY_BUILD=ON -DPython3_EXECUTABLE="$venv/bin/python" "${launcher[@]}"
step "ONNX: build" cmake --build "$root/build-onnx" -j "$jobs"
step "ONNX: install" cmake --install "$root/build-onnx"
# Its own namespace, and so its own protobuf file and message names: another ONNX library in a user's process
# that shares libprotobuf would otherwise abort at load. Our sources still say onnx::
sed -i 's|^#endif // ONNX_ONNX_PB_H_|namespace onnx = ONNX_NAMESPACE;\n\n&|' "$prefix/include/onnx/onnx_pb.h"
grep -q '^namespace onnx = ' "$prefix/include/onnx/onnx_pb.h" || die "onnx_pb.h has an unexpected form"

collect() {  # oneDNN and oneTBB out of their Python wheels; one copy of each library, found through $ORIGIN
  mkdir -p "$prefix/lib" "$prefix/include"
  cp -r "$venv"/include/{dnnl*,oneapi,tbb} "$prefix/include/"
  local lib
  for lib in libdnnl.so.3 libtbb.so.12 libimf.so libintlc.so.5; do
    cp -L "$venv/lib/$lib" "$prefix/lib/$lib"
    chmod 755 "$prefix/lib/$lib"
  done
  ln -sf libdnnl.so.3 "$prefix/lib/libdnnl.so"
  ln -sf libtbb.so.12 "$prefix/lib/libtbb.so"
  patchelf --set-rpath '$ORIGIN' "$prefix/lib/libdnnl.so.3"
  patchelf --set-rpath '$ORIGIN' "$prefix/lib/libimf.so"
  # The rest of those wheels is not used, and a second libtbb in the process would be a second set of threads.
  find "$venv/lib" -mindepth 1 -maxdepth 1 ! -name 'python3*' -exec rm -rf {} +
  rm -rf "$venv"/include/{dnnl*,oneapi,tbb} "$venv/share/doc"
}
step "oneDNN and oneTBB" collect
rm -rf "$root/source" "$root/build-onnx"
touch "$root/complete"
say "done: $root ($SECONDS s)"
echo "$root"
