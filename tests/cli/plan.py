#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan: totals are the sums of their parts, memory is what one counts oneself, thousands
of ranks are quick. usage: plan.py TESSERA"""
import json
import os
import re
import shlex
import tempfile

from harness import SLOWER, check, children_s, done, equal, near, tessera, tessera_json

TRAIN = """\
tessera: 1
placements: {all: {ranks: RANKS}}
model: {name: mlp, args: {inputs: 64, hidden: 256, outputs: 10, layers: 3}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 20000, batch_size: BATCH}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
"""
GRAPH = """\
tessera: 1
placements: {a: {ranks: [[0,1],[2,3]]}, b: {ranks: [4,5]}}
graph:
  x: {op: normal, placement: a, sbp: "(S(0),B)", shape: [8,6]}
  w: {op: normal, placement: a, sbp: "(B,S(1))", shape: [6,10]}
  y: {op: matmul, in: [x, w]}
  z: {op: to_global, in: [y], placement: b, sbp: S(0)}
fetch: [z]
cluster: {ranks_per_node: 2, latency_us: 2, bandwidth_gb_s: 10, node_latency_us: 50,
          node_bandwidth_gb_s: 1}
"""
FOLDER = tempfile.TemporaryDirectory()
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)


def write(text, **words):
    for key, value in words.items():
        text = text.replace(key, str(value))
    path = os.path.join(FOLDER.name, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def check_sums(p, what):
    near(sum(x["cost_s"] for x in p["ops"] + p["boxing"]), p["step"]["cost_s"], f"{what}: time")
    near(p["step"]["compute_s"] + p["step"]["communication_s"], p["step"]["cost_s"], what)
    near(sum(p["step"]["spent_s"].values()), p["step"]["cost_s"], f"{what}: what it is spent on")
    spent = p["step"]["spent_s"]
    use = lambda name: " ".join(name.split()[:2]) if name.startswith("link") else name
    together = {k: sum(v for other, v in spent.items() if use(other) == use(k)) for k in spent}
    equal(max(spent, key=lambda k: (together[k], spent[k])), p["step"]["bound_by"], f"{what}: bound by")
    for x in p["ops"] + p["boxing"]:
        equal("bound_by" in x, x["cost_s"] > 0, f"{what}: what {x['name']} is bound by")
    talks = [b for b in p["boxing"] if b["communicates"]]
    near(sum(b["cost_s"] for b in talks), p["step"]["communication_s"], f"{what}: communication")
    equal(sum(b["bytes"] for b in talks), p["totals"]["bytes"], f"{what}: bytes")
    equal(sum(b["bytes"] for b in p["boxing"]), p["totals"]["bytes"], f"{what}: local steps read")
    for t in p["totals"]["collectives"]:
        mine = [b for b in talks if b["collective"] == t["collective"]]
        equal((len(mine), sum(b["bytes"] for b in mine)), (t["calls"], t["bytes"]), what)
        near(sum(b["cost_s"] for b in mine), t["cost_s"], what)
    equal(sum(t["bytes"] for t in p["totals"]["collectives"]), p["totals"]["bytes"], what)
    for m in p["memory"]:
        parts = [v for k, v in m.items() if k not in ("ranks", "nranks", "total", "exact", "peak")]
        equal(sum(parts), m["total"], f"{what}: memory of ranks {m['ranks']}")
    equal(sum(m["nranks"] for m in p["memory"]), p["ranks"], f"{what}: ranks in the table")
    check(p["step"]["lower_bound_s"] <= p["step"]["signatures_cost_s"] * (1 + 1e-6),
          f"{what}: the bound is above the cost")
    for x in p["ops"]:
        check(x["why"] in ("said", "chosen") and x["legal"] >= 1, f"{what}: {x}")
        check(len(x["alternatives"]) <= max(0, x["legal"] - 1), f"{what}: {x}")
        more = [a["more_s"] for a in x["alternatives"]]
        check(more == sorted(more), f"{what}: alternatives by cost")
        if p["step"]["exact"]:
            check(all(m >= -1e-9 for m in more), f"{what}: a cheaper alternative: {x}")
        for a in x["alternatives"]:
            equal((len(a["in"]), len(a["out"])), (len(x["in"]), len(x["out"])), what)


# Training with uneven rows: 2004 rows over 8 ranks are 251 or 250.
p = tessera_json("plan", write(TRAIN, RANKS=list(range(8)), BATCH=2004))
check_sums(p, "training")
equal(p["ranks"], 8, "ranks")
weights = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10)
equal({m["parameters"] for m in p["memory"]}, {weights}, "bytes of parameters in B")
check(all(weights <= m["optimizer"] <= weights + 64 * len(p["ops"]) for m in p["memory"]),
      f"SGD keeps one momentum, and its rates: {p['memory']}")
equal([m["ranks"] for m in p["memory"]], ["0-3", "4-7"], "ranks with more rows, and with fewer")
equal(p["memory"][0]["inputs_outputs"] - p["memory"][1]["inputs_outputs"], 64 * 4 + 8,
      "one more row of an input and its label")
names = {x["name"]: x for x in p["ops"] if x["op"] == "input"}
equal(names["x"]["out"][0]["sbp"], "S(0)", "the images")
buckets = [b for b in p["boxing"] if len(b["in"]) > 1]
check(buckets and all(b["lane"] == "bulk" for b in buckets), "gradients go in a bucket")
check(any("loss" in b["reason"] for b in p["boxing"]), "why the loss is reduced")
alone = tessera_json("plan", write(TRAIN + "bucket_mb: 0\n", RANKS=list(range(8)), BATCH=2004))
check(all(len(b["in"]) == 1 for b in alone["boxing"]), "without buckets each gradient goes by itself")

# The sizes of data that is not there.
for name, shape, count in (("mnist", [1, 28, 28], 60000), ("cifar10", [3, 32, 32], 50000)):
    p = tessera_json("plan", write(f"""\
