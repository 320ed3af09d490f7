#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""schedule.microbatches: losses and weights are those of the whole batch on 1 and 2 ranks and in each
strategy; bytes and calls are what is planned; what a plan says of its parts; runs that go on with another
number of parts; what is refused. usage: microbatches.py TESSERA"""
import json
import os
import re
import tempfile

from harness import check, done, equal, near, tessera, tessera_json, weights

FOLDER = tempfile.TemporaryDirectory()
END = """
train: {{steps: {steps}, metrics: {out}.json, checkpoint: {{dir: {out}}}}}
schedule: {{microbatches: {parts}}}
"""
MLP = """
tessera: 1
mesh: {mesh}
dtype: f64
strategy: {strategy}
model: {{name: mlp, args: {{hidden: 24, layers: 3}}}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, test_samples: 20, batch_size: 16}}
optimizer: {{name: adam, lr: 0.01, clip_norm: 0.5}}
""" + END
GPT = """
tessera: 1
mesh: {mesh}
dtype: f64
strategy: {strategy}
model: {{name: gpt, args: {{vocab: 256, width: 16, layers: 2, heads: 4, dropout: 0.1}}}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: adamw, lr: 0.01}}
""" + END
CONVNET = """
tessera: 1
mesh: {mesh}
dtype: f64
strategy: {strategy}
model: {{name: convnet, args: {{bn: local, bn_parts: 8}}}}
data: {{dataset: synthetic, shape: [1, 8, 8], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
""" + END
LAYERS = """
tessera: 1
mesh: {mesh}
dtype: f64
strategy: {strategy}
model: {{layers: [{{layer: linear, in: 12, out: 10}}, {{layer: batch_norm, channels: 10, stats: local, parts: 8}},
  {{layer: relu}}, {{layer: linear, in: 10, out: 6}}]}}
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9, accumulate: 2}}
""" + END
GRAPH = """
tessera: 1
mesh: {mesh}
dtype: f64
strategy: {strategy}
graph:
  x: {{op: input, field: x}}
  y: {{op: input, field: y}}
  w: {{op: parameter, shape: [12, 6], dtype: f64, normal: [0, 0.3]}}
  r: {{op: flatten, in: x, from_axis: 1}}
  z: {{op: matmul, in: [r, w]}}
  d: {{op: dropout, in: z, p: 0.2}}
  l: {{op: cross_entropy, in: [d, y]}}
loss: l
fetch: l
data: {{dataset: synthetic, shape: [12], classes: 6, samples: 64, batch_size: 16}}
optimizer: {{name: adam, lr: 0.05}}
""" + END
counter = iter(range(1000))


def write(text, name=None, parts=1, steps=4, **values):
    name = name or f"run{next(counter)}"
    path = os.path.join(FOLDER.name, name + ".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.format(out=os.path.join(FOLDER.name, name), parts=parts, steps=steps, **values))
    return path


def numbers(path):
    return weights(path[:-len(".yaml")])


def metrics(path, event):
    with open(path[:-len(".yaml")] + ".json", encoding="utf-8") as f:
        return [row for row in map(json.loads, f) if row["event"] == event]


def losses(path):
    """Nine digits of each step's."""
    return [row["loss"] for row in metrics(path, "step")]


def run(path, ranks, *sets):
    """Losses by step and weights; what is sent is what is planned."""
    result = tessera_json("run", "-n", ranks, path, *(x for s in sets for x in ("--set", s)))
    for c in result.get("collectives", []):
        equal((c["bytes"], c["calls"]), (c["planned_bytes"], c["planned_calls"]), f"{path}: {c['kind']}")
    return losses(path), numbers(path), result


def all_near(found, expected, what, rel):
    equal(len(found), len(expected), f"{what}: their number")
    most = max(abs(v) for v in expected)
    for a, b in zip(found, expected):
        check(abs(a - b) <= rel * most, f"{what}: found {a!r}, expected {b!r}")


def same(text, what, ranks=(1, 2), parts=(2, 4), strategy="data", mesh="{{dp: {}}}"):
    for n in ranks:
        values = {"mesh": mesh.format(n), "strategy": strategy}
        whole = run(write(text, **values), n)
        check(len(whole[0]) >= 4, f"{what}: {len(whole[0])} losses")
        for k in parts:
            cut = run(write(text, parts=k, **values), n)
            all_near(cut[0], whole[0], f"{what} on {n} in {k} parts: losses", 3e-9)
            all_near(cut[1], whole[1], f"{what} on {n} in {k} parts: weights", 1e-10)


