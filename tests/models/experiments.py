#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every file of examples/experiments with a transformer of two blocks, in f64 and f32, and with
MobileNetV2, in f64 (in f32 its first loss: later ones of so few rows follow the rounding of batch
norm): the losses must be those of one rank. And holds the inferred plans against the hand-written
ones: with the same hints for the data and the same memory, inference may not be costlier.
Prints a line "ok ..." or "FAIL ..." for each.
--device cuda: all placements are of GPUs. --quick: the files as they are, and the transformer in f64.
usage: experiments.py --tessera PATH [--full | --quick] [--device cuda] [DIR]"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile

MOBILENET = ["--set", "model={name: mobilenet_v2, args: {variant: cifar, dropout: 0}}", "--set",
             "data={dataset: synthetic, shape: [3, 32, 32], classes: 10, samples: 64, "
             "batch_size: %d, seed: 1}"]
TRANSFORMER = ["--set", "model={name: transformer, args: {layers: 2, heads: 4, causal: true}}",
               "--set", "data={dataset: synthetic, shape: [1, 12, 32], classes: 10, samples: 64, "
               "batch_size: 8, seed: 1}"]
SGD = ["--set", "optimizer.name=sgd", "--set", "optimizer.lr=1e-3"]
# Files whose patterns name the other model's parameters: what they say there.
OTHER = {
    ("attention.yaml", "mobilenet_v2"):
        '[{match: "*", sbp: B}, {match: "features.18.0.weight", sbp: S(0)}, '
        '{match: "classifier.1.weight", sbp: S(1)}]',
    ("tensor_parallel.yaml", "mobilenet_v2"):
        '[{match: "*", sbp: B}, {match: "features.1[0-8].*weight", sbp: S(0)}, '
        '{match: "classifier.1.weight", sbp: S(1)}]',
    ("tensor_parallel.yaml", "transformer"):
        '[{match: "*", sbp: B}, {match: "*.attn.[qkv].*", sbp: S(0)}, '
        '{match: "*.attn.proj.weight", sbp: S(1)}, {match: "*.mlp.fc1.*", sbp: S(0)}, '
        '{match: "*.mlp.fc2.weight", sbp: S(1)}]',
    ("grid2x2.yaml", "transformer"):
        '[{match: "*", sbp: B}, {match: "*.mlp.fc1.*", sbp: ["B", "S(0)"]}, '
        '{match: "*.mlp.fc2.weight", sbp: ["B", "S(1)"]}]',
    ("pipeline2.yaml", "transformer"):
        '[{match: "*", placement: first, sbp: B}, {match: "blocks.1.*", placement: second}, '
        '{match: "norm.*", placement: second}, {match: "head.*", placement: second}]',
}
# What a file for many GPUs takes to run here.
SMALL = {"gpt_dp_tp.yaml": ["-n", "4", "--set", "mesh.tp=2"],
         "gpt_pipeline.yaml": ["--set", "schedule.microbatches=2"]}
# The same on numbers of ranks that do not divide the shapes.
UNEVEN = [("zero.yaml", "placements.all.ranks=[0, 1, 2]"),
          ("sharded.yaml", "placements.all.ranks=[4, 1, 2, 0, 3]"),
          ("grid2x2.yaml", "placements.grid.ranks=[[0, 1, 2], [3, 4, 5]]")]
failures = 0


def report(ok, text):
    global failures
    failures += not ok
    print(("ok " if ok else "FAIL ") + text, flush=True)


def tessera(args, command):
    done = subprocess.run([args.tessera] + command, capture_output=True, text=True)
    return done if done.returncode == 0 else sys.exit(
        f"FAIL {' '.join(command)}: exit {done.returncode}: {done.stderr[-2000:]}")


def on_device(args, path):
    """What places a file's tensors on the device that is asked for."""
    small = SMALL.get(os.path.basename(path))
    if small:
        return small + ["--set", "device=" + args.device]
    with open(path, encoding="utf-8") as f:
        names = re.findall(r"^  (\w+): \{device: cpu", f.read(), re.M)
    return [word for name in names if args.device != "cpu"
            for word in ("--set", f"placements.{name}.device={args.device}")]


def overrides(name, model, dtype, rows):
    sets = [s % rows if "%d" in s else s for s in MOBILENET] if model == "mobilenet_v2" \
        else list(TRANSFORMER)
    if (name, model) in OTHER:
        sets += ["--set", "parameters=" + OTHER[name, model]]
    if name in ("attention.yaml", "gpt_dp_tp.yaml", "gpt_pipeline.yaml"):  # their AdamW amplifies rounding; the others use momentum
        sets += ["--set", "optimizer={name: sgd, lr: 1e-3, momentum: 0.9}"]
    return sets + SGD + ["--set", "dtype=" + dtype]