tessera: 1
placements: {{d: {{ranks: [0]}}}}
model: {{name: convnet}}
data: {{dataset: {name}, dir: /nowhere, batch_size: 16}}
"""))
    inputs = {x["name"]: x["out"][0]["shape"] for x in p["ops"] if x["op"] == "input"}
    equal(inputs, {"x": [16] + shape, "y": [16]}, name)
    check([10] in [x["out"][0]["shape"] for x in p["ops"] if x["op"] == "variable"], f"{name}: classes")

# Ranks that need the same, as many as 20 columns take.
for ranks, text in (([0, 2, 4, 6, 10, 12, 14], "0,2,4,6,10,12,14"),
                    ([0, 2, 4, 10, 12, 14, 16], "0,2,4,10,12,14,..."),
                    ([0, 2, 4, 5, 6, 7, 10, 11, 13], "0,2,4-7,10-11,13"),
                    ([0, 2, 4, 5, 6, 7, 10, 11, 12, 14], "0,2,4-7,10-12,14")):
    out, _ = tessera("plan", write(f"""\
tessera: 1
placements: {{d: {{ranks: {ranks}}}}}
graph:
  x: {{op: normal, placement: d, sbp: B, shape: [8]}}
  y: {{op: relu, in: x}}
"""), "--full")
    check(f"\n  ranks {text}: 96 B = " in out, f"{text}: {out}")

# Two placements, two hierarchies, two kinds of links.
path = write(GRAPH)
p = tessera_json("plan", path)
check_sums(p, "graph")
equal(p["ranks"], 6, "ranks that the placements name")
equal([(x["ranks"], x["latency_s"]) for x in p["model"]["links"]], [(2, 2e-6), (0, 50e-6)], "links")
check("the file's cluster" in p["model"]["figures"], p["model"]["figures"])
check(not any("name" in x for x in p["model"]["links"]), "figures alone have no name")

# A link is called what it is: by a preset, by the file, and in each text alike.
for sets, names in (({}, [None, None]), ({"cluster": "{ranks_per_node: 2}"}, ["shared memory", "network"]),
                    ({"cluster": "{}"}, ["shared memory"]), ({"cluster": "{latency_us: 3}"}, [None]),
                    ({"cluster": "h100-sxm:1x8", "device": "cpu"}, ["NVLink", "network"]),
                    ({"cluster": "{gpu: l40s, nodes: 3, gpus_per_node: 2, network: 25g}"}, ["PCIe", "network"]),
                    ({"cluster": "{gpu: h200, gpus_per_node: 2, nodes_per_rack: 1}"},
                     ["NVLink", "network in racks", "network between racks"]),
                    ({"cluster.link_name": "bus", "cluster.node_link_name": "\"my wire\""}, ["bus", "my wire"]),
                    ({"cluster.node_link_name": "wire"}, [None, "wire"])):
    args = [x for k, v in sets.items() if k != "device" for x in ("--set", f"{k}={v}")]
    equal([x.get("name") for x in tessera_json("plan", path, *args)["model"]["links"]], names, str(sets))
    screen, full = tessera("plan", path, *args, "--long")[0], tessera("plan", path, *args, "--full")[0]
    for i, name in enumerate(names):
        check(f"\n  {name or 'link ' + str(i + 1)}" in full[full.index("time of a step"):], full)
    spoken = [name or f"link {i + 1}" for i, name in enumerate(names)]
    check(all(re.search(rf" ranks, (?:{'|'.join(spoken)}), ", x) for x in full.splitlines() if " groups of " in x), full)
    check(sum(bool(re.match(rf"  (?:{'|'.join(spoken)})(?: hand-shakes)? ", x)) for x in screen.splitlines()) > 0, screen)
crossing = [b for b in p["boxing"] if b["in"][0]["placement"] != b["out"][0]["placement"]]
check(len(crossing) == 1 and crossing[0]["link"] == 2 and crossing[0]["group_size"] == 6,
      f"between placements, over the far link: {crossing}")
equal([x["out"][0]["sbp"] for x in p["ops"] if x["why"] == "said" and x["op"] != "to_global"],
      ["(S(0),B)", "(B,S(1))"], "said")
equal(tessera_json("plan", path, "--set", "graph.x.shape=[16,6]")["ops"][0]["out"][0]["shape"],
      [16, 6], "--set")
equal(tessera_json("plan", path, "-n", "9")["ranks"], 9, "--ranks")
dot = os.path.join(FOLDER.name, "p.dot")
out, _ = tessera("plan", path, "--full", "--dot", dot)
with open(dot, encoding="utf-8") as f:
    text = f.read()
for part in ("tensors\n", "boxing\n", "communication of a step", "memory of a rank",
             "time of a step", "hand-shake 50.0 us, 1.00 GB/s", "said"):
    check(part in out, f"text lacks {part!r}: {out}")



def rounded(x):
    """Figures to six digits, without times of compiling and names of files."""
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items() if k not in ("file", "compile_s", "infer_s")}
    if isinstance(x, list):
        return [rounded(v) for v in x]
    return float(f"{x:.6g}") if isinstance(x, float) else x


# The whole output, as JSON, as a picture and as text.
with open(os.path.join(os.path.dirname(__file__), "plan.json"), encoding="utf-8") as f:
    path = write(GRAPH)
    p = json.loads(tessera("plan", path, "--json")[0])
    equal(p["file"], path, "the file's name")
    equal(rounded(p), json.load(f), "plan.json")
equal(text, """\
digraph plan {
  graph [fontname=sans, fontsize=11, ranksep=0.3, nodesep=0.2, style=rounded];
  node [fontname=sans, fontsize=9, shape=box, margin="0.08,0.04"];
  edge [arrowsize=0.6];
  label="no layers with parameters";
    n0 [style=striped, fillcolor="#8ecae6:#ffffff", label="random\\nx\\n[8,6] (S(0),B)"];
    n1 [style=striped, fillcolor="#ffffff:#95d5b2", label="random\\nw\\n[6,10] (B,S(1))"];
  subgraph cluster2 {
    label="y";
    n2 [style=striped, fillcolor="#8ecae6:#95d5b2", label="matmul\\ny\\n[8,10] (S(0),S(1))"];
    n3 [style=filled, fillcolor="#8ecae6", label="send_recv 160 B\\n(S(0),S(1)) -> S(0)", shape=hexagon, penwidth=2];
  }
    n5 [style=filled, fillcolor="#ffffff", label="all_gather 160 B\\nS(0) -> B", shape=hexagon, penwidth=2];
  n0 -> n2;
  n1 -> n2;
  n2 -> n3;
  n3 -> n5;
  out5 [shape=ellipse, style=bold, label="output\\nz"];
  n5 -> out5;
}
""", "dot")

# Every word of it, but for the time that compiling took.
TIME = re.compile(r"compiled in [\d.]+ [num]?s\n")
out, _ = tessera("plan", write(GRAPH), "--full")
equal(TIME.sub("compiled in T\n", out), """\
p.yaml: graph, on 6 ranks
strategy   no layers with parameters
4 ops; compiled in T
tensors
  random         x                              f32[8,6] (S(0),B) on cpu:[[0,1],[2,3]]
      said at p.yaml:4
  random         w                              f32[6,10] (B,S(1)) on cpu:[[0,1],[2,3]]
      said at p.yaml:5
  matmul         y                              (S(0),B), (B,S(1)) -> f32[8,10] (S(0),S(1)) on
      cpu:[[0,1],[2,3]]
      of 36 legal; (S(0),B),(B,B) -> (S(0),B) +2.04 us; (S(0),S(0)),(B,B) -> (S(0),S(0)) +2.54 us;
      (S(0),S(1)),(B,S(0)) -> (S(0),P) +2.68 us; p.yaml:6
  to_global      z                              S(0) -> f32[8,10] S(0) on cpu:[4,5]
      said at p.yaml:7
