#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""recompute: losses and trained weights have the same bits with and without it, on 1, 2 and 4 ranks
and in each strategy; memory falls and work grows by what is planned; wrong entries are refused.
usage: recompute.py TESSERA"""
import json
import math
import os
import re
import tempfile

from harness import check, done, equal, near, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
GPT = """
tessera: 1
mesh: {mesh}
strategy: {strategy}
model: {{name: gpt, args: {{vocab: 256, width: 32, layers: {layers}, heads: 4, dropout: 0.1}}}}
data: {{dataset: synthetic, shape: [32], classes: 64, samples: 64, batch_size: 8}}
optimizer: {{name: adamw, lr: 0.01, clip_norm: 1}}
fusion: {{chains: false, rows: false}}
train: {{steps: 4, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
"""
RESNET = """
tessera: 1
mesh: {mesh}
strategy: {strategy}
model: {{name: resnet18, args: {{width: 4, variant: cifar, bn: {bn}}}}}
data: {{dataset: synthetic, shape: [3, 16, 16], classes: 4, samples: 64, batch_size: 16}}
optimizer: {{name: sgd, lr: 0.1, momentum: 0.9}}
fusion: {{chains: false, rows: false}}
train: {{steps: 3, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
"""
OTHER = """
tessera: 1
{layout}
model: {model}
data: {{dataset: synthetic, shape: {shape}, classes: 64, samples: 64, batch_size: 8}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, accumulate: 2}}
fusion: {{chains: false, rows: false}}
train: {{steps: 4, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
"""
counter = iter(range(1000))


def write(text, name, **values):
    path = os.path.join(FOLDER.name, name + ".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.format(out=os.path.join(FOLDER.name, name), **values))
    return path


def run(text, ranks, recompute, sets, **values):
    """Losses by step, and the trained weights and running averages as bytes."""
    name = f"run{next(counter)}"
    path = write(text + recompute, name, **values)
    tessera("run", "-n", ranks, path, *(x for s in sets for x in ("--set", s)))
    out = os.path.join(FOLDER.name, name)
    with open(out + ".json", encoding="utf-8") as f:
        losses = [row["loss"] for row in map(json.loads, f) if "loss" in row]
    with open(os.path.join(out, "weights.safetensors"), "rb") as f:
        return losses, f.read()


def same(text, ranks, match, what, sets=(), **values):
    entries = "recompute: [" + ", ".join(f'{{{{match: "{m}"}}}}' for m in match) + "]\n"
    plain, again = (run(text, ranks, r, sets, **values) for r in ("", entries))
    check(len(plain[0]) >= 3, f"{what}: {len(plain[0])} losses")
    equal(again[0], plain[0], f"{what}: losses")
    check(again[1] == plain[1], f"{what}: weights have other bits")


def test_bits():
    """Dropout's masks, tied weights (gpt's embedding is its head), and running averages."""
    for ranks in (1, 2, 4):
        same(GPT, ranks, ["h.*"], f"gpt on {ranks}", mesh=f"{{dp: {ranks}}}", strategy="data", layers=3)
        same(RESNET, ranks, ["layer*"], f"resnet on {ranks}", mesh=f"{{dp: {ranks}}}", strategy="data",
             bn="global")


def test_strategies():
    for strategy in ("zero1", "zero2", "zero3"):
        same(GPT, 2, ["h.0", "h.2.mlp"], strategy, mesh="{dp: 2}", strategy=strategy, layers=3)
    same(GPT, 4, ["h.*"], "tp", mesh="{dp: 2, tp: 2}", strategy="{dp: data, tp: megatron}", layers=2)
    same(GPT, 2, ["h.*"], "auto", mesh="{dp: 2}", strategy="auto", layers=2)
    same(RESNET, 2, ["layer1", "layer3.*"], "local batch norm", mesh="{dp: 2}", strategy="data",
         bn="local")
    same(GPT, 2, ["h.*"], "amp", ["train.amp=bf16"], mesh="{dp: 2}", strategy="data", layers=2)


def test_models():
    """Recurrent nets, inverted residuals, patterns that fit all, sums of gradients over runs, and stages of a pipeline."""
    images, text = "[3, 32, 32]", "[24]"
    stages = ("placements: {a: {ranks: [0]}, b: {ranks: [1]}}\nparameters: [{match: '[2-9].*', placement: b, sbp: B}]\n"
              "tensors: {input: {placement: a}}")
    for name, model, shape, match in (
            ("lstm_lm", "{name: lstm_lm, args: {vocab: 256, width: 16, hidden: 16, layers: 2}}", text, ["*"]),
            ("mobilenet_v2", "{name: mobilenet_v2, args: {width: 0.25}}", images, ["features.*"]),
            ("transformer", "{name: transformer, args: {layers: 2, heads: 2, dropout: 0.1}}", "[1, 8, 32]", ["blocks.0"])):
        same(OTHER, 2, match, name, model=model, shape=shape, layout="mesh: {dp: 2}")
    same(OTHER, 2, ["0", "2"], "stages", model="{name: mlp, args: {inputs: 24, hidden: 48, layers: 3}}", shape=text,
         layout=stages)


def product_flops(plan):
    """By the sizes of what products read and make: a (m,k) and a (k,n) matrix, in any order."""
    total = 0
    for op in plan["ops"]:
        if op["op"] in ("batch_matmul", "linear", "linear_dx", "linear_dw"):
            shapes = [v["shape"] for v in op["in"][:2] + op["out"][:1]]
            batch = math.prod(shapes[0][:2]) if all(len(s) == 4 for s in shapes) else 1
            total += 2 * batch * math.prod(math.prod(s) / batch for s in shapes) ** 0.5
    return total


def test_memory():
    """24 blocks: at most a fifth of the activations, at most 1.35 times the products' work."""
    text = """
tessera: 1
mesh: {mesh}
strategy: {strategy}
model: {{name: gpt, args: {{vocab: 256, width: 384, layers: 24, heads: 6, dropout: 0.1}}}}
data: {{dataset: synthetic, shape: [1024], classes: 256, samples: 64, batch_size: 4}}
optimizer: {{name: adamw}}
"""
    for axis, ranks, strategy in (("dp", 1, "data"), ("dp", 2, "data"), ("dp", 4, "data"), ("tp", 2, "megatron"),
                                  ("tp", 4, "megatron"), ("tp", 2, "sequence")):
        values = {"mesh": f"{{{axis}: {ranks}}}", "strategy": strategy}
        plain = tessera_json("plan", write(text, "plain", **values))
        again = tessera_json("plan", write(text + 'recompute: [{{match: "h.*"}}]\n', "again", **values))
        parts = [p["memory"][0] for p in (plain, again)]
        check(parts[1]["activations"] * 5 <= parts[0]["activations"], f"{strategy} on {ranks} ranks: activations "
              f"{parts[1]['activations']} of {parts[0]['activations']}")
        work = [product_flops(p) for p in (plain, again)]
        check(1.2 < work[1] / work[0] <= 1.35, f"{strategy} on {ranks} ranks: {work[1] / work[0]:.3f} of the work")
        check(any(op.get("again") for op in again["ops"]) and not any(op.get("again") for op in plain["ops"]),
              "the plan says what is computed again")


def test_traffic():
    """Parameters that autocast narrows are not gathered again: that is the choice of reshard_after_forward."""
    text = """
tessera: 1
mesh: {{dp: 4}}
device: cuda
cluster: {{gpu: h100-sxm}}
strategy: {strategy}
model: {{name: gpt, args: {{layers: 3, width: 512, heads: 8, vocab: 256, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, 129], classes: 2, samples: 256, batch_size: 16}}
optimizer: {{name: adamw}}
train: {{amp: bf16}}
"""
    for strategy, most in (("data", 1), ("zero2", 1), ("zero3", 1.2)):
        plain, again = (tessera_json("plan", write(text + more, "traffic", strategy=strategy))["totals"]["bytes"]
                        for more in ("", 'recompute: [{{match: "h.*"}}]\n'))
        check(again <= most * plain, f"{strategy}: {again} bytes sent, {plain} without recomputation")


def test_advice():
    """The first screen tries it, with figures of the plan that the override makes; a refusal names it; MFU counts the
    model's work once."""
    text = """
tessera: 1
mesh: {{dp: {ranks}}}
device: cuda
cluster: {{gpu: h100-sxm}}
model: {{name: gpt, args: {{vocab: 256, width: 512, layers: 6, heads: 8}}}}
data: {{dataset: synthetic, shape: [1024], classes: 256, samples: 64, batch_size: 16}}
optimizer: {{name: adamw}}
"""
    again = 'recompute=[{match: "h.*"}]'
    for ranks in (1, 4):
        path = write(text, "advice", ranks=ranks)
        tried = re.findall(r"^(?:try)? +recompute +.*--set '(.*)'$", tessera("plan", path)[0], re.M)
        equal(tried, [again], f"{ranks} ranks: what is tried")
        plans = [tessera_json("plan", path, *s) for s in ((), ("--set", again))]
        near(*(p["step"]["mfu"] * p["step"]["cost_s"] for p in plans), "work that MFU counts")
        need = [p["memory"][0]["total"] for p in plans]
        _, err = tessera("plan", path, "-m", str((need[0] + 3 * need[1]) // 4), code=1)
        check(f"what fits: --set '{again}'" in err, err)


def test_refused():
    path = write(GPT + 'recompute: [{{match: "k.*"}}]\n', "k", mesh="{dp: 1}", strategy="data", layers=1)
    check("'k.*' fits no module" in tessera("plan", path, code=1)[1], "a pattern that fits nothing")
    path = os.path.join(FOLDER.name, "graph.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write('tessera: 1\nmesh: {a: 1}\ngraph:\n  x: {op: full, shape: [2], value: 1}\nrecompute: [{match: x}]\n')
    check("not beside 'graph'" in tessera("plan", path, code=1)[1], "beside a graph")


test_bits()
test_strategies()
test_models()
test_memory()
test_traffic()
test_advice()
test_refused()
done()
