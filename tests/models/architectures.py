#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library's ResNet-18, LeNet-5, GPT-2 and LSTM beside plain PyTorch modules of the same parameter names,
in f64: losses of five steps of SGD with momentum, the weights and running averages after them, and
the distributions of initial values; on 1 to 4 ranks, by data, shards, tensor parallelism and both.
Needs python3-torch; without it the exit code is 77.

usage: architectures.py PEER TESSERA

PEER is tests/models/arch_peer, TESSERA the command. Prints a line "ok ..." or "FAIL ..." a case.
"""
import math
import re
import struct
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

from peer import load_safetensors, save_safetensors
from step_values import worst

LIMIT, STEPS = 1e-9, 5


# --- ResNet-18 ------------------------------------------------------------------------------------
class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = nn.Sequential()
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False),
                                            nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.downsample(x)).relu()


class ResNet18(nn.Module):
    def __init__(self, classes, width, cifar):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3 if cifar else 7, 1 if cifar else 2, 1 if cifar else 3,
                               bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        cin = width
        for i in range(4):
            cout = width << i
            stage = nn.Sequential(Block(cin, cout, 2 if i else 1), Block(cout, cout, 1))
            setattr(self, f"layer{i + 1}", stage)
            cin = cout
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean([2, 3]))

    @staticmethod
    def std(name, shape):
        """Of the initial values, uniform or normal; None: constants, or not checked."""
        if len(shape) == 4:
            return math.sqrt(2 / (shape[0] * shape[2] * shape[3]))
        return 1 / math.sqrt(3 * shape[1]) if name == "fc.weight" else None


# --- LeNet-5 --------------------------------------------------------------------------------------
class LeNet(nn.Module):
    def __init__(self, classes, channels, padding):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=padding)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2).flatten(1)
        return self.fc3(self.fc2(self.fc1(x).relu()).relu())

    @staticmethod
    def std(name, shape):
        return 1 / math.sqrt(3 * math.prod(shape[1:])) if len(shape) > 1 else None


# --- GPT-2 ----------------------------------------------------------------------------------------
class Conv1D(nn.Module):
    """A linear layer whose weight is (in, out)."""

    def __init__(self, cin, cout):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(cin, cout))
        self.bias = nn.Parameter(torch.zeros(cout))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        b, s, width = x.shape
        q, k, v = (t.reshape(b, s, self.heads, -1).transpose(1, 2)
                   for t in self.c_attn(x).split(width, 2))
        scores = q @ k.transpose(2, 3) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(torch.ones(s, s).triu(1) > 0, -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](y)


class Gpt(nn.Module):
    def __init__(self, vocab, positions, width, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return F.linear(self.ln_f(self.h(x)), self.wte.weight).flatten(0, 1)

    @staticmethod
    def std(name, shape):
        if len(shape) < 2:
            return None
        return 0.02 / math.sqrt(4) if "c_proj" in name else 0.02


# --- LSTM -----------------------------------------------------------------------------------------
class LstmLm(nn.Module):
    def __init__(self, vocab, width, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0]).flatten(0, 1)

    @staticmethod
    def std(name, shape):
        if name == "embedding.weight":
            return 1
        return 1 / math.sqrt(3 * 11) if len(shape) > 1 else None


# Of each model: how it is made, its classes, and a row of its input.
MODELS = {
    "resnet": (lambda: ResNet18(5, 6, False), 5, (3, 33, 32)),
    "resnet_cifar": (lambda: ResNet18(5, 4, True), 5, (3, 12, 12)),
    "lenet": (lambda: LeNet(10, 1, 2), 10, (1, 28, 28)),
    "lenet32": (lambda: LeNet(7, 3, 0), 7, (3, 32, 32)),
    "gpt": (lambda: Gpt(41, 9, 24, 4, 2), 41, (7,)),
    "lstm_lm": (lambda: LstmLm(29, 10, 11, 2), 29, (6,)),
}


def data(step, classes, batch, row):
    n = batch * math.prod(row)
    if len(row) == 1:
        x = torch.tensor([(i * 13 + step * 5) % classes for i in range(n)])
    else:
        x = torch.tensor([((i * 7919 + step * 3571) % 10007) / 4096 - 1.25 for i in range(n)],
                         dtype=torch.float64)
    labels = batch * row[0] if len(row) == 1 else batch
    return x.reshape(batch, *row), torch.tensor([(i * 3 + step) % classes for i in range(labels)])


def odd_values(net, state):
    """Names of the tensors whose initial values have not the distribution of PyTorch's."""
    for name, t in state.items():
        std, n = net.std(name, t.shape), t.numel()
        if std and n >= 100 and not abs(t.std().item() / std - 1) < 5 / math.sqrt(n):
            yield f"{name} has a deviation of {t.std().item():.3g}, not {std:.3g}"