boxing
  send_recv      y                              f32[8,10] (S(0),S(1)) on cpu:[[0,1],[2,3]] -> S(0)
      on cpu:[4,5]
      1 group of 6 ranks, link 2, 160 B, 50.2 us; to_global z reads S(0)
  all_gather     z                              f32[8,10] S(0) on cpu:[4,5] -> B
      1 group of 2 ranks, link 1, 160 B, 2.04 us; output 'z' reads B
communication of a step (what the busiest rank reads)
  send_recv           1 call         160 B      50.2 us
  all_gather          1 call         160 B      2.04 us
  for values between placements: send_recv, 1 call, 160 B, 50.2 us
  for outputs: all_gather over 2 ranks, 1 call, 160 B, 2.04 us
memory of a rank
  ranks 4-5: 512 B = 320 B inputs and outputs, 160 B communication, 32 B gaps
  ranks 0-3: 384 B = 296 B activations, 88 B gaps
time of a step (estimated)
  53.7 us: compute 1.53 us, communication 52.2 us, one behind the other
  spent on link 2 hand-shakes 93.4 %, link 1 hand-shakes 3.8 %, kernel starts 2.8 %, memory 0.1 %;
      bound by link 2 hand-shakes
  signatures were chosen op by op at 53.7 us, proven the least
  1.01 us of it is computed alike on up to 2 ranks
  link 1 within 2 ranks       hand-shake 2.00 us, 10.0 GB/s
  link 2 among all ranks      hand-shake 50.0 us, 1.00 GB/s
  own memory 16.0 GB/s, 80.0 GFLOP/s in f32, kernel start 500 ns
  figures: the file's cluster; others built in; `tessera info --measure` measures
