#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that can't be written or read: each command on a full disk, a FIFO without a writer.
usage: files.py TESSERA"""
import os
import re
import shutil
import subprocess
import tempfile

from harness import CACHE, TESSERA, check, done, equal, tessera

FOLDER = tempfile.TemporaryDirectory()
FULL = "No space left on device"


def path(name):
    return os.path.join(FOLDER.name, name)


def to_full(*args):
    """The command with stdout on a full disk; returns (exit code, stderr)."""
    env = {**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1"}
    with open("/dev/full", "wb") as full:
        p = subprocess.run([TESSERA, *args], stdout=full, stderr=subprocess.PIPE, text=True, env=env,
                           timeout=30)
    return p.returncode, p.stderr


with open(path("t.yaml"), "w", encoding="utf-8") as text:
    text.write("""\
tessera: 1
placements: {all: {ranks: [0,1]}}
model: {name: mlp, args: {inputs: 64, hidden: 32, outputs: 10, layers: 3}}
data: {dataset: synthetic, shape: [1,8,8], classes: 10, samples: 120, batch_size: 30}
optimizer: {name: sgd, lr: 0.1}
train: {epochs: 1, seed: 3}
""")
YAML = path("t.yaml")

GRAPH = path("g.yaml")
with open(GRAPH, "w", encoding="utf-8") as text:
    text.write("""\
tessera: 1
placements: {all: {ranks: [0,1]}}
graph:
  x: {op: normal, placement: all, sbp: S(0), shape: [4,6]}
  y: {op: mul, in: [x, x]}
