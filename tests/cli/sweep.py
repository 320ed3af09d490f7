#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan --sweep: rows are the plans of their values, planned anew or priced again, the best
are marked, and what is refused says why. usage: sweep.py TESSERA"""
import csv
import itertools
import os
import sys
import tempfile

from harness import check, done, equal, near, seconds, tessera, tessera_json

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()
CSV = os.path.join(FOLDER.name, "out.csv")


def example(name):
    return os.path.join(EXAMPLES, name)


def sweep(path, *keys, more=(), code=0):
    """The rows of the CSV, and what was printed."""
    args = [a for key in keys for a in ("--sweep", key)]
    out, _ = tessera("plan", path, *args, "--csv", CSV, *more, code=code)
    with open(CSV, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f)), out


def signatures(plan):
    return [(x["name"], [v["sbp"] for v in x["in"] + x["out"]]) for x in plan["ops"]]


def figures(plan):
    memory = plan["memory"][0]
    return {"step_s": plan["step"]["cost_s"], "compute_s": plan["step"]["compute_s"],
            "communication_s": plan["step"]["communication_s"], "memory_bytes": memory["total"],
            "bytes_per_step": plan["totals"]["bytes"], "without_gaps": memory["total"] - memory["other"]}


def check_best(rows, what):
    """A column's best rows are those with its least, or most, figure, and no others."""
    planned = [r for r in rows if not r["error"]]
    for column, pick in (("step_s", min), ("samples_per_s", max), ("tokens_per_s", max), ("mfu", max),
                         ("memory_bytes", min), ("bytes_per_step", min)):
        if not planned[0][column]:
            continue
        best = pick(float(r[column]) for r in planned)
        differ = len({r[column] for r in planned}) > 1
        for r in planned:
            equal(column in r["best"].split(), differ and float(r[column]) == best,
                  f"{what}: {column} of {r}")


# A grid, planned anew: each row is the plan that --set gives.
path = example("dp4.yaml")
rows, out = sweep(path, "data.batch_size=8,32", "parameters[0].sbp=B,S(0)")
equal([(r["data.batch_size"], r["parameters[0].sbp"]) for r in rows],
      list(itertools.product(["8", "32"], ["B", "S(0)"])), "the grid, its last key runs fastest")
for r in rows:
    plan = tessera_json("plan", path, "--set", f"data.batch_size={r['data.batch_size']}", "--set",
                        f"parameters[0].sbp={r['parameters[0].sbp']}")
    expected = figures(plan)
    for key in ("step_s", "compute_s", "communication_s", "memory_bytes", "bytes_per_step"):
        near(float(r[key]), expected[key], f"{key} of {r}", rel=1e-8)
    near(float(r["samples_per_s"]), int(r["data.batch_size"]) / expected["step_s"],
         f"samples a second of {r}", rel=1e-8)
    equal((r["how"], r["error"]), ("re-planned", ""), "how")
check_best(rows, "a grid")
check("re-planned: each row is the best plan of its values, the other rows' plans among them\n" in out, out)
equal(len([line for line in out.splitlines() if "*" in line and "ms" in line]),
      len([r for r in rows if r["best"]]), "rows with a mark: " + out)

# No row is worse than another's plan, priced at its values; which is told where it shows.
batches = [2, 4, 8, 16, 24]
rows, out = sweep(example("attention.yaml"), "data.batch_size=" + ",".join(map(str, batches)))
priced = {b: sweep(example("attention.yaml"), "data.batch_size=" + ",".join(map(str, batches)),
                   more=["--set", f"data.batch_size={b}", "--fixed"])[0] for b in batches}
taken = 0
for i, (b, r) in enumerate(zip(batches, rows)):
    offers = {other: float(priced[other][i]["step_s"]) for other in batches if other != b}
    anew = tessera_json("plan", example("attention.yaml"), "--set", f"data.batch_size={b}")["step"]["cost_s"]
    near(float(r["step_s"]), min([anew, *offers.values()]), f"the cheapest of all plans: {r}", rel=1e-5)
    equal(r["how"], "re-planned" if anew <= min(offers.values()) * (1 + 1e-6) else "re-priced", str(r))
    best = min(offers, key=offers.get)
    if r["how"] == "re-priced" and seconds(anew) != seconds(offers[best]):
        check(f"      by the plan of data.batch_size={best}; found anew: {seconds(anew)}\n" in out, out)
        taken += 1
check(taken > 0, "a plan that another row takes: " + out)
# Where none may be priced again, none is; and lines fit, by shorter names of keys.
rows, out = sweep(example("attention.yaml"), "parameters[0].sbp=B,S(0)")
check("re-planned: each row is the best plan of its values\n" in out, out)
args = [a for key in ("data.batch_size=2,4", "cluster.ranks_per_node=1,2")
        for a in ("--sweep", key)]