""", "the graph")
out, _ = tessera("plan", write(GRAPH), "--long")
equal(out, """\
p.yaml: graph, on 6 ranks
strategy   no layers with parameters
step       53.7 us; bound by link 2 hand-shakes
  link 2 hand-shakes         50.2 us  93.4 %  ##############################
  link 1 hand-shakes         2.04 us   3.8 %  #
  kernel starts              1.50 us   2.8 %  #
  memory                     32.0 ns   0.1 %
           nothing overlaps; 1.01 us of it is computed alike on up to 2 ranks
memory     512 B on ranks 4-5; others down to 384 B
  inputs and outputs           320 B  62.5 %  ##############################
  communication                160 B  31.2 %  ###############
  gaps                          32 B   6.2 %  ###
traffic    320 B a step, read by the busiest rank of each group
  values between placements: send_recv                        160 B    50.2 us
  outputs: all_gather over 2 ranks                            160 B    2.04 us
next best  one op otherwise, all others as they are, at each place
  +2.04 us matmul y: (S(0),B),(B,B) -> (S(0),B)
figures    the file's cluster; others built in; `tessera info --measure` measures
""", "the graph on a screen")
out, _ = tessera("plan", write(TRAIN, RANKS=list(range(8)), BATCH=2004), "--full")
equal(out[out.index("  expand  "):], """\
  expand         loss                           B -> f32[2004] S(0)
      of 3 legal; B -> B +1.06 us; p.yaml:3
  ce_dx          loss                           S(0), S(0), S(0), S(0) -> f32[2004,10] S(0)
      of 4 legal; p.yaml:3
  linear_dx      * x2                           S(0), B -> f32[2004,256] S(0)  of 6 legal
  linear_dw      4                              S(0), S(0) -> f32[10,256] P  of 6 legal
  unary_grad     * x2                           S(0), S(0) -> f32[2004,256] S(0)  of 4 legal
  sum            4                              S(0) -> f32[10] P  of 4 legal
  linear_dw      2                              S(0), S(0) -> f32[256,256] P  of 6 legal
  sum            * x2                           S(0) -> f32[256] P  of 4 legal
  linear_dw      0                              S(0), S(0) -> f32[256,64] P  of 6 legal
  sgd            0.weight                       B, B, B, B -> f32[256,64] B, f32[256,64] B
      the only legal one; p.yaml:5
  sgd            *.bias x2                      B, B, B, B -> f32[256] B, f32[256] B
      the only legal one; p.yaml:5
  sgd            2.weight                       B, B, B, B -> f32[256,256] B, f32[256,256] B
      the only legal one; p.yaml:5
  sgd            4.weight                       B, B, B, B -> f32[10,256] B, f32[10,256] B
      the only legal one; p.yaml:5
  sgd            4.bias                         B, B, B, B -> f32[10] B, f32[10] B
      the only legal one; p.yaml:5
fusion (of ops in one pass over memory)
  chain          * x2                           linear, relu
  alone          * x2                           nothing beside it can go by its rows
  fused          loss                           softmax_max, ce_terms and ce_finish
  chain          * x2                           linear_dx, linear_dw, unary_grad
boxing
  all_reduce     loss                           f32[] P -> B
      1 group of 8 ranks, shared memory, 28 B, 3.00 us; output 'loss' reads B
  all_reduce     gradient bucket 0              P -> B, 6 tensors
      1 group of 8 ranks, shared memory, 595 KB, 102 us; gradients for their optimizer
communication of a step (what the busiest rank reads)
  all_reduce          2 calls       595 KB       105 us
  for gradients: all_reduce over 8 ranks, 1 call, 595 KB, 102 us
  for outputs: all_reduce over 8 ranks, 1 call, 28 B, 3.00 us
memory of a rank
  ranks 0-3: 1.79 MB = 771 KB activations, 340 KB optimizer, 340 KB parameters, 272 KB gradients,
      66.3 KB inputs and outputs, 1.11 KB gaps
  ranks 4-7: 1.79 MB = 768 KB activations, 340 KB optimizer, 340 KB parameters, 272 KB gradients,
      66.0 KB inputs and outputs, 1.11 KB gaps
