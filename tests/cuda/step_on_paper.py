#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of GPT-2 small on paper: the kernels of the plan that Tessera makes for one H100, the
bytes that each reads and writes and its flops, at 60 % of the card's rates. Attention is counted three
times: by products, block by block as kernels/cuda/library/lt_attention.c cuts them, every byte of scores
from and to memory; and by cuDNN's fused engines, with what kernels/cuda/library/dnn_attention.c does
before and after, part by part: with results that repeat, every byte of slopes from and to memory, or with
sums in any order. What an engine launches is counted as one kernel.
usage: step_on_paper.py TESSERA [--batch N] [--context N]"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

BANDWIDTH, BF16, F32, SHARE = 3.35e12, 989e12, 67e12, 0.6  # an H100's, SXM
START = 1e-6  # between two kernels of a captured graph
SIZE = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "bf16": 2, "f16": 2, "bool": 1}
WAYS = {  # of attention, with the most ms that a step of 8 x 1024 may take
    "by products": 60, "by cuDNN, repeating": 32, "by cuDNN, in any order": 30}
PRODUCTS, REPEATING, ANY_ORDER = WAYS
MOST_SCORES, LEAST_ROWS, TILE, CAUSAL_KEYS = 32 << 20, 16, 64, 256  # lt_attention.c's
FUSED_TILE = 128  # dnn_attention.c's
LN_PARTS = 342  # fast/ln.cu's of 8192 rows
EXPERIMENT = """tessera: 1
mesh: {{dp: 1}}
cluster: {{gpu: h100-sxm, nodes: 1, gpus_per_node: 1}}
device: cuda
model: {{name: gpt, args: {{width: 768, layers: 12, heads: 12, dropout: 0}}}}
data: {{dataset: text, tokens: tokens.npy, vocab: 50257, context: {context}, batch_size: {batch}}}
optimizer: {{name: adamw, lr: 0.0003}}
train: {{steps: 1, seed: 1, amp: bf16}}
"""


class Kernel:
    def __init__(self, flops, moved, peak=BF16):
        self.flops, self.moved = flops, moved
        self.s = max(moved / BANDWIDTH, flops / peak) / SHARE


def tokens(path):
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (65536,), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8 * 65536))