def losses(args, path, model, dtype, rows, steps, folder, more=()):
    name = os.path.basename(path)
    command = ["run", path, "--steps", str(steps), "--out", folder]
    for text in more:
        command += ["--set", text]
    command += on_device(args, path)
    tessera(args, command + overrides(name, model, dtype, rows))
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as f:
        result = json.load(f)
    for c in result["collectives"]:
        if (c["calls"], c["bytes"]) != (c["planned_calls"], c["planned_bytes"]):
            report(False, f"{name}: {c}: what ran is not what was planned")
    return result["losses"]


def compare(args, files, model, dtype, limit, rows, steps=5):
    with tempfile.TemporaryDirectory() as folder:
        one = next(f for f in files if f.endswith("/one.yaml"))
        want = losses(args, one, model, dtype, rows, steps, folder)
        report(len(want) == len(set(want)) == steps and all(map(math.isfinite, want)),
               f"one.yaml, {model}, {dtype}: losses {want}")
        runs = [(os.path.basename(f), []) for f in files if f != one]
        for name, more in runs + [(name, [text]) for name, text in UNEVEN]:
            path = os.path.join(args.dir, name)
            got = losses(args, path, model, dtype, rows, steps, folder, more)
            off = max(abs(a - b) for a, b in zip(got, want))
            report(len(got) == steps and all(map(math.isfinite, got)) and off <= limit,
                   f"{' '.join([name] + more)}, {model}, {dtype}: losses of one rank within "
                   f"{off:.1e}")


def cost(args, path, sets):
    done = tessera(args, ["plan", path, "--json"] + sets)
    plan = json.loads(done.stdout)
    return plan["step"], max(row["total"] for row in plan["memory"])


def cheaper(args, files):
    """The inferred plan of each file's placements and data against the hand-written one, within
    the memory that this takes."""
    for path in files:
        name = os.path.basename(path)
        if name == "pipeline2.yaml":
            continue  # which stage a parameter lives on is not inferred
        hand, limit = cost(args, path, [])
        free, most = cost(args, path, ["--set", 'parameters=[{match: "*", sbp: auto}]',
                                       "--set", f"memory_limit={limit}"] +
                          ["--set", "optimizer.state.sbp=auto"] * (name == "zero.yaml"))
        report(free["signatures_cost_s"] <= hand["signatures_cost_s"] * (1 + 1e-6)
               and most <= limit,
               f"{name}: inferred {free['signatures_cost_s'] * 1e3:.4f} ms a step, hand-written "
               f"{hand['signatures_cost_s'] * 1e3:.4f}, "
               f"{'proven' if free['exact'] else 'bounded'}; {most} bytes on a rank, {limit}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser()
    p.add_argument("--tessera", required=True)
    p.add_argument("--full", action="store_true", help="batches of 16 instead of 4 for MobileNetV2")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    p.add_argument("dir", nargs="?", default=os.path.join(here, "../../examples/experiments"))
    args = p.parse_args()
    others = ("matmul.yaml", "own_data.yaml", "text_gpt.yaml")  # with values and data of their own
    files = sorted(os.path.join(args.dir, f) for f in os.listdir(args.dir)
                   if f.endswith(".yaml") and f not in others)
    rows = 16 if args.full else 4
    of_pairs = [f for f in files if os.path.basename(f) in SMALL]  # a strategy for transformers alone
    files = [f for f in files if f not in of_pairs]
    for f in sorted(os.listdir(args.dir)):
        # tests/cli/train.py makes the data of one; the other's lies beside it in the source tree alone.
        text = os.path.join(args.dir, "../05_gpt_text.c")
        if f == "own_data.yaml" or (f == "text_gpt.yaml" and not os.path.exists(text)):
            continue
        path = os.path.join(args.dir, f)
        less = ["--set", "model.args.width=64", "--set", "model.args.layers=2", "--set", "data.batch_size=4"]
        done = subprocess.run([args.tessera, "run", path] + on_device(args, path) + less * (path in of_pairs),
                              capture_output=True, text=True)
        report(done.returncode == 0, f"{f} as it is{done.stderr and ': ' + done.stderr[-500:]}")
    compare(args, files + of_pairs, "transformer", "f64", 1e-7, 8)
    if args.quick:
        return 1 if failures else 0
    compare(args, files + of_pairs, "transformer", "f32", 1e-4, 8)
    compare(args, files, "mobilenet_v2", "f32", 1e-4, rows, steps=1)
    compare(args, files, "mobilenet_v2", "f64", 1e-7, rows)
    if args.device == "cpu":  # planning needs no device
        cheaper(args, files)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
