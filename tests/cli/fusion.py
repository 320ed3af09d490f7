#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fusion: each switch takes what it names out of the plan, and nothing else. usage: fusion.py TESSERA"""
import os
import re
import tempfile

from harness import check, done, equal, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
PATH = os.path.join(FOLDER.name, "e.yaml")
with open(PATH, "w", encoding="utf-8") as f:
    f.write("""
tessera: 1
mesh: {dp: 2}
device: cpu
model: {name: mobilenet_v2}
data: {dataset: cifar10, batch_size: 64}
train: {steps: 1}
""")


def ops(*off):
    """Counts by kind the ops of the plan in which these fusions are off."""
    sets = [x for fusion in off for x in ("--set", f"fusion.{fusion}=false")]
    kinds = [x["op"] for x in tessera_json("plan", PATH, *sets)["ops"]]
    return {kind: kinds.count(kind) for kind in set(kinds)}


fused = ops()
check(fused["bn_act"] > fused["bn_act_bwd_apply"] > 0, "chains compute normalised activations again")
equal(fused["ce"], 1, "cross entropy in one pass")
check("relu6" not in fused and "softmax_max" not in fused, "no ReLU6 and no maximum by itself")

stored = ops("chains")
equal(stored["bn_act"], stored["bn_act_bwd_apply"], "without chains each is computed once")
equal({k: v for k, v in stored.items() if k not in ("bn_act", "bn_apply")},
      {k: v for k, v in fused.items() if k not in ("bn_act", "bn_apply")}, "all else is the same")

apart = ops("activations")
check("bn_act" not in apart and "bn_act_bwd_apply" not in apart, f"activations by themselves: {apart}")
equal(apart["relu6"], stored["bn_act"], "as many as there were with batch norm")

parts = ops("softmax")
check("ce" not in parts and parts["softmax_max"] == 1, f"the parts of cross entropy: {parts}")


def fusions(*sets, path=PATH):
    """The lines of `plan --full` about fusion: how, name, text."""
    args = [x for text in sets for x in ("--set", text)]
    out, _ = tessera("plan", "--full", path, *args, env={"COLUMNS": "400"})
    lines = out.split("\nfusion")[1].split("\nboxing")[0].splitlines()[1:]
    return [tuple(re.split(r"\s{2,}", line.strip(), maxsplit=2)) for line in lines]


said = fusions()
check(any(how == "chain" and text == "bn_act, conv2d, bn_stats" for how, _, text in said), said)
check(any(how == "chain" and text.startswith("bn_act_bwd_apply, conv2d_dx, ") and "bn_act (again), conv2d_dw" in text
          for how, _, text in said), said)
check(("fused", "loss", "softmax_max, ce_terms and ce_finish") in said, said)
check(any(how == "alone" and name.startswith("features.0.0") and "several rows" in text for how, name, text in said), said)
for off, why in (("chains", "chains are switched off"),
                 ("activations", "fusion of activations is switched off"),
                 ("softmax", "fusion of softmax is switched off")):
    said = fusions(f"fusion.{off}=false")
    check(any(how == "alone" and text == why for how, _, text in said), said)
    check(off != "chains" or not any(how == "chain" for how, *_ in said), said)
# Rows that are split: their maxima and sums are reduced between the parts.
with open(PATH + "g", "w", encoding="utf-8") as f:
    f.write("""
tessera: 1
placements: {p: {ranks: [0, 1, 2, 3]}}
graph:
  x: {op: uniform, shape: [4096, 4096], placement: p, sbp: S(1)}
  y: {op: softmax, in: x, axis: 1, sbp: S(1)}
""")
said = fusions(path=PATH + "g")
check(any(how == "alone" and name == "y" and "a conversion stands between" in text for how, name, text in said), said)

# Rows: a loss is one pass; layer norm by itself stores next to nothing, and is done op by op.
with open(PATH + "r", "w", encoding="utf-8") as f:
    f.write("""
tessera: 1
placements: {p: {ranks: [0]}}
graph:
  x: {op: uniform, shape: [512, 512], placement: p}
  u: {op: uniform, shape: [512, 512], placement: p}
  loss: {op: mse_loss, in: [x, u]}
  n: {op: layer_norm, in: [x], axes: 1}
fetch: [loss, n]
""")
said = [text for how, _, text in fusions(path=PATH + "r") if how == "rows"]
check(len(said) == 1 and "sub" in said[0] and "mean" in said[0] and "ln_" not in said[0], said)
out, _ = tessera("plan", "--full", PATH + "r", "--set", "fusion.rows=false")
check("\nfusion" not in out, "without rows there is no fusion at all")

# Group norm's weight and bias are applied in its pass.
with open(PATH + "n", "w", encoding="utf-8") as f:
    f.write("""
tessera: 1
placements: {p: {ranks: [0]}}
graph:
  x: {op: uniform, shape: [3, 8, 5, 7], placement: p}
  c: {op: uniform, shape: [8], placement: p}
  y: {op: group_norm, in: [x, c, c], groups: 2}
fetch: [y]
""")
for off, kinds in ((), {"ln_stats", "ln_apply"}), (("fusion.activations=false",), {"ln_stats", "ln_apply", "mul", "add"}):
    sets = [x for text in off for x in ("--set", text)]
    plan = tessera_json("plan", PATH + "n", *sets)["ops"]
    equal({x["op"] for x in plan} & {"ln_stats", "ln_apply", "mul", "add"}, kinds, f"group norm with {off}")

alone = ops("activations", "softmax", "chains")
equal((alone["relu6"], alone["softmax_max"]), (apart["relu6"], 1), "all off")
done()
