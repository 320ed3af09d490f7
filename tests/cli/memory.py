#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Planned memory of GPTs of 7, 13 and 70 billion parameters against the arithmetic of papers, part by part. usage: memory.py TESSERA

States: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), section 5: of Psi parameters
on N ranks 2 Psi and 2 Psi bytes of halves and of their gradients, 12 Psi of Adam's in f32 (masters and two moments), of which ZeRO-1
leaves a rank the N-th of 12 Psi, ZeRO-2 that of gradients too, ZeRO-3 that of all. Tessera's gradients are f32 at the update, where a
norm is clipped, and the halves of parameters are gone by then: 4 Psi in the place of 2 Psi and 2 Psi.
Activations: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), table 2: sbh(34 + 5as/h) bytes a
layer in halves, with tensor parallelism sbh(10 + 24/t + 5as/ht). Without dropout 2 sbh of masks go, and 5as/h with the scores, which
one kernel of attention does not keep."""
import os
import tempfile

from harness import check, done, equal, near, tessera_json

FOLDER = tempfile.TemporaryDirectory()
RANKS, VOCAB = 8, 1024
SIZES = {"7B": (4096, 32, 32), "13B": (5120, 40, 40), "70B": (8192, 80, 64)}
# By what a rank has of parameters, of states and of gradients.
LAYOUTS = {"data": (1, 1, 1), "zero1": (1, RANKS, 1), "zero2": (1, RANKS, RANKS), "zero3": (RANKS, RANKS, RANKS),
           "megatron": (RANKS, RANKS, RANKS)}


def plan(size, layout, tokens, clip, *sets):
    width, layers, heads = SIZES[size]
    dp, tp = (1, RANKS) if layout == "megatron" else (RANKS, 1)
    path = os.path.join(FOLDER.name, "m.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""\
tessera: 1
mesh: {{dp: {dp}, tp: {tp}}}
cluster: h100-sxm
model: {{name: gpt, args: {{width: {width}, layers: {layers}, heads: {heads}, vocab: {VOCAB}, dropout: 0}}}}
data: {{dataset: synthetic, shape: [1, 1, {tokens}], classes: 2, samples: 1024, batch_size: {dp}}}
strategy: {{dp: {'data' if tp > 1 else layout}, tp: {'megatron' if tp > 1 else 'data'}}}
optimizer: {{name: adamw{', clip_norm: 1' if clip else ''}}}
memory_limit: 100 TB
""")
    p = tessera_json("plan", path, *(x for s in sets for x in ("--set", s)), timeout=240)
    m = p["memory"][0]
    # Each part is a row, and the rows are all.
    equal(m["total"], sum(m[k] for k in ("parameters", "masters", "buffers", "optimizer", "inputs_outputs", "gradients", "activations",
                                         "communication", "scratch", "other")), f"{size} {layout}: the sum of the rows")
    check(m["scratch"] >= 32 << 20, f"{size} {layout}: kernels' scratch is {m['scratch']} bytes")
    return m


def count(size, tokens):
    """Parameters: embeddings, and of a layer 12 width^2 of weights, 13 width of biases and norms."""
    width, layers, _ = SIZES[size]
    return (VOCAB + tokens) * width + layers * (12 * width ** 2 + 13 * width) + 2 * width


for size, (width, layers, heads) in SIZES.items():
    for layout, (of_parameters, of_states, of_gradients) in LAYOUTS.items():
        what, psi = f"{size} {layout}", count(size, 8)
        # Mixed precision, at the update.
        m = plan(size, layout, 8, True, "train.amp=bf16")
        near(m["masters"], 4 * psi / of_parameters, f"{what}: masters", rel=0.02)
        near(m["optimizer"], 8 * psi / of_states, f"{what}: moments", rel=0.02)
        # A shard's update takes the place of its gradient, which is as large. Of whole gradients whose norm is computed by shards both
        # are kept: up to Psi / 2 more than the paper has.
        gradients, all_of = m["gradients"] + m["parameters"], 4 / of_parameters + 8 / of_states + 4 / of_gradients
        shards = 4 / RANKS if layout == "zero1" else 0
        check(0.98 * 4 * psi / of_gradients <= gradients <= 1.02 * psi * (4 / of_gradients + shards), f"{what}: gradients of {gradients}")
        check(0.98 * psi * all_of <= m["total"] <= 1.02 * psi * (all_of + shards), f"{what}: all of {m['total']}")

        # In training; data and zero1 keep gradients of ranks beside their sums then, which the papers do not have.
        if layout in ("data", "zero1"):
            continue
        tokens = 2048
        psi, rows, positions = count(size, tokens), tokens * width * layers, tokens * width
        m = plan(size, layout, tokens, False, "train.amp=bf16")
        near(m["masters"], 4 * psi / of_parameters, f"{what}: masters in training", rel=0.02)
        if layout == "zero2":  # others may need most at the update
            near(m["parameters"], 2 * (psi - positions) / of_parameters + 4 * positions, f"{what}: halves", rel=0.02)

        # All in one dtype: no masters. Three quarters of a layer's four in attention are one parameter, whose parts are copied.
        copies = layers * 3 * width ** 2 / (RANKS if layout == "megatron" else 1)
        kept = 8 + 24 / RANKS if layout == "megatron" else 32
        for dtype, element in (("f32", 4), ("bf16", 2)):
            m = plan(size, layout, tokens, False, f"dtype={dtype}")
            equal(m["masters"], 0, f"{what} {dtype}: masters")
            near(m["optimizer"], 2 * element * psi / of_states, f"{what} {dtype}: moments", rel=0.02)
            near(m["parameters"], element * (psi / of_parameters + copies), f"{what} {dtype}: parameters", rel=0.02)
            # In f32 a layer keeps up to one more of its results.
            units, more = m["activations"] / (element / 2 * rows), 2 if dtype == "f32" else 0
            check(0.98 * kept <= units <= 1.02 * (kept + more), f"{what} {dtype}: activations of {units} sbh, not {kept}")
done()
