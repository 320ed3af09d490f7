#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plan of every example for GPUs, made where there are none, beside the one for CPUs: the same
ops, the same collectives over the same groups with the same bytes, and the memory that a rank needs.
usage: plans.py TESSERA EXPERIMENTS"""
import glob
import json
import os
import re
import subprocess
import sys

failed = 0


def check(ok, what):
    global failed
    failed += not ok
    if not ok:
        print(f"FAIL {what}")


def plan(tessera, path, device, *more):
    text = open(path, encoding="utf-8").read()
    names = re.findall(r"^  (\w+): .*ranks", text.partition("\nplacements:")[2], re.M)
    keys = [f"placements.{n}.device" for n in names] + ["device"] * ("\nmesh:" in text)
    # The same figures for both: else what is left to the compiler may differ.
    sets = ["cluster={latency_us: 3, bandwidth_gb_s: 8, memory_gb_s: 16, tflops: 0.08, kernel_us: 0.5}"]
    sets += [f"{key}={device}" for key in keys] + list(more)
    out = subprocess.run([tessera, "plan", "--json", path] + [x for s in sets for x in ("--set", s)],
                         capture_output=True, text=True, timeout=120, check=False)
    check(out.returncode == 0 and keys, f"{path} on {device}: {out.stderr}")
    return json.loads(out.stdout)


# Buckets are numbered in the order in which they start, which may differ.
def talks(p):
    def sbp(values):
        return p["values"][values[0]]["sbp"] if values else ""

    return sorted((b["collective"], b["groups"], b["group_size"], b["bytes"], b["two_phase"],
                   b["lane"], re.sub("bucket [0-9]+", "bucket", b["name"]), sbp(b["in"]), sbp(b["out"]))
                  for b in p["boxing"] if b["communicates"])


def check_stop(cuda, warns, name):
    """On GPUs updates depend on the loss, unless a NaN is to warn alone: an op of one number for each loss, and for each placement
    of updates the vector that it is added in."""
    count = {}
    for p, sign in ((cuda, 1), (warns, -1)):
        for op in p["ops"]:
            count[op["op"]] = count.get(op["op"], 0) + sign
    more = {k: n for k, n in count.items() if n}
    updates = {"adam", "sgd", "lamb"} & {op["op"] for op in cuda["ops"]}
    equal = more.get("find_inf", 0) == (1 if updates else 0) and more.get("pad", 0) == more.get("add", 0)
    check(equal and set(more) <= {"find_inf", "reshape", "cast", "pad", "add", "to_global"}, f"{name}: {more}")
    check(0 <= cuda["totals"]["bytes"] - warns["totals"]["bytes"] <= 8 * more.get("pad", 0), f"{name}: bytes that stop updates")


def main():
    tessera, folder = sys.argv[1:3]
    paths = sorted(glob.glob(os.path.join(folder, "*.yaml")))
    check(len(paths) >= 10, f"{len(paths)} experiments")
    for path in paths:
        name = os.path.basename(path)
        # Fusions that there are on CPUs alone: what lies between takes no memory.
        fused = plan(tessera, path, "cpu")
        cpu, cuda = plan(tessera, path, "cpu", "fusion.rows=false", "fusion.updates=false"), plan(tessera, path, "cuda", "train.on_nan=warn")
        check_stop(plan(tessera, path, "cuda"), cuda, name)
        for a, b in zip(fused["memory"], cpu["memory"]):
            check(a["total"] <= 1.02 * b["total"], f"{name}: {a['total']} bytes fused, {b['total']} not")
        count = {}
        for p, sign in ((cpu, 1), (cuda, -1)):
            for op in p["ops"]:
                count[op["op"]] = count.get(op["op"], 0) + sign
        # On GPUs layer norm is one op forward and one back, also where x gets no gradient.
        norms = [op for op in cuda["ops"] if op["op"].startswith("ln_")]
        dx = {op["in"][0] for op in norms if op["op"] == "ln_bwd_apply"}
        check(all(op["op"] in ("ln_apply", "ln_bwd_apply") or
                  op["op"] == "ln_param_grad" and op["in"][0] not in dx for op in norms), f"{name}: layer norm in parts")
        for part in ("ln_stats", "ln_bwd_stats", "ln_param_grad"):
            check(count.pop(part, 0) >= 0, f"{name}: more {part} on GPUs")
        # A gradient's part in their norm is one op on GPUs; on CPUs x x, a sum, a conversion, an addition.
        norms = -count.pop("sum_squares", 0)
        for part in ("mul", "sum", "cast", "add") if norms else ():
            count[part] = count.get(part, 0) - norms + (part == "add")
        # On CPUs normalised activations are computed again for each product, rather than stored.
        again = {k for k in count if count[k] > 0}
        check(again <= {"bn_act", "bn_apply"} and not any(count[k] < 0 for k in count),
              f"{name}: ops differ: {[k for k in count if count[k]]}")
        check(talks(cpu) == talks(cuda), f"{name}: collectives differ")
        check(cpu["totals"]["bytes"] == cuda["totals"]["bytes"], f"{name}: bytes")
        check(len(cpu["memory"]) == len(cuda["memory"]), f"{name}: classes of ranks")
        for a, b in zip(cpu["memory"], cuda["memory"]):
            for part in ("masters", "buffers", "optimizer", "inputs_outputs"):
                check(a[part] == b[part], f"{name}: {part} of ranks {a['ranks']}")
            # Of copies of parameters those that live when most is in use are counted.
            check(abs(a["parameters"] - b["parameters"]) <= 0.01 * a["parameters"], f"{name}: parameters of ranks {a['ranks']}")
            # Of kernels' scratch that of GPUs alone is counted.
            a["total"], b["total"] = a["total"] - a["scratch"], b["total"] - b["scratch"]
            # On GPUs small updates are put off, so gradients may live longer, and calls write their
            # results from their start on, of all buckets that are open: never much.
            near = abs(a["total"] - b["total"]) <= 0.08 * a["total"] + 4096
            check(0.5 * b["total"] < a["total"] < b["total"] if again else near,
                  f"{name}: {a['total']} bytes of ranks {a['ranks']} on CPUs, {b['total']} on GPUs")
        print(f"{name}: {len(talks(cpu))} collectives, {cpu['totals']['bytes']} bytes")
    print("ok" if not failed else f"{failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