time of a step (estimated)
  1.91 ms: compute 1.81 ms, communication 105 us, one behind the other
  spent on compute 75.3 %, memory 18.5 %, shared memory 5.5 %, kernel starts 0.7 %; bound by compute
  signatures were chosen op by op at 1.91 ms, proven the least; less 2.88 us for ops that are fused:
      1.91 ms
  1.00 us of it is computed alike on up to 8 ranks
  shared memory among all ranks      hand-shake 3.00 us, 8.00 GB/s
  own memory 16.0 GB/s, 80.0 GFLOP/s in f32, kernel start 500 ns
  figures: built in; `tessera info --measure` measures
""", "training")
out, _ = tessera("plan", write(TRAIN, RANKS=list(range(8)), BATCH=2004), "--long")
equal(out, """\
p.yaml: mlp, 85.0 K parameters in 6 tensors, on 8 cpu ranks
strategy   data parallel x8
step       1.91 ms: 1.05 M samples/s; bound by compute
  compute                    1.44 ms  75.3 %  ##############################
  memory                      354 us  18.5 %  #######
  shared memory               105 us   5.5 %  ##
  kernel starts              13.5 us   0.7 %
           nothing overlaps
memory     1.79 MB on ranks 0-3
  activations                 771 KB  43.1 %  ##############################
  optimizer                   340 KB  19.0 %  #############
  parameters                  340 KB  19.0 %  #############
  gradients                   272 KB  15.2 %  ###########
  other                      67.4 KB   3.8 %  ###
traffic    595 KB a step, read by the busiest rank of each group
  gradients: all_reduce over 8 ranks                         595 KB     102 us
  outputs: all_reduce over 8 ranks                             28 B    3.00 us
