#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The transformers of published training runs, as experiments: published.py and published_pipelines.py plan them."""
A100, H100 = "a100-80-sxm", "h100-sxm"


class Graph:
    """A graph section; tensor parallelism stands where Megatron-LM has it, along the axis tp."""

    def __init__(self, tp, sharded, sequence, place=""):
        self.lines, self.tp, self.sharded, self.sequence, self.place = [], tp, sharded, sequence, place

    def sbp(self, dp, tp):
        return f"{{dp: {dp}, tp: {tp}}}" if self.tp > 1 else f"{{dp: {dp}}}"

    def op(self, op, *operands, **keys):
        said = {"in": f"[{', '.join(operands)}]", **keys} if operands else keys
        self.lines.append(f"  t{len(self.lines)}: {{op: {op}" + "".join(f", {k}: {v}" for k, v in said.items()) + "}")
        return f"t{len(self.lines) - 1}"

    def at(self):
        return {"placement": self.place} if self.place else {}

    def weight(self, *shape, split="B"):
        return self.op("parameter", fill=0, shape=list(shape), sbp=self.sbp("S(0)" if self.sharded else "B", split), **self.at())

    def move(self, x, place, dp="S(0)", tp="B"):
        """Brings x to another stage, where the next weights are made."""
        if place == self.place:
            return x
        return self.op("to_global", x, placement=place, sbp=self.sbp(dp, tp))

    def bring(self, x, sbp, gradient):
        """Brings x into a signature along tp, and its gradient into another."""
        said = {"sbp": sbp, "gradient": gradient}
        return self.op("to_global", x, **{k: self.sbp("S(0)", v) for k, v in said.items() if v}) if self.tp > 1 else x

    def between(self, x):
        """Positions are split between the pairs of products, or nothing is."""
        return self.bring(x, *(("S(1)",) * 2 if self.sequence else ("B",) * 2))

    def first(self, x, outputs, inputs, *bias):
        """The first product of a pair is split by its outputs."""
        return self.op("linear", x, self.weight(outputs, inputs, split="S(0)"), *bias)

    def second(self, x, outputs, inputs):
        x = self.op("linear", x, self.weight(outputs, inputs, split="S(1)"))
        return self.between(self.bring(x, None, "B") if self.sequence else x)


def transformer(width, layers, heads, vocab, rows, tokens, tp=1, sharded=False, sequence=False, groups=0, inner=0, stages=()):
    """GPT's blocks; with groups (heads of keys and values) Llama's. stages: the placement of each of equally many blocks."""
    g, llama = Graph(tp, sharded, sequence, stages[0] if stages else ""), groups > 0
    groups, inner, d = groups or heads, inner or 4 * width, width // heads

    def norm(x):
        x = g.between(g.op("rms_norm", x, g.weight(width)) if llama else
                      g.op("layer_norm", x, g.weight(width), g.weight(width)))
        return g.bring(x, "B", None) if sequence else x

    def bias(n, split="B"):
        return () if llama else (g.weight(n, split=split),)

    def of_heads(x, n):
        x = g.op("reshape", g.first(x, n * d, width, *bias(n * d, "S(0)")), shape=[rows, tokens, n, d])
        return g.bring(g.op("permute", x, order=[0, 2, 1, 3]), "S(1)", "S(1)")

    def widened(x):
        return g.bring(g.first(x, inner, width, *bias(inner, "S(0)")), "S(2)", "S(2)")

    def add(x, y):
        return g.op("add", x, g.op("add", y, *bias(width)) if not llama else y)

    ids = g.op("reshape", g.op("cast", g.op("input", field="x", **({"placement": g.place, "sbp": g.sbp("S(0)", "B")} if stages else {})), dtype="i64"), shape=[rows, tokens])
    table = g.weight(vocab, width, split="S(0)")
    x = g.between(g.op("embedding", table, ids))
    if not llama:
        x = g.op("add", x, g.weight(tokens, width))
    for block in range(layers):
        if stages:
            place = stages[block * len(stages) // layers]
            x = g.move(x, place, tp="S(1)" if sequence else "B")
            g.place = place
        y = norm(x)
        q, k, v = of_heads(y, heads), of_heads(y, groups), of_heads(y, groups)
        if llama:
            q, k = (g.op("rotary_embedding", t, base=500000) for t in (q, k))
            k, v = (g.op("repeat_interleave", t, axis=1, n=heads // groups) for t in (k, v))
        y = g.op("permute", g.op("scaled_dot_product_attention", q, k, v, causal="true"), order=[0, 2, 1, 3])
        x = add(x, g.second(g.op("reshape", y, shape=[rows, tokens, width]), width, width))
        y = norm(x)
        y = (g.op("mul", g.op("silu", widened(y)), widened(y)) if llama else g.op("gelu", widened(y), form="tanh"))
        x = add(x, g.second(y, width, inner))
    if stages:
        ids = g.op("to_global", ids, placement=stages[-1], sbp=g.sbp("S(0)", "B")) if len(stages) > 1 else ids
    head = g.weight(vocab, width, split="S(0)") if llama else table
    if stages and not llama and len(stages) > 1:
        head = g.op("to_global", table, placement=stages[-1], sbp=g.sbp("B", "S(0)"))
    logits = g.bring(g.op("linear", norm(x), head), "S(2)", "S(2)")
    loss = g.op("cross_entropy", g.op("reshape", logits, shape=[rows * tokens, vocab]),
                g.op("reshape", ids, shape=[rows * tokens]))
    return "\n".join([f"data: {{dataset: synthetic, shape: [1, 1, {tokens}], classes: 2, samples: 8192, batch_size: {rows}}}",
                      f"optimizer: {{name: adamw}}\nloss: {loss}\ngraph:", *g.lines, ""])
