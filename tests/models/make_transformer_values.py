#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes transformer_values.h: names and shapes of the parameters of transformers made of torch.nn
modules, and their losses over steps of SGD, in f64. Needs Debian's python3-torch.

usage: make_transformer_values.py > transformer_values.h
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH, LENGTH = 4, 4, 5


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.causal = heads, causal

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = (f(x).view(b, s, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)
        if self.causal:
            scores = scores.masked_fill(~torch.ones(s, s, dtype=torch.bool).tril(), -math.inf)
        return self.proj((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, s, w))


class MLP(nn.Module):
    def __init__(self, width, hidden, form):
        super().__init__()
        self.fc1, self.fc2, self.form = nn.Linear(width, hidden), nn.Linear(hidden, width), form

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate=self.form))


class Block(nn.Module):
    def __init__(self, width, heads, ratio, causal, form):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), Attention(width, heads, causal)
        self.norm2, self.mlp = nn.LayerNorm(width), MLP(width, int(ratio * width), form)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Table(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))


class Net(nn.Module):
    def __init__(self, width, heads, layers, ratio, vocab=0, positions=0, classes=0, tied=False,
                 causal=False, form="none"):
        super().__init__()
        self.tied = tied
        self.tok_emb = Table(vocab, width) if vocab else None
        self.pos_emb = Table(positions, width) if positions else None
        self.blocks = nn.Sequential(*(Block(width, heads, ratio, causal, form)
                                      for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, classes or vocab, bias=False)

    def forward(self, x):
        if self.tok_emb:
            x = self.tok_emb.weight[x]
        if self.pos_emb:
            x = x + self.pos_emb.weight[:x.shape[1]]
        x = self.norm(self.blocks(x))
        return x @ self.tok_emb.weight.T if self.tied else self.head(x)


def wave(n, k):
    return torch.tensor([math.sin(0.7 * i + k) for i in range(n)], dtype=torch.float64)


def fill(net):
    """Values that both sides can make, by name."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            v = 0.2 * wave(p.numel(), sum(map(ord, name)) % 97)
            p.copy_((v + (1 if "norm" in name and name.endswith("weight") else 0)).view(p.shape))


CASES = {
    "words": dict(width=12, heads=6, layers=2, ratio=2, vocab=11, positions=7, tied=True,
                  causal=True),
    "features": dict(width=12, heads=3, layers=1, ratio=1.5, classes=4, form="tanh"),
}


def main():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by make_transformer_values.py. */")
    print("/* clang-format off */")
    for name, options in CASES.items():
        net = Net(**options).double()
        fill(net)
        print(f"static const char *const names_{name}[] = {{")
        for key, p in net.named_parameters():
            print(f'    "{key} ({",".join(map(str, p.shape))})",')
        print("};")
        n = BATCH * LENGTH
        classes = options.get("classes") or options["vocab"]
        if "vocab" in options:
            x = torch.tensor([(3 * i + i // 4) % classes for i in range(n)]).view(BATCH, LENGTH)
        else:
            x = wave(n * options["width"], 3).view(BATCH, LENGTH, -1)
        labels = torch.tensor([(5 * i + 2) % classes for i in range(n)])
        opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
        losses = []
        for _ in range(STEPS):
            loss = F.cross_entropy(net(x).flatten(0, 1), labels)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"static const double losses_{name}[] = {{")
        print("\n".join(f"    {v!r}," for v in losses))
        print("};")


if __name__ == "__main__":
    main()
