#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the oracle of random programs against PyTorch, in f64: runs random_programs --json and computes
every node, gradient and update of each program's first run anew.

  torch_oracle.py PROGRAM [--seed 1] [--count 300]

Programs with masks drawn by Philox are left out (PyTorch draws others), and f32 is computed as f64."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

INT_MAX = 2**63 - 1
UNARY = {"neg": torch.neg}
for name in """abs sign square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
               sinh cosh tanh asinh acosh atanh erf erfc floor ceil round trunc relu sigmoid""".split():
    UNARY[name] = getattr(torch, name)
for name in "relu6 logsigmoid silu mish softsign selu".split():
    UNARY[name] = getattr(F, name)


def nan_stays(f):
    """A function of NaN, which is 0 in PyTorch 1.13 or has a slope there, as NaN without one."""
    return lambda x, *numbers: torch.where(torch.isnan(x), x.detach(), f(x, *numbers))


UNARY |= {name: nan_stays(getattr(torch, name)) for name in ("relu", "sign")}
UNARY["acosh"] = lambda x: torch.acosh(x) * torch.where(x >= 1, 1.0, math.nan)  # it has a slope below 1
# PyTorch's own have a sixth in f32 in their gradients.
UNARY["hardsigmoid"] = lambda x: F.relu6(x + 3) / 6
UNARY["hardswish"] = lambda x: x * F.relu6(x + 3) / 6
UNARY["softplus"] = lambda x: F.softplus(x, threshold=700)
WITH_NUMBERS = {name: (1, getattr(F, name)) for name in "leaky_relu elu celu hardshrink".split()}
WITH_NUMBERS["softshrink"] = (1, nan_stays(F.softshrink))
WITH_NUMBERS |= {"clamp": (2, torch.clamp), "hardtanh": (2, F.hardtanh), "threshold": (2, F.threshold)}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow,
    "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
    "greater": torch.gt, "greater_equal": torch.ge, "maximum": torch.maximum, "minimum": torch.minimum,
    "atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    **{f"bitwise_{f}": getattr(torch, f"bitwise_{f}") for f in ("and", "or", "xor", "left_shift", "right_shift")},
}
SCALAR = {
    "pow_scalar": torch.pow, "add_scalar": torch.add, "sub_scalar": torch.sub, "mul_scalar": torch.mul,
    "div_scalar": torch.div, "rdiv_scalar": lambda x, a: a / x,
}


class Skip(Exception):
    """Of a program that PyTorch can't say."""


def dtype_of(name):
    return {"f32": torch.float64, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32,
            "u8": torch.uint8, "bool": torch.bool}[name]


def leaf(node):
    return torch.tensor(node["value"], dtype=torch.float64).to(dtype_of(node["dtype"])).reshape(node["shape"])


def reduced(x, node):
    """The axes of a reduction, as a tuple, and keepdim."""
    axes = tuple(a % x.dim() for a in node["axes"]) if node["axes"] else tuple(range(x.dim()))
    return axes, bool(node["i"][0])


def extreme(x, node, largest):
    axes, keep = reduced(x, node)
    if not axes:
        return x.clone()
    return (torch.amax if largest else torch.amin)(x, axes, keep)


def batch_norm(x, node, training):
    data, gamma, beta, mean, var = x
    parts = max(node["i"][0], 1)
    if not training and mean is not None:
        row = (lambda t: t[0] if t.dim() == 2 else t)
        return F.batch_norm(data, row(mean), row(var), gamma, beta, False, 0, node["f"][0])
    pieces = torch.tensor_split(data, parts)
    normal = torch.cat([F.batch_norm(p, None, None, None, None, True, 0, node["f"][0]) for p in pieces])
    # PyTorch folds the mean into the bias, so that an infinite weight gives NaN.
    across = [1, -1] + [1] * (data.dim() - 2)
    return normal * gamma.reshape(across) + beta.reshape(across)


def cross_entropy(x, node):
    reduction = ["mean", "sum", "none"][node["i"][0]]
    ignores_all = node["i"][1] and bool((x[1] == node["i"][2]).all())
    if reduction == "mean" and (x[0].shape[0] == 0 or ignores_all):  # 0, where PyTorch says 0 / 0
        return x[0].sum() * 0
    return F.cross_entropy(x[0], x[1], ignore_index=node["i"][2] if node["i"][1] else -100,
                           reduction=reduction, label_smoothing=node["f"][0])