figures    built in; `tessera info --measure` measures
""", "training on a screen")

# Equal lines are one; --verbose shows all.
path = write(TRAIN.replace("layers: 3", "layers: 40"), RANKS=[0, 1], BATCH=8)
short, long = tessera("plan", path, "--full")[0], tessera("plan", path, "--verbose")[0]
check(short.count("\n") < long.count("\n") / 3, "grouping")
check("\n  linear         * x39 " in short and "\n  sgd            *.weight x38 " in short, f"how many: {short}")
check(not re.search(r"x38 .*\n(?:.*\n)*.*x38", long), f"--verbose folds: {long}")

# Each shipped example fits 80 columns and 24 lines, and 100 columns and 40 lines; no line of any text is wider than
# the terminal, lines do not end in blanks, no line stands twice among those of ops or boxing.
EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples/experiments")
examples = sorted(f for f in os.listdir(EXAMPLES) if f.endswith(".yaml"))
check(len(examples) > 10, f"examples: {examples}")
SCREENS = {80: {"COLUMNS": "80", "LINES": "24"}, 100: {"COLUMNS": "100", "LINES": "40"}}
for name in examples:
    for columns in SCREENS:
        for options in (("--long",), ("--full",)):
            out, _ = tessera("plan", os.path.join(EXAMPLES, name), *options, env=SCREENS[columns])
            lines = out.split("\n")[:-1]
            what = f"{name} {options} in {columns} columns"
            wide = [x for x in lines if len(x) > columns and " " in x.strip()]
            check(not wide, f"{what}: {wide}")
            check(not [x for x in lines if x != x.rstrip()], f"{what}: blanks at the end")
            check(options == ("--full",) or len(lines) <= (24 if columns == 80 else 40), f"{what}: {len(lines)} lines")
            for word in (r"auto[, ]", "e[+]0", r"\b1 (?:calls|tensors|ranks|layers|groups)\b", "variable's own"):
                check(not re.search(word, out), f"{what}: {word}")
            check(not re.search(r"\d{4,} (?:[num]?s|[KMGT]?B|[GT]FLOP)\b", out), f"{what}: four digits")
            if options == ("--full",) and columns == 100:
                rows = re.findall(r"^  \S+ .*(?:\n {6}.*)*", out[:out.index("communication of a step")], re.M)
                equal(len(rows), len(set(rows)), f"{what}: equal lines")
                check(not [x for x in rows if len(x.split(" ", 3)[2]) < 15 and x[17] == " "], f"{what}: no name")

# What the shipped examples say that they do.
for name, words in (("attention", "Megatron pairs x4 in 1 of 1 block, sequence-parallel norms (1 of 3)"),
                    ("auto", "each of 2 axes: no common name x2: of 53 layers"), ("dp2", "data parallel x2"),
                    ("dp4", "data parallel x4"), ("grid2x2", "axis 0: data parallel x2; axis 1: no common name"),
                    ("one", "one rank"), ("pipeline2", "pipeline of 2 stages, each data parallel x2"),
                    ("sharded", "no common name x4: of 53 layers 39 by rows with gathered weights,"),
                    ("tensor_parallel", "Megatron pair x2"),
                    ("zero", "no common name x4: of 53 layers 42 by rows of the batch,")):
    out, _ = tessera("plan", os.path.join(EXAMPLES, name + ".yaml"), "--long", env={"COLUMNS": "400"})
    check(f"\nstrategy   {words}" in out, f"{name}: {out}")
check("; optimizer states in parts\n" in out, f"zero: {out}")

# One number for a step: that by which signatures were chosen is said with what came after it.
out, _ = tessera("plan", os.path.join(EXAMPLES, "dp2.yaml"), "--full")
steps = re.search(r"chosen op by op at ([\d.]+) ms, .*?; less ([\d.]+) ms for ops that are\s+fused; .*: "
                  r"([\d.]+) ms\n", out, re.S)
near(float(steps[1]) - float(steps[2]), float(steps[3]), "what fusing saves", rel=5e-3)
check(f"\n  {steps[3]} ms: compute" in out, "the step's time")

# The rules of a file are named with their lines, ops that the file declares with theirs, and a
# conversion with all its readers.
out, _ = tessera("plan", os.path.join(EXAMPLES, "attention.yaml"), "--full")
for text in ("blocks.0.attn.q.weight +8      f32[128,128] S(0)\n      said by '*.attn.[qkv].*' at attention.yaml:19\n",
             "x                              f32[2,1,8,128] B  said at attention.yaml:15\n",
             "linear, linear_dw blocks.0.mlp.fc1 read B\n", "the only legal one; attention.yaml:23\n"):
    check(text in out, f"{text!r} is missing: {out}")
titles = set(re.findall(r"^  (\w+) ", out[:re.search("\nfusion|\nboxing", out).start()], re.M))
for reader in re.findall(r"us; ((?:\w+, )*\w+) \S+ reads? ", out):
    check(set(reader.split(", ")) <= titles, f"{reader} is not in the table: {titles}")
out, _ = tessera("plan", os.path.join(EXAMPLES, "matmul.yaml"), "--full")
for text in ("output 'z' and mean l read B\n", "  matmul         y   ", "  mean           l   ",
             "f32[2,3] S(0)  said at matmul.yaml:9\n"):
    check(text in out, f"{text!r} is missing: {out}")
names = [x["name"] for x in tessera_json("plan", os.path.join(EXAMPLES, "matmul.yaml"))["ops"]]
check(all(names) and {"x", "w", "y", "z", "l"} <= set(names), f"names: {names}")
out, _ = tessera("plan", os.path.join(EXAMPLES, "zero.yaml"), "--full")
check("S(0)\n      said by 'optimizer.state' at zero.yaml:20\n" in out, "a state's signature")

# What clips and accumulates gradients has a name too.
p = tessera_json("plan", write(TRAIN.replace("momentum: 0.9", "momentum: 0.9, clip_norm: 1, accumulate: 2"),
                               RANKS=[0, 1], BATCH=64))
check(all(x["name"] for x in p["ops"] + p["boxing"]), f"names: {[x for x in p['ops'] if not x['name']]}")

# Ranks of a mesh are told by its axes where that is shorter; the operations a second are those of what is computed in.
file = os.path.join(EXAMPLES, "gpt_dp_tp.yaml")
for options in (("--long",), ("--full",)):
    out, _ = tessera("plan", file, *options, env=SCREENS[80])
    check("tp 0-6 of each dp" in out and ",..." not in out, f"{options}: {out}")
for dtype, tflops in (("f32", 67), ("bf16", 989.5)):
    model = tessera_json("plan", file, "--set", f"dtype={dtype}")["model"]
    near(model["flops_per_s"], 0.803e12 * tflops, dtype)
    equal((model["dtype"], model["flops_per_s"]), (dtype, model["dtype_flops_per_s"][dtype]), dtype)
    near(model["dtype_flops_per_s"]["f64"], 0.803e12 * 67, "f64 beside it")
    check(f" TFLOP/s in {dtype}, kernel start" in tessera("plan", file, "--full", "--set", f"dtype={dtype}")[0], dtype)
# Times are figures, of which no part is folded as names' numbers are; no time is 0.
for name in ("auto", "attention"):
    out, _ = tessera("plan", os.path.join(EXAMPLES, name + ".yaml"), "--full")
    check(not re.search(r"\d\.\* |\+\*|0\.00 ns", out), f"{name}: {out}")
# What bounds a step is the same in each text: a link's bytes and hand-shakes are one.
screen, full = tessera("plan", file, "--long")[0], tessera("plan", file, "--full")[0]
check("; bound by network;" in screen and "; bound by network\n" in full, screen + full)

# Tokens are those that the embedding looks up: all bytes of a row but the last.
out, _ = tessera("plan", write("""\
tessera: 1
placements: {all: {ranks: [0, 1]}}
model: {name: gpt, args: {layers: 1, heads: 2, width: 16}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, batch_size: 4}
parameters: [{match: "*", placement: all, sbp: B}]
"""), "--long")
pace = re.search(r"step +([\d.]+) (ms|us): ([\d.]+) ([KM]?) ?tokens/s, ([\d.]+) ([KM]?) ?samples/s", out)
scale = {"": 1, "K": 1e3, "M": 1e6}
seconds = float(pace[1]) * {"ms": 1e-3, "us": 1e-6}[pace[2]]
near(float(pace[3]) * scale[pace[4]], 4 * 63 / seconds, "tokens a second", rel=0.02)
near(float(pace[5]) * scale[pace[6]], 4 / seconds, "samples a second", rel=0.02)

# Ranks that hold no layer count too.
out, _ = tessera("plan", write("""\
tessera: 1
placements: {a: {ranks: [0, 1]}, b: {ranks: [2, 3]}}
graph:
  x: {op: normal, placement: a, sbp: S(0), shape: [8,6]}
  w: {op: parameter, normal: [0, 0.1], shape: [6,4], placement: a, sbp: B}
  y: {op: matmul, in: [x, w]}
  z: {op: to_global, in: y, placement: b, sbp: B}
  v: {op: relu, in: z}
