#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Values in a step beside PyTorch's, in f64: several optimizers (in a GAN's order, over one net),
tied weights, running averages that the loss reads. Losses, gradients and weights of 5 steps on 1 to
4 ranks, in several signatures. Needs python3-torch; without it the exit code is 77.

usage: step_values.py PEER

PEER is tests/models/step_peer. Prints a line "ok ..." or "FAIL ..." a case.
"""
import subprocess
import sys
import tempfile

try:
    import torch
    from torch.nn import functional as F
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

from peer import load_safetensors

LIMIT, ROWS, IN, RUNS = 1e-12, 6, 3, 5
SIGNATURES = [("B", "B", "S(0)"), ("B", "S(0)", "S(0)"), ("S(0)", "S(0)", "B"),
              ("S(0)", "B", "auto"), ("auto", "auto", "auto")]


def data(run):
    v = [((i * 7 + run * 5) % 11) / 8 - 0.5 for i in range(ROWS * IN)]
    return torch.tensor(v, dtype=torch.float64).reshape(ROWS, IN)


def part(state, name):
    return {k[len(name) + 1:]: v for k, v in state.items() if k.startswith(name + ".")}


def step(optimizer, params, grads):
    for p, g in zip(params, grads):
        p.grad = g
    optimizer.step()


class Critic:
    def __init__(self, state):
        self.p = part(state, "critic")

    def __call__(self, x):
        h = torch.tanh(F.linear(x, self.p["w1"], self.p["b1"]))
        return F.linear(h, self.p["w2"], self.p["b2"])

    def params(self):
        return [self.p[k] for k in ("w1", "b1", "w2", "b2")]


def gan(state):
    critic, maker = Critic(state), part(state, "maker")
    cp, mp = critic.params(), [maker["w"], maker["b"]]
    oc = torch.optim.SGD(cp, lr=0.05, momentum=0.9, nesterov=True)
    om = torch.optim.Adam(mp, lr=0.02)

    def run(x):
        made = F.linear(x, maker["w"], maker["b"])
        loss = critic(made).mean() - critic(x).mean()
        maker_loss = -(critic(made) ** 2).mean()
        dc = torch.autograd.grad(loss, cp, retain_graph=True)
        dm = torch.autograd.grad(maker_loss, mp)
        after = torch.tanh(critic.p["w2"].detach().clone())
        step(oc, cp, dc)
        step(om, mp, dm)
        return [loss, maker_loss, after]
    return run


def shared(state):
    critic = Critic(state)
    cp = critic.params()
    one = torch.optim.AdamW(cp, lr=0.02, weight_decay=0.01)
    two = torch.optim.SGD(cp, lr=0.05, momentum=0.5, weight_decay=0.1)

    def run(x):
        y = critic(x)
        first, second = y.mean(), (y * y).mean()
        d1 = torch.autograd.grad(first, cp, retain_graph=True)
        d2 = torch.autograd.grad(second, cp)
        step(one, cp, d1)
        step(two, cp, d2)
        return [first, second, d2[0]]
    return run


def tied(state):
    p = part(state, "tied")
    o = torch.optim.Adam(list(p.values()), lr=0.05)

    def run(x):
        y = x
        for _ in range(2):
            h = torch.tanh(F.linear(y, p["w"], p["b"]))
            y = h @ p["w"]
        loss = F.mse_loss(y, x)
        names = list(p)
        *d, dh = torch.autograd.grad(loss, [p[k] for k in names] + [h])
        step(o, [p[k] for k in names], d)
        return [loss, dh]
    return run


def norm(state):
    p = part(state, "norm")
    params = [p[k] for k in ("gamma", "beta", "w")]
    o = torch.optim.SGD(params, lr=1e-4)

    def run(x):
        x = x + 1000
        mean, var = p["mean"].clone(), p["var"].clone()
        y = F.batch_norm(x, p["mean"], p["var"], p["gamma"], p["beta"], training=True)
        z = F.batch_norm(y * y, p["mean"], p["var"], p["gamma"], p["beta"], training=True)
        layer = F.layer_norm(x, (IN,), p["gamma"], p["beta"])
        loss = (z * (layer * x)).mean() + (mean * var * p["w"]).mean()
        step(o, params, torch.autograd.grad(loss, params))
        return [loss, layer, mean]
    return run


def worst(got, want):
    """The largest |got - want| / max(1, |want|); infinite where shapes differ or one is NaN."""
    if got.shape != want.shape:
        return float("inf")
    d = ((got - want).abs() / want.abs().clamp(min=1)).max().item()
    return d if d == d else float("inf")


def compare(peer, scenario, ranks, signatures):
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([peer, scenario.__name__, str(ranks), *signatures, folder],
                             capture_output=True, text=True, timeout=60)
        if out.returncode:
            return float("inf"), out.stderr.strip()
        lines = [[float(v) for v in line.split()] for line in out.stdout.splitlines()]
        state = load_safetensors(folder + "/first.safetensors")
        for name, t in state.items():
            t.requires_grad_(not name.endswith((".mean", ".var")))
        last = load_safetensors(folder + "/last.safetensors")
    run, apart = scenario(state), 0.0
    if len(lines) != RUNS:
        return float("inf"), f"{len(lines)} lines"
    for i, line in enumerate(lines):
        want = torch.cat([t.detach().flatten() for t in run(data(i))])
        apart = max(apart, worst(torch.tensor(line, dtype=torch.float64), want))
    for name, t in state.items():
        apart = max(apart, worst(last[name], t.detach()))
    return apart, ""


def main():
    failed = 0
    for scenario in (gan, shared, tied, norm):
        for ranks in (1, 2, 3, 4):
            for signatures in SIGNATURES:
                apart, why = compare(sys.argv[1], scenario, ranks, signatures)
                ok = apart <= LIMIT
                failed += not ok
                print(f"{'ok' if ok else 'FAIL'} {scenario.__name__} ranks={ranks} parameters, "
                      f"states, data {' '.join(signatures)}: {apart:.1e} {why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
