#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Graphs that train: against NumPy on numbers of the file; against the same network as a model on drawn
data, on several ranks; with an op of a plug-in; rules, strategies and evaluation; and what wrong files are told.
usage: graphs.py TESSERA MAN OP_PLUGIN"""
import json
import os
import struct
import sys
import tempfile

from harness import check, done, equal, needs, tessera, tessera_json

np = needs("numpy")

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

# Strategies and rules change where things are, not what is computed.
for strategy in ["data", "zero1", "zero2", "zero3", "auto"]:
    text = f"strategy: {strategy}\n" + MODEL.replace("RANKS", "[0, 1]").replace("INIT", graph) + GRAPH.replace(", sbp: B", "")
    same(losses(text), want, strategy)
same(losses("strategy: {tp: zero2}\n" + MODEL.replace("placements: {all: {ranks: RANKS}}", "mesh: {dp: 2, tp: 2}").replace("INIT", graph)
            + GRAPH.replace(", sbp: B", "")), want, "a strategy by axes")
RULES = """\
tensors:
  - {match: "[ht]", sbp: S(1), gradient: S(0)}
  - {match: t, sbp: S(0), use: B}
  - {match: "l:softmax_max", sbp: B}
  - {match: x, sbp: S(3)}
parameters:
  - {match: "*", sbp: B, state: S(0)}
  - {match: "b[wb]", sbp: S(0), use: B, gradient: B}
"""
ruled = MODEL.replace("RANKS", "[0, 1]").replace("INIT", graph) + GRAPH.replace("8, 36], sbp: B", "8, 36], sbp: S(1)").replace(
    "8], sbp: B", "8]").replace("5, 8], sbp: B", "5, 8]").replace("5], sbp: B", "5]") + RULES
same(losses(ruled), want, "rules")
file = write(ruled, "ruled.yaml")
for name, sbp, place in [("h", "S(1)", "21:26: tensors[0].sbp\n               the last match that fits: [ht]\n"),
                         ("x", "S(3)", "24:21: tensors[3].sbp\n               the last match that fits: x\n"),
                         ("ab", "B", "26:23: parameters[0].sbp\n               the last match that fits: *\n"),
                         ("bw", "S(0)", "27:27: parameters[1].sbp\n               the last match that fits: b[wb]\n"),
                         ("aw", "S(1)", "11:53: graph.aw.sbp\n")]:
    text, _ = tessera("plan", "--why", name, file)
    check(text.startswith(f"{name}: f64[") and f"on cpu:[0,1], {sbp}\n" in text, f"{name}: {text}")
    check(f"said at {file}:{place}" in text or f"said at ruled.yaml:{place}" in text, f"{name}: {text}")
text, _ = tessera("plan", "--full", file)
check("x                              f64[24,1,6,6] S(3)  said by 'x'" in text, text)
text, _ = tessera("plan", "--full", write("strategy: data\n" + MODEL.replace("RANKS", "[0, 1]").replace(", init: INIT", "") + GRAPH.replace(", sbp: B", "")))
check("said by '*' at graph.yaml:1" in text and "S(0)  by default" in text, text)
full, _ = tessera("schema", file)
check(tessera("schema", write(full, "full.yaml"))[0] == full, "a file in full reads as it does")
text, _ = tessera("plan", "--why", "h", file, "--set", "graph.h.sbp=B")
check("graph.h.sbp" in text and "f64[24,8] on cpu:[0,1], B\n" in text, f"an entry's own word counts more: {text}")
# Another placement by a rule, for an entry and for what it takes.
away = MODEL.replace("{all: {ranks: RANKS}}", "{all: {ranks: [0, 1]}, two: {ranks: [2, 0]}}").replace("INIT", graph) + GRAPH + """\
tensors: [{match: z, placement: two, sbp: auto}]
parameters: [{match: "b*", placement: two}]
"""
same(losses(away), want, "an entry elsewhere")
check(tessera_json("plan", write(away))["ranks"] == 3, "its rank counts")

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
        ("loss: l\n", "loss: z\n",
         "19:7: loss: 'z' is of shape (24,5); an optimizer makes one number small: reduce it with mean or sum"),
        ("in: [z, y]}", "in: [z, x]}", "18:6: graph.l: cross_entropy: logits (24,5), labels (24,1,6,6); legal are logits (n,c), labels (n)"),
        ("op: tanh, in: h", "op: tanh, in: y", "16:6: graph.t: tanh: operand (24) is i64; floating point is needed: use {op: cast, dtype: f32}"),
        ("op: tanh", "op: tahn", "16:11: graph.t.op: found 'tahn'; legal are the")]:
    check(old in good, old)
    _, err = tessera("plan", write(good.replace(old, new, 1)), code=1)
    check("graph.yaml:" in err and text in err, f"{new}: {err}")
_, err = tessera("plan", write("tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph: {x: {op: input, field: x}}\n"), code=1)
check("graph.yaml:3:9: graph.x: 'data' is missing: what gives the batches" in err, err)

# A batch that the ranks do not divide, of rows of several positions: the values are the same.
same(losses(TEXT.replace("RANKS", "2").replace("batch_size: 4", "batch_size: 5")),
     losses(TEXT.replace("RANKS", "1").replace("batch_size: 4", "batch_size: 5")), "five rows on two ranks")

# Evaluation, against NumPy: dropout drops nothing, and batch norm takes its running statistics.
ROWS, LABELS = RNG.standard_normal((101, 6)), RNG.integers(0, 7, 101)
for name, array in [("x", ROWS[:60]), ("y", LABELS[:60]), ("tx", ROWS[60:]), ("ty", LABELS[60:])]:
    np.save(os.path.join(FOLDER.name, name + ".npy"), array)
EVAL = """\
tessera: 1
dtype: f64
placements: {all: {ranks: RANKS}}
data: {dataset: npy, x: x.npy, y: y.npy, test_x: tx.npy, test_y: ty.npy, batch_size: 12}
graph:
  x: {op: input, field: x}
  y: {op: input, field: y}
  f: {op: reshape, in: x, shape: [-1, 6]}
  c: {op: constant, file: c.npy}
  fc: {op: mul, in: [f, c]}
  w: {op: parameter, normal: [0, 0.5], shape: [16, 6]}
  g: {op: parameter, fill: 1, shape: [16]}
  b: {op: parameter, fill: 0, shape: [16]}
  m: {op: parameter, fill: 0, shape: [16], trained: false}
  v: {op: parameter, fill: 1, shape: [16], trained: false}
  u: {op: parameter, normal: [0, 0.5], shape: [7, 16]}
  h: {op: linear, in: [fc, w]}
  n: {op: batch_norm, in: [h, g, b, m, v]}
  r: {op: relu, in: n}
  d: {op: dropout, in: r, p: 0.2}
  z: {op: linear, in: [d, u]}
  l: {op: cross_entropy, in: [z, y]MORE}
  square: {op: reshape, in: z, shape: [12, 7]}
