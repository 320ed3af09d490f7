# SPDX-License-Identifier: Apache-2.0
"""tsr_ddp against PyTorch's DistributedDataParallel over gloo: from the same weights and data, the
losses of each rank, its averaged gradients and its final parameters and buffers."""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

import peer

FAILED = []
DTYPES = {"f64": torch.float64, "f32": torch.float32}


class Half(nn.Module):
    """Two linear layers, of which some ranks leave out the second."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3072, 10), nn.Linear(3072, 10)
        self.skips = False

    def forward(self, x):
        x = x.flatten(1)
        return self.a(x) if self.skips else self.a(x) + self.b(x)


MODELS = {"mobilenet_v2": peer.MobileNetV2, "mlp": peer.Mlp, "half": Half}


def check(ok, text):
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    if not ok:
        FAILED.append(text)


def steps_of(case, rank):
    return case["steps"][rank] if isinstance(case["steps"], list) else case["steps"]


def worker(rank, case, work):
    """One rank of PyTorch's."""
    torch.set_num_threads(1)
    world = case["ranks"]
    dist.init_process_group("gloo", init_method=f"file://{work}/store", rank=rank, world_size=world)
    dtype = DTYPES[case["dtype"]]
    net = MODELS[case["model"]]()
    net.load_state_dict(peer.load_safetensors(f"{work}/init"), strict=False)
    net.to(dtype).train()
    if case.get("unused_from") is not None:
        net.skips = rank >= case["unused_from"]
    ddp = DDP(net, bucket_cap_mb=case.get("bucket_mb", 25),
              find_unused_parameters=case.get("find_unused", False),
              static_graph=case.get("static_graph", False),
              broadcast_buffers=not case.get("no_buffers", False))
    if case.get("hook") == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    args = {"lr": case["lr"], "weight_decay": case.get("weight_decay", 0)}
    opt = (torch.optim.Adam(net.parameters(), **args) if case["optimizer"] == "adam" else
           torch.optim.SGD(net.parameters(), momentum=case.get("momentum", 0), **args))
    losses, grads = [], None

    def loop():
        nonlocal grads
        for i in range(steps_of(case, rank)):
            x, y = (t[i] for t in torch.load(f"{work}/data.{rank}.pt"))
            syncs = (i + 1) % case.get("accumulate", 1) == 0
            if syncs:
                loss = nn.functional.cross_entropy(ddp(x.to(dtype)), y)
                loss.backward()
                if grads is None:
                    grads = {k: p.grad.clone() for k, p in net.named_parameters()
                             if p.grad is not None}
                opt.step()
                opt.zero_grad(set_to_none=True)
            else:
                with ddp.no_sync():
                    loss = nn.functional.cross_entropy(ddp(x.to(dtype)), y)
                    loss.backward()
            losses.append(loss.item())
    if case.get("join"):
        with Join([ddp], divide_by_initial_world_size=case["join"] != "active"):
            loop()
    else:
        loop()
    torch.save((losses, grads, net.state_dict()), f"{work}/torch.{rank}.pt")
    dist.barrier()


def write_inputs(case, work, images, labels):
    batch, at = case["batch"], 0
    dtype = DTYPES[case["dtype"]]
    for rank in range(case["ranks"]):
        xs, ys = [], []
        with open(f"{work}/data.{rank}.bin", "wb") as f:
            for _ in range(steps_of(case, rank)):
                x, y = images[at:at + batch], labels[at:at + batch]
                at += batch
                f.write(x.to(dtype).numpy().tobytes() + y.numpy().tobytes())
                xs.append(x)
                ys.append(y)
        torch.save((xs, ys), f"{work}/data.{rank}.pt")


def read_gradients(path, dtype):
    kind = {"f64": np.float64, "f32": np.float32}[dtype]
    out = {}
    with open(path, "rb") as f:
        while line := f.readline():
            name, size = line.decode().split()
            out[name] = torch.from_numpy(np.frombuffer(f.read(int(size)), kind).copy())
    return out


def run_tessera(args, case, work):
    steps = case["steps"] if isinstance(case["steps"], list) else [case["steps"]]
    cmd = [args.tessera, "launch", "-n", str(case["ranks"]), args.peer,
           "--model", case["model"], "--dtype", case["dtype"], "--optimizer", case["optimizer"],
           "--init", f"{work}/init", "--data", f"{work}/data", "--out", f"{work}/out",
           "--steps", ",".join(map(str, steps)), "--batch", str(case["batch"]),
           "--lr", str(case["lr"]), "--momentum", str(case.get("momentum", 0)),
           "--weight-decay", str(case.get("weight_decay", 0)),
           "--accumulate", str(case.get("accumulate", 1)), "--hook", case.get("hook", "none"),
           "--bucket-mb", str(case.get("bucket_mb", 25))]
    for option in ("find_unused", "static_graph", "no_buffers"):
        if case.get(option):
            cmd.append("--" + option.replace("_", "-"))
    for option in ("join", "unused_from"):
        if case.get(option) is not None:
            cmd += ["--" + option.replace("_", "-"), str(case[option])]
    env = dict(os.environ, OMP_NUM_THREADS="1")
    got = subprocess.run(cmd, env=env, capture_output=True, text=True, timeout=600)
    return got.returncode == 0, got.stdout + got.stderr


