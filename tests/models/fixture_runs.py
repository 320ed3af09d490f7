# SPDX-License-Identifier: Apache-2.0
"""What the fixture test and the script that makes its fixture share: the data set, and how the
example is run. Python's standard library only."""
import json
import os
import subprocess

RECORDS, DATA_SEED = 64, 7
STEPS = 3
# name -> options of the example; losses do not depend on ranks and signatures, so neither are here.
CASES = {
    "mobilenet_v2": ["--model", "mobilenet_v2", "--batch-size", "16", "--seed", "11"],
    "mobilenet_v2 bn local, 2 parts": ["--model", "mobilenet_v2", "--batch-size", "15", "--seed",
                                       "12", "--bn", "local"],
    "convnet": ["--model", "convnet", "--batch-size", "16", "--seed", "13"],
    "convnet bn local, 2 parts": ["--model", "convnet", "--batch-size", "15", "--seed", "14", "--bn",
                                  "local"],
    "mlp": ["--model", "mlp", "--batch-size", "16", "--seed", "15"],
}
LR, MOMENTUM = 0.02, 0.9


def option(case, name):
    args = CASES[case]
    return args[args.index(name) + 1] if name in args else None


def make_data(synthetic, directory):
    subprocess.run([synthetic, directory, str(RECORDS), str(DATA_SEED)], check=True)


def command(example, data, case, extra):
    return [example, "--data", data, *CASES[case], "--dtype", "f64", "--dropout", "0", "--lr", str(LR),
            "--momentum", str(MOMENTUM), "--weight-decay", "0", "--no-shuffle", "--no-augment",
            "--no-normalize", "--no-eval", "--quiet", *extra]


def run(cmd):
    """Standard error of a command that failed, else None."""
    env = {k: v for k, v in os.environ.items() if k not in ("TESSERA_DATA", "WORLD_SIZE", "RANK")}
    p = subprocess.run(cmd, capture_output=True, text=True, env=env)
    return f"exit {p.returncode}: {p.stderr.strip()[-800:]}" if p.returncode else None


def losses(metrics):
    with open(metrics, encoding="utf-8") as f:
        return [json.loads(line)["loss"] for line in f]
