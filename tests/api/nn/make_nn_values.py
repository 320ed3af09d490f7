#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes nn_values.h: what PyTorch makes, in f64, of test_nn_values.c's programs, and the gradients.
Needs Debian's python3-torch.

usage: make_nn_values.py > nn_values.h
"""
import math

import torch
from torch.nn import functional as F


def wave(shape, k):
    """The k-th operand: numbers that both sides can make."""
    n = math.prod(shape)
    return torch.tensor([math.sin(0.7 * i + k) + 0.1 * (i % 3) for i in range(n)],
                        dtype=torch.float64).reshape(shape)


def attend(causal=False, scale=None):
    """scaled_dot_product_attention by its documentation: Debian's PyTorch does not have it yet."""
    def fn(q, k, v):
        scores = q @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[-1]))
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~seen, -math.inf)
        return torch.softmax(scores, -1) @ v
    return fn


def losses(**options):
    return lambda x: F.cross_entropy(x, torch.tensor([2, 0, 6, 4]), **options)


QKV = [(2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 2)]
CASES = {
    "layer_norm": (lambda x, g, b: F.layer_norm(x, (7,), g, b), [(4, 3, 7), (7,), (7,)]),
    "layer_norm_two_axes": (lambda x, g, b: F.layer_norm(x, (3, 5), g, b, 0.01),
                            [(4, 3, 5), (3, 5), (3, 5)]),
    "layer_norm_plain": (lambda x: F.layer_norm(x, (7,)), [(4, 7)]),
    "gelu": (lambda x: F.gelu(3 * x), [(4, 7)]),
    "gelu_tanh": (lambda x: F.gelu(3 * x, approximate="tanh"), [(4, 7)]),
    "softmax": (lambda x: F.softmax(x, 1), [(4, 7, 3)]),
    "log_softmax": (lambda x: F.log_softmax(x, 0), [(4, 7)]),
    "cross_entropy": (losses(), [(4, 7)]),
    "cross_entropy_smooth": (losses(label_smoothing=0.2), [(4, 7)]),
    "cross_entropy_ignore": (losses(ignore_index=6, reduction="sum"), [(4, 7)]),
    "matmul": (torch.matmul, [(2, 1, 3, 5), (4, 5, 2)]),
    "attention": (attend(), [(2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 2)]),
    "attention_causal": (attend(True), QKV),
    "attention_scale": (attend(True, 0.3), QKV),
}


def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_nn_values.py: results, then the gradients of each operand. */")
    print("/* clang-format off */")
    for name, (fn, shapes) in CASES.items():
        x = [wave(s, k).requires_grad_() for k, s in enumerate(shapes)]
        y = fn(*x)
        grads = torch.autograd.grad((y * wave(tuple(y.shape), 9)).sum(), x)
        values = [v for t in (y, *grads) for v in t.detach().flatten().tolist()]
        print(f"static const double values_{name}[] = {{")
        line = "   "
        for v in values:
            text = f" {v!r},"
            if len(line) + len(text) > 100:
                print(line)
                line = "   "
            line += text
        print(line)
        print("};")


if __name__ == "__main__":
    main()
