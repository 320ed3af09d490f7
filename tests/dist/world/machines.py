#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several machines: network namespaces on a bridge, a launcher in each. Trains over them, compares
with one machine, and cuts a machine off. usage: machines.py TESSERA TRAIN SYNTHETIC DDP_TRAIN CHILD

Exits with 77 (skipped) where network namespaces can't be made."""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

from network import Network

TESSERA, TRAIN, SYNTHETIC, DDP_TRAIN, CHILD = (os.path.abspath(p) for p in sys.argv[1:6])
WORK = tempfile.TemporaryDirectory()
checks = 0


def check(ok, text):
    global checks
    checks += 1
    if not ok:
        raise AssertionError(text)


def train(extra, runner):
    """Losses of some steps of a convnet in f64."""
    metrics = f"{WORK.name}/metrics.jsonl"
    runner([TRAIN, "--data", f"{WORK.name}/data", "--model", "convnet", "--dtype", "f64", "--steps",
            "4", "--batch-size", "24", "--no-eval", "--no-shuffle", "--no-augment", "--quiet",
            "--metrics", metrics, *extra])
    with open(metrics, encoding="utf-8") as f:
        losses = [json.loads(line)["loss"] for line in f]
    os.unlink(metrics)
    return losses


def run_alone(program):
    subprocess.run(program, check=True, capture_output=True, cwd=WORK.name,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})


def distance(got, want):
    if not len(got) == len(want) == 4 or not all(map(math.isfinite, got)):
        return 9
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def test_training(hosts, ranks, want):
    with Network(hosts, TESSERA, WORK.name) as net:
        for sbp in ("B", "S(0)"):
            n = hosts * ranks
            placement = "cpu:[" + ",".join(map(str, range(n))) + "]"
            got = train(["--placement", placement, "--sbp-params", sbp],
                        lambda program: net.run(ranks, program))
            check(distance(got, want) < 1e-10,
                  f"{hosts} hosts x {ranks}, parameters {sbp}: {got}, one rank: {want}")
        check(not net.ports(), f"ports are left: {net.ports()}")
        if hosts * ranks == 2:
            texts = "".join(net.run(ranks, [DDP_TRAIN]))
            check(texts.count("w = [[2.0000], [3.0000]]") == 2, texts)


def test_cut(hosts, ranks, cut, timeout=3):
    """The others report it within the timeout; nothing stays, on either side."""
    with Network(hosts, TESSERA, WORK.name) as net:
        running = [net.start(i, ranks, [CHILD, "forever"], timeout) for i in range(hosts)]
        lines = [[] for _ in running]
        try:
            for i, p in enumerate(running):
                while not any("has begun" in line for line in lines[i]):
                    line = p.stdout.readline()
                    check(line, f"host {i} ended: {lines[i]}")
                    lines[i].append(line)
            net.cut(cut)
            start = time.monotonic()
            for i, p in enumerate(running):
                rest = p.communicate(timeout=60)[0]
                lines[i] += rest.splitlines(True)
            seconds = time.monotonic() - start
        finally:
            for p in running:
                p.poll() is None and p.kill()
        for i, p in enumerate(running):
            text = "".join(lines[i])
            check(p.returncode not in (0, None), f"host {i}: exit code {p.returncode}: {text}")
            ranks = re.search(r"rank \d+ after [0-9.]+ s: TSR_ERR_(TIMEOUT|DEAD|REMOTE)", text)
            launcher = re.search(r"^tessera launch: the launcher of node \d+ \(\S+\) is gone",
                                 text, re.MULTILINE)
            check(ranks or launcher, f"host {i} says nothing of it: {text}")
        told = [float(t) for i in range(hosts) if i != cut
                for t in re.findall(r"told after ([0-9.]+) s", "".join(lines[i]))]
        gone = any("is gone" in line for i in range(hosts) if i != cut for line in lines[i])
        check(told or gone, "nobody was told:\n" + "".join(sum(lines, [])))
        check(seconds < timeout + 20, f"took {seconds:.1f} s")
        print(f"host {cut} of {hosts} cut off: "
              + (f"ranks told after {max(told):.1f} s" if told else "told by the launchers")
              + f" (timeout {timeout} s), all gone after {seconds:.1f} s", flush=True)


def main():
    try:
        with Network(1, TESSERA, WORK.name):
            pass
    except OSError as e:
        print(f"skipped: {e}")
        return 77
    subprocess.run([SYNTHETIC, f"{WORK.name}/data", "200"], check=True, capture_output=True)
    want = train(["--ranks", "1"], run_alone)
    test_training(2, 1, want)
    test_training(2, 2, want)
    test_training(3, 2, want)
    test_cut(2, 2, 1)
    test_cut(3, 1, 2)
    test_cut(2, 1, 0)
    print(f"{checks} checks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
