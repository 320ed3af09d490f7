#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every public function in f16 and bf16 beside PyTorch's in f64, of operands of magnitude 1e-3, 1, 300 and 3e4: values and
gradients are those of f64, rounded once, to 2 units in the last place, on 1 and 2 ranks. The functions are those of
functions.py and of the list here; one that a header declares and no list has is a failure. Where f32 itself is not that
exact, PyTorch's own f32 says by how much. Needs python3-torch; without it the exit code is 77.

usage: halves.py TESSERA INCLUDE [FUNCTION...]

TESSERA is the command, INCLUDE the folder of the public headers. With FUNCTIONs only those are run. Each dtype and magnitude is
run in one layout, with TESSERA_FULL=1 in all.
"""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import functions
from functions import F, np, randn, torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
MAGNITUDES = (1e-3, 1, 300, 3e4)
LIMIT = 2  # units in the last place

torch.manual_seed(11)
OPERANDS = {**functions.OPERANDS, "hw": randn(5, 4), "hb": randn(5), "w2": randn(3, 6, 3, 2), "w2d": randn(6, 1, 3, 3), "b3v": randn(3),
            "rm": randn(6), "table": randn(7, 4), "sq": randn(2, 5, 5)}
FIXED = {**functions.FIXED, "ids": torch.randint(0, 7, (3, 2))}
# Operands that are shares, coordinates or logarithms stay as they are; so does what is compared or chosen by.
UNSCALED = {"p", "q", "edge6", "logp", "theta", "grid", "slope"}
# Products: the sums that are split are added up in halves.
PRODUCTS = set("""matmul matmul_t linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d einsum
                  tensordot baddbmm dot outer attention scaled_dot_product_attention affine_grid""".split())
# What f32 has too few digits for.
LOSSY = {"tanh": "1 - tanh^2 of a tanh near 1", "tanhshrink": "x - tanh x of a small x, and the same"}
# The result is kept for the gradient as the product gives it, in halves, as PyTorch's is.
SAVED = {"scaled_dot_product_attention"}
ELSEWHERE = {
    "input": "feeds", "from_local": "feeds", "output": "hands out", "to_local": "hands out", "to_global": "moves", "print": "prints",
    "read": "reads", "read_updated": "reads", "assign": "writes", "use": "declares", "constant": "gives the user's numbers", "full": "gives the user's number",
    "arange": "counts", "uniform": "drawn", "normal": "drawn", "rand_like": "drawn", "randn_like": "drawn", "gumbel_softmax": "drawn",
    "dropout": "drawn", "rank_sum": "of local values", "one_hot": "of whole numbers", "autocast": "no function", "autocast_end": "no function",
    "gradients": "no function", "cross_entropy_with": "cross_entropy", "sum_with": "sum", "prod_with": "prod", "cumsum_with": "cumsum", "split": "slice", "bitwise_and": "of whole numbers",
}


def unary(*names, **attributes):
    return [(n, ["x"], attributes, getattr(torch, n, None) or getattr(F, n)) for n in names]


CASES = functions.CASES + unary(*"""neg abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
    sinh cosh tanh asinh atanh erf erfc floor ceil round trunc relu relu6 sigmoid logsigmoid hardsigmoid silu hardswish mish softplus softsign
    selu leaky_relu elu celu softshrink hardshrink""".split()) + [
    ("acosh", ["pos"], {}, torch.acosh), ("clamp", ["x"], {"low": -0.3, "high": 200}, lambda x: x.clamp(-0.3, 200)), ("hardtanh", ["x"], {}, F.hardtanh),
    ("threshold", ["x"], {"edge": 0.1, "value": 3}, lambda x: F.threshold(x, 0.1, 3)),
    *[("pow_scalar", ["x"], {"p": p}, lambda x, p=p: x ** p) for p in (2, 3, -1, 0.5, 1.3)], ("add_scalar", ["x"], {"a": 0.1}, lambda x: x + 0.1),
    ("sub_scalar", ["x"], {"a": 0.1}, lambda x: x - 0.1), ("mul_scalar", ["x"], {"a": 0.1}, lambda x: x * 0.1), ("div_scalar", ["x"], {"a": 0.3}, lambda x: x / 0.3),
    ("rdiv_scalar", ["x"], {"a": 0.7}, lambda x: 0.7 / x), ("cast", ["x"], {"dtype": "f32"}, lambda x: x * 1), ("gelu", ["x"], {}, F.gelu),
    ("gelu", ["x"], {"form": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    *[(n, ["x", "y"], {}, getattr(torch, n)) for n in "add sub mul div maximum minimum".split()], *[(n, ["x", "w"], {}, getattr(torch, n)) for n in "add sub mul div".split()],
    ("pow", ["pos", "q"], {}, torch.pow), ("pow", ["pos", "x"], {}, torch.pow),
    *[(n, ["x", "y"], {}, f) for n, f in {"equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le, "greater": torch.gt, "greater_equal": torch.ge}.items()],
    ("where", ["mask", "x", "y"], {}, torch.where),
    *[(n, ["b3"], a, f) for a, d in (({}, (0, 1, 2)), ({"axes": 1}, (1,)), ({"axes": [0, 2], "keepdim": True}, (0, 2))) for n, f in {
        "sum": lambda x, d=d, k=len(d) == 2: x.sum(d, k), "mean": lambda x, d=d, k=len(d) == 2: x.mean(d, k),
        "max": lambda x, d=d, k=len(d) == 2: x.amax(d, k), "min": lambda x, d=d, k=len(d) == 2: x.amin(d, k),
        "norm": lambda x, d=d, k=len(d) == 2: (x * x).sum(d, k).sqrt(), "variance": lambda x, d=d, k=len(d) == 2: x.var(d, keepdim=k),
        "std": lambda x, d=d, k=len(d) == 2: x.std(d, keepdim=k)}.items()],
    *[("norm", ["x"], {"p": p, "axes": 1}, lambda x, p=p: torch.linalg.vector_norm(x, p, 1)) for p in (1, 3)],
    ("prod", ["x"], {"axes": 1}, lambda x: x.prod(1)), ("argmax", ["x"], {"axis": 1}, lambda x: x.argmax(1)), ("cumsum", ["x"], {"axis": 0}, lambda x: x.cumsum(0)),
    ("matmul", ["x", "m"], {}, torch.matmul), ("matmul", ["b3", "c3"], {}, torch.matmul), ("matmul_t", ["x", "y"], {"ta": True}, lambda a, b: a.T @ b),
    ("linear", ["x", "hw"], {}, F.linear), ("linear", ["b3", "hw", "hb"], {}, F.linear),
    ("conv2d", ["img", "w2"], {"padding": 1}, lambda x, w: F.conv2d(x, w, padding=1)), ("conv2d", ["img", "w2", "b3v"], {"stride": 2}, lambda x, w, b: F.conv2d(x, w, b, 2)),
    ("conv2d", ["img", "w2d"], {"groups": 6}, lambda x, w: F.conv2d(x, w, groups=6)), ("max_pool2d", ["img"], {"kernel": 2}, lambda x: F.max_pool2d(x, 2)),
    ("avg_pool2d", ["img"], {"kernel": 3, "stride": 1}, lambda x: F.avg_pool2d(x, 3, 1)), ("adaptive_avg_pool2d", ["img"], {"out_h": 1, "out_w": 1}, lambda x: F.adaptive_avg_pool2d(x, 1)),
    ("adaptive_avg_pool2d", ["img"], {"out_h": 3, "out_w": 2}, lambda x: F.adaptive_avg_pool2d(x, (3, 2))),
    ("batch_norm", ["img", "c", "v"], {}, lambda x, g, b: F.batch_norm(x, None, None, g, b, True)),
    ("layer_norm", ["x"], {}, lambda x: F.layer_norm(x, (4,))), ("layer_norm", ["b3", "u", "b4"], {}, lambda x, g, b: F.layer_norm(x, (4,), g, b)),
    ("softmax", ["x"], {}, lambda x: x.softmax(-1)), ("softmax", ["x"], {"axis": 0}, lambda x: x.softmax(0)), ("log_softmax", ["x"], {}, lambda x: x.log_softmax(-1)),
    ("log_softmax", ["x"], {"axis": 0}, lambda x: x.log_softmax(0)), ("causal_mask", ["sq"], {"value": -2}, lambda x: torch.where(torch.ones(5, 5).tril().bool(), x, -2 * torch.ones_like(x))),
    ("attention", ["aq", "ak", "av"], {}, functions.attend()), ("attention", ["aq", "ak", "av"], {"causal": True}, functions.attend(causal=True)),
    *[("cross_entropy", ["x", labels], {**a, "reduction": r}, lambda x, t, a=a, r=r: F.cross_entropy(x, t, reduction=r, **a))
      for r in functions.REDUCTIONS for labels, a in (("labels", {}), ("ignored", {"ignore_index": -100}), ("labels", {"label_smoothing": 0.1}))],
    *[("mse_loss", ["x", "y"], {"reduction": r}, lambda x, y, r=r: F.mse_loss(x, y, reduction=r)) for r in functions.REDUCTIONS],
    ("reshape", ["x"], {"shape": [4, 6]}, lambda x: x.reshape(4, 6)), ("flatten", ["b3"], {}, torch.flatten), ("detach", ["x"], {}, torch.detach),
    ("transpose", ["x"], {}, lambda x: x.T), ("permute", ["b3"], {"order": [2, 0, 1]}, lambda x: x.permute(2, 0, 1)), ("expand", ["one"], {"shape": [6, 5, 4]}, lambda x: x.expand(6, 5, 4)),
    ("concat", ["x", "y"], {}, lambda *x: torch.cat(x)), ("stack", ["x", "y"], {}, lambda *x: torch.stack(x)), ("slice", ["x"], {"starts": [1, 0], "steps": [2, 1]}, lambda x: x[1::2]),
    ("narrow", ["x"], {"start": 1, "length": 3}, lambda x: x[1:4]), ("pad", ["x"], {"before": [1, 0], "value": 0.1}, lambda x: F.pad(x, (0, 0, 1, 0), value=0.1)),
    ("triu", ["x"], {}, torch.triu), ("tril", ["x"], {}, torch.tril), ("embedding", ["table", "ids"], {}, lambda t, i: t[i]),
    ("index_select", ["x", "rows"], {}, lambda x, i: x[i]),
]
# PyTorch's own loses digits in f64, or has numbers where there is none.
BETTER = {"soft_margin_loss": lambda x, y, reduction: getattr(F.softplus(-x * y), {"none": "clone"}.get(reduction, reduction))(), "expm1": lambda x: torch.exp(x) - 1}
CASES = [c if c[0] not in BETTER else (*c[:3], lambda *x, c=c: BETTER[c[0]](*x, **({"reduction": c[2]["reduction"]} if c[2] else {}))) for c in CASES]
MOST = 4  # cases of a function
CASES = [c for i, c in enumerate(CASES) if sum(c[0] == d[0] for d in CASES[:i]) < MOST]


def missing(include):
    """The public functions that no list has."""
    declared = set()
    for header in ("ops.h", "functional.h"):
        declared |= set(re.findall(r"\btsr_(\w+?)_at\(", (include / header).read_text()))
    have = {op for op, *_ in CASES} | set(ELSEWHERE)
    return sorted(declared - have)


def scaled(name, magnitude, dtype):
    """An operand whose largest element has the magnitude, as a half has it."""
    value = OPERANDS.get(name, FIXED.get(name))
    if not value.is_floating_point():
        return value
    if name in OPERANDS and name not in UNSCALED:
        value = value / value.abs().max() * magnitude
    return value.to(dtype).double()


def seed(i, dims):
    """What the result's gradient is: numbers that halves have."""
    return torch.randint(-8, 9, dims, generator=torch.Generator().manual_seed(i)).double() / 4


