#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An op of a plug-in in a YAML file: its values and gradients in every signature that its rule allows,
on threads and on processes, what plans say of it, and what wrong files are told.
usage: plugins.py TESSERA MAN OP_PLUGIN OPTIMIZER_PLUGIN MODEL_PLUGIN"""
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile

from harness import check, done, needs, tessera, tessera_json

np = needs("numpy")

FOLDER = tempfile.TemporaryDirectory()
PLUGIN, LION, NET = (os.path.abspath(a) for a in sys.argv[3:6])
RNG = np.random.default_rng(5)
X, G = (RNG.standard_normal((8, 6)) for _ in range(2))
BETA = 1.5


def document(x="B", g="B", **own):
    entry = {"op": "own", "plugin": PLUGIN, "function": "swish_gate", "in": ["x", "g"],
             "options": {"beta": BETA}, **own}
    return {
        "tessera": 1, "dtype": "f64", "placements": {"p": {"ranks": [0, 1, 2, 3]}},
        "graph": {
            "x": {"op": "constant", "value": X.tolist(), "sbp": x},
            "g": {"op": "constant", "value": G.tolist(), "sbp": g},
            "y": {k: v for k, v in entry.items() if v is not None},
            "s": {"op": "mul", "in": ["y", "y"]},
            "l": {"op": "sum", "in": ["s"]},
        },
        "loss": "l", "fetch": ["y", "grad(x)", "grad(g)"],
    }


def write(doc):
    name = os.path.join(FOLDER.name, "own.yaml")
    with open(name, "w") as f:
        json.dump(doc, f)
    return name


def expected():
    s = 1 / (1 + np.exp(-BETA * X))
    y = X * s * G
    return {"y": y, "grad(x)": 2 * y * G * s * (1 + BETA * X * (1 - s)), "grad(g)": 2 * y * X * s}


def check_values(folder, what):
    for name, want in expected().items():
        got = np.load(os.path.join(folder, name + ".npy"))
        check(np.allclose(got, want, rtol=0, atol=1e-13), f"{what}: {name}: {abs(got - want).max()}")


for x, g in itertools.product(["B", "S(0)", "S(1)"], ["B", "S(0)", "S(1)", "P"]):
    out = tempfile.mkdtemp(dir=FOLDER.name)
    tessera("run", write(document(x, g)), "--out", out)
    check_values(out, f"{x}, {g}")
out = tempfile.mkdtemp(dir=FOLDER.name)
tessera("run", write(document("S(0)", "S(1)")), "--out", out, launch=4)
check_values(out, "processes")

plan = tessera_json("plan", write(document("S(0)", "S(0)")))
check("swish_gate" in json.dumps(plan) and "swish_gate_backward" in json.dumps(plan), "the plan names the op")

for own, text in [
        ({"options": {"gamma": 1}}, "op 'swish_gate' has no number 'gamma'"),
        ({"options": {"beta": "x"}}, "a number is needed"),
        ({"options": {"beta": -1}}, "beta is -1; legal are 0 to inf"),
        ({"options": 2}, "a mapping of names to numbers is needed"),
        ({"function": "swish"}, "op 'swish' is not defined by"),
        ({"plugin": None}, "op 'swish_gate' is not defined by a plug-in of this file"),
        ({"plugin": "no.so"}, "no.so: cannot open"),
        ({"in": ["x"]}, "1 operand; it has 2")]:
    _, err = tessera("plan", write(document(**own)), code=1)
    check(text in err and "own.yaml:1" in err, f"{own}: {err}")
_, err = tessera("plan", write(document(plugin=os.path.abspath(__file__))), code=1)
check("own.yaml:1:" in err and "plugins.py: invalid ELF header" in err and "tsr_" not in err, err)

TRAIN = """\
tessera: 1
dtype: f64
placements: {all: {ranks: [0,1,2]}}
model: {name: mlp, args: {inputs: 64, hidden: 16, outputs: 10, layers: 2}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 120, batch_size: 30}
optimizer: {lr: 0.001, OPTIMIZER}
train: {epochs: 3, seed: 3}
"""


def losses(optimizer, code=0):
    name = os.path.join(FOLDER.name, "train.yaml")
    with open(name, "w") as f:
        f.write(TRAIN.replace("OPTIMIZER", optimizer))
    return tessera("run", name, code=code)[1] if code else tessera_json("run", name)["losses"]


own = f"name: own, plugin: {LION}, function: own_lion"
for state in ["", ", state: {sbp: S(0)}", ", accumulate: 2, clip_norm: 0.5"]:
    want = losses("name: lion, beta1: 0.8, weight_decay: 0.01" + state)
    got = losses(own + ", numbers: {beta1: 0.8, weight_decay: 0.01}" + state)
    check(len(want) == 12 and np.allclose(got, want, rtol=1e-12, atol=0), f"{state}: {got}, {want}")
    check(want[-1] < want[0], "it learns")
for optimizer, text in [
        (own + ", numbers: {beta3: 1}", "optimizer 'own_lion' has no number 'beta3'"),
        (own + ", numbers: {beta1: 2}", "beta1 of 'own_lion' is 2; legal are 0 to 1"),
        ("name: own, function: own_lion", "no optimizer 'own_lion' is defined"),
        (f"name: own, plugin: {LION}", "function"),
        (f"name: own, plugin: {PLUGIN}, function: own_lion", "no optimizer 'own_lion' is defined")]:
    err = losses(optimizer, code=1)
    check(text in err and "train.yaml:6" in err, f"{optimizer}: {err}")


def net_losses(model, code=0):
    name = os.path.join(FOLDER.name, "net.yaml")
    with open(name, "w") as f:
        f.write(TRAIN.replace("model: {name: mlp, args: {inputs: 64, hidden: 16, outputs: 10, layers: 2}}", f"model: {model}")
                .replace("lr: 0.001, OPTIMIZER", "name: sgd, lr: 0.1"))
    return tessera("run", name, code=code)[1] if code else tessera_json("run", name)["losses"]


# A model of a library is the same as its layers in the file.
got = net_losses(f"{{plugin: {NET}, function: swish_net}}")
want = net_losses("{layers: [{layer: flatten, name: rows}, {layer: linear, name: first, in: 64, out: 16}, silu, "
                  "{layer: linear, name: last, in: 16, out: 10}]}")
check(len(want) == 12 and np.allclose(got, want, rtol=1e-12, atol=0), f"{got}, {want}")
check(want[-1] < want[0], "it learns")
for model, text in [
        (f"{{plugin: {NET}, function: swish_nest}}", f"model.function: '{NET}' has no function 'swish_nest'"),
        (f"{{plugin: {FOLDER.name}/no.so, function: f}}", "no.so: cannot open"),
        (f"{{plugin: {PLUGIN}, function: f}}", f"'{PLUGIN}' has no function 'f'")]:
    err = net_losses(model, code=1)
    check(text in err and "net.yaml:4" in err, f"{model}: {err}")

# The roles that it tells pair its layers as those of the file are paired, with the same words and times.
PAIRED = TRAIN.replace("lr: 0.001, OPTIMIZER", "name: sgd, lr: 0.1").replace("[0,1,2]", "[0,1]") + "strategy: megatron\n"


def paired(model, *words, code=0):
    name = os.path.join(FOLDER.name, "paired.yaml")
    with open(name, "w", encoding="utf-8") as f:
        f.write(PAIRED.replace("model: {name: mlp, args: {inputs: 64, hidden: 16, outputs: 10, layers: 2}}", f"model: {model}"))
    return tessera(words[0], name, *words[1:], code=code)


OWN = f"{{plugin: {NET}, function: swish_net}}"
FILE = ("{layers: [{layer: flatten, name: rows}, {layer: linear, name: first, in: 64, out: 16}, silu, "
        "{layer: linear, name: last, in: 16, out: 10}]}")
rules = [paired(m, "schema")[0].split("tensors:")[1].split("optimizer:")[0] for m in (OWN, FILE)]
check(rules[0] == rules[1] and "{match: first, sbp: S(1), gradient: S(1)}" in rules[0], f"{rules[0]}\nis not\n{rules[1]}")
plan = json.loads(paired(OWN, "plan", "--json")[0])
check(plan["strategy"] == "Megatron pair x2", plan["strategy"])
losses_of = [json.loads(paired(m, "run", "--json")[0])["losses"] for m in (OWN, FILE)]
check(np.allclose(*losses_of, rtol=1e-12, atol=0) and losses_of[0][-1] < losses_of[0][0], f"{losses_of}")
_, err = paired(OWN, "schema", "--set", "strategy=sequence", code=1)
check("strategy: sequence: the model tells no roles with positions of its parameters (tsr_variable_set_role)" in err, err)
_, err = paired(OWN, "schema", "--no-plugins", code=1)
check("and --no-plugins or TESSERA_NO_PLUGINS forbids that" in err and "paired.yaml:4" in err, err)

# --no-plugins, or its variable, runs no code of a library: one that would end the process does not.
SOURCE, DEADLY = os.path.join(FOLDER.name, "deadly.c"), os.path.join(FOLDER.name, "deadly.so")
with open(SOURCE, "w", encoding="utf-8") as f:
    f.write("#include <unistd.h>\n__attribute__((constructor)) static void end(void) { _exit(77); }\n")
compiler = shutil.which("cc") or shutil.which("gcc")
if compiler:
    subprocess.run([compiler, "-shared", "-fPIC", "-o", DEADLY, SOURCE], check=True)
library = DEADLY if compiler else NET
net = os.path.join(FOLDER.name, "net.yaml")
for line in (f"model: {{plugin: {library}, function: f}}", f"optimizer: {{name: own, plugin: {library}, function: f}}"):
    with open(net, "w", encoding="utf-8") as f:
        f.write("\n".join(line if row.startswith(line.split(":")[0] + ":") else row.replace(", OPTIMIZER", "")
                          .replace("{lr:", "{name: sgd, lr:") for row in TRAIN.splitlines()) + "\n")
    for command in ("plan", "run"):
        if compiler:
            tessera(command, net, code=77)
        for words, env in ((["--no-plugins"], None), ([], {"TESSERA_NO_PLUGINS": "1"})):
            _, err = tessera(command, net, *words, code=1, env=env)
            check(f"'{library}' is a library whose code would run, and --no-plugins" in err and "net.yaml:" in err, err)
with open(write(document(plugin=library)), encoding="utf-8"):
    _, err = tessera("plan", os.path.join(FOLDER.name, "own.yaml"), "--no-plugins", code=1)
    check("whose code would run" in err and "own.yaml:1:" in err, err)
tessera("schema", net)
for command in ("plan", "run"):
    tessera(command, write(document(plugin=PLUGIN)), env={"TESSERA_NO_PLUGINS": "0"})
done()
