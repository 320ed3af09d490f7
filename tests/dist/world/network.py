# SPDX-License-Identifier: Apache-2.0
"""Machines for tests and benchmarks: network namespaces on a bridge."""
import os
import subprocess

NAME = f"tsr{os.getpid()}"
PORT = 29517


def ip(*args, netns=None, may_fail=False):
    inside = ["-n", netns] if netns else []
    p = subprocess.run(["ip", *inside, *args], capture_output=True, text=True)
    if p.returncode and not may_fail:
        raise OSError(f"ip {' '.join(args)}: {p.stderr.strip()}")


class Network:
    """Hosts 10.77.0.1, .2, ... on a bridge in a namespace of its own. OSError: can't be made."""

    def __init__(self, n, tessera, folder):
        self.n, self.tessera, self.folder = n, tessera, folder
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
        command = ["ip", "netns", "exec", self.names[i], self.tessera, "launch", "--nnodes", str(self.n),
                   "--node-rank", str(i), "--master-addr", "10.77.0.1", "--master-port", str(PORT),
                   "-n", str(ranks), "--timeout", str(timeout), "--", *program]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": self.folder}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=env, cwd=self.folder)

    def run(self, ranks, program):
        """What each host prints. AssertionError: one fails, or hangs."""
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
            if p.returncode:
                raise AssertionError(f"host {i}: exit code {p.returncode}\n" + "\n".join(texts))
        return texts

    def ports(self):
        """What is listened at on the hosts."""
        found = []
        for name in self.names:
            out = subprocess.run(["ip", "netns", "exec", name, "cat", "/proc/net/tcp"],
                                 capture_output=True, text=True).stdout
            found += [line.split()[1] for line in out.splitlines()[1:] if line.split()[3] == "0A"]
        return found

    def sent_and_received(self, i):
        """Bytes over the host's link, as its interface counts them."""
        found = []
        for way in ("tx", "rx"):
            out = subprocess.run(["ip", "netns", "exec", self.names[i], "cat",
                                  f"/sys/class/net/eth0/statistics/{way}_bytes"],
                                 capture_output=True, text=True, check=True).stdout
            found.append(int(out))
        return found
