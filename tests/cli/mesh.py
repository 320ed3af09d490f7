#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Meshes with names, from the command: scaled by -n and by a launcher, the same losses by name and by number.
usage: mesh.py TESSERA"""
import os
import tempfile

from harness import SLOWER, check, children_s, done, equal, tessera, tessera_json

MESH = """\
tessera: 1
mesh: {dp: DP, tp: TP}
model: {name: mlp, args: {hidden: 32, layers: 3}}
data: {dataset: synthetic, shape: [1, 4, 4], classes: 4, samples: 1024, batch_size: 32}
tensors: {input: {sbp: {dp: S(0)}}}
parameters: [{match: "0.*", sbp: {tp: S(0)}}, {match: "2.weight", sbp: {tp: S(1)}}]
train: {steps: 4}
"""
FOLDER = tempfile.TemporaryDirectory()


def write(text, **words):
    for key, value in words.items():
        text = text.replace(key, str(value))
    path = os.path.join(FOLDER.name, "m.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def signatures(p):
    return {x["name"]: x["out"][0]["sbp"] for x in p["ops"] if x["op"] in ("input", "variable")}


# 4,096 ranks in a line.
path = write(MESH, DP=512, TP=8)
check(os.path.getsize(path) < 500, "a short file")
used_s = children_s()
p = tessera_json("plan", path)
check(children_s() - used_s < 20 * SLOWER, "4096 ranks are quick")
equal(p["ranks"], 4096, "ranks")
s = signatures(p)
equal((s["x"], s["0.weight"], s["2.weight"]), ("(S(0),B)", "(B,S(0))", "(B,S(1))"), "signatures")

# 64 GPUs cost as much as in a line, or less, however the mesh divides them; and no bound is above what that costs.
AXES = """\
tessera: 1
mesh: {MESH}
cluster: {gpu: h100-sxm, nodes: 8, gpus_per_node: 8}
model: {name: NAME, args: {ARGS}}
data: {dataset: synthetic, shape: [1, 32, 32], classes: 16, samples: 8192, batch_size: BATCH}
strategy: auto
"""
for words in ({"NAME": "mlp", "ARGS": "hidden: 2048, layers: 3", "BATCH": 4096},
              {"NAME": "gpt", "ARGS": "width: 256, layers: 1, heads: 4", "BATCH": 16}):
    steps = [tessera_json("plan", write(AXES, MESH=mesh, **words), timeout=400)["step"]
             for mesh in ("a: 64", "a: 8, b: 8", "a: 8, b: 4, c: 2", "a: 4, b: 4, c: 2, d: 2")]
    costs = [s["signatures_cost_s"] for s in steps]
    for s in steps[1:]:
        check(s["signatures_cost_s"] <= 1.02 * costs[0], f"{words}: {costs} on more and more axes")
        check(s["lower_bound_s"] <= costs[0] * (1 + 1e-6), f"{words}: the bound {s['lower_bound_s']} is above {costs[0]}")

# -n scales: the first axis, or the one that has no size.
for dp, tp, n, ranks in ((4, 2, (), 8), (4, 2, ("-n", 2), 2), (4, 2, ("-n", 12), 12), ("~", 4, ("-n", 8), 8),
                         (2, "~", ("-n", 16), 16)):
    equal(tessera_json("plan", write(MESH, DP=dp, TP=tp), *n)["ranks"], ranks, f"{dp} x {tp} for {n}")
_, err = tessera("plan", write(MESH, DP=4, TP=8), "-n", 12, code=1)
equal(err, f"tessera plan: {path}:2:7: mesh: 12 ranks, the number asked for, are no multiple of 8, the size of the axes "
      "beside 'dp', which takes the rest; the nearest legal is 8 or 16\n", "no multiple")
_, err = tessera("run", write(MESH, DP="~", TP=8), code=1)
equal(err, f"tessera run: {path}:2:8: mesh.dp: axis 'dp' has no size, and no number of ranks (-n N) is given that would "
      "decide it\n", "no number of ranks")

# The same losses on one rank, by names on any mesh, by a launcher, and by numbers.
path = write(MESH, DP="~", TP=2)
losses = tessera_json("run", path, "-n", 4)["losses"]
for what, found in (
        ("2 ranks", tessera_json("run", path, "-n", 2)),
        ("1 x 4", tessera_json("run", path, "-n", 4, "--set", "mesh.tp=4")),
        ("a launcher", tessera_json("run", path, launch=4)),
        ("by number", tessera_json("run", path, "-n", 4, "--set", "tensors.input.sbp=(S(0),B)")),
        ("a text", tessera_json("run", path, "-n", 4, "--set", "tensors.input.sbp=dp:S(0),tp:B")),
        ("ranks 1..4", tessera_json("run", write(MESH.replace("mesh: {dp: DP, tp: TP}", "placements: {p: {mesh: "
                                                              "{dp: 2, tp: 2}, ranks: 1..4}}"))))):
    check(len(found["losses"]) == 4 and all(abs(a - b) < 1e-5 for a, b in zip(found["losses"], losses)),
          f"{what}: {found['losses']}, not {losses}")

# ZeRO over dp: an axis that the states' signature does not name is the parameter's, and losses are the same.
path = write(MESH, DP="~", TP=2)
adam = ("--set", "optimizer={name: adamw, lr: 0.01}")
zero = ("--set", "optimizer={name: adamw, lr: 0.01, state: {sbp: {dp: S(0)}}}")
plans = [tessera_json("plan", path, "-n", 8, "--set", "mesh.tp=2", *o) for o in (adam, zero)]
s = signatures(plans[1])
equal([s[k + ".exp_avg"] for k in ("0.weight", "0.bias", "2.weight", "2.bias", "4.weight")],
      ["(S(0),S(0))", "(S(0),S(0))", "(S(0),S(1))", "(S(0),B)", "(S(0),B)"], "states")
equal([s[k] for k in ("0.weight", "2.weight", "4.weight")], ["(B,S(0))", "(B,S(1))", "(B,B)"], "parameters stay")
whole, split = (p["memory"][0]["optimizer"] for p in plans)
check(whole / 4 <= split < whole / 4 + 400, f"a quarter of the states: {whole}, {split}")
a, b = (tessera_json("run", path, "-n", 4, *o)["losses"] for o in (adam, zero))
check(len(a) == 4 and all(abs(x - y) < 1e-5 for x, y in zip(a, b)), f"ZeRO: {a}, {b}")

# What loaders do not give can be planned, and is refused by name where it would run.
equal(tessera_json("plan", path, "-n", 4, "--set", "dtype=bf16")["ranks"], 4, "bf16")
_, err = tessera("run", path, "-n", 4, "--set", "dtype=bf16", code=1)
check("dtype bf16; legal are f32 and f64" in err, err)

# A refused limit is answered by trying smaller batches on the same, scaled mesh.
_, err = tessera("plan", write(MESH, DP="~", TP=2), "-n", 8, "-m", "60K", "--set", "data.batch_size=1024", code=1)
check("what fits: --set data.batch_size=" in err, err)
done()
