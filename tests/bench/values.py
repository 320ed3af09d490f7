#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The nets that scripts/bench times compute what PyTorch's do, with as many parameters; and scripts/bench runs one of
them, with the peers that Debian's Python imports, and writes its results and their chart.

usage: values.py BENCH_NETS BUILD          compares with the values below, which PyTorch 2.15 gave
       values.py BENCH_NETS --peer PYTHON  compares with the PyTorch of an interpreter instead, and prints its values
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Of NET MODE BATCH: the number of parameters, the loss of the second step or the result's first element, and the root
# of the mean square of the result.
WANTED = {
    "mlp train 8": (3157002, 2.074052, None),
    "convnet train 8": (34634, 4.371736, None),
    "dlrm infer 2": (17139521, 0.463789, 0.4677686),
    "dlrm train 2": (17139521, 0.1325495, None),
    "dcgan infer 1": (3576704, 0.06394285, 0.174518),
    "unet infer 1": (7763041, 0.01151109, 0.5566156),
    "efficientnet_b0 infer 1": (5288548, 1.348097, 0.2516055),
    "convnext_t infer 1": (28589128, 2.267087, 1.444933),
    "vit infer 1": (22050664, 1.074613, 1.427962),
    "transformer infer 1": (3356160, 5.159029, 1.423287),
    "gpt infer_bf16 1": (10844160, 5.125, 1.619817),
    "lstm_f64 infer 2": (11068, -0.07845169, 0.3844108),
    "conv_f64 train 1": (18496, 0.6201581, None),
    "linear_f64 infer 3": (262656, -1.542879, 0.8378992),
    "matmul_3x5x7 infer 2": (0, 0.7301469, 1.351189),
    "weight_3x5x7 train 2": (35, 0.613399, None),
}


def second_step(command):
    done = subprocess.run(command, input="1\n", capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{command} ended with {done.returncode}: {done.stderr}")
    first, answer = (json.loads(row) for row in done.stdout.strip().split("\n"))
    return first["parameters"], answer["loss"], answer.get("size")


def near(case, got, want):
    limit = 0.1 if "bf16" in case else 1e-3
    return (got[0] == want[0] and abs(got[1] - want[1]) <= limit * (want[2] or abs(want[1]))
            and (want[2] is None or math.isclose(got[2], want[2], rel_tol=limit)))


def wrong_script(build):
    """Says what is wrong with a run of scripts/bench and its chart; else nothing."""
    case = "dlrm/infer/1/1x1"
    with tempfile.TemporaryDirectory() as folder:
        file, chart = folder + "/results.json", folder + "/chart.svg"
        command = [ROOT / "scripts/bench", "--build", build, "--no-compile", "--nets", case, "--threads", "1", "--rounds", "1",
                   "--turn", "0.01", "--json", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode or case not in done.stdout:
            return f"{done.stdout} {done.stderr}"
        with open(file, encoding="utf-8") as f:
            results = json.load(f)
        if list(results["cases"]) != [case] or not results["cases"][case]["ms"]["tessera"] > 0:
            return f"{file} has {results}"
        results["cases"] = {"weight_8x16x4/infer/1/1x2": {"ms": {"tessera": 1, "jax 0.1": 2}, "ratio": {"jax 0.1": [2, 2, 2]}}}
        Path(file).write_text(json.dumps(results), encoding="utf-8")
        subprocess.run([ROOT / "scripts/bench", "--chart", file, chart], check=True, timeout=60)
        text = Path(chart).read_text(encoding="utf-8")
        return "" if "product by a weight 8 x 16 x 4" in text and "JAX 0.1" in text else text


def main():
    bench, peer = sys.argv[1], sys.argv[3] if sys.argv[2] == "--peer" else None
    failed = 0
    for case, want in WANTED.items():
        if peer:
            command = [peer, ROOT / "tests/bench/torch_peer.py", "nets", *case.split(), "1", "2", "eager"]
            want = second_step(command)
        got = second_step([bench, *case.split(), "1"])
        ok = near(case, got, want)
        failed += not ok
        print(f'{"ok" if ok else "FAIL"} "{case}": {want},' + ("" if ok else f" not {got}"), flush=True)
    if not peer:
        why = wrong_script(sys.argv[2])
        failed += bool(why)
        print(f"{'FAIL' if why else 'ok'} scripts/bench {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
