#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training steps of bench_cuda_step.c in PyTorch, timed in the same way: convolutional networks in
channels_last by SGD, GPT-2 with scaled_dot_product_attention by AdamW (the faster of foreach and fused),
batches from pinned memory, the loss fetched every tenth step. Prints one JSON object.

usage: gpu_peer.py [--model mobilenet_v2|gpt2|resnet50] --batch N --type f32|tf32|bf16 [--compile]
                   [--steps N] [--rounds N] [--turns] [--tiny]

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

import architectures
import peer
import torch_peer
from torch_nets import ResNet50

BATCHES, FETCH_EVERY = 8, 10
OPTIMIZERS = {True: (torch.optim.AdamW, {"lr": 1e-4}),
              False: (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4})}


def make_gpt(vocab, positions, width, layers):
    net = architectures.Gpt(vocab, positions, width, 12, layers)
    for p in net.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0, 0.02)
    return net


# Of each network, and of its tiny form: how it is made; outputs, or the vocabulary; a sample's size.
NETS = {
    "mobilenet_v2": ((lambda: peer.MobileNetV2(dropout=0.2, variant="cifar"), 10, 32),) * 2,
    "gpt2": ((lambda: make_gpt(50257, 1024, 768, 12), 50257, 1024), (lambda: make_gpt(64, 16, 48, 1), 64, 16)),
    "resnet50": ((lambda: ResNet50(1000, 64), 1000, 224), (lambda: ResNet50(10, 4), 10, 32)),
}


class Trainer:
    def __init__(self, args):
        self.args, self.step, self.loss = args, 0, float("nan")
        self.dtype = torch.bfloat16 if args.type == "bf16" else torch.float32
        torch.manual_seed(1)
        make, self.classes, self.size = NETS[args.model][args.tiny]
        self.words = args.model == "gpt2"
        torch_peer.use_fused()
        net = make().train().to(args.device, self.dtype)
        if not self.words:
            net = net.to(memory_format=torch.channels_last)
        self.parameters, self.optimizer = list(net.parameters()), None

        def forward(x, y):
            return nn.functional.cross_entropy(net(x), y)
        self.forward = torch.compile(forward, mode="max-autotune") if args.compile else forward
        self.batches = [self.make_batch() for _ in range(BATCHES)]

    def make_batch(self):
        if self.words:
            x = torch.randint(self.classes, (self.args.batch, self.size))
            y = x.roll(-1).flatten()
        else:
            x = torch.rand(self.args.batch, 3, self.size, self.size)
            x = x.contiguous(memory_format=torch.channels_last)
            y = torch.randint(10, (self.args.batch,))
        return (x.pin_memory(), y.pin_memory()) if self.args.device == "cuda" else (x, y)

    def run(self, steps):
        """Milliseconds a step; the fetch of the last loss waits for the device."""
        begin = time.perf_counter()
        for i in range(steps):
            x, y = self.batches[self.step % BATCHES]
            x = x.to(self.args.device, non_blocking=True)
            x = x if self.words else x.to(self.dtype)
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
            make, how = OPTIMIZERS[trainer.words]
            trainer.optimizer = make(trainer.parameters, **how, **{name: True})
            trainer.run(trainer.args.warmup)
            ms = trainer.run(trainer.args.steps)
        except (RuntimeError, TypeError) as e:  # no fused form in this version or on this device
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
    p.add_argument("--model", choices=tuple(NETS), default="mobilenet_v2")
    p.add_argument("--tiny", action="store_true", help="to see that it works")
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
        "version": torch.__version__, "model": args.model, "batch": args.batch,
        "dtype": "bf16" if args.type == "bf16" else "f32", "tf32": args.type == "tf32",
        "update": update, "steps": args.steps, "rounds": len(rounds),
        "ms_per_step_median": round(median, 5), "ms_per_step_min": round(min(rounds), 5),
        "samples_per_s": round(1e3 * args.batch / median, 1),
        "parameters": sum(p.numel() for p in trainer.parameters), "loss": round(trainer.loss, 6)},
        separators=(",", ":")))


if __name__ == "__main__":
    main()
