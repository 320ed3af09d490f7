#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graphs that train: against NumPy on numbers of the file; against the same network as a model on drawn
data, on several ranks; with an op of a plug-in; and what wrong files are told.
usage: graphs.py TESSERA MAN OP_PLUGIN"""
import json
import os
import struct
import sys
import tempfile

import numpy as np

from harness import check, done, equal, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
PLUGIN = os.path.abspath(sys.argv[3])
RNG = np.random.default_rng(3)


def write(text, name="graph.yaml"):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def losses(text, *more, **how):
    return tessera_json("run", write(text), *more, **how)["losses"]


def same(got, want, what):
    check(len(got) == len(want) and np.allclose(got, want, rtol=1e-12, atol=0), f"{what}: {got}; {want}")


# Least squares by momentum, of numbers of the file.
X, Y, W = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 3)), RNG.standard_normal((3, 4))
LEAST = f"""\
tessera: 1
dtype: f64
placements: {{a: {{ranks: [0, 1]}}}}
graph:
  x: {{op: constant, value: {X.tolist()}, sbp: X_SBP}}
  y: {{op: constant, value: {Y.tolist()}}}
  w: {{op: parameter, value: {W.tolist()}, sbp: W_SBP}}
  z: {{op: linear, in: [x, w]}}
  l: {{op: mse_loss, in: [z, y]}}
loss: l
optimizer: {{name: sgd, lr: 0.1, momentum: 0.9, weight_decay: 0.01}}
train: {{steps: 6}}
"""
w, v, want = W.copy(), np.zeros_like(W), []
for _ in range(6):
    e = X @ w.T - Y
    want.append((e * e).mean())
    v = 0.9 * v + 2 * e.T @ X / e.size + 0.01 * w
    w -= 0.1 * v
for x_sbp in ["B", "S(0)", "S(1)"]:
    for w_sbp in ["B", "S(0)", "S(1)", "auto"]:
        same(losses(LEAST.replace("X_SBP", x_sbp).replace("W_SBP", w_sbp)), want, f"{x_sbp}, {w_sbp}")
# A gradient is brought into the signature that is said, and is the same.
BROUGHT = LEAST.replace("X_SBP", "S(0)").replace("W_SBP", "B").replace(
    "  l: {op: mse_loss, in: [z", "  t: {op: to_global, in: z, gradient: BACK}\n  l: {op: mse_loss, in: [t")
for back in ("B", "S(0)", "S(1)", "P"):
    same(losses(BROUGHT.replace("BACK", back)), want, f"gradient {back}")
    plan = tessera_json("plan", write(BROUGHT.replace("BACK", back)))
    equal([o["out"][0]["sbp"] for o in plan["ops"] if o["op"] == "to_global" and o["phase"] == "backward"], [back], "the gradient's")
_, err = tessera("plan", write(BROUGHT.replace("BACK", "S(2)")), code=1)
check("graph.t.gradient: signature S(2) for shape (6,3); legal are B, P and S(i)" in err, err)
plain = LEAST.replace("X_SBP", "B").replace("W_SBP", "B")
same(losses(plain, launch=2), want, "processes")
same(losses(plain.replace("\ntrain", "\nfetch: [grad(w), w]\ntrain"), "--out", FOLDER.name), want, "fetches")
check(np.allclose(np.load(os.path.join(FOLDER.name, "w.npy")), w + 0.1 * v, rtol=1e-12), "w of the last step")
check(want[-1] < want[0], "it learns")
text, _ = tessera("run", write(plain))
check(text.count("loss ") == 6 and "6 steps" in text, text)
frozen = plain.replace(f"value: {W.tolist()}, sbp: B", f"value: {W.tolist()}, trained: false").replace(
    "z:", "v: {op: parameter, fill: 1, shape: [1]}\n  u: {op: linear, in: [x, w]}\n  z:").replace(
    "{op: linear, in: [x, w]}\n  l", "{op: mul, in: [u, v]}\n  l")
first = losses(frozen)
same(first[:1], want[:1], "a parameter that is not trained")
check(first[1] != want[1] and first[-1] < first[0], f"another one is: {first}")

# The same network as a model, from the same weights, on drawn data.
MODEL = """\
tessera: 1
dtype: f64
placements: {all: {ranks: RANKS}}
data: {dataset: synthetic, shape: [1, 6, 6], classes: 5, samples: 96, batch_size: 24, seed: 2}
optimizer: {name: adam, lr: 0.01, clip_norm: 0.5}
train: {epochs: 2, seed: 3, init: INIT}
"""
NET = "model: {layers: [flatten, {layer: linear, name: a, in: 36, out: 8}, tanh, {layer: linear, name: b, in: 8, out: 5}]}\n"
GRAPH = """\
graph:
  x: {op: input, field: x}
  y: {op: input, field: y}
  f: {op: flatten, in: x, from_axis: 1}
  aw: {op: parameter, fill: 0, shape: [8, 36], sbp: B}
  ab: {op: parameter, fill: 0, shape: [8], sbp: B}
  bw: {op: parameter, fill: 0, shape: [5, 8], sbp: B}
  bb: {op: parameter, fill: 0, shape: [5], sbp: B}
  h: {op: linear, in: [f, aw, ab]}
  t: {op: tanh, in: h}
  z: {op: linear, in: [t, bw, bb]}
  l: {op: cross_entropy, in: [z, y]}
