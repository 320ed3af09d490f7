#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first screen of tessera plan: short, with a verdict, one time, a layout in plain words, and
other layouts of which each is what its overrides plan. usage: screen.py TESSERA"""
import os
import re
import shlex
import tempfile

from harness import check, done, equal, near, scaled, seconds, tessera, tessera_json

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments")
FOLDER = tempfile.TemporaryDirectory()
UNITS = ["B", "KB", "MB", "GB", "TB"]
LABELS = ["step", "layout", "time", "search", "warning", "note", "try", "ignored", "figures"]


def example(name):
    return os.path.join(EXAMPLES, name + ".yaml")


def parts(screen):
    """The head, and the lines of each label."""
    head, found, label = [], {}, None
    for line in screen.splitlines():
        word = line[:9].strip()
        label = word if word in LABELS else label
        (found.setdefault(label, []) if label else head).append(line[9:] if label else line.strip())
    return " ".join(head), found


def size(b):
    return scaled(b, UNITS)


def tried(lines):
    """The layouts: (name, step, memory, overrides)."""
    found = []
    for line in lines:
        m = re.match(r"(\S.*?) {2,}([\d.]+ [num]?s) +\S+(?: %)? +([\d.]+ [KMGT]?B) +\S+(?: %)?(?: +(--set .*))?$", line)
        if m:
            found.append([m[1], m[2], m[3], m[4] or ""])
        else:
            found[-1][3] += " " + line.strip().rstrip("\\")
    return [(name, step, memory, shlex.split(sets)) for name, step, memory, sets in found]


def largest(spent, links):
    """The use of most time, where a link's bytes and hand-shakes are one, and the part of all."""
    sums, shakes = {}, {}
    for name, s in spent.items():
        m = re.match(r"link (\d+) (.*)", name)
        use = links[int(m[1]) - 1].get("name", "link " + m[1]) if m else name
        sums[use] = sums.get(use, 0) + s
        if m and m[2] == "hand-shakes" and s > spent.get(f"link {m[1]} bytes", 0):
            shakes[use] = " hand-shakes"
    most = max(sums, key=sums.get)
    return most + shakes.get(most, ""), sums[most]


def check_screen(file, *args, columns=100):
    out, _ = tessera("plan", file, *args, env={"COLUMNS": str(columns)})
    plan = tessera_json("plan", file, *args)
    what = f"{file} {args}: {out}"
    lines = out.splitlines()
    check(len(lines) <= 24, f"{len(lines)} lines: {what}")
    check(not [x for x in lines if len(x) > columns or x != x.rstrip()], f"too wide, or blanks at an end: {what}")
    check("exact" not in out and "proven" not in out, f"an estimate is called so: {what}")
    head, p = parts(out)
    equal([x for x in LABELS if x in p and x not in ("warning", "note", "try", "search")], ["step", "layout", "time", "ignored", "figures"], what)
    memory, limit = size(plan["memory"][0]["total"]), plan.get("memory_limit")
    least = "" if plan["memory"][0]["exact"] else "at least "
    verdict = f"FITS  {least}{memory} of {size(limit)}" if limit else f"{least}{memory} a rank, no limit known"
    check(head.endswith(verdict) and ("FITS" in head) == bool(limit), f"the verdict {verdict}: {what}")
    check(p["step"][0].startswith(seconds(plan["step"]["cost_s"]) + " (estimate)"), f"the time: {what}")
    use, spent = largest(plan["step"]["spent_s"], plan["model"]["links"])
    m = re.match(r"bound by (.+?) (\d+) %", " ".join(p["time"]))
    check(m[1] == use and abs(int(m[2]) - 100 * spent / plan["step"]["cost_s"]) <= 0.51, f"bound by {use}: {what}")
    shares = [int(x) for x in re.findall(r" (\d+) %", " ".join(p["time"]))]
    check(shares == sorted(shares, reverse=True) and sum(shares) <= 103, f"the longest first: {what}")
    step = plan["step"]
    least = step["lower_bound_s"]
    chosen = step["cost_s" if "pipeline" in plan else "signatures_cost_s"]
    open_end = not step["exact"] and not 0 < chosen <= least * (1 + 1e-6)
    equal("search" in p, open_end, f"how far from a bound the search stopped: {what}")
    if open_end and least:
        above = float(re.match(r"at most ([\d.e+-]+) % above the least cost ", " ".join(p["search"]))[1])
        check(abs(above - 100 * (chosen / least - 1)) <= 0.06 * above, f"{above} %: {what}")
    equal("beside computation" in " ".join(p["ignored"]), plan["step"]["communication_s"] > 0, what)
    return p, plan