out, _ = tessera("plan", example("attention.yaml"), *args, env={"COLUMNS": "80"})
check(out.split()[:2] == ["batch_size", "ranks_per_node"] and
      not [x for x in out.split("\n") if len(x) > 80 or x != x.rstrip()], out)

# Priced again: where the planner stays with the file's signatures, to the last digit its figures.
compared = 0
for name, ranks, batches in (("dp4.yaml", 4, (4, 32, 64)), ("dp4.yaml", 8, (24, 40)),
                             ("pipeline2.yaml", None, (8, 12)), ("tensor_parallel.yaml", None, (16, 64)),
                             ("zero.yaml", None, (16,)), ("sharded.yaml", None, (16,)),
                             ("grid2x2.yaml", None, (16,)), ("attention.yaml", None, (2,))):
    more = ["--set", f"placements.all.ranks={list(range(ranks))}"] if ranks else []
    base = tessera_json("plan", example(name), *more)
    batch = "data.batch_size=" + ",".join(map(str, batches))
    rows, out = sweep(example(name), batch, "cluster.latency_us=2.9,3.1", "cluster.bandwidth_gb_s=8.2",
                      "cluster.memory_gb_s=16,17", more=more + ["--fixed"])
    check("re-priced: each row is the file's own plan" in out, out)
    for r in rows:
        equal((r["how"], r["error"]), ("re-priced", ""), str(r))
        sets = more + [x for key, value in r.items() if "." in key for x in ("--set", f"{key}={value}")]
        plan = tessera_json("plan", example(name), *sets)
        expected = figures(plan)
        if signatures(plan) != signatures(base):
            # Then the planner has found something better; but for what later passes make of it, which
            # it does not foresee.
            check(expected["step_s"] <= float(r["step_s"]) * 1.01, f"{name}: {r}, {expected}")
            continue
        compared += 1
        for key in ("step_s", "compute_s", "communication_s"):
            near(float(r[key]), expected[key], f"{name}: {key} of {r}", rel=1e-8)
        equal(int(r["memory_bytes"]), expected["without_gaps"], f"{name}: memory of {r}")
        near(int(r["bytes_per_step"]), expected["bytes_per_step"], f"{name}: bytes of {r}", rel=1e-3)
    check_best(rows, name)
check(compared > 20, f"{compared} rows were compared")

# Points without a plan.
rows, out = sweep(path, "data.batch_size=16,300", "memory_limit=10MB,1GB")
equal([bool(r["error"]) for r in rows], [True, False, True, True], str(rows))
check(rows[0]["error"].startswith("no plan fits memory_limit, 10.0 MB a rank; the leanest found needs "),
      rows[0]["error"])
equal(rows[2]["error"], "'--set data.batch_size=300:1:17: data.batch_size: a batch of 300 rows; the "
      "set has 256", "more than there are, as text that no spreadsheet takes for a formula")
check("no plan: no plan fits memory_limit" not in out and "memory_limit, 10.0 MB a rank" in out, out)
rows, out = sweep(path, "data.batch_size=1,16,32", more=["--fixed", "--memory-limit", "70MB"])
equal([r["error"] for r in rows],
      ["the program has other ops at size 1", "", "this plan needs 78.4 MB a rank; "
       "memory_limit is 70.0 MB"], "of priced plans")
rows, out = sweep(path, "data.batch_size=300,400", code=1)
check(all(r["error"] for r in rows), "nothing has a plan")

# Values with commas in brackets and quotes; any path.
rows, _ = sweep(example("grid2x2.yaml"), 'tensors.label.sbp=(S(0),B),(B,B)')
equal([r["tensors.label.sbp"] for r in rows], ["(S(0),B)", "(B,B)"], "values in brackets")
rows, _ = sweep(path, "placements.all.ranks=[0,1],[0,1,2,3]")
check(float(rows[0]["step_s"]) > float(rows[1]["step_s"]), "more ranks are quicker")

# Tokens a second and MFU where there are such, and stars by what is asked.
small = ["--set", "mesh={dp: 2, tp: 4}", "--set", "cluster=h100-sxm:1x8", "--set", "model.args.layers=2"]
rows, out = sweep(example("gpt_dp_tp.yaml"), "data.batch_size=16,32,64", more=small)
for r in rows:
    step = tessera_json("plan", example("gpt_dp_tp.yaml"), *small, "--set", f"data.batch_size={r['data.batch_size']}")["step"]
    if r["how"] == "re-planned":
        for key in ("tokens_per_s", "samples_per_s", "mfu"):
            near(float(r[key]), step[key], f"{key} of {r}", rel=1e-8)
    near(float(r["tokens_per_s"]), 1023 * float(r["samples_per_s"]), f"tokens of {r}", rel=1e-8)
    check(f"  {100 * float(r['mfu']):.1f} %" in out and " tokens/s " in out and "samples/s" not in out, out)
