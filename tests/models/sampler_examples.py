#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples dataloader_split, distributed_sampler and synthetic_cifar10: what they give, and how
they refuse.

usage: sampler_examples.py TESSERA DATALOADER_SPLIT DISTRIBUTED_SAMPLER SYNTHETIC_CIFAR10
"""
import json
import os
import subprocess
import sys
import tempfile

TESSERA, SPLIT, SAMPLER, SYNTHETIC = (os.path.abspath(p) for p in sys.argv[1:5])
checks = 0

# Of PyTorch's DistributedSampler.
SPLIT_WANT = """1 sample over 2 ranks
(0, 0, 0)
(1, 0, 0)
2 samples over 2 ranks
(0, 0, 0)
(1, 0, 1)
3 samples over 2 ranks
(0, 0, 2)
(0, 1, 1)
(1, 0, 0)
(1, 1, 2)
"""
SAMPLER_WANT = [
    ("--size 10 --replicas 3", [[4, 5, 0, 2], [1, 3, 8, 4], [7, 9, 6, 1]]),
    ("--size 10 --replicas 3 --drop-last", [[4, 5, 0], [1, 3, 8], [7, 9, 6]]),
    ("--size 10 --replicas 3 --no-pad", [[4, 5, 0, 2], [1, 3, 8], [7, 9, 6]]),
    ("--size 10 --replicas 4 --epoch 5", [[1, 3, 8], [4, 5, 7], [9, 0, 1], [6, 2, 4]]),
    ("--size=7 --replicas=2 --seed=42", [[1, 3, 4, 2], [6, 5, 0, 1]]),
    ("--size 7 --replicas 2 --seed 42 --epoch 3 --drop-last", [[5, 1, 4], [3, 2, 6]]),
    ("--size 10 --replicas 3 --no-shuffle", [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]),
    ("--size 2 --replicas 5 --epoch 1 --seed 1", [[0], [1], [0], [1], [0]]),
    ("--size 3 --replicas 4 --drop-last", [[], [], [], []]),
    ("--size 0 --replicas 2", [[], []]),
]
REFUSED = [
    ("", "--size is missing"),
    ("--size 4", "--replicas is missing"),
    ("--replicas 4", "--size is missing"),
    ("--size -1 --replicas 2", '--size is "-1"; legal are whole numbers of 0 .. 100000000'),
    ("--size ten --replicas 2", '--size is "ten"'),
    ("--size 1e3 --replicas 2", '--size is "1e3"'),
    ("--size 3.5 --replicas 2", '--size is "3.5"'),
    ("--size 99999999999999999999 --replicas 2", '--size is "99999999999999999999"'),
    ("--size= --replicas 2", '--size is ""'),
    ("--size 4 --replicas 0", '--replicas is "0"; legal are whole numbers of 1 .. 1000000'),
    ("--size 4 --replicas -2", '--replicas is "-2"'),
    ("--size 4 --replicas 2 --epoch -1", '--epoch is "-1"'),
    ("--size 4 --replicas 2 --seed x", '--seed is "x"'),
    ("--size 4 --replicas 2 --shuffle", "unrecognized option"),
    ("--size 4 --replicas", "requires an argument"),
    ("--size 4 --replicas 2 5", '"5" is no option'),
    ("--size 4 --replicas 2 --drop-last --no-pad", "exclude each other"),
]


def check(ok, text):
    global checks
    checks += 1
    if not ok:
        sys.exit("FAILED: " + text)


def run(*command):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    p = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env, check=False)
    return p.returncode, p.stdout, p.stderr


def is_split(found, what):
    code, out, err = found
    check(code == 0 and out == SPLIT_WANT, f"{what}: exit code {code}, prints\n{out}{err}")


SYNTHETIC_REFUSED = [
    (["1e5"], 'RECORDS_PER_FILE is "1e5"; legal are whole numbers of 1 .. 100000000'),
    (["0"], 'RECORDS_PER_FILE is "0"'),
    (["-3"], 'RECORDS_PER_FILE is "-3"'),
    ([""], 'RECORDS_PER_FILE is ""'),
    (["1.5"], 'RECORDS_PER_FILE is "1.5"'),
    (["99999999999999999999"], 'RECORDS_PER_FILE is "99999999999999999999"'),
    (["2", "x"], 'SEED is "x"; legal are whole numbers of 0 .. 18446744073709551615'),
    (["2", "-1"], 'SEED is "-1"'),
    (["2", "18446744073709551616"], 'SEED is "18446744073709551616"'),
    (["2", "3", "4"], "usage: "),
]


def synthetic():
    with tempfile.TemporaryDirectory() as work:
        to = os.path.join(work, "set")
        for args, text in SYNTHETIC_REFUSED:
            code, out, err = run(SYNTHETIC, to, *args)
            check(code == 2 and not out and text in err and "usage: " in err
                  and not os.path.exists(to), f"synthetic_cifar10 {args}: exit code {code}: {err}")
        code, out, err = run(SYNTHETIC, to, "2", "18446744073709551615")
        check(code == 0 and not err and os.path.getsize(to + "/test_batch.bin") == 2 * 3073,
              f"synthetic_cifar10: exit code {code}: {err}")


def main():
    for _ in range(3):
        is_split(run(SPLIT), "dataloader_split")
        is_split(run(TESSERA, "launch", "-n", "2", "--", SPLIT), "dataloader_split, launched")
    code, out, _ = run(TESSERA, "launch", "-n", "3", "--", SPLIT, "0", "4")
    check(code == 0 and out == "0 samples over 3 ranks\n4 samples over 3 ranks\n(0, 0, 0)\n"
          "(0, 1, 2)\n(1, 0, 1)\n(1, 1, 0)\n(2, 0, 3)\n(2, 1, 1)\n", f"on 3 ranks:\n{out}")
    for size in ("-1", "3x", "", "1001"):
        code, out, err = run(SPLIT, size)
        check(code == 2 and not out and f'"{size}" is no size; legal are 0 .. 1000' in err,
              f"dataloader_split {size!r}: exit code {code}: {err}")
    for args, want in SAMPLER_WANT:
        code, out, err = run(SAMPLER, *args.split())
        check(code == 0 and not err and [json.loads(line) for line in out.splitlines()] == want,
              f"distributed_sampler {args}: exit code {code}, prints\n{out}{err}")
    for args, text in REFUSED:
        code, out, err = run(SAMPLER, *args.split())
        check(code == 2 and not out and text in err and "usage: " in err,
              f"distributed_sampler {args}: exit code {code}: {out}{err}")
    synthetic()
    print(f"{checks} checks")


if __name__ == "__main__":
    main()