fetch: [y]
""")
os.mkdir(path("dumps"))
for rank in range(2):
    with open(path(f"dumps/flight.rank{rank}.txt"), "w", encoding="utf-8") as text:
        text.write(f"tessera flight 1\nrun r\nrank {rank} of 2\nworld 1\nrestart 0\nhost h\npid {rank + 1}\n"
                   "time 1700000000000000000 2023-11-14T22:13:20Z\nreason -\nexit -\ncalls 0\nend\n")
WEIGHTS = path("weights.safetensors")
with open(WEIGHTS, "wb") as binary:
    HEADER = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    binary.write(len(HEADER).to_bytes(8, "little") + HEADER + b"abcd")
TRACE = path("trace.json")
with open(TRACE, "w", encoding="utf-8") as f:
    f.write('[{"name": "relu", "ph": "X", "pid": 0, "tid": 0, "ts": 1, "dur": 2, "cat": "compute"}]')
BOX = ["-s", "7,5", "-f", "cpu:[0,1] S(0)", "-t", "B"]

# stdout, of each command and in each form.
OUTPUTS = {
    "box": [BOX, [*BOX, "--json"], [*BOX, "--run"], [*BOX, "--run", "--json"], [*BOX, "--zero-latency"], ["--help"]],
    "ckpt": [["list", WEIGHTS], ["list", "--json", WEIGHTS], ["verify", WEIGHTS], ["compare", WEIGHTS, WEIGHTS],
             ["--help"]],
    "plan": [[YAML], [YAML, "--json"], [YAML, "--verbose"], [GRAPH, "--dot", path("g.dot")], ["--help"]],
    "run": [[YAML], [YAML, "--json"], [GRAPH], [GRAPH, "--json"], [GRAPH, "--out", path("out"), "--trace"], ["--help"]],
    "schema": [[], [YAML], ["--help"]],
    "info": [[], ["--json"], ["--measure", "--force"], ["--measure", "--force", "--json"], ["--help"]],
    "flight": [[path("dumps")], [path("dumps"), "--json"], [path("dumps"), "--rank", "1", "--last", "3"], ["--help"]],
    "trace": [[TRACE], [TRACE, "--json"], [TRACE, "--all"], ["--help"]],
    "launch": [["-n", "2", "--", "echo", "hello"], ["-n", "2", "--prefix", "--", "echo", "hello"],
               ["-n", "2", "--log-dir", path("tee"), "--tee", "1", "--", "echo", "hello"], ["--help"]],
}
commands = [x.split()[0] for x in tessera("--help")[0].split("commands:\n")[1].split("\n\n")[0].splitlines()]
equal(sorted(OUTPUTS), sorted(commands), "commands in the table")
for args in ["--version"], ["--help"], ["help"]:
    equal(to_full(*args), (1, f"tessera: stdout: {FULL}\n"), f"{args} to a full disk")
for command, forms in OUTPUTS.items():
    options = re.findall(r"--[a-z-]+", tessera(command, "--help")[0])
    for option in {"--json", "--verbose", "--run", "--measure", "--prefix", "--tee", "--rank"}.intersection(options):
        check(any(option in args for args in forms), f"{command} {option} in the table")
    for args in forms:
        plain = command == "launch" and "--prefix" not in args and "--tee" not in args and "--help" not in args
        code, err = to_full(command, *args)
        if plain:  # the ranks have the launcher's stdout
            check(code == 1 and FULL in err, f"launch {args} to a full disk: {code}, {err}")
        else:
            equal((code, err), (1, f"tessera: stdout: {FULL}\n"), f"{command} {args} to a full disk")

# Files.
for args in (["plan", YAML], ["box", *BOX]):
    _, err = tessera(*args, "--html", "/dev/full", code=1)
    equal(err, f"tessera {args[0]}: /dev/full: {FULL}\n", f"{args[0]} --html to a full disk")
_, err = tessera("plan", YAML, "--dot", "/dev/full", code=1)
equal(err, f"tessera plan: /dev/full: {FULL}\n", "--dot")
for name, command in {"result.json": ["run", GRAPH, "--trace", "--out", path("links")],
                      "trace.json": ["run", GRAPH, "--trace", "--out", path("links")],
                      "y.npy": ["run", GRAPH, "--out", path("links")],
                      "tessera/links.json": ["info", "--measure", "--force"]}.items():
    shutil.rmtree(path("links"), ignore_errors=True)
    os.makedirs(os.path.dirname(path("links/" + name)))
    os.symlink("/dev/full", path("links/" + name))
    out, err = tessera(*command, code=1, env={"XDG_CACHE_HOME": path("links")})
    check(f"{path('links/' + name)}: " in err and FULL in err, f"{name}: {err}")
    check(not [n for n in os.listdir(path("links")) if n.startswith(".")], f"{name}: {os.listdir(path('links'))}")

# The ranks' output, kept by the launcher.
code, err = to_full("launch", "-n", "2", "--prefix", "--", "sh", "-c", "echo hello; exit 3")
check(code == 3 and f"tessera: stdout: {FULL}" in err, f"the code of a rank that failed: {err}")
logs = path("logs/name/attempt_0/1")
os.makedirs(logs)
os.symlink("/dev/full", os.path.join(logs, "stdout.log"))
out, err = tessera("launch", "-n", "2", "--rdzv-id", "name", "--log-dir", path("logs"), "--tee", "1",
                   "--", "echo", "hello", code=1)
equal((out, err), ("hello\nhello\n", f"tessera launch: {logs}/stdout.log: {FULL}\n"), "--log-dir")
with open(path("logs/name/attempt_0/0/stdout.log"), encoding="utf-8") as text:
    equal(text.read(), "hello\n", "the other rank's file")

# A FIFO that nobody writes to, and pipes that have a writer.
os.mkfifo(path("fifo"))
os.symlink("fifo", path("link"))
for name in ("fifo", "link"):
    for command in ("plan", "run"):
        _, err = tessera(command, path(name), code=1, timeout=10)
        check(f"{path(name)}: is a FIFO" in err, err)
os.rename(path("fifo"), path("dumps/flight.rank1.txt"))
_, err = tessera("flight", path("dumps"), code=1, timeout=10)
check("flight.rank1.txt: Invalid argument" in err, err)
with open(YAML, encoding="utf-8") as text:
    content = text.read()
expected = tessera("plan", "-", stdin=content)[0].split("\n", 1)[1]
equal(tessera("plan", "/dev/stdin", stdin=content)[0].split("\n", 1)[1], expected, "/dev/stdin")
p = subprocess.run(["bash", "-c", f"'{TESSERA}' plan <(sleep 0.2; cat '{YAML}')"], timeout=30,
                   env={**os.environ, "XDG_CACHE_HOME": CACHE.name}, capture_output=True, text=True)
equal((p.returncode, p.stderr), (0, ""), "<(...)")
done()
