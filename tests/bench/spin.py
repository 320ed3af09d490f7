#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a step of MobileNetV2 takes on one rank of 2 threads, by how often an idle thread of the
team looks for work before it sleeps (GOMP_SPINCOUNT), and on 2 ranks of 1 thread; in turns, medians.

usage: spin.py TESSERA [--counts 300000,5000,1000] [--rounds 3] [--steps 4] [--load N] [--realtime]

--load N starts N busy processes beside it: a busy machine. --realtime runs it before all others
(chrt -f): a machine that is as idle as this one can be made; needs root."""
import argparse
import json
import os
import statistics
import subprocess
import sys

EXPERIMENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments")


def step_ms(a, name, threads, count):
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": str(count)}
    command = [a.tessera, "run", os.path.join(EXPERIMENTS, name + ".yaml"), "--json", "--steps", str(a.steps)]
    done = subprocess.run((["chrt", "-f", "10"] if a.realtime else []) + command, env=env, check=True,
                          capture_output=True, text=True)
    result = json.loads(done.stdout)
    return 1e3 * result["seconds"] / result["steps"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tessera")
    p.add_argument("--counts", default="300000,5000,1000")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--load", type=int, default=0)
    p.add_argument("--realtime", action="store_true")
    a = p.parse_args()
    cases = [(f"1 rank of 2 threads, GOMP_SPINCOUNT={n}", ("one", 2, n)) for n in a.counts.split(",")]
    cases.append(("2 ranks of 1 thread", ("dp2", 1, 5000)))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(a.load)]
    try:
        times = {what: [] for what, _ in cases}
        for _ in range(a.rounds):
            for what, case in cases:
                times[what].append(step_ms(a, *case))
    finally:
        for b in busy:
            b.kill()
    for what, ms in times.items():
        print(f"{what}: {statistics.median(ms):.0f} ms a step ({', '.join(f'{t:.0f}' for t in ms)})")


if __name__ == "__main__":
    main()
