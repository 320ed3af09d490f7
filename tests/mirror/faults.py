#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on a mirror that has a fault (MIRROR_FAULT), which they must find. usage: faults.py PROGRAMS"""
import os
import subprocess
import sys

# Each makes some program fail: by another value, by an id that is none, by a signal. That programs are well
# without a fault is what mirror_programs_late and its neighbours hold.
FAULTS = (
    "wait",  # streams do not wait for events
    "sync",  # the host reads results without waiting for them
    "row",  # the row says that the host may read the memory
)


def main():
    missed = 0
    for fault in FAULTS:
        got = subprocess.run([sys.argv[1], "--count", "24", "--stop"], env=os.environ | {"MIRROR_FAULT": fault}, capture_output=True,
                             text=True, check=False)
        found = [line for line in got.stdout.splitlines() if line.startswith("seed ")]
        ok = got.returncode == 1 and found
        missed += not ok
        print(f"{fault}: " + (found[0] if ok else f"not found: exit status {got.returncode}\n{got.stdout}{got.stderr}"))
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