def attention(x, node, training):
    if node["f"][1] > 0 and training:
        raise Skip
    scale = node["f"][0] if node["f"][0] >= 0 else 1 / math.sqrt(x[0].shape[3])
    scores = x[0] @ x[1].transpose(2, 3) * scale
    if len(x) == 4:
        scores = scores + x[3]
    if node["i"][0]:
        scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), -math.inf)
    return torch.softmax(scores, 3) @ x[2]


def pool_opts(node):
    i = node["i"]
    return {"kernel_size": i[0:2], "stride": i[2:4], "padding": i[4:6]}


def padding(node):
    flat = []
    for before, after in zip(reversed(node["d0"]), reversed(node["d1"])):
        flat += [before, after]
    return flat


def slices(node):
    return tuple(slice(a, None if b == INT_MAX else b, s) for a, b, s in zip(node["d0"], node["d1"], node["d2"]))


def whole_ops(name, x, node):
    """Of numbers that wrap."""
    a, to = x[0], dtype_of(node["dtype"])
    if name == "cast":
        return a.to(to)
    if name == "sum":
        axes, keep = reduced(a, node)
        return (a.sum(axes, keep) if axes else a).to(to)
    if name == "prod":
        axes, keep = reduced(a, node)
        y = a.to(torch.int64)
        for axis in sorted(axes, reverse=True):
            y = y.prod(axis, keepdim=keep)
        return y.to(to)
    if name == "cumsum":
        return a.cumsum(node["i"][0]).to(to)
    if name in ("floor_divide", "remainder"):
        safe = torch.where(x[1] == 0, torch.ones_like(x[1]), x[1]).to(torch.int64)
        y = torch.floor_divide(a.to(torch.int64), safe) if name == "floor_divide" else a % safe
        return torch.where(x[1] == 0, torch.zeros_like(y), y).to(to)
    return getattr(torch, name)(a, x[1])


def other_ops(name, x, node, training):
    """Ops that are neither of the tables above."""
    i, f, a = node["i"], node["f"], (x[0] if x else None)
    if name.startswith("whole_"):
        return whole_ops(name[len("whole_"):], x, node)
    if name == "gelu":
        return F.gelu(a, approximate="tanh" if i[0] else "none")
    if name == "cast":
        to = dtype_of(node["dtype"])
        return a.trunc().to(to) if to == torch.int64 and a.is_floating_point() else a.to(to).clone()
    if name == "where":
        return torch.where(x[0], x[1], x[2])
    if name in ("sum", "mean"):
        axes, keep = reduced(a, node)
        return getattr(torch, name)(a, axes, keep) if axes else a.clone()
    if name == "prod":
        axes, keep = reduced(a, node)
        for axis in sorted((k % a.dim() for k in axes), reverse=True):
            a = a.prod(axis, keepdim=keep)
        return a.clone()
    if name in ("max", "min"):
        return extreme(a, node, name == "max")
    if name == "norm":
        axes, keep = reduced(a, node)
        p = a.abs() ** f[0]
        return (p.sum(axes, keep) if axes else p) ** (1 / f[0])
    if name in ("variance", "std"):
        axes, keep = reduced(a, node)
        if not axes:
            raise Skip
        if f[0] != int(f[0]):
            raise Skip
        return (torch.var if name == "variance" else torch.std)(a, axes, correction=int(f[0]), keepdim=keep)
    if name == "argmax":
        return torch.argmax(a, i[0])
    if name in ("cumprod", "logcumsumexp"):
        return getattr(torch, name)(a, i[0])
    if name in ("sort", "topk"):
        y = a.sort(dim=i[0], descending=bool(i[1]), stable=True)[i[2]]
        return y.narrow(i[0], 0, i[3]) if name == "topk" else y
    if name == "cummax":
        return (torch.cummin if i[1] else torch.cummax)(a, i[0])[i[2]]
    if name == "gather":
        return a.gather(i[0], x[1])
    if name == "scatter_add":
        return a.scatter_add(i[0], x[1], x[2])
    if name == "cumsum":
        return torch.cumsum(a, i[0])
    if name in ("matmul", "matmul_t"):
        left, right = (t.transpose(-1, -2) if turn else t for t, turn in zip(x, i))
        return left @ right
    if name == "linear":
        return F.linear(*x)
    if name == "conv2d" and x[1].numel() == 0:
        raise Skip  # PyTorch 1.13 gets the shape wrong
    if name == "conv2d":
        return F.conv2d(x[0], x[1], x[2], tuple(i[0:2]), tuple(i[2:4]), tuple(i[4:6]), i[6])
    if name == "conv_transpose2d" and x[1].numel() == 0:
        raise Skip
    if name == "conv_transpose2d":
        return F.conv_transpose2d(x[0], x[1], x[2], tuple(i[0:2]), tuple(i[2:4]), tuple(i[7:9]), i[6], tuple(i[4:6]))
    if name == "max_pool2d":
        return F.max_pool2d(a, **pool_opts(node))
    if name == "avg_pool2d":
        return F.avg_pool2d(a, **pool_opts(node), count_include_pad=i[6] == 1)
    if name == "adaptive_avg_pool2d":
        return F.adaptive_avg_pool2d(a, tuple(i[0:2]))
    if name == "batch_norm":
        return batch_norm(x, node, training)
    if name == "layer_norm":
        return F.layer_norm(a, a.shape[a.dim() - i[0]:], x[1], x[2], f[0])
    if name in ("softmax", "log_softmax"):
        return getattr(torch, name)(a, i[0])
    if name == "causal_mask":
        return a.masked_fill(torch.ones(a.shape[-2:]).triu(i[0] + 1).bool(), f[0])
    if name in ("attention", "flash_attention", "masked_attention"):
        return attention(x, node, training)
    if name == "cross_entropy":
        return cross_entropy(x, node)
    if name == "mse_loss":
        if a.numel() == 0 and i[0] == 0:
            return (x[0] - x[1]).sum()
        return F.mse_loss(x[0], x[1], reduction=["mean", "sum", "none"][i[0]])
    if name == "noise":
        return leaf(node).requires_grad_()
    if name == "dropout":
        if training and f[0] > 0:
            raise Skip
        return a.clone()
    return movement(name, x, node)


