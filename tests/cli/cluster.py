#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clusters, from the command: what an op and a conversion cost by the figures of data sheets, counted anew; the same in
`plan` and `box`; the memory of a GPU as the limit. usage: cluster.py TESSERA"""
import os
import re
import tempfile

from harness import check, done, equal, near, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
KERNEL = 2e-6


def write(text):
    path = os.path.join(FOLDER.name, "c.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("tessera: 1\n" + text)
    return path


def product(gpu, dtype, m, n, k):
    p = tessera_json("plan", write(f"""\
mesh: {{x: 1}}
cluster: {gpu}
graph:
  a: {{op: normal, shape: [{m}, {k}], dtype: {dtype}}}
  b: {{op: normal, shape: [{k}, {n}], dtype: {dtype}}}
  y: {{op: matmul, in: [a, b]}}
"""))
    return next(x["cost_s"] for x in p["ops"] if x["op"] == "matmul")


# A product of 16384^3, by dtype: the part of the dtype's peak that large products reach.
for gpu, dtype, more, tflops, reached in (("h100-sxm", "f32", "", 67, 0.803), ("h100-sxm", "bf16", "", 989.5, 0.803),
                                          ("h100-sxm", "f32", ", tf32: true", 494.5, 0.803), ("a100-80-sxm", "f64", "", 19.5, 0.869),
                                          ("a100-40-pcie", "f16", "", 312, 0.811), ("b200", "bf16", "", 2250, 0.776),
                                          ("l40s", "bf16", "", 362.05, 0.811)):
    near(product(f"{{gpu: {gpu}{more}}}", dtype, *[16384] * 3), 2 * 16384 ** 3 / (tflops * 1e12 * reached), f"{gpu} {dtype}{more}", rel=1e-6)

# Smaller ones on an H100 in bf16, in TFLOPS as XLA has measured them (see placement/cluster.c): of shapes of equal work the planned
# time is between the measured ones, or nearly.
for m, n, k, tflops in ((4096, 4096, 4096, 783), (4096, 2048, 4096, 758), (1024, 4096, 4096, 738), (2048, 2048, 2048, 632),
                        (1024, 2048, 2048, 524), (1024, 1024, 2048, 350), (256, 4096, 2048, 325), (2048, 2048, 1024, 494),
                        (512, 4096, 1024, 373), (256, 4096, 1024, 225), (4096, 2048, 512, 447), (4096, 1024, 512, 344),
                        (1024, 2048, 512, 238), (1024, 1024, 512, 146), (1024, 4096, 256, 210), (512, 2048, 256, 79), (256, 2048, 256, 42)):
    near(product("h100-sxm", "bf16", m, n, k), 2 * m * n * k / (tflops * 1e12), f"{m} x {n} x {k} on an H100", rel=0.25)

# Figures of one's own come before those of a preset.
p = tessera_json("plan", write("""\
mesh: {x: 1}
cluster: {gpu: h100-sxm, tflops_bf16: 100, kernel_us: 5}
graph:
  a: {op: normal, shape: [4096, 4096], dtype: bf16}
  y: {op: matmul, in: [a, a]}
"""))
near(next(x["cost_s"] for x in p["ops"] if x["op"] == "matmul"), 5e-6 + 2 * 4096 ** 3 / 100e12, "own figures", rel=1e-6)

# Attention of 8 x 16 heads of 4096 x 128 takes longer: 368 TFLOPS on an H100, as is published; a part that is said is the products',
# of which attention reaches the same share.
for gpu, part in (("{gpu: h100-sxm}", 0.374 * 989.5e12 * 368 / 370), ("{gpu: a100-80-sxm}", 0.73 * 312e12 * 368 / 370),
                  ("{gpu: h100-sxm, efficiency: 0.5}", 0.5 * 0.374 / 0.803 * 989.5e12 * 368 / 370)):
    p = tessera_json("plan", write(f"""\
mesh: {{x: 1}}
cluster: {gpu}
graph:
  a: {{op: normal, shape: [8, 16, 4096, 128], dtype: bf16}}
  y: {{op: scaled_dot_product_attention, in: [a, a, a]}}
"""))
    cost = next(x["cost_s"] for x in p["ops"] if x["op"] == "flash_attention")
    near(cost, KERNEL + 4 * 8 * 16 * 4096 ** 2 * 128 / part, f"attention, {gpu}", rel=1e-6)

# MFU counts each operation by the peak of the dtype that it is computed in, whatever the experiment's dtype is.
for dtypes in (["bf16"], ["f32"], ["bf16", "f32"]):
    path = write("mesh: {x: 1}\ncluster: h100-sxm:1x1\ngraph:\n" + "".join(f"""\
  {d}: {{op: normal, shape: [8192, 8192], dtype: {d}}}
  y{d}: {{op: matmul, in: [{d}, {d}]}}
  z{d}: {{op: cast, in: y{d}, dtype: f32}}
