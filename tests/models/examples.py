#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples say what docs/guides/from-pytorch.md says they do, as threads and as processes. usage: examples.py
TESSERA FOLDER"""
import os
import re
import struct
import subprocess
import sys
import tempfile

TESSERA, FOLDER = (os.path.abspath(p) for p in sys.argv[1:3])
SLOWER = int(os.environ.get("TESSERA_TEST_SLOWER", "1"))
LIMIT_S = 120 * SLOWER
checks = 0


IS_SLOW = bool(os.environ.get("TESSERA_TEST_ONE_THREAD"))  # ThreadSanitizer: 20 times the time
IS_INSTRUMENTED = SLOWER > 1  # a sanitizer sees in a few steps what it sees in many


def as_threads_and_processes(n):
    """The --nranks of a launcher for each turn; 0: no launcher, ranks are threads. ThreadSanitizer sees no more in
    processes of one rank than in threads."""
    return (0,) if IS_SLOW else (0, n)


def run(name, *args, ranks=0, code=0):
    """Sorted lines of stdout: ranks print in any order."""
    command = [TESSERA, "launch", "-n", str(ranks)] if ranks else []
    p = subprocess.run([*command, f"{FOLDER}/{name}", *args], capture_output=True, text=True,
                       errors="replace", timeout=LIMIT_S, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if p.returncode != code:
        sys.exit(f"FAILED: {name} {' '.join(args)}: exit code {p.returncode}, expected {code}\n"
                 f"{p.stdout}{p.stderr}")
    return sorted(p.stdout.splitlines())


def expect(found, patterns, what):
    global checks
    checks += 1
    if len(found) != len(patterns) or not all(
            re.fullmatch(p, line) for p, line in zip(sorted(patterns), found)):
        sys.exit(f"FAILED: {what}:\n" + "\n".join(found) + "\nexpected:\n"
                 + "\n".join(sorted(patterns)))


for ranks in as_threads_and_processes(2):
    expect(run("ddp_train", ranks=ranks),
           [rf"rank {r}: {i}/500 loss: \d+\.\d{{6}}" for r in (0, 1)
            for i in (100, 150, 200, 250, 300, 350, 400, 450, 50, 500)]
           + [rf"rank {r}: w = \[\[2\.0000\], \[3\.0000\]\]" for r in (0, 1)], "ddp_train")
    told = (r"ranks disagree: rank 0 is at all_reduce #\d+ 'ddp run 5, bucket 0.*rank_skips\.c:\d+.*"
            r"rank 1 is at barrier #\d+ 'ddp end after 4 runs.*rank_skips\.c:\d+.*")
    expect(run("rank_skips", ranks=ranks, code=1),
           [rf"rank {r}: TSR_ERR_MISMATCH: {told}" for r in (0, 1)], "rank_skips")
    expect(run("rank_skips", "--join", ranks=ranks),
           [r"rank 0: 5 batches, w = -1\.25", r"rank 1: 4 batches, w = -1\.25"],
           "rank_skips --join")
for ranks in as_threads_and_processes(3):
    expect(run("async_all_reduce", ranks=ranks),
           [rf"rank {r}: worked 1000000 times meanwhile; sum\[0\] = 6, most\[999\] = 1998"
            for r in (0, 1)]
           + [r"rank 2 \(late\): worked 1000000 times meanwhile; sum\[0\] = 6, most\[999\] = 1998"],
           "async_all_reduce")
for ranks in as_threads_and_processes(4):
    expect(run("ddp_trainer", "2", ranks=ranks),
           [rf"\[CPU: {r} Epoch: {e}, Batch size: 32 \| Steps 16\]" for r in range(4)
            for e in (0, 1)] + [r"mean loss of the last batches: 0\.\d{4}"], "ddp_trainer")
EPOCH = r"epoch {}: step \d+, \d+\.\d s, loss \d\S+{}"
for ranks in as_threads_and_processes(4):
    expect(run("03_tensor_parallel", ranks=ranks), [EPOCH.format(e, "") for e in range(3)],
           "03_tensor_parallel")


def write_idx(path, shape, values):
    with open(path, "wb") as f:
        f.write(struct.pack(f">{1 + len(shape)}I", 0x800 + len(shape), *shape) + bytes(values))


with tempfile.TemporaryDirectory() as folder: # MNIST in small: a bright bar for each digit
    for name, n in ("train", 200), ("t10k", 40):
        write_idx(f"{folder}/{name}-labels-idx1-ubyte", [n], [i % 10 for i in range(n)])
        write_idx(f"{folder}/{name}-images-idx3-ubyte", [n, 28, 28],
                  [200 + i % 50 if 2 * (i % 10) + 2 <= y < 2 * (i % 10) + 5 else x * i % 30
                   for i in range(n) for y in range(28) for x in range(28)])
    for ranks in as_threads_and_processes(2):
        first = 1 if IS_INSTRUMENTED else 2
        every = range(2 * first)
        for epochs, found in (first, every[:first]), (2 * first, every[first:]), (2 * first, []): # from the last checkpoint on
            expect(run("02_mnist", folder, str(epochs), f"{folder}/saved{ranks}", ranks=ranks),
                   [EPOCH.format(e, r", accuracy \S+, eval loss \S+, eval accuracy \S+( \(best\))?") for e in found],
                   "02_mnist")

    for ranks in as_threads_and_processes(2):
        variants = [["--amp", "bf16", "--sync-bn"], [], ["--amp", "off"]]
        for more in variants[: 1 if IS_INSTRUMENTED else 3]:
            expect(run("mnist_ddp_amp", folder, "-e", "2", "-b", "20", "-o", f"{folder}/amp{ranks}", *more,
                       ranks=ranks),
                   [r"begin training of epoch 1/2", r"begin training of epoch 2/2", r"begin testing",
                    r"Accuracy is \d+\.\d\d%", r"time elapsed: \S+ s"], "mnist_ddp_amp")

for ranks in as_threads_and_processes(2): # the other numbered ones
    lines = run("01_matmul", ranks=ranks)
    expect([line for line in lines if line.startswith(("rank", "y["))],
           [r"rank 0: y is S\(0\), my part 2 x 2: 3 3 12 12", r"y\[3\]\[1\] = 30",
            r"rank 1: y is S\(0\), my part 2 x 2: 21 21 30 30"], "01_matmul")
    expect([line for line in lines if " box " in line],
           [r" +box all_gather +f32\[4,2\] S\(0\) -> f32\[4,2\] B .*16 bytes.*output 'whole' reads B"],
           "01_matmul's plan")
    expect(run("04_own_layer_and_op", ranks=ranks),
           [r"verified", r"step 0: loss 1\.98\d\d"]
           + [rf"step {n}: loss 0\.02\d\d" for n in (100, 200, 300)], "04_own_layer_and_op")
    steps = {"0": r"5\.\d{3}"} | ({} if IS_INSTRUMENTED else {"50": r"[234]\.\d{3}", "100": r"[123]\.\d{3}"})
    lines = run("05_gpt_text", os.path.abspath(__file__), "2" if IS_INSTRUMENTED else "100", ranks=ranks)
    expect([line for line in lines if line.startswith("step ")],
           [f"step {n}: loss {loss}" for n, loss in steps.items()], "05_gpt_text")
    expect(run("08_training_control", ranks=ranks),
           [rf"epoch {e}: {4 * e + 4} updates, lr 0\.\d{{5}}, loss \d\.\d{{4}}, norm \d\.\d\d; "
            r"after it \d\.\d{4}, of the average \d\.\d{4}" for e in range(5)],
           "08_training_control")
for ranks in as_threads_and_processes(3):
    lines = run("06_pipeline", ranks=ranks)
    expect([line for line in lines if " box " not in line],
           [EPOCH.format(e, "") for e in range(3)]
           + [rf"rank {r}: \d+ bytes of variables" for r in range(3)], "06_pipeline")
    expect([line for line in lines if " send_recv " in line],
           [r" +box send_recv +layer1\.3 .*group cpu:\[2\].*",
            r" +box send_recv +layer2\.0 .*group cpu:\[0,1\], .*",
            r" +box send_recv +f32\[\] B -> f32\[\] B .*output 'loss' reads B"], "06_pipeline's plan")
with tempfile.TemporaryDirectory() as folder:
    straight = [line.split(":")[1] for line in run("07_resume", f"{folder}/straight", "6")]
    for ranks in as_threads_and_processes(3):
        resumed = []
        for steps, n in (3, 2), (6, 3): # steps 4 to 6 on 3 ranks
            lines = run("07_resume", f"{folder}/{ranks}", str(steps), str(n), ranks=ranks and n)
            expect(lines, [rf"step {i} on {n} ranks: loss \d\.\d{{6}}"
                           for i in range(steps - 2, steps + 1)], "07_resume")
            resumed += [line.split(":")[1] for line in lines]
        checks += 1
        if resumed != straight:
            sys.exit(f"FAILED: 07_resume: {resumed}, but in one run {straight}")
    for model in ("made", "made", "launched"):
        expect(run("09_inference", f"{folder}/{model}.safetensors",
                   ranks=2 * (model == "launched")),
               [rf"image {i}: class {c} \((?:9\d|100) %\), label {c}"
                for i, c in enumerate((2, 6, 1, 0, 7))], "09_inference")
run("07_resume", code=2)
run("09_inference", code=2)
run("ddp_trainer", "none", code=2)
run("rank_skips", "--fly", code=2)
print(f"{checks} checks")
