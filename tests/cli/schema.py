#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tessera schema`: the JSON Schema takes every file that the command takes, and refuses wrong ones; a
file in full reads as it does. usage: schema.py TESSERA ROOT"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError as lacking:
    print(f"skipped: {lacking} (apt-get install python3-jsonschema python3-yaml)")
    sys.exit(77)

tessera, root = sys.argv[1:3]
faults = []


class Loader(yaml.SafeLoader):
    """YAML 1.2's numbers, as editors and tessera read them: 1e-3 is one."""


Loader.yaml_implicit_resolvers = {k: [r for r in v if r[0] not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:bool")]
                                  for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"),
                             list("-+.0123456789"))
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.I), list("tTfF"))


def run(*words, **more):
    return subprocess.run([tessera, *words], capture_output=True, text=True, **more)


def takes(text):
    """What the command itself says of a file."""
    return run("schema", "-", input=text).returncode == 0


def told(validator, text):
    return [e.message[:200] for e in validator.iter_errors(yaml.load(text, Loader))]


schema = json.loads(run("schema").stdout)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)

examples = sorted(glob.glob(os.path.join(root, "examples/experiments/*.yaml")))
if len(examples) < 11:
    faults.append(f"only {len(examples)} examples")
for path in examples:
    text = open(path).read()
    faults += [f"{os.path.basename(path)}: {e}" for e in told(validator, text)]
    full = run("schema", path).stdout
    faults += [f"{os.path.basename(path)} in full: {e}" for e in told(validator, full)]
    if run("schema", "-", input=full).stdout != full:
        faults.append(f"{path}: what is printed reads as something else")

HEAD = "tessera: 1\nplacements: {d: {ranks: [0, 1]}, g: {ranks: [[0, 1], [2, 3]]}}\n"
TRAIN = HEAD + "model: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n"
GRAPH = HEAD + "graph:\n  x: {op: constant, fill: 1, shape: [2, 2]}\n"
# Files that are fine, beyond the examples.
GOOD = [
    TRAIN,
    TRAIN + "dtype: f64\nbucket_mb: 0\nmemory_limit: 5 GB\ncluster: {bandwidth_gb_s: 12.5}\n",
    TRAIN + "memory_limit: 1048576\noptimizer: {name: adam, lr: 1e-3, eps: 1e-300, schedule: {name: cosine}}\n",
    TRAIN + "parameters: [{match: '*', placement: g, sbp: [S(0), B]}, {match: '2.*', sbp: '(P(max), P(max))'}]\n".replace(
        "(P(max), P(max))", "( S(0) ,B)"),
    TRAIN.replace("shape: [1, 4, 4]", "shape: [1, '${n}', 4]") + "vars: {n: 4, m: two}\ntrain: {steps: '${n}'}\n",
    GRAPH + "  y: {op: conv2d, in: [x, x], stride: 2, padding: [0, 1]}\n  z: {op: sum, in: x, axes: -1, keepdim: true}\n",
    GRAPH + "  p: {op: permute, in: x, order: [1, 0]}\n  u: {op: constant, normal: true, shape: [2]}\nloss: p\nfetch: [grad(x), u]\n",
    GRAPH + "  l: {op: from_local, locals: [[1], a.npy], sbp: S(0)}\n  c: {op: cast, in: l, dtype: bf16}\n",
]
LAYERS = HEAD + "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\nmodel:\n"
GOOD += [
    LAYERS + "  layers: [flatten, {layer: linear, in: 16, out: 3}]\n",
    LAYERS + "  name: layers\n  parts: {a: [relu], b: [{layer: part, of: a}]}\n  layers:\n"
    "  - {layer: residual, repeat: 2, name: body, layers: [{layer: part, of: b}]}\n  - {layer: softmax, axis: 1}\n",
    LAYERS + "  plugin: a.so\n  function: f\n",
    HEAD + "data: {dataset: synthetic, shape: [4], classes: 3}\ngraph: {x: {op: input, field: x}, w: {op: parameter, fill: 1, shape: "
    "[1], trained: true}, l: {op: mul, in: [x, w]}, m: {op: mean, in: l}}\nloss: m\noptimizer: {name: sgd}\n",
    TRAIN + "strategy: zero3\ntensors: [{match: '0', sbp: S(1)}]\n",
    TRAIN + "strategy: [data, megatron]\ntensors: {input: {placement: g}, match: [{match: '0', sbp: \"(S(0),S(1))\", gradient: B}]}\n",
    TRAIN.replace("placements: {d: {ranks: [0, 1]}, g: {ranks: [[0, 1], [2, 3]]}}", "mesh: {dp: 2, tp: 2}") + "strategy: {dp: zero1, tp: megatron}\n",
    TRAIN + "parameters: [{match: '*', use: B, state: S(0), gradient: S(0)}]\n",
    HEAD + "data: {dataset: synthetic, shape: [4], classes: 3}\ngraph: {x: {op: input, field: x}, w: {op: parameter, fill: 1, shape: "
    "[1]}, y: {op: input, field: y}, l: {op: mul, in: [x, w]}, m: {op: mean, in: l}}\nloss: m\noptimizer: {name: sgd}\nstrategy: zero1\ntensors: [{match: l, sbp: "
    "S(0), placement: d}]\nparameters: [{match: w, sbp: B, state: S(0)}]\ntrain: {eval: {every: 1 epoch, scores: l}}\n",
]
for text in GOOD:
    faults += [f"of a good file:\n{text}{e}" for e in told(validator, text)]
    if not takes(text):
        faults.append(f"tessera itself refuses\n{text}{run('schema', '-', input=text).stderr}")