def distance(got, want, scale):
    """The largest difference of a tensor, by the largest value there or `scale` if that is more:
    gradients behind batch norm are sums that cancel."""
    worst, where = 0.0, ""
    for name, w in want.items():
        if name.endswith("num_batches_tracked"):
            continue
        if name not in got:
            return 9.0, name + " is missing"
        g, w = got[name].flatten().double(), w.flatten().double()
        d = ((g - w).abs().max() / w.abs().max().clamp(min=scale)).item() if w.numel() else 0.0
        d = peer.number(d)
        if d > worst:
            worst, where = d, name
    return worst, where


def compare(args, case, images, labels):
    torch.manual_seed(case.get("seed", 1))
    limit = case.get("limit", 1e-7)
    with tempfile.TemporaryDirectory() as work:
        net = MODELS[case["model"]]()
        peer.save_safetensors(f"{work}/init", net.state_dict())
        write_inputs(case, work, images, labels)
        mp.start_processes(worker, args=(case, work), nprocs=case["ranks"], start_method="fork")
        ok, text = run_tessera(args, case, work)
        if not ok:
            check(False, f"{case['name']}: {text}")
            return
        loss = grad = state = 0.0
        where = ""
        for rank in range(case["ranks"]):
            losses, grads, final = torch.load(f"{work}/torch.{rank}.pt")
            with open(f"{work}/out.{rank}.losses") as f:
                mine = [float(line) for line in f]
            loss = max(loss, peer.relative(mine, losses))
            if grads is not None:
                got = read_gradients(f"{work}/out.{rank}.grad", case["dtype"])
                extra = sorted(set(got) - set(grads))
                d, name = (9.0, extra[0] + " is extra") if extra else distance(got, grads, 1e-3)
                if d >= grad:
                    grad, where = d, name
            d, name = distance(peer.load_safetensors(f"{work}/out.{rank}.safetensors"), final, 1)
            if d >= state:
                state, where = d, name
        check(max(loss, grad, state) <= limit,
              f"{case['name']}: losses within {loss:.1e}, first gradients {grad:.1e}, parameters and "
              f"buffers {state:.1e} {where} of PyTorch's DDP (limit {limit:.0e})")


def cases(full):
    mlp = {"model": "mlp", "dtype": "f64", "optimizer": "sgd", "lr": 0.02, "momentum": 0.9,
           "batch": 8, "steps": 5, "ranks": 2}
    # Batches of a few rows are chaotic there: the last planes are 1 x 1.
    net = dict(mlp, model="mobilenet_v2", lr=1e-3, momentum=0, batch=32)
    half = dict(mlp, model="half", find_unused=True, unused_from=1)
    yield dict(mlp, name="mlp, sgd, 2 ranks")
    yield dict(mlp, name="mlp, sgd, 3 ranks, small buckets", ranks=3, bucket_mb=0.25)
    yield dict(mlp, name="mlp, adam, 2 ranks", optimizer="adam", lr=1e-3)
    yield dict(net, name="mobilenet_v2, sgd, 2 ranks")
    yield dict(net, name="mobilenet_v2, adam, 3 ranks", optimizer="adam", ranks=3, lr=1e-5)
    yield dict(mlp, name="mlp, no_sync for 2 of 3 runs", accumulate=3, steps=7)
    yield dict(net, name="mobilenet_v2, no_sync for 1 of 2 runs", accumulate=2, steps=6)
    yield dict(mlp, name="mlp, join, 4 and 2 batches", join="initial", steps=[4, 2])
    yield dict(mlp, name="mlp, join by active ranks, 2, 4 and 3 batches", join="active", ranks=3,
               steps=[2, 4, 3])
    yield dict(net, name="mobilenet_v2, join, 2 and 4 batches", join="initial", steps=[2, 4])
    yield dict(half, name="unused on rank 1")
    yield dict(half, name="unused on both ranks, weight decay", unused_from=0, weight_decay=0.1)
    yield dict(half, name="unused on rank 2 of 3, no_sync", ranks=3, unused_from=2, accumulate=2,
               steps=4)
    yield dict(mlp, name="mlp, f32, fp16 compression", dtype="f32", hook="fp16", limit=2e-3, steps=3)
    if full:
        yield dict(mlp, name="mlp, adam, weight decay, 3 ranks", optimizer="adam", ranks=3,
                   weight_decay=0.01, lr=1e-3)
        yield dict(net, name="mobilenet_v2, sgd, 3 ranks, no buffers", ranks=3, no_buffers=True)
        yield dict(net, name="mobilenet_v2, small buckets", bucket_mb=0.5)
        yield dict(net, name="mobilenet_v2, adam, join by active ranks", optimizer="adam", lr=1e-5,
                   join="active", steps=[3, 1])
        yield dict(half, name="static graph, unused on both ranks", unused_from=0,
                   find_unused=False, static_graph=True)
        yield dict(net, name="mobilenet_v2, join and no_sync", join="initial", steps=[4, 2],
                   accumulate=2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", required=True, help="tests/models/ddp_peer")
    p.add_argument("--tessera", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--full", action="store_true")
    p.add_argument("--only", default="")
    args = p.parse_args()
    images, labels = peer.read_cifar10(args.data, 640)
    for case in cases(args.full):
        if args.only in case["name"]:
            compare(args, case, images, labels)
    print(f"{len(FAILED)} failed")
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
