#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of scripts/bench: the nets of bench_nets.c and the ops of bench_ops.c, as lines in
and out, as these programs have them.

usage: torch_peer.py nets NET train|train_bf16|infer|infer_bf16 BATCH RANKS THREADS eager|compile
       torch_peer.py ops THREADS

The nets are those of torch_nets.py, convolutional ones in channels_last; attention, linear layers and
SGD are the fused ones where this PyTorch has them; several ranks are processes under DDP over gloo.
bf16 is autocast in training; in inference parameters and inputs are of bf16.
"""
import functools
import inspect
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bench_data  # noqa: E402
import torch_nets  # noqa: E402
from bench_data import say, timed  # noqa: E402
from torch_nets import use_fused  # noqa: E402,F401 (gpu_peer.py uses it)


def make_net(name, mode):
    """Returns the net with the values of bench_data, its inputs' types and the layout that PyTorch prefers."""
    use_fused()
    net, kind = torch_nets.make(name), bench_data.net_of(name)
    net = net.double() if kind.dtype == "f64" else net
    with torch.no_grad():
        for parameter, tensor in net.named_parameters():
            tensor.copy_(torch.from_numpy(bench_data.fill(parameter, tuple(tensor.shape), kind.dtype)))
    if len(kind.row) == 3 and name != "mlp":
        net = net.to(memory_format=torch.channels_last)
    return net.to(torch.bfloat16) if mode == "infer_bf16" else net


def make_inputs(name, mode, rows):
    tensors = [torch.from_numpy(x) for x in bench_data.inputs(bench_data.net_of(name), rows)]
    if mode == "infer_bf16":
        tensors = [x.to(torch.bfloat16) if x.is_floating_point() else x for x in tensors]
    return [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 and name != "mlp" else x for x in tensors]


class NetWork:
    """A net with its data and optimizer: one rank's part of the global batch."""

    def __init__(self, name, mode, batch, ranks, compiled):
        net = make_net(name, mode)
        self.parameters = sum(p.numel() for p in net.parameters())
        self.inputs = make_inputs(name, mode, batch // ranks)
        self.training = mode.startswith("train")
        self.squares = bench_data.net_of(name).squares
        net.train(self.training)
        if ranks > 1:
            net = nn.parallel.DistributedDataParallel(net)
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == "train_bf16")
        if self.training:
            fused = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}
            self.opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **fused)
        self.net = torch.compile(net) if compiled else net
        self.labels = self.result = None

    def loss(self):
        result = self.net(*self.inputs)
        if self.squares:
            return result.square().mean()
        logits = result.flatten(0, -2)
        if self.labels is None:
            self.labels = torch.from_numpy(bench_data.labels(*logits.shape))
        return F.cross_entropy(logits, self.labels)

    def step(self):
        if not self.training:
            with torch.no_grad():
                self.result = self.net(*self.inputs)
                return self.result.flatten()[0].item()
        self.opt.zero_grad()
        with self.autocast:
            loss = self.loss()
        loss.backward()
        self.opt.step()
        return loss.item()

    def timed(self, steps):
        answer = timed(self.step, steps)
        return answer if self.training else {**answer, "size": bench_data.size(self.result.double().numpy())}


def lines_for_all(ranks, rank):
    """Yields the steps of each line of rank 0's input, on all ranks."""
    while True:
        steps = torch.tensor([int(sys.stdin.readline() or 0) if rank == 0 else 0])
        if ranks > 1:
            torch.distributed.broadcast(steps, 0)
        if not steps.item():
            return
        yield steps.item()


def join_group(ranks):
    """Starts the other ranks from rank 0; returns this one's rank and, on rank 0, the others."""
    rank = int(os.environ.get("RANK", 0))
    store = os.environ.get("PEER_STORE") or tempfile.mktemp(prefix="bench-store-")
    env = {**os.environ, "PEER_STORE": store, "GLOO_SOCKET_IFNAME": "lo"}
    os.environ.update(env)
    others = [subprocess.Popen([sys.executable] + sys.argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               env={**env, "RANK": str(r)}) for r in range(1, ranks) if rank == 0]
    torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    return rank, others


def nets(name, mode, batch, ranks, threads, how):
    torch.set_num_threads(int(threads))
    ranks, rank, others = int(ranks), 0, []
    if ranks > 1:
        rank, others = join_group(ranks)
    work = NetWork(name, mode, int(batch), ranks, how == "compile")
    if rank == 0:
        say(parameters=work.parameters, torch=torch.__version__, pids=[os.getpid()] + [p.pid for p in others])
    for steps in lines_for_all(ranks, rank):
        done = work.timed(steps)
        if rank == 0:
            say(**done)
    # Without destroy_process_group, in which PyTorch 1.13 hangs now and then: the processes end anyway.
    sys.stdout.flush()
    for p in others:
        try:
            p.wait(5)
        except subprocess.TimeoutExpired:
            p.kill()
    if others:
        pathlib.Path(os.environ["PEER_STORE"]).unlink(missing_ok=True)
    os._exit(0)


