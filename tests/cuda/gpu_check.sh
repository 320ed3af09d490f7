#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check on the emulator: the archive that it packs runs alone, its report says what
# happened, also when the call is cut off, and tests that fail, hang or skip are kept apart. usage: gpu_check.sh ROOT BUILD
# shellcheck disable=SC2016,SC2034 # conditions are for check to evaluate
set -uo pipefail
root=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0 failures=

check() {
    if ! eval "$2"; then
        failures+="FAIL $1: $2"$'\n'
        bad=$((bad + 1))
    fi
}

# One archive, which needs nothing of the tree.
"$root/scripts/gpu-check" --pack "$work/pack.tar.xz" --build "$build" --emulated --fast || exit 1
check "size" '[ "$(stat -c %s "$work/pack.tar.xz")" -lt 20000000 ]'
cd "$work" || exit 1
tar -xJf pack.tar.xz || exit 1
pack=$work/tessera-gpu
glibc='^(ld-linux.*|lib(c|m|mvec|dl|rt|pthread|resolv|util|nsl|anl|nss_.*|thread_db|BrokenLocale|c_malloc_debug))[.]so'
check "the C library is the machine's" '! ls "$pack/lib" | grep -E "$glibc"'
printf 'fails\t20\tX=1\t/bin/false\nhangs\t5\tX=1\t/bin/sleep\t60\nskips\t20\tX=1\t/bin/sh\t-c\techo skipped: no reason; exit 77\n' \
    >>"$pack/tests.txt"
# The shell that runs it dies before it can write a result.
printf 'orphan\t20\tX=1\t/bin/sh\t-c\t%s\n' 'read -r _ _ _ above _ </proc/$PPID/stat; kill -9 "$above"' \
    >>"$pack/tests.txt"
printf 'stays\t60\tX=1\t/bin/sh\t-c\techo begun; sleep 30\n' >>"$pack/tests.txt"

# As on a machine that has been started for this: no variable is set but those in given.
# shellcheck disable=SC2086
run() { env -i TESSERA_TEST_CASES=softmax ${given:-} "$pack/gpu-check" "$@"; }
python=/usr/bin/python3
[ -x $python ] || python=python3
run --quick --python $python --out good --tests '^cuda_kernels$|cuda_ops$|^nccl_|^DDP' --seconds 280
check "exit code" "[ $? -eq 0 ]"
$python - "$work/good/report.json" <<'PYTHON' || bad=$((bad + 1))
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    r = json.load(f)
tests = {t["test"]: t["result"] for t in r["results"] if "test" in t}
assert r["complete"] and r["failed"] == 0 and r["passed"] >= 3, r
assert sum(t.endswith(("cuda_kernels", "cuda_ops")) for t in tests) == 2, tests
assert {tests[t] for t in ("nccl_replay", "nccl_compile_faults", "nccl_faults")} == {"skipped"}, tests
assert tests["DDP programs"] == "passed", tests
assert r["machine"]["emulated"] and r["machine"]["info"]["gpus"], r["machine"]
assert r["met"] == r["missed"] == 0, "times on the emulator are no figures"
kernels = [t for t in r["results"] if t.get("bench") == "kernels"]
assert {"share_of_copy", "over_best"} <= {k for t in kernels for k in t}, "figures of kernels"
assert not [t for t in kernels if "error" in t or "refused" in t], "kernels that did not run"
assert {c for t in kernels for c in [t["case"]] if "gpt2" in c} >= {
    "attention of gpt2", "attention of gpt2 dx", "layer norm of gpt2", "cross entropy of gpt2"}, "GPT's shapes"
steps = [t for t in r["results"] if t.get("bench") == "step"]
ours = [t for t in steps if t["who"] == "tessera" and t["rounds"]]
nets = {"mobilenet_v2", "gpt2", "resnet50"}
assert {(t["model"], t["dtype"], t["graph"]) for t in ours} >= {
    (n, d, g) for n in nets for d, g in (("f32", True), ("bf16", False))}, "steps"
theirs = {t["model"]: t["parameters"] for t in steps if t["who"] != "tessera"}
assert not theirs or set(theirs) == nets, theirs
for t in ours:  # the peer's MobileNetV2 has its full size
    assert t["model"] == "mobilenet_v2" or theirs.get(t["model"], t["parameters"]) == t["parameters"], t
PYTHON
check "the report for people" 'grep -q "^passed .* cuda_kernels" good/report.txt'
check "the report as one file" 'tar -xOf good.tar.gz good/report.json | cmp - good/report.json'

run --part 2 --out broken --archive sent/broken.tgz --tests '^(fails|hangs|skips|orphan)$'
check "exit code of failures" "[ $? -eq 1 ]"
check "a failure" 'grep -q "^failed .* fails: exit code 1" broken/report.txt'
check "a hang" 'grep -q "^failed .* hangs: no end within 5 s" broken/report.txt'
check "a skip" 'grep -q "^skipped .* skips: skipped: no reason" broken/report.txt'
check "an orphan" 'grep -q "^failed .* orphan: what ran it has ended" broken/report.txt'
check "counts" 'grep -q "\"passed\":1,\"failed\":3,\"skipped\":1" broken/report.json'
check "an archive elsewhere" 'tar -tzf sent/broken.tgz | grep -x broken/logs/fails.txt >/dev/null'
# Tests for which there is no time have not failed, nor has one that is cut short by that.
run --part 2 --out late --jobs 1 --seconds 9 --tests '^(stays|cuda_join)$' &&
    check "no time" 'grep -q "^skipped .* no time left" late/report.txt'