# Files that are wrong.
BAD = [
    LAYERS + "  layers: []\n",
    LAYERS + "  layers: [reluu]\n",
    LAYERS + "  layers: [{layer: linear, in: 16}]\n",
    LAYERS + "  layers: [{layer: linear, in: 16, out: 3, groups: 2}]\n",
    LAYERS + "  layers: [{in: 16, out: 3}]\n",
    LAYERS + "  layers: [{layer: residual, layers: [{layer: linear, in: 0, out: 1}]}]\n",
    LAYERS + "  layers: [relu]\n  parts: {a: {layer: relu}}\n",
    LAYERS + "  plugin: a.so\n",
    LAYERS + "  layer: [relu]\n",
    TRAIN + "strategy: zero4\n",
    TRAIN + "strategy: [zero1, megtron]\n",
    TRAIN + "strategy: []\n",
    TRAIN + "strategy: {dp: zero4}\n",
    TRAIN + "tensors: [{match: '0'}]\n",
    TRAIN + "tensors: [{match: '0', sbp: B, place: d}]\n",
    TRAIN + "tensors: {match: {match: '0', sbp: B}}\n",
    TRAIN + "parameters: [{match: '*', uses: B}]\n",
    "tessera: 2\n" + TRAIN[11:],
    TRAIN.replace("placements", "placement"),
    TRAIN.replace("[0, 1]", "0"),
    TRAIN.replace("[0, 1]", "[0, -1]"),
    TRAIN.replace("[0, 1]", "[]"),
    TRAIN.replace("d:", "'d e':"),
    TRAIN.replace("mlp", "mpl"),
    TRAIN.replace("name: mlp", "args: {hidden: 3}"),
    TRAIN.replace("name: mlp", "name: mlp, args: {hidden: 0}"),
    TRAIN.replace("name: mlp", "name: mlp, args: {heads: 2}"),
    TRAIN.replace("classes: 3", "classes: three"),
    TRAIN.replace("classes: 3", "clases: 3"),
    TRAIN.replace(", classes: 3", ""),
    TRAIN + "dtype: f33\n",
    TRAIN + "tesera: 1\n",
    TRAIN + "tensors: {input: {sbp: S(9)}}\n",
    TRAIN + "tensors: {input: {sbp: [S(0), Q]}}\n",
    TRAIN + "tensors: {inputs: {sbp: B}}\n",
    TRAIN + "parameters: [{sbp: B}]\n",
    TRAIN + "parameters: {match: '*'}\n",
    TRAIN + "optimizer: {name: sgd, beta1: 0.9}\n",
    TRAIN + "optimizer: {name: adam, beta1: 1}\n",
    TRAIN + "optimizer: {name: sgd, schedule: {name: step}}\n",
    TRAIN + "optimizer: {lr: 0.1}\n",
    TRAIN + "train: {steps: 1.5}\n",
    TRAIN + "train: {steps: \"5\"}\n",
    TRAIN + "train: {init: 5}\n",
    TRAIN + "cluster: {bandwidth: 5}\n",
    TRAIN + "memory_limit: 5 gigabytes\n",
    GRAPH.replace("constant", "constnat"),
    GRAPH.replace("fill: 1", "fil: 1"),
    GRAPH + "  y: {op: relu}\n",
    GRAPH + "  y: {op: one_hot, in: x}\n",
    GRAPH + "  y: {op: mse_loss, in: [x, x], reduction: avg}\n",
    GRAPH + "  y: {op: sum, in: x, axes: [9]}\n",
    GRAPH + "  y: {op: full, in: x, shape: [2], value: 1}\n",
    GRAPH + "fetch: {x: 1}\n",
    GRAPH + "vars: [1]\n",
    "include: {a: b}\n",
    "include: a.yaml\noptimizer: {name: adam, beta1: two}\n",
    "include: a.yaml\ntrain: {epochs: many}\n",
    "include: a.yaml\nmodel: {name: mlp, args: {heads: 2}}\n",
    "graph: {x: {op: constant, fill: 1, shape: [2]}}\n",
]
for text in BAD:
    if not told(validator, text):
        faults.append(f"the schema takes\n{text}")
    if takes(text):
        faults.append(f"tessera takes\n{text}")

