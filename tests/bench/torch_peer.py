#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of scripts/bench: the nets of bench_nets.c and the ops of bench_ops.c, as lines in
and out, as these programs have them.

usage: torch_peer.py nets NET train|train_bf16|infer BATCH RANKS THREADS eager|compile
       torch_peer.py ops THREADS

The nets are those of the parity tests, convolutional ones in channels_last; attention, linear layers
and SGD are the fused ones where this PyTorch has them; several ranks are processes under DDP over gloo.
"""
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import architectures  # noqa: E402
import peer  # noqa: E402

LENGTH, VOCAB, CLASSES, IMAGE = 256, 256, 10, 3 * 32 * 32
NETS = {
    "mobilenet_v2": lambda: peer.MobileNetV2(CLASSES),
    "mobilenet_v2_cifar": lambda: peer.MobileNetV2(CLASSES, variant="cifar"),
    "resnet18_cifar": lambda: architectures.ResNet18(CLASSES, 64, True),
    "lenet": lambda: architectures.LeNet(CLASSES, 3, 0),
    "mlp": lambda: peer.Mlp(IMAGE, 1024, CLASSES),
    "gpt": lambda: architectures.Gpt(VOCAB, LENGTH, 384, 6, 6),
    "lstm_lm": lambda: architectures.LstmLm(VOCAB, 256, 256, 2),
}


def fused_attention(self, x):
    b, s, width = x.shape
    q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, 2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return self.c_proj(y.transpose(1, 2).reshape(b, s, width))


def fused_conv1d(self, x):
    y = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
    return y.view(*x.shape[:-1], -1)


def use_fused():
    architectures.Conv1D.forward = fused_conv1d
    if hasattr(F, "scaled_dot_product_attention"):
        architectures.Attention.forward = fused_attention


def say(**values):
    print(json.dumps(values), flush=True)


class NetWork:
    """A net with its data and optimizer: one rank's part of the global batch."""

    def __init__(self, name, mode, batch, ranks, compiled):
        torch.manual_seed(0)
        use_fused()
        words = name in ("gpt", "lstm_lm")
        rows = batch // ranks
        net = NETS[name]()
        if name == "gpt":
            for parameter in net.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, 0, 0.02)
        self.parameters = sum(p.numel() for p in net.parameters())
        if words:
            self.x = torch.arange(rows * LENGTH).mul(7919).remainder(10007).remainder(VOCAB).view(rows, LENGTH)
        else:
            self.x = torch.arange(rows * IMAGE).mul(7919).remainder(10007).float().div(10007).view(rows, 3, 32, 32)
            if name != "mlp":
                net = net.to(memory_format=torch.channels_last)
                self.x = self.x.contiguous(memory_format=torch.channels_last)
        self.y = torch.arange(rows * (LENGTH if words else 1)).mul(3).remainder(CLASSES)
        training = mode != "infer"
        net.train(training)
        if ranks > 1:
            net = nn.parallel.DistributedDataParallel(net)
        self.training = training
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == "train_bf16")
        fused = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}
        self.opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, **fused)
        self.net = torch.compile(net) if compiled else net

    def step(self):
        if not self.training:
            with torch.no_grad():
                return self.net(self.x).flatten()[0].item()
        self.opt.zero_grad()
        with self.autocast:
            loss = F.cross_entropy(self.net(self.x), self.y)
        loss.backward()
        self.opt.step()
        return loss.item()

    def timed(self, steps):
        self.step()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            loss = self.step()
            times.append(1e3 * (time.perf_counter() - start))
        if loss != loss or abs(loss) == float("inf"):
            sys.exit("the loss is not finite")
        return {"ms": times, "loss": loss}


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
    if ranks > 1:
        torch.distributed.destroy_process_group()
    return max([p.wait() for p in others], default=0)


OPS = {
    "neg": lambda x, y, w, v: -x, "abs": lambda x, y, w, v: x.abs(), "square": lambda x, y, w, v: x.square(),
    "sqrt": lambda x, y, w, v: x.sqrt(), "rsqrt": lambda x, y, w, v: x.rsqrt(),
    "reciprocal": lambda x, y, w, v: x.reciprocal(), "exp": lambda x, y, w, v: x.exp(),
    "log": lambda x, y, w, v: x.log(), "log1p": lambda x, y, w, v: x.log1p(), "sin": lambda x, y, w, v: x.sin(),
    "cos": lambda x, y, w, v: x.cos(), "tanh": lambda x, y, w, v: x.tanh(), "erf": lambda x, y, w, v: x.erf(),
    "floor": lambda x, y, w, v: x.floor(), "relu": lambda x, y, w, v: x.relu(),
    "relu6": lambda x, y, w, v: F.relu6(x), "sigmoid": lambda x, y, w, v: x.sigmoid(),
    "silu": lambda x, y, w, v: F.silu(x), "hardswish": lambda x, y, w, v: F.hardswish(x),
    "mish": lambda x, y, w, v: F.mish(x), "softplus": lambda x, y, w, v: F.softplus(x),
    "gelu": lambda x, y, w, v: F.gelu(x), "gelu_tanh": lambda x, y, w, v: F.gelu(x, approximate="tanh"),
    "clamp": lambda x, y, w, v: x.clamp(0.25, 0.75), "add": lambda x, y, w, v: x + y,
    "sub": lambda x, y, w, v: x - y, "mul": lambda x, y, w, v: x * y, "div": lambda x, y, w, v: x / y,
    "pow": lambda x, y, w, v: x.pow(y), "maximum": lambda x, y, w, v: torch.maximum(x, y),
    "add_row": lambda x, y, w, v: x + v, "sum": lambda x, y, w, v: x.sum(),
    "sum_rows": lambda x, y, w, v: x.sum(0), "sum_columns": lambda x, y, w, v: x.sum(1),
    "mean": lambda x, y, w, v: x.mean(), "max": lambda x, y, w, v: x.amax(1), "variance": lambda x, y, w, v: x.var(1),
    "norm": lambda x, y, w, v: x.norm(), "cumsum": lambda x, y, w, v: x.cumsum(1),
    "softmax": lambda x, y, w, v: x.softmax(1), "log_softmax": lambda x, y, w, v: x.log_softmax(1),
    "layer_norm": lambda x, y, w, v: F.layer_norm(x, (1000,), v, v),
    "transpose": lambda x, y, w, v: x.t().contiguous(), "matmul": lambda x, y, w, v: x @ w,
    "linear": lambda x, y, w, v: F.linear(x, w, v),
}


def values(count, salt):
    return torch.arange(count).mul(7919).add(salt).remainder(10007).double().mul(0.8 / 10007).add(0.1).float()


def ops(threads):
    torch.set_num_threads(int(threads))
    say(ops=list(OPS), torch=torch.__version__)
    for line in sys.stdin:
        name, size, runs = line.split()
        op, size, runs = OPS[name], int(size), int(runs)
        with torch.no_grad():
            args = (values(size, 0).view(-1, 1000), values(size, 5003).view(-1, 1000),
                    values(1000 * 1000, 97).view(1000, 1000), values(1000, 31))
            result = op(*args)
            start = time.perf_counter()
            for _ in range(runs):
                result = op(*args)
            ms = 1e3 * (time.perf_counter() - start) / runs
        say(ms=[ms], sum=result.double().sum().item())


def main():
    what = {"nets": nets, "ops": ops}[sys.argv[1]]
    return what(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
