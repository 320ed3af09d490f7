#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each command and library call that writes files, on a disk that is full at a random moment: an error
names a file, the exit code is 1, files of an earlier run stay, and nothing is half or left behind.
40 moments; 300 with TESSERA_FULL. usage: disks.py TESSERA FILES_CHILD [FAULTY_CALLS_MODULE] [SEED]"""
import errno
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

from harness import TESSERA, check, done, equal
from small_disk import SmallDisk

CHILD = os.path.abspath(sys.argv[2])
MODULE = sys.argv[3] if len(sys.argv) > 3 and sys.argv[3] != "-" else None
MOMENTS = 300 if os.environ.get("TESSERA_FULL") else 40
FOLDER = tempfile.TemporaryDirectory()
GRAPH = """\
tessera: 1
placements: {a: {ranks: [0,1]}}
graph:
  x: {op: normal, placement: a, sbp: S(0), shape: [60,41]}
  w: {op: parameter, normal: [0,1], shape: [41,30], placement: a, sbp: B}
  y: {op: matmul, in: [x, w]}
  s: {op: mul, in: [y, y]}
  l: {op: sum, in: [s]}
loss: l
fetch: [x, y, l, "grad(w)"]
train: {seed: 0}
"""


def path(*names):
    return os.path.join(FOLDER.name, *names)


def content(name):
    with open(name, "rb") as f:
        return f.read()


def files_of(folder):
    return {n: content(n) for n in (os.path.join(d, f) for d, _, fs in os.walk(folder) for f in fs)}


# --- whether a file is whole ----------------------------------------------------------------------

def is_array(data):
    n = struct.unpack("<H", data[8:10])[0]
    shape = re.search(rb"'shape': \(([\d, ]*)\)", data[:10 + n]).group(1)
    size = 4
    for d in shape.replace(b",", b" ").split():
        size *= int(d)
    return len(data) == 10 + n + size


def is_json(data):
    return bool(json.loads(data)) and data.endswith(b"}\n")


def is_saved(data):
    """Of one save: all tensors have its number."""
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    values = struct.unpack(f"<{(len(data) - 8 - n) // 4}f", data[8 + n:])
    return len(values) == 64 * 129 + 7 + 64 and len(set(values)) == 1 and len(header) == 4


WHOLE = {".npy": is_array, ".json": is_json, ".safetensors": is_saved, ".dot": lambda d: d.endswith(b"}\n"),
         ".txt": lambda d: d.endswith((b"end\n", b"tessera-star\n")) or d.count(b"\n") == 10,
         ".bin": lambda d: len(d) == 10 * 3073,
         "": lambda d: True}  # a store, which grows


def is_whole(name, data):
    try:
        return WHOLE[os.path.splitext(name)[1]](data)
    except (ValueError, AttributeError, struct.error, json.JSONDecodeError):
        return False


# --- what is run ----------------------------------------------------------------------------------

class Scenario:
    """A command that leaves files in a folder of its own. `logs`: they grow, and may be cut."""

    def __init__(self, name, *command, code=0, count=1, logs=False, **env):
        self.name, self.command, self.code, self.count, self.logs = name, command, code, count, logs
        self.folder = path("disk", name)
        self.env = {"XDG_CACHE_HOME": path("cache"), **{k: v.format(d=self.folder) for k, v in env.items()}}
        # The launcher writes what it says, too. `info` opens many worlds, and the memory of each takes a pwrite.
        self.writes = [] if "launch" in command else ["write"] if name == "info" else ["write", "pwrite"]
        self.first = 2 if name in ("save", "run", "dump") else 1  # the ranks' memory takes a pwrite
        self.need = self.files = self.largest = 0

    def run(self, seed, preexec=None, faults=""):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": path("tmp"), **self.env}
        if faults:
            env.update({"LD_PRELOAD": MODULE, "FAULTY_CALLS": faults})
        command = [str(a).format(d=self.folder, seed=seed) for a in self.command]
        p = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, preexec_fn=preexec,
                           stdin=subprocess.DEVNULL, restore_signals=False)  # SIGXFSZ stays ignored
        return p.returncode, p.stdout, p.stderr

    def measure(self, disk):
        """What it takes; a first run that succeeds."""
        before = disk.used()
        code, out, err = self.run(1)
        equal(code, self.code, f"{self.name}: {out}{err}")
        after = disk.used()
        self.need, self.files = after[0] - before[0], after[1] - before[1]
        found = files_of(self.folder)
        check(len(found) >= self.count, f"{self.name}: {sorted(found)}")
        self.largest = max(map(len, found.values()), default=0)
        self.check_files({}, found, True, self.name)

    def check_files(self, before, after, succeeded, what):
        for name in before if self.count else ():  # a store takes its file along
            check(name in after, f"{what}: {name} of the earlier run is gone")
        for name, data in after.items():
            check(not os.path.basename(name).startswith("."), f"{what}: {name} is left behind")
            if self.logs:
                check(data.startswith(before.get(name, b"")), f"{what}: {name} has lost what it had")
                continue
            is_old = data == before.get(name)
            check(is_whole(name, data) or is_old, f"{what}: {name} is half: {len(data)} bytes")
        if succeeded:
            check(len(after) >= self.count, f"{what}: {sorted(after)}")


def scenarios():
    graph = path("g.yaml")
    run = ["run", graph, "--out", "{d}/runs/1", "--trace", "--set", "train.seed={seed}"]
    return [
        Scenario("run", TESSERA, *run, count=8),
        Scenario("ranks", TESSERA, "launch", "-n", "2", "--", TESSERA, *run, count=8),
        Scenario("plan", TESSERA, "plan", graph, "--dot", "{d}/plan.dot"),
        Scenario("info", TESSERA, "info", "--measure", "--force", XDG_CACHE_HOME="{d}"),
        Scenario("logs", TESSERA, "launch", "-n", "2", "--rdzv-id", "r", "--log-dir", "{d}", "--tee", "3", "--",
                 "sh", "-c", "head -c 9000 /dev/zero | tr '\\0' x; echo {seed} >&2", count=4, logs=True),
        Scenario("flight", TESSERA, "launch", "-n", "2", "--", CHILD, "late", code=1, count=2,
                 TESSERA_FLIGHT_DIR="{d}"),
        Scenario("save", CHILD, "save", "{d}/model.safetensors", "{seed}", "2"),
        Scenario("save_ranks", TESSERA, "launch", "-n", "2", CHILD, "save", "{d}/model.safetensors", "{seed}", "2"),
        Scenario("dump", CHILD, "flight", "{d}/dumps", count=2),
        Scenario("store", CHILD, "store", "file://{d}/store", count=0),
        Scenario("synthetic", CHILD, "synthetic", "{d}/set", "{seed}", count=7),
    ]


# --- moments --------------------------------------------------------------------------------------

TEXT = {errno.ENOSPC: "No space left on device", errno.EFBIG: "File too large"}


def moment(disk, rng, s, seed, what):
    """Returns whether it failed."""
    if rng.random() < 0.25:
        shutil.rmtree(s.folder)
        os.mkdir(s.folder)
    preexec, faults, error = None, "", errno.ENOSPC
    # The ranks' memory would be a file that is too large.
    kinds = ["room"] * 4 + ["files"] + ["limit"] * (s.name in ("plan", "synthetic")) + ["call"] * (MODULE is not None)
    kind = rng.choice(kinds)
    if kind == "room":
        n = rng.randint(0, s.need)
        disk.set_room(pages=n)
    elif kind == "files":
        n = rng.randint(0, max(s.files - 1, 0))
        disk.set_room(files=n)
    elif kind == "limit":
        n, error = rng.randint(0, s.largest - 1), errno.EFBIG
        preexec = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))
    else:
        n = f"{rng.choice(['fsync', 'rename', 'close', 'fclose', *s.writes])}:{rng.randint(s.first, 6)}"
        faults = f"fail={n}:ENOSPC short=2 seed={seed}"
    what = f"{what}, {s.name}, {kind} {n}"
    before = files_of(s.folder)
    code, out, err = s.run(seed, preexec, faults)
    disk.set_room()
    after = files_of(s.folder)
    s.check_files(before, after, code == 0, f"{what}: code {code}, {err}")
    equal(os.listdir(path("tmp")), [], f"{what}: temporary files")
    told = TEXT[error] in err
    check(code == s.code or code == 1, f"{what}: exit code {code}\n{out}{err}")
    if code != s.code or told:
        check(code == 1, f"{what}: exit code {code}\n{out}{err}")
        check(told and s.folder in err, f"{what}: says {err}")
    if kind in ("room", "files") and s.code and not told:
        check(set(after) >= set(before) and len(after) >= s.count, f"{what}: files are missing, and nobody says so: {err}")
    return told


def main():
    os.mkdir(path("disk"))
    os.mkdir(path("tmp"))
    with open(path("g.yaml"), "w", encoding="utf-8") as f:
        f.write(GRAPH)
    disk = SmallDisk(path("disk"))
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.randrange(1 << 32)
    rng = random.Random(seed)
    all_of_them = scenarios()
    for s in all_of_them:
        os.mkdir(s.folder)
        s.measure(disk)
    failed = {s.name: 0 for s in all_of_them}
    for i in range(MOMENTS):
        s = all_of_them[i % len(all_of_them)]
        failed[s.name] += moment(disk, rng, s, i + 2, f"seed {seed}, moment {i}")
    print(f"{MOMENTS} moments; failures: {failed}")
    check(sum(failed.values()) > MOMENTS / 3, "the disk was full in many moments")
    done()


main()
