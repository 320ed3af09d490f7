#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops on whole numbers and bools beside Python's own integers, bit for bit: all pairs of u8, and limits and random
numbers of i32 and i64, on 1, 2 and 4 ranks, with operands B, S and P (addends that wrap) by a seed. Each op of a graph
section is in a table here: of those that compute whole numbers, of those that only move them, of those that take
floats alone (which must refuse whole numbers by name), or of those without operands. An op in no table fails.
usage: whole_numbers.py TESSERA; TESSERA_SEED is the seed, 1 by default"""
import json
import os
import random
import struct
import tempfile

from harness import check, done, tessera

SEED = int(os.environ.get("TESSERA_SEED") or 1)
CODES = {"u8": ("|u1", "B", 8), "i32": ("<i4", "i", 32), "i64": ("<i8", "q", 64), "bool": ("|b1", "?", 1),
         "f32": ("<f4", "f", 24), "f64": ("<f8", "d", 53)}
WHOLES = ("u8", "i32", "i64")
NUMBERS = ("i32", "i64")
ALL = WHOLES + ("bool",)


# --- numbers ---------------------------------------------------------------------------------------------------------
def wrap(v, dtype):
    if dtype == "bool":
        return v != 0
    bits = CODES[dtype][2]
    v &= (1 << bits) - 1
    return v - (1 << bits) if dtype != "u8" and v >> (bits - 1) else v


def ends(dtype):
    return (0, 255) if dtype == "u8" else (-(1 << (CODES[dtype][2] - 1)), (1 << (CODES[dtype][2] - 1)) - 1)


def some(dtype, n, rng):
    """n numbers: the limits first, then small and random ones."""
    if dtype == "bool":
        return [rng.random() < 0.5 for _ in range(n)]
    low, high = ends(dtype)
    limits = [low, high, high - 1, low + 1, 0, 1, 2, high // 2 + 1, 3, 5] + ([-1, -2, -7] if low else [])
    more = [rng.choice([rng.randint(low, high), rng.randint(max(low, -70), 70)]) for _ in range(n)]
    return (limits + more)[:n]


def rounded(v, dtype):
    """A whole number as a float of `dtype`, rounded once to nearest, ties to even."""
    digits, size = CODES[dtype][2], abs(v)
    shift = max(size.bit_length() - digits, 0)
    q, rest = size >> shift, size & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    q += shift > 0 and (rest > half or (rest == half and q & 1))
    return float((q << shift) * (1 if v >= 0 else -1))


def saturated(v, dtype):
    """A float as a whole number: toward zero, the nearest that fits, 0 of NaN."""
    if dtype == "bool":
        return v != 0
    low, high = ends(dtype)
    return 0 if v != v else low if v <= low else high if v >= high else int(v)


def write(path, dtype, dims, values):
    shape = "(" + ", ".join(map(str, dims)) + ("," if len(dims) == 1 else "") + ")"
    head = f"{{'descr': '{CODES[dtype][0]}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        f.write(struct.pack(f"<{len(values)}{CODES[dtype][1]}", *values))


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack_from("<H", data, 8)[0]
    head = data[10:10 + n].decode()
    code = head.split("'")[3]
    dtype = [d for d in CODES if CODES[d][0] == code][0]
    dims = [int(x) for x in head[head.index("(") + 1:head.index(")")].split(",") if x.strip()]
    body = data[10 + n:]
    return dtype, dims, struct.unpack(f"<{len(body) // struct.calcsize(CODES[dtype][1])}{CODES[dtype][1]}", body)


# --- what the ops give -----------------------------------------------------------------------------------------------
def rest(a, b):
    return 0 if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def inside(b):
    return 0 <= b <= 63


BINARY = {
    "add": (NUMBERS, lambda a, b: a + b), "sub": (NUMBERS, lambda a, b: a - b), "mul": (NUMBERS, lambda a, b: a * b),
    "maximum": (WHOLES, max), "minimum": (WHOLES, min), "fmod": (NUMBERS, rest),
    "remainder": (NUMBERS, lambda a, b: a % b if b else 0), "floor_divide": (NUMBERS, lambda a, b: a // b if b else 0),
    "bitwise_and": (WHOLES, lambda a, b: a & b), "bitwise_or": (WHOLES, lambda a, b: a | b),
    "bitwise_xor": (WHOLES, lambda a, b: a ^ b),
    "bitwise_left_shift": (WHOLES, lambda a, b: a << b if inside(b) else 0),
    "bitwise_right_shift": (WHOLES, lambda a, b: a >> b if inside(b) else -(a < 0)),
}
COMPARE = {
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b, "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
TRUTH = {"isnan": lambda a: False, "isinf": lambda a: False, "isfinite": lambda a: True,
         "logical_not": lambda a: not a}


def product(values):
    p = 1
    for v in values:
        p *= v
    return p


def running(fn, values):
    return [fn(values[:i + 1]) for i in range(len(values))]


def order(values, down):
    return sorted(range(len(values)), key=lambda i: -values[i] if down else values[i])


def last(values, best):
    return max(i for i, v in enumerate(values) if v == best)


# op: (the rest of its entry, the line's results, the dtype of the result). A result of one number drops the axis.
ALONG = {
    "sum": [({}, lambda v, d: [sum(v)], lambda d: "i64")] +
           [({"dtype": t}, lambda v, d, t=t: [sum(wrap(x, "bool") if t == "bool" else x for x in v)], lambda d, t=t: t)
            for t in ALL],
    "prod": [({}, lambda v, d: [product(v)], lambda d: "i64")] +
            [({"dtype": t}, lambda v, d, t=t: [product(wrap(x, "bool") if t == "bool" else x for x in v)],
              lambda d, t=t: t) for t in ALL],
    "cumsum": [({}, lambda v, d: running(sum, v), lambda d: "i64")] +
              [({"dtype": t}, lambda v, d, t=t: running(sum, [wrap(x, "bool") if t == "bool" else x for x in v]),
                lambda d, t=t: t) for t in ALL],
    "max": [({}, lambda v, d: [max(v)], lambda d: d)], "min": [({}, lambda v, d: [min(v)], lambda d: d)],
    "argmax": [({}, lambda v, d: [v.index(max(v))], lambda d: "i64")],
    "argmin": [({}, lambda v, d: [v.index(min(v))], lambda d: "i64")],
    "any": [({}, lambda v, d: [any(v)], lambda d: "bool")], "all": [({}, lambda v, d: [all(v)], lambda d: "bool")],
    "count_nonzero": [({}, lambda v, d: [sum(x != 0 for x in v)], lambda d: "i64")],
    "cummax": [({}, lambda v, d: running(max, v), lambda d: d),
               ({"ids": True}, lambda v, d: [last(v[:i + 1], max(v[:i + 1])) for i in range(len(v))],
                lambda d: "i64")],
    "cummin": [({}, lambda v, d: running(min, v), lambda d: d),
               ({"ids": True}, lambda v, d: [last(v[:i + 1], min(v[:i + 1])) for i in range(len(v))],
                lambda d: "i64")],
    "sort": [({"descending": t}, lambda v, d, t=t: sorted(v, reverse=t), lambda d: d) for t in (False, True)],
    "argsort": [({"descending": t}, lambda v, d, t=t: order(v, t), lambda d: "i64") for t in (False, True)],
    "topk": [({"k": 3, "largest": t}, lambda v, d, t=t: sorted(v, reverse=t)[:3], lambda d: d)
             for t in (False, True)],
    "kthvalue": [({"k": 2}, lambda v, d: [sorted(v)[1]], lambda d: d)],
    "median": [({}, lambda v, d: [sorted(v)[(len(v) - 1) // 2]], lambda d: d)],
}
BY_AXES = ("sum", "prod", "max", "min", "any", "all", "count_nonzero")
# Ops that move elements, or set some to a value: the same op on their places says where each one went.
MOVES = {
    "reshape": {"shape": [4, 15]}, "flatten": {}, "detach": {}, "to_global": {}, "transpose": {},
    "permute": {"order": [1, 0]}, "expand": {"shape": [3, 5, 12]}, "concat": {"in": 2}, "stack": {"in": 2},
    "split": {"sizes": [5, 7], "axis": 1}, "slice": {"starts": [1, 0], "steps": [2, 1]},
    "narrow": {"axis": 1, "start": 2, "length": 6}, "pad": {"before": [1, 2], "value": 0}, "triu": {}, "tril": {},
    "squeeze": {"axis": 0, "of": (1, 5, 12)}, "unsqueeze": {"axis": 1}, "roll": {"axis": 1, "shift": 5},
    "flip": {}, "repeat": {"counts": [2, 3]}, "repeat_interleave": {"n": 3},
    "pixel_shuffle": {"r": 2, "of": (1, 4, 3, 5)}, "pixel_unshuffle": {"r": 2, "of": (1, 1, 6, 10)},
    "channel_shuffle": {"groups": 2, "of": (1, 4, 3, 5)}, "unfold": {"kernel": [2, 2], "of": (1, 1, 6, 10)},
    "index_select": {"in": "ids"}, "embedding": {"in": "ids"}, "gather": {"in": "places"},
}
SOURCES = ("constant", "from_local", "parameter", "input", "normal", "uniform", "full", "arange", "own")
OTHERS = ("cast", "where", "masked_fill", "one_hot", "bincount", "outer")  # see others()
# Ops of floats alone: entries that are legal with floats, operands by their shapes (i: ids, which stay).
FLOATS = {
    "6x4": {"neg": {}, "gelu": {}, "leaky_relu": {}, "elu": {}, "celu": {}, "softshrink": {}, "hardshrink": {},
            "clamp": {"low": 0}, "hardtanh": {}, "threshold": {"edge": 0, "value": 1}, "pow_scalar": {"p": 2},
            "add_scalar": {"a": 1}, "sub_scalar": {"a": 1}, "mul_scalar": {"a": 2}, "div_scalar": {"a": 2},
            "rdiv_scalar": {"a": 2}, "mean": {}, "norm": {}, "cumprod": {"axis": 1}, "logcumsumexp": {"axis": 0},
            "variance": {}, "std": {}, "softmax": {}, "log_softmax": {}, "causal_mask": {}, "rand_like": {},
            "randn_like": {}, "dropout": {}, "rotary_embedding": {}, "glu": {}, "tanhshrink": {}, "logit": {},
            "softmin": {}, "logsumexp": {"axes": 1}, "normalize": {}, "pdist": {}, "rrelu": {}, "alpha_dropout": {},
            "gumbel_softmax": {}},
    "6x4 6x4": {"div": {}, "pow": {}, "atan2": {}, "mse_loss": {}, "cosine_similarity": {}, "l1_loss": {},
                "smooth_l1_loss": {}, "huber_loss": {}, "kl_div": {}, "binary_cross_entropy": {},
                "binary_cross_entropy_with_logits": {}, "hinge_embedding_loss": {}, "soft_margin_loss": {},
                "poisson_nll_loss": {}, "matmul_t": {"tb": True}, "linear": {},
                "tensordot": {"axes": [0], "y_axes": [0]}, "einsum": {"equation": "ij,kj->ik"}},
    "6x4 6x4 6x4": {"margin_ranking_loss": {}, "gaussian_nll_loss": {}, "triplet_margin_loss": {}},
    "6x4 6x4 6": {"cosine_embedding_loss": {}}, "6x4 i6": {"multi_margin_loss": {}, "cross_entropy": {},
                                                           "nll_loss": {}},
    "6x4 4x6": {"matmul": {}}, "6x4 1": {"prelu": {}}, "6 6": {"dot": {}},
    "6x4 i6x4 6x4": {"scatter_add": {}, "scatter": {}}, "6x4 i5 5x4": {"index_add": {}},
    "3x6x5 3x6x4 3x4x5": {"baddbmm": {}}, "6x4 4": {"rms_norm": {}}, "6x4 4 4": {"layer_norm": {}},
    "2x6x8x5 6 6": {"group_norm": {"groups": 3}, "batch_norm": {}}, "2x2x3": {"affine_grid": {"out_h": 4, "out_w": 3}},
    "2x6x8x5 2x3x4x2": {"grid_sample": {}}, "2x12x20": {"fold": {"out_h": 5, "out_w": 6, "kernel": [2, 2]}},
    "2x6x8x5": {"local_response_norm": {"size": 3}, "interpolate": {"out_h": 16, "out_w": 3},
                "feature_alpha_dropout": {}, "dropout2d": {}, "lp_pool2d": {"p": 2, "kernel": 2},
                "adaptive_max_pool2d": {"out_h": 2, "out_w": 5}, "max_pool2d": {"kernel": 2},
                "avg_pool2d": {"kernel": 2}, "adaptive_avg_pool2d": {"out_h": 2, "out_w": 2}},
    "2x3x5x4 2x3x6x4 2x3x6x3": {"attention": {}, "scaled_dot_product_attention": {}},
    "2x4x9 6x4x3": {"conv1d": {}}, "2x6x8x5 4x6x3x3": {"conv2d": {}}, "2x4x5x4x6 6x4x2x3x2": {"conv3d": {}},
    "2x4x9 4x6x3": {"conv_transpose1d": {}}, "2x6x8x5 6x2x3x2": {"conv_transpose2d": {}},
    "2x4x5x4x6 4x6x3x2x2": {"conv_transpose3d": {}},
    "2x4x9": {"max_pool1d": {"kernel": 2}, "avg_pool1d": {"kernel": 2}, "adaptive_avg_pool1d": {"out": 3},
              "adaptive_max_pool1d": {"out": 3}},
    "2x4x5x4x6": {"max_pool3d": {"kernel": 2}, "avg_pool3d": {"kernel": 2},
                  "adaptive_avg_pool3d": {"out_d": 1, "out_h": 1, "out_w": 1},
                  "adaptive_max_pool3d": {"out_d": 1, "out_h": 1, "out_w": 1}},
}
PLAIN = ("abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh "
         "cosh tanh asinh acosh atanh erf erfc floor ceil round trunc relu relu6 sigmoid logsigmoid hardsigmoid silu "
         "hardswish mish softplus softsign selu").split()
FLOATS["6x4"].update((op, {}) for op in PLAIN)


# --- a program of all of them ----------------------------------------------------------------------------------------
class Case:
    """Entries of a graph, and the (dtype, dims, values) that each of them must have."""

    def __init__(self, rng):
        self.rng, self.sources, self.entries, self.want = rng, {}, {}, {}

    def source(self, name, dtype, dims, values):
        self.sources[name] = (dtype, dims, values)
        return name

    def add(self, op, operands, more, dtype=None, dims=None, values=None, part=""):
        name = f"t{len(self.entries)}"
        self.entries[name] = {"op": op, "in": operands, **more}
        if dtype:
            self.want[name + part] = (dtype, list(dims), [wrap(v, dtype) if dtype in ALL else v for v in values])
        return name + part


def lines(values, rows, columns, axis):
    return [[values[r * columns + c] for c in range(columns)] for r in range(rows)] if axis else \
           [[values[r * columns + c] for r in range(rows)] for c in range(columns)]


def along(case, name, dtype, dims, values, op, axis, entry, fn, to):
    rows, columns = dims
    got = [fn(line, dtype) for line in lines(values, rows, columns, axis)]
    n = len(got[0])
    flat = [v for line in got for v in line] if axis else [line[i] for i in range(n) for line in got]
    keeps = op not in BY_AXES and op not in ("argmax", "argmin", "kthvalue", "median")
    out = ([rows, n] if axis else [n, columns]) if keeps else [rows if axis else columns]
    case.add(op, [name], {"axes" if op in BY_AXES else "axis": axis, **entry}, to(dtype), out, flat)


def arithmetic(case):
    for dtype in WHOLES:
        n = 256 if dtype == "u8" else 48
        a = list(range(256)) if dtype == "u8" else some(dtype, n, case.rng)
        b = list(range(256)) if dtype == "u8" else some(dtype, n - 8, case.rng) + [31, 32, 33, 62, 63, 64, 65, -64]
        x, y = case.source("a_" + dtype, dtype, [n, 1], a), case.source("b_" + dtype, dtype, [1, n], b)
        for op, (dtypes, fn) in BINARY.items():
            if dtype in dtypes:
                case.add(op, [x, y], {}, dtype, [n, n], [fn(p, q) for p in a for q in b])
        for op, fn in COMPARE.items():
            case.add(op, [x, y], {}, "bool", [n, n], [fn(p, q) for p in a for q in b])
    x, y = case.source("a_bool", "bool", [2, 1], [False, True]), case.source("b_bool", "bool", [1, 2], [False, True])
    for op, fn in COMPARE.items():
        case.add(op, [x, y], {}, "bool", [2, 2], [fn(p, q) for p in (False, True) for q in (False, True)])


def reductions(case):
    for dtype in ALL:
        dims = [5, 12]
        values = some(dtype, 60, case.rng)
        x = case.source("r_" + dtype, dtype, dims, values)
        for op, rows in ALONG.items():
            for row in rows:
                for axis in (0, 1):
                    along(case, x, dtype, dims, values, op, axis, *row)
        for op in ("sum", "prod"):
            case.add(op, [x], {}, "i64", [], [sum(values) if op == "sum" else product(values)])
        for op, fn in TRUTH.items():
            case.add(op, [x], {}, "bool", dims, [fn(v) for v in values])
        # A chain that wraps on its way.
        if dtype in NUMBERS:
            s = case.add("mul", [x, x], {}, dtype, dims, [v * v for v in values])
            t = case.add("cumsum", [s], {"axis": 1, "dtype": dtype}, dtype, dims,
                         [v for line in lines([w * w for w in values], 5, 12, 1) for v in running(sum, line)])
            totals = [wrap(sum(w * w for w in line), dtype) for line in lines(values, 5, 12, 1)]
            case.add("slice", [t], {"starts": [0, 11]}, dtype, [5, 1], totals)


def partial(case):
    """Ops that alone read a value of P: a plan would pass the addends on where that were right."""
    for dtype in WHOLES:
        values = some(dtype, 60, case.rng)
        for op, entry, to, want in (
                ("sum", {}, "i64", [sum(values)]), ("sum", {"dtype": "i32"}, "i32", [sum(values)]),
                ("cumsum", {"axis": 0}, "i64", running(sum, values)), ("cast", {"dtype": "i64"}, "i64", values),
                ("cast", {"dtype": "u8"}, "u8", values), ("cast", {"dtype": "i32"}, "i32", values),
                ("cast", {"dtype": "f64"}, "f64", [rounded(v, "f64") for v in values])):
            x = case.source(f"partial{len(case.sources)}", dtype, [60], values)
            case.add(op, [x], entry, to, [60] if len(want) > 1 else [], want)


def casts(case):
    for dtype in ALL:
        values = some(dtype, 60, case.rng)
        x = case.source("c_" + dtype, dtype, [60], values)
        for to in ALL:
            case.add("cast", [x], {"dtype": to}, to, [60], values)
        for to in ("f32", "f64"):
            case.add("cast", [x], {"dtype": to}, to, [60], [rounded(int(v), to) for v in values])
    inf = float("inf")
    floats = [0.0, -0.0, 0.5, -0.5, -1.5, 1.5, 254.5, 255.0, 255.5, 256.0, -1.0, -256.0, 1e20, -1e20, inf, -inf,
              float("nan"), 2.0**31, 2.0**31 - 128, -2.0**31, -2.0**31 - 256, 2.0**63, -2.0**63, 2.0**62, 16777217.0,
              65504.0, -65504.0, 3e9, 9.2e18, 127.99]
    floats += [case.rng.uniform(-300, 600) for _ in range(40)]
    for source in ("f64", "f32", "f16"):
        code = {"f64": "d", "f32": "f", "f16": "e"}[source]
        values = []
        for v in floats:
            try:
                values.append(struct.unpack(code, struct.pack(code, v))[0])
            except OverflowError:
                values.append(inf if v > 0 else -inf)
        x = case.source("c_" + source, "f64", [len(values)], values)
        y = x if source == "f64" else case.add("cast", [x], {"dtype": source})
        for to in ALL:
            whole = [saturated(v, to) for v in values]
            case.add("cast", [y], {"dtype": to}, to, [len(values)], whole)
            case.add("sum", [y], {"dtype": to}, to, [], [sum(whole)])
            case.add("prod", [y], {"dtype": to}, to, [], [product(whole)])
            case.add("cumsum", [y], {"axis": 0, "dtype": to}, to, [len(values)], running(sum, whole))
        # Beside an op of the same values, with which a cast may be fused.
        z = case.add("mul_scalar", [y], {"a": 2})
        twice = [struct.unpack(code, struct.pack(code, 2 * v))[0] if abs(2 * v) < 65520 else v * inf if v else v
                 for v in values] if source == "f16" else [2 * v for v in values]
        case.add("cast", [z], {"dtype": "u8"}, "u8", [len(values)], [saturated(v, "u8") for v in twice])


def moves(case):
    ids, found = case.source("ids", "i64", [4], [3, 0, 4, 3]), {}
    places = case.source("places", "i64", [3, 12], [case.rng.randrange(5) for _ in range(36)])
    for dtype in ALL:
        values = [0] + some(dtype, 59, case.rng)
        for op, entry in MOVES.items():
            more = dict(entry)
            dims, extra = list(more.pop("of", (5, 12))), more.pop("in", 0)
            key = "x".join(map(str, dims))
            x = case.source(f"m_{dtype}_{key}", dtype, dims, values)
            at = case.source(f"at_{key}", "f64", dims, [float(i) for i in range(60)])
            beside = [ids] if extra == "ids" else [places] if extra == "places" else []
            part = ".1" if op == "split" else ""
            copies = extra if isinstance(extra, int) and extra else 1
            if op not in found:
                found[op] = case.add(op, [at] * copies + beside, more, part=part)
            case.want[case.add(op, [x] * copies + beside, more, part=part)] = (dtype, found[op], values)


def others(case):
    mask = some("bool", 60, case.rng)
    m = case.source("mask", "bool", [60], mask)
    for dtype in ALL:
        values = some(dtype, 60, case.rng)
        x = case.source("o_" + dtype, dtype, [60], values)
        y = case.source("p_" + dtype, dtype, [60], values[::-1])
        case.add("where", [m, x, y], {}, dtype, [60], [p if t else q for t, p, q in zip(mask, values, values[::-1])])
        case.add("masked_fill", [x, m], {"value": 1}, dtype, [60], [1 if t else v for t, v in zip(mask, values)])
        case.add("one_hot", ["ids"], {"classes": 5, "dtype": dtype}, dtype, [4, 5],
                 [i == k for i in (3, 0, 4, 3) for k in range(5)])
    for dtype in NUMBERS:
        a, b = some(dtype, 30, case.rng), some(dtype, 20, case.rng)[::-1]
        x, y = case.source("x_" + dtype, dtype, [30], a), case.source("y_" + dtype, dtype, [20], b)
        case.add("outer", [x, y], {}, dtype, [30, 20], [p * q for p in a for q in b])
    case.add("bincount", ["ids"], {"size": 6}, "i64", [6], [1, 0, 0, 2, 1, 0])


# --- layouts ---------------------------------------------------------------------------------------------------------
def addends(values, dtype, n, rng):
    """n lists whose sums, which wrap in the dtype, are the values."""
    parts = [[wrap(rng.getrandbits(64), dtype) for _ in values] for _ in range(n - 1)]
    return parts + [[wrap(v - sum(p[i] for p in parts), dtype) for i, v in enumerate(values)]]


def placed(folder, name, source, dims, hierarchy, rng):
    dtype, shape, values = source
    entry = {"dtype": dtype, "placement": "p"}
    kinds = ["B"] + [f"S({i})" for i in range(len(shape))]
    sbp = [rng.choice(kinds) for _ in hierarchy]
    if dtype in WHOLES and len(hierarchy) == 1 and (name.startswith("partial") or rng.random() < 0.5):
        sbp = ["P"]
        entry.update(op="from_local", locals=[])
        for i, part in enumerate(addends(values, dtype, hierarchy[0], rng)):
            write(os.path.join(folder, f"{name}.{i}.npy"), dtype, shape, part)
            entry["locals"].append(f"{name}.{i}.npy")
    else:
        write(os.path.join(folder, f"{name}.npy"), dtype, shape, values)
        entry.update(op="constant", file=f"{name}.npy")
    entry["sbp"] = sbp[0] if len(sbp) == 1 else "(" + ",".join(sbp) + ")"
    return entry


def run(case, nranks, hierarchy, what):
    rng = case.rng
    ranks = [[0, 1], [2, 3]] if len(hierarchy) == 2 else list(range(nranks))
    with tempfile.TemporaryDirectory() as folder:
        graph = {name: placed(folder, name, source, source[1], hierarchy, rng)
                 for name, source in case.sources.items()}
        for name, entry in case.entries.items():
            graph[name] = entry if entry["op"] != "to_global" else {**entry, "sbp": "B", "placement": "p"}
        fetch = list(case.want) + sorted({w[1] for w in case.want.values() if isinstance(w[1], str)})
        program = {"tessera": 1, "placements": {"p": {"ranks": ranks}}, "graph": graph, "fetch": fetch}
        path = os.path.join(folder, "whole.yaml")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(program, f)
        tessera("run", path, "--ranks", nranks, "--out", folder, timeout=280)
        for name, (dtype, dims, values) in case.want.items():
            entry = case.entries[name.split(".")[0]]
            label = f"{what}: {entry} of {[graph[o].get('sbp') for o in entry['in']]}"
            got = read(os.path.join(folder, name + ".npy"))
            if isinstance(dims, str):  # moved: by where its places went; 0 is set
                _, dims, at = read(os.path.join(folder, dims + ".npy"))
                values = [wrap(values[int(i)], dtype) for i in at]
            check(got[:2] == (dtype, dims), f"{label}: found {got[:2]}, expected {(dtype, dims)}")
            want = struct.pack(f"<{len(values)}{CODES[dtype][1]}", *values)
            found = struct.pack(f"<{len(got[2])}{CODES[dtype][1]}", *got[2])
            first = next((i for i, (p, q) in enumerate(zip(got[2], values)) if p != q), 0)
            check(want == found, f"{label}: element {first} is {got[2][first] if got[2] else None}, "
                  f"expected {values[first] if values else None}")


# --- coverage --------------------------------------------------------------------------------------------------------
def refuse_floats_alone(folder):
    for shapes, ops in FLOATS.items():
        for op, entry in ops.items():
            for dtype in ("f32", "i64", "u8"):
                graph, names = {}, []
                for i, shape in enumerate(shapes.split()):
                    names.append(f"x{i}")
                    dims = [int(d) for d in shape.lstrip("i").split("x")]
                    graph[names[-1]] = {"op": "full", "value": 1, "shape": dims,
                                        "dtype": "i64" if shape[0] == "i" else dtype}
                graph["y"] = {"op": op, "in": names, **entry}
                program = {"tessera": 1, "placements": {"p": {"ranks": [0]}}, "graph": graph, "fetch": ["y"]}
                path = os.path.join(folder, f"{op}-{dtype}.yaml")
                with open(path, "w", encoding="utf-8") as f:
                    json.dump(program, f)
                _, err = tessera("plan", path, code=0 if dtype == "f32" else 1)
                check(dtype == "f32" or f"is {dtype}" in err or f"are {dtype}" in err,
                      f"{op} of {dtype} is refused for something else: {err}")


def main():
    schema = json.loads(tessera("schema")[0])["$defs"]
    ops = {name.split(".")[1] for name in schema if name.startswith("graph.") and name.count(".") == 1}
    tables = [BINARY, COMPARE, TRUTH, ALONG, MOVES, SOURCES, OTHERS] + list(FLOATS.values())
    known = {op for table in tables for op in table}
    check(ops == known, f"in no table: {sorted(ops - known)}; no such op: {sorted(known - ops)}")
    computing, moving = (arithmetic, reductions, partial), (casts, moves, others)
    layouts = [(1, [1], computing + moving), (2, [2], computing + moving), (4, [4], computing),
               (4, [2, 2], moving)]
    if os.environ.get("TESSERA_FULL") == "1":
        layouts += [(4, [4], moving), (4, [2, 2], computing), (3, [3], computing + moving)]
    for nranks, hierarchy, parts in layouts:
        case = Case(random.Random(SEED * 10 + nranks + len(hierarchy)))
        for part in parts:
            part(case)
        run(case, nranks, hierarchy, f"seed {SEED}, {hierarchy}")
    with tempfile.TemporaryDirectory() as folder:
        refuse_floats_alone(folder)
    print(f"seed {SEED}")
    done()


main()
