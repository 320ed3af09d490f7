#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan --json: every example's has the schema's keys, its ids name what they should, and its sums
are those of independent additions. usage: plan_json.py TESSERA SCHEMA"""
import glob
import json
import os
import sys
from collections import defaultdict
from fractions import Fraction

from harness import check, done, equal, near, tessera

SCHEMA = json.load(open(sys.argv[2], encoding="utf-8"))
EXAMPLES = sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../../examples/experiments/*.yaml")))
KINDS = ("parameters", "masters", "buffers", "optimizer", "inputs_outputs", "gradients", "activations",
         "communication")


def check_keys(p, what):
    """Against the schema's; plan_schema.py holds the rest against it."""
    check(set(SCHEMA["required"]) <= set(p) <= set(SCHEMA["properties"]), f"{what}: keys {sorted(p)}")


def check_ids(p, what):
    for name in ("values", "modules", "placements"):
        equal([x["id"] for x in p[name]], list(range(len(p[name]))), f"{what}: ids of {name}")
    rows = sorted(p["ops"] + p["boxing"], key=lambda x: x["id"])
    equal([x["id"] for x in rows], list(range(len(rows))), f"{what}: ids of ops and conversions")
    made = set()
    for x in rows:
        check(all(0 <= v < len(p["values"]) for v in x["in"] + x["out"]), f"{what}: values of {x}")
        check(0 <= x["module"] < len(p["modules"]), f"{what}: the module of {x}")
        path = p["modules"][x["module"]]["path"]
        check(not path or (x["name"] + ".").startswith(path + "."), f"{what}: {x['name']} in {path}")
        if x.get("op") not in ("input", "variable"):
            made |= set(x["out"])
    for x in rows:  # what is read is a source, or made by something
        source = {v for s in p["ops"] if s["phase"] == "source" for v in s["out"]} if x["id"] == 0 else source
        check(all(v in made or v in source for v in x["in"]), f"{what}: nothing makes an operand of {x}")
    for m in p["modules"]:
        parent = m["path"].rpartition(".")[0]
        equal(p["modules"][m["parent"]]["path"] if "parent" in m else None, parent if m["path"] else None,
              f"{what}: the module above {m['path']}")
    for v in p["values"]:
        place = p["placements"][v["placement"]]
        splits = v["sbp"].count("S(") + v["sbp"].count("B") + v["sbp"].count("P")
        check(splits in (1, len(place["hierarchy"])), f"{what}: {v['sbp']} on {place['hierarchy']}")
        equal("bytes" in v, "memory" in v, f"{what}: memory of {v}")


def check_memory(p, what):
    """What a class of ranks holds, added up from the values."""
    for c, m in enumerate(p["memory"]):
        held = defaultdict(int)
        for v in p["values"]:
            if "bytes" not in v or ("alive" in v and not v["alive"][0] <= m["peak"] <= v["alive"][1]) or \
                    ("alive" in v and v["alive"][0] < 0):
                continue
            held[v["memory"]] += v["bytes"][c]
        for kind in KINDS:
            equal(held[kind], m[kind], f"{what}: {kind} of ranks {m['ranks']}")
        equal(sum(held.values()) + m["scratch"] + m["other"], m["total"], f"{what}: total of ranks {m['ranks']}")
        alive = [0] * (len(p["order"]["op"]) + 1)
        for v in p["values"]:
            if v.get("alive", [-1])[0] >= 0:
                alive[v["alive"][0]] += v["bytes"][c]
                alive[v["alive"][1] + 1] -= v["bytes"][c]
        best = now = 0
        for a in alive:
            now += a
            best = max(best, now)
        lasting = sum(v["bytes"][c] for v in p["values"] if "bytes" in v and "alive" not in v)
        equal(best, sum(m[k] for k in KINDS) - lasting,
              f"{what}: the peak of ranks {m['ranks']}")


def part(length, parts, i):
    return length // parts + (i < length % parts)


def largest(v, place):
    """Bytes of the largest part of a value, which is the first rank's."""
    size = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "u8": 1, "bool": 1, "f16": 2, "bf16": 2}[v["dtype"]]
    words = v["sbp"].strip("()").split(",") if v["sbp"].startswith("(") else [v["sbp"]]
    shape = list(v["shape"])
    for word, k in sorted(zip(words, place["hierarchy"]), key=lambda w: w[0][-1:] if "/" in w[0] else ""):
        if word.startswith("S("):
            axis = int(word[2:].split(")")[0])
            shape[axis] = part(shape[axis], k, 0)
    total = size
    for n in shape:
        total *= n
    return total


