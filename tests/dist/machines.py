#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several machines: network namespaces on a bridge, a launcher in each. Trains over them, compares
with one machine, and cuts a machine off. usage: machines.py TESSERA TRAIN SYNTHETIC DDP_TRAIN CHILD

Exits with 77 (skipped) where network namespaces can't be made."""
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

TESSERA, TRAIN, SYNTHETIC, DDP_TRAIN, CHILD = (os.path.abspath(p) for p in sys.argv[1:6])
NAME = f"tsr{os.getpid()}"
PORT = 29517
WORK = tempfile.TemporaryDirectory()
checks = 0


def check(ok, text):
    global checks
    checks += 1
    if not ok:
        raise AssertionError(text)


def ip(*args, netns=None, may_fail=False):
    inside = ["-n", netns] if netns else []
    p = subprocess.run(["ip", *inside, *args], capture_output=True, text=True)
    if p.returncode and not may_fail:
        raise OSError(f"ip {' '.join(args)}: {p.stderr.strip()}")


class Network:
    """Hosts 10.77.0.1, .2, ... on a bridge in a namespace of its own."""

    def __init__(self, n):
        self.n = n
        self.names = [f"{NAME}h{i}" for i in range(n)]
        self.hub = NAME + "hub"

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self):
        for name in [self.hub, *self.names]:
            ip("netns", "add", name)
        ip("link", "add", "br0", "type", "bridge", netns=self.hub)
        ip("link", "set", "br0", "up", netns=self.hub)
        for i, name in enumerate(self.names):
            ip("link", "add", f"p{i}", "type", "veth", "peer", "name", "eth0", "netns", name,
               netns=self.hub)
            ip("link", "set", f"p{i}", "master", "br0", "up", netns=self.hub)
            ip("addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0", netns=name)
            ip("link", "set", "eth0", "up", netns=name)
            ip("link", "set", "lo", "up", netns=name)

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            ip("netns", "del", name, may_fail=True)

    def cut(self, i):
        ip("link", "set", f"p{i}", "down", netns=self.hub)

    def start(self, i, ranks, program, timeout=20):
        command = ["ip", "netns", "exec", self.names[i], TESSERA, "launch", "--nnodes", str(self.n),
                   "--node-rank", str(i), "--master-addr", "10.77.0.1", "--master-port", str(PORT),
                   "-n", str(ranks), "--timeout", str(timeout), "--", *program]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": WORK.name}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=env, cwd=WORK.name)

    def run(self, ranks, program):
        running = [self.start(i, ranks, program) for i in range(self.n)]
        texts = []
        for i, p in enumerate(running):
            try:
                texts.append(p.communicate(timeout=120)[0])
            except subprocess.TimeoutExpired:
                for q in running:
                    q.kill()
                raise AssertionError(f"host {i} hangs: {program}") from None
        for i, p in enumerate(running):
            check(p.returncode == 0, f"host {i}: exit code {p.returncode}\n" + "\n".join(texts))
        return texts

    def ports(self):
        """What is listened at on the hosts."""
        found = []
        for name in self.names:
            out = subprocess.run(["ip", "netns", "exec", name, "cat", "/proc/net/tcp"],
                                 capture_output=True, text=True).stdout
            found += [line.split()[1] for line in out.splitlines()[1:] if line.split()[3] == "0A"]
        return found


def train(extra, runner):
    """Losses of some steps of a convnet in f64."""
    metrics = f"{WORK.name}/metrics.jsonl"
    runner([TRAIN, "--data", f"{WORK.name}/data", "--model", "convnet", "--dtype", "f64", "--steps",
            "4", "--batch-size", "24", "--no-eval", "--no-shuffle", "--no-augment", "--quiet",
            "--metrics", metrics, *extra])
    with open(metrics, encoding="utf-8") as f:
        losses = [json.loads(line)["loss"] for line in f]
    os.unlink(metrics)
    return losses


def run_alone(program):
    subprocess.run(program, check=True, capture_output=True, cwd=WORK.name,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})


def distance(got, want):
    if not len(got) == len(want) == 4 or not all(map(math.isfinite, got)):
        return 9
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def test_training(hosts, ranks, want):
    with Network(hosts) as net:
        for sbp in ("B", "S(0)"):
            n = hosts * ranks
            placement = "cpu:[" + ",".join(map(str, range(n))) + "]"
            got = train(["--placement", placement, "--sbp-params", sbp],
                        lambda program: net.run(ranks, program))
            check(distance(got, want) < 1e-10,
                  f"{hosts} hosts x {ranks}, parameters {sbp}: {got}, one rank: {want}")
        check(not net.ports(), f"ports are left: {net.ports()}")
        if hosts * ranks == 2:
            texts = "".join(net.run(ranks, [DDP_TRAIN]))
            check(texts.count("w = [[2.0000], [3.0000]]") == 2, texts)


def test_cut(hosts, ranks, cut, timeout=3):
    """The others report it within the timeout; nothing stays, on either side."""
    with Network(hosts) as net:
        running = [net.start(i, ranks, [CHILD, "forever"], timeout) for i in range(hosts)]
        lines = [[] for _ in running]
        try:
            for i, p in enumerate(running):
                while not any("has begun" in line for line in lines[i]):
                    line = p.stdout.readline()
                    check(line, f"host {i} ended: {lines[i]}")
                    lines[i].append(line)
            net.cut(cut)
            start = time.monotonic()
            for i, p in enumerate(running):
                rest = p.communicate(timeout=60)[0]
                lines[i] += rest.splitlines(True)
            seconds = time.monotonic() - start
        finally:
            for p in running:
                p.poll() is None and p.kill()
        for i, p in enumerate(running):
            text = "".join(lines[i])
            check(p.returncode not in (0, None), f"host {i}: exit code {p.returncode}: {text}")
            ranks = re.search(r"rank \d+ after [0-9.]+ s: TSR_ERR_(TIMEOUT|DEAD|REMOTE)", text)
            launcher = re.search(r"^tessera launch: the launcher of node \d+ \(\S+\) is gone",
                                 text, re.MULTILINE)
            check(ranks or launcher, f"host {i} says nothing of it: {text}")
        told = [float(t) for i in range(hosts) if i != cut
                for t in re.findall(r"told after ([0-9.]+) s", "".join(lines[i]))]
        gone = any("is gone" in line for i in range(hosts) if i != cut for line in lines[i])
        check(told or gone, "nobody was told:\n" + "".join(sum(lines, [])))
        check(seconds < timeout + 20, f"took {seconds:.1f} s")
        print(f"host {cut} of {hosts} cut off: "
              + (f"ranks told after {max(told):.1f} s" if told else "told by the launchers")
              + f" (timeout {timeout} s), all gone after {seconds:.1f} s", flush=True)


def main():
    try:
        with Network(1):
            pass
    except OSError as e:
        print(f"skipped: {e}")
        return 77
    subprocess.run([SYNTHETIC, f"{WORK.name}/data", "200"], check=True, capture_output=True)
    want = train(["--ranks", "1"], run_alone)
    test_training(2, 1, want)
    test_training(2, 2, want)
    test_training(3, 2, want)
    test_cut(2, 2, 1)
    test_cut(3, 1, 2)
    test_cut(2, 1, 0)
    print(f"{checks} checks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