def movement(name, x, node):
    i, f, a = node["i"], node["f"], x[0]
    if name in ("reshape", "flatten", "to_global"):
        return a.reshape(node["shape"]).clone()
    if name == "detach":
        return a.detach().clone()
    if name == "transpose":
        return a.transpose(i[0], i[1]).clone()
    if name == "permute":
        return a.permute(node["axes"]).clone()
    if name == "expand":
        return a.expand(node["shape"]).clone()
    if name == "concat":
        return torch.cat(x, i[0])
    if name == "stack":
        return torch.stack(x, i[0])
    if name == "slice":
        return a[slices(node)].clone()
    if name == "narrow":
        return a.narrow(i[0], i[1], i[2]).clone()
    if name == "pad":
        return F.pad(a, padding(node), value=f[0])
    if name == "split":
        return torch.split(a, i[3:3 + i[1]], i[0])[i[2]].clone()
    if name in ("triu", "tril"):
        return getattr(torch, name)(a, i[0])
    if name == "embedding":
        return F.embedding(x[1], a, padding_idx=i[1] if i[0] else None)
    if name == "index_select":
        axis = i[0] % a.dim()
        taken = a.index_select(axis, x[1].reshape(-1))
        return taken.reshape(a.shape[:axis] + x[1].shape + a.shape[axis + 1:])
    if name == "one_hot":
        return F.one_hot(a, i[0]).to(torch.float64)
    raise Skip


def gradients(node, nodes, values, uses, which):
    """Of a tsr_gradients call: the `which`-th operand's."""
    x = values[node["in"][1 + which]]
    y = values[node["in"][0]]
    grad, = torch.autograd.grad(y.sum(), [x], retain_graph=True, allow_unused=True)
    return torch.zeros_like(x) if grad is None else grad


