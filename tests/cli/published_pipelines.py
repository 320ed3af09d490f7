#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of published runs with pipelines, as they were run: their stages, chunks, micro-batches and recomputation; nothing is fitted to
them. Without --all (or TESSERA_FULL) only two, which take seconds. usage: published_pipelines.py TESSERA [--all]

It prints docs/measured.md's rows. Sources as published.py's; and
mtnlg: Smith et al., "Using DeepSpeed and Megatron to Train Megatron-Turing NLG 530B", arXiv 2201.11990, section 2.4: seconds of a step.
llama: "The Llama 3 Herd of Models", arXiv 2407.21783, table 4: teraFLOP/s of a GPU, of which the flops of its shape give the seconds of a
  step (the mean of what attention's halved and full products give). The number of chunks is not published: 4 here.
bloom: bigscience-workshop/bigscience, train/tr11-176B-ml/README.md and chronicles-prequel.md (commit 9e64ede): seconds of a step, and the
  memory of the fullest GPU. Nodes have 4 ports of 100 Gb/s.
"""
import os
import sys
import tempfile

from harness import check, done, tessera_json
from published_nets import A100, H100, transformer

FOLDER = tempfile.TemporaryDirectory()


def blocks_of_stages(stages, layers, slots=0):
    """Rules that give each stage its share of a GPT's blocks; the first also has the embeddings, the last the norm before the head.
    slots: of these two, each is counted as a block."""
    rules, all_of = [("w?e.*", 0), ("ln_f.*", stages - 1)], layers + 2 * slots
    for s in range(stages):
        first, end = (max(0, min(layers, -(-(s + i) * all_of // stages) - slots)) for i in (0, 1))
        rules.append((f"h.{first}-{end - 1}.*", s))
    return ", ".join(f"{{match: \"{match}\", stage: {s}}}" for match, s in rules)


def recomputed(pp, chunks, dp, layers, width, heads, rows, tp=8, vocab=51200, slots=0, zero="data"):
    """Megatron-LM with each block computed twice."""
    return f"""
mesh: {{pp: {pp}, dp: {dp}, tp: {tp}}}
model: {{name: gpt, args: {{layers: {layers}, width: {width}, heads: {heads}, vocab: {vocab}, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, 2049], classes: 2, samples: 8192, batch_size: {rows}}}
stages: {{axis: pp, virtual: {chunks}, rules: [{blocks_of_stages(pp * chunks, layers, slots)}]}}
strategy: {{dp: {zero}, tp: megatron}}
recompute: [{{match: "h.*"}}]
optimizer: {{name: adamw}}
"""


def kept(pp, chunks, dp, rows, **shape):
    """Blocks whose attention never holds its scores, with positions split between products."""
    ranks = 8 * dp
    places = ", ".join(f"s{s}: {{ranks: {s * ranks}..{(s + 1) * ranks - 1}, mesh: {{dp: {dp}, tp: 8}}}}" for s in range(pp))
    body = transformer(rows=rows, tp=8, sequence=True, stages=[f"s{c % pp}" for c in range(pp * chunks)], **shape)
    # Gathered rows are kept for the backward pass, which these runs gathered again.
    return f"\nplacements: {{{places}}}\nmemory_limit: 10 TB\n{body}"


# Runs that are planned to take less than three quarters of the time, and how much at least. docs/measured.md has the reasons.
MISSES = {
    "bloom: 176B, 384 A100: 12 stages, dp 8, tp 4, ZeRO-1, computed twice": 0.7,
    "bloom: 181B, 384 A100: 12 stages, dp 4, tp 8, ZeRO-1, computed twice": 0.7,
}


def compare(what, measured, cluster, microbatches, text, gigabytes=None):
    path = os.path.join(FOLDER.name, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"tessera: 1\ncluster: {cluster}\ntrain: {{amp: bf16}}\nschedule: {{microbatches: {microbatches}}}{text}")
    plan = tessera_json("plan", path, timeout=600)
    planned = plan["step"]["cost_s"]
    memory = f"{plan['memory'][0]['total'] / 1e9:.0f} GB" + (f" of {gigabytes}" if gigabytes else "")
    row = (f"| {what} | {measured:.3g} s | {planned:.3g} s | {100 * planned / measured:.0f} % | "
           f"{100 * plan['pipeline']['bubble']:.0f} % | {memory} |")
    print(row, flush=True)
    check(MISSES.get(what, 0.75) <= planned / measured <= 1.25, row)
    check(what not in MISSES or planned / measured < 0.75, f"no longer a miss: {row}")


def main(everything):
    sc21 = [(512, 2, 1, 8192, 48, 64, 1536, 4, 138), (1024, 4, 3, 10240, 60, 80, 1792, 2, 140),
            (1536, 8, 2, 12288, 80, 96, 2304, 2, 148)]
    for n, pp, chunks, width, layers, heads, rows, micro, tflops in sc21 if everything else sc21[:1]:
        flops = 96 * rows * 2048 * layers * width ** 2 * (1 + 2048 / (6 * width) + 51200 / (16 * layers * width))
        dp = n // 8 // pp
        compare(f"sc21: GPT, {layers} blocks of {width}, {n} A100: {pp} stages of {chunks}, dp {dp}, tp 8, computed twice",
                flops / n / tflops / 1e12, A100, rows // dp // micro, recomputed(pp, chunks, dp, layers, width, heads, rows))
    mlsys = [("GPT-3 175B", 12288, 96, 96, 8, 64, 18.13, 13.75), ("530B", 20480, 105, 128, 35, 280, 49.05, 37.83)]
    for name, width, layers, heads, pp, rows, twice, little in mlsys if everything else mlsys[:1]:
        what = f"mlsys23: {name}, {8 * pp} A100: {pp} stages of 3, tp 8, "
        if everything:
            compare(what + "computed twice", twice, A100, rows, recomputed(pp, 3, 1, layers, width, heads, rows))
        compare(what + "by positions", little, A100, rows,
                kept(pp, 3, 1, rows, width=width, layers=layers, heads=heads, vocab=51200, tokens=2048))
    if not everything:
        return
    for dp, seconds in ((8, 60.1), (10, 50.2), (12, 44.4)):
        compare(f"mtnlg: 530B, {280 * dp} A100: 35 stages, dp {dp}, tp 8, computed twice", seconds, A100, 1920 // dp,
                recomputed(35, 1, dp, 105, 20480, 128, 1920))
    ports = "{gpu: a100-80-sxm, gpus_per_node: 8, network: 100g, network_ports: 4}"
    for name, layers, heads, dp, tp, micro, slots, seconds, gigabytes in (
            ("176B", 70, 112, 8, 4, 2, 1, 104.5, 59), ("181B", 72, 64, 8, 4, 2, 0, 110.5, 44), ("181B", 72, 64, 4, 8, 4, 0, 123.7, 49)):
        compare(f"bloom: {name}, 384 A100: 12 stages, dp {dp}, tp {tp}, ZeRO-1, computed twice", seconds, ports, 2048 // dp // micro,
                recomputed(12, 1, dp, layers, 14336, heads, 2048, tp, 250880, slots, "zero1"), gigabytes)
    for dp, halved, full in ((64, 12.1, 12.6), (128, 6.5, 6.8)):
        compare(f"llama: 405B, {128 * dp} H100: 16 stages of 4, dp {dp}, tp 8, by positions", (halved + full) / 2, H100, 2048 // dp,
                kept(16, 4, dp, 2048, width=16384, layers=126, heads=128, vocab=128256, tokens=8192, groups=8, inner=53248))


main("--all" in sys.argv or bool(os.environ.get("TESSERA_FULL")))
done()
