# SPDX-License-Identifier: Apache-2.0
"""What the heap guard says of programs with one fault each, and of programs with none."""
import os
import signal
import subprocess
import sys

LEAKS = 88
ABORT = -signal.SIGABRT
# [what guarded.c does, its exit code, what stderr has]
CASES = [
    ("keep", 0, ""),
    ("thread-alive", 0, ""),
    ("fresh", 0, ""),
    ("leak", LEAKS, "leaked 200 bytes, allocated by guarded+"),
    ("leak-list", LEAKS, "67 blocks of "),
    ("leak-text", LEAKS, "leaked 27 bytes, allocated by libc"),
    ("leak-thread", LEAKS, "leaked 300 bytes"),
    ("leak-fork", LEAKS, "leaked 64 bytes"),
    ("behind", ABORT, "bytes behind a block were overwritten: 77 bytes"),
    ("behind-kept", ABORT, "bytes behind a block were overwritten: 77 bytes"),
    ("in-front", ABORT, "bytes in front of a block were overwritten: 77 bytes"),
    ("freed", ABORT, "a freed block was written to: 77 bytes"),
    ("twice", ABORT, "a block was freed twice"),
    ("inner", ABORT, "is no block"),
]
program = sys.argv[1]
for what, code, text in CASES:
    p = subprocess.run([program, what], capture_output=True, text=True, timeout=20, check=False)
    if p.returncode != code or text not in p.stderr or bool(p.stderr) != bool(code):
        sys.exit(f"FAILED: {what}: exit code {p.returncode}, expected {code}\n{p.stdout}{p.stderr}")
# It is the guard that sees them, and nothing else.
bare = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
p = subprocess.run([program, "leak"], capture_output=True, text=True, env=bare, check=False)
if p.returncode or p.stderr:
    sys.exit(f"FAILED: without the guard: exit code {p.returncode}\n{p.stderr}")
print(f"{len(CASES) + 1} checks")
