# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The report of scripts/gpu-check: a folder of files, and one archive of them that is renewed while
# things run, so that a call that is cut off leaves it, too. Sourced, not run: takes out, archive,
# seconds, simulated and tests.
# shellcheck disable=SC2154

passed=0 failed=0 skipped=0 missed=0 met=0
machine={}
child='' # the process of attempt, which a signal ends

say() { printf '%s\n' "$*" | tee -a "$out/report.txt"; }

json_text() {
    local s=${1//\\/\\\\}
    s=${s//\"/\\\"} s=${s//$'\n'/\\n} s=${s//$'\t'/ } s=${s//$'\r'/ }
    printf '"%s"' "${s//[$'\001'-$'\037']/ }"
}

# Writes the whole report anew, so that a run that is stopped leaves a valid one.
write_json() {
    {
        printf '{"machine":%s,\n"complete":%s,"passed":%d,"failed":%d,"skipped":%d,"met":%d,"missed":%d,\n"results":[\n' \
            "$machine" "$1" $passed $failed $skipped $met $missed
        [ -f "$out/results.jsonl" ] && paste -sd, "$out/results.jsonl"
        printf ']}\n'
    } >"$out/report.json.new" && mv "$out/report.json.new" "$out/report.json"
}

# write_archive SUFFIX: files may grow while they are read. SUFFIX keeps two writers apart.
write_archive() {
    tar -C "$(dirname "$out")" -czf "$archive.$1" --exclude='*.new' "$(basename "$out")" 2>/dev/null
    [ -s "$archive.$1" ] && mv "$archive.$1" "$archive"
}

# Renews the archive every few seconds until this process has ended, also where a signal that cannot
# be caught has ended it.
keep_archive() {
    while sleep 3 && kill -0 $$ 2>/dev/null; do write_archive kept; done
    write_archive kept
}

open_report() {
    mkdir -p "$out/logs" || exit 2
    out=$(cd "$out" && pwd)
    archive=${archive:-$out.tar.gz}
    mkdir -p "$(dirname "$archive")" || exit 2
    archive=$(cd "$(dirname "$archive")" && pwd)/$(basename "$archive")
    rm -f "$out"/report.* "$out"/results.jsonl "$out"/logs/* "$archive"
    write_json false
    write_archive "$$"
    keep_archive >/dev/null 2>&1 </dev/null &
    keeper=$!
}

# close_report COMPLETE
close_report() {
    write_json "$1"
    kill "$keeper" 2>/dev/null
    wait "$keeper" 2>/dev/null
    rm -f "$archive.kept"
    write_archive "$$"
    echo "the report as one file: $archive"
}

# record JSON: adds one object to the results.
record() {
    printf '%s\n' "$1" >>"$out/results.jsonl"
    write_json false
}

# result NAME passed|failed|skipped SECONDS [DETAIL]
result() {
    case $2 in
    passed) passed=$((passed + 1)) ;;
    failed) failed=$((failed + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    esac
    say "$(printf '%-8s %7.1f s  %s%s' "$2" "$3" "$1" "${4:+: $4}")"
    record "{\"test\":$(json_text "$1"),\"result\":\"$2\",\"seconds\":$3,\"detail\":$(json_text "${4:-}")}"
}

# Nothing was found out about a test that has no time left to begin.
not_begun() { result "$1" skipped 0 "not begun: no time left (--seconds)"; }

# field LINE KEY: the value of a key in a line of JSON.
field() {
    [[ $1 =~ \"$2\":\ *\"([^\"]*) || $1 =~ \"$2\":\ *([^,\"}]*) ]] && printf %s "${BASH_REMATCH[1]}"
}

calc() { awk "BEGIN { printf \"%.4f\", $1 }"; }

left() { echo $((seconds - SECONDS)); }

# bar NAME FIGURE ASKED [UNIT]: at least ASKED; without ASKED the figure is reported alone.
bar() {
    local state=met
    { $simulated || [ -z "$3" ]; } && state="not judged"
    [ "$state" = met ] && awk "BEGIN { exit !($2 < $3) }" && state=missed
    [ "$state" = met ] && met=$((met + 1))
    [ "$state" = missed ] && missed=$((missed + 1))
    say "$(printf '%-10s %s: %.2f%s%s' "$state" "$1" "$2" "${4:-}" "${3:+ (asked: at least $3)}")"
    record "{\"bar\":$(json_text "$1"),\"result\":\"$state\",\"figure\":$2,\"asked\":${3:-null}}"
}

# attempt LOG LIMIT COMMAND...: runs it; seconds and exit code go into LOG.end.
attempt() {
    local log=$1 limit=$2 begin=$EPOCHREALTIME rc
    shift 2
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 </dev/null &
    child=$!
    wait "$child"
    rc=$?
    child=''
    echo "$(awk "BEGIN { printf \"%.1f\", ${EPOCHREALTIME/,/.} - ${begin/,/.} }") $rc" >"$log.end"
}

# judge NAME LOG LIMIT [CUT]: the result of an attempt. CUT: the limit was what was left of the call's
# time, so that reaching it says nothing about the test.
judge() {
    local s rc detail
    read -r s rc <"$2.end"
    rm -f "$2.end"
    case $rc in
    0)
        detail=$(sed -nE 's/.*\[ *PASSED *\] ([0-9]+ test\(s\)).*/\1/p' "$2" | tail -1)
        [ -n "$detail" ] || { grep -q '^ok ' "$2" && detail="$(grep -c '^ok ' "$2") checks"; }
        result "$1" passed "$s" "$detail" ;;
    77) result "$1" skipped "$s" "$(grep -m1 -i skip "$2")" ;;
    124 | 137)
        if [ "$rc" = 137 ] && awk "BEGIN { exit !($s < $3) }"; then
            result "$1" failed "$s" "killed"
        elif [ -n "${4:-}" ]; then
            result "$1" skipped "$s" "cut off after $3 s: no time left (--seconds)"
        else
            result "$1" failed "$s" "no end within $3 s"
        fi ;;
    *)
        result "$1" failed "$s" "exit code $rc"
        { grep -E '^FAIL|ERROR|error|\[  FAILED' "$2" || cat "$2"; } | tail -n 8 |
            sed 's/^/           /' | tee -a "$out/report.txt" ;;
    esac
}

# run_test NAME LIMIT COMMAND...: one after the other.
run_test() {
    local name=$1 limit=$2 cut='' log=$out/logs/${1//[^A-Za-z0-9_.-]/_}.txt
    shift 2
    [[ $name =~ $tests ]] || return 0
    [ "$limit" -le "$(left)" ] || { limit=$(left) cut=cut; }
    [ "$limit" -ge 5 ] || { not_begun "$name"; return; }
    attempt "$log" "$limit" "$@"
    judge "$name" "$log" "$limit" "$cut"
}
