#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command and the examples print goes out line by line also where it is no terminal that takes it: each
message of a packet socket is one write, of whole lines. usage: lines.py TESSERA EXAMPLES_SOURCE EXAMPLE..."""
import glob
import os
import re
import socket
import subprocess
import sys
import tempfile

from harness import TESSERA, check, done, equal

SOURCES, EXAMPLES = os.path.abspath(sys.argv[2]), {os.path.basename(p): os.path.abspath(p) for p in sys.argv[3:]}
FOLDER = tempfile.TemporaryDirectory()


def writes(*command):
    """The writes to stdout of a command, which must end well."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    p = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=FOLDER.name,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    theirs.close()
    found = list(iter(lambda: ours.recv(1 << 20).decode(), ""))
    ours.close()
    err = p.communicate()[1].decode()
    equal(p.returncode, 0, f"{command}: {err}")
    return found


def expect_lines(least, *command):
    found = writes(*command)
    check(len(found) >= least and all(w.endswith("\n") for w in found),
          f"{command}: {len(found)} writes: {[w[:100] for w in found]}")


EXPERIMENT = os.path.join(SOURCES, "experiments/one.yaml")
expect_lines(3, TESSERA, "run", EXPERIMENT)
expect_lines(3, TESSERA, "plan", EXPERIMENT)
expect_lines(3, TESSERA, "launch", "-n", "2", "--", TESSERA, "info")
subprocess.run([EXAMPLES["synthetic_cifar10"], f"{FOLDER.name}/data", "100"], check=True)
for least, name, *args in (
        (1, "01_matmul"), (2, "03_tensor_parallel"), (2, "07_resume", "steps", "4"), (2, "08_training_control"),
        (2, "async_all_reduce"), (3, "dataloader_split", "4", "5"), (2, "ddp_train"), (2, "ddp_trainer", "1"),
        (2, "distributed_sampler", "--size", "9", "--replicas", "3"),
        (2, "mobilenet_v2_cifar10", "--data", "data", "--model", "mlp", "--steps", "12")):
    expect_lines(least, EXAMPLES[name], *args)
# Those that need data, or print but one line, do as the others.
for path in glob.glob(f"{SOURCES}/*.c"):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    prints = re.search(r"[^fn]printf\(|[^f]puts\(", text)
    check(not prints or re.search(r"\nint main\([^)]*\)\n\{\n    setvbuf\(stdout, NULL, _IOLBF, 0\);", text), path)

# Numbers of ranks that there can't be.
for name, args in (("mobilenet_v2_cifar10", ["--data", "data", "--ranks"]), ("07_resume", ["again", "1"])):
    for ranks in "0", "-1", "257", "4294967297", "99999999999999999999", "2x", "":
        p = subprocess.run([EXAMPLES[name], *args, ranks], capture_output=True, text=True, check=False, cwd=FOLDER.name)
        check(p.returncode == 2 and "1 to 256" in p.stderr, f"{name} {args} {ranks!r}: {p.returncode} {p.stderr}")
for command in (["run", EXPERIMENT, "-n", "0"], ["plan", EXPERIMENT, "-n", "0"], ["box", "-n", "0"],
                ["info", "--measure", "-n", "0"], ["launch", "-n", "0", "true"]):
    p = subprocess.run([TESSERA, *command], capture_output=True, text=True, check=False)
    check(p.returncode == 2 and re.search(r"-n needs a number of ranks, [12] to \d+, not 0", p.stderr), p.stderr)
done()
