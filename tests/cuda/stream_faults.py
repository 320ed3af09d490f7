#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The faults of stream_faults.txt, in a second build of the emulated module: each is found by one of its
tests under one of a few seeds of the emulator, and without a fault these tests pass.

  stream_faults.py --plant OUT...            writes the faulty sources, whose names say which they are of
  stream_faults.py MODULE BUILD [NUMBER...]  runs the tests; FULL: TESSERA_FULL=1, 30 seeds without a fault"""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/programs"))
sys.dont_write_bytecode = True
import faults  # noqa: E402

TABLE = ROOT / "tests/cuda/stream_faults.txt"
NCCL = {"TESSERA_TEST_DEVICE": "cuda", "TESSERA_CUDA_COMM": "nccl", "EMULATED_DEVICES": "8",
        "EMULATED_BYTES": "8000000000", "TESSERA_CUDA_ARENA_BYTES": "200000000", "TESSERA_CUDA_GRAPH": "1"}
TESTS = {
    "streams": ("test_cuda_streams", {"TESSERA_TEST_SKIP": "test_captures"}),
    "captures": ("test_cuda_streams", {"TESSERA_TEST_ONLY": "test_captures"}),
    "train": ("test_on_cuda_train", {"TESSERA_TEST_DEVICE": "cuda"}),
    "local_device": ("test_local_device", {}),
    "nccl": ("test_nccl", {}),
    "nccl_faults": ("test_nccl_faults", {}),
    "nccl_streams": ("test_nccl_streams", {}),
    "nccl_train": ("test_on_cuda_train", NCCL),
    "nccl_nd": ("test_on_cuda_nd", NCCL),
    "nccl_replay": ("test_nccl_replay", NCCL),
    "nccl_pipelines": ("test_cuda_pipelines", NCCL),
}
SEEDS = (0, 1, 2, 5)  # the latest possible order first
LIMIT = 30  # seconds; a fault may make a program hang


def plant(outs):
    table = faults.read_table(TABLE)
    names = {name.replace("/", "_"): name for name in (fault["file"] for fault in table)}
    texts = {name: (ROOT / name).read_bytes() for name in names.values()}
    wrong = faults.plant(texts, table)
    for line in wrong:
        print(f"{TABLE.name}: {line}")
    for out in map(Path, outs):
        name = next(n for flat, n in names.items() if Path(flat).stem == out.stem)
        text = texts[name].replace(b'#include "src/core/fault.h"', faults.HEADER.encode(), 1)
        head = b"#include <string.h>\n#include <cuda_runtime_api.h>\n" if name.endswith(".cu") else b""
        out.write_bytes(head + text)
    return 1 if wrong else 0


def run(module, build, fault, test, seed):
    """What the test said, if it failed."""
    program, extra = TESTS[test]
    env = {"OMP_NUM_THREADS": "1", "TESSERA_CHECK": "1", "PATH": "/usr/bin:/bin", "TESSERA_CUDA_MODULE": module,
           "EMULATED_SEED": str(seed), "TESSERA_CUDA_COMM": "local", "TESSERA_FAULT": str(fault), **extra}
    try:
        p = subprocess.run([f"{build}/tests/cuda/{program}"], env=env, capture_output=True, text=True,
                           errors="replace", timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT} s"
    if p.returncode == 0:
        return None
    lines = [line for line in (p.stdout + p.stderr).splitlines() if re.search("ERROR|emulator:|error", line)]
    return lines[0][:150] if lines else f"exit code {p.returncode}"


def find(module, build, number, fault):
    for seed in SEEDS:
        for test in fault["test"].split():
            said = run(module, build, number, test, seed)
            if said:
                return test, seed, said
    return None


def main():
    if sys.argv[1] == "--plant":
        return plant(sys.argv[2:])
    module, build = sys.argv[1:3]
    only = set(map(int, sys.argv[3:]))
    table, bad = faults.read_table(TABLE), 0
    chosen = [(n, f) for n, f in enumerate(table, 1) if not only or n in only]
    with ThreadPoolExecutor(2) as pool:
        seeds = range(30) if os.environ.get("TESSERA_FULL") else SEEDS[:2]
        clean = [(test, seed) for test in TESTS for seed in seeds] if not only else []
        for (test, seed), said in zip(clean, pool.map(lambda c: run(module, build, 0, *c), clean)):
            if said:
                bad += 1
                print(f"FAIL without a fault, {test}, seed {seed}: {said}")
        for (n, f), found in zip(chosen, pool.map(lambda c: find(module, build, *c), chosen)):
            bad += not found
            print(f"{n:3} {f['what']}: " + (f"{found[0]}, seed {found[1]}: {found[2]}" if found else "NOT FOUND"))
    print(f"{len(chosen)} faults, {bad} problems")
    return 1 if bad else 0


sys.exit(main())
