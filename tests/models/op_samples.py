#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own database of ops and samples, and op_extra.py's, against Tessera: every op that op_map.py maps, values and gradients,
on one rank and on a random layout (1 to 4 ranks in one or two dimensions, random signatures of operands and
results). Needs PyTorch 1.13.

usage: op_samples.py PEER [--full] [--seed N] [--part P] [--jobs N] [--op NAME] [--dtype NAME] [--verbose]

PEER is op_samples_peer. --full takes all samples, and the database's larger set ("reference inputs", which have infinities,
NaN and broadcasting), else a quarter of the samples by the seed (default: TESSERA_SEED). Prints a line "FAIL ..." for
each op that is wrong, what was refused, by reason, and a line "ok ..." for each dtype.
"""
import argparse
import collections
import math
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
import traceback
import types
import unittest
import warnings

import numpy as np
import torch

import op_extra
import op_map
import op_map_nn  # noqa: F401: adds to op_map.OPS, as op_map_shape does
import op_map_shape  # noqa: F401
from op_map import DTYPES, Graph, Ref, Refused, Undefined

PLACEMENTS = [(1, "cpu:[0]"), (2, "cpu:[0,1]"), (2, "cpu:[1,0]"), (3, "cpu:[0,1,2]"), (3, "cpu:[2,0,1]"), (4, "cpu:[0,1,2,3]"),
              (4, "cpu:[[0,1],[2,3]]"), (4, "cpu:[[3,1],[0,2]]"), (2, "cpu:[[0],[1]]"), (2, "cpu:[[0,1]]"), (3, "cpu:[[0,1,2]]")]
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
BY_NAME = {v: k for k, v in DTYPES.items()}

DATABASE = {}  # by key


def load_database():
    """PyTorch's list of ops. Debian does not package expecttest, of which importing it needs a name or two."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        stub = types.ModuleType("expecttest")
        stub.TestCase, stub.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db
    return [*op_db, *op_extra.EXTRAS]


def key_of(op):
    return op.name + ("/" + op.variant_test_name if op.variant_test_name else "")


def by_key():
    """{key: the op's entries}"""
    found = collections.defaultdict(list)
    for op in load_database():
        found[key_of(op)].append(op)
    return found


