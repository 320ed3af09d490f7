#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera info, and the measured figures that plan works with. usage: info.py TESSERA"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from harness import check, done, equal, near, tessera, tessera_json

PLAN = """\
tessera: 1
placements: {all: {ranks: [0,1]}}
graph:
  x: {op: full, placement: all, sbp: S(0), shape: [64,64], value: 1}
  y: {op: to_global, in: [x], placement: all, sbp: B}
"""

i = tessera_json("info")
equal(i["version"], tessera("--version")[0].split()[1], "version")
equal(i["model"]["measured"], False, "nothing is measured yet")
check(i["cores"] >= 1 and i["memory_bytes"] > 1 << 28, f"machine: {i}")
check(i["kernels_use"].startswith("fast:"), f"kernels use {i['kernels_use']}")
equal(sorted(i["libraries"]), ["cJSON", "libyaml", "oneDNN", "zlib"], "libraries")
with open("/proc/cpuinfo", encoding="utf-8") as f:
    flags = f.read().split()
for feature in i["cpu_features"].split():
    check({"sse4.2": "sse4_2", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16"}
          .get(feature, feature) in flags, f"{feature} is not in /proc/cpuinfo")
out, _ = tessera("info", env={"TESSERA_CPU_ISA": "base"})
check("kernels use fast:base" in out, f"TESSERA_CPU_ISA is told: {out}")
_, err = tessera("info", "-n", "4", code=2)
check("--ranks is for --measure" in err, err)

with tempfile.TemporaryDirectory() as folder:
    env = {"XDG_CACHE_HOME": os.path.join(folder, "new")}
    plan = os.path.join(folder, "p.yaml")
    with open(plan, "w", encoding="utf-8") as f:
        f.write(PLAN)
    built_in = tessera_json("plan", plan, env=env)["model"]
    check(built_in["figures"].startswith("built in"), f"figures: {built_in['figures']}")

    # Beside programs that want all cores several times over nothing is kept, and what was kept stays.
    kept_in = os.path.join(env["XDG_CACHE_HOME"], "tessera", "links.json")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * i["cores"])]
    try:
        time.sleep(0.5)
        for before in None, "{}":
            if before:
                os.makedirs(os.path.dirname(kept_in), exist_ok=True)
                with open(kept_in, "w", encoding="utf-8") as f:
                    f.write(before)
            _, err = tessera("info", "--measure", env=env, code=1)
            check(re.search(r"^tessera info: nothing is kept: .*: measure again when ", err), f"under load: {err}")
            check(os.path.exists(kept_in) == bool(before), "a file of figures")
        with open(kept_in, encoding="utf-8") as f:
            equal(f.read(), "{}", "what was kept before")
    finally:
        for p in busy:
            p.kill()
            p.wait()
    os.remove(kept_in)

    # Other tests may run beside this one.
    measured = tessera_json("info", "--measure", "--force", env=env)["model"]
    for key in ("latency_s", "bytes_per_s", "local_bytes_per_s", "flops_per_s", "f64_flops_per_s", "kernel_s"):
        check(measured[key] > 0, f"{key}: {measured}")
    check(1e-8 < measured["latency_s"] < 1, f"latency {measured['latency_s']}")
    kept = tessera_json("info", env=env)["model"]
    equal(kept, measured, "what was measured is kept")
    model = tessera_json("plan", plan, env=env)["model"]
    near(model["links"][0]["latency_s"], measured["latency_s"], "plan's latency")
    near(model["links"][0]["bytes_per_s"], measured["bytes_per_s"], "plan's bandwidth")
    near(model["local_bytes_per_s"], measured["local_bytes_per_s"], "plan's own memory")
    near(model["flops_per_s"], measured["flops_per_s"], "plan's operations")
    near(model["kernel_s"], measured["kernel_s"], "plan's kernel start")
    check(model["flops_per_s"] != built_in["flops_per_s"], "operations are measured too")
    # A product of 1024^3 costs what was measured of its dtype, and what a file says counts before that.
    for dtype, rate in (("f32", "flops_per_s"), ("f64", "f64_flops_per_s"), ("f64", 5e9)):
        with open(plan, "w", encoding="utf-8") as f:
            f.write("tessera: 1\nmesh: {x: 1}\ngraph:\n"
                    f"  a: {{op: normal, shape: [1024, 1024], dtype: {dtype}}}\n  y: {{op: matmul, in: [a, a]}}\n"
                    + ("cluster: {tflops_f64: 0.005}\n" if rate == 5e9 else ""))
        cost = next(x["cost_s"] for x in tessera_json("plan", plan, env=env)["ops"] if x["op"] == "matmul")
        near(cost, measured["kernel_s"] + 2 * 1024 ** 3 / (measured[rate] if isinstance(rate, str) else rate), f"{dtype}",
             rel=1e-6)
    with open(plan, "w", encoding="utf-8") as f:
        f.write(PLAN)
    check(model["figures"].startswith("measured on this machine"), model["figures"])

    path = measured["file"]
    with open(path, encoding="utf-8") as f:
        figures = json.load(f)
    older = {k: v for k, v in figures.items() if k not in ("flops_per_s", "f64_flops_per_s", "kernel_s")}
    for broken, why in (({**figures, "machine": "another, 3 cores"}, "of another machine"),
                        (older, "is older than the figures of computing"),
                        ({**figures, "latency_s": -1}, "holds no figures"), ([], "no figures")):
        with open(path, "w", encoding="utf-8") as f:
            json.dump(broken, f)
        m = tessera_json("info", env=env)["model"]
        check(not m["measured"] and why in m["why"], f"{why}: {m}")
        equal(m["latency_s"], built_in["links"][0]["latency_s"], why)
    os.remove(path)
    os.mkdir(path)
    _, err = tessera("info", "--measure", "--force", env=env, code=1)
    check(path in err, f"figures that can't be kept: {err}")
done()