# Every layer of the library that takes one tensor and gives one is there.
header = open(os.path.join(root, "include/tessera/layers.h")).read()
of_library = set(re.findall(r"tsr_module \*tsr_nn_(\w+)\(", header))
several = {"lstm_cell", "gru_cell", "rnn_cell", "transformer_decoder_layer", "transformer_decoder", "fn"}
words = {w for d in schema["$defs"].values() for c in d.get("anyOf", []) for w in c.get("enum", [])}
if len(of_library) < 50 or of_library - several - words or several & words:
    faults.append(f"layers that no word is for: {of_library - several - words}, of {len(of_library)}; {several & words}")

with tempfile.TemporaryDirectory() as folder:
    base, own = os.path.join(folder, "base.yaml"), os.path.join(folder, "own.yaml")
    open(base, "w").write(TRAIN + "vars: {batch: 64}\ntrain: {steps: 3}\n")
    text = "include: base.yaml\noptimizer: {name: sgd}\ndata: {batch_size: \"${batch}\"}\n"
    open(own, "w").write(text)
    faults += told(validator, text)
    full = run("schema", own, "-s", "vars.batch=16").stdout
    if "include" in full or "vars" in full or "  batch_size: 16\n" not in full or "  steps: 3\n" not in full:
        faults.append(f"in full:\n{full}")
for words, text in [(["schema", "-s", "a=b"], "tessera schema: --set needs a FILE.yaml that it is of\n"),
                    (["schema", "/no/such.yaml"], "tessera schema: /no/such.yaml: can't be opened: No such file or directory\n")]:
    r = run(*words)
    if r.returncode == 0 or not r.stderr.startswith(text) or r.stdout:
        faults.append(f"{words}: {r.returncode}: {r.stderr}")

print("\n".join(faults) or f"{len(examples)} examples, {len(GOOD)} good files, {len(BAD)} wrong ones")
sys.exit(bool(faults))