def train(name, batch, first):
    """Returns losses and the last state of PyTorch's model from the state `first`."""
    make, classes, row = MODELS[name]
    net = make().double().train()
    net.load_state_dict(first, strict=False)
    have = {k for k in net.state_dict() if not k.endswith("num_batches_tracked")}
    if have != set(first):
        raise ValueError(f"names differ: {sorted(have ^ set(first))}")
    odd = list(odd_values(net, first))
    if odd:
        raise ValueError("; ".join(odd))
    opt, losses = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), []
    for step in range(STEPS):
        x, y = data(step, classes, batch, row)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, net.state_dict()


WANTED = {}  # of a model, a batch and a dropout: the initial state, and what training makes of it


def compare(peer, name, ranks, layout, batch, dropout):
    """With dropout, of which PyTorch draws others, the first run says what the later ones must give."""
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([peer, name, str(ranks), layout, str(batch), str(dropout), folder],
                             capture_output=True, text=True, timeout=60)
        if out.returncode:
            return math.inf, out.stderr.strip()
        first = load_safetensors(folder + "/first.safetensors")
        last = load_safetensors(folder + "/last.safetensors")
    got = torch.tensor([float(line) for line in out.stdout.split()], dtype=torch.float64)
    if (name, batch, dropout) not in WANTED:
        try:
            want = (first, *train(name, batch, first))
        except ValueError as e:
            return math.inf, str(e)
        if dropout and worst(got, torch.tensor(want[1], dtype=torch.float64)) < 1e-5:
            return math.inf, "nothing was dropped"
        WANTED[name, batch, dropout] = (first, got.tolist(), last) if dropout else want
    begin, losses, state = WANTED[name, batch, dropout]
    apart = worst(got, torch.tensor(losses, dtype=torch.float64))
    if max(worst(last[k], first[k]) for k in first) < 1e-4:
        return math.inf, "nothing was trained"
    for k in begin:
        if not torch.equal(first[k], begin[k]):
            return math.inf, f"{k} begins with other values than on one rank"
        apart = max(apart, worst(last[k], state[k]))
    return apart, ""


def wrong_counts(peer):
    """Says which numbers of parameters are not those of models of the usual sizes; else nothing."""
    nets = (ResNet18(1000, 64, False), Gpt(50257, 1024, 768, 12, 12), LeNet(10, 3, 0),
            LstmLm(256, 256, 256, 2))
    want = [sum(p.numel() for p in net.parameters()) for net in nets]
    out = subprocess.run([peer, "counts"], capture_output=True, text=True, timeout=60)
    got = [int(line) for line in out.stdout.split()]
    if got != want or want[:2] != [11689512, 124439808]:
        return f"counts are {got}, not {want} {out.stderr}"
    return ""


YAML = """tessera: 1
dtype: f64
placements: {d: {ranks: [0, 1]}}
model: {name: gpt, args: {width: 8, heads: 2, layers: 1, dropout: 0}}
data: {dataset: mnist, dir: DIR, batch_size: 4, shuffle: false}
strategy: STRATEGY
optimizer: {name: sgd, lr: 0.5, momentum: 0.9}
train: {epochs: 5, init: DIR/init.safetensors, checkpoint: {dir: DIR/saves}}
"""


