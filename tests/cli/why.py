#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan --why: each signature's price is the planner's own, and names are found or the
nearest told. usage: why.py TESSERA"""
import os
import re
import sys
import tempfile

from harness import check, done, equal, seconds, tessera, tessera_json

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()
GRAPH = """\
tessera: 1
placements: {a: {ranks: [0, 1, 2, 3]}}
graph:
  x: {op: normal, placement: a, sbp: S(0), shape: [64, 32]}
  w: {op: parameter, placement: a, sbp: B, normal: [0, 1], shape: [32, 48]}
  y: {op: matmul, in: [x, w]}
  z: {op: relu, in: y}
fetch: [z]
"""


def example(name):
    return os.path.join(EXAMPLES, name)


def write(name, text):
    path = os.path.join(FOLDER.name, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def signatures(out):
    """signature -> (step, what it takes more, the words behind)"""
    part = out.split("each signature")[1]
    found = {}
    for line in part.splitlines():
        m = re.match(r"  (\S+) +([\d.]+ (?:ns|us|ms|s))  +(?:([+-][\d.]+ (?:ns|us|ms|s))  )?(.*)", line)
        if m and not line.startswith("   "):
            found[m[1]] = m[2], m[3], m[4]
    return found


def check_width(out, columns):
    """Names of files and what is to be copied stay whole."""
    wide = [x for x in out.splitlines() if len(x) > columns and "said at" not in x and not x.startswith("  --set")]
    check(not wide, f"lines are at most {columns} columns: {wide}")


def check_prices(path, name, sets, expected, at_least=2):
    """Each signature's figures are those of the plan in which the file says that signature."""
    out, _ = tessera("plan", path, "--why", name)
    check_width(out, 80)
    check_width(tessera("plan", path, "--why", name, env={"COLUMNS": "60"})[0], 60)
    rows = signatures(out)
    check(set(expected) <= set(rows), f"{name}: signatures {expected}, found {out}")
    base = tessera_json("plan", path)["step"]["cost_s"]
    tried = 0
    for sbp, (step, more, _) in rows.items():
        if more is None:
            equal(step, seconds(base), f"{name} as it is")
            continue
        pinned = tessera_json("plan", path, "--set", sets(sbp))["step"]["cost_s"]
        equal(step, seconds(pinned), f"{name} in {sbp}: a step")
        sign = "-" if pinned < base else "+"
        equal(more, sign + seconds(abs(pinned - base)), f"{name} in {sbp}: what it takes more")
        tried += 1
    check(tried >= at_least, f"{name}: {tried} signatures were compared: {out}")
    return out, rows


# A weight, in a row of a transformer and of a convolutional net; n-D signatures; a graph's tensor.
out, rows = check_prices(example("attention.yaml"), "blocks.0.attn.q.weight", lambda sbp:
                         f'parameters[5]={{match: "blocks.0.attn.q.weight", sbp: "{sbp}"}}',
                         ["B", "S(0)", "S(1)"])
check("attention.yaml:19:36: parameters[1].sbp\n               the last match that fits: *.attn.[qkv].*\n"
      in out, "where it is said: " + out)
check("in S(0)     linear blocks.0.attn.q: as it is" in out, "a reader: " + out)
check("all_to_all S(1) -> S(0), 1 group of 4 ranks, shared memory, 12.3 KB,\n             5.56 us: " in out,
      "(128 x 32 floats of which a rank has a quarter): " + out)
check_prices(example("dp4.yaml"), "features.3.conv.1.0.weight", lambda sbp:
             f'parameters[1]={{match: "features.3.conv.1.0.weight", sbp: "{sbp}"}}', ["B", "S(0)"],
             at_least=1)
check_prices(example("grid2x2.yaml"), "y", lambda sbp: f"tensors.label.sbp={sbp}",
             ["(S(0),B)", "(B,B)", "(B,S(0))", "(S(0),S(0))"])
graph = write("graph.yaml", GRAPH)
for name in ("x", "w", "y"):
    out, rows = check_prices(graph, name, lambda sbp, name=name: f"graph.{name}.sbp={sbp}", ["S(0)"])
out, _ = tessera("plan", graph, "--why", "y")
check("said at " + graph + ":4:38: graph.x.sbp" in out, "a cause: " + out)
check("matmul takes x in S(0), w in B, and makes S(0)" in out, "its op: " + out)

# An activation of a model, which no key of the file speaks of: the signature that it has anyway
# changes nothing; others are planned by holding the search to them.
out, _ = tessera("plan", example("attention.yaml"), "--why", "linear blocks.0.mlp.fc1")
rows = signatures(out)
base = tessera_json("plan", example("attention.yaml"))["step"]["cost_s"]
equal([(sbp, step) for sbp, (step, more, _) in rows.items() if more is None],
      [("S(2)", seconds(base))], "the activation as it is")
check(len(rows) > 3 and all(more[0] == "+" for _, more, _ in rows.values() if more),
      "no signature of an activation is cheaper than the best plan: " + out)
check("to plan with one" not in out, "nothing can say it: " + out)

# A gradient, a loss, a state; a plan within a limit, and with overrides.
for name in ("grad(blocks.0.attn.q.weight)", "loss", "blocks.0.attn.q.weight.exp_avg"):
    out, _ = tessera("plan", example("attention.yaml"), "--why", name)
    check(out.startswith(name + ": f32["), out)
