#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera run while it runs: lines that come at once, files that can't be written, and SIGINT and
SIGTERM, at known moments and at random ones. usage: signals.py TESSERA [MAN] [MOMENTS]"""
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from harness import CACHE, SLOWER, TESSERA, check, done, equal, expect_no_shared_memory, shared_memory, tessera

MOMENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 20
FOLDER = tempfile.TemporaryDirectory()
TRAIN = """\
tessera: 1
placements: {all: {ranks: [0,1]}}
model: {name: mlp, args: {inputs: 64, hidden: 32, outputs: 10, layers: 3}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 120, batch_size: 30}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 1000000, seed: 3}
"""
STARTS_S = {0: 0.1, 2: 0.2}  # to the first step: as threads and as processes, measured by interrupt()
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def path(name):
    return os.path.join(FOLDER.name, name)


def begin(args, launch=0):
    command = [TESSERA] + (["launch", "-n", str(launch), "--", TESSERA] if launch else [])
    env = {**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1", "TMPDIR": path("tmp")}
    return subprocess.Popen(command + args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                            bufsize=0)  # select knows of no lines that Python has read ahead


def read_line(p):
    """A line of stdout, which must come while the command runs."""
    check(select.select([p.stdout], [], [], 60)[0], "a line comes while it runs")
    return p.stdout.readline().decode()


def read_header(p):
    """Three lines, which are there before the first step."""
    check(re.fullmatch(r"mlp: 3,466 parameters on 2 ranks \(cpu, (threads|processes)\); 4000000 steps "
                       r"of 30 rows, 4 an epoch\n", line := read_line(p)), line)
    check(re.fullmatch(r"planned: [\d.]+ [um]s a step; [\d.]+ KB on rank \d, which needs most:\n",
                       line := read_line(p)), line)
    check(re.fullmatch(r"  [\d.]+ KB tensors, as in `tessera plan`; (?:[\d.]+ KB kernels' scratch; )?[\d.]+ KB records\n",
                       line := read_line(p)), line)


def end(p, what):
    try:
        out, err = p.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        p.kill()
        sys.exit(f"FAILED: {what}: hangs")
    return out.decode(), err.decode()


def check_folder(folder, sig, what, complete):
    """result.json is whole or absent, and no temporary is left."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    check(not [n for n in names if n.startswith(".")], f"{what}: left behind: {names}")
    equal(os.listdir(path("tmp")), [], f"{what}: files for a while")
    check(not complete or "result.json" in names, f"{what}: {names}")
    if "result.json" not in names:
        return None
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as f:
        result = json.load(f)
    stop = result["interrupted"]
    equal((stop["signal"], stop["planned_steps"]), (sig.name, 4000000), what)
    equal((stop["step"], len(result["losses"])), (result["steps"],) * 2, f"{what}: steps")
    check(all(l > 0 for l in result["losses"]), f"{what}: losses")
    return result


def interrupt(sig, launch):
    what, folder = f"{sig.name} on {launch or 'threads'}", path("out")
    begun = time.monotonic()
    p = begin(["run", path("t.yaml"), "--out", folder], launch)
    read_header(p)
    STARTS_S[launch] = time.monotonic() - begun
    equal([re.match(r"step (\d)", read_line(p)).group(1) for _ in range(3)], ["1", "2", "3"], what)
    began = time.monotonic()
    p.send_signal(sig)
    out, err = end(p, what)
    check(time.monotonic() - began < 20, f"{what}: ends soon")
    equal(p.returncode, CODES[sig], f"{what}: {out}{err}")
    result = check_folder(folder, sig, what, True)
    check(result["steps"] >= 3, f"{what}: {result['steps']} steps")
    check(f"stopped by {sig.name} after step {result['steps']} of 4000000" in err, f"{what}: {err}")
    check(f"{result['steps']} steps of 30 rows" in out, f"{what}: {out}")
    for c in result["collectives"]:
        equal(c["calls"], c["planned_calls"], f"{what}: the ranks stop at the same step")
    shutil.rmtree(folder)