def check_moves(p, what):
    """Bytes of each conversion, from its matrix and from its collective's definition."""
    for x in p["boxing"]:
        if not x["communicates"]:
            equal((x["bytes"], "move" in x), (0, False), f"{what}: {x['name']}")
            continue
        equal("move" in x, x["group_size"] <= 64, f"{what}: a matrix of {x}")
        if "move" not in x:
            continue
        move = p["moves"][x["move"]]
        k = len(move["ranks"])
        equal(k, x["group_size"], f"{what}: ranks of {x}")
        reads = [sum(row) for row in move["bytes"]]
        check(all(move["bytes"][i][i] == 0 for i in range(k)), f"{what}: a rank reads from itself in {x}")
        check(max(reads) <= x["bytes"], f"{what}: {reads} of {x}")
        if x["collective"] in ("all_reduce", "all_gather"):
            equal(max(reads), x["bytes"], f"{what}: {x}")
        values = [(p["values"][a], p["values"][b]) for a, b in zip(x["in"], x["out"])]
        if x["collective"] == "all_reduce" and not x["two_phase"]:
            equal(x["bytes"], sum((k - 1) * largest(a, p["placements"][a["placement"]]) for a, _ in values),
                  f"{what}: {x}")
        if x["collective"] == "all_reduce" and x["two_phase"]:
            whole = sum(largest(a, p["placements"][a["placement"]]) for a, _ in values)
            near(x["bytes"], Fraction(2 * (k - 1), k) * whole, f"{what}: {x}", rel=0.05 + 8 * k * len(values) / whole)


def check_timeline(p, what):
    rows = {x["id"]: x for x in p["ops"] + p["boxing"]}
    t, spans = p["timeline"], p["timeline"]["spans"]
    equal({len(spans[c]) for c in ("op", "group", "start_s", "end_s")}, {len(spans["op"])}, what)
    busy, free = defaultdict(float), defaultdict(float)
    spent = defaultdict(float)
    for op, group, start, end in zip(spans["op"], spans["group"], spans["start_s"], spans["end_s"]):
        spent[op, group] += end - start
        lane = (group, rows[op]["lane"] if rows[op].get("communicates") else "compute")
        check(start >= free[lane] - 1e-12, f"{what}: two at a time on {lane}")
        free[lane] = end
        if lane[1] == "compute":
            busy[group] += end - start
    for (op, group), seconds in spent.items():
        near(seconds, rows[op]["cost_s"], f"{what}: {rows[op]['name']} on the clock of {group}", rel=1e-6)
    equal(sum(g["nranks"] for g in t["groups"]), p["ranks"], f"{what}: ranks on the clock")
    for i, g in enumerate(t["groups"]):
        near(busy[i], g["compute_s"], f"{what}: computing of ranks {g['ranks']}", rel=1e-9)
        check(g["end_s"] <= t["end_s"] * (1 + 1e-9), what)
    check(t["end_s"] <= p["step"]["cost_s"] * (1 + 1e-9), f"{what}: overlap makes nothing longer")
    # The longest chain has no gaps, and is the whole step.
    at = 0.0
    for s in sorted(spans["critical"], key=lambda s: spans["start_s"][s]):
        check(abs(spans["start_s"][s] - at) <= 1e-9 * t["end_s"], f"{what}: a gap before {spans['op'][s]}")
        at = spans["end_s"][s]
    near(at, t["end_s"], f"{what}: the longest chain", rel=1e-9)
    phases = defaultdict(list)
    for op, phase in zip(p["order"]["op"], p["order"]["phase"]):
        phases[op].append(phase)
    for op, seen in phases.items():
        both = ["start", "finish"] * 2 + ["release"]  # of the stage that sends and of the one that receives
        calls = [["start", "finish", "release"]] + ([both] if "pipeline" in p else [])
        check(seen in calls if rows[op].get("communicates") else seen == ["do"],
              f"{what}: {seen} is done of {rows[op]['name']}")
    equal(sorted(phases), sorted(set(spans["op"])), f"{what}: what is done is on the clock")


