#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dtypes that ops give in a region of tsr_autocast, beside PyTorch's: its lists for GPUs, as its
documentation has them, and what torch.autocast("cpu", bfloat16) really gives, where CPUs' lists agree.
Needs python3-torch; without it the exit code is 77.

usage: autocasts.py PEER

PEER is tests/models/autocast_peer. Prints a line a kind of operands.
"""
import math
import subprocess
import sys
import warnings

try:
    import torch
    from torch.nn import functional as F
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

# torch.amp, "Autocast Op Reference": CUDA ops that autocast to float16, and to float32.
LOW = {"matmul", "bmm", "linear", "einsum", "baddbmm", "conv1d", "conv2d", "conv3d",
       "conv_transpose2d", "prelu", "scaled_dot_product_attention", "attention"}
FULL = {"rsqrt", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p", "tan", "asin", "acos",
        "sinh", "cosh", "softplus", "pow", "pow_scalar", "rdiv_scalar", "softmax", "log_softmax",
        "softmin", "sum", "prod", "cumsum", "cumprod", "norm", "norm_inf", "normalize", "pdist",
        "cross_entropy", "nll_loss", "multi_margin_loss", "layer_norm", "group_norm", "mse_loss",
        "l1_loss", "smooth_l1_loss", "kl_div", "binary_cross_entropy_with_logits",
        "poisson_nll_loss", "soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss",
        "triplet_margin_loss", "cosine_similarity"}
# PyTorch 1.13 lacks rms_norm, which is in the list as soon as it is there; huber_loss is in CPUs'.
FULL |= {"rms_norm", "huber_loss"}
BOOL = {"less"}
# The data's type, whatever that of the weights is.
OF_FIRST = {"batch_norm"}


def expected(op, what):
    """f32, low (the region's), f64 or bool."""
    if op in BOOL:
        return "bool"
    if what == "f64":
        return "f64"
    if what == "off":
        return "low"
    if op in LOW:
        return "low"
    if op in FULL or what == "f32":
        return "f32"
    if what == "both":
        return "low" if op in OF_FIRST | {n for n in ONE} else "f32"
    return "low"


x, y = torch.rand(4, 6) * 0.8 + 0.1, torch.rand(4, 6) * 0.8 + 0.1
im, k, ch = torch.rand(2, 4, 6, 6), torch.rand(4, 4, 3, 3), torch.rand(4)
b1, b2, labels = torch.rand(2, 4, 6), torch.rand(2, 6, 4), torch.tensor([0, 1, 2, 3])
# By op: PyTorch's function of one operand, x or im.
ONE = {n: getattr(torch, n) for n in (
    "abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos "
    "atan sinh cosh tanh asinh atanh erf erfc floor ceil round trunc relu sigmoid neg logit").split()}
ONE["acosh"] = lambda t: torch.acosh(t + 1)
ONE.update({n: getattr(F, n) for n in (
    "relu6 logsigmoid hardsigmoid silu hardswish mish softplus softsign selu tanhshrink gelu "
    "leaky_relu elu dropout").split()})
ONE.update({
    "clamp": lambda t: t.clamp(0, 1), "pow_scalar": lambda t: t ** 3, "rdiv_scalar": lambda t: 3 / t,
    "add_scalar": lambda t: t + 3, "mul_scalar": lambda t: t * 3,
    "softmax": lambda t: F.softmax(t, 1), "log_softmax": lambda t: F.log_softmax(t, 1),
    "softmin": lambda t: F.softmin(t, 1), "logsumexp": lambda t: torch.logsumexp(t, 1),
    "sum": torch.sum, "mean": torch.mean, "max": torch.max, "prod": torch.prod,
    "cumsum": lambda t: torch.cumsum(t, 1), "cumprod": lambda t: torch.cumprod(t, 1),
    "logcumsumexp": lambda t: torch.logcumsumexp(t, 1), "norm": lambda t: torch.norm(t, 2),
    "norm_inf": lambda t: torch.norm(t, float("inf")), "std": torch.std,
    "normalize": lambda t: F.normalize(t, dim=1), "pdist": F.pdist,
    "transpose": lambda t: t.T, "sort": lambda t: torch.sort(t, 1)[0], "tril": torch.tril,
    "avg_pool2d": lambda t: F.avg_pool2d(im.to(t.dtype), 2),
    "max_pool2d": lambda t: F.max_pool2d(im.to(t.dtype), 2),
    "adaptive_avg_pool2d": lambda t: F.adaptive_avg_pool2d(im.to(t.dtype), 1),
    "interpolate": lambda t: F.interpolate(im.to(t.dtype), (8, 8), mode="bilinear"),
    "cross_entropy": lambda t: F.cross_entropy(t, labels),
    "nll_loss": lambda t: F.nll_loss(t, labels),
    "multi_margin_loss": lambda t: F.multi_margin_loss(t, labels),
    "glu": lambda t: F.glu(t, 1), "rotary_embedding": None,
})
TWO = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "maximum": torch.maximum, "atan2": torch.atan2,
    "where": lambda a, b: torch.where(torch.ones(4, 6, dtype=torch.bool), a, b),
    "concat": lambda a, b: torch.cat([a, b]), "stack": lambda a, b: torch.stack([a, b]),
    "less": torch.less, "matmul": lambda a, b: a @ b.T, "linear": lambda a, b: F.linear(a, b),
    "bmm": lambda a, b: torch.bmm(b1.to(a.dtype), b2.to(b.dtype)),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "conv2d": lambda a, b: F.conv2d(im.to(a.dtype), k.to(b.dtype), ch.to(b.dtype)),
    "layer_norm": lambda a, b: F.layer_norm(a, (6,), b[0], b[0]),
    "group_norm": lambda a, b: F.group_norm(im.to(a.dtype), 2, ch.to(b.dtype), ch.to(b.dtype)),
    "batch_norm": lambda a, b: F.batch_norm(im.to(a.dtype), None, None, ch.to(b.dtype),
                                            ch.to(b.dtype), training=True),
    "mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss, "kl_div": F.kl_div, "poisson_nll_loss": F.poisson_nll_loss,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "soft_margin_loss": F.soft_margin_loss, "hinge_embedding_loss": F.hinge_embedding_loss,
    "margin_ranking_loss": lambda a, b: F.margin_ranking_loss(a, b, b),
    "triplet_margin_loss": lambda a, b: F.triplet_margin_loss(a, b, b),
    "cosine_similarity": lambda a, b: F.cosine_similarity(a, b, 1),
}
# Of GPUs' list for f32, these are not in that for CPUs, where they are as any other op.
GPU_ONLY = {"rsqrt", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p", "tan", "asin",
            "acos", "sinh", "cosh", "softplus", "pow", "pow_scalar", "rdiv_scalar", "softmax",
            "log_softmax", "softmin", "sum", "prod", "cumsum", "cumprod", "norm", "norm_inf",
            "normalize", "pdist", "layer_norm", "group_norm", "cosine_similarity"}
