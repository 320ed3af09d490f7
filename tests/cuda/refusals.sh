#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What people meet who have no GPU, or not what they asked for: a CPU program loads no CUDA library, and
# errors say what was found and how to check. usage: refusals.sh TESSERA LIBRARY MODULE EMULATED YAML
tessera=$1 library=$2 module=$3 emulated=$4 yaml=$5
failed=0

# expect TEXT VARIABLE=VALUE... : running on cuda fails with it.
expect() {
    local text=$1 out
    shift
    out=$(env "$@" timeout 60 "$tessera" run "$yaml" --set placements.all.device=cuda 2>&1)
    local rc=$?
    if [ $rc -ne 1 ] || ! grep -qF "$text" <<<"$out"; then
        echo "FAIL $*: rc $rc, not '$text' but: $out"
        failed=1
    fi
}

for file in "$tessera" "$library"; do
    if ldd "$file" | grep -iE 'cuda|cublas|cudnn|nccl'; then
        echo "FAIL $file is linked to a CUDA library"
        failed=1
    fi
done
out=$(LD_DEBUG=files "$tessera" run "$yaml" 2>&1)
if ! grep -q 'calling init: .*libyaml' <<<"$out" || grep -iE 'calling init: .*(cuda|nccl)' <<<"$out"; then
    echo "FAIL a program on CPUs loads a CUDA library"
    failed=1
fi

expect 'could not be loaded: /nowhere.so: cannot open shared object file' TESSERA_CUDA_MODULE=/nowhere.so
expect 'is no module of Tessera' TESSERA_CUDA_MODULE="$(ldconfig -p | sed -n 's/.*libm.so.6.* => //p' | head -1)"
"$tessera" info --json | grep -q '"gpus":.*\[\]' && [ ! -e /dev/nvidiactl ] &&
    expect 'no CUDA driver is installed here' TESSERA_CUDA_MODULE="$module"
stub=$(dirname "$(command -v nvcc)")/../lib64/stubs/libcuda.so
if [ -e "$stub" ]; then
    folder=$(mktemp -d)
    ln -s "$stub" "$folder/libcuda.so.1"
    expect "is the toolkit's stub" TESSERA_CUDA_MODULE="$module" LD_LIBRARY_PATH="$folder"
    rm -r "$folder"
fi
expect "expected a number of bytes" TESSERA_CUDA_MODULE="$emulated" TESSERA_CUDA_ARENA_BYTES=much
expect 'asks for 9000000000000 bytes' TESSERA_CUDA_MODULE="$emulated" TESSERA_CUDA_ARENA_BYTES=9000000000000
expect 'expected at least 65536 bytes' TESSERA_CUDA_MODULE="$emulated" TESSERA_CUDA_ARENA_BYTES=65535
expect 'raise the variable TESSERA_CUDA_ARENA_BYTES' TESSERA_CUDA_MODULE="$emulated" TESSERA_CUDA_ARENA_BYTES=65536 TESSERA_CUDA_COMM=local
expect 'older than the' TESSERA_CUDA_MODULE="$emulated" EMULATED_DRIVER=12040
expect 'GPU 0 is of compute capability 8.6, and the kernels of this build are for 9.0 and later ones: build with -Dgpu-arch=86' \
    TESSERA_CUDA_MODULE="$emulated" EMULATED_CAPABILITY=8.6
expect 'finds no GPU' TESSERA_CUDA_MODULE="$emulated" EMULATED_DEVICES=0 CUDA_VISIBLE_DEVICES=
expect "TESSERA_CUDA_COMM" TESSERA_CUDA_MODULE="$emulated" TESSERA_CUDA_COMM=carrier-pigeon
expect '4 ranks of one machine have 1 GPU: ranks 0 and 1 share the GPU' TESSERA_CUDA_MODULE="$emulated" EMULATED_DEVICES=1
[ $failed -eq 0 ] && echo ok
exit $failed