check("optimizer" not in tessera("plan", example("zero.yaml"), "--why", "x")[0], "zero: x")
out, _ = tessera("plan", graph, "--why", "x", "--set", "graph.x.sbp=B")
check("--set graph.x.sbp=B:1:13: graph.x.sbp" in out, "an override says it: " + out)

# Data parallelism that a signature leaves is told.
out, _ = tessera("plan", example("dp4.yaml"), "--why", "conv2d features.3.conv.1.0")
check("S(1)" in signatures(out) and "planned with infer_updates" in " ".join(out.split()), out)

# Such plans are compared with the one that infers updates, too: what the file says costs a step more or less is the same there.
name, setting = "batch_matmul h.0.mlp.c_fc", ("--set", "infer_updates=true")
out, _ = tessera("plan", example("gpt_dp_tp.yaml"), "--why", name, timeout=110)
with_updates, _ = tessera("plan", example("gpt_dp_tp.yaml"), "--why", name, *setting, timeout=110)
rows, same = signatures(out), signatures(with_updates)
relaxed = [sbp for sbp in rows if rows[sbp][1] and "planned with infer_updates" in
           " ".join(out.split("\n  " + sbp + " ", 1)[1].split("\n  (", 1)[0].split())]
check(len(relaxed) > 1, out)
equal([rows[sbp][:2] for sbp in relaxed], [same[sbp][:2] for sbp in relaxed], "with infer_updates")

# Names.
out, err = tessera("plan", graph, "--why", "q", code=1)
equal(err, "tessera plan: --why q: there is no such tensor; near to it are\n"
      "  x\n  w\n  y\n  z\n", "one letter for another")
out, err = tessera("plan", example("attention.yaml"), "--why", "blocks.0.attn.q.wieght", code=1)
equal(err, "tessera plan: --why blocks.0.attn.q.wieght: there is no such tensor; near to it are\n"
      "  grad(blocks.0.attn.q.weight)\n".replace("  grad(blocks.0.attn.q.weight)\n", "") +
      "  blocks.0.attn.q.weight\n", "a slip")
out, err = tessera("plan", example("attention.yaml"), "--why", "zzzzzzzzzzzzzz", code=1)
check(err.startswith("tessera plan: --why zzzzzzzzzzzzzz: there is no such tensor; there are, for "
                     "example,\n  x\n  y\n  loss\n"), "far from all: " + err)
out, err = tessera("plan", example("attention.yaml"), "--why", "*.attn.[qk].weight", code=1)
equal(err, "tessera plan: --why *.attn.[qk].weight: 2 tensors have that name; say which\n"
      "  blocks.0.attn.q.weight\n  blocks.0.attn.k.weight\n", "a pattern of several")
out, _ = tessera("plan", example("attention.yaml"), "--why", "*.attn.q.weight")
check(out.startswith("blocks.0.attn.q.weight: "), "a pattern of one: " + out)
out, err = tessera("plan", example("attention.yaml"), "--why", "blocks.0.attn.proj", code=1)
check("4 tensors have that name; say which\n  linear blocks.0.attn.proj\n" in err, err)
out, err = tessera("plan", graph, "--why", "x", "--json", code=2)
check("--why is told as text: there is no use for --json beside it" in err, err)

# Many ranks: the placement is told by its axes, and links by what they are.
out, _ = tessera("plan", example("gpt_dp_tp.yaml"), "--why", "h.1.mlp.c_fc.weight")
check_width(out, 80)
check(out.startswith("h.1.mlp.c_fc.weight: f32[1024,4096] on cuda ranks 0-127 as dp 16 x tp 8,\n      (B,S(1))\n"), out)
check(" 8 groups of 16 ranks, network," in " ".join(out.split()) and " groups of 8 ranks, NVLink," in out, out)
check("link" not in out, out)

# Under a strategy: its word is the cause, and overrides do not count its rules.
file = example("gpt_dp_tp.yaml")
small = ["--set", "model.args.layers=2", "--set", "model.args.width=64", "-n", "4", "--set", "mesh.tp=2",
         "--set", "cluster={}"]
out, _ = tessera("plan", file, "--why", "h.1.mlp.c_fc.weight", *small)
check("no plan" not in out and "--set 'parameters[0]={match:" in out, out)
override = re.search(r"--set '(parameters\[0\]=.*)'", out).group(1)
tessera("plan", file, "--set", override, *small)
out, _ = tessera("plan", file, "--why", "x", *small)
check("gpt_dp_tp.yaml:20:11: strategy" in out, out)
out, _ = tessera("plan", file, "--why", "loss", *small)
if "planned with infer_updates" in " ".join(out.split()):
    step = re.search(r"as it is, but with infer_updates, a step takes ([0-9.]+ .?s)\n", out).group(1)
    plain, _ = tessera("plan", file, *small, "--set", "infer_updates=true")
    check(f"step     {step} (estimate)" in plain, f"{step}: {plain}")
# A state: by the rule that its strategy stands for, or by the parameter's.
out, _ = tessera("plan", example("own_layers.yaml"), "--why", "head.weight.momentum_buffer")
check("own_layers.yaml:13:11: strategy\n               the last match that fits: *\n" in out, out)
out, _ = tessera("plan", example("sharded.yaml"), "--why", "classifier.1.weight.momentum_buffer")
check("parameters[0].sbp\n               the last match that fits: *\n" in out, out)
done()
