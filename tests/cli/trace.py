#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera trace: sums that one can count oneself, those of a real run by other means, and files that
are no traces. usage: trace.py TESSERA"""
import json
import os
import tempfile
from collections import defaultdict

from harness import check, done, equal, near, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
FILES = os.path.join(os.path.dirname(__file__), "../../examples/experiments")


def path_of(name):
    return os.path.join(FOLDER.name, name)


def write(events, name="t.json"):
    with open(path_of(name), "w", encoding="utf-8") as f:
        json.dump(events, f)
    return path_of(name)


def span(name, rank, ts, dur, communicates=False, **args):
    return {"name": name, "ph": "X", "pid": rank, "tid": int(communicates), "ts": ts, "dur": dur,
            "cat": "communication" if communicates else "compute", "args": args}


def flight(name, rank, number, start, end):
    return [{"name": name, "ph": ph, "id": number, "pid": rank, "tid": 1, "ts": ts, "cat": "under way"}
            for ph, ts in (("b", start), ("e", end))]


# Rank 0 is slow: it computes for 90 us and does not wait; rank 1 computes for 30 and waits for 60.
# Two collectives of rank 1 are under way at a time: 10 to 40 and 30 to 95, in all 85 us, of which it
# computes 20 and 5.
EVENTS = [
    {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "rank 0"}},
    span("linear 0", 0, 100, 60), span("linear 2", 0, 160, 30), span("all_reduce g", 0, 190, 1, True, bytes=40),
    span("all_reduce g (wait)", 0, 191, 4, True), span("all_reduce g (release)", 0, 195, 5, True),
    span("linear 0", 1, 105, 25), span("all_reduce g", 1, 110, 0, True, bytes=40),
    span("relu", 1, 132, 5), span("all_reduce g (wait)", 1, 137, 58, True),
    span("all_gather", 1, 196, 0.5, True, bytes=8), span("all_gather (wait)", 1, 196.5, 2, True),
    *flight("all_reduce g", 1, 7, 110, 140), *flight("all_gather", 1, 8, 130, 195)]
path = write({"traceEvents": EVENTS})
t = tessera_json("trace", path)
near(t["length_s"], 100e-6, "from the first event to the last")
equal([(o["op"], o["calls"]) for o in t["ops"]], [("linear", 3), ("relu", 1)], "ops, longest first")
near(t["ops"][0]["time_s"], 115e-6, "linear")
equal([(c["collective"], c["calls"], c["bytes"]) for c in t["collectives"]],
      [("all_reduce", 2, 80), ("all_gather", 1, 8)], "collectives")
for key, us in (("start_s", 1), ("wait_s", 62), ("release_s", 5), ("under_way_s", 30)):
    near(t["collectives"][0][key], us * 1e-6, key)
for rank, key, us in ((0, "compute_s", 90), (0, "wait_s", 4), (0, "calls_s", 6), (0, "idle_s", 0), (0, "under_way_s", 0),
                      (1, "compute_s", 30), (1, "wait_s", 60), (1, "calls_s", 0.5), (1, "idle_s", 9.5),
                      (1, "under_way_s", 85), (1, "overlap_s", 25)):
    check(abs(t["ranks"][rank][key] - us * 1e-6) < 1e-12, f"rank {rank}: {key} is {t['ranks'][rank][key]}, not {us} us")
equal(tessera("trace", path)[0], f"""\
{path}: 2 ranks, 100 us
by op, all ranks together
  op                       calls      time      %   longest  of
  linear                       3    115 us   95.8   60.0 us  0, rank 0
  relu                         1   5.00 us    4.2   5.00 us  rank 1
by collective, all ranks together
  collective         calls      read     start      wait   release under way
  all_reduce             2      80 B   1.00 us   62.0 us   5.00 us   30.0 us  2.67 MB/s
  all_gather             1       8 B    500 ns   2.00 us      0 ns   65.0 us  123 KB/s
by rank
    rank   compute      wait     calls      idle  under way   overlap
       0   90.0 us   4.00 us   6.00 us      0 ns       0 ns     0.0 %
       1   30.0 us   60.0 us    500 ns   9.50 us    85.0 us    29.4 %
