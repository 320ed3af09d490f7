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

# The whole output for the example of --help, and for a conversion over two dimensions.
out, _ = tessera("box", "-s", "8,6", "-f", "cpu:[0,1,2,3] S(0)", "-t", "cpu:[[0,1],[2,3]] (B,S(1))",
                 "--run")
equal(out, """\
f32[8,6], 192 B
from S(0) on cpu:[0,1,2,3]
        0:6
      +-----+
  0:2 |  0  |
      +-----+
  2:4 |  1  |
      +-----+
  4:6 |  2  |
      +-----+
  6:8 |  3  |
      +-----+
to (B,S(1)) on cpu:[[0,1],[2,3]]
        0:3   3:6
      +-----+-----+
  0:8 | 0,2 | 1,3 |
      +-----+-----+
route 1 step, 3.02 us (no route takes less than 3.01 us); on the busiest ranks 72 B read, 144 B held
  step                   over        busiest all ranks      time  to
  send_recv              both ends      72 B     288 B   3.02 us  (B,S(1))
    1 group of 4 ranks, shared memory
run on 4 thread ranks
    rank       bytes read          planned
       0               72               72
       1               72               72
       2               72               72
       3               72               72
  values are those of the definition (96 compared)
""", "the example of --help")
out, _ = tessera("box", "-s", "8,6,4", "-f", "cpu:[[0,1],[2,3]] (P,S(2))", "-t", "(S(0),B)")
equal(out, """\
f32[8,6,4], 768 B
from (P,S(2)) on cpu:[[0,1],[2,3]]
  axis 1 down, axis 2 across
        0:2   2:4
      +-----+-----+
  0:6 | 0+2 | 1+3 |
      +-----+-----+
to (S(0),B) on cpu:[[0,1],[2,3]]
  axis 0 down, axis 2 across
        0:4
      +-----+
  0:4 | 0,1 |
      +-----+
  4:8 | 2,3 |
      +-----+
route 1 step, 3.10 us (no route takes less than 3.05 us); on the busiest ranks 576 B read, 768 B \
held
  step                   over        busiest all ranks      time  to
  send_recv              dim 0,1       576 B   2.30 KB   3.10 us  (S(0),B)
    1 group of 4 ranks, shared memory
other ways (the best of those that begin otherwise)
  +620 ns    fill to (P,P), send_recv: +1 step, +576 B read, +384 B held
  +2.99 us   reduce_scatter to (S(0),S(2)), all_gather: +1 hand-shake, -192 B read, -192 B held
  +3.00 us   reduce_scatter to (S(1),S(2)), send_recv: +1 hand-shake, -96 B read, -192 B held
""", "two dimensions")
r = tessera_json("box", "-s", "8,6,4", "-f", "cpu:[[0,1],[2,3]] (P,S(2))", "-t", "(S(0),B)")
equal([[s["kind"] for s in o["steps"]] for o in r["others"]],
      [["fill", "send_recv"], ["reduce_scatter", "all_gather"], ["reduce_scatter", "send_recv"]], "other ways")
for o in r["others"]:
    near(sum(s["cost_s"] for s in o["steps"]), o["cost_s"], "what another way takes")
    equal(o["steps"][-1]["to"], "(S(0),B)", "where another way leads")
# Who reads how much from whom adds up to what each rank reads.
for shape, a, b, dtype in CASES:
    r = tessera_json("box", "-s", shape, "-f", a, "-t", b, "-d", dtype, "--run")
    moves = [s["move"] for s in r["steps"] if "move" in s]
    equal(len(moves), sum(s["kind"] not in ("relabel", "slice", "fill", "keep") for s in r["steps"]), "matrices")
    read = {}
    for m in moves:
        for rank, row in zip(m["ranks"], m["bytes"]):
            read[rank] = read.get(rank, 0) + sum(row)
    if all(s["groups"] == 1 for s in r["steps"] if "move" in s):
        equal({x["rank"]: x["bytes_read"] for x in r["run"]["ranks"] if x["bytes_read"]},
              {rank: n for rank, n in read.items() if n}, f"{shape} {a} -> {b}: who reads what")


# A grid is drawn where it fits 24 rows and 96 columns, else a ruler.
def picture(height, width, axis, n):
    """What box says of where `n` ranks hold a tensor split along `axis`, and of its copies."""
    out, _ = tessera("box", "-s", f"{height},{width}", "-f", f"cpu S({axis})", "-t", "B", "-n", n)
    return out.split("\nto ")[0].split("\n", 2)[2] + "\n"


