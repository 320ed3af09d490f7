#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of published training runs take about the time that was measured. usage: published.py TESSERA

Sources: Megatron-LM: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
SC21, table 1: teraFLOP/s of a GPU, of which its equation 3 gives the seconds of a step. Its forward pass is computed twice
(activation recomputation), which is not planned: 4/3 of the planned time is compared.
MPT: MosaicML's llm-foundry, scripts/train/benchmarking/README.md, table "H100 80GB BF16": tokens a second of a GPU, in
rows of 2,048 tokens without activation checkpointing."""
import os
import sys
import tempfile

from harness import check, done, tessera_json

FOLDER = tempfile.TemporaryDirectory()
MEGATRON = """\
parameters:
  - {match: "h.*.attn.c_attn.weight", sbp: {tp: S(2)}}
  - {match: "h.*.attn.c_attn.bias", sbp: {tp: S(1)}}
  - {match: "h.*.attn.c_proj.weight", sbp: {tp: S(0)}}
  - {match: "h.*.mlp.c_fc.weight", sbp: {tp: S(1)}}
  - {match: "h.*.mlp.c_fc.bias", sbp: {tp: S(0)}}
  - {match: "h.*.mlp.c_proj.weight", sbp: {tp: S(0)}}
"""
SHARDED = "parameters: [{match: '*', sbp: {dp: S(0)}}]\n"
TOKENS = 2048


def plan(cluster, mesh, width, layers, heads, vocab, rows, parameters):
    path = os.path.join(FOLDER.name, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        # The memory that the runs save by micro-batches and recomputation is not asked for.
        f.write(f"""\
tessera: 1
mesh: {mesh}
cluster: {cluster}
dtype: bf16
memory_limit: 10 TB
model: {{name: gpt, args: {{width: {width}, layers: {layers}, heads: {heads}, vocab: {vocab}, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, {TOKENS + 1}], classes: 2, samples: 8192, batch_size: {rows}}}
tensors: {{input: {{sbp: {{dp: S(0)}}}}}}
optimizer: {{name: adamw}}
{parameters}""")
    return tessera_json("plan", path)["step"]


def compare(what, measured, step, passes):
    planned = step["cost_s"] * passes
    spent = {k: v / step["cost_s"] for k, v in step["spent_s"].items()}
    links = sum(v for k, v in spent.items() if k.startswith("link"))
    row = (f"| {what} | {measured:.2f} s | {planned:.2f} s | {100 * planned / measured:.0f} % | "
           f"{100 * spent['compute']:.0f} / {100 * spent['memory']:.0f} / {100 * links:.0f} % |")
    if len(sys.argv) > 2:
        print(row)
    check(0.7 * measured < planned < 1.3 * measured, row)


# GPUs, tensor parallel, width, layers, heads, rows, teraFLOP/s
for n, tp, width, layers, heads, rows, tflops in ((32, 1, 2304, 24, 24, 512, 137), (64, 2, 3072, 30, 32, 512, 138),
                                                  (128, 4, 4096, 36, 32, 512, 142), (256, 8, 6144, 40, 48, 1024, 135)):
    vocab = 51200
    flops = 96 * rows * TOKENS * layers * width ** 2 * (1 + TOKENS / (6 * width) + vocab / (16 * layers * width))
    step = plan("a100-80-sxm", f"{{dp: {n // tp}, tp: {tp}}}", width, layers, heads, vocab, rows, MEGATRON)
    compare(f"Megatron-LM, {layers} blocks of {width}, {n} A100, dp {n // tp}, tp {tp}", flops / n / tflops / 1e12, step, 4 / 3)

# GPUs, width, layers, heads, rows, tokens a second of a GPU
for name, n, width, layers, heads, rows, tokens in (("1b", 8, 2048, 24, 16, 112, 45455), ("1b", 64, 2048, 24, 16, 1280, 44402),
                                                    ("3b", 64, 2560, 32, 32, 384, 22525), ("7b", 8, 4096, 32, 32, 48, 10643),
                                                    ("13b", 8, 5120, 40, 40, 16, 4792), ("13b", 64, 5120, 40, 40, 128, 4800)):
    step = plan("h100-sxm", f"{{dp: {n}}}", width, layers, heads, 50368, rows, SHARDED)
    # The run of the 3b model accumulates three times; one pass over a third of its rows is compared.
    compare(f"MPT {name}, {n} H100, fully sharded", rows * TOKENS / n / tokens, step, 1)
done()
