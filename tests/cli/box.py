#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera box: routes, pictures, and runs on thread ranks. usage: box.py TESSERA"""
import math
import re

from harness import check, done, equal, near, tessera, tessera_json


def parse_end(text):
    """'cpu:[[0,1],[2,3]] (B,S(1))' -> hierarchy, ranks, signature."""
    place, sbp = re.match(r"cpu:(\[.*\])\s*(.*)$", text).groups()
    nested = eval(place)
    dims, level = [], nested
    while isinstance(level, list):
        dims.append(len(level))
        level = level[0]
    ranks = eval("[" + place.replace("[", "").replace("]", "") + "]")
    return dims, ranks, re.findall(r"S\(\d\)|B|P(?:\(\w+\))?", sbp)


def split(n, k, i):
    return i * (n // k) + min(i, n % k), n // k + (i < n % k)


def parts(shape, text):
    """Rank -> (offset, shape), by the definition."""
    dims, ranks, sbp = parse_end(text)
    result = {}
    for index, rank in enumerate(ranks):
        offset, size, below = [0] * len(shape), list(shape), math.prod(dims)
        for k, s in zip(dims, sbp):
            below //= k
            if s[0] == "S":
                a = int(s[2])
                o, n = split(size[a], k, index // below % k)
                offset[a] += o
                size[a] = n
        result[rank] = (offset, size)
    return result


CASES = [
    # shape, from, to, dtype
    ("8,6", "cpu:[0,1,2,3] S(0)", "cpu:[[0,1],[2,3]] (B,S(1))", "f32"),
    ("8,6", "cpu:[0,1,2,3] S(0)", "cpu:[0,1,2,3] S(1)", "f64"),
    ("7,5", "cpu:[0,1,2] S(1)", "cpu:[0,1,2] B", "f32"),
    ("7,5", "cpu:[0,1,2] P", "cpu:[0,1,2] S(0)", "i64"),
    ("7,5", "cpu:[0,1,2] P", "cpu:[0,1,2] B", "bf16"),
    ("7,5", "cpu:[0,1,2] B", "cpu:[0,1,2] P", "f16"),
    ("7,5", "cpu:[0,1,2] S(0)", "cpu:[0,1,2] P", "i32"),
    ("9", "cpu:[0,1] P(max)", "cpu:[0,1] S(0)", "f32"),
    ("9", "cpu:[0,1] P(min)", "cpu:[0,1] P", "f32"),
    ("9", "cpu:[0,1] B", "cpu:[0,1] S(0)", "u8"),
    ("5", "cpu:[1,0,2] P(max)", "cpu:[0,1,2] B", "bool"),
    ("4,4", "cpu:[0,1] P", "cpu:[2,3] S(1)", "f32"),
    ("4,4", "cpu:[0,1,3] S(1)", "cpu:[0,1,2,3] S(0)", "f32"),
    ("4,4", "cpu:[0] B", "cpu:[3,1] B", "f32"),
    ("6", "cpu:[[0,1],[2,3]] (S(0),S(0))", "cpu:[0,1,2,3] S(0)", "f32"),
    ("8,4", "cpu:[[0,1],[2,3]] (S(0),P)", "cpu:[[0,1],[2,3]] (S(0),S(0))", "f32"),
    ("8,6,4", "cpu:[[0,1],[2,3]] (P,S(2))", "cpu:[[0,1],[2,3]] (S(0),B)", "f64"),
    ("3,0", "cpu:[0,1] S(0)", "cpu:[0,1] B", "f32"),
    ("", "cpu:[0,1] P", "cpu:[0,1] B", "f32"),
    ("2", "cpu:[0,1,2,3] S(0)", "cpu:[0,1,2,3] B", "f32"),
]
SIZE = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "bf16": 2, "f16": 2, "u8": 1, "bool": 1}

for shape, a, b, dtype in CASES:
    what = f"{shape} {a} -> {b} {dtype}"
    dims = [int(d) for d in shape.split(",") if d]
    r = tessera_json("box", "--shape", shape, "--from", a, "--to", b, "--dtype", dtype, "--run")
    equal(r["shape"], dims, what)
    for end, text in (("from", a), ("to", b)):
        found = {p["rank"]: (p["offset"], p["shape"]) for p in r[end]["parts"]}
        equal(found, parts(dims, text), f"{what}: parts of {end}")
    near(sum(s["cost_s"] for s in r["steps"]), r["cost_s"], f"{what}: costs add up")
    check(r["bound_s"] <= r["cost_s"] * (1 + 1e-9), f"{what}: bound {r['bound_s']} <= cost")
    equal(sum(s["bytes_busiest_rank"] for s in r["steps"]), r["bytes_busiest_rank"], what)
    run = r["run"]
    check(run["values_right"] is True and "difference" not in run, f"{what}: {run}")
    for rank in run["ranks"]:
        equal(rank["bytes_read"], rank["bytes_planned"], f"{what}: rank {rank['rank']}")
    equal(sum(x["bytes_read"] for x in run["ranks"]), sum(s["bytes_all_ranks"] for s in r["steps"]),
          f"{what}: total")
    whole = math.prod(len(range(d)) for d in dims)
    if parse_end(b)[2] == ["B"]:
        equal(run["elements_compared"], whole * len(parse_end(b)[1]), f"{what}: compared")

# What one can count oneself: an all-gather, a slice, an all-to-all of 4 parts.
one = ("--shape", "8,8", "--zero-latency", "--from", "cpu:[0,1,2,3] S(0)", "--to")
r = tessera_json("box", *one, "B")
equal([(s["kind"], s["groups"], s["group_size"], s["bytes_all_ranks"]) for s in r["steps"]],
      [("all_gather", 1, 4, 4 * 192)], "all-gather")
check(192 / 8e9 <= r["cost_s"] <= 192 / 8e9 + 2 * 256 / 16e9,
      f"an all-gather without latency takes what it reads and writes: {r['cost_s']}")
r = tessera_json("box", *one, "S(1)")
equal([(s["kind"], s["bytes_all_ranks"]) for s in r["steps"]], [("all_to_all", 4 * 48)],
      "all-to-all")
r = tessera_json("box", "-s", "8", "-f", "cpu:[0,1] B", "-t", "S(0)")
equal([(s["kind"], s["bytes_all_ranks"]) for s in r["steps"]], [("slice", 0)], "slice")
r = tessera_json("box", "-s", "8", "-f", "cpu:[0,1] B", "-t", "B")
equal(r["steps"], [], "nothing to do")
# All ranks of a world that is only imagined.
r = tessera_json("box", "-s", "4096,4096", "-f", "cpu S(0)", "-t", "cpu S(1)", "-n", "4096")
equal(r["steps"][0]["group_size"], 4096, "4096 ranks")

# Pictures.
out, _ = tessera("box", "-s", "8,5", "-f", "cpu:[[0,1],[2,3]] (S(0),S(1))", "-t", "(P,B)")
check("""\
        0:3   3:5
      +-----+-----+
  0:4 |  0  |  1  |
      +-----+-----+
  4:8 |  2  |  3  |
      +-----+-----+
""" in out, out)
check("| 0+2,1+3 |" in out, "copies of sums: " + out)
out, _ = tessera("box", "-s", "2", "-f", "cpu:[0,1,2] S(0)", "-t", "P(max)")
check("nothing on rank 2\n" in out and "| max(0,1,2) |" in out, out)
out, _ = tessera("box", "-s", "2,4,8", "-f", "cpu:[0,1] S(1)", "-t", "B")
check("axis 1 down, axis 2 across" in out, out)

# Figures have three digits, or are whole bytes and nanoseconds.
for size, text in [(2, "8 B"), (250, "1.00 KB"), (2487, "9.95 KB"), (2625, "10.5 KB"),
                   (24900, "99.6 KB"), (30000, "120 KB"), (249800, "999 KB"), (249900, "1.00 MB")]:
    out, _ = tessera("box", "-s", size, "-f", "cpu:[0,1] S(0)", "-t", "B")
    check(out.startswith(f"f32[{size}], {text}\n"), f"{text}: {out}")
    check("route 1 step, " in out, out)
out, _ = tessera("box", "-s", "8", "-f", "cpu:[0,1] B", "-t", "B")
check("route: nothing to do, every rank has its part\n" in out, out)

# What is wrong is the library's to say.
for args, text in [
    (["cpu:[0,1", "B"], "cpu:[0,1"),
    (["cpu:[0,1] S(2)", "B"], "S(2)"),
    (["cpu:[0,0] B", "B"], "0"),
    (["cpu:[0,1] B", "(B,B)"], "(B,B)"),
    (["S(0)", "B"], "has no placement"),
    (["cpu:[0,1]", "B"], "no signature"),
    (["cpu:[0,1] S(0)", "auto"], "auto"),
    (["gpu:[0,1] S(0)", "B"], "gpu"),
]:
    out, err = tessera("box", "-s", "8,8", "-f", args[0], "-t", args[1], code=1)
    check(err.startswith("tessera box: ") and text in err, f"{args}: {err}")
done()