def test_values():
    same(MLP, "mlp")
    same(GPT, "gpt")
    same(CONVNET, "convnet with local batch norm")
    same(LAYERS, "layers, updates of two runs")
    same(GRAPH, "graph")
    for strategy in ("zero1", "zero2", "zero3"):
        same(MLP, strategy, (2,), strategy=strategy)
        same(GPT, strategy, (2,), strategy=strategy)
    same(GPT, "tensor parallel", (2,), strategy="megatron", mesh="{{tp: {}}}")
    same(MLP, "auto", (2,), strategy="auto")


def test_evaluation():
    """Batches of evaluation are not cut: the last one of 20 rows has 4."""
    found = []
    for k in (1, 8):
        path = write(MLP.replace("train: {{", "train: {{eval: {{}}, "), parts=k, mesh="{dp: 1}", strategy="data")
        tessera("run", path)
        found.append([(row["rows"], row["accuracy"], round(row["loss"], 6)) for row in metrics(path, "eval")])
    equal(found[0][-1][0], 20, "rows of an evaluation")
    equal(found[1], found[0], "evaluations")


def test_plan():
    """Figures are of the whole step; rows say how often they run."""
    plans = {}
    for k in (1, 4):
        path = write(GPT, parts=k, mesh="{tp: 2}", strategy="megatron")
        p = plans[k] = tessera_json("plan", path)
        equal(p["microbatches"], k, "microbatches")
        rows = p["ops"] + p["boxing"]
        equal({r.get("turn") for r in rows if r["phase"] != "source"} - {None},
              {"before", "parts", "after"} if k > 1 else set(), "turns")
        for r in rows:
            equal(r.get("times", 1), k if r.get("turn") == "parts" else 1, f"times of {r['name']}")
        sent = [b for b in p["boxing"] if b["communicates"]]
        equal(sum(t["calls"] for t in p["totals"]["collectives"]), sum(b.get("times", 1) for b in sent), "calls")
        equal(p["totals"]["bytes"], sum(b["bytes"] for b in sent), "bytes")
        near(p["step"]["cost_s"], sum(r["cost_s"] for r in rows), "the step's time", 1e-6)
        screen = tessera("plan", path)[0]
        equal(re.findall(r"\d+ micro-batches", screen), ["4 micro-batches"] if k > 1 else [], screen)
        equal("4 times" in tessera("plan", path, "--full")[0], k > 1, "conversions that are made again")
    check(plans[4]["memory"][0]["activations"] * 2 < plans[1]["memory"][0]["activations"], "activations of parts")
    sent = [b for b in plans[4]["boxing"] if b["communicates"]]
    equal({b["turn"] for b in sent if b["purpose"] in ("forward", "backward")}, {"parts"}, "conversions of activations")
    whole, cut = (tessera_json("plan", write(GPT, parts=k, mesh="{dp: 2}", strategy="data"))["totals"] for k in (1, 4))
    equal([(t["collective"], t["calls"], t["bytes"]) for t in cut["collectives"]],
          [(t["collective"], t["calls"], t["bytes"]) for t in whole["collectives"]], "gradients are reduced once")
    table = tessera("plan", write(MLP, mesh="{dp: 2}", strategy="data"), "--sweep", "schedule.microbatches=1,2,4")[0]
    equal(len(re.findall(r"^ +[124] ", table, re.M)), 3, table)
    table = tessera("plan", write(MLP, parts=4, mesh="{dp: 2}", strategy="data"), "--sweep", "data.batch_size=16,32,64")[0]
    equal(len(re.findall(r"^ +(?:16|32|64) ", table, re.M)), 3, table)
    both = [write(MLP, parts=k, mesh="{dp: 2}", strategy="data") for k in (1, 4)]
    tessera("plan", *both)


def test_limits():
    """A weight that is gathered before the parts stays for all of them, so a limit asks for split products."""
    text = """
tessera: 1
mesh: {{dp: 2, tp: 4}}
device: cuda
cluster: {{gpu: h100-sxm}}
model: {{name: gpt, args: {{layers: 2, width: 4096, heads: 32, vocab: 32000, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, 4097], classes: 2, samples: 256, batch_size: 64}}
schedule: {{microbatches: {parts}}}
strategy: {{dp: zero1, tp: megatron}}
optimizer: {{name: adamw}}
train: {{amp: bf16}}
"""
    path = write(text, parts=32)
    free, within = (tessera_json("plan", path, *limit) for limit in ((), ("-m", "2.8GB")))
    need = free["memory"][0]["total"]
    check(need > 3.1e9 and within["memory"][0]["total"] <= 2.8e9, f"{need}, {within['memory'][0]['total']} bytes")
    check(within["step"]["cost_s"] < 1.1 * free["step"]["cost_s"], f"{within['step']['cost_s']} s, {free['step']['cost_s']} s")