def references(cases, magnitude, dtype):
    """Values and gradients in f64, and how far f32 is from them."""
    found = []
    for i, (op, operands, _, f) in cases:
        both = []
        for exact in (torch.float64, torch.float32):
            torch.set_default_dtype(exact)
            x = [scaled(n, magnitude, dtype) for n in operands]
            x = [v.to(exact).requires_grad_(n in OPERANDS) if v.is_floating_point() else v for v, n in zip(x, operands)]
            y = f(*x)
            if y.requires_grad:
                (y * seed(i, y.shape).to(exact)).sum().backward()
            grads = [v.grad if v.is_floating_point() else None for v in x]
            both.append((y.detach(), [g if g is not None and g.count_nonzero() else None for g in grads]))
            torch.set_default_dtype(torch.float64)
        found.append(both)
    return found


def program(cases, ranks, signature, found, dtype, folder):
    lines = ["tessera: 1", f"placements: {{p: {{ranks: {list(range(ranks))}}}}}", "graph:"]
    for name in sorted({n for _, (_, operands, _, _) in cases for n in operands}):
        value = OPERANDS.get(name, FIXED.get(name))
        kind = {torch.bool: "bool", torch.int64: "i64"}.get(value.dtype, "f32")
        role = "parameter" if name in OPERANDS else "constant"
        lines.append(f"  {name}: {{op: {role}, file: {name}.npy, dtype: {kind}, placement: p, sbp: {signature(value.dim())}}}")
    terms, fetch = [], []
    for k, (i, (op, operands, attributes, _)) in enumerate(cases):
        y, grads = found[k][0]
        names = []
        for j, n in enumerate(operands):
            value = OPERANDS.get(n, FIXED.get(n))
            names.append(f"c{i}_{j}" if value.is_floating_point() else n)
            if value.is_floating_point():
                lines.append(f"  c{i}_{j}: {{op: cast, in: {n}, dtype: {dtype}}}")
        extra = "".join(f", {a}: {json.dumps(v)}" for a, v in attributes.items())
        lines.append(f"  y{i}: {{op: {op}, in: [{', '.join(names)}]{extra}}}")
        lines.append(f"  r{i}: {{op: cast, in: y{i}, dtype: f32}}")
        fetch.append(f"r{i}")
        if y.is_floating_point() and any(g is not None for g in grads):
            np.save(folder / f"s{i}.npy", seed(i, y.shape).float().numpy())
            lines += [f"  s{i}: {{op: constant, file: s{i}.npy, dtype: f32, placement: p, sbp: B}}",
                      f"  m{i}: {{op: mul, in: [r{i}, s{i}]}}", f"  t{i}: {{op: sum, in: m{i}}}"]
            terms.append(f"t{i}")
            fetch += [f"grad(c{i}_{j})" for j, g in enumerate(grads) if g is not None]
    while len(terms) > 1:
        level = [terms[a:a + 30] for a in range(0, len(terms), 30)]
        base = f"z{len(terms)}_"
        lines += [f"  {base}{k}s: {{op: stack, in: [{', '.join(part)}]}}" for k, part in enumerate(level)]
        lines += [f"  {base}{k}: {{op: sum, in: {base}{k}s}}" for k in range(len(level))]
        terms = [f"{base}{k}" for k in range(len(level))]
    if terms:
        lines += [f"loss: {terms[0]}"]
    return "\n".join(lines + [f"fetch: [{', '.join(fetch)}]", ""])