loss: l
strategy: data
optimizer: {name: sgd, lr: 0.1, momentum: 0.5}
train: {epochs: 2, eval: {every: 4}, checkpoint: {dir: DIR, every: 4}}
"""
SCALE = RNG.standard_normal(6)
np.save(os.path.join(FOLDER.name, "c.npy"), SCALE)


def read_weights(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return {k: np.frombuffer(data[8 + n + i["data_offsets"][0]:8 + n + i["data_offsets"][1]]).reshape(i["shape"])
            for k, i in json.loads(data[8:8 + n]).items() if k != "__metadata__"}


def expect(folder, ignored=None, add=False):
    """Loss, accuracy and top-5 of the test rows, by the weights at the end."""
    p = read_weights(os.path.join(folder, "weights.safetensors"))
    x, y = ROWS[60:] * SCALE, LABELS[60:]
    h = (x @ p["w"].T - p["m"]) / np.sqrt(p["v"] + 1e-5) * p["g"] + p["b"]
    z = np.maximum(h, 0) @ p["u"].T
    counts = y != ignored
    logs = z - np.log(np.exp(z - z.max(1, keepdims=True)).sum(1, keepdims=True)) - z.max(1, keepdims=True)
    loss = -logs[np.arange(len(y)), y][counts]
    rank = (z > z[np.arange(len(y)), y][:, None]).sum(1)[counts]
    return [loss.sum() if add else loss.mean(), (rank < 1).mean(), (rank < 5).mean()]


def evaluations(text, *more, **how):
    return tessera_json("run", write(text), *more, **how)["evaluations"]


def figures(e):
    return [e["loss"], e["accuracy"], e["top5"]]


def folder_of(name):
    return os.path.join(FOLDER.name, name)


whole = None
for i, (ranks, more) in enumerate([("[0]", {}), ("[0, 1]", {}), ("[2, 0, 1]", {}), ("[0, 1]", {"launch": 2})]):
    got = evaluations(EVAL.replace("RANKS", ranks).replace("DIR", f"ck{i}").replace("MORE", ""), **more)
    check([e["step"] for e in got] == [4, 8, 10] and all(e["rows"] == 41 for e in got), str(got))
    same(figures(got[-1]), expect(folder_of(f"ck{i}")), f"evaluation on {ranks}")
    whole = whole or got
    for a, b in zip(got, whole):
        same(figures(a), figures(b), f"evaluations on {ranks}")
check(whole[-1]["loss"] != whole[0]["loss"], str(whole))
for i, (more, how) in enumerate([(", ignore_index: 3", {"ignored": 3}), (", reduction: sum", {"add": True}),
                                 (", reduction: sum, ignore_index: 0", {"ignored": 0, "add": True})]):
    text = EVAL.replace("RANKS", "[0, 1]").replace("DIR", f"cki{i}").replace("MORE", more).replace("lr: 0.1", "lr: 0.001")
    same(figures(evaluations(text)[-1]), expect(folder_of(f"cki{i}"), **how), more)
# It goes on from a checkpoint on another number of ranks, with the same evaluations.
text = EVAL.replace("RANKS", "[0, 1]").replace("DIR", "ckr").replace("MORE", "")
first = evaluations(text, "--steps", "4")
rest = tessera_json("run", write(text.replace("[0, 1]", "[0, 1, 2]")))
check(rest["after_step"] == 4 and len(first) == 1, "it goes on")
for a, b in zip(first + rest["evaluations"], whole):
    same(figures(a), figures(b), "evaluations of a run that goes on")
# Without classes there is the loss alone; `scores` says them where a loss does not.
plain = EVAL.replace("RANKS", "[0, 1]").replace("DIR", "ckm").replace("  l: {op: cross_entropy, in: [z, y]MORE}", """\
  o: {op: one_hot, in: y, classes: 7}
  l: {op: mse_loss, in: [z, o]}""")
got = evaluations(plain)
check(all(set(e) == {"step", "loss", "rows", "seconds"} for e in got), str(got))
out, _ = tessera("run", write(plain.replace("ckm", "ckm2")))
check(out.count("evaluation after step ") == 3 and "accuracy" not in out, out)
scored = evaluations(plain.replace("every: 4}, ch", "every: 4, scores: z}, ch").replace("ckm", "ckm3"))
same([e["loss"] for e in scored], [e["loss"] for e in got], "losses with scores")
same(figures(scored[-1])[1:], expect(folder_of("ckm3"))[1:], "scores")
part = evaluations(plain.replace("test_x: tx.npy, test_y: ty.npy", "test_part: 0.25").replace("ckm", "ckm4"))
check(part[-1]["rows"] == 15, f"a part of the data: {part}")

one = EVAL.replace("RANKS", "[0, 1]").replace(", checkpoint: {dir: DIR, every: 4}", "").replace("MORE", "")
for old, new, text in [
        ("every: 4", "every: 4, scores: q", "train.eval.scores: there is no entry 'q'; legal are "),
        ("every: 4", "every: 4, scores: y",
         "train.eval.scores: scores 'y' are (12), labels 'y' (12); legal are (rows, classes), and a label for each row (in train.eval, "
         "of a batch of 12 rows)"),
        ("test_x: tx.npy, test_y: ty.npy, ", "", "train.eval: the data has no test part: say data.test_part, or test_x and test_y, or "),
        ("optimizer: {name: sgd, lr: 0.1, momentum: 0.5}\n", "", "train.eval: 'optimizer' is missing: the graph trains nothing")]:
    check(old in one, old)
    _, err = tessera("plan", write(one.replace(old, new, 1)), code=1)
    check("graph.yaml:" in err and text in err, f"{new}: {err}")
# A size that the last batch does not have is told before training.
_, err = tessera("run", write(one.replace("[-1, 6]", "[12, 6]")), code=1)
check("graph.f: reshape: (5,1,1,6) has 30 elements, which are not those of (12,6) (in train.eval, of a batch of 5 rows)" in err, err)

# A batch that is larger than the data can be planned, which is said; a run refuses it.
big = write(one.replace("batch_size: 12", "batch_size: 61").replace("[12, 7]", "[61, 7]"), "big.yaml")
warning = "a batch of 61 rows is more than the 60 that there are to train on: a run refuses it"
for how in [[], ["--full"]]:
    check(f"\nwarning    {warning}\n" in tessera("plan", big, *how, "--long")[0], "the warning")
check(tessera_json("plan", big)["warning"] == warning, "the warning in JSON")
check("warning" not in tessera_json("plan", write(one)), "no warning")
_, err = tessera("run", big, code=1)
check("data.batch_size: a batch of 61 rows; the set has 60" in err, err)
words = TEXT.replace("RANKS", "1").replace("batch_size: 4", "batch_size: 31")
check(os.path.getsize(path) == 236 and "31 rows is more than the 29 that" in tessera("plan", write(words))[0], "of a text")
done()