fixed, _ = sweep(example("gpt_dp_tp.yaml"), "data.batch_size=16,32,64", more=small + ["--fixed", "--set", "data.batch_size=32"])
plan = tessera_json("plan", example("gpt_dp_tp.yaml"), *small, "--set", "data.batch_size=32")["step"]
near(float(fixed[1]["mfu"]), plan["mfu"], "MFU of the file's own plan", rel=1e-8)
near(float(fixed[2]["mfu"]) * float(fixed[2]["step_s"]), 2 * plan["mfu"] * plan["cost_s"], "twice the rows are twice the work", rel=1e-8)
for best, column, pick in (("step", "step_s", min), ("tokens_per_s", "tokens_per_s", max), ("mfu", "mfu", max),
                           ("samples_per_s", "samples_per_s", max), ("memory", "memory_bytes", min), ("sent", "bytes_per_step", min)):
    rows, out = sweep(example("gpt_dp_tp.yaml"), "data.batch_size=16,32,64", more=small + ["--best", best])
    want = pick(float(r[column]) for r in rows)
    equal([r["best"] for r in rows], [column if float(r[column]) == want else "" for r in rows], f"--best {best}")
    equal(out.count("*"), 2, f"--best {best}: one star, and what it says: {out}")
rows, out = sweep(path, "data.batch_size=8,16")
check(all(r["tokens_per_s"] == r["mfu"] == "" for r in rows) and "MFU" not in out, "no tokens, and no peak: " + out)
_, err = tessera("plan", path, "--sweep", "data.batch_size=8,16", "--best", "mfu", code=1)
check("--best mfu: no row has that figure" in err, err)
_, err = tessera("plan", path, "--sweep", "data.batch_size=8,16", "--best", "speed", code=2)
check("--best is step, samples_per_s, tokens_per_s, mfu, memory or sent, not 'speed'" in err, err)

# Many rows.
many = ",".join(str(i) for i in range(1, 501))
out, _ = tessera("plan", path, "--fixed", "--sweep", "cluster.bandwidth_gb_s=" + many)
check("... and 439 rows more, none of them better in a column (--verbose, or --csv FILE)\n" in out,
      out[-300:])
check(len(out.splitlines()) < 70, "a table that is looked at")
out, _ = tessera("plan", path, "--fixed", "--verbose", "--sweep", "cluster.bandwidth_gb_s=" + many)
equal(len(out.splitlines()), 503, "every row")

# Wrong command lines.
for args, text in ((["--sweep", "x"], "--sweep needs PATH=VALUE,VALUE,..., like data.batch_size=16,32, not 'x'"),
                   (["--sweep", "x="], "--sweep needs PATH=VALUE,VALUE,..., like data.batch_size=16,32, not 'x='"),
                   (["--sweep", "x=1,,2"], "--sweep x=1,,2: a value is missing behind 'x=1,'"),
                   (["--sweep", "train.steps=1,2", "--fixed"], "--fixed prices one plan for other figures "
                    "of cluster and data.batch_size; train.steps may change the plan: sweep it "
                    "without --fixed"),
                   (["--fixed"], "--fixed needs a --sweep"), (["--best", "mfu"], "--best needs a --sweep"), (["--csv", "x"], "--csv needs a --sweep"),
                   (["--sweep", "a=1", "--json"], "--sweep is told as text: there is no use for --json beside it"),
                   (["--sweep", "a=1", "--why", "x"], "--sweep is told as text: there is no use for --why beside it"),
                   (["--sweep", "a=" + many, "--sweep", "b=" + many, "--sweep", "c=" + many],
                    "--sweep: more than 1000000 points")):
    _, err = tessera("plan", path, *args, code=2)
    equal(err.splitlines()[0], "tessera plan: " + text, str(args)[:80])
for asked in (["--sweep", "data.batch_size=8"], ["--why", "x"]):
    _, err = tessera("plan", "-", *asked, code=2, stdin="")
    check(f"{asked[0]} reads its file again: that can't be standard input\n" in err, err)
_, err = tessera("plan", path, "--sweep", "data.batch_size=8", "--csv", "/nowhere/x.csv", code=1)
equal(err, "tessera plan: /nowhere/x.csv: No such file or directory\n", "a CSV that can't be written")

done()