check "no failure for want of time" '[ -f late.tar.gz ] && ! grep -q "^failed" late/report.txt'
# A call that nothing but the end of its process announces leaves what there is so far.
run --part 2 --out cut --tests '^stays$' >/dev/null &
for ((i = 0; i < 300; i++)); do grep -qs begun cut/logs/stays.txt && break; sleep 0.1; done
kill -9 $!
wait $! 2>/dev/null
for ((i = 0; i < 100; i++)); do tar -xOf cut.tar.gz cut/logs/stays.txt 2>/dev/null | grep begun >/dev/null && break; sleep 0.1; done
check "an archive of a call that was killed" 'tar -xOf cut.tar.gz cut/report.json | grep "\"complete\":false" >/dev/null'
check "its logs" 'tar -xOf cut.tar.gz cut/logs/stays.txt | grep begun >/dev/null'

# A stand-in for compute-sanitizer: one finding, and one run that does not end in time.
cat >"$work/sanitizer" <<'TEXT'
#!/bin/sh
case "$2 ${7##*/} $SLOW" in
"memcheck test_cuda_kernels yes") exec sleep 60 ;;
"synccheck test_cuda_norm "*) echo "========= Barrier error detected"; exit 99 ;;
esac
[ -x "$7" ]
TEXT
chmod +x "$work/sanitizer"
given=COMPUTE_SANITIZER=$work/sanitizer run --part 4,7 --no-bench --out sanitized --tests ' under '
check "exit code of a finding" "[ $? -eq 1 ]"
check "all programs under all tools" '[ "$(grep -cE "^passed .* cuda_(kernels|kernel_index|join|norm|edges) under (mem|race|sync)check" sanitized/report.txt)" -eq 14 ]'
check "a finding" 'grep -q "^failed .* cuda_norm under synccheck: exit code 99" sanitized/report.txt'
given="SLOW=yes COMPUTE_SANITIZER=$work/sanitizer" run --quick --part 4 --seconds 9 --out slow --tests ' under '
check "a run that was cut" 'grep -q "^skipped .* cuda_kernels under memcheck: [0-9]* s were not enough" slow/report.txt'

# A stand-in for ncu.
cat >"$work/ncu" <<'TEXT'
#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
file=$2
shift 2
"$@" || exit 1
[ "${5:-}" != 64 ] || { echo "==ERROR== ERR_NVGPUCTRPERM - no permission" >"$file"; exit 1; }
cat >"$file" <<'CSV'
==PROF== Connected to process 7
"ID","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","%","ns","register/thread","%"
"0","fast(int, float *)","50.0","1000","20","10.0"
"1","slow(int)","90.0","3000","64","20.0"
"2","slow(float)","30.0","6,000","72","20.0"
CSV
TEXT
chmod +x "$work/ncu"
if command -v $python >/dev/null; then
    given=NCU=$work/ncu run --part 6 --python $python --out profiled
    check "kernels of a step, the slowest first" '[ "$(sed -nE "s/.*\"kernel\":\"([a-z]*)\",\"launches\":([0-9]).*/\1\2/p" profiled/results.jsonl | paste -sd,)" = slow2,fast1,slow2,fast1 ]'
    check "figures of a kernel" 'grep -q " 9.0 us (90 %) in    2 launches, memory  50 %, processors  20 %,  72 registers: slow" profiled/report.txt'
    check "no right to counters" 'grep -q "^skipped .* resnet50.*ERR_NVGPUCTRPERM" profiled/report.txt'
fi
check "a wrong part" '! "$pack/gpu-check" --part 8 2>/dev/null'
check "a wrong name" '! "$root/scripts/gpu-check" --pack "$work/pack.zip" --build "$build" 2>/dev/null'

# What is packed is built for the least of the GPUs that are there.
mkdir "$work/smi"
printf '#!/bin/sh\nprintf "9.0\\n8.6\\n10.0\\n"\n' >"$work/smi/nvidia-smi"
chmod +x "$work/smi/nvidia-smi"
check "GPUs that are there" '[ "$(. "$root/scripts/gpu-pack.sh"; PATH=$work/smi:$PATH; present_arch)" = 86 ]'
printf '#!/bin/sh\necho "No devices were found"\n' >"$work/smi/nvidia-smi"
check "no GPU" '[ -z "$(. "$root/scripts/gpu-pack.sh"; PATH=$work/smi:$PATH; present_arch)" ]'
# A program's line may come in two parts, with the end of a second between them.
mkfifo "$work/line"
{ printf '{"half":'; sleep 1.5; printf '1}\n'; sleep 2; } >"$work/line" &
exec 5<>"$work/line"
eval "$(sed -n '/^next_line()/,/^}/p' "$root/scripts/gpu-bench.sh")"
check "a line in two parts" 'next_line line 5 $! 5 && [ "$line" = "{\"half\":1}" ]'
exec 5>&-
check "a wrong option" '! "$pack/gpu-check" --seconds soon 2>/dev/null'
printf '%s' "$failures" # behind all reports, of which logs keep the end
exit $((bad > 0))