# As in bench_ops.c: of each op its name and its result, of the operands below.
OPS = {
    "neg": "-x",
    "abs": "x.abs()",
    "square": "x.square()",
    "pow_2": "x ** 2",
    "pow_3": "x ** 3",
    "pow_half": "x ** 0.5",
    "pow_scalar": "x ** 2.7",
    "sqrt": "x.sqrt()",
    "rsqrt": "x.rsqrt()",
    "reciprocal": "x.reciprocal()",
    "exp": "x.exp()",
    "exp2": "x.exp2()",
    "expm1": "x.expm1()",
    "log": "x.log()",
    "log2": "x.log2()",
    "log1p": "x.log1p()",
    "sin": "x.sin()",
    "cos": "x.cos()",
    "atan": "x.atan()",
    "tanh": "x.tanh()",
    "erf": "x.erf()",
    "floor": "x.floor()",
    "round": "x.round()",
    "sign": "x.sign()",
    "relu": "x.relu()",
    "relu6": "F.relu6(x)",
    "leaky_relu": "F.leaky_relu(x)",
    "elu": "F.elu(x)",
    "sigmoid": "x.sigmoid()",
    "logsigmoid": "F.logsigmoid(x)",
    "silu": "F.silu(x)",
    "hardswish": "F.hardswish(x)",
    "hardsigmoid": "F.hardsigmoid(x)",
    "mish": "F.mish(x)",
    "softplus": "F.softplus(x)",
    "gelu": "F.gelu(x)",
    "gelu_tanh": 'F.gelu(x, approximate="tanh")',
    "clamp": "x.clamp(0.25, 0.75)",
    "add_scalar": "x + 1.5",
    "mul_scalar": "x * 1.5",
    "add": "x + y",
    "sub": "x - y",
    "mul": "x * y",
    "div": "x / y",
    "pow": "x.pow(y)",
    "maximum": "torch.maximum(x, y)",
    "remainder": "torch.remainder(x, y)",
    "atan2": "torch.atan2(x, y)",
    "add_row": "x + line",
    "mul_column": "x * column",
    "add_channel": "image + channels",
    "less": "x < y",
    "equal": "x == y",
    "isnan": "x.isnan()",
    "logical_and": "mask & (x < y)",
    "where": "torch.where(mask, x, y)",
    "masked_fill": "x.masked_fill(mask, -1)",
    "dropout": "F.dropout(x, 0.5)",
    "rand": "torch.rand_like(x)",
    "randn": "torch.randn_like(x)",
    "prelu": "F.prelu(image, channel)",
    "cast_i64": "x.long()",
    "cast_f32": "k.float()",
    "cast_bool": "mask.float()",
    "cast_bf16": "x.bfloat16().float()",
    "add_i64": "k + n",
    "mul_i64": "k * n",
    "floor_divide_i64": 'torch.div(k, n + 1, rounding_mode="floor")',
    "less_i64": "k < n",
    "sum_i64": "k.sum(1)",
    "max_i64": "k.amax(1)",
    "sum": "x.sum()",
    "sum_rows": "x.sum(0)",
    "sum_columns": "x.sum(1)",
    "sum_short": "s.sum(1)",
    "sum_short_rows": "s.sum(0)",
    "sum_middle": "heads.sum(1)",
    "sum_channel": "image.sum((0, 2, 3))",
    "mean_spatial": "image.mean((2, 3))",
    "mean": "x.mean()",
    "max": "x.amax(1)",
    "max_rows": "x.amax(0)",
    "max_short": "s.amax(1)",
    "max_all": "x.max()",
    "min": "x.amin(1)",
    "argmax": "x.argmax(1)",
    "argmax_rows": "x.argmax(0)",
    "argmax_short": "s.argmax(1)",
    "variance": "x.var(1)",
    "norm": "x.norm()",
    "norm_columns": "x.norm(dim=1)",
    "prod": "(s + 0.5).prod(1)",
    "logsumexp": "x.logsumexp(1)",
    "any": "mask.any(1)",
    "cumsum": "x.cumsum(1)",
    "cumsum_rows": "x.cumsum(0)",
    "cumprod": "(s + 0.5).cumprod(1)",
    "softmax": "x.softmax(1)",
    "softmax_short": "s.softmax(1)",
    "softmax_rows": "x.softmax(0)",
    "log_softmax": "x.log_softmax(1)",
    "cross_entropy": "F.cross_entropy(x, labels)",
    "mse_loss": "F.mse_loss(x, y)",
    "bce_logits": "F.binary_cross_entropy_with_logits(x, y)",
    "layer_norm": "F.layer_norm(x, (1000,), line, line)",
    "rms_norm": "x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt() * line",
    "group_norm": "F.group_norm(image, 8, channel, channel)",
    "batch_norm": "F.batch_norm(image, None, None, channel, channel, True)",
    "normalize": "F.normalize(x)",
    "max_pool": "F.max_pool2d(image, 3, 2, 1)",
    "max_pool_2": "F.max_pool2d(image, 2)",
    "avg_pool": "F.avg_pool2d(image, 2)",
    "global_pool": "F.adaptive_avg_pool2d(image, 1)",
    "nearest": "F.interpolate(image, scale_factor=2)",
    "bilinear": 'F.interpolate(image, scale_factor=2, mode="bilinear")',
    "pixel_shuffle": "F.pixel_shuffle(image, 2).contiguous()",
    "transpose": "x.t().contiguous()",
    "channels_last": "image.permute(0, 2, 3, 1).contiguous()",
    "transpose_heads": "heads.transpose(1, 2).contiguous()",
    "transpose_rows": "heads.transpose(0, 1).contiguous()",
    "concat": "torch.cat((x, y), 1)",
    "concat_rows": "torch.cat((x, y), 0)",
    "concat_short": "torch.cat((s, s), 1)",
    "stack": "torch.stack((x, y), 2)",
    "slice": "x[:, 100:900].contiguous()",
    "slice_step": "x[:, ::2].contiguous()",
    "slice_short": "s[:, 2:7].contiguous()",
    "pad": "F.pad(image, (1, 1, 1, 1))",
    "flip": "x.flip(1)",
    "roll": "x.roll(10, 1)",
    "repeat": "x.repeat(1, 2)",
    "repeat_interleave": "x.repeat_interleave(2, 1)",
    "expand": "column.expand(-1, 1000).contiguous()",
    "triu": "x.triu()",
    "embedding": "F.embedding(labels, w)",
    "index_select": "x.index_select(1, ids[0])",
    "gather": "x.gather(1, ids)",
    "scatter_add": "x.scatter_add(1, ids, y)",
    "one_hot": "F.one_hot(labels, 1000)",
    "sort": "x.sort(1)[0]",
    "topk": "x.topk(10, 1)[0]",
    "matmul": "x @ w",
    "linear": "F.linear(x, w, line)",
    "bmm": "heads @ heads.transpose(1, 2)",
    "conv_1x1": "F.conv2d(planes.permute(0, 3, 1, 2), k_1x1).permute(0, 2, 3, 1)",
    "conv_3x3": "F.conv2d(planes.permute(0, 3, 1, 2), k_3x3, padding=1).permute(0, 2, 3, 1)",
    "conv_stride": "F.conv2d(planes.permute(0, 3, 1, 2), k_3x3, padding=1, stride=2).permute(0, 2, 3, 1)",
    "conv_dilated": "F.conv2d(planes.permute(0, 3, 1, 2), k_3x3, padding=2, dilation=2).permute(0, 2, 3, 1)",
    "conv_5x5": "F.conv2d(planes.permute(0, 3, 1, 2), k_5x5, padding=2).permute(0, 2, 3, 1)",
    "conv_7x7": "F.conv2d(planes.permute(0, 3, 1, 2), k_7x7, padding=3, stride=2).permute(0, 2, 3, 1)",
    "conv_groups": "F.conv2d(planes.permute(0, 3, 1, 2), k_groups, padding=1, groups=8).permute(0, 2, 3, 1)",
    "conv_each": "F.conv2d(planes.permute(0, 3, 1, 2), k_each, padding=1, groups=64).permute(0, 2, 3, 1)",
}
# Of those whose gradients are timed: the operand.
GRADIENTS = {
    "pow_2": "x", "exp": "x", "log": "x", "sqrt": "x", "tanh": "x", "sigmoid": "x", "relu": "x", "gelu": "x",
    "gelu_tanh": "x", "silu": "x", "erf": "x", "softplus": "x", "leaky_relu": "x", "elu": "x", "clamp": "x",
    "mul": "x", "div": "y", "add_row": "line", "mul_column": "column", "add_channel": "channels", "maximum": "x",
    "where": "x", "sum_columns": "x", "max": "x", "mean_spatial": "image", "variance": "x", "norm": "x",
    "cumsum": "x", "softmax": "x", "softmax_short": "s", "log_softmax": "x", "cross_entropy": "x",
    "mse_loss": "x", "bce_logits": "x", "layer_norm": "x", "rms_norm": "x", "group_norm": "image",
    "batch_norm": "image", "max_pool": "image", "avg_pool": "image", "global_pool": "image", "nearest": "image",
    "bilinear": "image", "transpose": "x", "concat": "x", "slice": "x", "pad": "image", "embedding": "w",
    "gather": "x", "index_select": "x", "linear": "w", "matmul": "x",
    **{name: "planes" for name in OPS if name.startswith("conv_")},
}
# Of convolutions, the gradients of their weights, too.
KERNELS = {f"conv_{of}_w": "k_" + kernel for of, kernel in (
    ("1x1", "1x1"), ("3x3", "3x3"), ("stride", "3x3"), ("dilated", "3x3"), ("5x5", "5x5"), ("7x7", "7x7"),
    ("groups", "groups"), ("each", "each"))}