def test_halves():
    """The total of a parameter's gradient is f32, without a cast in each part. There is one, also where the loss scaler checks it in
    the half's dtype, and ranks reduce it after the parts."""
    text = """
tessera: 1
mesh: {{dp: 4}}
device: cuda
cluster: {{gpu: h100-sxm}}
strategy: {strategy}
model: {{name: gpt, args: {{layers: 2, width: 256, heads: 8, vocab: 256, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, 65], classes: 2, samples: 256, batch_size: 64}}
schedule: {{microbatches: {parts}}}
optimizer: {{name: adamw{clip}}}
train: {{amp: {amp}}}
"""
    for amp in ("bf16", "f16"):
        for strategy in ("data", "zero2", "zero3"):
            for clip in ("", ", clip_norm: 1"):
                what = f"{amp}, {strategy}{clip}"
                plan = tessera_json("plan", write(text, parts=8, amp=amp, strategy=strategy, clip=clip))
                ops = [o for o in plan["ops"] if o.get("turn") == "parts"]
                equal([o["name"] for o in ops if o["op"] == "cast" and o["name"] == "optimizer"], [], f"{what}: casts")
                totals = [o for o in ops if o["op"] == "total"]
                updated = {o["name"] for o in plan["ops"] if o["op"] == "adam"}
                equal(len(totals), len(updated) + 1, f"{what}: totals of parameters and of the loss")
                equal({o["out"][0]["dtype"] for o in totals} - {"f32"}, set(), f"{what}: their dtypes")
                reduced = [b for b in plan["boxing"] if b["collective"] in ("all_reduce", "reduce_scatter")]
                equal({b["turn"] for b in reduced}, {"after"}, f"{what}: reductions over ranks")


def test_work():
    """Work and rows a second are of all parts."""
    figures = []
    for k in (1, 4):
        path = write(GPT.replace("dtype: f64", "device: cuda\ncluster: {{gpu: h100-sxm}}"), parts=k, mesh="{dp: 2}",
                     strategy="data")
        step = tessera_json("plan", path)["step"]
        figures.append([step[x] * step["cost_s"] for x in ("mfu", "samples_per_s", "tokens_per_s")])
    for a, b in zip(*figures):
        near(b, a, "work of a step in parts")


def test_resume():
    """A run that goes on in other parts ends where one in one part does."""
    for ranks in (1, 2):
        values = {"mesh": f"{{dp: {ranks}}}", "strategy": "data"}
        whole = run(write(GPT, steps=6, **values), ranks)
        for first, then in ((1, 4), (4, 2), (2, 1)):
            path = write(GPT, parts=first, steps=3, **values)
            run(path, ranks)
            tessera("run", "-n", ranks, path, "--set", f"schedule.microbatches={then}",
                             "--set", "train.steps=6")
            all_near(losses(path)[-3:], whole[0][-3:], f"{first} then {then} parts on {ranks}: losses", 3e-9)
            all_near(numbers(path), whole[1], f"{first} then {then} parts on {ranks}: weights", 1e-10)


def test_refused():
    def refused(text, words, sets=(), mesh="{dp: 2}", **values):
        path = write(text, mesh=mesh, strategy="data", **values)
        for command in ("plan", "run"):
            err = tessera(command, path, *(x for s in sets for x in ("--set", s)), code=1)[1]
            check(words in err and "schedule.microbatches" in err, f"{command}: {err}")

    refused(MLP, "found 3, but a batch of 16 rows, which 2 ranks share, does not divide into as many equal parts; "
            "legal are the divisors of 8; data.batch_size could be a multiple of 6", parts=3)
    refused(MLP, "found '0'; legal is a whole number from 1", parts=0)
    refused(MLP, "found 'two'; legal is a whole number", parts="two")
    refused(CONVNET, "but model.args.bn is global", ["model.args={bn: global}"], parts=2)
    refused(CONVNET, "legal are multiples of 16 for bn_parts", parts=8)
    refused(GRAPH, "does not divide", parts=16)


test_values()
test_evaluation()
test_plan()
test_limits()
test_halves()
test_work()
test_resume()
test_refused()
done()
