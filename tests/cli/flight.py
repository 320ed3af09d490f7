#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera flight on folders that someone else has written. usage: flight.py TESSERA"""
import json
import os
import tempfile

from harness import check, done, equal, tessera, tessera_json

T0 = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def dump(folder, rank, nranks, come, run="r1", restart=0, after=60, reason="-"):
    """Rank `rank` has come to `come` calls of the group of all ranks, and finished those that all have."""
    ranks = ",".join(map(str, range(nranks)))
    lines = ["tessera flight 1", f"run {run}", f"rank {rank} of {nranks}", "world 1", f"restart {restart}",
             "host box", f"pid {1000 + rank}", f"time {T0 + after * SECOND} 2023-11-14T22:14:20Z",
             f"reason {reason}", "exit -", f"calls {come}",
             f"group 1 comm=local lane=0 nranks={nranks} ranks={ranks} started={come} completed={min(come, 20)}"]
    for n in range(1, come + 1):
        state = "completed" if n <= 20 else "failed"
        at = T0 + n * SECOND
        lines.append(f"call {n} state={state} group=1 world=1 seq={n} shown=0 kind=all_reduce algo=0 op=sum root=- dtype=f32"
                     f" shape=4,2 segments=1 bytes=32 hash=00000000000000aa asked={at} started={at}"
                     f" ended={at + SECOND // 4} waits={'1' if n > 20 else '-'} at=\"t.c:{n}\" what=\"g{n}\"")
    path = os.path.join(folder, f"flight.rank{rank}.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines + ["end", ""]))
    return path


VERDICT = ("rank 1 did not come to all_reduce #21 of group [0,1,2] 'g21' (t.c:21); its last call was all_reduce "
           "#20 of group [0,1,2] 'g20' (t.c:20), completed 1.0 s before; ranks 0 and 2 waited")

with tempfile.TemporaryDirectory() as d:
    _, err = tessera("flight", d, code=1)
    check("has no dumps of the flight recorder" in err and "TESSERA_FLIGHT_DIR" in err, err)
    _, err = tessera("flight", os.path.join(d, "none"), code=1)
    check("can't read the folder" in err, err)

    for rank in range(3):
        dump(d, rank, 3, 20 if rank == 1 else 21)
    with open(os.path.join(d, "notes.txt"), "w", encoding="utf-8") as f:
        f.write("not a dump\n")
    out, err = tessera("flight", d)
    lines = out.split("\n")
    equal(lines[0], VERDICT, "first line")
    equal(err, "", "stderr")
    check("run r1 of 3 ranks, restart 0: 3 files" in out, out)
    check("     0  #21       #20       all_reduce #21 'g21' (t.c:21), failed, waits for rank 1" in out, out)
    check("     1  #20       #20       all_reduce #20 'g20' (t.c:20), completed" in out, out)
    equal(sum("of group" in x for x in lines[1:]), 30, "ten calls of each of three ranks")
    check(lines.index(next(x for x in lines if x.startswith("rank 1, process 1001 on box: 20 calls"))) <
          lines.index(next(x for x in lines if x.startswith("rank 0, process"))), "the guilty rank comes first")
    out, _ = tessera("flight", "--rank", "2", "--last", "3", d)
    equal([x.split()[3:5] for x in out.split("\n") if "of group" in x][1:],
          [["all_reduce", "#19"], ["all_reduce", "#20"], ["all_reduce", "#21"]], "--rank, --last")
    check(", waits for rank 1" in out and "rank 1, process" not in out, out)
    out, _ = tessera("flight", "-l", "0", d)
    equal(sum("process" in x for x in out.split("\n")), 0, "--last 0")
    _, err = tessera("flight", "--rank", "3", d, code=1)
    check("there is no file of rank 3" in err, err)

    j = tessera_json("flight", "-l", "2", d)
    equal((j["verdict"], j["fault"], j["guilty"], j["missing"], j["not_used"]), (VERDICT, "behind", [1], [], []), "JSON")
    equal([(m["started"], m["completed"]) for m in j["groups"][0]["members"]], [(21, 20), (20, 20), (21, 20)], "members")
    equal([r["rank"] for r in j["ranks"]], [1, 0, 2], "ranks in JSON")
    last = j["ranks"][1]["last"]
    equal((len(last), last[1]["shape"], last[1]["waits_for"], last[1]["state"], last[1]["ranks"]),
          (2, [4, 2], 1, "failed", [0, 1, 2]), "a call in JSON")

    with open(os.path.join(os.path.dirname(__file__), "flight.json"), encoding="utf-8") as f:
        expected = json.load(f)
    group, ranks = expected["groups"][0], expected["ranks"]
    equal(j["groups"][0]["members"].pop()["rank"], 2, "the last member")
    equal((j["run"], j["restart"], j["nranks"]), ("r1", 0, 3), "the run in JSON")
    equal(j["groups"], [group], "groups in JSON")
    equal(j["ranks"][:2], ranks, "calls in JSON")
    out, _ = tessera("flight", "-l", "1", d)
    equal(out, VERDICT + """

run r1 of 3 ranks, restart 0: 3 files, the first of 2023-11-14 22:14:20.000 UTC

group [0,1,2]
  rank  started   completed
     0  #21       #20       all_reduce #21 'g21' (t.c:21), failed, waits for rank 1
     1  #20       #20       all_reduce #20 'g20' (t.c:20), completed
     2  #21       #20       all_reduce #21 'g21' (t.c:21), failed, waits for rank 1

rank 1, process 1001 on box: 20 calls
  2023-11-14 22:13:40.000  completed all_reduce #20 of group [0,1,2] 'g20' (t.c:20), 250 ms

rank 0, process 1000 on box: 21 calls
  2023-11-14 22:13:41.000  failed    all_reduce #21 of group [0,1,2] 'g21' (t.c:21), 250 ms, waits for rank 1

rank 2, process 1002 on box: 21 calls
  2023-11-14 22:13:41.000  failed    all_reduce #21 of group [0,1,2] 'g21' (t.c:21), 250 ms, waits for rank 1
""", "all of the text")

    # The table has 16 lines where more ranks are behind.
    with tempfile.TemporaryDirectory() as many:
        for rank in range(20):
            dump(many, rank, 20, 21 if rank in (0, 19) else 20)
        out, _ = tessera("flight", "-l", "0", many)
        rows = [line.split()[0] for line in out.split("\n") if "#20       #20" in line]
        equal(rows, [str(r) for r in range(1, 17)], "the first 16 of those behind")
        check("\n  ... and 4 more of 20\n" in out, out)

    # Not all files are there, or whole.
    os.unlink(os.path.join(d, "flight.rank1.txt"))
    out, _ = tessera("flight", d)
    equal(out.split("\n")[0], "rank 1, of which there is no file, did not come to all_reduce #21 of group [0,1,2] 'g21' "
          "(t.c:21), or did not finish it; ranks 0 and 2 waited", "a missing file")
    check("no file of rank 1\n" in out and "     1  (no file)" in out, out)
    path = dump(d, 1, 3, 20)
    with open(path, "r+", encoding="utf-8") as f:
        f.truncate(1500)
    for text, where in ((None, "flight.rank1.txt:1"), ("garbage\n", "flight.rank1.txt:1: this is no dump"),
                        ("\0\0\n", "a control character"), ("", "the file ends here")):
        if text is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        out, err = tessera("flight", d, code=1)
        check(out.startswith("rank 1, of which there is no file,"), out)
        check("not used: " in err and where in err, err)
    aside = json.loads(tessera("flight", "-j", d, code=1)[0])["not_used"]
    equal([x["file"] for x in aside], ["flight.rank1.txt"], "not_used")

    # Of another run, and of an earlier try of this one.
    dump(d, 1, 3, 7, run="r0", after=30)
    out, err = tessera("flight", d)
    check(out.startswith("rank 1, of which there is no file,"), out)
    check("not used: flight.rank1.txt: of another run (r0, restart 0; the latest is r1, restart 0)" in err, err)
    dump(d, 1, 3, 7, restart=1, after=90)
    out, err = tessera("flight", d)
    check(out.startswith("no rank is behind: all finished their calls; there is no file of ranks 0 and 2"), out)
    check("flight.rank0.txt: of another run" in err and "flight.rank2.txt: of another run" in err, err)

    # A copy of a file under another rank's name.
    dump(d, 1, 3, 20)
    with open(os.path.join(d, "flight.rank2.txt"), encoding="utf-8") as f:
        text = f.read()
    with open(os.path.join(d, "flight.rank7.txt"), "w", encoding="utf-8") as f:
        f.write(text)
    out, err = tessera("flight", d)
    equal(out.split("\n")[0], VERDICT, "a file twice")
    check("a second file of rank 2" in err, err)
    os.unlink(os.path.join(d, "flight.rank7.txt"))

    # None can be read.
    for rank in range(3):
        with open(os.path.join(d, f"flight.rank{rank}.txt"), "w", encoding="utf-8") as f:
            f.write("x")
    _, err = tessera("flight", d, code=1)
    check("no dump in" in err and "flight.rank0.txt:1" in err, err)
done()