def plan(tessera, batch, context):
    with tempfile.TemporaryDirectory() as folder:
        tokens(os.path.join(folder, "tokens.npy"))
        path = os.path.join(folder, "gpt2.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(EXPERIMENT.format(batch=batch, context=context))
        out = subprocess.run([tessera, "plan", "--json", path], capture_output=True, text=True, timeout=120,
                             check=False, cwd=folder)
        if out.returncode:
            sys.exit(out.stderr)
        return json.loads(out.stdout)


def products(q, v, size, causal, back):
    """The kernels of attention by products, for q (b,h,s,d) and v (b,h,t,e). Halves lie by head, so that a
    launch has heads of one sample, or one head of several."""
    joined = size != 2 or 1 in q[:2]
    heads = q[0] * q[1] if joined else max(q[:2])
    s, d, t, e = q[2], q[3], v[2], v[3]
    wide = 8 if size == 8 else 4
    pitch = (t + 7) // 8 * 8 * wide
    step = -(-((t + 7) // 8) // CAUSAL_KEYS) * CAUSAL_KEYS if causal else t
    rows = min(MOST_SCORES // pitch, step if causal else s)
    rows = min(max(rows - rows % (TILE if rows > TILE else LEAST_ROWS), LEAST_ROWS), s)
    each = next(n for n in range(heads, 0, -1) if heads % n == 0 and (n == 1 or n * rows * pitch <= MOST_SCORES))
    made, blocks = [], -(-s // rows)
    add = lambda flops, moved: made.append(Kernel(each * flops, each * moved))  # noqa: E731
    for _ in range(q[0] * q[1] // each):
        if back and causal:
            add(0, 2 * t * d * size)  # the copy of keys without NaN
        for b in range(blocks):
            r = min(rows, s - b * rows)
            n = min(t, max(step, -(-(b * rows + r) // step) * step)) if causal else t
            n = t if back and b == blocks - 1 else n
            scores, weights, q_, k_, v_, y_ = r * n * wide, r * n * size, r * d * size, n * d * size, n * e * size, r * e * size
            add(2 * r * n * d, q_ + k_ + scores)
            if not back:
                add(0, scores + weights)
                add(2 * r * n * e, weights + v_ + y_)
                continue
            sums = size == 2 and blocks > 1
            to = lambda x: x * 2 * (1 if b == blocks - 1 else 2) if sums else x  # noqa: E731
            add(2 * r * n * e, y_ + v_ + scores)
            add(0, 2 * (scores + weights) + 2 * y_)
            add(2 * r * n * e, weights + y_ + to(v_))
            add(2 * r * n * d, weights + q_ + to(k_))
            add(2 * r * n * d, weights + k_ + q_)
        if back and size == 2 and blocks > 1:
            add(0, t * d * (4 + size))
            add(0, t * e * (4 + size))
    return made


def largest_divisor(n, most):
    return next(d for d in range(max(1, min(n, int(most))), 0, -1) if n % d == 0)


def fused(q, v, size, causal, back, repeats):
    """The kernels of attention by cuDNN's engines, for q (b,h,s,d) and v (b,h,t,e)."""
    b, h, s, d, t, e = q[0], q[1], q[2], q[3], v[2], v[3]
    tiles = lambda n: -(-n // FUSED_TILE) * FUSED_TILE  # noqa: E731
    held = (tiles(s) * tiles(t) * size if repeats else 4 * s * d) if back else 0
    heads = b * h
    if back:
        samples = largest_divisor(b, MOST_SCORES // (held * h))
        heads = samples * (largest_divisor(h, MOST_SCORES // held) if samples == 1 else h)
    pairs = s * t / (2 if causal else 1)
    rows = s * (8 + 4)  # an lse as f64 and as f32
    moved = (2 * (s * d + t * d + t * e + s * e) if back else s * d + t * d + t * e + s * e) * size
    made = []
    for _ in range(b * h // heads):
        made.append(Kernel(0, heads * rows))
        if back and causal:
            made.append(Kernel(0, heads * 2 * t * d * size))  # the copy of keys without NaN
        sums = 2 * 4 * s if back else 0
        made.append(Kernel(heads * 2 * pairs * (3 * d + 2 * e if back else d + e),
                           heads * (moved + 4 * s + sums + 2 * held)))
    return made


def kernels_of(op, values, way):
    ins, outs = [values[i] for i in op["in"]], [values[i] for i in op["out"]]
    count = lambda v: math.prod(v["shape"])  # noqa: E731
    moved = sum(count(v) * SIZE[v["dtype"]] for v in ins + outs)
    kind = op["op"]
    if kind in ("flash_attention", "flash_attention_dx"):
        q, v, back = ins[0]["shape"], ins[2]["shape"], kind.endswith("dx")
        size = SIZE[ins[0]["dtype"]]
        return products(q, v, size, True, back) if way == PRODUCTS else fused(q, v, size, True, back, way == REPEATING)
    if kind in ("batch_matmul", "matmul", "linear", "linear_dx", "linear_dw"):
        flops = 2 * math.sqrt(count(ins[0]) * count(ins[1]) * count(outs[0]))
        return [Kernel(flops, moved, BF16 if ins[0]["dtype"] in ("bf16", "f16") else F32)]
    if kind == "index_select":  # the rows that are looked up, not the table
        moved = 2 * count(outs[0]) * SIZE[outs[0]["dtype"]] + count(ins[1]) * 8
    if kind == "ln_bwd_apply" and len(outs) > 1:  # and the parts' sums of gamma's and beta's gradients
        parts = 4 * LN_PARTS * (count(outs[1]) + count(outs[2]))
        return [Kernel(0, moved + parts), Kernel(0, parts)]
    return [Kernel(0, moved)]


def count_step(p, way):
    values, ops = {v["id"]: v for v in p["values"]}, {o["id"]: o for o in p["ops"]}
    rows = {}
    for i in p["order"]["op"]:
        op = ops[i]
        rows.setdefault(op["op"], []).extend(kernels_of(op, values, way))
    return rows


def row(name, kernels):
    ms = 1e3 * sum(x.s for x in kernels)
    print(f"| {name} | {len(kernels)} | {sum(x.moved for x in kernels) / 1e9:.2f} "
          f"| {sum(x.flops for x in kernels) / 1e12:.2f} | {ms:.2f} |")
    return ms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    a = parser.parse_args()
    p = plan(os.path.abspath(a.tessera), a.batch, a.context)
    counts = {way: count_step(p, way) for way in WAYS}
    print("| op | kernels | GB | TFLOP | ms |\n| --- | --- | --- | --- | --- |")
    for op, k in sorted(counts[PRODUCTS].items(), key=lambda r: -sum(x.s for x in r[1])):
        if op.startswith("flash"):
            for way in WAYS if op.endswith("dx") else (PRODUCTS, REPEATING):
                row(f"{op} {way if op.endswith('dx') else way.split(',')[0]}", counts[way][op])
        elif sum(x.s for x in k) >= 5e-5:
            row(op, k)
    late = 0
    for way, rows in counts.items():
        every = [x for k in rows.values() for x in k]
        ms = row(f"all, attention {way}", every)
        late += (a.batch, a.context) == (8, 1024) and ms > WAYS[way]
    for way, rows in counts.items():
        print(f"{sum(len(k) for k in rows.values()) * START * 1e3:.1f} ms more between the kernels, attention {way}")
    print(f"FAIL {late} of the sums are above {WAYS}" if late else "ok")
    return late > 0


if __name__ == "__main__":
    sys.exit(main())
