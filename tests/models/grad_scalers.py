#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tsr_grad_scaler beside PyTorch's algorithm, step by step: two optimizers whose gradients overflow
at random places, on 1 to 4 ranks, with growth, backoff, clipping, accumulation, checkpoints and
under tsr_ddp. PyTorch's own GradScaler works on GPUs alone, so that its algorithm stands here, around
PyTorch's optimizers. Needs python3-torch; without it the exit code is 77.

usage: grad_scalers.py PEER

PEER is tests/models/scaler_peer. Prints a line "ok ..." or "FAIL ..." a case.
"""
import math
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

A, B, LIMIT = (5, 3), (4,), 3e-6


class GradScaler:
    """torch.cuda.amp.GradScaler: _unscale_grads_, step and update."""

    def __init__(self, init_scale=65536.0, growth=2.0, backoff=0.5, interval=2000, enabled=True):
        self.scale = np.float32(init_scale)
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.tracker, self.found, self.enabled = 0, {}, enabled

    def unscale(self, name, grads):
        if not self.enabled:
            self.found[name] = False
            return
        inverse = float(np.float32(1 / np.float64(self.scale)))
        self.found[name] = any(not torch.isfinite(g).all() for g in grads)
        for g in grads:
            g.mul_(torch.tensor(inverse, dtype=torch.float32))

    def step(self, name, optimizer):
        if not self.found[name]:
            optimizer.step()

    def update(self):
        if not self.enabled:
            return
        if any(self.found.values()):
            self.scale = np.float32(np.float64(self.scale) * self.backoff)
            self.tracker = 0
        else:
            self.tracker += 1
            if self.tracker == self.interval:
                with np.errstate(over="ignore"):
                    grown = np.float32(np.float64(self.scale) * self.growth)
                self.scale = grown if np.isfinite(grown) else self.scale
                self.tracker = 0


def make_optimizer(kind, params):
    o = {"sgd": lambda: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
         "adam": lambda: torch.optim.Adam(params, lr=0.01, weight_decay=0.1),
         "adamw": lambda: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
         "rmsprop": lambda: torch.optim.RMSprop(params, lr=0.01, momentum=0.5),
         "adagrad": lambda: torch.optim.Adagrad(params, lr=0.1)}[kind]()
    return o


def reference(grads, opt):
    """The lines that the peer prints: (scale, tracker, steps and rate of a and b, found, values)."""
    scaler = GradScaler(opt.get("init_scale", 65536), opt.get("growth", 2), opt.get("backoff", 0.5),
                        opt.get("interval", 2000), opt.get("enabled", 1))
    values = [torch.ones(A), torch.ones(B)]
    kind, every, ddp = opt.get("kind", "sgd"), opt.get("accumulate", 1), opt.get("mode") == "ddp"
    optimizers = [make_optimizer(kind, [v]) for v in values]
    base = [o.param_groups[0]["lr"] for o in optimizers]
    steps, sums, lines = [0, 0], [None, None], []
    for run, row in enumerate(grads):
        fed = [torch.tensor(row[:15]).reshape(A), torch.tensor(row[15:])]
        scale = torch.tensor(scaler.scale) if scaler.enabled else torch.tensor(1.0)
        found = [-1, -1]
        for i in (0,) if ddp else (0, 1):
            with np.errstate(over="ignore"):
                g = fed[i] * scale
            sums[i] = g if sums[i] is None else sums[i] + g
            optimizers[i].param_groups[0]["lr"] = base[i] * 0.5 ** (steps[i] // 3)
            so_far = sums[i] / every
            found[i] = float(not torch.isfinite(so_far).all())
            if (run + 1) % every:
                continue
            values[i].grad = so_far
            scaler.unscale(i, [values[i].grad])
            if opt.get("clip_value"):
                torch.nn.utils.clip_grad_value_([values[i]], opt["clip_value"])
            if opt.get("clip_norm"):
                torch.nn.utils.clip_grad_norm_([values[i]], opt["clip_norm"])
            scaler.step(i, optimizers[i])
            steps[i] += not scaler.found[i]
            sums[i] = None
        if (run + 1) % every == 0:
            scaler.update()
        if ddp or opt.get("mode") == "hand" or not scaler.enabled:
            found = [-1, -1]
        rates = [b * 0.5 ** (s // 3) for b, s in zip(base, steps)]
        lines.append([float(scaler.scale) if scaler.enabled else 1.0, scaler.tracker,
                      steps[0], rates[0], steps[1], rates[1], *found]
                     + values[0].flatten().tolist() + values[1].tolist())
    return lines


def pattern(seed, runs, rate, large=False):
    """Gradients of which some runs have an infinity, a NaN, or an element that only the scale makes
    infinite, in a, in b or in both."""
    r = random.Random(seed)
    rows = np.array([[r.choice([-2, -1, -0.5, 0.25, 1, 3]) * r.random() for _ in range(19)]
                     for _ in range(runs)], dtype=np.float32)
    for row in rows:
        for first, last in ((0, 15), (15, 19)):
            if r.random() < rate:
                at = r.randrange(first, last)
                row[at] = r.choice([math.inf, -math.inf, math.nan, 1e36 if large else math.inf])
    return rows


def run_peer(peer, rows, opt, folder):
    path = folder + "/gradients"
    rows.astype(np.float32).tofile(path)
    args = [f"{k}={v}" for k, v in opt.items()]
    out = subprocess.run([peer, path, *args], capture_output=True, text=True, timeout=120)
    if out.returncode:
        return None, out.stderr.strip()
    return [[float(v) for v in line.split()] for line in out.stdout.splitlines()], ""


def compare(got, want):
    """What is wrong first, or "". Numbers of the scaler and steps are exact, values near."""
    if got is None or len(got) != len(want):
        return f"{got and len(got)} lines, {len(want)} expected"
    for i, (g, w) in enumerate(zip(got, want)):
        if g[:3] != w[:3] or g[4] != w[4] or g[6:8] != w[6:8]:
            return f"run {i}: {g[:8]}, expected {w[:8]}"
        if any(abs(a - b) > 1e-12 for a, b in ((g[3], w[3]), (g[5], w[5]))):
            return f"run {i}: rates {g[3]}, {g[5]}, expected {w[3]}, {w[5]}"
        for a, b in zip(g[8:], w[8:]):
            if not abs(a - b) <= LIMIT * max(1, abs(b)):
                return f"run {i}: a value is {a}, expected {b}"
    return ""


def cases():
    grow = {"interval": 2, "growth": 2, "backoff": 0.5}
    for ranks in (1, 2, 3, 4):
        for i, kind in enumerate(("sgd", "adam", "adamw", "rmsprop", "adagrad")):
            yield {"kind": kind, "ranks": ranks, "seed": 10 * ranks + i, **grow}
        yield {"ranks": ranks, "kind": "adam", "clip_norm": 0.7, "seed": ranks, **grow}
        yield {"ranks": ranks, "kind": "sgd", "clip_value": 0.4, "clip_norm": 1, "seed": ranks,
               "accumulate": 3, **grow}
        yield {"ranks": ranks, "kind": "sgd", "accumulate": 2, "seed": 50 + ranks, **grow}
        yield {"ranks": ranks, "kind": "adam", "param": "B", "data": "S(0)", "state": "S(0)",
               "seed": ranks, **grow}
        yield {"ranks": ranks, "kind": "sgd", "param": "S(0)", "data": "B", "seed": ranks, **grow}
        yield {"ranks": ranks, "mode": "hand", "kind": "adam", "clip_norm": 0.5, "seed": ranks,
               **grow}
        yield {"ranks": ranks, "mode": "ddp", "kind": "adam", "seed": ranks, **grow}
        yield {"ranks": ranks, "mode": "ddp", "kind": "sgd", "accumulate": 2, "clip_norm": 0.6,
               "seed": ranks, **grow}
    yield {"ranks": 3, "apart": 1, "kind": "adam", "seed": 5, **grow}
    yield {"ranks": 2, "lazy": 1, "kind": "adam", "seed": 7, **grow}
    yield {"ranks": 2, "enabled": 0, "kind": "adam", "seed": 8, "rate": 0}
    yield {"ranks": 2, "kind": "sgd", "growth": 1.7, "backoff": 0.3, "interval": 3, "seed": 9,
           "init_scale": 1000}
    yield {"ranks": 2, "kind": "sgd", "rate": 0, "interval": 1, "init_scale": 2.0 ** 120,
           "seed": 1}  # the scale stays below infinity
    yield {"ranks": 2, "kind": "sgd", "rate": 0.9, "seed": 2}  # below 1


def check(peer, opt):
    opt = dict(opt)
    seed, rate = opt.pop("seed"), opt.pop("rate", 0.25)
    small = opt.get("init_scale", 0) > 1e30
    rows = pattern(seed, 40, rate, large=True) * np.float32(2.0 ** -115 if small else 1)
    want = reference(rows, opt)
    with tempfile.TemporaryDirectory() as folder:
        got, why = run_peer(peer, rows, opt, folder)
    if opt.get("lazy"):
        want = want[-1:]
    return why or compare(got, want)


def check_resumed(peer, ranks, kind):
    """Saved in one process, loaded in another: the same lines."""
    opt = {"kind": kind, "ranks": ranks, "interval": 2}
    rows = pattern(30 + ranks, 24, 0.3)
    want = reference(rows, opt)
    with tempfile.TemporaryDirectory() as folder:
        first, why = run_peer(peer, rows, {**opt, "folder": folder + "/c", "save": 11}, folder)
        then, more = run_peer(peer, rows, {**opt, "folder": folder + "/c", "from": 11}, folder)
    return why or more or compare(first + then, want)


def check_left_out(peer, kind, ranks):
    """Of optimizers that PyTorch lacks: runs that are left out leave no trace. Scales are powers of
    two, so that values are equal to the last bit."""
    rows = pattern(40, 30, 0.3)
    good = np.isfinite(rows).all(axis=1)
    rows[~good, 0] = rows[~good, 15] = math.inf  # of both optimizers
    with tempfile.TemporaryDirectory() as folder:
        some, why = run_peer(peer, rows, {"kind": kind, "ranks": ranks}, folder)
        without, more = run_peer(peer, rows[good], {"kind": kind, "ranks": ranks}, folder)
    if why or more:
        return why or more
    kept = [line for line, ok in zip(some, good) if ok]
    if not 3 < good.sum() < 30:
        return "the pattern leaves out nothing, or all"
    return "" if [k[2:6] + k[8:] for k in kept] == [k[2:6] + k[8:] for k in without] else "differ"


def main():
    failed = 0

    def tell(what, why):
        nonlocal failed
        failed += why != ""
        print(f"{'FAIL' if why else 'ok'} {what} {why}", flush=True)

    for opt in cases():
        tell(" ".join(f"{k}={v}" for k, v in opt.items()), check(sys.argv[1], opt))
    for ranks in (1, 3):
        for kind in ("sgd", "adam"):
            tell(f"resumed {kind} ranks={ranks}", check_resumed(sys.argv[1], ranks, kind))
        for kind in ("lamb", "lion", "own"):
            tell(f"left out {kind} ranks={ranks}", check_left_out(sys.argv[1], kind, ranks))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
