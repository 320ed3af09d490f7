#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers beside PyTorch's, in f64, with the same names and weights: outputs within 1e-12, gradients of the
inputs and of all parameters within 1e-9, on 1 to 3 ranks, with the data split or broadcast and parameters
split too; and how parameters are drawn at first. Needs python3-torch; without it the exit code is 77.

usage: layers.py PEER

PEER is tests/models/layer_peer. Prints a line "ok ..." or "FAIL ..." a layer.
"""
import math
import subprocess
import sys
import tempfile

try:
    import torch
    from torch import nn
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

from peer import load_safetensors
from step_values import worst

torch.set_default_dtype(torch.float64)
VALUES, GRADIENTS = 1e-12, 1e-9
# Ranks, the signature of the parameters and that of the data.
RUNS = [(1, "B", "B"), (2, "B", "S(0)"), (2, "B", "B"), (2, "S(0)", "B"), (2, "auto", "S(0)"),
        (3, "B", "S(1)")]


def floats(number, *dims):
    v = [((k * 7 + number * 5) % 11) / 8 - 0.5 for k in range(math.prod(dims))]
    return torch.tensor(v).reshape(dims).requires_grad_()


def ids(below, *dims):
    return torch.tensor([(k * 3 + 1) % below for k in range(math.prod(dims))]).reshape(dims)


def bools(number, *dims):
    return torch.tensor([(k * 5 + number) % 3 == 0 for k in range(math.prod(dims))]).reshape(dims)


def flat(y):
    """The tensors in nested tuples of outputs."""
    return [y] if torch.is_tensor(y) else [t for part in y for t in flat(part)]


class Chain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(3, 5), nn.LSTM(5, 4), nn.Linear(4, 2, bias=False))

    def forward(self, x):
        return self[2](self[1](self[0](x))[0])


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 3))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean((1, 2), True) + 1e-3) * self.weight


class Attention(nn.MultiheadAttention):
    """Without key or value: the query or the key. Weights are what `weights` says."""

    def __init__(self, weights=False, causal=False, **more):
        super().__init__(8, 2, **more)
        self.weights, self.causal = weights, causal

    def forward(self, x, key=None, value=None, mask=None, keys=None):
        key = x if key is None else key
        value = key if value is None else value
        if self.causal:
            mask = torch.ones(len(x), len(x)).triu(1).bool()
        y, weights = super().forward(x, key, value, keys, self.weights, mask)
        return (y, weights) if self.weights else y


class Blind(Attention):
    """One key, which some queries do not see: they get zeros, where PyTorch gives NaN."""

    def forward(self, x, key, value, mask):
        y = super().forward(x, key)
        hidden = mask[None]
        if not self.weights:
            return torch.where(hidden, self.out_proj.bias, y)
        return torch.where(hidden, self.out_proj.bias, y[0]), torch.where(hidden, torch.zeros(()), y[1])


class EncoderFirst(nn.TransformerEncoderLayer):
    def __init__(self):
        super().__init__(8, 2, 6, 0.0, "gelu", 1e-3, batch_first=True, norm_first=True)

    def forward(self, x):
        return super().forward(x, torch.ones(5, 5).triu(1).bool())


def lstm(x, h, c):
    return x, (h, c)


def as_they_are(*x):
    return x


# name: (PyTorch's module, the inputs, how the module takes them, how many outputs are compared)
CASES = {
    "lstm": (lambda: nn.LSTM(3, 4, 2, bidirectional=True),
             lambda: [floats(0, 5, 6, 3), floats(1, 4, 6, 4), floats(2, 4, 6, 4)], lstm, 3),
    "lstm_plain": (lambda: nn.LSTM(3, 4), lambda: [floats(0, 5, 6, 3)], as_they_are, 3),
    "lstm_batch_first": (lambda: nn.LSTM(3, 4, bias=False, batch_first=True),
                         lambda: [floats(0, 6, 5, 3), floats(1, 1, 6, 4), floats(2, 1, 6, 4)], lstm, 3),
    "gru": (lambda: nn.GRU(3, 4, 2, bidirectional=True),
            lambda: [floats(0, 5, 6, 3), floats(1, 4, 6, 4)], as_they_are, 2),
    "gru_batch_first": (lambda: nn.GRU(3, 4, bias=False, batch_first=True), lambda: [floats(0, 6, 5, 3)],
                        as_they_are, 2),
    "rnn": (lambda: nn.RNN(3, 4, 2), lambda: [floats(0, 5, 6, 3), floats(1, 2, 6, 4)], as_they_are, 2),
    "rnn_relu": (lambda: nn.RNN(3, 4, bidirectional=True, nonlinearity="relu"),
                 lambda: [floats(0, 5, 6, 3)], as_they_are, 1),
    "lstm_one": (lambda: nn.LSTM(3, 4), lambda: [floats(0, 1, 1, 3), floats(1, 1, 1, 4), floats(2, 1, 1, 4)], lstm, 3),
    "gru_one": (lambda: nn.GRU(3, 4, 1), lambda: [floats(0, 5, 1, 3)], as_they_are, 2),
    "rnn_one": (lambda: nn.RNN(3, 4, bidirectional=True), lambda: [floats(0, 1, 2, 3), floats(1, 2, 2, 4)], as_they_are, 2),
    "gru_batch": (lambda: nn.GRU(3, 4, 2, batch_first=True, bidirectional=True), lambda: [floats(0, 7, 3, 3)], as_they_are, 2),
    "lstm_cell": (lambda: nn.LSTMCell(3, 4), lambda: [floats(0, 6, 3), floats(1, 6, 4), floats(2, 6, 4)], lstm, 2),
    "gru_cell": (lambda: nn.GRUCell(3, 4), lambda: [floats(0, 6, 3), floats(1, 6, 4)], as_they_are, 1),
    "rnn_cell": (lambda: nn.RNNCell(3, 4, bias=False), lambda: [floats(0, 6, 3)], as_they_are, 1),
    "plain": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.PReLU(3), nn.LeakyReLU(0.2), nn.Tanh(), nn.GELU(),
                                    nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(1), nn.Softmax(-1)),
              lambda: [floats(0, 6, 3, 8, 4)], as_they_are, 1),
    "group_norm": (lambda: nn.GroupNorm(2, 4), lambda: [floats(0, 6, 4, 3, 2)], as_they_are, 1),
    "instance_norm": (lambda: nn.InstanceNorm2d(4, 1e-3, affine=True), lambda: [floats(0, 6, 4, 3, 2)], as_they_are, 1),
    "instance_norm_bare": (lambda: nn.InstanceNorm2d(4), lambda: [floats(0, 6, 4, 3, 2)], as_they_are, 1),
    "rms_norm": (RmsNorm, lambda: [floats(0, 6, 4, 3)], as_they_are, 1),
    "embedding": (lambda: nn.Embedding(7, 4), lambda: [ids(7, 6, 5)], as_they_are, 1),
    "embedding_padded": (lambda: nn.Embedding(7, 4, padding_idx=-3), lambda: [ids(7, 6, 5)], as_they_are, 1),
    "attention": (Attention, lambda: [floats(0, 5, 6, 8)], as_they_are, 1),
    "attention_weights": (lambda: Attention(True), lambda: [floats(0, 5, 6, 8)], as_they_are, 2),
    "attention_cross": (lambda: Attention(True), lambda: [floats(0, 5, 6, 8), floats(1, 4, 6, 8), floats(2, 4, 6, 8),
                                                          floats(3, 5, 4), bools(4, 6, 4)], as_they_are, 2),
    "attention_bools": (lambda: Attention(batch_first=True),
                        lambda: [floats(0, 6, 5, 8), floats(1, 6, 7, 8), None, bools(3, 5, 7), bools(4, 6, 7)],
                        as_they_are, 1),
    "attention_bools_weights": (lambda: Attention(True, batch_first=True),
                                lambda: [floats(0, 6, 5, 8), floats(1, 6, 7, 8), None, bools(3, 5, 7), bools(4, 6, 7)],
                                as_they_are, 2),
    **{f"attention_blind{name}": (lambda weights=count == 2: Blind(weights, batch_first=True),
                                  lambda: [floats(0, 6, 5, 8), floats(1, 6, 1, 8), None, bools(3, 5, 1)],
                                  as_they_are, count) for name, count in (("", 1), ("_weights", 2))},
    "attention_heads_mask": (Attention, lambda: [floats(0, 5, 6, 8), None, None, floats(3, 12, 5, 5)], as_they_are, 1),
    "attention_causal": (lambda: Attention(causal=True, bias=False), lambda: [floats(0, 5, 6, 8)], as_they_are, 1),
    "attention_causal_weights": (lambda: Attention(True, True, bias=False), lambda: [floats(0, 5, 6, 8)],
                                 as_they_are, 2),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 6, 0.0),
                lambda: [floats(0, 5, 6, 8), floats(1, 5, 5), bools(2, 6, 5)], as_they_are, 1),
    "encoder_first": (EncoderFirst, lambda: [floats(0, 6, 5, 8)], as_they_are, 1),
    "lstm_dropout": (lambda: nn.LSTM(3, 4, 2, dropout=1.0), lambda: [floats(0, 5, 6, 3)], as_they_are, 3),
    "decoder": (lambda: nn.TransformerDecoderLayer(8, 2, 6, 0.0),
                lambda: [floats(0, 5, 6, 8), floats(1, 4, 6, 8), None, floats(3, 5, 4), None, bools(5, 6, 4)],
                lambda x, memory, causal, *masks: (x, memory, torch.ones(5, 5).triu(1).bool(), *masks), 1),
    "encoder_stack": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 6, 0.0, "gelu"), 2,
                                                    nn.LayerNorm(8)),
                      lambda: [floats(0, 5, 6, 8), None, bools(2, 6, 5)], as_they_are, 1),
    "decoder_stack": (lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 6, 0.0, norm_first=True), 2),
                      lambda: [floats(0, 5, 6, 8), floats(1, 4, 6, 8), floats(2, 5, 5)], as_they_are, 1),
    "chain": (Chain, lambda: [floats(0, 5, 6, 3)], as_they_are, 1),
}


def wanted(name, weights):
    """What PyTorch gives: {line's name: tensor}. The weights must fit its module without rest."""
    make, inputs, given, count = CASES[name]
    module, x = make(), inputs()
    module.load_state_dict(weights, strict=True)
    out = flat(module(*given(*x)))[:count]
    loss = 0
    for i, y in enumerate(out):
        w = [((k * 5 + i * 3) % 7) / 4 - 0.6 for k in range(y.numel())]
        loss = loss + (y * torch.tensor(w).reshape(y.shape)).sum()
    loss.backward()
    want = {f"out{i}": y.detach() for i, y in enumerate(out)}
    want.update({f"in{i}": t.grad for i, t in enumerate(x) if t is not None and t.is_floating_point()})
    want.update({n: p.grad for n, p in module.named_parameters()})
    return want


def same_draw(name, initial):
    """Whether the first weights look drawn as PyTorch's are: the largest sizes of both, far apart only by chance."""
    torch.manual_seed(1)
    for n, p in CASES[name][0]().named_parameters():
        got, want = initial[n].abs().max().item(), p.detach().abs().max().item()
        if not torch.equal(initial[n] == 0, p == 0):
            return f"{n} begins with zeros elsewhere than PyTorch's"
        if p.detach().std(unbiased=False).item() == 0 and got != want:
            return f"{n} begins with {got}, not {want}"
        if want and p.numel() >= 12 and not 0.6 < got / want < 1.7:
            return f"{n} begins with up to {got}, PyTorch's with {want}"
    return ""


def compare(peer, name, ranks, params, data):
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([peer, name, str(ranks), params, data, folder], capture_output=True,
                             text=True, timeout=60)
        if out.returncode:
            return out.stderr.strip()
        weights = load_safetensors(folder + "/weights.safetensors")
        initial = load_safetensors(folder + "/initial.safetensors")
    got = {}
    for line in out.stdout.splitlines():
        first, *rest = line.split()
        got[first] = torch.tensor([float(v) for v in rest])
    want = wanted(name, weights)
    if sorted(got) != sorted(want):
        return f"lines {sorted(got)}, not {sorted(want)}"
    for n, t in want.items():
        apart, limit = worst(got[n], t.flatten()), VALUES if n.startswith("out") else GRADIENTS
        if not apart <= limit:
            return f"{n} differs by {apart:.3g}"
    return same_draw(name, initial)


def main():
    failed = 0
    names = sys.argv[2:] or CASES
    for name in names:
        bad = [(run, text) for run in RUNS if (text := compare(sys.argv[1], name, *run))]
        failed += bool(bad)
        print(f"FAIL {name}: {bad[0][0]}: {bad[0][1]}" if bad else f"ok {name}: {len(RUNS)} runs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
