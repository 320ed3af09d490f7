# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The benchmarks of scripts/gpu-check, alone and beside PyTorch, and what a profiler finds in a step.
# Sourced, not run: takes the state and functions of gpu-check and gpu-report.sh.
# shellcheck disable=SC2154

# --- benchmarks ------------------------------------------------------------------------------------
# measure NAME LIMIT COMMAND...: prints and keeps its lines of JSON as they come.
measure() {
    local name=$1 limit=$2 line log=$out/logs/${1//[^A-Za-z0-9_.-]/_}.txt begin=$SECONDS
    shift 2
    [ "$limit" -le "$(left)" ] || limit=$(left)
    [ "$limit" -ge 10 ] || { not_begun "$name"; return; }
    while IFS= read -r line; do
        [[ $line == '{'*'}' ]] || continue
        record "$line"
        show "$line"
    done < <(timeout -k 5 "$limit" "$@" 2>"$log" </dev/null; echo "$?" >"$log.end")
    local rc
    rc=$(cat "$log.end")
    rm -f "$log.end"
    [ "$rc" = 0 ] && return
    [ "$rc" = 124 ] && { result "$name" skipped $((SECONDS - begin)) "cut off after $limit s"; return; }
    result "$name" failed $((SECONDS - begin)) "exit code $rc: $(tail -n 3 "$log")"
}

# One line of a benchmark, for people; figures that are asked for are counted.
show() {
    local l=$1 state='' what
    what="$(field "$l" case)$(field "$l" who) $(field "$l" model) $(field "$l" dtype)$([ "$(field "$l" tf32)" = true ] && echo ' (TF32)')"
    if [[ $l == *'"refused"'* || $l == *'"error"'* ]]; then
        say "           $what batch $(field "$l" batch)$(field "$l" shape): $(field "$l" refused)$(field "$l" error)"
        return
    fi
    if [ "$(field "$l" bench)" = step ]; then
        case $(field "$l" graph) in
        true) state="one graph" ;;
        false) state="by kernel" ;;
        esac
        [ "$ngpus" -gt 1 ] && [ "$(field "$l" ranks)" ] && state="$state, $(field "$l" ranks) ranks"
        say "$(printf '           %-38s batch %4d %-12s %9.3f ms a step (least %.3f), %9.0f samples/s' "$what" \
            "$(field "$l" batch)" "$state" "$(field "$l" ms_per_step_median)" "$(field "$l" ms_per_step_min)" "$(field "$l" samples_per_s)")"
        return
    fi
    if [ "$(field "$l" bench)" = profile ]; then
        say "$(printf '           %9.1f us (%2.0f %%) in %4d launches, memory %3.0f %%, processors %3.0f %%, %3d registers: %s' \
            "$(field "$l" us)" "$(field "$l" percent)" "$(field "$l" launches)" "$(field "$l" memory_percent)" \
            "$(field "$l" sm_percent)" "$(field "$l" registers)" "$(field "$l" kernel)")"
        return
    fi
    case $(field "$l" met) in
    true) state=met ;;
    false) state=missed ;;
    esac
    $simulated && state=
    [ "$state" = met ] && met=$((met + 1))
    [ "$state" = missed ] && missed=$((missed + 1))
    say "$(printf '%-10s %-44s %-18s %-9s %10s us %8s GB/s %s' "$state" "$what" "$(field "$l" shape)" "$(field "$l" impl)" \
        "$(field "$l" us)" "$(field "$l" gb_per_s)" \
        "$(share=$(field "$l" share_of_copy) over=$(field "$l" over_best); echo "${share:+$share of the copy}${over:+$(field "$l" tflops) TFLOP/s, $over of the best ($(field "$l" best_impl))}")")"
}

# next_line VARIABLE FD PID LIMIT: a line of JSON of a program, while it lives. A second may end within
# a line: what came of it until then is kept.
next_line() {
    local i got begun=''
    for ((i = 0; i < $4; i++)); do
        if IFS= read -r -t 1 -u "$2" got; then
            got=$begun$got begun=
            [[ $got == '{'* ]] && { printf -v "$1" %s "$got"; return 0; }
        else
            begun+=$got
        fi
        kill -0 "$3" 2>/dev/null || return 1
    done
    return 1
}

