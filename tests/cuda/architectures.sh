#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# -Dgpu-arch takes several architectures: machine code for each, and PTX of the last.
# usage: architectures.sh MESON SOURCES
set -u
build=$(mktemp -d) || exit 1
trap 'rm -rf "$build"' EXIT
object=kernels/cuda/libtessera_cuda.so.p/built.cu.o
"$1" setup -Dcuda=enabled -Dgpu-arch=80,90,100 -Dtests=disabled -Dexamples=false -Dgloo=disabled -Donednn=disabled \
    -Ddocs=disabled "$build/b" "$2" >"$build/log" 2>&1 && ninja -C "$build/b" "$object" >"$build/log" 2>&1 ||
    { tail -5 "$build/log"; exit 1; }
found=$(python3 "$2/tests/cuda/kernel_table.py" --architectures "$build/b/$object")
[ "$found" = 'compute_100 sm_100 sm_80 sm_90' ] || { echo "the object has: $found"; exit 1; }
echo "$found"
