#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The options of mobilenet_v2_cifar10 by which scripts/demo trains, on drawn images: steps that fit into a time are
the same run as their number of epochs; sizes of images come in their order; two ranks give the losses of one; bf16
gives nearly those of f32. usage: training_options.py EXAMPLE SYNTHETIC CHARTS"""
import json
import os
import re
import subprocess
import sys
import tempfile

EXAMPLE, SYNTHETIC, CHARTS = sys.argv[1:4]
FOLDER = tempfile.TemporaryDirectory()
FAILED = []


def check(ok, text):
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    if not ok:
        FAILED.append(text)


def rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(row) for row in f]


def train(*options, ranks=1):
    """(stdout, rows of --metrics, rows of --curve)"""
    files = [f"{FOLDER.name}/{name}.jsonl" for name in ("metrics", "curve")]
    placement = "cpu:[" + ",".join(map(str, range(ranks))) + "]"
    p = subprocess.run([EXAMPLE, "--data", FOLDER.name, "--placement", placement, "--batch-size", "16", "--metrics", files[0],
                        "--curve", files[1], "--nesterov", "--schedule", "cosine", "--warmup", "3", "--lr", "0.02",
                        "--dropout", "0", *options], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if p.returncode:
        check(False, f"{options}: exit code {p.returncode}: {p.stderr[-500:]}")
        sys.exit(1)
    return p.stdout, *map(rows, files)


def losses(found):
    return [row["loss"] for row in found]


def main():
    subprocess.run([SYNTHETIC, FOLDER.name, "32"], check=True, stdout=subprocess.DEVNULL)
    said, timed, _ = train("--seconds", "3", "--pixels", "16,32")
    fits = re.search(r"(\d+) steps fit into 3 s; --epochs ([\d.]+) repeats them", said)
    check(bool(fits) and int(fits[1]) == len(timed), f"the steps that fit are those that were made: {said.splitlines()[:2]}")
    _, again, _ = train("--epochs", fits[2], "--pixels", "16,32")
    check(losses(again) == losses(timed), f"--epochs {fits[2]} repeats the {len(timed)} losses")

    _, steps, curve = train("--epochs", "3", "--pixels", "16,24,32", "--eval-every", "1")
    check([p["pixels"] for p in curve] == [16, 24, 32], f"each size has its part: {curve}")
    check([p["epoch"] for p in curve] == [1, 2, 3] and curve[-1]["step"] == len(steps), "there is a test after each epoch")
    check(all(0 <= p["accuracy"] <= 100 for p in curve) and curve[0]["seconds"] < curve[2]["seconds"], "with accuracy and time")
    svg = f"{FOLDER.name}/curve.svg"
    subprocess.run([sys.executable, CHARTS, f"{FOLDER.name}/curve.jsonl", svg], check=True)
    with open(svg, encoding="utf-8") as f:
        drawing = f.read()
    check(drawing.count("<circle") == 3 and f"{curve[-1]['accuracy']:.1f} %" in drawing, "the curve is drawn")

    for variant in ("stem1", "cifar"):
        common = ("--variant", variant, "--pixels", "16", "--steps", "3", "--epochs", "1", "--no-eval")
        _, one, _ = train(*common, "--dtype", "f64")
        _, two, _ = train(*common, "--dtype", "f64", ranks=2)
        apart = max(abs(a - b) / b for a, b in zip(losses(two), losses(one)))
        check(len(one) == 3 and apart < 1e-7, f"{variant}: two ranks are {apart:.1e} from one")
        _, one, _ = train(*common)
        _, half, _ = train(*common, "--dtype", "bf16")
        apart = max(abs(a - b) / b for a, b in zip(losses(half), losses(one)))
        check(0 < apart < 0.1, f"{variant}: bf16 is {apart:.1e} from f32")
    for bad, words in (("--pixels=32,7", "sizes from 8 to 32"), ("--variant=stem", "torchvision cifar stem1"),
                       ("--seconds=-1", "a number of 0 to 1e6")):
        p = subprocess.run([EXAMPLE, "--data", FOLDER.name, bad], capture_output=True, text=True)
        check(p.returncode == 2 and words in p.stderr, f"{bad} is refused: {p.stderr.strip()[:100]}")
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
