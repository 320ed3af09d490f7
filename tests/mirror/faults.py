#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs random programs on a mirror that has a fault (MIRROR_FAULT), which they must find. usage: faults.py PROGRAMS"""
import os
import re
import subprocess
import sys

# fault -> what the report of a program that found it looks like.
FAULTS = {
    "wait": r"right is",  # streams do not wait for events
    "sync": r"right is",  # the host reads results without waiting for them
    "row": r"lies outside|signal 11",  # the row says that the host may read the memory
}


def main():
    missed = 0
    for fault, looks in FAULTS.items():
        got = subprocess.run([sys.argv[1], "--count", "24", "--stop"], env=os.environ | {"MIRROR_FAULT": fault}, capture_output=True,
                             text=True, check=False)
        found = [line for line in got.stdout.splitlines() if line.startswith("seed ") and re.search(looks, line)]
        ok = got.returncode == 1 and found
        missed += not ok
        print(f"{fault}: " + (found[0] if ok else f"not found: exit status {got.returncode}\n{got.stdout}{got.stderr}"))
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
