#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times attention's forward and backward, f32, beside PyTorch's composed attention, turn by turn in
one run, on 1 and 2 threads. Prints median milliseconds, ratios, and the plan's bytes beyond the
operands, results and gradients, as a share of the scores' bytes. Debian's PyTorch multiplies by
libblas.so.3: with libopenblas0-pthread installed, and OPENBLAS_CORETYPE unset, it is OpenBLAS.

usage: attention.py BENCH_ATTENTION [--batch 4] [--heads 8] [--length 2048] [--features 64]
                    [--rounds 5]
"""
import argparse
import json
import os
import statistics
import subprocess
import time


def torch_times(o, causal, threads, runs):
    import torch
    torch.set_num_threads(threads)
    q, k, v, dy = (torch.rand(o.batch, o.heads, o.length, o.features) - 0.5 for _ in range(4))
    for x in (q, k, v):
        x.requires_grad_()
    mask = torch.full((o.length, o.length), float("-inf")).triu(1) if causal else None
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        scores = (q * o.features ** -0.5) @ k.transpose(-1, -2)
        if causal:
            scores = scores + mask
        y = scores.softmax(-1) @ v
        y.backward(dy)
        times.append(1e3 * (time.perf_counter() - start))
        for x in (q, k, v):
            x.grad = None
    return times[1:]


def ours(o, kind, causal, threads, runs):
    done = subprocess.run([o.program, kind, *map(str, (o.batch, o.heads, o.length, o.features, int(causal), runs))],
                          check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    for name, value in (("batch", 4), ("heads", 8), ("length", 2048), ("features", 64), ("rounds", 5)):
        p.add_argument("--" + name, type=int, default=value)
    o = p.parse_args()
    scores = 4 * o.batch * o.heads * o.length ** 2
    for threads in (1, 2):
        for causal in (False, True):
            times, extra = {"flash": [], "torch": []}, 0
            for _ in range(o.rounds):
                r = ours(o, "flash", causal, threads, 2)
                times["flash"] += r["ms"]
                extra = r["bytes"] - 8 * r["tensor"]
                times["torch"] += torch_times(o, causal, threads, 2)
            t = {n: statistics.median(v) for n, v in times.items()}
            print(f"{threads} threads, causal {causal!s:5}: Tessera {t['flash']:8.1f} ms, PyTorch {t['torch']:8.1f} ms, "
                  f"ratio {t['torch'] / t['flash']:.2f}; beyond operands {extra / 2 ** 20:.1f} MiB, "
                  f"{100 * extra / scores:.1f} % of the scores", flush=True)


if __name__ == "__main__":
    main()
