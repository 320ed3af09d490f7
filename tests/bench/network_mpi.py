#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""all_reduce of one rank on each of several machines beside Open MPI's, in turns, with medians.

usage: network_mpi.py TESSERA BENCH_COLLECTIVE [--hosts N] [--rounds N] [--seconds S] [BYTES...]

The machines are network namespaces, so it needs root. Without mpicc and mpirun it shows our own
times alone.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "dist", "world"))
from network import Network  # noqa: E402

# What mpirun starts its daemons with, instead of ssh: the namespace of an address. All have one host
# name, but must not share their files.
AGENT = """#!/bin/sh
host=$1
shift
mkdir -p {folder}/$host
export TMPDIR={folder}/$host PMIX_MCA_gds=hash
exec ip netns exec {prefix}$((${{host##*.}} - 1)) sh -c "$*"
"""


def lines(text, into):
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[0].isdigit():
            into.setdefault((int(fields[0]), fields[1]), []).append(float(fields[2]))


def mpi_command(net, folder, tail):
    """None without Open MPI."""
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        print("no mpicc or no mpirun: nothing to compare with", file=sys.stderr)
        return None
    program, agent = os.path.join(folder, "collective_mpi"), os.path.join(folder, "agent")
    subprocess.run(["mpicc", "-O2", "-o", program, os.path.join(HERE, "collective_mpi.c")],
                   check=True)
    with open(agent, "w", encoding="utf-8") as f:
        f.write(AGENT.format(folder=folder, prefix=net.names[0][:-1]))
    os.chmod(agent, 0o755)
    hosts = ",".join(f"10.77.0.{i + 1}:1" for i in range(net.n))
    return ["ip", "netns", "exec", net.names[0], "mpirun", "--allow-run-as-root", "--bind-to",
            "none", "--mca", "rtc", "^hwloc", "--mca", "mpi_yield_when_idle", "1", "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self", "--mca", "pml",
            "ob1", "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
            "--host", hosts, "-n", str(net.n), program, *tail]


def measure(args, sizes):
    times = {}
    tail = [str(args.seconds), *map(str, sizes)]
    with tempfile.TemporaryDirectory() as folder, \
            Network(args.hosts, os.path.abspath(args.tessera), folder) as net:
        theirs = mpi_command(net, folder, tail)
        for _ in range(args.rounds):
            lines("".join(net.run(1, [os.path.abspath(args.bench), *tail])), times)
            if theirs:
                done = subprocess.run(theirs, stdout=subprocess.PIPE, check=True, text=True)
                lines(done.stdout, times)
    return times


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tessera")
    p.add_argument("bench")
    p.add_argument("--hosts", type=int, default=4)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=1)
    p.add_argument("sizes", nargs="*", type=int)
    args = p.parse_intermixed_args()
    sizes = args.sizes or [64, 4096, 65536, 1 << 20, 25 << 20]
    times = measure(args, sizes)
    print(f"{'bytes':>10} {'arena/us':>12} {'heap/us':>12} {'mpi/us':>12} {'mpi : arena':>12} "
          f"{'mpi : heap':>12}")
    for size in sizes:
        middle = {name: statistics.median(times[size, name])
                  for name in ("arena", "heap", "mpi") if (size, name) in times}
        row = f"{size:>10} {middle['arena']:>12.1f} {middle['heap']:>12.1f}"
        if "mpi" in middle:
            row += (f" {middle['mpi']:>12.1f} {middle['mpi'] / middle['arena']:>12.2f}"
                    f" {middle['mpi'] / middle['heap']:>12.2f}")
        print(row)


main()
