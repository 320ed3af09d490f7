#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps as planned by this machine's measured figures (tessera info --measure) against steps as they run here, of 24 experiments: six
nets of two sizes on 1 and 2 ranks, as threads of one core each. Half of them are kept out of the one factor that is printed: the
median of measured by planned over the others. The machine must be quiet: a step is the fastest of a run, and the run of three that
has the median ratio counts, each with figures measured directly before it, since cores that a machine shares change their rate.

--schedules: 12 other experiments, four nets in micro-batches: on one rank, and in two stages by 1F1B and by GPipe or interleaved.

usage: planned.py TESSERA [--schedules] [--steps 20] [--runs 3] [--least 0.85] [--most 1.15]"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

NETS = {
    "mlp": ("{name: mlp, args: {hidden: %d}}", "shape: [1, 28, 28], classes: 10", (512, 2048)),
    "convnet": ("{name: convnet}", "shape: [3, %d, %d], classes: 10", (16, 32)),
    "mobilenet_v2": ("{name: mobilenet_v2}", "shape: [3, %d, %d], classes: 10", (32, 64)),
    "gpt": ("{name: gpt, args: {width: %d, layers: 2, heads: 4, dropout: 0}}", "shape: [1, 1, 128], classes: 2", (128, 256)),
    "lstm_lm": ("{name: lstm_lm, args: {width: %d}}", "shape: [1, 1, 64], classes: 2", (128, 256)),
    "layers": ("{layers: [{layer: flatten}, {layer: linear, in: 784, out: %d}, gelu, {layer: layer_norm, shape: [%d]}, "
               "{layer: linear, in: %d, out: 10}]}", "shape: [1, 28, 28], classes: 10", (512, 2048)),
}


def experiments():
    for name, (model, data, sizes) in NETS.items():
        for size in sizes:
            for ranks in (1, 2):
                filled = [text.replace("%d", str(size)) for text in (model, data)]
                yield f"{name} {size}, {ranks} rank{'s' * (ranks > 1)}", f"""\
tessera: 1
mesh: {{dp: {ranks}}}
device: cpu
model: {filled[0]}
data: {{dataset: synthetic, {filled[1]}, samples: 512, batch_size: 32}}
tensors: {{input: {{sbp: {{dp: S(0)}}}}}}
optimizer: {{name: sgd, lr: 0.01}}
"""


STAGED = {
    "mlp": ("{name: mlp, args: {hidden: 512, layers: 8}}", "shape: [1, 28, 28], classes: 10", "kind: gpipe", ""),
    "convnet": ("{name: convnet, args: {bn: local, bn_parts: 8}}", "shape: [3, 32, 32], classes: 10", "kind: gpipe", ""),
    "gpt": ("{name: gpt, args: {width: 128, layers: 4, heads: 2, dropout: 0}}", "shape: [1, 1, 32], classes: 2", "kind: 1f1b", ", virtual: 2"),
    "transformer": ("{name: transformer, args: {layers: 4, heads: 4}}", "shape: [1, 32, 128], classes: 10", "kind: 1f1b", ", virtual: 2"),
}


def schedules():
    for name, (model, data, kind, virtual) in STAGED.items():
        for what, schedule, stages in (("one rank", "", None), ("1F1B", ", kind: 1f1b", ""),
                                       ("interleaved" if virtual else "GPipe", f", {kind}", virtual)):
            yield f"{name}, {what}", f"""\
tessera: 1
mesh: {{pp: {1 if stages is None else 2}}}
device: cpu
model: {model}
data: {{dataset: synthetic, {data}, samples: 512, batch_size: 32}}
schedule: {{microbatches: 8{schedule}}}
{"" if stages is None else f"stages: {{axis: pp, split: auto{stages}}}"}
optimizer: {{name: sgd, lr: 0.01}}
"""


def held_out(i):
    """One of each net's sizes on 1 rank, the other one on 2; every other schedule."""
    return i % 2 if o.schedules else i % 4 in (1, 2)


parser = argparse.ArgumentParser()
parser.add_argument("tessera")
parser.add_argument("--schedules", action="store_true")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--runs", type=int, default=3)
parser.add_argument("--least", type=float, default=0.85)
parser.add_argument("--most", type=float, default=1.15)
o = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": folder}

    def run(*args):
        p = subprocess.run([o.tessera, *args], env=env, capture_output=True, text=True, check=False)
        if p.returncode:
            raise SystemExit(f"tessera {' '.join(args)}: {p.stderr}")
        return p.stdout

    ratios = []
    for i, (what, text) in enumerate(schedules() if o.schedules else experiments()):
        path = os.path.join(folder, "e.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        pairs = []
        for _ in range(o.runs):
            run("info", "--measure", "--force", "-n", "2")
            r = json.loads(run("run", path, "--json", "--steps", str(o.steps)))
            pairs.append((r["fastest_step_s"] / r["planned_step_s"], r["planned_step_s"], r["fastest_step_s"]))
        ratio, planned, measured = sorted(pairs)[len(pairs) // 2]
        ratios.append(ratio)
        print(f"{what:28} planned {1e3 * planned:8.3f} ms, measured {1e3 * measured:8.3f} ms: {ratio:.2f}"
              f"{' (held out)' if held_out(i) else ''}", flush=True)
factor = statistics.median(x for i, x in enumerate(ratios) if not held_out(i))
by_one_rank = [("stages, each with its net's factor on one rank", [x / ratios[i // 3 * 3] for i, x in enumerate(ratios) if i % 3])] if o.schedules else []
for name, values in (("as planned", ratios), (f"held out, with the others' factor of {factor:.2f}", [x / factor for i, x in enumerate(ratios) if held_out(i)]),
                     *by_one_rank):
    within = sum(o.least <= x <= o.most for x in values)
    print(f"{name}: {within} of {len(values)} within {o.least} to {o.most}; median {statistics.median(values):.2f}, "
          f"{min(values):.2f} to {max(values):.2f}")
