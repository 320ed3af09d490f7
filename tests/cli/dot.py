#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan --dot: Graphviz draws the plan of each shipped example in a few seconds, on a sheet that
can be looked at; and the nodes are those of the plan. usage: dot.py TESSERA"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from harness import check, done, equal, tessera, tessera_json

GPT = """\
tessera: 1
placements: {all: {ranks: [0, 1]}}
model: {name: transformer, args: {layers: LAYERS, heads: 4}}
data: {dataset: synthetic, shape: [1, 8, 128], classes: 10, samples: 256, batch_size: 2}
parameters: [{match: "*", placement: all, sbp: B}]
optimizer: {name: adamw, lr: 0.001}
"""
FOLDER = tempfile.TemporaryDirectory()
EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples/experiments")
NODE = re.compile(r'^ *(n\d+) \[(.*)label="(.*?)"(.*)\];$', re.M)
EDGE = re.compile(r"^  (n\d+) -> (n\d+|out\d+)(.*);$", re.M)


def write(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def dot_of(path, *options):
    out = os.path.join(FOLDER.name, "p.dot")
    tessera("plan", path, "--dot", out, *options)
    with open(out, encoding="utf-8") as f:
        text = f.read()
    nodes = {m[0]: m[2] for m in NODE.findall(text)}
    equal(len(nodes), len(re.findall(r"^ *n\d+ \[", text, re.M)), f"{path}: nodes")
    edges = EDGE.findall(text)
    ends = {e for edge in edges for e in edge[:2] if e.startswith("n")}
    check(edges and ends <= set(nodes), f"{path}: edges between nodes: {ends - set(nodes)}")
    equal(len(edges), len(set(edges)), f"{path}: each edge once")
    check(text.count("{") == text.count("}"), f"{path}: braces")
    return text, nodes, edges


# All of it: a node for each row, and an edge for each operand that a row makes.
for name in ("matmul", "attention"):
    path = os.path.join(EXAMPLES, name + ".yaml")
    p = tessera_json("plan", path)
    _, nodes, _ = dot_of(path, "--verbose")
    equal(len(nodes), len(p["ops"]) + len(p["boxing"]), f"{name}: a node for each op and boxing")

# Without --verbose no update, no parameter, no gradient of one; conversions of values stay.
_, nodes, _ = dot_of(os.path.join(EXAMPLES, "attention.yaml"))
words = " ".join(nodes.values())
for word in ("adam", "variable", "linear_dw", "exp_avg", "bucket"):
    check(word not in words, f"{word} is drawn: {words}")
for word in ("reduce_scatter 6.14 KB", "all_gather 6.14 KB", "linear_dx", "softmax"):
    check(word in words, f"{word} is not drawn: {words}")

# Blocks that do the same are one, and as many of them are no larger a picture. The first and the last
# have other neighbours backward.
sizes = {}
for layers in (5, 40):
    text, nodes, _ = dot_of(write("gpt.yaml", GPT.replace("LAYERS", str(layers))))
    sizes[layers] = len(nodes)
    check(re.search(rf'label="blocks\.\d \.\. {layers - 1 - 1}  x{layers - 2}"', text) or
          re.search(rf'label="blocks\.\d \.\. {layers - 1}  x{layers - 1}"', text),
          f"{layers} layers: {re.findall('label=.blocks.*', text)}")
equal(sizes[40], sizes[5], "nodes of 40 layers, and of 5")

# The number of the step, which every dropout reads, is no node; and an edge is drawn once.
_, nodes, _ = dot_of(write("gpt.yaml", GPT.replace("LAYERS", "6").replace("heads: 4", "heads: 4, dropout: 0.1")))
check(any("dropout" in x for x in nodes.values()) and not any("(step)" in x for x in nodes.values()), f"step: {nodes}")

if not shutil.which("dot"):
    print("skipped: there is no dot (Debian: graphviz)")
    sys.exit(77)
for name in sorted(os.listdir(EXAMPLES)):
    if not name.endswith(".yaml"):
        continue
    path = os.path.join(EXAMPLES, name)
    _, nodes, _ = dot_of(path)
    check(len(nodes) <= 120, f"{name}: {len(nodes)} nodes")
    t = time.monotonic()
    p = subprocess.run(["dot", "-Tsvg", os.path.join(FOLDER.name, "p.dot")], capture_output=True, text=True,
                       timeout=60, check=False)
    equal((p.returncode, p.stderr), (0, ""), f"{name}: dot")
    wide, high = map(int, re.search(r'<svg width="(\d+)pt" height="(\d+)pt"', p.stdout).groups())
    check(wide <= 4000 and high <= 4000, f"{name}: {wide} x {high} points")
    print(f"{name}: {len(nodes)} nodes, {wide} x {high} points, {time.monotonic() - t:.1f} s")
done()
