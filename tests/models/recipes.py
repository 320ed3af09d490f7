#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training recipes beside PyTorch's, in f64: every optimizer and schedule over 50 runs, and AdamW with
groups and clipping, several losses, frozen layers, averaged weights, target networks, label smoothing,
gradients and optimizers of the user's own over 20. Outputs and weights on 1 to 3 ranks, in several
signatures and under tsr_ddp. Needs python3-torch; without it the exit code is 77.

usage: recipes.py PEER

PEER is tests/models/recipe_peer. Prints a line "ok ..." or "FAIL ..." a case.
"""
import math
import subprocess
import sys
import tempfile

try:
    import torch
    from torch.nn import functional as F
    from torch.optim import lr_scheduler as S
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

from peer import load_safetensors
from step_values import data, part, worst

LIMIT = 1e-9
SIGNATURES = [("B", "B", "S(0)"), ("B", "S(0)", "S(0)"), ("S(0)", "S(0)", "B"),
              ("auto", "auto", "auto")]
DDP = ("ddp", "B", "B")
NAMES = ("w1", "b1", "w2", "b2")


def net(p, x):
    return F.linear(torch.tanh(F.linear(x, p["w1"], p["b1"])), p["w2"], p["b2"])


def loss_of(p, x):
    return F.mse_loss(net(p, x), 3 * x)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                b1, b2 = g["betas"]
                p.mul_(1 - g["lr"] * g["weight_decay"])
                p.sub_(g["lr"] * torch.sign(b1 * m + (1 - b1) * p.grad))
                m.mul_(b2).add_((1 - b2) * p.grad)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with the identity for phi."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                b1, b2 = g["betas"]
                s["t"] += 1
                s["m"].mul_(b1).add_((1 - b1) * p.grad)
                s["v"].mul_(b2).add_((1 - b2) * p.grad ** 2)
                r = (s["m"] / (1 - b1 ** s["t"])) / ((s["v"] / (1 - b2 ** s["t"])).sqrt() + g["eps"])
                r += g["weight_decay"] * p
                size, far = p.norm(), r.norm()
                p.sub_(g["lr"] * (size / far if size > 0 and far > 0 else 1.0) * r)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, weight_decay=0.01, dampening=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, 0.05, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01, weight_decay=0.01),
    "centered": lambda p: torch.optim.RMSprop(p, 0.01, alpha=0.9, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1, weight_decay=0.01,
                                             initial_accumulator_value=0.5),
    "lion": lambda p: Lion(p, 0.01, weight_decay=0.1),
    "lamb": lambda p: Lamb(p, 0.02, weight_decay=0.1),
}
SCHEDULES = {
    "constant": lambda o: S.LambdaLR(o, lambda t: 1.0),
    "step": lambda o: S.StepLR(o, 7),
    "multi_step": lambda o: S.MultiStepLR(o, [3, 10, 11], gamma=0.5),
    "exponential": lambda o: S.ExponentialLR(o, 0.95),
    "linear": lambda o: S.LinearLR(o, total_iters=8),
    "cosine": lambda o: S.CosineAnnealingLR(o, 50, eta_min=1e-3),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 5, 2, eta_min=1e-3),
    "one_cycle": lambda o: S.OneCycleLR(o, 0.1, total_steps=50),
    "three_phase": lambda o: S.OneCycleLR(o, 0.1, total_steps=50, three_phase=True,
                                          anneal_strategy="linear"),
    "plateau": lambda o: S.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1, threshold=0.05),
    "callback": lambda o: S.LambdaLR(o, lambda t: 1 / (1 + 0.25 * t)),
}


def update(optimizer, p, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def advance(schedule, loss, left):
    if isinstance(schedule, S.ReduceLROnPlateau):
        schedule.step(loss.item())
    elif left:
        schedule.step()


def named(name, state):
    p = part(state, "net")
    optimizer = OPTIMIZERS[name.split("/")[0]](list(p.values()))
    schedule = SCHEDULES[name.split("/")[1]](optimizer)
    left = [50]

    def run(x):
        loss = loss_of(p, x)
        update(optimizer, p, loss)
        left[0] -= 1
        advance(schedule, loss, left[0])
        return [loss]
    return run


def adamw(state):
    p = part(state, "net")
    o = torch.optim.AdamW([{"params": [p["w1"], p["w2"]]},
                           {"params": [p["b1"], p["b2"]], "weight_decay": 0.0}],
                          lr=0.05, weight_decay=0.1)
    s = S.LambdaLR(o, lambda t: (t + 1) / 4 if t < 4 else
                   0.5 * (1 + math.cos(math.pi * min(t - 4, 16) / 16)))

    def run(x):
        loss = loss_of(p, x)
        o.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        o.step()
        s.step()
        return [loss, norm]
    return run


def clips(state):
    p = part(state, "net")
    o = torch.optim.SGD([{"params": [p["w1"], p["b1"]]},
                         {"params": [p["w2"], p["b2"]], "lr": 0.2, "momentum": 0.5}],
                        lr=0.05, momentum=0.9)

    def run(x):
        first, second = loss_of(p, x), net(p, x).abs().mean()
        o.zero_grad()
        (first + second).backward()
        torch.nn.utils.clip_grad_value_(list(p.values()), 0.5)
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), 0.4, math.inf)
        o.step()
        return [first, second, norm]
    return run


def frozen(state):
    p = part(state, "net")
    o = torch.optim.Adam([p["w2"], p["b2"]], lr=0.05)

    def run(x):
        loss = loss_of(p, x)
        update(o, p, loss)
        return [loss]
    return run


def ema(state):
    p, a = part(state, "net"), part(state, "average")
    o = torch.optim.SGD(list(p.values()), lr=0.1, momentum=0.9)

    def run(x):
        loss, averaged = loss_of(p, x), loss_of(a, x)
        update(o, p, loss)
        with torch.no_grad():
            for k in NAMES:
                a[k].mul_(0.9).add_(0.1 * p[k])
        return [loss, averaged]
    return run


def target(state):
    p, slow = part(state, "net"), part(state, "slow")
    o = torch.optim.RMSprop(list(p.values()), lr=0.01)

    def run(x):
        goal = x + 0.9 * net(slow, 2 * x)
        loss = F.mse_loss(net(p, x), goal.detach())
        update(o, p, loss)
        with torch.no_grad():
            for k in NAMES:
                slow[k].add_(0.25 * (p[k] - slow[k]))
        return [loss]
    return run


def smooth(state):
    p = part(state, "net")
    o = torch.optim.SGD(list(p.values()), lr=0.1, momentum=0.9, nesterov=True)
    s = S.OneCycleLR(o, 0.5, total_steps=20)
    y, left = torch.tensor([0, 1, 2, 2, 1, 0]), [20]

    def run(x):
        loss = F.cross_entropy(net(p, x), y, label_smoothing=0.1)
        update(o, p, loss)
        left[0] -= 1
        advance(s, loss, left[0])
        return [loss]
    return run


def own_lion(state):
    p = part(state, "net")
    o = Lion(list(p.values()), lr=0.01, weight_decay=0.1)

    def run(x):
        loss = loss_of(p, x)
        update(o, p, loss)
        return [loss]
    return run


def own_lamb(state):
    p = part(state, "net")
    o = Lamb(list(p.values()), lr=0.02, weight_decay=0.1)

    def run(x):
        loss = loss_of(p, x)
        update(o, p, loss)
        return [loss]
    return run


def gpt(state):
    p = part(state, "gpt")
    bare = [v for k, v in p.items() if k.endswith("_b") or k in ("n1_w", "n2_w")]
    rest = [v for k, v in p.items() if not (k.endswith("_b") or k in ("n1_w", "n2_w"))]
    o = torch.optim.AdamW([{"params": rest}, {"params": bare, "weight_decay": 0.0}], lr=0.03, weight_decay=0.1)
    ids, after = torch.tensor([[0, 3, 1], [4, 4, 2]]), torch.tensor([3, 1, 2, 4, 2, 0])

    def run(x):
        h = F.linear(x, p["in"]).reshape(2, 3, 4) + p["emb"][ids] + p["pos"]
        y = F.layer_norm(h, (4,), p["n1_w"], p["n1_b"])
        q, k, v = (F.linear(y, p[n]).reshape(2, 3, 2, 2).transpose(1, 2) for n in "qkv")
        scores = (q @ k.transpose(2, 3) / math.sqrt(2)).masked_fill(torch.ones(3, 3).triu(1) > 0, -math.inf)
        h = h + F.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 3, 4), p["proj"])
        y = F.layer_norm(h, (4,), p["n2_w"], p["n2_b"])
        h = h + F.linear(F.gelu(F.linear(y, p["fc1"], p["fc1_b"]), approximate="tanh"), p["fc2"], p["fc2_b"])
        loss = F.cross_entropy(F.linear(h.reshape(6, 4), p["emb"]), after)
        o.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        o.step()
        return [loss, norm]
    return run


def gradients(state):
    p = part(state, "net")
    o = torch.optim.Adam(list(p.values()), lr=0.05)

    def run(x):
        loss = loss_of(p, x)
        o.zero_grad(set_to_none=True)
        loss.backward()
        p["b1"].grad = None
        p["w2"].grad *= 0.5
        torch.nn.utils.clip_grad_value_(list(p.values()), 0.3)
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), 0.5, 3)
        o.step()
        return [loss, norm]
    return run


def accumulated(state):
    p = part(state, "net")
    o = torch.optim.AdamW([{"params": [p["w1"], p["w2"]]},
                           {"params": [p["b1"], p["b2"]], "weight_decay": 0.0}],
                          lr=0.05, weight_decay=0.1)
    s = S.LambdaLR(o, lambda t: (t + 1) / 2 if t < 2 else
                   0.5 * (1 + math.cos(math.pi * min(t - 2, 3) / 3)))
    runs = [0]

    def run(x):
        loss = loss_of(p, x)
        (loss / 4).backward()
        norm = torch.linalg.vector_norm(torch.cat([t.grad.flatten() for t in p.values()]))
        runs[0] += 1
        if runs[0] % 4 == 0:
            torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
            o.step()
            s.step()
            o.zero_grad()
        return [loss, norm]
    return run


def accumulated_two(state):
    p, q = part(state, "net"), part(state, "other")
    one = Lamb(list(p.values()), lr=0.02)
    two = torch.optim.SGD(list(q.values()), lr=0.05, momentum=0.9)
    runs = [0]

    def run(x):
        first, second = loss_of(p, x), loss_of(q, x)
        (first / 3).backward()
        (second / 2).backward()
        runs[0] += 1
        for o, k in ((one, 3), (two, 2)):
            if runs[0] % k == 0:
                o.step()
                o.zero_grad()
        return [first, second]
    return run


def gan(state):
    critic, maker = part(state, "critic"), part(state, "maker")
    oc = torch.optim.SGD(list(critic.values()), lr=0.05, momentum=0.9)
    om = torch.optim.Adam(list(maker.values()), lr=0.02)

    def run(x):
        loss = net(critic, net(maker, x).detach()).mean() - net(critic, x).mean()
        update(oc, critic, loss)
        maker_loss = -(net(critic, net(maker, x)) ** 2).mean()
        update(om, maker, maker_loss)
        return [loss, maker_loss]
    return run


RECIPES = {f.__name__: f for f in (accumulated, accumulated_two, adamw, clips, frozen, ema, target, smooth, own_lion, own_lamb, gpt,
                                 gradients, gan)}


def compare(peer, name, ranks, signatures):
    runs = 20 if name in RECIPES else 50
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([peer, name, str(ranks), *signatures, str(runs), folder],
                             capture_output=True, text=True, timeout=60)
        if out.returncode:
            return float("inf"), out.stderr.strip()
        lines = [[float(v) for v in line.split()] for line in out.stdout.splitlines()]
        state = load_safetensors(folder + "/first.0.safetensors")
        for t in state.values():
            t.requires_grad_(True)
        ddp = signatures[0] == "ddp"
        last = [load_safetensors(f"{folder}/last.{r}.safetensors") for r in range(ranks if ddp else 1)]
    run, apart = (RECIPES[name](state) if name in RECIPES else named(name, state)), 0.0
    if len(lines) != runs:
        return float("inf"), f"{len(lines)} lines"
    for i, line in enumerate(lines):
        want = torch.cat([t.detach().flatten() for t in run(data(i))])
        got = torch.tensor(line, dtype=torch.float64)
        if name == "accumulated" and (i + 1) % 4:  # there is a norm where there is an update
            if not ddp and not torch.isnan(got[-1]):
                return float("inf"), f"run {i + 1} does not update, but its norm is {got[-1]}"
            want, got = want[:-1], got[:-1]
        apart = max(apart, worst(got, want))
    for weights in last:
        for k, t in state.items():
            apart = max(apart, worst(weights[k], t.detach()))
    return apart, ""


def cases():
    for name in RECIPES:
        for ranks in (1, 2, 3):
            if not (name == "gpt" and ranks == 3):  # it has two sequences
                yield name, ranks, DDP
            for signatures in SIGNATURES if name != "gan" else ():
                yield name, ranks, signatures
    for i, optimizer in enumerate(OPTIMIZERS):
        for ranks in (1, 2, 3):
            yield f"{optimizer}/constant", ranks, SIGNATURES[(i + ranks) % len(SIGNATURES)]
        yield f"{optimizer}/constant", i % 3 + 1, DDP
    for schedule in SCHEDULES:
        yield f"sgd/{schedule}", 1, SIGNATURES[0]
        yield f"adam/{schedule}", 2, SIGNATURES[1]
        yield f"sgd/{schedule}", 3, DDP


def main():
    failed = 0
    for name, ranks, signatures in cases():
        apart, why = compare(sys.argv[1], name, ranks, signatures)
        ok = apart <= LIMIT
        failed += not ok
        print(f"{'ok' if ok else 'FAIL'} {name} ranks={ranks} parameters, states, data "
              f"{' '.join(signatures)}: {apart:.1e} {why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
