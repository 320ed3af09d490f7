#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What starting ranks costs: `tessera launch -n N PROG` over N of PROG started by a shell.
usage: launch.py --tessera TESSERA [-n N] [--rounds R] [PROG ARGS...]"""
import argparse
import shlex
import shutil
import statistics
import subprocess
import time


def seconds(command, rounds):
    """Of `rounds` runs, the first one more, which warms the caches."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return times[1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", required=True)
    parser.add_argument("-n", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("prog", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    prog = args.prog or [shutil.which("true")]  # the file: a shell has one of its own
    each = " ".join(map(shlex.quote, prog)) + " & "
    rows = [("shell", ["sh", "-c", each * args.n + "wait"]),
            ("tessera launch", [args.tessera, "launch", "-n", str(args.n), *prog])]
    base = None
    for name, command in rows:
        times = seconds(command, args.rounds)
        median = statistics.median(times)
        base = base or median
        print(f"{name:16} median {1e3 * median:8.1f} ms  least {1e3 * min(times):8.1f} ms  "
              f"over the shell {1e3 * (median - base):+8.1f} ms  ratio {median / base:6.2f}")


if __name__ == "__main__":
    main()
