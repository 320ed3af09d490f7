#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of runs that end in the middle, on the same ranks and on others; damaged ones; full disks.
usage: checkpoints.py PEER TESSERA [--kills N] [--damages N] [--seed N] [--cuda]"""
import argparse
import glob
import json
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("peer")
parser.add_argument("tessera")
parser.add_argument("--kills", type=int, default=6, help="of a rank, in all, at least")
parser.add_argument("--damages", type=int, default=60)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--cuda", action="store_true", help="on GPUs, or their emulator; going on and loading alone")
ARGS = parser.parse_args()
RANDOM = random.Random(ARGS.seed)
FOLDER = tempfile.TemporaryDirectory()
STEPS = 14
ONE = {"ranks": 1}
FLAT = [{"ranks": 4, "param": "S(0)"}, {"ranks": 3, "param": "B", "state": "S(0)"}, {"ranks": 2, "param": "S(1)"}]
MESH = {"ranks": 4, "placement": "cpu:[[0,1],[2,3]]", "param": "(S(0),B)", "data": "(B,S(0))"}
PART = {"ranks": 3, "placement": "cpu:[2,0]", "param": "S(0)"}
LAYOUTS = [ONE, *FLAT, MESH, PART]
if ARGS.cuda: # one of them stays on CPUs
    LAYOUTS = [{**x, "placement": x.get("placement", f"cpu:{list(range(x['ranks']))}").replace("cpu", "cuda")}
               for x in LAYOUTS[:-2]] + LAYOUTS[-1:]


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def path(name):
    return os.path.join(FOLDER.name, name)


def words(folder, last="", **more):
    return [f"{k}={v}" for k, v in {"steps": STEPS, "folder": path(folder), "last": last and path(last), **more}.items()]


def run(folder, last="", code=0, **more):
    """Runs the peer with ranks that are threads; returns what it wrote."""
    done = subprocess.run([ARGS.peer, *words(folder, last, **more)], capture_output=True, timeout=300, text=True,
                          check=False)
    check(done.returncode == code, f"{folder} {more}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def values(name):
    """The f64 tensors of a safetensors file, as lists."""
    with open(path(name), "rb") as f:
        text = f.read()
    n = struct.unpack("<Q", text[:8])[0]
    data = text[8 + n:]
    return {k: struct.unpack(f"<{(e - b) // 8}d", data[b:e]) for k, v in json.loads(text[8:8 + n]).items()
            if k != "__metadata__" for b, e in [v["data_offsets"]]}


def same(a, b, what):
    with open(path(a), "rb") as f, open(path(b), "rb") as g:
        check(f.read() == g.read(), f"{what}: the weights are not the same")


def near(a, b, what, by=1e-12):
    x, y = values(a), values(b)
    check(x.keys() == y.keys(), what)
    worst = max(abs(p - q) for k in x for p, q in zip(x[k], y[k]))
    check(worst <= by, f"{what}: weights differ by {worst}")


def step_of(output):
    return int(re.search(r"loaded (-?\d+)", output)[1])


def copy(a, b):
    shutil.rmtree(path(b), ignore_errors=True)
    shutil.copytree(path(a), path(b))


# --- going on -------------------------------------------------------------------------------------

def goes_on():
    """A run in two parts gives what one in one does, bit for bit; on other ranks to rounding."""
    run("none", "whole", every=100)
    for i, layout in enumerate(LAYOUTS):
        mode = ("sync", "async", "one")[i % 3]
        optimizer = ("adamw", "lamb", "sgd", "rmsprop")[i % 4]
        run(f"n{i}", f"whole{i}", every=100, optimizer=optimizer, **layout)
        for stop in 5, 8: # between two updates, and after one
            name = f"parts{i}.{stop}"
            run(name, every=stop, mode=mode, optimizer=optimizer, **{**layout, "steps": stop})
            other = LAYOUTS[(i + 2) % len(LAYOUTS)]
            copy(name, "moved")
            check(step_of(run(name, "last", optimizer=optimizer, **layout)) == stop, "the step")
            same("last", f"whole{i}", f"{layout} stopped at {stop}")
            check(step_of(run("moved", "last", optimizer=optimizer, **other)) == stop, "the step")
            near("last", f"whole{i}", f"{layout} stopped at {stop}, then {other}")


def goes_on_ddp():
    """As goes_on, under tsr_ddp, where each rank has gradients of its own between two updates."""
    for i, ranks in enumerate((1, 2, 4)):
        optimizer = ("adamw", "lamb", "sgd")[i]
        run(f"d{i}", f"dwhole{i}", every=100, optimizer=optimizer, ranks=ranks, ddp=1, steps=12)
        for stop in 5, 8: # between two updates, and after one
            name = f"d{i}.{stop}"
            run(name, every=stop, optimizer=optimizer, ranks=ranks, ddp=1, steps=stop)
            check(step_of(run(name, "last", optimizer=optimizer, ranks=ranks, ddp=1, steps=12)) == stop, "the step")
            same("last", f"dwhole{i}", f"ddp on {ranks} ranks stopped at {stop}")


def reshards():
    """What is loaded is what was saved, bit for bit, from any layout to any."""
    for mode in "sync", "one":
        for i, layout in enumerate(LAYOUTS):
            run(f"r{mode}{i}", "saved", every=3, mode=mode, **{**layout, "steps": 3})
            for other in LAYOUTS:
                run(f"r{mode}{i}", "loaded", eval=1, **other)
                same("saved", "loaded", f"saved by {layout}, loaded by {other}")


# --- killed ---------------------------------------------------------------------------------------

def is_peer(pid):
    """A launcher that ends under LeakSanitizer has a child of its own name for a moment, which is no rank."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().split(b"\0")[0].endswith(b"checkpoint_peer")
    except OSError:
        return False


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
            return [int(x) for x in f.read().split() if is_peer(x)]
    except OSError:
        return []