WORDS = {torch.float32: "f32", torch.bfloat16: "low", torch.float64: "f64", torch.bool: "bool"}


def on_cpu(op, what):
    """The type that PyTorch gives on a CPU; None: it has no such op for these operands."""
    types = {"f32": (torch.float32,) * 2, "low": (torch.bfloat16,) * 2,
             "both": (torch.bfloat16, torch.float32), "f64": (torch.float64,) * 2,
             "off": (torch.bfloat16,) * 2}[what]
    function = ONE.get(op) or TWO.get(op)
    if not function:
        return None
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16, enabled=what != "off"):
        warnings.simplefilter("ignore")
        try:
            out = function(x.to(types[0])) if op in ONE else function(x.to(types[0]), y.to(types[1]))
        except RuntimeError:  # "not implemented for 'BFloat16'"
            return None
    return WORDS[out.dtype]


def numbers(n, step):
    return torch.tensor([((i * 7 + step * 5) % 23) / 16 - 0.7 for i in range(n)])


def train(low):
    """Losses and weights of the peer's net, by torch.autocast on a CPU. f16, which that lacks, is so much
    nearer to f32 that f32 stands for it."""
    shapes = [(10, 12), (10,), (5, 10), (5,)]
    ps = [numbers(math.prod(s), i).reshape(s).requires_grad_() for i, s in enumerate(shapes)]
    optimizer, losses = torch.optim.SGD(ps, lr=0.5), []
    for step in range(10):
        data = numbers(16 * 12, step).reshape(16, 12)
        target = torch.tensor([(i * 3 + step) % 5 for i in range(16)])
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low == "bf16"):
            h = F.relu(F.linear(data, ps[0], ps[1]))
            loss = F.cross_entropy(F.linear(h, ps[2], ps[3]), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), torch.cat([p.detach().flatten() for p in ps])


def check_training():
    """How many trainings are further from PyTorch's than its own sums in another order may be."""
    wrong = 0
    for low, limit in (("bf16", 1e-2), ("f16", 2e-3)):
        losses, weights = train(low)
        for ranks in (1, 2, 3):
            out = subprocess.run([sys.argv[1], low, str(ranks)], capture_output=True, text=True,
                                 timeout=60)
            if out.returncode:
                print(f"FAIL {low} on {ranks} ranks: {out.stderr}")
                return 1
            *got, last = out.stdout.splitlines()
            apart = (torch.tensor([float(v) for v in got]) - losses).abs().max().item()
            values = torch.tensor([float(v) for v in last.split()])
            apart = max(apart, (values - weights).abs().max().item())
            ok = apart < limit
            wrong += not ok
            print(f"{'ok' if ok else 'FAIL'} 10 steps in {low} on {ranks} ranks: {apart:.1e} apart")
    return wrong


def main():
    wrong, seen, beside = 0, {}, 0
    for low in ("bf16", "f16"):
        out = subprocess.run([sys.argv[1], low], capture_output=True, text=True, timeout=60)
        if out.returncode:
            print("FAIL", out.stderr)
            return 1
        for line in out.stdout.splitlines():
            op, what, got = line.split()
            got = "low" if got == low else got
            want, cpu = expected(op, what), on_cpu(op, what)
            seen[what] = seen.get(what, 0) + 1
            if got != want:
                print(f"FAIL {op} of {what} in {low}: {got}, expected {want}")
                wrong += 1
            if cpu and op not in GPU_ONLY and what in ("f32", "low", "both", "f64", "off"):
                beside += 1
                if cpu != got:
                    print(f"FAIL {op} of {what}: {got}, PyTorch on a CPU {cpu}")
                    wrong += 1
    for what, n in seen.items():
        print(f"ok {n} results of {what} operands")
    print(f"ok {beside} of them beside PyTorch on a CPU")
    wrong += check_training()
    # A list that matches nothing would let all pass.
    return 1 if wrong or len(seen) != 5 or beside < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
