#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times element-wise functions, broadcasts and reductions of f32 on one thread beside PyTorch's, and
prints of each the least microseconds of both and PyTorch's over Tessera's: above 1, Tessera is the
faster. Where other programs run, it wants to be run before them (chrt -f 30).

usage: ops.py BENCH_OPS [--rows 1024] [--columns 1024] [--seconds 0.05]
"""
import argparse
import os
import subprocess
import time

os.environ["OMP_NUM_THREADS"] = "1"


def cases(o):
    import torch
    from torch.nn import functional as F
    torch.set_num_threads(1)
    count = o.rows * o.columns
    x, row, column = torch.rand(o.rows, o.columns) * 2 + 0.1, torch.rand(o.columns), torch.rand(o.rows, 1)
    image, channels = torch.rand(1, 8, o.rows // 4, o.columns // 2), torch.rand(8, 1, 1)
    narrow, labels = torch.rand(count // 10, 10), torch.arange(o.rows) % 10
    held = x.clone().requires_grad_()

    def gradient():
        held.grad = None
        F.cross_entropy(held, labels).backward()

    return {
        "add": lambda: x + x, "add_row": lambda: x + row, "add_column": lambda: x + column,
        "mul_channels": lambda: image * channels, "exp": x.exp, "expm1": x.expm1, "log": x.log, "log1p": x.log1p,
        "log2": x.log2, "tanh": x.tanh, "sigmoid": x.sigmoid, "silu": lambda: F.silu(x), "gelu": lambda: F.gelu(x),
        "gelu_tanh": lambda: F.gelu(x, approximate="tanh"), "softplus": lambda: F.softplus(x), "erf": x.erf, "sin": x.sin,
        "cos": x.cos, "rsqrt": x.rsqrt, "pow_2": lambda: x ** 2, "pow_3": lambda: x ** 3, "pow_half": lambda: x ** 0.5,
        "pow_2_7": lambda: x ** 2.7, "pow": lambda: x ** x, "less": lambda: x < row, "sum_0": lambda: x.sum(0),
        "sum_1": lambda: x.sum(1), "sum_all": x.sum, "max_0": lambda: x.amax(0), "max_1": lambda: x.amax(1),
        "sum_channels": lambda: image.sum((0, 2, 3)), "sum_short": lambda: narrow.sum(1),
        "softmax_0": lambda: x.softmax(0), "softmax_1": lambda: x.softmax(1), "log_softmax_1": lambda: x.log_softmax(1),
        "cross_entropy": lambda: F.cross_entropy(x, labels), "cross_entropy_dx": gradient,
        "upsample": lambda: F.interpolate(image, scale_factor=2, mode="nearest"),
        "upsample_linear": lambda: F.interpolate(image, scale_factor=2, mode="bilinear"),
    }


def least(seconds, work):
    times, start = [], time.perf_counter()
    while len(times) < 8 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        work()
        times.append(1e6 * (time.perf_counter() - begin))
    return min(times)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--rows", type=int, default=1024)
    p.add_argument("--columns", type=int, default=1024)
    p.add_argument("--seconds", type=float, default=0.05)
    o = p.parse_args()
    torch_us = {name: least(o.seconds, work) for name, work in cases(o).items()}
    done = subprocess.run([o.program, *map(str, (o.rows, o.columns, o.seconds))], check=True, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name, us = line.split()
        print(f"{name:18} Tessera {float(us):9.1f} us, PyTorch {torch_us[name]:9.1f} us, ratio {torch_us[name] / float(us):5.2f}")


if __name__ == "__main__":
    main()
