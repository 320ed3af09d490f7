#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time of MobileNetV2 (torchvision variant, 32x32, batch 64, f32, forward + backward + SGD):
Tessera with one rank of 2 threads against Debian's PyTorch, channels_last, 2 threads, turn by turn
in one run. Prints medians and the ratio.

usage: step.py --example PROG --data DIR [--rounds N] [--ranks N]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "models"))


def torch_steps(directory, steps, threads):
    import torch
    from torch import nn

    import peer
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = peer.MobileNetV2().to(memory_format=torch.channels_last).train()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    images, labels = peer.read_cifar10(directory, 64)
    x = images.contiguous(memory_format=torch.channels_last)
    times = []
    for _ in range(steps):
        t = time.perf_counter()
        loss = nn.functional.cross_entropy(net(x), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()
        times.append(1e3 * (time.perf_counter() - t))
    return times[5:]


def our_steps(example, directory, steps, ranks, threads):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as f:
        env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        env["OMP_NUM_THREADS"] = str(threads)
        placement = "cpu:[" + ",".join(str(i) for i in range(ranks)) + "]"
        subprocess.run([example, "--data", directory, "--ranks", str(ranks), "--placement", placement,
                        "--steps", str(steps), "--no-eval", "--quiet", "--no-augment", "--metrics",
                        f.name, "--lr", "0.01"], check=True, stdout=subprocess.DEVNULL, env=env)
        with open(f.name) as lines:
            return [json.loads(line)["step_ms"] for line in lines][5:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--example")
    p.add_argument("--data", required=True)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.torch:
        print(json.dumps(torch_steps(args.data, args.steps, args.threads)))
        return
    os.environ.pop("OPENBLAS_CORETYPE", None)
    ratios = []
    for i in range(args.rounds):
        out = subprocess.run(["/usr/bin/python3", __file__, "--torch", "--data", args.data, "--steps",
                              str(args.steps), "--threads", str(args.threads)], check=True,
                             capture_output=True, text=True).stdout
        theirs = statistics.median(json.loads(out))
        ours = statistics.median(our_steps(args.example, args.data, args.steps, 1, args.threads))
        two = statistics.median(our_steps(args.example, args.data, args.steps, 2, 1))
        ratios.append(theirs / ours)
        print(f"round {i}: PyTorch {theirs:.1f} ms, Tessera {ours:.1f} ms (1 rank x "
              f"{args.threads} threads), {two:.1f} ms (2 ranks x 1 thread): "
              f"{theirs / ours:.2f}x, {theirs / two:.2f}x", flush=True)
    print(f"median ratio PyTorch / Tessera: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