def end(process):
    """Ends a launcher and its ranks, and waits for all of them: a folder of checkpoints stays locked until the
    ranks have gone, which takes a busy machine a while."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGSTOP) # once it has stopped, it begins no further rank
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    ended = []
    for pid in [process.pid, *children(process.pid)]:
        try:
            ended.append(os.pidfd_open(pid))
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for fd in ended:
        select.select([fd], [], [], 10)
        os.close(fd)


def launched(n, args, restarts=0):
    return subprocess.Popen([ARGS.tessera, "launch", "-n", str(n), "--max-restarts", str(restarts), "--", ARGS.peer,
                             *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def killed():
    """Runs that are killed again and again end as if they had not been."""
    went_on = 0
    for n in 1, 2, 4:
        layout = {"param": "S(0)", "pause_us": 3000, "every": 2, "steps": 30}
        calm = launched(n, words("calm", f"calm{n}", **{**layout, "every": 100}))
        check(calm.wait(60) == 0, calm.stderr.read())
        kills = 0
        while kills < max(1, ARGS.kills // 3):
            shutil.rmtree(path("k"), ignore_errors=True)
            p = launched(n, words("k", "k_last", mode="async", **layout), restarts=99)
            while p.poll() is None and kills < ARGS.kills: # a rank dies; the launcher begins again
                time.sleep(RANDOM.uniform(0.03, 0.3))
                ranks = children(p.pid)
                if ranks and p.poll() is None:
                    os.kill(RANDOM.choice(ranks), signal.SIGKILL)
                    kills += 1
            said = p.communicate(timeout=60)[1]
            check(p.returncode == 0, f"{n} ranks: {said[-3000:]}")
            went_on += len(re.findall(r"loaded [1-9]", said))
            same("k_last", f"calm{n}", f"{n} ranks, killed {kills} times")
        print(f"{n} ranks: {kills} kills")
        shutil.rmtree(path("k"), ignore_errors=True)
        for turn in range(3): # all die; the next are of another number
            p = launched((n, 3, 2)[turn], words("k", "k_last", mode="async", **layout))
            time.sleep(RANDOM.uniform(0.05, 0.25))
            end(p)
            p.wait(10)
        p = launched(3, words("k", "k_last", mode="async", **layout))
        check(p.wait(60) == 0, p.stderr.read())
        near("k_last", f"calm{n}", f"{n} ranks and others, killed")
    check(went_on > 0, "no run has gone on from a checkpoint")


# --- damaged --------------------------------------------------------------------------------------

def damage(name):
    """Changes a file of a checkpoint."""
    file = RANDOM.choice(sorted(glob.glob(path(f"{name}/step-*/*"))))
    with open(file, "rb") as f:
        data = bytearray(f.read())
    at = RANDOM.choice([RANDOM.randrange(len(data)), RANDOM.randrange(min(len(data), 600))])
    kind = RANDOM.randrange(6)
    if kind == 0:
        data[at] ^= 1 << RANDOM.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at:at] = bytes(RANDOM.randrange(256) for _ in range(RANDOM.randrange(1, 9)))
    elif kind == 3:
        data[at:at + 8] = struct.pack("<Q", RANDOM.getrandbits(64))[:len(data) - at]
    elif kind == 4:
        n = RANDOM.randrange(1, 64)
        data[at:at + n] = bytes(len(data[at:at + n]))
    else:
        digits = [i for i in range(min(len(data), 3000)) if chr(data[i]).isdigit()]
        i = RANDOM.choice(digits)
        data[i] = ord(RANDOM.choice("0123456789"))
    before = open(file, "rb").read()
    with open(file, "wb") as f:
        f.write(data)
    return f"{os.path.basename(file)}, kind {kind}, byte {at}", bytes(data) != before


def damaged():
    """Nothing that is damaged loads, and nothing crashes."""
    layout = {"ranks": 2, "param": "S(0)"}
    run("good", every=3, **{**layout, "steps": 3})
    for _ in range(ARGS.damages):
        copy("good", "bad")
        what, changed = damage("bad")
        if not changed:
            continue
        done = subprocess.run([ARGS.peer, *words("bad", **{**layout, "steps": 3})], capture_output=True, timeout=60,
                              text=True, check=False)
        check(done.returncode == 1 and path("bad") in done.stderr and "Sanitizer" not in done.stderr,
              f"{what}: exit code {done.returncode}: {done.stderr[-2000:]}")
    # The one before is taken.
    run("two", every=3, **{**layout, "steps": 6})
    for file in glob.glob(path("two/step-00000006/shard-00001*")):
        with open(file, "r+b") as f:
            f.truncate(os.path.getsize(file) - 1)
    said = run("two", every=100, **layout)
    check(step_of(said) == 3 and "the one before is taken" in said, said)
    # Files of two saves do not make one.
    copy("good", "bad")
    run("good2", every=3, **{**layout, "steps": 3})
    name = "step-00000003/shard-00000-of-00002.safetensors"
    shutil.copy(path(f"good2/{name}"), path(f"bad/{name}"))
    check("of another save" in run("bad", code=1, **layout), "files of two saves")


# --- disks ----------------------------------------------------------------------------------------

def full():
    """A save that finds no room ends the run, or warns, and what was there stays."""
    for mode in "sync", "async":
        for layout in ONE, FLAT[0]:
            name = f"full{mode}{layout['ranks']}"
            run(name, mode=mode, every=4, **{**layout, "steps": 4})
            said = run(name, code=1, room=2000, mode=mode, every=4, **layout)
            check("File too large" in said and "step 8" in said, said)
            said = run(name, room=2000, mode=mode, every=4, warn=1, **layout)
            check("not saved" in said, said)
            check([os.path.basename(x) for x in sorted(glob.glob(path(f"{name}/step-*")))] == ["step-00000004"],
                  f"{name}: {os.listdir(path(name))}")
            check(sorted(os.listdir(path(name))) == [".lock", "step-00000004"], f"{os.listdir(path(name))}")
            check(step_of(run(name, every=100, **layout)) == 4, "the last good one")
    os.makedirs(path("closed/.lock")) # where a file is to be
    for more in {}, {"warn": 1}:
        said = run("closed", code=0 if more else 1, **more)
        check("Is a directory" in said, said)


def kept():
    """So many stay, and the best."""
    losses = {}
    run("kept", every=1, keep=2, **ONE)
    found = sorted(int(x[-8:]) for x in glob.glob(path("kept/step-*")))
    run("all", every=1, keep=0, **ONE)
    for x in glob.glob(path("all/step-*")):
        with open(f"{x}/index.json", encoding="utf-8") as f:
            losses[int(x[-8:])] = float.fromhex(json.load(f)["metric"])
    check(len(losses) == STEPS, f"{losses}")
    best = min(losses, key=losses.get)
    check(found == sorted({best, STEPS - 1, STEPS}), f"{found}, the best is {best}")


def locked():
    p = launched(1, words("locked", pause_us=100000, every=1))
    while not glob.glob(path("locked/step-*")):
        time.sleep(0.02)
        check(p.poll() is None, "the run that saves has ended")
    check("another run saves" in run("locked", code=1, every=1, steps=99), "two runs in a folder")
    end(p)
    p.wait(10)



def ckpt(*args, code=0):
    done = subprocess.run([ARGS.tessera, "ckpt", *args], capture_output=True, timeout=60, text=True, check=False)
    check(done.returncode == code, f"ckpt {args}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def tools():
    """`tessera ckpt` sees what the library does."""
    run("t4", "t4.last", every=3, **{**MESH, "steps": 6})
    run("t1", "t1.last", every=3, **{**ONE, "steps": 6})
    lines = ckpt("list", path("t4")).splitlines()
    check([x.split()[0] for x in lines] == ["step", "3", "6"] and lines[1].split()[2] == "4", lines)
    listed = json.loads(ckpt("list", "--json", path("t4/step-00000003")))
    check(listed["step"] == 3 and any(x["name"] == "optimizer/2.weight.gradient" for x in listed["all"]), listed)
    check("good, 16 tensors" in ckpt("verify", path("t4"), path("t4.last")), "verify")
    ckpt("merge", "--part", "model", path("t4"), path("merged"))
    check(values("merged") == values("t4.last"), "what was merged is what tsr_save writes")
    check("5 tensors compared, 0 differ" in ckpt("compare", path("merged"), path("t4.last")), "compare")
    check("only in" in ckpt("compare", path("t4/step-00000003"), path("t4"), code=1), "gradients in one alone")
    ckpt("compare", "--tolerance", "1e-12", path("t4"), path("t1"))
    check(" differ, by up to" in ckpt("compare", path("t4/step-00000006"), path("t1/step-00000003"), code=1), "values")
    ckpt("convert", "--part", "model", "--dtype", "f32", path("t4"), path("small"))
    check(os.path.getsize(path("small")) < os.path.getsize(path("merged")), "f32 takes half the room")
    ckpt("compare", "--tolerance", "1e-6", path("small"), path("merged"))
    shard = path("t4/step-00000006/shard-00002-of-00004.safetensors")
    with open(shard, "r+b") as f:
        f.seek(-3, 2)
        f.write(b"!")
    check("damaged" in ckpt("verify", path("t4"), code=1), "verify a damaged one")
    ckpt("merge", path("t4"), path("never"), code=1)
    check(not os.path.exists(path("never")), "no file of a damaged one")
    for args in [], ["lst", "x"], ["list"], ["merge", "x"], ["convert", "a", "b"], ["compare", "a", "b", "-t", "x"], \
            ["convert", "a", "b", "-d", "i64"]:
        ckpt(*args, code=2)
        check("No such file" in ckpt("list", path("nothing"), code=1), "nothing there")
    for where in "fifo", "fifo2/step-00000001": # a file that nobody writes must not be waited for
        os.makedirs(path(where))
        os.mkfifo(path(f"{where}/index.json"))
        for args in ["list"], ["verify"]:
            check("no file of up to" in ckpt(*args, path(where.split("/", maxsplit=1)[0]), code=1), where)


for part in (goes_on, reshards) if ARGS.cuda else (tools, goes_on, goes_on_ddp, reshards, kept, locked, full, damaged, killed):
    part()
print("ok")
