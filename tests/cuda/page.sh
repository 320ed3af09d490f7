#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The C program of docs/guides/ddp-on-gpus.md, compiled as the page says, prints on emulated GPUs what
# it prints on CPUs. usage: page.sh ROOT BUILD EMULATED
root=$1 build=$2
export TESSERA_CUDA_MODULE=$3 OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^```c$/,/^```$/{/^```/d;p}' "$root/docs/guides/ddp-on-gpus.md" >"$work/fit.c"
"${CC:-cc}" -std=c17 -Wall -Wextra -Werror "-I$root/include" "$work/fit.c" -o "$work/fit" "-L$build" -ltessera \
    "-Wl,-rpath,$build" || exit 1

failed=0 cpu=$("$work/fit" | sort)
[ "$(grep -cE '^rank [01]: bias.grad -?[0-9]|^loss 0' <<<"$cpu")" = 3 ] || { printf 'FAIL on CPUs\n%s\n' "$cpu"; failed=1; }
# same WAY COMMAND...
same() {
    local cuda
    cuda=$(timeout 60 "${@:2}" cuda 2>&1 | sort)
    [ "$cpu" != "$cuda" ] || return
    printf 'FAIL %s\n--- cpu\n%s\n--- cuda\n%s\n' "$1" "$cpu" "$cuda"
    failed=1
}
same "thread ranks, one GPU" env EMULATED_DEVICES=1 TESSERA_CUDA_COMM=local "$work/fit"
same "thread ranks, two GPUs" env EMULATED_DEVICES=2 "$work/fit"
same "processes" env EMULATED_DEVICES=1 TESSERA_CUDA_COMM=local "$build/src/cli/tessera" launch -n 2 -- "$work/fit"
[ $failed -eq 0 ] && echo ok
exit $failed
