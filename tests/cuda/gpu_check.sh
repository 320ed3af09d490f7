#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/gpu-check on the emulator: what it packs runs alone, its report says what happened, and
# tests that fail, hang or skip are told apart. usage: gpu_check.sh ROOT BUILD
# shellcheck disable=SC2016 # conditions are for check to evaluate
set -uo pipefail
root=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0

check() {
    if ! eval "$2"; then
        echo "FAIL $1: $2"
        bad=$((bad + 1))
    fi
}

"$root/scripts/gpu-check" --pack "$work/pack" --build "$build" --emulated || exit 1
check "size" '[ "$(du -sm "$work/pack" | cut -f1)" -lt 150 ]'
printf 'fails\t20\tX=1\t/bin/false\nhangs\t5\tX=1\t/bin/sleep\t60\nskips\t20\tX=1\t/bin/sh\t-c\techo skipped: no reason; exit 77\n' \
    >>"$work/pack/tests.txt"
# What runs it dies before it can say how it went.
printf 'orphan\t20\tX=1\t/bin/sh\t-c\t%s\n' 'read -r _ _ _ above _ </proc/$PPID/stat; kill -9 "$above"' \
    >>"$work/pack/tests.txt"

# Away from the tree, with what is packed alone.
cd "$work" || exit 1
export TESSERA_TEST_CASES=softmax
"$work/pack/gpu-check" --quick --out "$work/good" --tests '^cuda_kernels$|cuda_ops$' --seconds 280
check "exit code" "[ $? -eq 0 ]"
python=/usr/bin/python3
[ -x $python ] || python=python3
$python - "$work/good/report.json" <<'PYTHON' || bad=$((bad + 1))
import json
import sys

with open(sys.argv[1], encoding="utf-8") as f:
    r = json.load(f)
tests = {t["test"]: t["result"] for t in r["results"] if "test" in t}
assert r["complete"] and r["failed"] == 0 and r["passed"] >= 2, r
assert sum(t.endswith(("cuda_kernels", "cuda_ops")) for t in tests) == 2, tests
assert r["machine"]["emulated"] and r["machine"]["info"]["gpus"], r["machine"]
assert r["met"] == r["missed"] == 0, "times on the emulator are no figures"
kernels = [t for t in r["results"] if t.get("bench") == "kernels"]
assert {"share_of_copy", "over_best"} <= {k for t in kernels for k in t}, "figures of kernels"
steps = [t for t in r["results"] if t.get("bench") == "step" and t["who"] == "tessera"]
assert {(t["dtype"], t["graph"]) for t in steps} >= {("f32", True), ("bf16", False)}, "steps"
PYTHON
check "the report for people" 'grep -q "^passed .* cuda_kernels" "$work/good/report.txt"'

"$work/pack/gpu-check" --quick --no-bench --out "$work/broken" --tests '^(fails|hangs|skips|orphan)$'
check "exit code of failures" "[ $? -eq 1 ]"
check "a failure" 'grep -q "^failed .* fails: exit code 1" "$work/broken/report.txt"'
check "a hang" 'grep -q "^failed .* hangs: no end within 5 s" "$work/broken/report.txt"'
check "a skip" 'grep -q "^skipped .* skips: skipped: no reason" "$work/broken/report.txt"'
check "an orphan" 'grep -q "^failed .* orphan: what ran it has ended" "$work/broken/report.txt"'
check "counts" 'grep -q "\"passed\":0,\"failed\":3,\"skipped\"" "$work/broken/report.json"'
# A stand-in for compute-sanitizer: one finding, and one run that does not end in time.
cat >"$work/sanitizer" <<'TEXT'
#!/bin/sh
case "$2 ${7##*/}" in
"racecheck test_cuda_join") exec sleep 60 ;;
"synccheck test_cuda_norm") echo "========= Barrier error detected"; exit 99 ;;
esac
[ -x "$7" ]
TEXT
chmod +x "$work/sanitizer"
COMPUTE_SANITIZER=$work/sanitizer "$work/pack/gpu-check" --quick --no-bench --out "$work/sanitized" --tests ' under '
check "exit code of a finding" "[ $? -eq 1 ]"
check "all programs under all tools" '[ "$(grep -cE "^passed .* cuda_(kernels|kernel_index|join|norm|edges) under (mem|race|sync)check" "$work/sanitized/report.txt")" -eq 13 ]'
check "a finding" 'grep -q "^failed .* cuda_norm under synccheck: exit code 99" "$work/sanitized/report.txt"'
check "a run that was cut" 'grep -q "^skipped .* cuda_join under racecheck: 10 s were not enough" "$work/sanitized/report.txt"'

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
eval "$(sed -n '/^next_line()/,/^}/p' "$root/scripts/gpu-check")"
check "a line in two parts" 'next_line line 5 $! 5 && [ "$line" = "{\"half\":1}" ]'
exec 5>&-
check "a wrong option" '! "$work/pack/gpu-check" --seconds soon 2>/dev/null'
exit $((bad > 0))
