#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command where system calls are interrupted, move a part, or fail, and where memory is refused.
usage: faulty.py TESSERA FAULTY_CALLS_MODULE interrupted|no_memory"""
import os
import re
import socket
import subprocess
import sys
import tempfile

from harness import CACHE, TESSERA, check, done, equal

MODULE, PART = sys.argv[2:4]
FOLDER = tempfile.TemporaryDirectory()
NOTES = os.path.join(FOLDER.name, "notes")
SMALL = """\
tessera: 1
placements: {a: {ranks: [0, 1]}}
graph:
  x: {op: normal, placement: a, sbp: S(0), shape: [8]}
  y: {op: relu, in: [x]}
fetch: [y]
"""
GRAPH = """\
tessera: 1
placements: {a: {ranks: [[0,1],[2,3]]}, b: {ranks: [3,1,2]}}
graph:
  x: {op: normal, placement: a, sbp: "(S(0),B)", shape: [8,6]}
  w: {op: parameter, value: [[1,2],[3,4],[5,6],[7,8],[9,1],[2,3]], placement: a, sbp: "(B,S(1))"}
  y: {op: matmul, in: [x, w]}
  z: {op: to_global, in: [y], placement: b, sbp: S(0)}
  s: {op: mul, in: [y, y]}
  l: {op: sum, in: [s]}
loss: l
fetch: [z, l, "grad(w)"]
"""
BOX = ["box", "-s", "7,5", "-f", "cpu:[0,1,2] P", "-t", "S(0)"]
T0 = 1_700_000_000_000_000_000


def path(name, text=None):
    p = os.path.join(FOLDER.name, name)
    if text is not None:
        with open(p, "w", encoding="utf-8") as f:
            f.write(text)
    return p


def begin(args, faults="", stderr=subprocess.PIPE, **more):
    """Starts a command, with faults in it and in what it starts."""
    env = {**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1", "TESSERA_CHECK": "1", **more}
    if faults:
        env.update({"LD_PRELOAD": MODULE, "FAULTY_CALLS": faults, "FAULTY_CALLS_LOG": NOTES})
    return subprocess.Popen([TESSERA] + args, stdout=subprocess.PIPE, stderr=stderr, env=env,
                            stdin=subprocess.DEVNULL)


def end(process, what, codes=(0,)):
    try:
        out, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit(f"FAILED: {what}: hangs; {process.communicate()}")
    check(process.returncode in codes, f"{what}: exit code {process.returncode}\n{out[-2000:]}\n{err and err[-2000:]}")
    return process.returncode, out, err


def run(args, faults="", codes=(0,), **more):
    return end(begin(args, faults, **more), f"{args} with {faults}", codes)


def without_times(out):
    return re.sub(rb"[-+.\d]+ (ns|us|ms|s|min)\b", b"TIME", out)


def files_of(folder):
    """The arrays, byte by byte."""
    names = sorted(n for n in os.listdir(folder) if n.endswith(".npy"))
    return {n: open(os.path.join(folder, n), "rb").read() for n in names}


def dumps():
    """Three ranks, of which rank 1 has not come to the last call."""
    folder = path("dumps")
    os.mkdir(folder)
    for rank in range(3):
        come = 20 if rank == 1 else 70
        lines = ["tessera flight 1", "run r1", f"rank {rank} of 3", "world 1", "restart 0", "host box",
                 f"pid {1000 + rank}", f"time {T0} 2023-11-14T22:14:20Z", "reason it \\xffis", "exit -",
                 f"calls {come}",
                 f"group 1 comm=local lane=0 nranks=3 ranks=0,1,2 started={come} completed={min(come, 20)}"]
        lines += [f"call {n} state={'completed' if n <= 20 else 'failed'} group=1 world=1 seq={n} shown=0"
                  f" kind=all_reduce algo=0 op=sum root=- dtype=f32 shape=4,2 segments=1 bytes=32"
                  f" hash=00000000000000aa asked={T0 + n} started={T0 + n} ended={T0 + n + 1}"
                  f" waits={'1' if n > 20 else '-'} at=\"t.c:{n}\" what=\"g{n}\"" for n in range(1, come + 1)]
        path(f"dumps/flight.rank{rank}.txt", "\n".join(lines + ["end", ""]))
    return folder


# --- interrupted ----------------------------------------------------------------------------------

def same_results():
    """Commands give what they give elsewhere."""
    graph, folder = path("g.yaml", GRAPH), dumps()
    for args in [["plan", graph], BOX, BOX + ["--run"], ["flight", folder]]:
        _, out, _ = run(args)
        for seed in 1, 2:
            equal(without_times(run(args, f"seed={seed} eintr=3 short=2")[1]), without_times(out), args[0])
    expected = None
    for start in [], ["launch", "-n", "4", "--", TESSERA]:
        for seed in 0, 1, 2:
            o = path(f"o{len(start)}.{seed}")
            args = start + ["run", "-o", o, graph]
            run(args, f"seed={seed} eintr=3 short=2" if seed else "")
            expected = expected or files_of(o)
            check(len(expected) > 5 and files_of(o) == expected, f"{args}: the files")


SPEAK = "i=0; while [ $i -lt 400 ]; do printf 'line '; echo $RANK $i {}; echo err $RANK $i >&2; i=$((i+1)); done"


def output_of_ranks():
    """All that ranks write arrives, on the console, in its order, and in files."""
    script = SPEAK.format("x" * 1500)
    said = [[f"line {r} {i} {'x' * 1500}" for i in range(400)] for r in range(2)]
    wrong = [[f"err {r} {i}" for i in range(400)] for r in range(2)]
    for seed in 1, 2:
        faults, logs = f"seed={seed} eintr=3 short=2", path(f"logs{seed}")
        args = ["launch", "-n", "2", "--log-dir", logs, "-t", "3", "--rdzv-id", "r", "--", "sh", "-c", script]
        _, out, err = run(args, faults)
        for stream, expected in (out, said), (err, wrong): # pieces of lines, of either rank
            whole = "".join(x + "\n" for x in sum(expected, [])).encode()
            check(sorted(stream) == sorted(whole), f"{len(stream)} bytes of {len(whole)}")
        for r in range(2):
            for name, expected in ("stdout", said[r]), ("stderr", wrong[r]):
                with open(f"{logs}/r/attempt_0/{r}/{name}.log", encoding="utf-8") as f:
                    equal(f.read().split("\n"), expected + [""], f"{name}.log")
        _, out, err = run(["launch", "-n", "2", "--prefix", "--", "sh", "-c", script], faults)
        for r in range(2):
            mine = [x[4:] for x in out.decode().split("\n") if x.startswith(f"[{r}]")]
            equal(mine, said[r], "stdout with --prefix")


def nodes(faults, script, code):
    """Two launchers on this machine."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    both = [begin(["launch", "--nnodes", "2", "--node-rank", str(r), "--master-addr", "127.0.0.1",
                   "--master-port", port, "-n", "2", "--timeout", "9", "--monitor-interval", "0.05",
                   "--", "sh", "-c", script], faults[r]) for r in range(2)]
    return [b"".join(end(p, f"node {r} with {faults}", (code,))[1:]).decode() for r, p in enumerate(both)]