# Every shipped example, in both widths; what is tried is what its overrides plan.
count = 0
for name in sorted(f[:-5] for f in os.listdir(EXAMPLES) if f.endswith(".yaml")):
    check_screen(example(name), columns=80)
    p, plan = check_screen(example(name))
    others = tried(p.get("try", []))
    check(len(others) <= 3, f"{name}: {others}")
    for layout, step, memory, sets in others:
        other = tessera_json("plan", example(name), *sets)
        equal((step, memory), (seconds(other["step"]["cost_s"]), size(other["memory"][0]["total"])), f"{name}: {layout}")
        count += 1
    better = [o for o in others if o[1] != seconds(plan["step"]["cost_s"])]
    check(better == others or all(o[2] != size(plan["memory"][0]["total"]) for o in others), f"{name}: the plan itself: {others}")
check(count >= 4, f"{count} layouts were compared")
names = [o[0] for o in tried(check_screen(example("own_data"))[0]["try"])]
check("1 rank" in names, f"a net of 259 parameters is quicker on one rank: {names}")

# Layouts in plain words, ZeRO beside tensor parallelism among them.
for sets, words in ((["strategy=zero3"], "parameters split, gathered layer by layer (ZeRO-3)"),
                    (["strategy=zero2"], "batch, optimizer states and gradients split (ZeRO-2)"),
                    (["strategy=zero1"], "batch and optimizer states split (ZeRO-1)"),
                    (["strategy=data"], "batch split, parameters whole (data parallel)"),
                    (["strategy=megatron"], "layers split in pairs (tensor parallel)"),
                    (["mesh={dp: 4, tp: 2}", "strategy=[zero1, megatron]"],
                     "ZeRO-1 x4, tensor parallel x2: batch and optimizer states split over dp; layers split in pairs over tp"),
                    (["mesh={dp: 4, tp: 2}", "strategy=[zero2, megatron]"],
                     "ZeRO-2 x4, tensor parallel x2: batch, optimizer states and gradients split over dp; layers split in "
                     "pairs over tp"),
                    (["mesh={dp: 4, tp: 2}", "strategy=[zero3, megatron]"],
                     "ZeRO-3 x4, tensor parallel x2: parameters split, gathered layer by layer over dp; layers split in "
                     "pairs over tp"),
                    (["mesh={a: 4, b: 2}", "strategy=data"], "batch split, parameters whole")):
    path = os.path.join(FOLDER.name, "gpt.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("""\
tessera: 1
mesh: {dp: 8}
model: {name: gpt, args: {layers: 2, heads: 8, width: 64, dropout: 0}}
data: {dataset: synthetic, shape: [1, 1, 33], classes: 10, samples: 64, batch_size: 32}
optimizer: {name: adamw, lr: 0.001}
""")
    p, _ = check_screen(path, *[x for s in sets for x in ("--set", s)])
    check(words in " ".join(x.strip() for x in p["layout"]), f"{sets}: {p['layout']}")

# Layers that differ: which do what, or how many, and then --full has each.
equal([x.strip() for x in check_screen(example("matmul"))[0]["layout"]], ["w by input features (mixed)"], "one layer")
words = " ".join(x.strip() for x in check_screen(example("zero"))[0]["layout"])
m = re.match(r"(\d+) of (\d+) layers by rows of the batch, ((?:\d+ by [a-z ]+(?:, )?)+) \(--full lists them\)", words)
check(m and sum(int(x) for x in re.findall(r"\b(\d+) by", m[3])) + int(m[1]) == int(m[2]), words)
rows = tessera("plan", example("zero"), "--full")[0].split("\nlayers (")[1].split("\nfusion")[0].splitlines()[1:]
rows = [re.match(r"  layers? +(\S+)(?: to \S+ x(\d+))? +(by .*)$", x) for x in rows]
check(all(rows), "a line for each layer, or for several that do the same")
equal(sum(int(x[2] or 1) for x in rows), int(m[2]), "all layers")
check([x[3] for x in rows if x[1] == "classifier.1"] == ["by input features"], "the last layer")
mixed = path + ".mixed"
with open(mixed, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
placements: {all: {device: cpu, ranks: [0, 1, 2, 3]}}
model: {name: gpt, args: {layers: 6, heads: 4, width: 64, dropout: 0}}
data: {dataset: synthetic, shape: [1, 1, 33], classes: 10, samples: 64, batch_size: 32}
parameters: [{match: "*", sbp: B}, {match: "h.*.mlp.c_fc.weight", sbp: S(1)}]
tensors: {match: [{match: "h.*.mlp.c_fc", sbp: S(2)}]}
optimizer: {name: adamw, lr: 0.001}
""")
words = " ".join(x.strip() for x in check_screen(mixed)[0]["layout"])
equal(words, "wte, h.*.attn.c_attn, h.*.attn.c_proj, h.*.mlp.c_proj by rows of the batch; h.*.mlp.c_fc "
      "by rows with gathered weights (mixed)", "blocks that are alike")

