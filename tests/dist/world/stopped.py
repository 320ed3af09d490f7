#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that stands still (SIGSTOP) while all are inside collectives: it is the one that is blamed, by
every rank, on one node and on two. usage: stopped.py TESSERA LAUNCH_CHILD [ROUNDS]"""
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

TESSERA, CHILD = (os.path.abspath(p) for p in sys.argv[1:3])
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 1
NRANKS = 4


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def begin(nnodes, dumps):
    """The launchers, and each rank's process."""
    nodes, pid_of = [], {}
    port = free_port()
    for r in range(nnodes):
        many = ["--nnodes", str(nnodes), "--node-rank", str(r), "--master-addr", "127.0.0.1",
                "--master-port", port] if nnodes > 1 else []
        nodes.append(subprocess.Popen(
            [TESSERA, "launch", "-n", str(NRANKS // nnodes), "--timeout", "3", "--signal-timeout", "0.3",
             *many, "sh", "-c", 'echo "rank $RANK pid $$."; exec "$0" stream', CHILD],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TESSERA_ARENA_BYTES": str(1 << 27),
                 "TESSERA_FLIGHT_DIR": dumps}))
    for node in nodes:
        begun = 0
        while begun < NRANKS // nnodes:
            line = node.stdout.readline()
            if not line:
                sys.exit("FAILED: the ranks ended before they streamed")
            begun += line == "streams.\n"
            m = re.match(r"rank (\d+) pid (\d+)\.$", line)
            if m:
                pid_of[int(m[1])] = int(m[2])
    return nodes, pid_of


def run(nnodes, victim, after_s):
    """What is wrong; "" if nothing is."""
    with tempfile.TemporaryDirectory() as dumps:
        nodes, pid_of = begin(nnodes, dumps)
        time.sleep(after_s)
        os.kill(pid_of[victim], signal.SIGSTOP)
        text = "".join(node.communicate(timeout=60)[0] for node in nodes)
        judged = json.loads(subprocess.run([TESSERA, "flight", "--json", dumps], capture_output=True,
                                           check=True).stdout)
    blamed = set(re.findall(r"ranks? ([\d, ]+) did not (?:come to|finish)", text))
    if blamed == {str(victim)} and judged["guilty"] == [victim]:
        return ""
    return (f"{nnodes} nodes, rank {victim} was stopped after {after_s:.3f} s; the ranks blame {sorted(blamed)}, "
            f"tessera flight says: {judged['verdict']}\n{text}")


seed = int(os.environ.get("TESSERA_SEED", time.time_ns() % 10**6))
print(f"seed {seed}")
random.seed(seed)
cases = [(nnodes, victim, 0.1 + 0.3 * random.random())
         for _ in range(ROUNDS) for victim in range(NRANKS) for nnodes in (1, 2)]
with ThreadPoolExecutor(2) as pool:
    wrong = [text for text in pool.map(lambda case: run(*case), cases) if text]
for text in wrong:
    print(text)
if wrong:
    sys.exit(f"FAILED: {len(wrong)} of {len(cases)} runs")
print(f"{len(cases)} runs")