rank 0 waits least, 4.00 us; the others 60.0 us on average: they wait for it
""", "text")
equal(tessera("trace", "-", stdin=json.dumps(EVENTS))[0].split("\n", 1)[1], tessera("trace", path)[0].split("\n", 1)[1],
      "a list of events, from the standard input")
many = [span(f"op{i}", r, 10 * i + r, 5) for i in range(30) for r in range(20)]
short, long = (tessera("trace", write(many), *more)[0] for more in ((), ("--all",)))
check("  ... and 14 more ops (--all)\n" in short and "  ... and 4 more ranks (--all)\n" in short, short)
equal((long.count("\n  op"), long.count(" 150 us ")), (31, 20), "--all")

# A run's own.
out = path_of("run")
tessera("run", os.path.join(FILES, "attention.yaml"), "--trace", "--out", out, timeout=120)
file = os.path.join(out, "trace.json")
t = tessera_json("trace", file)
with open(file, encoding="utf-8") as f:
    events = json.load(f)["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
by = defaultdict(float)
for e in spans:
    by[e["name"].split()[0]] += e["dur"] * 1e-6
for o in t["ops"]:
    near(o["time_s"], by[o["op"]], o["op"], rel=1e-6)
for c in t["collectives"]:
    near(c["start_s"] + c["wait_s"] + c["release_s"], by[c["collective"]], c["collective"], rel=1e-6)
equal({o["op"] for o in t["ops"]} | {c["collective"] for c in t["collectives"]}, set(by), "all are there")
equal(sum(c["bytes"] for c in t["collectives"]), sum(e.get("args", {}).get("bytes", 0) for e in spans), "bytes")
for rank in t["ranks"]:
    # The time that is covered, counted in steps of a nanosecond.
    begun, mine = {}, []
    for e in (e for e in events if e.get("pid") == rank["rank"]):
        if e["ph"] == "b":
            begun[e["id"]] = e["ts"]
        elif e["ph"] == "e":
            mine.append((begun.pop(e["id"]), e["ts"]))
    ticks = set()
    for a, b in mine:
        ticks.update(range(round(a * 1e3), round(b * 1e3)))
    computing = set()
    for e in spans:
        if e["pid"] == rank["rank"] and e["cat"] == "compute":
            computing.update(range(round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)))
    check(abs(rank["under_way_s"] - len(ticks) * 1e-9) < 1e-7, f"{rank}: {len(ticks)} ns under way")
    check(abs(rank["overlap_s"] - len(ticks & computing) * 1e-9) < 1e-7, f"{rank}: {len(ticks & computing)} ns overlap")
    near(rank["compute_s"] + rank["wait_s"] + rank["calls_s"] + rank["idle_s"], t["length_s"], "a rank's time", rel=1e-9)

# What is no trace.
for events, text in (
        ({}, "it has no traceEvents"), ([], "it has no events"), ([3], "traceEvents[0]: it is no object"),
        ([{"ph": "M"}, span("x", -1, 0, 1)], "traceEvents[1]: pid is no rank"),
        ([span("x", 0.5, 0, 1)], "traceEvents[0]: pid is no rank"), ([span("x", 1e9, 0, 1)], "traceEvents[0]: pid is no rank"),
        ([span("x", 0, "now", 1)], "traceEvents[0]: ts is no time"), ([span("x", 0, 0, -1)], "traceEvents[0]: dur is no time"),
        (flight("x", 0, 1, 5, 4), "traceEvents[1]: it ends before it begins"),
        (flight("x", 0, 1, 5, 6)[1:], "traceEvents[0]: it ends and has not begun"),
        (flight("x y", 3, 1, 5, 6)[:1], "x y of rank 3 begins and does not end"),
        ([{**flight("x", 0, 1, 5, 6)[0], "id": "q"}], "traceEvents[0]: id is no number")):
    out, err = tessera("trace", write(events), code=1)
    equal((out, err), ("", f"tessera trace: {path}: {text}\n"), text)
for text in ("", "{", "hello", '{"traceEvents": [', "\0", "[" * 5000):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    equal(tessera("trace", path, code=1)[1], f"tessera trace: {path}: it is no JSON\n", repr(text))
equal(tessera("trace", path_of("none"), code=1)[1], f"tessera trace: {path_of('none')}: No such file or directory\n", "no file")
check("Is a directory" in tessera("trace", FOLDER.name, code=1)[1], "a folder")
check("no FILE to sum up" in tessera("trace", code=2)[1], "no operand")
done()
