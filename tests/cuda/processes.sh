#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are processes and share a GPU read each other's memory by CUDA IPC: the same losses as
# on CPUs. usage: processes.sh TESSERA EMULATED EXPERIMENTS
tessera=$1 folder=$3
export TESSERA_CUDA_MODULE=$2 TESSERA_CUDA_COMM=local OMP_NUM_THREADS=1
failed=0

# "step 1: loss 2.25"; what else a run says, of a failed one all.
losses() {
    local text
    text=$(cat)
    grep '^step ' <<<"$text" | sed 's/,.*//' || printf '%s\n' "$text"
}

for name in attention tensor_parallel zero; do
    file=$folder/$name.yaml
    ranks=$("$tessera" plan --json "$file" | sed -n 's/.*"ranks":[[:space:]]*\([0-9]*\),.*/\1/p' | head -1)
    sets=(--set dtype=f64 --set train.steps=4)
    [ $name = zero ] && sets+=(--set data.batch_size=4 --set train.steps=1)
    places=()
    for p in $(sed -n '/^placements:/,/^[a-z]*:/s/^  \([a-z0-9_]*\):.*/\1/p' "$file"); do
        places+=(--set "placements.$p.device=cuda")
    done
    cpu=$("$tessera" run "$file" "${sets[@]}" 2>&1 | losses)
    cuda=$(timeout 250 "$tessera" launch -n "$ranks" -- "$tessera" run "$file" "${sets[@]}" "${places[@]}" 2>&1 |
        losses)
    if [ -z "$cpu" ] || [ "$cpu" != "$cuda" ]; then
        printf 'FAIL %s on %s processes\n--- cpu\n%s\n--- cuda\n%s\n' "$name" "$ranks" "$cpu" "$cuda"
        failed=1
    fi
done
[ $failed -eq 0 ] && echo ok
exit $failed