def check_clock(p, what):
    """The clock again, by the words of tessera-plan-json(5); tasks of stages have their own, in check_pipeline."""
    if "pipeline" in p:
        return
    rows = {x["id"]: x for x in p["ops"] + p["boxing"]}
    spans, groups = p["timeline"]["spans"], defaultdict(list)
    for op, group in zip(spans["op"], spans["group"]):
        groups[op].append(group)
    now, lane, ends, begun = defaultdict(float), defaultdict(float), {}, []
    for op, phase in zip(p["order"]["op"], p["order"]["phase"]):
        x = rows[op]
        if phase == "do":
            for g in groups[op]:
                begun.append((op, g, now[g]))
                now[g] += x["cost_s"]
        elif phase == "start":
            at = max(max(now[g], lane[g, x["lane"]]) for g in groups[op])
            for g in groups[op]:
                begun.append((op, g, at))
                ends[op] = lane[g, x["lane"]] = at + x["cost_s"]
        elif phase == "finish":
            for g in groups[op]:
                now[g] = max(now[g], ends[op])
    check([(op, g) for op, g, _ in begun] == list(zip(spans["op"], spans["group"])), f"{what}: what is on the clock")
    for (op, _, at), found in zip(begun, spans["start_s"]):
        check(abs(found - at) <= 1e-12 + 1e-9 * at, f"{what}: {rows[op]['name']} starts at {found}, not {at}")
    near(max(now.values(), default=0), p["timeline"]["end_s"], f"{what}: the end", rel=1e-9)
    for x in p["boxing"]:  # both ends of a conversion take part in it
        if x["communicates"] and p["timeline"]["groups"]:
            equal(sum(p["timeline"]["groups"][g]["nranks"] for g in groups[x["id"]]), len(ranks_of(p, x)),
                  f"{what}: ranks of {x}")


def ranks_of(p, x):
    """The ranks that have a part in an op or conversion."""
    return {r for v in x["in"] + x["out"] for r in p["placements"][p["values"][v]["placement"]]["ranks"]}


def stages_of(p):
    """Sets of ranks: those that an op of the micro-batches joins."""
    stages = []
    for x in p["ops"]:
        ranks = ranks_of(p, x)
        if x.get("turn") == "parts" and x["out"]:
            ranks = ranks.union(*(s for s in stages if s & ranks))
            stages = [s for s in stages if not s & ranks] + [ranks]
    return stages


def check_pipeline(p, what):
    """Returns the seconds of a step: those of the tasks, and of the busiest stage before and behind them."""
    tasks, stages = p["pipeline"]["tasks"], stages_of(p)
    equal(len(stages), p["pipeline"]["stages"], f"{what}: stages")
    turns = {turn: [x for x in p["ops"] + p["boxing"] if x.get("turn") == turn] for turn in ("before", "parts", "after")}
    busy = sum(t["end_s"] - t["start_s"] for t in tasks)
    near(busy, sum(x["cost_s"] for x in turns["parts"]), f"{what}: seconds of tasks")
    end, free = max(t["end_s"] for t in tasks), defaultdict(float)
    near(p["pipeline"]["bubble"], 1 - busy / end / len(stages), f"{what}: the bubble")
    for t in sorted(tasks, key=lambda t: t["start_s"]):
        before = [u["end_s"] for u in tasks if (u["depth"], u["microbatch"]) == (t["depth"] - 1, t["microbatch"])]
        check(t["start_s"] >= max([free[t["stage"]], *before]) - 1e-12, f"{what}: {t} is early")
        free[t["stage"]] = t["end_s"]
    return end + sum(max(sum(x["cost_s"] for x in turns[turn] if s & ranks_of(p, x)) for s in stages)
                     for turn in ("before", "after"))


def check_sums(p, what):
    all_s = sum(x["cost_s"] for x in p["ops"] + p["boxing"])
    near(check_pipeline(p, what) if "pipeline" in p else all_s, p["step"]["cost_s"], f"{what}: time")
    equal(sum(x["bytes"] for x in p["boxing"]), p["totals"]["bytes"], f"{what}: bytes")
    by = defaultdict(int)
    for x in p["boxing"]:
        if x["communicates"]:
            by[x["collective"]] += x["bytes"]
    equal(dict(by), {t["collective"]: t["bytes"] for t in p["totals"]["collectives"]}, what)


check(len(EXAMPLES) >= 11, f"examples: {EXAMPLES}")
purposes = set()
for path in EXAMPLES:
    p = json.loads(tessera("plan", path, "--json")[0])
    name = os.path.basename(path)
    for look in (check_keys, check_ids, check_sums, check_memory, check_moves, check_timeline, check_clock):
        look(p, name)
    purposes |= {x["purpose"] for x in p["boxing"]}
check(purposes >= {"gradients", "updates", "weights", "statistics", "forward", "backward", "stages", "outputs"},
      f"what is converted in the examples: {purposes}")
# Two stages: each computes by itself, and waits for the other.
p = json.loads(tessera("plan", [e for e in EXAMPLES if "pipeline2" in e][0], "--json")[0])
equal([(g["ranks"], g["nranks"]) for g in p["timeline"]["groups"]], [("0-1", 2), ("2-3", 2)], "stages")
check(all(0 < g["compute_s"] < p["timeline"]["end_s"] * 0.8 for g in p["timeline"]["groups"]), "stages wait")
done()