def ruler(axis, size, parts, n):
    """Five ticks of 16 columns: where parts begin, and their ranks; the last one is the end."""
    least, most = split(size, n, parts - 1)[1], split(size, n, 0)[1]
    text = f"  axis {axis} in {parts} parts of {most}" + (f" or {least}\n" if least < most else "\n")
    at = [parts * t // 4 for t in range(4)]
    for words in ([split(size, n, i)[0] for i in at] + [size], None, at + [parts - 1]):
        if words is None:
            text += "  +" + 4 * ("-" * 15 + "+") + "\n"
            continue
        line = "  "
        for word in map(str, words[:4]):
            line += f"{word:<16}"
        text += line[:2 + 65 - len(str(words[4]))].ljust(2 + 65 - len(str(words[4]))) + str(words[4]) + "\n"
    return text


def expected(height, width, axis, n):
    size = (height, width)[axis]
    ranges = [f"{o}:{o + k}" for o, k in (split(size, n, i) for i in range(min(n, size)))]
    other = f"0:{(width, height)[axis]}"
    rows, columns = ([other], ranges) if axis else (ranges, [other])
    margin, wide = max(map(len, rows)), max(map(len, columns + [str(len(ranges) - 1)]))
    if len(rows) <= 24 and margin + 2 + len(columns) * (wide + 3) <= 96:
        line = " " * (margin + 3) + ("+" + "-" * (wide + 2)) * len(columns) + "+\n"
        at = lambda text: " " * ((wide + 2 - len(text)) // 2) + text
        text = " " * (margin + 3) + "".join(
            " " + at(c).ljust(wide + 2) for c in columns[:-1]) + " " + at(columns[-1]) + "\n" + line
        for i, row in enumerate(rows):
            cells = [at(str(i + j)).ljust(wide + 2) for j in range(len(columns))]
            text += f"  {row:>{margin}} |" + "|".join(cells) + "|\n" + line
    else:
        text = ruler(axis, size, len(ranges), n)
    empty = list(range(len(ranges), n))
    if empty:
        run = f"{empty[0]}-{empty[-1]}" if len(empty) > 2 else ", ".join(map(str, empty))
        text += f"  nothing on rank{'s' if len(empty) > 1 else ''} {run}\n"
    return text


for case in [(100, 11, 1, 11), (1000, 11, 1, 11), (10000, 11, 1, 11), (3, 11, 1, 12), (24, 3, 0, 24),
             (25, 3, 0, 25), (4, 32, 1, 32), (4, 33, 1, 33), (2, 3, 0, 3), (2, 3, 0, 4),
             (2, 3, 0, 34), (2, 3, 0, 35), (7, 5, 0, 3), (16000000, 1, 0, 64), (100, 70, 1, 64), (9999, 2, 0, 4096)]:
    equal(picture(*case), expected(*case), f"{case}")
# With copies a tick has the ranks that fit, or the first one; two split axes that do not fit are a list.
out, _ = tessera("box", "-s", "64000", "-f", f"cpu:[{list(range(32))},{list(range(32, 64))}] (B,S(0))", "-t", "(B,B)")
check("  0               16000           32000           48000       64000\n" in out and
      "  0,32            8,40            16,48           24,56       31,63\n" in out, out)
out, _ = tessera("box", "-s", "30,30", "-f", f"cpu:[{list(range(30))},{list(range(30, 60))}] (S(1),S(0))", "-t", "(B,B)")
check("  [0:1,0:15]  0\n" in out and "... and 28 more parts\n" in out, out)
# A list of many ranks in one place names the first ones and the last.
out, _ = tessera("box", "-s", "3,2", "-f", "cpu S(0)", "-t", "B", "-n", 40)
check("\n  0:3 | 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16..39 |\n" in out, out)
out, _ = tessera("box", "-s", "3,2", "-f", "cpu S(0)", "-t", "P(max)", "-n", 40)
check("\n  0:3 | max(0,1,2,3,4,5,6,7,8,9,10,11,12,13,14..39 |\n" in out, out)
# Nor does a placement's text go on for ever.
out, _ = tessera("box", "-s", "3", "-f", "cpu S(0)", "-t", "B", "-n", 99)
check("\nfrom S(0) on cpu ranks 0-98\n" in "\n" + out and max(map(len, out.split("\n"))) < 101, out)
ranks = list(range(0, 66, 2))
out, _ = tessera("box", "-s", "3", "-f", f"cpu:{ranks} S(0)", "-t", "B", env={"COLUMNS": "80"})
check("from S(0) on cpu ranks 0,2,4,6,8,10,12,14,... (33)\n" in out, out)

# An empty tensor has no picture; a single rank is called a rank.
out, _ = tessera("box", "-s", "3,0", "-f", "cpu:[0,1] S(0)", "-t", "B")
check(out.startswith("f32[3,0], 0 B\nfrom S(0) on cpu:[0,1]\n  nothing on ranks 0, 1\nto B on "
                     "cpu:[0,1]\n  nothing on ranks 0, 1\nroute 1 step, "), out)
for n in (1, 2):
    out, _ = tessera("box", "-s", "3", "-f", "cpu B", "-t", "cpu B", "-n", n, "--run")
    check(f"\nrun on {n} thread rank{'s' if n > 1 else ''}\n" in out, out)

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
    (["cpu:[0,1] \t ", "B"], "no signature"),
    (["cpu:[0,1] S(0)", "auto"], "auto"),
    (["gpu:[0,1] S(0)", "B"], "gpu"),
]:
    out, err = tessera("box", "-s", "8,8", "-f", args[0], "-t", args[1], code=1)
    check(err.startswith("tessera box: ") and text in err, f"{args}: {err}")
done()
