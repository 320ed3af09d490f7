#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs that people bring from PyTorch's DDP print on GPUs what they print on CPUs: the same text,
# each rank's lines in the same order, numbers within 1e-5, or by one in the last digit printed.
# usage: examples.sh TESSERA EXAMPLES WAY...    WAY: 1, 2 or 4 emulated GPUs for thread ranks;
# "processes", of which emulated ones share a GPU; "given": thread ranks on the GPUs of this machine;
# "alone": one process by NCCL
tessera=$1 folder=$2
shift 2
export OMP_NUM_THREADS=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0 checks=0 number='-?[0-9]+(\.[0-9]+)?'

# write_mnist NAME N: MNIST in small, for mnist_ddp_amp; images of a bright bar for each digit.
write_mnist() {
    # shellcheck disable=SC2059 # bytes, as escapes
    printf "$(awk -v n="$2" 'BEGIN {
        printf "\\0\\0\\010\\003\\0\\0\\0\\%03o\\0\\0\\0\\034\\0\\0\\0\\034", n
        for (i = 0; i < n; i++) for (y = 0; y < 28; y++) for (x = 0; x < 28; x++)
            printf "\\%03o", int(y / 2) == i % 10 + 1 ? 200 + i % 50 : (x * i) % 30 }')" >"$work/$1-images-idx3-ubyte"
    # shellcheck disable=SC2059
    printf "$(awk -v n="$2" 'BEGIN { printf "\\0\\0\\010\\001\\0\\0\\0\\%03o", n
        for (i = 0; i < n; i++) printf "\\%03o", i % 10 }')" >"$work/$1-labels-idx1-ubyte"
}

# output COMMAND...: what it prints, rank by rank (ranks print in any order, each in its own), and its
# exit code. Not compared: the word for the device, times, numbers of calls, which are counted apart on
# host memory and on GPUs, how a call that ranks disagree on does its work, and who told of that first.
output() {
    timeout 100 "$@" 2>"$work/errors" |
        sed -E 's/^\[GPU: /[CPU: /; s/^(time elapsed:).*/\1/; s/#[0-9]+/#/g; s/(\.c:[0-9]+\)): [^;]*/\1/g
            s/rank [0-9]+ failed: //' | sort -s -n -k2,2
    echo "exit code ${PIPESTATUS[0]}"
}

# texts FILE, numbers FILE: what an output is beside its numbers; these.
texts() { sed -E "s/$number/N/g" "$1"; }
numbers() { grep -oE -e "$number" "$1"; }

# Whether the two outputs, cpu and cuda, are alike.
are_alike() {
    [ "$(texts "$work/cpu")" = "$(texts "$work/cuda")" ] &&
        paste <(numbers "$work/cpu") <(numbers "$work/cuda") | awk '
            function size(v) { return v < 0 ? -v : v }
            { digits = match($1, /\./) ? length($1) - RSTART : 0
              last = digits ? 1.001 * 10 ^ -digits : 0
              if (size($1 - $2) > 1e-5 * size($1) + last) bad = 1 }
            END { exit bad }'
}

check() {
    checks=$((checks + 1))
    are_alike && return
    printf 'FAIL %s\n--- cpu\n%s\n--- cuda\n%s\n%s\n' "$1" "$(<"$work/cpu")" "$(<"$work/cuda")" "$(<"$work/errors")"
    failed=1
}

# same RANKS PROGRAM ARGUMENTS...: as thread ranks on CPUs, and in each way on GPUs. @ in the arguments:
# cpu, or the way.
same() {
    local ranks=$1 program=$2 way before
    shift 2
    output "$folder/$program" "${@//@/cpu}" >"$work/cpu"
    for way in "${ways[@]}"; do
        case $way in
        alone) continue ;;
        processes) before=(env EMULATED_DEVICES=1 TESSERA_CUDA_COMM=local "$tessera" launch -n "$ranks" --) ;;
        given) before=() ;;
        *) before=(env "EMULATED_DEVICES=$way" TESSERA_CUDA_COMM="$([ "$ranks" -le "$way" ] || echo local)") ;;
        esac
        output "${before[@]}" "$folder/$program" "${@//@/$way}" --device cuda >"$work/cuda"
        check "$program $*, GPUs: $way"
    done
}

# same_weights TOLERANCE NAME: what mnist_ddp_amp has saved.
same_weights() {
    local way
    for way in "${ways[@]}"; do
        [ "$way" != alone ] || continue
        checks=$((checks + 1))
        "$tessera" ckpt compare -p model -t "$1" "$work/$2.cpu" "$work/$2.$way" >"$work/errors" 2>&1 && continue
        printf 'FAIL weights of %s, GPUs: %s\n%s\n' "$2" "$way" "$(<"$work/errors")"
        failed=1
    done
}

# alone PROGRAM ARGUMENTS...: one process, by NCCL, if that way is asked for.
alone() {
    local command=("$tessera" launch -n 1 -- "$folder/$1" "${@:2}")
    [[ " ${ways[*]} " == *" alone "* ]] || return 0
    output "${command[@]}" >"$work/cpu"
    TESSERA_CUDA_COMM=nccl output "${command[@]}" --device cuda >"$work/cuda"
    check "$*, one process"
}

write_mnist train 8
write_mnist t10k 4
ways=("$@")
same 2 ddp_train
same 4 ddp_trainer 1
same 2 rank_skips
same 2 rank_skips --join
same 3 async_all_reduce
same 2 mnist_ddp_amp "$work" -n 2 -e 1 -b 4 --amp off -o "$work/off.@"
same_weights 5e-6 off
same 2 mnist_ddp_amp "$work" -n 2 -e 1 -b 4 --amp f16 --sync-bn -o "$work/f16.@"
same_weights 1e-3 f16
alone ddp_trainer 1
alone async_all_reduce
alone mnist_ddp_amp "$work" -e 1 -b 4 --amp bf16 -o "$work/alone"
if [ $failed -eq 0 ]; then echo "$checks checks in $SECONDS s"; fi
exit $failed