fetch: [v]
"""), "--long")
check(out.startswith("p.yaml: graph, 24 parameters in 1 tensor, on 4 ranks\nstrategy   data parallel x2\n"), out)

# A batch that is not split is computed as often as there are ranks.
path = write(TRAIN.replace("hidden: 256", "hidden: 16") + "tensors: {input: {sbp: B}, label: {sbp: B}}\n", RANKS=[0, 1],
             BATCH=2)
out, _ = tessera("plan", path, "--long")
same = re.search(r"strategy   replicated x2\n(?:.*\n)* +([\d.]+) us of it is computed alike on up to 2 ranks\n", out)
p = tessera_json("plan", path)
alike = sum(x["cost_s"] for x in p["ops"] if x["op"] not in ("sgd", "input", "variable") and
            all(v["sbp"] == "B" for v in x["in"] + x["out"]))
near(float(same[1]), 1e6 * alike, "what both compute", rel=5e-3)

# Thousands of ranks.
used_s = children_s()
p = tessera_json("plan", write(TRAIN, RANKS=list(range(4096)), BATCH=5000))
check_sums(p, "4096 ranks")
check(children_s() - used_s < 10 * SLOWER, f"4096 ranks took {children_s() - used_s:.1f} s")
equal([(m["ranks"], m["nranks"]) for m in p["memory"]], [("0-903", 904), ("904-4095", 3192)],
      "classes of ranks")

# Errors are the library's.
_, err = tessera("plan", "/nonexistent.yaml", code=1)
check("/nonexistent.yaml" in err, err)
_, err = tessera("plan", write(GRAPH.replace("matmul", "matmull")), code=1)
check("p.yaml:6:" in err and "matmul'" in err, err)
_, err = tessera("plan", write(GRAPH), "-n", "3", code=1)
check("ranks" in err, err)
_, err = tessera("plan", write(TRAIN, RANKS=[0, 1], BATCH=64), "--memory-limit", "10K", code=1)
check("bytes" in err, err)
_, err = tessera("plan", write(GRAPH), "--memory-limit", "much", code=2)
check("--memory-limit needs bytes, like 512M or 1.5GiB, not much" in err, err)


def refusal(path, limit, *options):
    """The need in a refusal, its parts and its lines; checks that they add up and what they fit."""
    _, err = tessera("plan", path, "-m", str(limit), *options, code=1)
    need = int(re.search(r"the need (\d+) bytes", err)[1])
    terms = dict((m[1].strip(), int(m[2])) for m in re.finditer(r"^ {4}(\S.{18,20}) .*?(\d+) bytes$",
                                                                err, re.M))
    equal(sum(terms.values()), need, f"the terms' sum: {err}")
    check(max(map(len, err[len("tessera plan: "):].split("\n"))) <= 100, err)
    p = tessera_json("plan", path, "-m", str(need), *options)
    check(need * 0.97 < p["memory"][0]["total"] <= need, "a plan that keeps the limit which was said")
    return need, terms, err


# What a refusal says is so: the terms add up, and a plan keeps what is said to fit.
files = os.path.join(os.path.dirname(__file__), "../../examples/experiments")
for name in ("attention", "tensor_parallel", "matmul"):
    file = os.path.join(files, name + ".yaml")
    need, terms, err = refusal(file, 1)
    m = tessera_json("plan", file, "-m", str(need))["memory"][0]
    for term, key in (("parameters", "parameters"), ("optimizer states", "optimizer"),
                      ("activations", "activations"), ("gradients", "gradients"),
                      ("collectives' results", "communication")):
        check(m["total"] != need or terms.get(term, m[key]) == m[key], f"{term} of {m} in {err}")
    equal(refusal(file, need * 9 // 10)[0], need, "one answer for all limits")
# A batch that is said to fit is the largest by halving, and does.
path = write(TRAIN, RANKS=[0, 1], BATCH=20000)
half = refusal(path, "2M")[0] * 2 // 5
_, err = tessera("plan", path, "-m", str(half), code=1)
batch = int(re.search(r"what fits: --set data.batch_size=(\d+), where the file has 20000$", err,
                      re.M)[1])
for rows, code in ((batch, 0), (2 * batch, 1)):
    tessera("plan", path, "-m", str(half), "--set", f"data.batch_size={rows}", code=code)
_, err = tessera("plan", write(TRAIN, RANKS=[0, 1], BATCH=4), "-m", "1K", code=1)
check("a smaller batch is not enough: --set data.batch_size=1 does not fit\n" in err, err)
# Sharded states and parameters, alone and with a smaller batch: whatever is named fits.
OWN = TRAIN + "parameters: [{match: '*', sbp: B}]\n"
for batch, limit, overrides in ((8, 700000, 2), (20000, 480000, 3), (8, 300000, 2), (8, 3000, 0)):
    path = write(OWN, RANKS=[0, 1, 2, 3], BATCH=batch)
    _, err = tessera("plan", path, "-m", str(limit), code=1)
    named = re.findall(r"^  what fits:( --set .*?)(?:, where .*)?$", err, re.M)
    for change in named:
        tessera("plan", path, "-m", str(limit), *shlex.split(change))
    equal([change.count("--set") for change in named], [overrides] if overrides else [], err)
    equal(bool(named), "nothing fits of what was tried" not in err, f"{limit}: {err}")
# What ranks could share comes first, in the word for it.
SHARING = """\
tessera: 1
mesh: {MESH}
model: {name: gpt, args: {width: 512, layers: 4, heads: 8, dropout: 0}}
data: {dataset: synthetic, shape: [1, 4, 4], classes: 2, samples: 1024, batch_size: 8}
strategy: {WORDS}
optimizer: {name: adamw}
"""
TWO = {"MESH": "dp: 4, tp: 2", "WORDS": "dp: data, tp: megatron"}
for words, limit, first in (({"MESH": "dp: 8", "WORDS": "dp: zero1"}, "48M", "strategy=zero3"),
                            (TWO, "60M", "strategy.dp=zero3")):
    path = write(SHARING, **words)
    _, err = tessera("plan", path, "-m", limit, code=1, timeout=110)
    named = re.findall(r"^  what fits:( --set .*?)(?:, where .*)?$", err, re.M)
    check(named and first in shlex.split(named[0]), f"{words} within {limit}: {err}")
    for change in named:
        tessera("plan", path, "-m", limit, *shlex.split(change))
used_s = children_s()
need, _, err = refusal(write(TRAIN, RANKS=list(range(4096)), BATCH=5000), 1000)
check(" on ranks 0-903\n" in err and "\n  ranks 904-4095: " in err and err.count("\n") < 30, err)
check(children_s() - used_s < 20 * SLOWER, f"4096 ranks took {children_s() - used_s:.1f} s")
# The graph needs 512 B on ranks 4 and 5: a byte less in any unit is too little.
path = write(GRAPH)
for unit, size in (("", 1), ("B", 1), ("K", 1e3), ("KB", 1e3), ("Ki", 1024), ("KiB", 1024),
                   ("M", 1e6), ("MiB", 1 << 20), ("GB", 1e9), ("Gi", 1 << 30), ("T", 1e12),
                   ("TiB", 1 << 40)):
    for count in (512, 511):
        _, err = tessera("plan", path, "-m", f"{count / size!r}{unit}", code=0 if count == 512 else 1)
        check(count == 512 or "511 B a rank" in err and "needs 512 B" in err, f"{unit}: {err}")
tessera("plan", path, "-m", "4611686018427387904")
for text in ("1KK", "1k", "-1", "", "1iB", "nan", "inf", "1e", "1Kib", "K", "4.7e18", "1e30"):
    _, err = tessera("plan", path, "-m", text, code=2)
    check(f"-m needs bytes, like 512M or 1.5GiB, not {text}\n" in err, err)
_, err = tessera("plan", write(GRAPH), "--dot", "/nonexistent/x.dot", code=1)
check("/nonexistent/x.dot: No such file" in err, err)
_, err = tessera("plan", code=2)
check("no FILE.yaml to plan" in err, err)
# Gradients are called so also where a rule brings them into a signature before their update.
out, _ = tessera("plan", os.path.join(os.path.dirname(__file__), "../../examples/experiments/own_layers.yaml"),
                 "--set", "strategy=zero1", "--long")
check("  gradients: all_reduce over 4 ranks  " in out and "backward values" not in out, out)
done()