def compute(program):
    nodes, training = program["nodes"], bool(program["training"])
    values, reads = [], {}
    for node in nodes:
        name, x = node["op"], [values[k] if k >= 0 else None for k in node["in"]]
        if name == "use":
            if node["var"] not in reads:
                reads[node["var"]] = leaf(node).requires_grad_()
            value = reads[node["var"]]
        elif name in ("input", "from_local", "random", "full", "arange", "constant"):
            value = leaf(node)
            if value.is_floating_point():
                value.requires_grad_()
        elif name == "updated":
            value = leaf(node)
        elif name == "gradients":
            value = gradients(node, nodes, values, reads, 0)
        elif name == "other_gradient":
            value = gradients(nodes[node["in"][0]], nodes, values, reads, node["i"][0])
        elif name in UNARY:
            value = UNARY[name](x[0])
        elif name in WITH_NUMBERS:
            count, function = WITH_NUMBERS[name]
            value = function(x[0], *node["f"][:count])
        elif name in BINARY:
            value = BINARY[name](x[0], x[1])
        elif name in SCALAR:
            value = SCALAR[name](x[0], node["f"][0])
        else:
            value = other_ops(name, x, node, training)
        if name in ("gradients", "other_gradient"):
            value = value.detach()
        values.append(value)
    return values, reads


def compare(what, found, right, error):
    """The first element that differs; how many were compared."""
    compared = 0
    for k, (a, b, e) in enumerate(zip(found.detach().reshape(-1).to(torch.float64).tolist(), right, error)):
        if not math.isfinite(e) or e > 1e-3 * (1 + abs(b)):
            continue
        compared += 1
        if a == b or (math.isnan(a) and math.isnan(b)):
            continue
        if not abs(a - b) <= 1e-9 * (1 + abs(b)) + 1000 * e:
            return compared, f"{what}[{k}]: PyTorch says {a:.17g}, the oracle {b:.17g}"
    return compared, None


def step(program, values, reads):
    """Variables after the updates: each starts from what the one before left; gradients are of the start."""
    now = {v: t.detach().clone() for v, t in reads.items()}
    for update in program["updates"]:
        if not update["told"]:
            return {}
        if "assigns" in update:
            now[update["var"]] = values[update["assigns"]].detach().clone()
            continue
        ours = [v for v in update["vars"] if v in reads]
        if not ours:
            continue
        grads = torch.autograd.grad(values[update["loss"]], [reads[v] for v in ours], retain_graph=True,
                                    allow_unused=True)
        params = []
        for v, g in zip(ours, grads):
            p = torch.nn.Parameter(now[v])
            p.grad = g
            params.append(p)
        lr, decay = update["lr"], update["decay"]
        if update["kind"] == 0:
            opt = torch.optim.SGD(params, lr, update["momentum"], update["dampening"], decay, bool(update["nesterov"]))
        else:
            opt = (torch.optim.Adam if update["kind"] == 1 else torch.optim.AdamW)(params, lr, weight_decay=decay)
        opt.step()
        for v, p in zip(ours, params):
            now[v] = p.detach()
    return now


def check(program):
    values, reads = compute(program)
    total = 0
    for k, (node, value) in enumerate(zip(program["nodes"], values)):
        if list(value.shape) != node["shape"]:
            return total, f"t{k} ({node['op']}): shape {list(value.shape)}, declared {node['shape']}"
        n, wrong = compare(f"t{k} ({node['op']})", value, node["value"], node["error"])
        total += n
        if wrong:
            return total, wrong
    norms = {n["in"][k] for n in program["nodes"] if n["op"] == "batch_norm" for k in (3, 4)}
    kept = {program["nodes"][k]["var"] for k in norms if k >= 0}
    for v, value in step(program, values, reads).items():
        if v in kept:
            continue
        n, wrong = compare(f"variable {v}", value, program["after"][v]["value"], program["after"][v]["error"])
        total += n
        if wrong:
            return total, wrong
    return total, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TESSERA_SEED", "1")))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--verbose", action="store_true", help="says what PyTorch refuses")
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = skipped = refused = failed = numbers = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.program, "--seed", str(args.seed), "--count", str(args.count), "--json", folder,
                        "--differences"], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).glob("*.json")):
            program = json.loads(path.read_text())
            try:
                n, wrong = check(program)
            except Skip:
                skipped += 1
                continue
            except (RuntimeError, TypeError, IndexError, ValueError) as error:
                refused += 1
                if args.verbose:
                    print(f"seed {program['seed']}: PyTorch refuses: {error}")
                continue
            done += 1
            numbers += n
            if wrong:
                failed += 1
                print(f"seed {program['seed']}: {wrong}")
    print(f"{done} programs, {numbers} values compared with PyTorch, {skipped} left out, "
          f"{refused} that PyTorch refuses, {failed} failed")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