def wrong_weights(tessera, folder, net):
    """Says what is wrong with what a run has saved: as a whole, and in parts; else nothing."""
    merged = folder + "/merged.safetensors"
    subprocess.run([tessera, "ckpt", "merge", folder + "/saves", merged, "--part", "model"], check=True,
                   stdout=subprocess.DEVNULL, timeout=60)
    for file in (folder + "/saves/weights.safetensors", merged):
        got, want = load_safetensors(file), net.state_dict()
        if {k: v.shape for k, v in got.items()} != {k: v.shape for k, v in want.items()}:
            return f"{file} has {[(k, v.shape) for k, v in got.items()]}"
        off = max(float((got[k].double() - v).abs().max()) for k, v in want.items())
        if off > 1e-12:
            return f"{file} is {off} off"
    return ""


def wrong_bytes(tessera, strategy):
    """Says what is wrong with losses and weights of a GPT that a YAML file trains on images' bytes; else nothing."""
    torch.manual_seed(1)
    net = Gpt(256, 784, 8, 2, 1).double()
    for t in net.parameters():
        t.data.normal_(0, 0.2)
    pixels = (torch.arange(4 * 784) * 7919 % 10007 % 256).to(torch.uint8).reshape(4, 784)
    with tempfile.TemporaryDirectory() as folder:
        save_safetensors(folder + "/init.safetensors", net.state_dict())
        with open(folder + "/train-images-idx3-ubyte", "wb") as f:
            f.write(struct.pack(">4I", 0x803, 4, 28, 28) + pixels.numpy().tobytes())
        with open(folder + "/train-labels-idx1-ubyte", "wb") as f:
            f.write(struct.pack(">2I", 0x801, 4) + bytes(4))
        with open(folder + "/gpt.yaml", "w") as f:
            f.write(YAML.replace("DIR", folder).replace("STRATEGY", strategy))
        out = subprocess.run([tessera, "run", folder + "/gpt.yaml"], capture_output=True, text=True,
                             timeout=60)
        got = [float(v) for v in re.findall(r"loss ([^\s,]+)", out.stdout)]
        opt, want = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9), []
        for _ in range(5):
            ids = pixels.long()
            loss = F.cross_entropy(net(ids[:, :-1]), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            want.append(loss.item())
        if len(got) != 5 or max(abs(a - b) for a, b in zip(got, want)) > 1e-6:
            return f"losses are {got}, not {want} {out.stderr}"
        return wrong_weights(tessera, folder, net)


def cases():
    for name in MODELS:
        for ranks in (1, 2, 3, 4):
            yield name, ranks, "data", 4, 0
            if ranks > 1:
                yield name, ranks, "tensor", 4, 0
                yield name, ranks, "tensor2", 5, 0
        yield name, 3, "sharded", 5, 0
        yield name, 4, "grid", 5, 0
    for name in ("gpt", "lstm_lm"):
        for ranks, layout in ((1, "data"), (2, "tensor"), (3, "data"), (3, "tensor2"), (4, "grid")):
            yield name, ranks, layout, 5, 0.3


def main():
    failed = 0
    for case in cases():
        apart, why = compare(sys.argv[1], *case)
        ok = apart <= LIMIT
        failed += not ok
        name, ranks, layout, batch, dropout = case
        print(f"{'ok' if ok else 'FAIL'} {name} ranks={ranks} {layout}, {batch} rows, dropout {dropout}: "
              f"{apart:.1e} {why}", flush=True)
    for name, why in (("counts", wrong_counts(sys.argv[1])), *((f"yaml {s}", wrong_bytes(sys.argv[2], s)) for s in ("data", "megatron", "zero3", "zero1"))):
        failed += bool(why)
        print(f"{'FAIL' if why else 'ok'} {name} {why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
