#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera launch, and saves in a loop, which are interrupted, terminated and killed at random moments:
files are whole or absent, exit codes are those of tessera-launch(1), no process, shared memory or
temporary stays, but for those of a killed save, which the next one removes. 24 moments; 300 with
TESSERA_FULL. usage: kills.py TESSERA FILES_CHILD [SEED]"""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from harness import CACHE, TESSERA, check, done, equal, expect_no_shared_memory, shared_memory

CHILD = os.path.abspath(sys.argv[2])
MOMENTS = 300 if os.environ.get("TESSERA_FULL") else 24
FOLDER = tempfile.TemporaryDirectory()
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
TRAIN = """\
tessera: 1
placements: {all: {ranks: [0,1]}}
model: {name: mlp, args: {inputs: 64, hidden: 32, outputs: 10, layers: 3}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 120, batch_size: 30}
optimizer: {name: sgd, lr: 0.1, momentum: 0.9}
train: {epochs: 1000000, seed: 3}
"""
STAGES = TRAIN.replace("placements: {all: {ranks: [0,1]}}", """\
mesh: {pp: 2}
schedule: {microbatches: 6}
stages: {axis: pp, split: auto}""")


def path(*names):
    return os.path.join(FOLDER.name, *names)


OUT, SAVED = path("out"), path("saves", "model.safetensors")
LAUNCH = [TESSERA, "launch", "-n", "2"]
RUN, PIPELINE = ([TESSERA, "run", path(f), "--out", OUT, "--trace"] for f in ("t.yaml", "stages.yaml"))
SAVE = [CHILD, "save", SAVED, "{first}", "1000000"]
# What runs; how many ranks are processes.
KINDS = {"run": (RUN, 0), "launched run": (LAUNCH + RUN, 2), "pipeline": (PIPELINE, 0),
         "launched pipeline": (LAUNCH + PIPELINE, 2), "saves": (SAVE, 0), "launched saves": (LAUNCH + SAVE, 2),
         "saves behind a shell": (LAUNCH + ["sh", "-c", " ".join(SAVE) + "; exit $?"], 2)}
SHELLS = [TESSERA, "launch", "-n", "8", "sh", "-c", "sleep 77; exit $?"]


class Moment:
    """Processes that all have a word of this moment in their environment."""

    def __init__(self, number, command, first):
        self.mark = f"TESSERA_TEST_MOMENT={os.getpid()}.{number}"
        env = dict([self.mark.split("=")], XDG_CACHE_HOME=CACHE.name, OMP_NUM_THREADS="1", TMPDIR=path("tmp"))
        self.process = subprocess.Popen([a.format(first=first) for a in command], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **env}, stdin=subprocess.DEVNULL)

    def alive(self, word=""):
        """Numbers of those with `word` in their environment, too."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
                    words = f.read().split("\0")
                if self.mark in words and (not word or word in words):
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def kill_one(self, rng):
        """Whether there was a rank to kill."""
        ranks = self.alive(f"RANK={rng.randrange(2)}")
        for pid in ranks:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                return False
        return bool(ranks)

    def end(self, what):
        try:
            out, err = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            print(f"hangs: {what}; alive: {self.alive()}")
            for pid in self.alive():
                os.kill(pid, signal.SIGKILL)
            raise
        until = time.monotonic() + 20
        while self.alive():
            check(time.monotonic() < until, f"{what}: still running: {self.alive()}")
            time.sleep(0.005)
        return self.process.returncode, out.decode(), err.decode()


# --- what is left ---------------------------------------------------------------------------------

def hidden(folder):
    return [n for n in os.listdir(folder) if n.startswith(".")] if os.path.isdir(folder) else []


def check_out(what):
    """Returns whether there is a result."""
    for name in "result.json", "trace.json":
        try:
            with open(os.path.join(OUT, name), encoding="utf-8") as f:
                found = json.load(f)
        except FileNotFoundError:
            continue
        if name == "result.json":
            check(len(found["losses"]) == found["steps"] and all(x > 0 for x in found["losses"]), f"{what}: {name}")
    return os.path.exists(os.path.join(OUT, "result.json"))