# Sizes that ranks do not divide are told of, as these wait for each other.
with open(mixed, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
mesh: {dp: 2, tp: 4}
device: cpu
model: {name: gpt, args: {layers: 1, heads: 8, width: 96, dropout: 0}}
data: {dataset: synthetic, shape: [1, 1, 33], classes: 10, samples: 64, batch_size: 32}
strategy: [data, megatron]
optimizer: {name: adamw, lr: 0.001}
""")
for sets, note in (([], ""), (["model.args.heads=4"], ""), (["data.batch_size=64"], ""),
                   (["model.args.heads=6"], "6 heads over 4 ranks: 2 on some, 1 on others, which wait"),
                   (["model.args.heads=6", "model.args.dropout=0.1"], "6 heads over 4 ranks: 2 on some, 1 on others, which wait"),
                   (["model={name: mlp, args: {inputs: 33, hidden: 6, layers: 3}}"],
                    "6 features over 4 ranks: 2 on some, 1 on others, which wait"),
                   (["model.args.heads=2"], "2 heads over 4 ranks: 1 on some, 0 on others, which wait"),
                   (["data.batch_size=31"], "31 rows of the batch over 2 ranks: 16 on some, 15 on others, which wait"),
                   (["data.batch_size=3", "model.args.heads=6"],
                    "3 rows of the batch over 2 ranks: 2 on some, 1 on others, which wait; "
                    "6 heads over 4 ranks: 2 on some, 1 on others, which wait")):
    p, _ = check_screen(mixed, *[x for s in sets for x in ("--set", s)])
    equal(" ".join(x.strip() for x in p.get("note", [])), note, f"{sets}")

# A search that search.seconds ends.
p, _ = check_screen(example("auto"), "--set", "search.seconds=0.001")
check("; ended by search.seconds" in " ".join(p["search"]), f"{p['search']}")
for budget, ended in ((0.001, True), (100, False)):
    step = tessera_json("plan", example("auto"), "--set", f"search.seconds={budget}")["step"]
    equal(step.get("search_ended"), ended, f"JSON of a search of {budget} s")
check("search_ended" not in tessera_json("plan", example("auto"))["step"], "a search without an end")

# A limit that no plan keeps: the verdict, what the plan without it is, and layouts that fit.
need = tessera_json("plan", path)["memory"][0]["total"]
lean = tessera_json("plan", path, "--set", "strategy=zero3")["memory"][0]["total"]
check_screen(path, "-m", "1G")
out, err = tessera("plan", path, "--set", "strategy=data", "-m", str(lean * 11 // 10), code=1)
head, p = parts(out)
check("no plan fits memory_limit" in err and f"DOES NOT FIT  {size(need)} of {size(lean * 11 // 10)}" in head, out + err)
others = tried(p["try"])
check(others, out)
for layout, step, memory, sets in others:
    other = tessera_json("plan", path, "--set", "strategy=data", "-m", str(lean * 11 // 10), *sets)
    equal((step, memory), (seconds(other["step"]["cost_s"]), size(other["memory"][0]["total"])), f"in the limit: {layout}")

# MFU where the cluster's peak is known: operations of a step by what its ranks could do.
p, plan = check_screen(example("gpt_dp_tp"))
check(re.search(r"   [\d.]+ K tokens/s   MFU [\d.]+ %$", p["step"][0]), p["step"][0])
check("MFU" not in check_screen(example("dp4"))[0]["step"][0], "no peak is known of this machine")

# Halves without master weights are told of; with autocast the weights are masters.
for sets, told in ((["dtype=bf16"], True), (["train.amp=bf16"], False), ([], False)):
    p, _ = check_screen(example("gpt_dp_tp"), *[x for s in sets for x in ("--set", s)])
    check(("without master weights" in " ".join(p.get("note", []))) == told, f"{sets}: {p.get('note')}")
check("16 x tp 8" in tessera("plan", example("gpt_dp_tp"))[0].splitlines()[0], "the mesh")
done()
