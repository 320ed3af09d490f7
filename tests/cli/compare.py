#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan A B: figures are those of each plan, and the tensors that differ are told, folded.
usage: compare.py TESSERA"""
import os
import re
import sys
import tempfile

from harness import check, done, equal, scaled, seconds, tessera, tessera_json

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()


def example(name):
    return os.path.join(EXAMPLES, name)


def size(b):
    return scaled(b, ["B", "KB", "MB", "GB", "TB"])


def section(out, title):
    """The lines of a section, as name -> cells."""
    rows, inside = {}, False
    for line in out.splitlines():
        if not line.startswith(" "):
            inside = line.startswith(title)
        elif inside:
            cells = re.split(r"\s{2,}", line.strip())
            rows[cells[0]] = cells[1:]
    return rows


def shares(plan):
    """What time is spent on: of a link its bytes and hand-shakes together, by its name."""
    links, sums = plan["model"]["links"], {}
    for spent, s in plan["step"]["spent_s"].items():
        m = re.match(r"link (\d+) ", spent)
        use = links[int(m[1]) - 1].get("name", f"link {m[1]}") if m else spent
        sums[use] = sums.get(use, 0) + s
    return sums


def check_figures(files, more=()):
    out, _ = tessera("plan", *files, *more)
    plans = [tessera_json("plan", f, *more) for f in files]
    time, memory = section(out, "time of a step"), section(out, "memory of the neediest rank")
    traffic = section(out, "bytes of a step")
    n = len(files)
    equal(time["in all"][:n], [seconds(p["step"]["cost_s"]) for p in plans], "time")
    for title in {k for p in plans for k in shares(p)}:
        equal(time[title][:n], [seconds(shares(p).get(title, 0)) for p in plans], title)
    uses = [k for k in time if k in shares(plans[0])]
    equal(uses, sorted(uses, key=lambda k: -shares(plans[0])[k]), "the longest of the first plan first")
    equal(memory["in all"][:n], [size(p["memory"][0]["total"]) for p in plans], "memory")
    for name, key in (("parameters", "parameters"), ("optimizer", "optimizer"),
                      ("activations", "activations"), ("gradients", "gradients")):
        equal(memory[name][:n], [size(p["memory"][0][key]) for p in plans], name)
    equal(traffic["in all"][:n], [size(p["totals"]["bytes"]) for p in plans], "bytes")
    for kind in {t["collective"] for p in plans for t in p["totals"]["collectives"]}:
        sent = [sum(t["bytes"] for t in p["totals"]["collectives"] if t["collective"] == kind)
                for p in plans]
        equal(traffic[kind][:n], [size(b) for b in sent], kind)
    return out, plans, (time, memory, traffic)


# Data parallelism and ZeRO: the states of the optimizer are what is said to differ.
out, plans, (time, memory, _) = check_figures([example("dp4.yaml"), example("zero.yaml")])
ratio = plans[1]["memory"][0]["optimizer"] / plans[0]["memory"][0]["optimizer"]
more = plans[1]["memory"][0]["optimizer"] - plans[0]["memory"][0]["optimizer"]
equal(memory["optimizer"][2], f"x{ratio:.3g} (-{size(-more)})", "how many times the optimizer's bytes, and how much less")
check(all("(" in v[2] for v in memory.values() if len(v) > 2), f"each ratio of sizes is a size too: {memory}")
kept = [{x["name"]: x["out"][0]["sbp"] for x in p["ops"] if x["op"] == "variable"} for p in plans]
differ = [name for name in kept[0] if kept[0][name] != kept[1][name]]
check(len(differ) > 100, f"{len(differ)} states are split")
rows = section(out, "signatures that differ")
told = {k: v for k, v in rows.items() if ".momentum_buffer" in k}
count = sum(int(k.split(" x")[1]) if " x" in k else 1 for k in told)
equal(count, len(differ), f"variables that differ, folded as {list(told)}")
check(all(v in (["B", "S(0)"], ["B", "S(1)"]) for v in told.values()), str(told))
check(len(told) < 8, "they are folded: " + str(told))
equal(list(rows)[0], list(told)[0], "what is kept comes first, the most of it")

# Ranks, batches, and three plans; dimensions of a mesh.
check_figures([example("dp2.yaml"), example("dp4.yaml"), example("grid2x2.yaml")])
check_figures([example("dp2.yaml"), example("dp4.yaml")], ["--set", "data.batch_size=32"])
out, plans, (_, _, traffic) = check_figures([example("grid2x2.yaml"), example("grid2x2.yaml")])
over = [v[0] for k, v in traffic.items() if re.fullmatch(r"over axis [01](\+axis 1)?", k)]
check(len(over) >= 2, str(traffic))
check(re.search(r"^all \d+ tensors of the same name have the same signature$", out, re.M), out)
check("x1" not in out, "nothing is more or less: " + out)

# Lines fit, and a name that is too long has its own.
files = [example(f"{name}.yaml") for name in ("dp4", "zero", "sharded", "grid2x2")]
for n in (2, 3, 4):
    out, _ = tessera("plan", *files[:n], env={"COLUMNS": "80"})
    wide = [x for x in out.splitlines() if len(x) > 80 or x != x.rstrip()]
    check(not wide, f"{n} plans: {wide}")

# Links by what they are, those of one plan beside those of another; axes by their names.
out, _, (time, _, traffic) = check_figures([example("gpt_dp_tp.yaml"), example("dp4.yaml")])
check(time["NVLink"][1] == "0 ns" and time["shared memory"][0] == "0 ns" and "network" in time, out)
check({"over dp", "over tp", "over dp+tp"} <= set(traffic), out)

# Other nets: what has no partner.
out, _, _ = check_figures([example("dp4.yaml"), example("attention.yaml")])
rows = section(out, "tensors without a partner")
check(rows["blocks.0.attn.*.weight x4" if "blocks.0.attn.*.weight x4" in rows else
           next(k for k in rows if k.startswith("blocks."))][0] == "-", "the first has no blocks")
check(any(k.startswith("features.") and v[1] == "-" for k, v in rows.items()), str(rows))

# What is wrong.
bad = os.path.join(FOLDER.name, "bad.yaml")
with open(bad, "w", encoding="utf-8") as f:
    f.write("tessera: 1\n")
_, err = tessera("plan", example("dp4.yaml"), bad, code=1)
equal(err, f"tessera plan: {bad} has no plan to compare\ntessera plan: {bad}:1:1: neither 'mesh' nor "
      "'placements' is there: where to compute, as in mesh: {dp: 16, tp: 8}\n", "a file that is wrong")
for args, text in ((["--json"], "json"), (["--why", "x"], "why"), (["--sweep", "a=1"], "sweep"),
                   (["--dot", "x"], "dot")):
    _, err = tessera("plan", example("dp2.yaml"), example("dp4.yaml"), *args, code=2)
    equal(err.splitlines()[0], "tessera plan: a comparison is told as text: there is no use for "
          f"--{text} beside it", text)
_, err = tessera("plan", *[example("dp2.yaml")] * 7, code=2)
check("there is no use for " in err, err)

done()
