#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command, and the library where it prints, show to people goes through tsri_fshow (cli_say), which shows
others' text as text: finds what goes round it. usage: foreign.py SOURCE_ROOT [--planted]

--planted: two faults of a text that is none of the tree's are found, and nothing else."""
import glob
import os
import re
import sys

ROOT = sys.argv[1]
# Files that write data, and quote what they write by the rules of its form; and those that pass on bytes.
DATA = {
    "src/cli/output.c": "what cli_say and its kin are made of",
    "src/cli/launch/output.c": "the ranks' output, as it is",
    "src/cli/launch/child.c": "an errno to the launcher",
    "src/cli/launch/guard.c": "numbers to the guard",
    "src/cli/page/page.c": "HTML",
    "src/cli/plan/dot.c": "DOT",
    "src/cli/plan/progress.c": "numbers and words of ours, over and over on one line",
    "src/cli/run/array_text.c": "numbers",
    "src/cli/run/events.c": "TensorBoard's records",
    "src/cli/run/metrics.c": "JSON of numbers",
    "src/cli/run/trace.c": "JSON of names of the file's, which have no signs",
    "src/cli/run/stop.c": "a byte to itself",
}
CALLS = r"printf|fprintf|dprintf|vprintf|vfprintf|vdprintf|puts|fputs|putc|fputc|putchar|fwrite|perror|psignal|write"
LITERAL = r'(?:\s*(?:"(?:\\.|[^"\\])*"|PRI\w+|TSR_VERSION_STRING)\s*)+'
OURS = re.compile(rf"(?:{LITERAL}|'(?:\\.|[^'\\])'|[^?]*\?{LITERAL}:(?:{LITERAL}|[^?]*\?{LITERAL}:{LITERAL}))")
faults = 0


def strip_comments(text):
    return re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*',
                  lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def first_argument(text, at):
    """The first argument of the call whose "(" is at `at`."""
    depth, i = 0, at
    while i < len(text):
        c = text[i]
        if c in "\"'":
            i += 1
            while text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if depth == 0 or (c == "," and depth == 1):
            return text[at + 1:i].strip()
        i += 1
    return ""


def check(path, text):
    global faults
    for m in re.finditer(rf"(?<![\w.>])({CALLS})\s*\(", text):
        # Text of ours alone is no danger, whoever prints it.
        if m[1] in ("puts", "fputs", "putc", "fputc", "putchar") and OURS.fullmatch(first_argument(text, m.end() - 1)):
            continue
        if m[1] == "write" and "STDOUT_FILENO" not in text[m.end():m.end() + 40] and "STDERR_FILENO" not in text[m.end():m.end() + 40]:
            continue
        faults += 1
        print(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: {m[1]} goes round cli_say and tsri_fshow")


if "--planted" in sys.argv:
    check("planted.c", strip_comments('void f(void) { puts("ours"); /* printf(x) */ fputs(a ? "b" : "c", f); '
                                      'printf("%s", name); fputs(name, f); putchar(\'x\'); write(fd, p, n); }'))
    sys.exit(faults != 2)
for full in sorted(glob.glob(f"{ROOT}/src/**/*.c", recursive=True)):
    path = os.path.relpath(full, ROOT)
    with open(full, encoding="utf-8") as f:
        text = strip_comments(f.read())
    if path.startswith("src/cli/") or path.startswith("src/plan/report/"):
        if path not in DATA:
            check(path, text)
    elif path not in ("src/core/shown.c", "src/comm/world/world.c"):  # the latter prints what tsri_log has shown
        for m in re.finditer(r"(?<![\w.>])(?:v?printf|puts|putchar|perror|fprintf\s*\(\s*std(?:out|err)|fputs\s*\([^;]*std(?:out|err))\b\s*[(,)]", text):
            faults += 1
            print(f"{path}:{text.count(chr(10), 0, m.start()) + 1}: the library prints past tsri_fshow")
    for m in re.finditer(r"vsnprintf\s*\(", text):
        if path in ("src/core/status.c", "src/core/world.c"):
            faults += 1
            print(f"{path}: errors and logs are formatted by tsri_show_lines")
missing = [p for p in DATA if not os.path.exists(f"{ROOT}/{p}")]
if missing:
    print(f"no longer there: {missing}")
sys.exit(1 if faults or missing else 0)
