#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera run: values as NumPy's, each rank's part, what was communicated against what was
planned, traces, and the same on threads and on processes. usage: run.py TESSERA"""
import json
import os
import re
import shlex
import tempfile

from harness import IS_INSTRUMENTED, check, done, equal, near, needs, scaled, tessera, tessera_json

np = needs("numpy")

FOLDER = tempfile.TemporaryDirectory()
X = np.arange(42, dtype=np.float32).reshape(7, 6) % 5 - 2
W = (np.arange(30, dtype=np.float32).reshape(6, 5) * 7) % 11 - 5

GRAPH = {
    "tessera": 1,
    "placements": {"a": {"ranks": [[0, 1], [2, 3]]}, "b": {"ranks": [3, 1, 2]}},
    "graph": {
        "x": {"op": "constant", "value": X.tolist(), "placement": "a", "sbp": "(S(0),B)"},
        "w": {"op": "parameter", "value": W.tolist(), "placement": "a", "sbp": "(B,S(1))"},
        "y": {"op": "matmul", "in": ["x", "w"]},
        "p": {"op": "to_global", "in": ["y"], "placement": "a", "sbp": "(P,B)"},
        "z": {"op": "to_global", "in": ["y"], "placement": "b", "sbp": "S(0)"},
        "h": {"op": "cast", "in": ["z"], "dtype": "f16"},
        "s": {"op": "mul", "in": ["y", "y"]},
        "l": {"op": "sum", "in": ["s"]},
    },
    "loss": "l",
    "fetch": ["y", "p", "z", "h", "l", "grad(w)"],
}
TRAIN = """\
tessera: 1
placements: {all: {ranks: [0,1,2,3]}}
model: {name: mlp, args: {inputs: 64, hidden: 32, outputs: 10, layers: 3}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 120, batch_size: 30}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 2, seed: 3}
"""


def path(name):
    return os.path.join(FOLDER.name, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))
    return path(name)


def load(folder, name):
    return np.load(os.path.join(folder, name + ".npy"))


def result_of(folder):
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as f:
        return json.load(f)


def check_communication(result, what):
    """Executed is what was planned, in all and on each rank."""
    for c in result["collectives"] + [c for r in result["per_rank"] for c in r["collectives"]]:
        equal((c["calls"], c["bytes"]), (c["planned_calls"], c["planned_bytes"]),
              f"{what}: {c['kind']}")
    for c in result["collectives"]:
        mine = [d for r in result["per_rank"] for d in r["collectives"] if d["kind"] == c["kind"]]
        equal(sum(d["bytes"] for d in mine), c["bytes"], f"{what}: {c['kind']} of all ranks")
    for r in result["per_rank"]:
        m = dict(r["memory"])
        check(m.pop("scratch") <= m["activations"], f"{what}: kernels' scratch is part of activations")
        equal(m.pop("peak"), sum(m.values()), f"{what}: memory")


def check_graph(folder, what):
    y = X @ W
    expected = {"y": y, "p": y, "z": y, "h": y.astype(np.float16), "l": (y * y).sum(),
                "grad(w)": X.T @ (2 * y)}
    for name, value in expected.items():
        found = load(folder, name)
        check(found.dtype == value.dtype and found.shape == np.shape(value),
              f"{what}: {name} is {found.dtype}{found.shape}")
        check(np.array_equal(found, value), f"{what}: {name} is {found}, expected {value}")
    # Rank r of the 2x2 placement is at (r / 2, r % 2).
    p = [load(folder, f"p.rank{r}") for r in range(4)]
    for j in range(2):
        check(np.array_equal(p[j] + p[2 + j], y), f"{what}: addends of column {j}")
    parts = [load(folder, f"z.rank{r}") for r in (3, 1, 2)]
    equal([q.shape for q in parts], [(3, 5), (2, 5), (2, 5)], f"{what}: parts of z")
    check(np.array_equal(np.concatenate(parts), y), f"{what}: z from its parts")
    check(not os.path.exists(os.path.join(folder, "z.rank0.npy")), f"{what}: rank 0 has no z")
    fetches = {f["name"]: f for f in result_of(folder)["fetches"]}
    equal((fetches["p"]["sbp"], fetches["z"]["sbp"], fetches["z"]["placement"]),
          ("(P,B)", "S(0)", "cpu:[3,1,2]"), f"{what}: signatures")
    for f in fetches.values():
        for name in [f["file"]] + f["shards"]:
            check(os.path.exists(os.path.join(folder, name)), f"{what}: {name} is missing")


def check_trace(folder, ranks, what):
    with open(os.path.join(folder, "trace.json"), encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    equal({e["pid"] for e in events}, set(range(ranks)), f"{what}: ranks in the trace")
    equal({e["tid"] for e in spans}, {0, 1}, f"{what}: rows")
    for pid in range(ranks):
        mine = sorted((e["ts"], e["dur"]) for e in spans if e["pid"] == pid)
        check(mine and mine[0][0] >= 0, f"{what}: rank {pid} has no events")
        check(all(a[0] + a[1] <= b[0] + 0.01 for a, b in zip(mine, mine[1:])),
              f"{what}: steps of rank {pid} overlap")
    begun = sorted((e["pid"], e["id"]) for e in events if e["ph"] == "b")
    ended = sorted((e["pid"], e["id"]) for e in events if e["ph"] == "e")
    check(begun and begun == ended, f"{what}: collectives under way")
    check(any(e["name"].startswith("matmul") and e["tid"] == 0 for e in spans), f"{what}: matmul")
    check(all(e["cat"] == ("communication" if e["tid"] else "compute") for e in spans), what)
    check(not [n for n in os.listdir(folder) if n.startswith(".")], f"{what}: parts left behind")
    check(min(e["ts"] for e in spans) < 1e5, f"{what}: times count from the step's begin")
    equal({(e["pid"], e.get("tid"), e["args"]["name"]) for e in events if e["ph"] == "M"},
          {row for r in range(ranks) for row in ((r, None, f"rank {r}"), (r, 0, "compute"),
                                                 (r, 1, "communication"))}, f"{what}: rows' names")
    names = {e["name"] for e in spans}
    check(all(re.fullmatch(r"[a-z_0-9]+( [\w.()]+)*", n) for n in names),
          f"{what}: names: {names}")
    talks = {e["name"] for e in events if e["ph"] == "b"}
    equal({n for n in names if n.endswith(" (wait)")}, {n + " (wait)" for n in talks},
          f"{what}: each collective is begun and awaited")


# A graph on threads, on processes; traced.
graph = write("graph.yaml", GRAPH)
out, _ = tessera("run", graph, "--out", path("threads"), "--trace")
check_graph(path("threads"), "threads")
check_communication(result_of(path("threads")), "threads")
check_trace(path("threads"), 4, "threads")
tessera("run", graph, "--out", path("a/b/c"), "--trace", launch=4)
check_graph(path("a/b/c"), "processes")
check_communication(result_of(path("a/b/c")), "processes")
check_trace(path("a/b/c"), 4, "processes")
# What is printed is the value.
text = re.search(r"^y: f32\[7,5\]\n(.*?\]\])", out, re.M | re.S).group(1)
check(np.array_equal(np.array(eval(re.sub(r"(?<=[\d.])\s+(?=[-\d\[])|(?<=\])\s+", ", ", text))),
                     X @ W), f"printed: {text}")
check("\r" not in out and "\033" not in out, "progress is for terminals")

# Large arrays are abridged as NumPy does.
for shape in ([30, 8, 9], [200], [3, 50], [2, 3], [1001], [2000, 2], [0], [3, 0], []):
    count = int(np.prod(shape))
    big = {"tessera": 1, "placements": {"a": {"ranks": [0]}},
           "graph": {"x": {"op": "constant", "arange": True, "shape": shape, "placement": "a",
                           "dtype": "i64"}}}
    out, _ = tessera("run", write("big.yaml", big))
    text = np.array2string(np.arange(count).reshape(shape))
    if count:
        equal(out, f"x: i64[{','.join(map(str, shape))}]\n{text}\n", f"printed as {shape}")
    else:
        check(out.startswith("x: i64["), f"an empty array: {out}")

# Digits that tell values of a type apart.
values = {"bool": ([True, False, True], "[ True False  True]"), "u8": ([0, 255, 7], "[  0 255   7]"),
          "i32": ([-5, 2147483647, 0], "[        -5 2147483647          0]"),
          "i64": ([-5, 9007199254740993, 0], "[              -5 9007199254740993                0]"),
          "f16": ([1 / 3, 2, -0.5], "[0.33325      2.    -0.5]"),
          "bf16": ([1 / 3, 2, -0.5], "[0.334    2.  -0.5]"),
          "f32": ([1 / 3, 2, -1e10], "[0.33333334         2.     -1e+10]"),
          "f64": ([1 / 3, 2, -0.5], "[0.33333333         2.       -0.5]")}
out, _ = tessera("run", write("types.yaml", {
    "tessera": 1, "placements": {"a": {"ranks": [0, 1]}}, "fetch": list(values),
    "graph": {t: {"op": "constant", "value": v, "dtype": t} for t, (v, _) in values.items()}}))
equal(out, "".join(f"{t}: {t}[3]\n{text}\n" for t, (_, text) in values.items()), "types")

# Training: one meaning on any number of ranks.
train = write("train.yaml", TRAIN)
losses = {}
for ranks in ("[0]", "[0,1]", "[0,1,2,3]"):
    r = tessera_json("run", train, "--set", f"placements.all.ranks={ranks}")
    losses[ranks] = r["losses"]
    equal((r["steps"], r["rows"], r["ranks"]), (8, 30, len(json.loads(ranks))), f"on {ranks}")
    check_communication(r, f"on {ranks}")
    near(r["rows_per_s"] / r["steps_per_s"], 30, "rows of a step")
    check(r["fastest_step_s"] <= r["seconds"] / 8 and r["compile_s"] > 0, "times")
for ranks in losses:
    for a, b in zip(losses["[0]"], losses[ranks]):
        near(a, b, f"losses on {ranks}", rel=1e-5)
check(losses["[0]"][0] > losses["[0]"][-1], f"it learns: {losses['[0]']}")
equal(tessera_json("run", train)["losses"], losses["[0,1,2,3]"], "the same again")
near(tessera_json("run", train, launch=4)["losses"][-1], losses["[0,1,2,3]"][-1], "processes")
r = tessera_json("run", train, "--steps", "2", "--out", path("two"))
equal(r["losses"], losses["[0,1,2,3]"][:2], "--steps")
equal(result_of(path("two"))["losses"], r["losses"], "result.json")
near(float(load(path("two"), "loss")), r["losses"][-1], "loss.npy is the last one", rel=1e-6)
out, _ = tessera("run", train)
equal(re.findall(r"^step (\d+): loss ", out, re.M), [str(i + 1) for i in range(8)], "text")
equal(len(re.findall(r"^step \d+: loss [\d.]+, \d+ rows/s$", out, re.M)), 8, "lines of steps")
table = out[out.index("8 steps of 30 rows in "):]
result = tessera_json("run", train)
check(re.search(r"^ +planned +measured\n  a step +[\d.]+ [um]s +[\d.]+ [um]s  rank 0, mean$", table,
                re.M), table)
kinds = {k["kind"]: k for k in result["step_by_kind"]}
check({"linear", "linear_dw", "sgd", "all_reduce"} <= set(kinds), f"kinds: {set(kinds)}")
for k in ("linear", "linear_dw", "sgd", "all_reduce"):
    check(f"\n    {k} " in table, f"{k} in {table}")
    check(kinds[k]["planned_s"] > 0 and kinds[k]["measured_s"] > 0, f"{k}: {kinds[k]}")
    equal(kinds[k]["communicates"], k == "all_reduce", f"{k}: communication")
near(sum(k["planned_s"] for k in kinds.values()), result["planned_step_s"], "kinds make the step")
# Ops that run as one step are planned and measured under its kind: no kind is planned that does not run.
for file in (train, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments/tensor_parallel.yaml")):
    r = tessera_json("run", file, "--steps", "2")
    alone = [k for k in r["step_by_kind"] if k["planned_s"] > 0 and k["measured_s"] == 0]
    check(not alone, f"{file}: planned, and never measured: {alone}")
    near(sum(k["planned_s"] for k in r["step_by_kind"]), r["planned_step_s"], f"{file}: kinds make the step", rel=1e-6)
check(sum(k["measured_s"] for k in kinds.values()) * 8 <= result["seconds"], "kinds are within the run")
equal(re.search(r"read from peers +([\d.]+ KB) +([\d.]+ KB)", table).groups(),
      ("%.0f KB" % (sum(c["bytes"] for c in result["collectives"]) / 8e3),) * 2, "bytes of a step")
check(re.search(r"  memory +[\d.]+ [KM]B +[\d.]+ [KM]B  this process", table), table)
# Steps alone run over as many epochs as they take; beside epochs they are a limit.
for said, steps in (("{steps: 10, seed: 3}", 10), ("{steps: 10, epochs: 1, seed: 3}", 4),
                    ("{steps: 3, epochs: 2, seed: 3}", 3), ("{seed: 3}", 4)):
    r = tessera_json("run", train, "--set", f"train={said}")
    equal((r["steps"], r["losses"][:8]), (steps, losses["[0,1,2,3]"][:steps]), f"train: {said}")
# A trace of an earlier run is not one of this.
tessera("run", train, "--steps", "2", "--out", path("two"), "--trace")
check(os.path.exists(path("two/trace.json")), "a trace")
tessera("run", train, "--steps", "2", "--out", path("two"))
check(not os.path.exists(path("two/trace.json")), "a stale trace")
# A loss that rank 0 does not have.
r = tessera_json("run", train, "-n", "5", "--steps", "2",
                 "--set", "placements.all.ranks=[3,4]")
for a, b in zip(losses["[0]"], r["losses"]):
    near(a, b, "losses on ranks 3 and 4", rel=1e-5)

# What goes wrong.
_, err = tessera("run", code=2)
check("no FILE.yaml to run" in err, err)
_, err = tessera("run", train, "--trace", code=2)
check("--trace needs --out" in err, err)
_, err = tessera("run", train, "--steps", "0", code=2)
check("--steps needs a number of steps, 1 or more, not 0" in err, err)
_, err = tessera("run", train, "--out", train, code=1)
check(train in err and "Not a directory" in err, err)
_, err = tessera("run", path("missing.yaml"), code=1)
check("missing.yaml" in err, err)
_, err = tessera("run", train, "-n", "2", code=1)
check("ranks" in err and "train.yaml" in err, err)
_, err = tessera("run", train, "--set", "train.stepz=3", code=1)
check("stepz" in err and "steps" in err, err)
_, err = tessera("run", train, "--memory-limit", "1K", code=1)
check("bytes" in err, err)

# A gradient that is not there, in the file's words.
for more, loss, error in (
        ({}, "l", "fetch[0]: the loss 'l' does not depend on 'w', but on x, v alone"),
        ({}, "x", "fetch[0]: the loss 'x' does not depend on 'w': it is constant, computed from nothing"),
        ({"m": {"op": "detach", "in": ["w"]}, "n": {"op": "sum", "in": ["m"]}}, "n",
         "fetch[0]: between 'w' and the loss 'n' stands an op without gradient")):
    _, err = tessera("run", write("nograd.yaml", {
        "tessera": 1, "placements": {"a": {"ranks": [0]}}, "loss": loss, "fetch": ["grad(w)"],
        "graph": {"x": {"op": "constant", "value": 2.0}, "v": {"op": "parameter", "fill": 1, "shape": [2]},
                  "w": {"op": "parameter", "fill": 1, "shape": [2]}, "y": {"op": "mul", "in": ["v", "x"]},
                  "l": {"op": "sum", "in": ["y"]}, **more}}), code=1)
    check(err.endswith(error + "\n"), err)

# A limit holds with kernels' scratch, which a plan without devices does not know of.
# A loss that is not finite: step 1 is fine, and its update sends the parameters to 1e36.
def train_badly(ranks, code, *options):
    file = write("bad.yaml", TRAIN.replace("lr: 0.1", "lr: 1e36"))
    said = tessera("run", file, "--steps", "5", "--out", path("bad"), "--set",
                   f"placements.all.ranks=[{ranks}]", *options, code=code)[1]
    left = result_of(path("bad"))
    os.remove(os.path.join(path("bad"), "result.json"))
    return said, left


for ranks in "0", "0,1,2,3":
    said, left = train_badly(ranks, 1)
    check(re.search(r"^tessera run: rank \d: step 2: the loss is nan; it begins in the result of "
                    r"\w+ '\d' \(mlp.c:\d+\), \d+ of \d+ elements nan", said), said)
    equal(said.count("\n"), 1, "lines of the error")
    equal((left["steps"], len(left["losses"])), (1, 1), "the step before it")
    equal((left["failed"]["step"], left["failed"]["planned_steps"]), (2, 5), "what has failed")
    check("step 2: the loss is nan" in left["failed"]["error"], left)
said, left = train_badly("0", 0, "--set", "train.on_nan=warn")
equal((said.count("the loss is nan"), len(left["losses"])), (1, 5), "a warning")
said, left = train_badly("0,1", 0, "--set", "train.on_nan=ignore")
equal((said, len(left["losses"])), ("", 5), "ignored")
printed = tessera("run", path("bad.yaml"), "--set", "train.on_nan=ignore", "--steps", "3")[0]
check("loss nan" in printed and "-nan" not in printed, printed)
printed, said = tessera("run", write("log.yaml", {
    "tessera": 1, "placements": {"a": {"ranks": [0]}},
    "graph": {"x": {"op": "constant", "value": [1.0, -1.0], "placement": "a"},
              "y": {"op": "log", "in": ["x"]}, "l": {"op": "sum", "in": ["y"]}},
    "loss": "l", "fetch": ["l", "grad(x)"]}))
check("nan" in printed, "a graph's values are printed as they are: " + printed)
check("the loss is nan; it begins in the result of log 'y' (log.yaml:1)" in said, said)


def most_used(*options):
    tessera("run", train, "--out", path("limited"), *options)
    return max(sum(r["memory"][k] for k in ("variables", "activations", "inputs_outputs"))
               for r in result_of(path("limited"))["per_rank"])


planned = max(m["total"] for m in json.loads(tessera("plan", train, "--json")[0])["memory"])
used = most_used()
check(planned < used, f"{planned} bytes without scratch, {used} with it")
equal(most_used("--memory-limit", str(used)), used, "the same plan within what it uses")
within = most_used("--memory-limit", str(planned))
check(within <= planned, f"{within} bytes used within {planned}")
_, err = tessera("run", train, "--memory-limit", str(planned // 3), code=1)
check("\n  rank 0, at" in err and "needs" in err and "parameters" in err, err)
need = int(re.search(r"the need (\d+) bytes", err)[1])
check(need * 0.9 < most_used("--memory-limit", str(need)) <= need, "what is said to fit does")
# A change that is said to fit does so, with scratch; the batch is the largest by halving.
fits = re.findall(r"what fits:( --set .*?)(?:, where .*)?$", err, re.M)
for change in fits:
    sets = shlex.split(change)
    check(most_used("--memory-limit", str(planned // 3), *sets) <= planned // 3, change)
check("what fits: --set data.batch_size=" in err or
      "--set data.batch_size=1 does not fit" in err or
      IS_INSTRUMENTED and "for want of time" in err, err)
_, err = tessera("run", train, "-n", "3", launch=4, code=1)
check("--ranks is 3, but the launcher has started 4" in err, err)
bad = write("label.yaml", {"tessera": 1, "placements": {"a": {"ranks": [0, 1]}}, "graph": {
    "x": {"op": "normal", "shape": [4, 3], "placement": "a", "sbp": "S(0)"},
    "y": {"op": "constant", "value": [0, 1, 2, 7], "dtype": "i64", "placement": "a", "sbp": "S(0)"},
    "l": {"op": "cross_entropy", "in": ["x", "y"]}}})
_, err = tessera("run", bad, code=1)
check("7" in err and "label" in err, err)
# What is planned of memory is plan's own figure; what comes to it is said.
for name in ("attention", "own_layers"):
    file = os.path.join(os.path.dirname(__file__), "../../examples/experiments", name + ".yaml")
    out, _ = tessera("run", file, "--set", "train.steps=2")
    units = ["B", "KB", "MB", "GB"]
    total = scaled(tessera_json("plan", file)["memory"][0]["total"], units)
    m = re.search(r"; (\S+ .B) on rank 0, which needs most:\n  (\S+ .B) tensors, as in `tessera plan`; (\S+ .B) kernels' scratch; "
                  r"(\S+ .B) records\n", out)
    check(m and m[2] == total, f"{name}: {total}: {out}")
    size = lambda text: float(text.split()[0]) * 1000 ** units.index(text.split()[1])
    near(size(m[2]) + size(m[3]) + size(m[4]), size(m[1]), "the parts of a rank's memory", rel=0.01)
    memory = re.search(r"  memory +(\S+ .B) +\S+ .B .*\n    tensors +(\S+ .B) +-\n    kernels' scratch +(\S+ .B) +-\n"
                       r"    plans' own records +(\S+ .B) +-\n", out)
    near(sum(map(size, memory.groups()[1:])), size(memory[1]), "the parts of the process's memory", rel=0.01)

# A GPU that is not to be had: where the file asks for it, and what does without.
NO_MODULE = {"TESSERA_CUDA_MODULE": "/nowhere/libtessera_cuda.so"}
FEED = ("model: {name: mlp}\ndata: {dataset: synthetic, shape: [1, 8, 8], classes: 10, samples: 64, batch_size: 8}\n"
        "tensors: {input: {sbp: S(0)}}\ntrain: {steps: 2}\n")
for name, head, place, override in (
        ("placed", "placements: {all: {device: cuda, ranks: [0, 1]}}\n", "2:28: placements.all.device", "placements.all.device=cpu"),
        ("meshed", "mesh: {dp: 2}\ndevice: cuda\n", "3:9: device", "device=cpu"),
        ("clustered", "mesh: {dp: 2}\ncluster: h100-sxm:1x8\n", "3:10: cluster", "device=cpu")):
    file = os.path.join(FOLDER.name, name + ".yaml")
    with open(file, "w", encoding="utf-8") as f:
        f.write("tessera: 1\n" + head + FEED)
    _, err = tessera("run", file, code=1, env=NO_MODULE)
    check(re.fullmatch(rf"tessera run: rank [01]: {re.escape(file)}:{place}: cuda can't be used here; --set {override} computes "
                       r"without a GPU, and `tessera plan` needs none\n  the module for cuda .* could not be loaded: .*\n", err), err)
    tessera("run", file, "--set", override, env=NO_MODULE)
    tessera("plan", file, env=NO_MODULE)
done()