def unit(x, dtype):
    """The distance between halves at |x|."""
    info = torch.finfo(dtype)
    least = math.log2(info.tiny)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), info.tiny)))
    return np.exp2(np.maximum(exponent, least)) * info.eps


def judge(got, want, rough, dtype, shared=0, lossy=0, adds=False):
    """How many units the worst element is off; `rough` is what f32 gives, `shared` allows that many units of the largest, `lossy` so
    much, `adds` f32's roundings of terms as large as that. What is below f32's least normal number may be 0."""
    if not want.is_floating_point():
        return 0 if np.array_equal(got.astype(float), want.double().numpy()) else math.inf
    want, rough = want.double().numpy(), rough.double().numpy()
    if got.shape != want.shape:
        return math.inf
    most = float(torch.finfo(dtype).max)
    with np.errstate(all="ignore"):
        u = unit(np.where(np.isfinite(want), want, 0), dtype)
        room = np.where(np.isfinite(rough - want), np.abs(rough - want) * 4, np.inf) + lossy + 4 * np.finfo(np.float32).tiny
        largest = np.max(np.abs(want[np.isfinite(want)]), initial=0)
        room = room + shared * unit(largest, dtype) + adds * 2 ** -22 * largest
        off = np.abs(got - want)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        # Numbers beyond the largest are infinite; those near it may be.
        same |= np.isinf(got) & (np.abs(want) >= most * (1 - 2 * torch.finfo(dtype).eps)) & (np.sign(got) == np.sign(want))
        same |= np.isinf(room)
        units = np.where(same, 0, np.maximum(0, off - room) / u)
    return float(np.max(np.where(np.isnan(units), math.inf, units), initial=0))