def saved_number(what):
    """Of the save that the file has, all of it; 0: there is none."""
    if not os.path.exists(SAVED):
        return 0
    with open(SAVED, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    values = struct.unpack(f"<{(len(data) - 8 - n) // 4}f", data[8 + n:])
    equal((sorted(header), len(values), len(set(values))),
          (["__metadata__", "bias", "mean", "weight"], 64 * 129 + 7 + 64, 1), f"{what}: the file")
    p = subprocess.run([CHILD, "load", SAVED], capture_output=True, text=True, timeout=30)
    equal((p.returncode, p.stdout), (0, f"{values[0]:.0f}\n"), f"{what}: loaded: {p.stderr}")
    return int(values[0])


def check_saves(before, out, what):
    said = [int(x.split()[1]) for x in out.splitlines() if x.startswith("saved ") and x.split()[1:]]
    found = saved_number(what)
    last = max(said, default=before)
    # A line may be lost with the process that was about to say it.
    check(found >= last, f"{what}: save {found} is there, {last} was said")
    return found


def finish(kind, what):
    """The next one, which ends well, removes what a killed one has left."""
    if "saves" in kind:
        subprocess.run([CHILD, "save", SAVED, "1", "1"], capture_output=True, check=True, timeout=30)
        equal(os.listdir(os.path.dirname(SAVED)), [os.path.basename(SAVED)], f"{what}: after the next save")
    else:
        command = PIPELINE if "pipeline" in kind else RUN
        subprocess.run([*command, "--steps", "2"], capture_output=True, check=True, timeout=30)
        equal(sorted(os.listdir(OUT)), ["loss.npy", "result.json", "trace.json", "weights.safetensors"],
              f"{what}: after the next run")


# --- moments --------------------------------------------------------------------------------------

def legal_codes(kind, sig, victim):
    if victim == "rank":
        return {128 + signal.SIGKILL}
    if sig == signal.SIGKILL or kind == "saves":
        return {-sig}
    return {128 + sig, -sig}  # -sig: before its first line


def moment(rng, i, what, figures):
    kind, sig = rng.choice(list(KINDS)), rng.choice(SIGNALS)
    victim = "rank" if sig == signal.SIGKILL and KINDS[kind][1] and rng.random() < 0.5 else "all"
    after, first = rng.uniform(0, rng.choice([0.02, 0.3])), 1000 * (i + 1)  # also while ranks are started
    what = f"{what}: {sig.name} to {victim} of {kind} after {after:.4f} s"
    before = saved_number(what)
    m = Moment(i, KINDS[kind][0], first)
    time.sleep(after)
    if victim == "all" or not m.kill_one(rng):
        victim = "all"
        m.process.send_signal(sig)
    code, out, err = m.end(what)
    check(code in legal_codes(kind, sig, victim), f"{what}: exit code {code}\n{out[-500:]}{err}")
    equal(os.listdir(path("tmp")), [], f"{what}: temporary files")
    if "saves" in kind:
        figures["saves found"] += check_saves(before, out, what) >= first
        left = hidden(os.path.dirname(SAVED))
    else:
        figures["results found"] += check_out(what)
        left = hidden(OUT)
        check(not left or sig == signal.SIGKILL, f"{what}: left behind: {left}")
    figures["temporaries of killed ones"] += len(left)
    if left or rng.random() < 0.1:
        finish(kind, what)
        shutil.rmtree(OUT, ignore_errors=True)


def early(i):
    """The launcher is killed while it starts ranks: what those have started ends too."""
    m = Moment(f"early{i}", SHELLS, 0)
    time.sleep(0.002 * (1 + i))
    m.process.kill()
    m.end(f"early moment {i}")


def main():
    os.mkdir(path("tmp"))
    os.mkdir(path("saves"))
    for name, text in ("t.yaml", TRAIN), ("stages.yaml", STAGES):
        with open(path(name), "w", encoding="utf-8") as f:
            f.write(text)
    before = shared_memory()
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    rng = random.Random(seed)
    figures = {"saves found": 0, "results found": 0, "temporaries of killed ones": 0}
    for i in range(MOMENTS):
        moment(rng, i, f"seed {seed}, moment {i}", figures)
    for i in range(10):
        early(i)
    expect_no_shared_memory(before)
    print(f"{MOMENTS} moments: {figures}")
    done()


main()