# Gradients that need the result, or a part of it: bench_ops computes the op in each run, too. Of the
# others it computes the gradient alone, as a PyTorch that keeps its graph does.
NEED_RESULT = {
    "exp", "sqrt", "tanh", "sigmoid", "relu", "max", "variance", "norm", "softmax", "softmax_short", "log_softmax",
    "cross_entropy", "layer_norm", "rms_norm", "group_norm", "batch_norm", "max_pool", "elu", "mse_loss",
}


def values(name, dtype, *shape):
    """The elements of an operand of bench_ops.c."""
    at = torch.arange(math.prod(shape)).mul(7919).add(ord(name[0]) * 101).remainder(10007)
    if dtype == "f32":
        at = at.double().mul(0.8 / 10007).add(0.1).float()
    elif dtype == "i64":
        at = at.remainder(1000)
    else:
        at = at.remainder(3) == 0
    return at.view(shape)


@functools.lru_cache(maxsize=3)
def operands(size):
    rows, side = size // 1000, 5 if size < 100_000 else 50
    kinds = {"x": ("f32", rows, 1000), "y": ("f32", rows, 1000), "w": ("f32", 1000, 1000), "line": ("f32", 1000),
             "column": ("f32", rows, 1), "s": ("f32", size // 10, 10),
             "image": ("f32", size // (40 * side * side), 40, side, side), "channels": ("f32", 40, 1, 1),
             "channel": ("f32", 40), "heads": ("f32", rows, 20, 50), "mask": ("bool", rows, 1000),
             "k": ("i64", rows, 1000), "n": ("i64", rows, 1000), "ids": ("i64", rows, 1000), "labels": ("i64", rows),
             "planes": ("f32", 1, 4, 4, 64) if size < 100_000 else ("f32", rows // 40, 25, 25, 64),
             "k_groups": ("f32", 64, 8, 3, 3), "k_each": ("f32", 64, 1, 3, 3),
             **{f"k_{n}x{n}": ("f32", 64, 64, n, n) for n in (1, 3, 5, 7)}}
    return {name: values(name, *kind) for name, kind in kinds.items()}


def work_of(name, size):
    """Returns a function that computes the op, or the gradient that NAME_dx is."""
    given = dict(operands(size))
    forward = name.removesuffix("_dx").removesuffix("_w")
    op = eval(f"lambda {', '.join(given)}: {OPS[forward]}")  # noqa: S307
    if name == forward:
        return lambda: op(**given)
    of = {**GRADIENTS, **KERNELS}[name.removesuffix("_dx")]
    x = given[of] = given[of].detach().requires_grad_()
    with torch.enable_grad():
        result = op(**given)
    dy = values("dy", "f32", *result.shape) if result.dim() else None
    if forward not in NEED_RESULT:
        return lambda: torch.autograd.grad(result, x, dy, retain_graph=True)[0].contiguous()

    def gradient():
        with torch.enable_grad():
            return torch.autograd.grad(op(**given), x, dy)[0].contiguous()
    return gradient


def ops(threads):
    torch.set_num_threads(int(threads))
    say(ops=[*OPS, *(name + "_dx" for name in {**GRADIENTS, **KERNELS})], torch=torch.__version__)
    for line in sys.stdin:
        name, size, runs = line.split()
        runs = int(runs)
        with torch.no_grad():
            work = work_of(name, int(size))
            result = work()
            start = time.perf_counter()
            for _ in range(runs):
                result = work()
            ms = 1e3 * (time.perf_counter() - start) / runs
        say(ms=[ms], sum=result.double().abs().sum().item())


def main():
    what = {"nets": nets, "ops": ops}[sys.argv[1]]
    return what(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