def main():
    missed = missing(Path(sys.argv[2]))
    print("\n".join(f"FAIL {name} is in no list" for name in missed) or "ok   every function is in a list")
    only = set(sys.argv[3:])
    cases = [(i, c) for i, c in enumerate(CASES) if not only or c[0] in only]
    layouts = [(1, "B", lambda n: "B"), (2, "S(0)", lambda n: "S(0)" if n else "B"), (2, "last", lambda n: f"S({n - 1})" if n else "B"),
               (2, "auto", lambda n: "auto")]
    failed = bool(missed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for half, dtype in DTYPES.items():
            for magnitude in MAGNITUDES:
                found = references(cases, magnitude, dtype)
                for n in {**OPERANDS, **FIXED}:
                    v = scaled(n, magnitude, dtype)
                    np.save(folder / f"{n}.npy", (v.float() if v.is_floating_point() else v).numpy())
                turn = MAGNITUDES.index(magnitude) + list(DTYPES).index(half)
                for ranks, text, signature in layouts if os.environ.get("TESSERA_FULL") == "1" else [layouts[turn % 4]]:
                    path = folder / "halves.yaml"
                    path.write_text(program(cases, ranks, signature, found, half, folder))
                    done = subprocess.run([sys.argv[1], "run", str(path), "-o", name], capture_output=True, text=True)
                    bad = [] if done.returncode == 0 else [done.stderr.strip()]
                    for (i, (op, operands, attributes, _)), both in zip(cases if not bad else [], found):
                        shared = 4 if (ranks > 1 and op in PRODUCTS) or op in SAVED else 0
                        lossy = 2 ** -22 if op in LOSSY else 0
                        off = judge(np.load(folder / f"r{i}.npy"), both[0][0], both[1][0], dtype, shared, lossy * min(1, magnitude), op in PRODUCTS)
                        if off > LIMIT:
                            bad.append(f"{op} of {operands}, {attributes}: {off:.3g} units")
                        for j, g in enumerate(both[0][1]):
                            if g is None:
                                continue
                            off = judge(np.load(folder / f"grad(c{i}_{j}).npy"), g, g if both[1][1][j] is None else both[1][1][j], dtype, shared, lossy * 2, op in PRODUCTS)
                            if off > LIMIT:
                                bad.append(f"{op} of {operands}, {attributes}: {off:.3g} units in the gradient of {operands[j]}")
                    failed |= bool(bad)
                    print("\n".join([f"{'FAIL' if bad else 'ok  '} {len(cases)} functions of {half}, magnitude {magnitude:g}, {ranks} ranks, {text}"] +
                                    [f"     {b}" for b in bad]), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
