#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training step of bench_cuda_step.c in PyTorch, timed in the same way: MobileNetV2's CIFAR
variant, channels_last, SGD (the faster of foreach and fused), batches from pinned memory, the loss
fetched every tenth step. Prints one JSON object.

usage: gpu_peer.py --batch N --type f32|tf32|bf16 [--compile] [--steps N] [--rounds N] [--turns]

--compile: torch.compile(mode="max-autotune"). --turns: says {"ready": true} when warm, and runs one
round for each line of standard input, so that rounds can alternate with bench_cuda_step's.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))

import torch
from torch import nn

import peer

BATCHES, FETCH_EVERY = 8, 10
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


class Trainer:
    def __init__(self, args):
        self.args, self.step, self.loss = args, 0, float("nan")
        self.dtype = torch.bfloat16 if args.type == "bf16" else torch.float32
        torch.manual_seed(1)
        net = peer.MobileNetV2(dropout=0.2, variant="cifar").train()
        net = net.to(args.device, self.dtype, memory_format=torch.channels_last)
        self.parameters, self.optimizer = list(net.parameters()), None

        def forward(x, y):
            return nn.functional.cross_entropy(net(x), y)
        self.forward = torch.compile(forward, mode="max-autotune") if args.compile else forward
        self.batches = [self.make_batch() for _ in range(BATCHES)]

    def make_batch(self):
        x = torch.rand(self.args.batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        y = torch.randint(10, (self.args.batch,))
        return (x.pin_memory(), y.pin_memory()) if self.args.device == "cuda" else (x, y)

    def run(self, steps):
        """Milliseconds a step; the fetch of the last loss waits for the device."""
        begin = time.perf_counter()
        for i in range(steps):
            x, y = self.batches[self.step % BATCHES]
            x = x.to(self.args.device, non_blocking=True).to(self.dtype)
            y = y.to(self.args.device, non_blocking=True)
            loss = self.forward(x, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.step % FETCH_EVERY == FETCH_EVERY - 1 or i == steps - 1:
                self.loss = loss.item()
            self.step += 1
        return 1e3 * (time.perf_counter() - begin) / steps


def warm_up(trainer):
    """Runs the first steps, and keeps the faster way to update; returns its name."""
    best = None
    for name in ("fused", "foreach"):
        try:
            trainer.optimizer = torch.optim.SGD(trainer.parameters, **SGD, **{name: True})
            trainer.run(trainer.args.warmup)
            ms = trainer.run(trainer.args.steps)
        except (RuntimeError, TypeError) as e:  # no fused SGD in this version or on this device
            print(f"{name}: {e}", file=sys.stderr)
            continue
        if best is None or ms < best[0]:
            best = (ms, trainer.optimizer, name)
    if best is None:
        sys.exit("neither way to update works here")
    trainer.optimizer = best[1]
    return best[2]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--type", choices=("f32", "tf32", "bf16"), default="f32")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--warmup", type=int, default=20)
    p.add_argument("--turns", action="store_true")
    p.add_argument("--device", default="cuda", help="cpu: to see that it works")
    args = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.type == "tf32"
    torch.backends.cudnn.allow_tf32 = args.type == "tf32"
    torch.backends.cudnn.benchmark = True
    trainer = Trainer(args)
    update = warm_up(trainer)
    rounds = []
    if args.turns:
        print(json.dumps({"ready": True}), flush=True)
        for _ in sys.stdin:
            rounds.append(trainer.run(args.steps))
            print(json.dumps({"round": len(rounds), "ms_per_step": round(rounds[-1], 5)}), flush=True)
    else:
        rounds = [trainer.run(args.steps) for _ in range(args.rounds)]
    if not rounds:
        return
    median = statistics.median(rounds)
    print(json.dumps({
        "bench": "step", "who": "pytorch compile" if args.compile else "pytorch eager",
        "version": torch.__version__, "batch": args.batch,
        "dtype": "bf16" if args.type == "bf16" else "f32", "tf32": args.type == "tf32",
        "update": update, "steps": args.steps, "rounds": len(rounds),
        "ms_per_step_median": round(median, 5), "ms_per_step_min": round(min(rounds), 5),
        "images_per_s": round(1e3 * args.batch / median, 1), "loss": round(trainer.loss, 6)},
        separators=(",", ":")))


if __name__ == "__main__":
    main()