def two_nodes():
    """Launchers come together, and hear of the first failure, also where calls fail for a moment."""
    well = "echo rank $RANK of $WORLD_SIZE."
    interrupted = ["seed=1 eintr=3 short=2"] * 2
    faults = [["", ""], interrupted, ["fail=accept4:1:EMFILE", ""], ["fail=accept4:1:ECONNABORTED", ""]]
    faults += [["", f"fail={x}"] for x in ("socket:1:EMFILE", "connect:1:ECONNREFUSED", "send:1:ECONNRESET")]
    # The launcher polls first, then its line to node 0 does: to be greeted, for its number, for the verdict.
    faults += [["", f"fail=poll:{n}:ENOMEM"] for n in range(1, 9)]
    for f in faults:
        for r, text in enumerate(nodes(f, well, 0)):
            equal(sorted(x for x in text.split("\n") if x.startswith("rank ")),
                  [f"rank {2 * r} of 4.", f"rank {2 * r + 1} of 4."], f"node {r} with {f}")
    for f in faults[0], interrupted:
        for text in nodes(f, "[ $RANK = 3 ] && { echo woe >&2; exit 9; }; exec sleep 60", 9):
            check("rank 3 (local rank 1 of node 1, " in text and "exited with code 9" in text, text)


def terminals():
    """Ranks' stderr is a terminal where the launcher's is one; where none is to be had, a pipe."""
    for faults, found in ("", True), ("fail=ptsname_r:0:EMFILE", False):
        master, terminal = os.openpty()
        process = begin(["launch", "-n", "2", "--", "sh", "-c", "ls -l /proc/$PPID/fd; test -t 2 && echo tty"],
                        faults, stderr=terminal)
        _, out, _ = end(process, f"at a terminal with {faults}", (0, 1))
        os.close(terminal)
        os.close(master)
        equal((b"tty\n" in out, b"ptmx" in out), (found, found), f"terminals with '{faults}'")


# --- no memory ------------------------------------------------------------------------------------

def without_memory(args, first=1):
    """Refuses memory at each place in turn: the command says so, or does all that it does. Returns
    the number of places."""
    code, out, _ = run(args, codes=(0, 3))
    codes = {code, 1, 126} if args[0] == "launch" else {code, 1}
    refused, failed = first - 1, 0
    while True:
        if os.path.exists(NOTES):
            os.unlink(NOTES)
        n = refused + 1
        got, text, err = run(args, f"rank=-1 site={n}", codes)
        if not os.path.exists(NOTES):
            break
        refused += 1
        if got != code:
            failed += 1
            check(re.search(rb"no memory|out of memory|Cannot allocate memory", err),
                  f"{args}: refused at place {n}, says {err}")
        else:
            equal(sorted(without_times(text).split(b"\n")), sorted(without_times(out).split(b"\n")),
                  f"{args}: refused at place {n}")
    check(failed > (first == 1) * 5, f"{args}: {refused} places, {failed} failures")
    return refused


def no_memory():
    # One rank: threads would come to their places in any order.
    alone = GRAPH.replace("[[0,1],[2,3]]", "[0]").replace("[3,1,2]", "[0]").replace("(S(0),B)", "B")
    without_memory(["run", "-o", path("o"), path("alone.yaml", alone.replace("(B,S(1))", "B"))])
    without_memory(["plan", path("g.yaml", GRAPH)])
    small = path("small.yaml", SMALL)
    without_memory(["plan", small, "--why", "y"])
    without_memory(["plan", small, small])
    without_memory(["plan", small, "--fixed", "--sweep", "cluster.latency_us=1,2"])
    without_memory(BOX + ["--run"])
    without_memory(["flight", dumps()])
    n = without_memory(["launch", "-n", "2", "--prefix", "--", "sh", "-c", "echo hi; echo there >&2"])
    without_memory(["launch", "-n", "2", "-r", "3", "--log-dir", path("logs"), "--rdzv-id", "r", "--", "sh", "-c",
                    "[ $RANK = 1 ] && { echo woe >&2; exit 3; }; exec sleep 60"], n - 3)  # those of a failure


if PART == "interrupted":
    same_results()
    output_of_ranks()
    two_nodes()
    terminals()
else:
    no_memory()
done()
