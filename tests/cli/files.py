#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that can't be written or read: each command on a full disk, a FIFO without a writer.
usage: files.py TESSERA"""
import os
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

# stdout.
for args in (["--version"], ["--help"], ["run", "--help"], ["info"], ["info", "--json"],
             ["plan", YAML], ["plan", YAML, "--json"], ["plan", YAML, "--verbose"],
             ["run", YAML], ["run", YAML, "--json"],
             ["box", "-s", "7,5", "-f", "cpu:[0,1] S(0)", "-t", "B"],
             ["box", "-s", "7,5", "-f", "cpu:[0,1] S(0)", "-t", "B", "--json"]):
    equal(to_full(*args), (1, f"tessera: stdout: {FULL}\n"), f"{args} to a full disk")

# Files.
_, err = tessera("plan", YAML, "--dot", "/dev/full", code=1)
equal(err, f"tessera plan: /dev/full: {FULL}\n", "--dot")

# The ranks' output, kept by the launcher.
equal(to_full("launch", "-n", "2", "--prefix", "--", "echo", "hello"),
      (1, f"tessera: stdout: {FULL}\n"), "launch to a full disk")
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
with open(YAML, encoding="utf-8") as text:
    content = text.read()
expected = tessera("plan", "-", stdin=content)[0].split("\n", 1)[1]
equal(tessera("plan", "/dev/stdin", stdin=content)[0].split("\n", 1)[1], expected, "/dev/stdin")
p = subprocess.run(["bash", "-c", f"'{TESSERA}' plan <(sleep 0.2; cat '{YAML}')"], timeout=30,
                   env={**os.environ, "XDG_CACHE_HOME": CACHE.name}, capture_output=True, text=True)
equal((p.returncode, p.stderr), (0, ""), "<(...)")
done()