loss: l
"""


def write_weights(name, arrays):
    head, at = {}, 0
    for key, a in arrays.items():
        head[key] = {"dtype": "F64", "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(head).encode()
    path = os.path.join(FOLDER.name, name)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in arrays.values()))
    return path


weights = {"a.weight": RNG.standard_normal((8, 36)), "a.bias": RNG.standard_normal(8),
           "b.weight": RNG.standard_normal((5, 8)), "b.bias": RNG.standard_normal(5)}
model = write_weights("model.safetensors", weights)
graph = write_weights("graph.safetensors", dict(zip(["aw", "ab", "bw", "bb"], weights.values())))
want = losses(MODEL.replace("RANKS", "[0]").replace("INIT", model) + NET)
check(len(want) == 8 and want[-1] < want[0], str(want))
for ranks in ["[0]", "[0, 1]", "[2, 0, 1]", "[[0, 1], [2, 3]]"]:
    same(losses(MODEL.replace("RANKS", ranks).replace("INIT", graph) + GRAPH), want, ranks)
state = MODEL.replace("clip_norm: 0.5", "clip_norm: 0.5, state: {sbp: S(0)}").replace("RANKS", "[0, 1, 2]").replace("INIT", graph)
same(losses(state + GRAPH), want, "states in S(0)")
steps = tessera_json("run", write(MODEL.replace("RANKS", "[0]").replace("INIT", graph) + GRAPH), "--steps", "3")
check(steps["steps"] == 3 and steps["rows"] == 24, "steps")

# Samples alone, without labels; and an op of a plug-in in between.
AUTO = """\
tessera: 1
dtype: f64
placements: {all: {ranks: RANKS}}
data: {dataset: synthetic, shape: [1, 4, 4], classes: 2, samples: 32, batch_size: 8}
graph:
  x: {op: input, field: x}
  f: {op: flatten, in: x, from_axis: 1}
  w: {op: parameter, normal: [0, 0.5], shape: [16, 16], sbp: B}
  g: {op: parameter, normal: [0, 0.5], shape: [8, 16], sbp: B}
  h: {op: linear, in: [f, w]}
  s: {op: own, plugin: PLUGIN, function: swish_gate, in: [h, g], options: {beta: 1.5}}
  l: {op: mse_loss, in: [s, f]}
loss: l
optimizer: {name: adam, lr: 0.05}
train: {epochs: 3}
""".replace("PLUGIN", PLUGIN)
want = losses(AUTO.replace("RANKS", "[0]"))
check(len(want) == 12 and want[-1] < want[0], str(want))
same(losses(AUTO.replace("RANKS", "[0, 1]")), want, "own op on two ranks")

# A text: each byte is a label of those before it. Without `train` it is one epoch.
path = write("of what is said here, each byte follows the one before it. " * 4, "text.txt")
TEXT = f"""\
tessera: 1
dtype: f64
mesh: {{dp: RANKS}}
data: {{dataset: text, file: {path}, context: 8, batch_size: 4}}
graph:
  x: {{op: input, field: x}}
  y: {{op: input, field: y}}
  t: {{op: parameter, fill: 0, shape: [256, 256], sbp: B}}
  e: {{op: embedding, in: [t, x]}}
  f: {{op: reshape, in: e, shape: [-1, 256]}}
  l: {{op: flatten, in: y}}
  c: {{op: cross_entropy, in: [f, l]}}
loss: c
optimizer: {{name: sgd, lr: 20}}
"""
want = losses(TEXT.replace("RANKS", "1"))
check(len(want) == 7 and abs(want[0] - np.log(256)) < 1e-12 and want[-1] < 4, str(want))
same(losses(TEXT.replace("RANKS", "2")), want, "a text on two ranks")

good = MODEL.replace("RANKS", "[0]").replace(", init: INIT", "") + GRAPH
for old, new, text in [
        ("loss: l\n", "", "5:1: optimizer: 'loss' is missing: the entry that it makes small"),
        ("data: {dataset", "dtaa: {dataset", "4:1: dtaa: unknown key; legal are "),
        ("field: x", "field: z", "8:25: graph.x.field: found 'z'; legal is x or y"),
        ("field: y", "field: x", "9:25: graph.y.field: 'x' reads it already; other entries can use that"),
        ("{op: input, field: x}", "{op: input}", "8:3: graph.x: 'field' is missing; legal is x or y"),
        (GRAPH, "graph: {x: {op: constant, fill: 1, shape: [2]}}\nloss: x\n",
         "4:1: data: nothing reads it: graph has no entry {op: input, field: x}"),
        (GRAPH, "graph: {x: {op: input, field: x}, l: {op: mean, in: x}}\nloss: l\n",
         "5:1: optimizer: graph has no entry {op: parameter} that it could train"),
        ("batch_size: 24", "batch_size: 0", "data.batch_size: found '0'; legal is a whole number from 1 to "),
        ("loss: l\n", "loss: l\nstrategy: data\n", "20:1: strategy: not beside 'graph': it is a key of experiments that train a model"),
        ("op: tanh", "op: tahn", "16:11: graph.t.op: found 'tahn'; legal are the")]:
    check(old in good, old)
    _, err = tessera("plan", write(good.replace(old, new, 1)), code=1)
    check("graph.yaml:" in err and text in err, f"{new}: {err}")
_, err = tessera("plan", write("tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph: {x: {op: input, field: x}}\n"), code=1)
check("graph.yaml:3:9: graph.x: 'data' is missing: what gives the batches" in err, err)
done()
