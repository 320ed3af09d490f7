#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes fixture.json: the losses that PyTorch computes in f64 from Tessera's own initial weights on
the synthetic set. Needs Debian's python3-torch.

usage: make_fixture.py --example PROG --synthetic PROG
"""
import argparse
import hashlib
import json
import os
import tempfile

import torch
from torch import nn

import fixture_runs
import peer


class LocalBatchNorm(nn.BatchNorm2d):
    """Per-part statistics: the balanced parts of the batch, each normalised by itself."""
    parts = 2

    def forward(self, x):
        return torch.cat([nn.functional.batch_norm(part, None, None, self.weight, self.bias, True, 0,
                                                   self.eps)
                          for part in x.tensor_split(self.parts)])


def localize(net):
    for m in net.modules():
        if type(m) is nn.BatchNorm2d:
            m.__class__ = LocalBatchNorm


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--example", required=True)
    p.add_argument("--synthetic", required=True)
    args = p.parse_args()
    out = {}
    with tempfile.TemporaryDirectory() as work:
        fixture_runs.make_data(args.synthetic, work + "/data")
        for case in fixture_runs.CASES:
            init = work + "/init.safetensors"
            # Tessera's initial values: no steps, then saved.
            error = fixture_runs.run(fixture_runs.command(
                args.example, work + "/data", case, ["--epochs", "0", "--save", init]))
            if error:
                raise SystemExit(error)
            net = peer.MODELS[fixture_runs.option(case, "--model")]().double()
            missing, extra = net.load_state_dict(peer.load_safetensors(init), strict=False)
            if extra or any(not m.endswith("num_batches_tracked") for m in missing):
                raise SystemExit(f"{case}: missing {missing}, extra {extra}")
            if fixture_runs.option(case, "--bn") == "local":
                localize(net)
            batch = int(fixture_runs.option(case, "--batch-size"))
            images, labels = peer.read_cifar10(work + "/data", batch * fixture_runs.STEPS)
            with open(init, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            out[case] = {"initial_sha256": digest,
                         "losses": peer.train(net, images, labels, batch, fixture_runs.STEPS,
                                              fixture_runs.LR, fixture_runs.MOMENTUM)}
            print(case, out[case]["losses"])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixture.json"), "w",
              encoding="utf-8") as f:
        json.dump({"by": f"PyTorch {torch.__version__}, f64", "cases": out}, f, indent=1)
        f.write("\n")


main()