# --- requests
def yaml(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        return ".nan" if math.isnan(v) else (".inf" if v > 0 else "-.inf") if math.isinf(v) else repr(v)
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(map(yaml, v)) + "]"
    return str(v) if isinstance(v, int) else '"' + str(v) + '"'


def raw(t):
    t = t.detach().contiguous()
    if t.dtype == torch.bfloat16:
        t = t.view(torch.int16)
    return t.numpy().tobytes()


class Peer:
    """The program that runs samples; one that dies or hangs is replaced."""

    def __init__(self, path):
        self.path, self.process = path, None

    def ask(self, ranks, text, data):
        """The tensors of the answer, or a text "STAGE WHY"."""
        if self.process is None:
            self.process = subprocess.Popen(["timeout", "3600", self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        p, text = self.process, text.encode()
        try:
            p.stdin.write(b"%d %d %d\n" % (ranks, len(text), len(data)) + text + data)
            p.stdin.flush()
            line = p.stdout.readline().decode(errors="replace").rstrip("\n")
        except BrokenPipeError:
            line = ""
        if not line:
            self.process = None
            return f"crash of the peer: status {p.wait()}"
        if not line.startswith("ok"):
            return line
        out = []
        for word in line.split()[1:]:
            name, dims = word.split(":")
            shape, dtype = [int(d) for d in dims.split(",") if d], BY_NAME[name]
            n = math.prod(shape)
            data = p.stdout.read(n * torch.empty(0, dtype=dtype).element_size()) if n else b""
            stored = torch.int16 if dtype == torch.bfloat16 else dtype
            t = torch.frombuffer(bytearray(data), dtype=stored) if n else torch.empty(0, dtype=stored)
            out.append((t.view(dtype) if dtype != stored else t).reshape(shape))
        return out


# --- the oracle
def flatten(y):
    if isinstance(y, torch.Tensor):
        return [y]
    return [t for a in y for t in flatten(a)] if isinstance(y, (tuple, list)) else []


def walk(x, f):
    """The arguments of a sample with f applied to each tensor."""
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, (tuple, list)) and not isinstance(x, torch.Size):
        made = [walk(a, f) for a in x]
        return type(x)(*made) if hasattr(x, "_fields") else type(x)(made)
    return {k: walk(v, f) for k, v in x.items()} if isinstance(x, dict) else x


class Sample:
    """The arguments of one call; tensors are leaves."""

    def __init__(self, input, args, kwargs):
        self.input, self.args, self.kwargs = input, args, kwargs

    def tensors(self):
        found = []
        walk([self.input, list(self.args), self.kwargs], found.append)
        return found

    def to(self, dtype, move=0.0):
        """The sample with floating-point tensors of another dtype, moved by -1, 0 or 1 times `move` of themselves, and the map
        of old to new ones by id."""
        made = {}

        def convert(t):
            if id(t) not in made:
                new = t.detach().to(dtype if t.dtype.is_floating_point else t.dtype).clone().contiguous()
                if move and new.dtype.is_floating_point:
                    new *= 1 + torch.randint(-1, 2, new.shape) * move
                new.requires_grad_(t.requires_grad and new.dtype.is_floating_point)
                made[id(t)] = new
            return made[id(t)]
        input, args, kwargs = walk([self.input, list(self.args), self.kwargs], convert)
        return Sample(input, tuple(args), kwargs), made


def gradients(outs, weights, leaves):
    """The gradients of leaves under weights of outs that have one; None where there is none."""
    terms = [(y, w.to(y.dtype)) for y, w in zip(outs, weights) if w is not None and y.requires_grad]
    if not terms or not leaves:
        return [None] * len(leaves)
    return torch.autograd.grad([y for y, _ in terms], leaves, [w for _, w in terms], allow_unused=True)


def normed(norm, elements):
    """A norm over so many elements; the gradient of one alone is 0, where PyTorch multiplies rounding by 1/sqrt(eps)."""
    def call(x, groups, weight=None, bias=None, eps=1e-5):
        if elements(x, groups) != 1:
            return norm(x, groups, weight=weight, bias=bias, eps=eps)
        shape = [-1 if i == 1 else 1 for i in range(x.dim())] if norm is torch.nn.functional.group_norm else x.shape[x.dim() - len(groups):]
        y = x - x
        y = y if weight is None else y * weight.reshape(shape)
        return y if bias is None else y + bias.reshape(shape)
    return call


# PyTorch's own f64 is not exact here: formulas in its place.
FORMULAS = {
    "nn.functional.layer_norm": normed(torch.nn.functional.layer_norm, lambda x, shape: math.prod(shape)),
    "nn.functional.group_norm": normed(torch.nn.functional.group_norm, lambda x, groups: x[0].numel() // groups if len(x) else 0),
    # It multiplies gradients by 1/6 in f32; adds 1 to small exponents; takes exponents of logarithms of gradients.
    "nn.functional.hardsigmoid": lambda x, inplace=False: torch.nn.functional.hardtanh(x + 3, 0, 6) / 6,
    "nn.functional.soft_margin_loss": lambda x, y, size_average=None, reduce=None, reduction="mean": {
        "none": lambda t: t, "mean": torch.mean, "sum": torch.sum}[reduction](torch.nn.functional.softplus(-x * y, threshold=1e9)),
    "logcumsumexp": lambda x, dim: torch.stack([x.narrow(dim, 0, i + 1).logsumexp(dim) for i in range(x.shape[dim])], dim)
    if x.numel() and x.dim() else x.logcumsumexp(dim),
}
MOST_ELEMENTS = 1 << 14  # of a sample: larger ones, of --full alone, take long and show no more
SPREAD = 16  # operands are moved so often by one unit in their last place


class Oracle:
    """What PyTorch makes of a sample: values and gradients, of floating point in f64 of the same operands."""

    def __init__(self, key, op, sample, leaves, dtype, cast):
        self.key, self.sample, self.leaves, self.dtype = key, sample, leaves, dtype
        self.call, self.weights, self.found = FORMULAS.get(key, op.op), None, None
        self.cast = cast  # the dtype that the call names; None: it names none
        self.values = self.in_dtype(torch.float64) if dtype in FLOATS else self.of(sample, leaves)

    def in_dtype(self, dtype, move=0.0):
        x, of = self.sample.to(dtype, move)
        return self.of(x, [of[id(t)] for t in self.leaves])

    def of(self, sample, leaves):
        outs = flatten(self.call(sample.input, *sample.args, **sample.kwargs))
        if self.key == "nn.functional._scaled_dot_product_attention":
            outs = outs[:1]  # the weights are the second
        if self.weights is None:
            self.weights = [torch.randn(y.shape, dtype=torch.float64).to(self.made(y)) if y.requires_grad else None for y in outs]
        return [y.detach() for y in outs], [None if d is None else d.detach() for d in gradients(outs, self.weights, leaves)]

    def made(self, y):
        """The dtype that a result has to have."""
        dtype = self.cast or (self.dtype if y.dtype == torch.float64 else y.dtype)
        return OTHER_DTYPES.get((self.key, dtype), dtype)

    def doubts(self):
        """What PyTorch makes in the sample's own dtype (None: it refuses), and how far its results in f64 move when the operands
        do by a unit in the last place."""
        if self.found is None:
            spread = [[torch.zeros(()) if v is None else torch.zeros_like(v) for v in part] for part in self.values]
            for _ in range(SPREAD):
                try:
                    moved = self.in_dtype(torch.float64, EPS[self.dtype])
                except PYTORCH_REFUSES:  # out of the range that it takes
                    continue
                for most, parts, values in zip(spread, moved, self.values):
                    for m, a, b in zip(most, parts, values):
                        if b is not None and b.dtype in FLOATS and a.shape == b.shape:
                            m.copy_(torch.maximum(m, (a - b).abs().nan_to_num(0, 0, 0)))
            try:
                native = self.in_dtype(self.dtype)
            except PYTORCH_REFUSES:
                native = None
            self.found = native, spread
        return self.found


# --- judging
PYTORCH_REFUSES = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
EPS = {torch.float64: 2.0 ** -52, torch.float32: 2.0 ** -23, torch.float16: 2.0 ** -10, torch.bfloat16: 2.0 ** -7}
SLACK = {torch.float64: 2 ** 16, torch.float32: 64, torch.float16: 4, torch.bfloat16: 4}  # f64: the oracle rounds too
BROAD = {torch.float64: 100, torch.float32: 16, torch.float16: 4, torch.bfloat16: 4}  # so many SLACKs of the largest are one
# Attention's gradient is a difference of sums in two orders, of products of three operands.
WIDER = {"nn.functional._scaled_dot_product_attention": 100}
# Functions of NaN that are 0 in PyTorch 1.13 alone; here they are NaN.
NAN_STAYS = {"sign", "nn.functional.softshrink"}
# Results of another dtype than PyTorch's, as their headers say.
OTHER_DTYPES = {("all", torch.uint8): torch.bool, ("any", torch.uint8): torch.bool}


def largest(t):
    t = t[torch.isfinite(t)]
    return t.abs().max().item() if t.numel() else 0.0


def wrong(got, want, dtype, weight=0.0, native=None, spread=None, wider=1):
    """Why a tensor is not the oracle's, or None. Whole numbers and bools are equal. Floating point is within SLACK units in
    the last place of the element, or some of the largest (weight: of the gradient of the result). With doubts: or within
    eight times the spread, or no farther off than four times PyTorch in the same dtype is."""
    if list(got.shape) != list(want.shape):
        return f"shape {list(got.shape)}, not {list(want.shape)}"
    if got.dtype != dtype:
        return f"{DTYPES[got.dtype]}, not {dtype}"
    if got.dtype not in FLOATS:
        differs = got != want
        return f"{got[differs][0].item()}, not {want[differs][0].item()} ({int(differs.sum())} of {got.numel()})" if differs.any() else None
    g, exact, rounded = got.double(), want.double(), want.to(got.dtype).double()
    unit = EPS[got.dtype] * SLACK[got.dtype]
    tolerance = unit * (exact.abs() + max(largest(exact), weight) * wider / BROAD[got.dtype])
    if spread is not None and spread.shape == exact.shape:
        tolerance += 8 * spread.double() + 4 * spread.double().mean()
    good = (g == rounded) | (torch.isnan(g) & torch.isnan(rounded)) | ((g - exact).abs() <= tolerance)
    if native is not None and native.shape == got.shape and native.dtype == got.dtype:
        n = native.double()
        good |= (g == n) | (torch.isnan(g) & torch.isnan(n)) | ((g - exact).abs() <= 4 * largest(n - exact))
    # Numbers that round to infinity, or nearly, may come out as either.
    most = torch.finfo(got.dtype).max / (8 if weight else 1) * (1 - unit)
    good |= (exact.abs() > most) & (g.abs() >= most) & (g.sign() == exact.sign())
    if good.all():
        return None
    i = tuple((~good).nonzero()[0].tolist())
    return f"{g[i].item()!r} at {list(i)}, not {exact[i].item()!r} ({int((~good).sum())} of {got.numel()})"


# --- layouts
def signature(rng, ndim, dtype, dims, partial):
    """A random signature of a tensor over a placement of so many dimensions."""
    kinds = ["B"] + [f"S({a})" for a in range(ndim)] * 2
    if partial and dtype not in (torch.bool, torch.uint8):
        kinds.append("P")
    one = [rng.choice(kinds) for _ in range(dims)]
    return one[0] if dims == 1 else "(" + ",".join(one) + ")"


def request(rng, graph, results, weights, wrt, layout, partial):
    """The text and the values of a sample on a layout; None: on one rank."""
    ranks, placement = layout or PLACEMENTS[0]
    dims = 2 if "[[" in placement else 1
    plain = "B" if layout is None else None
    lines, data, names = [], [], []
    for i, x in enumerate(graph.operands):
        sbp = plain or signature(rng, x.dim(), x.dtype, dims, partial and f"x{i}" not in graph.variables)
        kind = ", variable: true" if f"x{i}" in graph.variables else ""
        lines.append(f"  x{i}: {{dtype: {DTYPES[x.dtype]}, shape: {list(x.shape)}, sbp: \"{sbp}\"{kind}}}")
        data.append(raw(x))
    for i, w in enumerate(weights):
        names.append("-" if w is None else f"g{i}")
        if w is not None:
            lines.append(f"  g{i}: {{dtype: {DTYPES[w.dtype]}, shape: {list(w.shape)}, sbp: \"{plain or signature(rng, w.dim(), w.dtype, dims, partial)}\"}}")
            data.append(raw(w))
    text = [f"placement: \"{placement}\"", f"training: {yaml(graph.training)}", "in:" if lines else "in: {}", *lines, "graph:"]
    for i, (op, operands, attributes) in enumerate(graph.entries):
        extra = "".join(f", {k}: {yaml(v)}" for k, v in attributes.items())
        text.append(f"  r{i}: {{op: {op}" + (f", in: [{', '.join(operands)}]" if operands else "") + f"{extra}}}")
    sbp = [plain and "auto" or (signature(rng, w.dim(), w.dtype, dims, partial) if w is not None else "auto") for w in weights]
    text.append(f"out: [{', '.join(results)}]\nsbp: [" + ", ".join(f'"{s}"' for s in sbp) + f"]\nweights: [{', '.join(map(yaml, names))}]")
    text.append(f"wrt: [{', '.join(wrt)}]\n")
    return ranks, "\n".join(text), b"".join(data)


# --- one sample
def refusal(text):
    """The library's error in a few words: the last clause, without numbers and shapes."""
    text = re.sub(r"^\w+ (rank \d+: )?\S+?:\d+:(\d+:)? \S+ ", "", text.splitlines()[0])
    text = re.sub(r" *\([-\d.,]*\)", "", re.split("; |: use ", text)[1 if "; " in text else 0])
    return re.sub(r"'?\b[xrg]\d+\b'?|(?<![a-z\d])-?\d+(\.\d+)?(e[-+]?\d+)?", "N", text)[:100]


class Report:
    def __init__(self):
        self.counts, self.reasons, self.wrong = collections.Counter(), collections.Counter(), []

    def count(self, what, dtype, why=None):
        self.counts[what, DTYPES[dtype]] += 1
        if why:
            self.reasons[f"{what}: {why}"] += 1

    def add(self, other):
        self.counts.update(other.counts)
        self.reasons.update(other.reasons)
        self.wrong += other.wrong

    def of(self, what, dtype=None):
        return sum(n for (w, d), n in self.counts.items() if w == what and dtype in (None, d))

    def show(self, by_op):
        """Prints what was refused and excluded, by reason, and an "ok" for each dtype with nothing wrong."""
        reasons = self.reasons
        if not by_op:
            reasons = collections.Counter()
            for text, n in self.reasons.items():
                what, op, why = text.split(": ", 2)
                reasons[f"{what}: {why}"] += n
        for text, n in sorted(reasons.items(), key=lambda r: (r[0].split(":")[0], -r[1], r[0])):
            print(f"{n} {text}")
        for d in [d for d in DTYPES.values() if self.of("samples", d)] + [None]:
            counts = ", ".join(f"{self.of(what, d)} {what}" for what in ("right", "refused", "excluded", "wrong"))
            line = f"{d or 'all'}: {self.of('samples', d)} samples: {counts}"
            print(line if d is None or self.of("wrong", d) else "ok " + line)


def declare(key, sample):
    """The sample as a graph and its results."""
    graph = Graph()
    graph.op = key.replace("nn.functional.", "")
    results = op_map.bind(op_map.OPS[key], graph, sample)
    results = results if isinstance(results, list) else [results]
    return graph, [graph.operand(r) if not isinstance(r, Ref) else r for r in results]


def undefined(key, sample):
    """Raises Undefined for the samples of which PyTorch's result is nothing to compare with."""
    x, args = sample.input, sample.args
    if key == "where" and not isinstance(x, torch.Tensor):
        raise Undefined("a number for the first operand")
    alpha = sample.kwargs.get("alpha", 1)
    if key == "nn.functional.celu" and x.dtype == torch.float64 and alpha != np.float32(alpha):
        raise Undefined("f64: PyTorch rounds alpha to f32")
    if key == "nn.functional.hinge_embedding_loss" and not (args[0].abs() == 1).all():
        raise Undefined("target: others than 1 and -1")
    if key.startswith("bitwise_") and key.endswith("_shift"):
        bits = torch.iinfo(x.dtype if isinstance(x, torch.Tensor) else args[0].dtype).bits
        y = torch.as_tensor(args[0])
        if not ((y >= 0) & (y < bits)).all():
            raise Undefined("shifts by less than 0 or more bits than there are")
    if key.startswith("nn.functional.softmin") and x.dtype == torch.uint8:
        raise Undefined("u8: PyTorch negates before it casts")
    if op_map.CASTS.get(key) in (torch.uint8, torch.int32, torch.int64) and x.dtype in FLOATS:
        limits = torch.iinfo(op_map.CASTS[key])
        if not ((x >= limits.min) & (x <= limits.max)).all():
            raise Undefined("floating point out of the range of whole numbers")


def check(peer, rng, key, op, sample, dtype, report):
    """Runs one sample on one rank and on a layout."""
    name = f"{key} {DTYPES[dtype]}"
    report.count("samples", dtype)
    try:
        graph, results = declare(key, sample)
        undefined(key, sample)
    except Refused as e:
        report.count("excluded" if isinstance(e, Undefined) else "refused", dtype, f"{key}: {e}")
        return
    leaves = [x for x in graph.operands if x.requires_grad]
    cast = sample.kwargs.get("dtype")
    if key == "to" or key in op_map.CASTS:
        cast = BY_NAME[graph.entries[-1][2]["dtype"]]
    try:
        oracle = Oracle(key, op, sample, leaves, dtype, cast)
    except PYTORCH_REFUSES as e:
        report.count("excluded", dtype, f"{key}: PyTorch refuses: {str(e).splitlines()[0][:60]}")
        return
    for layout in (None, rng.choice(PLACEMENTS)):
        outcome, text = compare(peer, rng, graph, results, leaves, oracle, layout, key)
        if outcome == "refused" and layout is None:
            report.count("refused", dtype, f"{key}: {refusal(text)}")
            return
        if outcome != "right":
            report.count("wrong", dtype)
            report.wrong.append(f"{name} on {layout or 'one rank'}: {text}")
            return
    report.count("right", dtype)


def compare(peer, rng, graph, results, leaves, oracle, layout, key):
    """Runs the graph on a layout; returns "right", or "refused" or "wrong" and why."""
    values, grads = ([*part] for part in oracle.values)
    if len(results) != len(values):
        return "wrong", f"{len(results)} results, not {len(values)}"
    wanted = [i for i, d in enumerate(grads) if d is not None]
    # An infinity may become NaN where it meets an addend of zero (tessera/sbp.h).
    partial = all(torch.isfinite(t).all() for t in [*graph.operands, *(v.to(oracle.dtype) for v in values + grads if v is not None)]
                  if t.dtype in FLOATS)
    while True:
        wrt = [f"x{next(j for j, x in enumerate(graph.operands) if x is leaves[i])}" for i in wanted]
        weights = oracle.weights if wrt else [None] * len(values)
        ranks, text, data = request(rng, graph, results, weights, wrt, layout, partial)
        got = peer.ask(ranks, text, data)
        # A result without gradient, where PyTorch gives zeros.
        constant = re.search(r"^gradient .*y does not depend on x\[(\d+)\]", got) if isinstance(got, str) else None
        if not constant or grads[wanted[int(constant[1])]].any():
            break
        del wanted[int(constant[1])]
    if isinstance(got, str):
        return "crash" if got.startswith("crash") else "refused", f"{got}\n{text}"
    weight = max((largest(w) for w in weights if w is not None), default=0.0)
    weight = weight and max(weight, 1.0)
    parts = [(0, i) for i in range(len(values))] + [(1, i) for i in wanted]
    for n, (y, (part, i)) in enumerate(zip(got, parts)):
        want, dtype = oracle.values[part][i], oracle.made(oracle.values[part][i])
        if part:
            x = graph.operands[int(wrt[n - len(values)][1:])]
            dtype = x.dtype
            y = forgive(key, oracle.values[0][0], x, y, want)
        elif key in NAN_STAYS:
            y = torch.where(torch.isnan(graph.operands[0]) & torch.isnan(y), want.to(y.dtype), y)
        why = wrong(y, want, dtype, weight if part else 0.0)
        if why and op_map.IDS.get(key, (-1,))[0] == i and not part:
            # Which of equal elements is taken is free, and so which of them has the gradient.
            x, axis = graph.operands[0].detach(), op_map.IDS[key][1](graph)
            why = wrong(named_by(x, axis, y), named_by(x, axis, want), x.dtype)
            if not why:
                return "right", ""
        if why and oracle.dtype in FLOATS:
            native, spread = oracle.doubts()
            why = wrong(y, want, dtype, weight if part else 0.0, native and native[part][i], spread[part][i], WIDER.get(key, 1))
        if why:
            return "wrong", f"{'gradient of ' + wrt[n - len(values)] if part else f'result {i}'}: {why}\n{text}"
    return "right", ""


def forgive(key, value, x, got, want):
    """A gradient with the oracle's elements where it is free."""
    if x.shape == want.shape == got.shape:
        free = torch.isnan(x) | (torch.isnan(want) & torch.isinf(x))
        if key == "nn.functional.hardswish":  # at the edges, where versions of PyTorch differ
            free |= x.abs() == 3
        got = torch.where(free, want.double(), got.double()).to(got.dtype)
    if key in [*op_map.PLAIN.split(), "logit"] and got.shape == want.shape:  # outside of the function's domain
        got = torch.where(torch.isnan(value), want.double(), got.double()).to(got.dtype)
    if key == "atan2":  # of two zeros, where later versions give 0 as Tessera does
        got = torch.where(torch.isnan(want), want.double(), got.double()).to(got.dtype)
    if x.shape != value.shape and got.shape == want.shape:  # infinities that are added before they are divided are no NaN
        got = torch.where(torch.isnan(want) & torch.isinf(got), want.double(), got.double()).to(got.dtype)
        if got.dtype == torch.float16:  # nor do terms that overflow before they are added make a difference
            got = torch.where(torch.isfinite(got), got.double(), want.double()).to(got.dtype)
    return got


def named_by(x, axis, ids):
    return (x.gather(axis, ids if ids.dim() == x.dim() else ids.unsqueeze(axis)) if x.dim() else x).reshape(ids.shape)


# --- all of them
def samples_of(op, dtype, all_of_them):
    """The samples of an op in a dtype, those of halves made of f32's."""
    made = torch.float32 if dtype in FLOATS[2:] and dtype not in op.supported_dtypes("cpu") else dtype
    if made not in op.supported_dtypes("cpu"):
        return
    grad = made in FLOATS and op.supports_autograd and made in op.supported_backward_dtypes("cpu")
    makers = [op.reference_inputs, op.sample_inputs] if all_of_them else [op.sample_inputs]
    for maker in makers:
        try:
            samples = [Sample(s.input, s.args, s.kwargs) for s in maker("cpu", made, requires_grad=grad)]
            break
        except (RuntimeError, ValueError, TypeError, AssertionError):
            samples = []  # PyTorch cannot make these, of this dtype or with this Python
    for sample in samples:
        if sum(t.numel() for t in sample.tensors()) <= MOST_ELEMENTS:
            yield sample.to(dtype)[0] if dtype in FLOATS else sample


def work(arguments):
    key, dtypes, options = arguments
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    report, peer = Report(), Peer(options.peer)
    rng = random.Random(f"{options.seed} {key}")
    for dtype in dtypes:
        torch.manual_seed(rng.randrange(2 ** 31))
        np.random.seed(rng.randrange(2 ** 31))
        random.seed(rng.random())
        for op, sample in ((op, s) for op in DATABASE[key] for s in samples_of(op, dtype, options.full)):
            if rng.random() > options.part:
                continue
            try:
                check(peer, rng, key, op, sample, dtype, report)
            except Exception:  # of this program: it must not hide what other samples show
                report.wrong.append(f"{key} {DTYPES[dtype]}: {traceback.format_exc().splitlines()[-1]}\n{traceback.format_exc()}")
    return key, report


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TESSERA_SEED", "1")))
    parser.add_argument("--part", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--op")
    parser.add_argument("--dtype")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.part = options.part or (1 if options.full else 0.25)
    if not torch.__version__.startswith("1.13"):
        print(f"this is PyTorch {torch.__version__}; the samples are those of 1.13")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    start = time.monotonic()
    dtypes = [t for t in DTYPES if not options.dtype or DTYPES[t] == options.dtype]
    DATABASE.update(by_key())
    tasks = [(k, dtypes, options) for k, ops in DATABASE.items() if k in op_map.OPS and (not options.op or options.op in (k, ops[0].name))]
    missing = set(op_map.OPS) - set(DATABASE)
    print(f"seed {options.seed}: {len(tasks)} ops; not in the database: {', '.join(sorted(missing)) or 'none'}")
    total = Report()
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for key, report in pool.imap_unordered(work, tasks):
            total.add(report)
            if report.wrong:
                print(f"FAIL {key}: {len(report.wrong)} of {report.of('samples')} samples", flush=True)
            for text in report.wrong[:None if options.verbose else 3]:
                print("  " + (text if options.verbose else text.splitlines()[0]))
    total.show(options.full or options.verbose)
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    main()
