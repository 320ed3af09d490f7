#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.amp: what a step sends halves where its meaning stays, one bucket still reduces many
gradients, and what can't be is refused. usage: amp.py TESSERA"""
import json
import os
import tempfile

from harness import check, done, equal, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
BASE = """
tessera: 1
mesh: {{{mesh}}}
device: cuda
cluster: {{gpu: h100-sxm, nodes: 1, gpus_per_node: 8}}
model: {{name: mlp, args: {{hidden: 512, layers: 3}}}}
data: {{dataset: synthetic, batch_size: 1024, shape: [512], classes: 16}}
optimizer: {{name: adam{optimizer}}}
{more}
train: {{steps: 1{train}}}
"""


def plan(mesh="dp: 8", optimizer="", more="", train=""):
    path = os.path.join(FOLDER.name, "e.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(BASE.format(mesh=mesh, optimizer=optimizer, more=more, train=train))
    return tessera_json("plan", path)


def bytes_of(p, purpose):
    return sum(x["bytes"] for x in p["boxing"] if x["purpose"] == purpose)


def calls_of(p, purpose):
    return sum(1 for x in p["boxing"] if x["purpose"] == purpose)


def dtypes(p, purpose):
    return {v["dtype"] for x in p["boxing"] if x["purpose"] == purpose for v in x["in"]}


def test_data_parallel():
    full, half, scaled = plan(), plan(train=", amp: bf16"), plan(train=", amp: f16")
    check(bytes_of(full, "gradients") > 3e6, "gradients are sent")
    for p, low in ((half, "bf16"), (scaled, "f16")):
        equal(dtypes(p, "gradients"), {low}, "what is reduced")
        equal(2 * bytes_of(p, "gradients"), bytes_of(full, "gradients"), f"bytes in {low}")
        check(calls_of(p, "gradients") <= 2 * calls_of(full, "gradients"), f"buckets in {low}")


def test_clipped():
    """Clipping reads gradients before the update does: they are reduced in buckets all the same."""
    full, clipped = plan(), plan(optimizer=", clip_norm: 1")
    both = plan(optimizer=", clip_norm: 1", train=", amp: f16")
    equal(bytes_of(clipped, "gradients"), bytes_of(full, "gradients"), "bytes of clipped gradients")
    # An all-reduce may be a reduce-scatter and an all-gather.
    check(calls_of(clipped, "gradients") <= 2 * calls_of(full, "gradients"), "calls when clipped")
    equal(2 * bytes_of(both, "gradients"), bytes_of(full, "gradients"), "scaled and clipped")


def test_gathered_weights():
    """What is gathered is narrow, in forward and, where weights are given back, again for backward."""
    sent = []
    for more in ("reshard_after_forward: false", "reshard_after_forward: true"):
        full, half = (plan(more=f"strategy: zero3\n{more}", train=amp) for amp in ("", ", amp: bf16"))
        check(bytes_of(full, "weights") > 1e6, "weights are gathered")
        equal(dtypes(half, "weights"), {"bf16"}, f"what is gathered, {more}")
        equal(2 * bytes_of(half, "weights"), bytes_of(full, "weights"), f"bytes of gathered weights, {more}")
        sent.append(bytes_of(half, "weights"))
    check(1.4 * sent[0] < sent[1] < 2 * sent[0], f"weights are gathered again: {sent}")


def test_tensor_parallel():
    full = plan(mesh="tp: 8", more="strategy: megatron")
    half = plan(mesh="tp: 8", more="strategy: megatron", train=", amp: bf16")
    sent = {p: sum(bytes_of(x, p) for x in (half,)) for p in ("forward", "backward")}
    for purpose, got in sent.items():
        check(got <= bytes_of(full, purpose), f"{purpose} values: {got} bytes")
    check(2 * sum(sent.values()) <= 1.01 * (bytes_of(full, "forward") + bytes_of(full, "backward")),
          f"activations: {sent}")


def test_batch_norm():
    """Batch norm takes 16-bit data as it is: of activations the images alone are cast."""
    path = os.path.join(FOLDER.name, "n.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("tessera: 1\nmesh: {dp: 1}\ndevice: cpu\nmodel: {name: mobilenet_v2}\n"
                "data: {dataset: synthetic, batch_size: 56, shape: [3, 32, 32], classes: 10}\n"
                "train: {steps: 1, amp: bf16}")
    p = tessera_json("plan", path)
    cast = [o["in"][0]["shape"] for o in p["ops"] if o["op"] == "cast" and o["in"][0]["shape"][0] == 56]
    equal([s for s in cast if len(s) == 4], [[56, 3, 32, 32]], "what is cast of images")
    norms = {(o["in"][0]["dtype"], o["in"][2]["dtype"]) for o in p["ops"] if o["op"] == "bn_apply"}
    equal(norms, {("bf16", "f32")}, "data and weights of batch norm")


def test_refused():
    path = os.path.join(FOLDER.name, "r.yaml")
    cases = [("train: {amp: fp16}", "train.amp", "bf16"),
             ("train: {amp: {dtype: bf16, init_scale: 2}}", "train.amp.init_scale", "unknown key"),
             ("train: {amp: {dtype: f16, growth_factor: 1}}", "train.amp.growth_factor", "1.0000"),
             ("dtype: f64\ntrain: {amp: bf16}", "train.amp", "beside a dtype of f64")]
    for text, key, says in cases:
        with open(path, "w", encoding="utf-8") as f:
            f.write("tessera: 1\nmesh: {dp: 2}\ndevice: cpu\nmodel: {name: mobilenet_v2}\n"
                    "data: {dataset: cifar10, batch_size: 8}\n" + text)
        _, error = tessera("plan", path, code=1)
        check(key in error and says in error, f"{text}: {error}")


def test_scale_of_0():
    """Gradients that are NaN at any scale, of a loss that is finite: the scale halves to 0, and is told."""
    path = os.path.join(FOLDER.name, "s.yaml")
    for on_nan, backoff in (("stop", 0.5), ("warn", 1e-30)):
        with open(path, "w", encoding="utf-8") as f:
            f.write("tessera: 1\nplacements: {d: {ranks: [0, 1]}}\ngraph:\n"
                    "  w: {op: parameter, fill: 0, shape: [4]}\n  s: {op: square, in: w}\n"
                    "  r: {op: sqrt, in: s}\n  l: {op: mean, in: r}\nloss: l\nfetch: l\noptimizer: {name: sgd}\n"
                    f"train: {{steps: 400, on_nan: {on_nan}, amp: {{dtype: f16, backoff_factor: {backoff}}}}}\n")
        _, err = tessera("run", path, "--out", FOLDER.name + "/zero", code=1 if on_nan == "stop" else 0)
        check("scale has fallen to 0" in err and "every update from now on is left out" in err, err)
        with open(FOLDER.name + "/zero/result.json", encoding="utf-8") as f:
            steps = json.load(f)["steps"]
        # 65536 is 2^16, and the least f32 2^-149: half of that is 0.
        equal(steps, 166 if on_nan == "stop" else 400, "steps")
        check(err.count("scale has fallen to 0") <= 3, err)


test_data_parallel()
test_clipped()
test_scale_of_0()
test_gathered_weights()
test_tensor_parallel()
test_batch_norm()
test_refused()
done()