def hang():
    """A rank that is stopped: the other one leaves the collective, and what it knows."""
    folder = path("out")
    p = begin(["run", path("t.yaml"), "--out", folder], 2)
    ranks = []
    read_header(p)
    read_line(p)
    with open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="utf-8") as f:
        ranks = [int(n) for n in f.read().split()]
    rank_of = {}
    for n in ranks:
        with open(f"/proc/{n}/environ", "rb") as f:
            rank = re.search(rb"\0RANK=(\d)", b"\0" + f.read())
        if rank:  # else it is the launcher's own
            rank_of[int(rank.group(1))] = n
    os.kill(rank_of[1], signal.SIGSTOP)
    time.sleep(0.1)
    began = time.monotonic()
    os.kill(rank_of[0], signal.SIGINT)
    while True:
        with open(f"/proc/{rank_of[0]}/stat", encoding="utf-8") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "Z" or time.monotonic() - began > 10:
                break
        time.sleep(0.01)
    took = time.monotonic() - began
    check(took < 8, f"a hanging step: left after {took:.2f} s")
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGTERM)
    _, err = end(p, "a hanging step")
    equal(p.returncode, 130, f"a hanging step: {err}")
    check_folder(folder, signal.SIGINT, "a hanging step", True)
    check("the step under way did not end and was left" in err, err)
    shutil.rmtree(folder)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def await_handler(p):
    """Waits until a command has the handler, or the mask, of SIGINT: before, the signal would end it as any program."""
    def has_handler():
        with open(f"/proc/{p.pid}/status", encoding="utf-8") as f:
            return any(int(mask, 16) & 1 << signal.SIGINT - 1
                       for mask in re.findall(r"^Sig(?:Cgt|Blk):\s*(\w+)$", f.read(), re.M))
    until = time.monotonic() + 30
    while not has_handler():
        check(time.monotonic() < until and p.poll() is None, "a launcher handles SIGINT")
        time.sleep(0.01)


def nodes():
    """A launcher that waits for another one; and the module for several nodes, of a build tree."""
    soon_s = 0.45 * SLOWER
    for rank in ("0", "1"):
        took_s = 9
        for _ in range(5):  # the best of them: a busy machine makes any of them late
            p = begin(["launch", "--nnodes", "2", "--node-rank", rank, "--master-addr", "127.0.0.1",
                       "--master-port", free_port(), "--", "true"])
            await_handler(p)
            time.sleep(0.3)
            began = time.monotonic()
            p.send_signal(signal.SIGINT)
            _, err = end(p, "a launcher that waits")
            took_s = min(took_s, time.monotonic() - began)
            equal(p.returncode, 130, f"node {rank} waits: {err}")
            if took_s < soon_s:
                break
        check(took_s < soon_s, f"node {rank} ends within 0.3 s of a signal, took {took_s:.2f} s")
    p = begin(["launch", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1",
               "--master-port", free_port(), "--join-timeout", "0.2", "--", "true"])
    _, err = end(p, "--join-timeout")
    check(p.returncode == 1 and "within 0.2 s" in err, f"--join-timeout: {p.returncode} {err}")
    where = os.path.join(os.path.dirname(TESSERA), "../comm/gloo/libtessera_gloo.so")
    if os.path.exists(where):
        os.environ.pop("TESSERA_GLOO_MODULE", None)
        port = free_port()
        both = [begin(["launch", "--nnodes", "2", "--node-rank", r, "--master-addr", "127.0.0.1",
                       "--master-port", port, "--", "sh", "-c", "test -f $TESSERA_GLOO_MODULE"])
                for r in "01"]
        for p in both:
            _, err = end(p, "two nodes")
            equal(p.returncode, 0, f"the module of a build tree: {err}")


def random_moments(n):
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    written = 0
    for i in range(n):
        sig = rng.choice(list(CODES))
        launch = rng.choice([0, 0, 0, 2])
        after = rng.uniform(0, 1.5 * STARTS_S[launch])
        folder = path("out")
        p = begin(["run", path("t.yaml"), "--out", folder, "--trace"], launch)
        time.sleep(after)
        p.send_signal(sig)
        out, err = end(p, f"moment {i}")
        what = f"seed {seed}, moment {i}: {sig.name} to {launch} after {after:.4f} s"
        # Before the command has come to its first line the signal ends it as any program.
        check(p.returncode in (CODES[sig], -sig), f"{what}: exit code {p.returncode}\n{out}{err}")
        written += check_folder(folder, sig, what, False) is not None
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{n} random moments, {written} with a result")
    check(n < 20 or written > 0, "some have a result")


def unwritable():
    """Said before training, which would take hours."""
    os.mkdir(path("taken"))
    for name, options in (("result.json", []), ("trace.json", ["--trace"])):
        os.mkdir(path("taken/" + name))
        _, err = tessera("run", path("t.yaml"), "--out", path("taken"), *options, code=1)
        check(f"{path('taken/' + name)}: Is a directory" in err, err)
        os.rmdir(path("taken/" + name))
    if os.path.isdir("/proc/self"):
        _, err = tessera("run", path("t.yaml"), "--out", "/proc/self", code=1)
        check("/proc/self" in err, err)


os.mkdir(path("tmp"))
with open(path("t.yaml"), "w", encoding="utf-8") as text:
    text.write(TRAIN)
before = shared_memory()
if len(sys.argv) <= 3:
    unwritable()
    for s in CODES:
        for processes in (0, 2):
            interrupt(s, processes)
    hang()
    nodes()
random_moments(MOMENTS)
expect_no_shared_memory(before)
done()