# race MODEL BATCH TYPE MODE ROUNDS STEPS LIMIT: rounds of our step and PyTorch's in turns. Sets ratio,
# or blame to the one that did not run.
race() {
    local model=$1 batch=$2 type=$3 mode=$4 rounds=$5 steps=$6 limit=$7 ours theirs i a='' b='' ms_a=() ms_b=()
    local peer=("$python" "$scripts/gpu_peer.py" --turns --model "$model" --batch "$batch" --type "$type" --steps "$steps")
    local mine=("$bin/bench_cuda_step" -l -m "$model" -b "$batch" -t "$type" -g 1 -n "$steps") ok=true to
    [ "$mode" = compile ] && peer+=(--compile)
    $simulated && peer+=(--device cpu --warmup 1 --tiny) && mine+=(-T)
    ratio='' blame=''
    to=$(mktemp -d)
    mkfifo "$to"/{a,b}.{in,out}
    timeout "$limit" "${mine[@]}" <"$to/a.in" >"$to/a.out" 2>"$out/logs/race-ours.txt" &
    ours=$!
    timeout "$limit" "${peer[@]}" <"$to/b.in" >"$to/b.out" 2>"$out/logs/race-peer.txt" &
    theirs=$!
    exec 4<>"$to/a.in" 5<>"$to/a.out" 6<>"$to/b.in" 7<>"$to/b.out"
    next_line a 5 $ours "$limit" && [[ $a == *ready* ]] || blame=ours
    [ -n "$blame" ] || next_line b 7 $theirs "$limit" || blame=peer
    for ((i = 0; i < rounds && ${#blame} == 0; i++)); do
        echo go >&4
        next_line a 5 $ours "$limit" || { blame=ours; break; }
        echo go >&6
        next_line b 7 $theirs "$limit" || { blame=peer; break; }
        ms_a+=("$(field "$a" ms_per_step)") ms_b+=("$(field "$b" ms_per_step)")
    done
    [ -z "$blame" ] || ok=false
    exec 4>&- 6>&-
    if $ok; then
        next_line a 5 $ours 10 && show "$a" && record "$a"
        next_line b 7 $theirs 10 && show "$b" && record "$b"
        ratio=$(calc "$(median "${ms_b[@]}") / $(median "${ms_a[@]}")")
    fi
    exec 5>&- 7>&-
    kill $ours $theirs 2>/dev/null
    wait $ours $theirs 2>/dev/null
    rm -rf "$to"
    $ok
}

median() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# versus MODE LIMIT MODEL BATCH ASKED TYPES: ratios to PyTorch.
versus() {
    local mode=$1 limit model=$3 batch=$4 asked=$5 type begin name rounds=7 steps=50
    $quick && rounds=5 steps=30
    [ "$model" = mobilenet_v2 ] || steps=$((steps / 5))
    $simulated && rounds=2 steps=2 batch=2
    for type in $6; do
        name="step of $model, batch $batch, $type, against PyTorch $mode" limit=$2
        [ "$limit" -le "$(left)" ] || limit=$(left)
        [ "$limit" -ge 30 ] || { not_begun "$name"; continue; }
        begin=$SECONDS
        if race "$model" "$batch" "$type" "$mode" "$rounds" "$steps" "$limit"; then
            bar "$name" "$ratio" "$asked" " times its speed"
        elif [ "$(left)" -le 1 ]; then
            result "$name" skipped $((SECONDS - begin)) "cut off: no time left (--seconds)"
        elif [ "$blame" = ours ]; then
            result "$name" failed $((SECONDS - begin)) "our step did not run: $(tail -n 2 "$out/logs/race-ours.txt")"
        else
            result "$name" skipped $((SECONDS - begin)) "PyTorch's step did not run: $(tail -n 1 "$out/logs/race-peer.txt")"
        fi
    done
}

# PyTorch needs memory, too, where it runs at the same time.
third_of_memory() { $simulated || export TESSERA_CUDA_ARENA_BYTES=$((gpu_bytes / 3)); }

# beside eager|compile
beside() {
    local arena=${TESSERA_CUDA_ARENA_BYTES:-} limit=120 types="f32 tf32 bf16" asked=(3.0 1.5)
    if ! $has_torch || { ! $simulated && ! timeout 120 "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; }; then
        result "step against PyTorch $1" skipped 0 "no torch that sees a GPU"
        return
    fi
    $quick && types="f32 bf16"
    if [ "$1" = compile ]; then
        $simulated && return
        types="f32 bf16" limit=600 asked=(1.2 1.2)
        $quick && types=bf16
    fi
    $simulated && types=f32 # PyTorch's CPU kernels
    third_of_memory
    say "== steps beside PyTorch $1"
    versus "$1" $limit mobilenet_v2 128 "${asked[0]}" "$types"
    $simulated || versus "$1" $limit mobilenet_v2 512 "${asked[1]}" "$types"
    versus "$1" $limit gpt2 8 "" "${types##* }"
    versus "$1" $limit resnet50 64 "" "${types##* }"
    unset TESSERA_CUDA_ARENA_BYTES
    [ -z "$arena" ] || export TESSERA_CUDA_ARENA_BYTES=$arena
}

benchmarks() {
    local step=("$bin/bench_cuda_step") kernels=("$bin/bench_cuda_kernels") arena=${TESSERA_CUDA_ARENA_BYTES:-} few=()
    { $quick || [ "$seconds" -le 600 ]; } && few=(-n 20 -r 3 -t "f32,bf16") kernels+=(-q)
    step+=("${few[@]}")
    $simulated && step+=(-T) kernels+=(-T)
    third_of_memory
    say "== training steps"
    measure "steps of MobileNetV2" 600 "${step[@]}" -m mobilenet_v2 -p "cuda:[0]"
    [ ${#few[@]} -eq 0 ] || step+=(-n 4 -w 5)
    measure "steps of GPT-2 small" 300 "${step[@]}" -m gpt2 -t bf16,f32 -p "cuda:[0]"
    measure "steps of ResNet-50" 300 "${step[@]}" -m resnet50 -p "cuda:[0]"
    unset TESSERA_CUDA_ARENA_BYTES
    say "== kernels (memory: share of the card's own copy, asked 0.70; products: time over the best, asked 1.05)"
    measure "benchmark of kernels" 1500 "${kernels[@]}"
    if [ "$ngpus" -gt 1 ]; then
        say "== steps on $ngpus GPUs"
        measure "benchmark of steps, $ngpus GPUs" 300 "$bin/tessera" launch -n "$ngpus" -- "$bin/bench_cuda_step" \
            "${few[@]}" -b "$((128 * ngpus)),$((512 * ngpus))" -g 1
    fi
    [ -z "$arena" ] || export TESSERA_CUDA_ARENA_BYTES=$arena
}

# profile_step MODEL BATCH: kernel by kernel, in bf16; the first step, which the plan's preparation
# precedes. NCU: the profiler, also on the emulator.
profile_step() {
    local name="kernels of a step of $1, batch $2" ncu=$3 limit=200 log table tiny=()
    local metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
    log=$out/logs/ncu_$1.txt table=$out/logs/ncu_$1.csv
    $simulated && tiny=(-T)
    [ "$limit" -le "$(left)" ] || limit=$(left)
    [ "$limit" -ge 10 ] || { not_begun "$name"; return; }
    attempt "$log" "$limit" "$ncu" --csv --page raw --print-units base --metrics "$metrics" \
        --target-processes all --log-file "$table" \
        "$bin/bench_cuda_step" -m "$1" -b "$2" -t bf16 -g 0 -n 1 -r 1 -w 0 "${tiny[@]}"
    if grep -q ERR_NVGPUCTRPERM "$log" "$table" 2>/dev/null; then
        rm -f "$log.end"
        result "$name" skipped 0 "ERR_NVGPUCTRPERM: no right to read the GPU's counters here"
        return
    fi
    judge "$name" "$log" "$limit" cut
    [ ! -s "$table" ] || measure "$name, by kernel" 60 "$python" "$scripts/ncu_table.py" "$1" "$2" "$table"
}

profile() {
    local ncu=${NCU:-}
    $simulated && [ -z "$ncu" ] && return
    [ -n "$ncu" ] || ncu=$(command -v ncu || ls "${CUDA_HOME:-/usr/local/cuda}"/bin/ncu 2>/dev/null)
    [ -n "$ncu" ] || { result "ncu" skipped 0 "it is not installed"; return; }
    say "== kernels of a step, the slowest first"
    profile_step mobilenet_v2 128 "$ncu"
    profile_step gpt2 8 "$ncu"
    profile_step resnet50 64 "$ncu"
}