""" for d in dtypes) + (f"  all: {{op: add, in: [{', '.join('z' + d for d in dtypes)}]}}\n" if dtypes[1:] else ""))
    step = tessera_json("plan", path)["step"]["cost_s"]
    ideal = sum(2 * 8192 ** 3 / {"bf16": 989.5e12, "f32": 67e12}[d] for d in dtypes)
    shown = re.search(r"MFU ([\d.]+) %", tessera("plan", path)[0])
    check(shown and abs(float(shown[1]) - 100 * ideal / step) < 0.6, f"MFU of {dtypes}: {shown and shown[0]}, {100 * ideal / step}")

# Gathering 64 MiB over 8 GPUs of a node: what plan and box say, and what one counts.
SIZE, BYTES = 1 << 24, 4 << 24
for cluster, latency, gb_s, memory in (("h100-sxm:1x8", 10.8e-6, 18 * 20.6, 0.9 * 3350), ("a100-80-sxm", 10.8e-6, 240, 0.9 * 2039),
                                       ("l40s:1x8", 13.6e-6, 24, 0.9 * 864), (None, 12e-6, 300, 4000)):
    more = ("--cluster", cluster) if cluster else ()
    box = tessera_json("box", "-s", SIZE, "-f", "cuda:[0..7] S(0)", "-t", "B", *more)
    equal([(s["kind"], s["bytes_busiest_rank"]) for s in box["steps"]], [("all_gather", BYTES * 7 // 8)], f"{cluster}")
    near(box["cost_s"], latency + BYTES * 7 / 8 / (gb_s * 1e9) + BYTES / (memory * 1e9), f"{cluster}")
    p = tessera_json("plan", write(f"""\
mesh: {{x: 8}}
device: cuda
{f"cluster: {cluster}" if cluster else ""}
graph:
  a: {{op: normal, shape: [{SIZE}], sbp: S(0)}}
  y: {{op: to_global, in: a, sbp: B}}
"""))
    near(sum(b["cost_s"] for b in p["boxing"]), box["cost_s"], f"{cluster}: plan and box", rel=1e-6)

# Between 2 nodes, a rank of each: a port of 400 Gb/s for each GPU, of 25 Gb/s for all 8.
for cluster, gb_s, memory in (("{gpu: h100-sxm, gpus_per_node: 1}", 48, 0.9 * 3350),
                              ("{gpu: l40s, gpus_per_node: 1, network: 25g}", 3, 0.9 * 864)):
    box = tessera_json("box", "-s", SIZE, "-f", "cuda:[0,1] S(0)", "-t", "B", "--cluster", cluster)
    near(box["cost_s"], 25.5e-6 + BYTES / 2 / (gb_s * 1e9) + BYTES / (memory * 1e9), cluster)
_, err = tessera("box", "-s", 8, "-f", "cuda:[0..15] S(0)", "-t", "B", "--cluster", "h100:2x8", code=1)
check(err.startswith("tessera box: --cluster:1:1: gpu: found 'h100'; legal is cpu, ") and "did you mean 'h100-pcie'?" in err, err)
_, err = tessera("box", "-s", 8, "-f", "cuda:[0..15] S(0)", "-t", "B", "--cluster", "h100-sxm:1x8", code=1)
equal(err, "tessera box: --cluster:1:1: nodes: 1 node of 8 has 8 ranks; 16 are needed\n", "too few")

# The memory of a GPU is the limit, and what is refused says so.
LARGE = """\
mesh: {dp: 8}
cluster: CLUSTER
model: {name: mlp, args: {inputs: 16, hidden: 60000, outputs: 10, layers: 4}}
data: {dataset: synthetic, shape: [1, 4, 4], classes: 10, batch_size: 64}
optimizer: {name: adamw}
"""
_, err = tessera("plan", write(LARGE.replace("CLUSTER", "l40s")), code=1)
check("memory limit of 48000000000 bytes" in err or "48000000000" in err, err)
check("\n  the limit is the memory of l40s (cluster.gpu), 48.0 GB; memory_limit sets another\n" in err, err)
_, err = tessera("plan", write(LARGE.replace("CLUSTER", "{gpu: l40s, memory: 40 GB}")), code=1)
check("\n  the limit is the memory of l40s (cluster.memory), 40.0 GB; memory_limit sets another\n" in err, err)
_, err = tessera("plan", write(LARGE.replace("CLUSTER", "l40s")), "-m", "40G", code=1)
check("the limit is the memory" not in err, err)
path = write(LARGE.replace("CLUSTER", "b200"))
out, _ = tessera("plan", path, "--full")
check("\n  memory limit of a rank: 180 GB, the memory of b200 (cluster.gpu)\n" in out, out)
check("\n  memory limit of a rank: 170 GB, as said\n" in tessera("plan", path, "--full", "-m", "170G")[0], "as said")
limited = tessera_json("plan", path)
equal((limited["memory_limit"], limited["memory_limit_is"]), (180e9, "the memory of b200 (cluster.gpu)"), "JSON")
check("memory_limit" not in tessera_json("plan", path, "--set", "cluster={}"), "no limit")
tessera("plan", write(LARGE.replace("CLUSTER", "l40s")), "-m", "200G")
done()
