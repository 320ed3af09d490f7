#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training against stored losses of PyTorch (fixture.json; see make_fixture.py), on ranks that are
threads and processes, with parameters broadcast and split. Python's standard library only.

usage: fixture.py --example PROG --synthetic PROG --tessera PROG [--device cuda] [--threads]
                  [--ranks N]

--threads: no ranks that are processes. --ranks: N processes, whatever the table says.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile

import fixture_runs

LIMIT = 1e-7  # relative: f64 in another order of summation
# case -> (ranks, processes, signature of parameters). R of "bn local" is the number of ranks.
RUNS = [
    ("mobilenet_v2", 1, False, "B"),
    ("mobilenet_v2", 2, False, "S(0)"),
    ("mobilenet_v2", 3, True, "B"),
    ("mobilenet_v2 bn local, 2 parts", 2, False, "B"),
    ("convnet", 1, False, "B"),
    ("convnet", 2, False, "B"),
    ("convnet", 2, False, "S(0)"),
    ("convnet", 3, True, "S(0)"),
    ("convnet bn local, 2 parts", 2, True, "S(0)"),
    ("mlp", 1, False, "S(0)"),
    ("mlp", 2, False, "B"),
    ("mlp", 2, False, "S(0)"),
    ("mlp", 3, True, "B"),
    ("mlp", 3, True, "S(0)"),
]


def worst(got, want):
    if len(got) != len(want):
        return float("inf")
    return max(abs(a - b) / abs(b) if a == a else float("inf") for a, b in zip(got, want))


def initial_note(args, work, case, stored):
    """Why losses may differ before the first step."""
    init = work + "/init.safetensors"
    error = fixture_runs.run(fixture_runs.command(args.example, work + "/data", case,
                                                  ["--epochs", "0", "--save", init]))
    if error:
        return error
    with open(init, "rb") as f:
        same = hashlib.sha256(f.read()).hexdigest() == stored["initial_sha256"]
    return "" if same else " (initial weights are not the stored ones: see make_fixture.py)"


def run_case(args, work, run, stored):
    case, ranks, processes, sbp = run
    name = f"{case}: {ranks} {'processes' if processes else 'threads'}, parameters {sbp}"
    metrics = work + "/metrics.jsonl"
    placement = args.device + ":[" + ",".join(str(i) for i in range(ranks)) + "]"
    extra = ["--epochs", "1", "--steps", str(fixture_runs.STEPS), "--metrics", metrics, "--placement",
             placement, "--sbp-params", sbp]
    cmd = fixture_runs.command(args.example, work + "/data", case, extra)
    if processes:
        cmd = [args.tessera, "launch", "-n", str(ranks), "--", *cmd]
    error = fixture_runs.run(cmd)
    if error:
        print(f"FAIL {name}: {error}")
        return False
    got = fixture_runs.losses(metrics)
    os.remove(metrics)
    e = worst(got, stored["losses"])
    note = "" if e <= LIMIT else f": {got}, not {stored['losses']}" + initial_note(args, work, case,
                                                                                  stored)
    print(f"{'ok  ' if e <= LIMIT else 'FAIL'} {name}: losses within {e:.1e}{note}", flush=True)
    return e <= LIMIT


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--example", required=True)
    p.add_argument("--synthetic", required=True)
    p.add_argument("--tessera", required=True)
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("--threads", action="store_true")
    p.add_argument("--ranks", type=int)
    args = p.parse_args()
    runs = [r for r in RUNS if not (args.threads and r[2])]
    runs = runs[::int(os.environ.get("TESSERA_SAMPLE", "1"))]  # see tests/sample.h
    if args.ranks:
        runs = [(case, args.ranks, True, sbp) for case in fixture_runs.CASES for sbp in ("B", "S(0)")
                if "parts" not in case]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixture.json"),
              encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    with tempfile.TemporaryDirectory() as work:
        fixture_runs.make_data(args.synthetic, work + "/data")
        failed = sum(not run_case(args, work, run, cases[run[0]]) for run in runs)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
