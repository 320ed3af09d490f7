#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that goes wrong between ranks, as processes under `tessera launch`: who is told what,
how soon, and what is left behind. usage: misuse.py TESSERA MISUSE_CHILD [--strict]

--strict: by the figures that are asked for (1 s after detection); else with room for a busy machine.
"""
import glob
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

TESSERA, CHILD = (os.path.abspath(p) for p in sys.argv[1:3])
SLACK = 1.0 if "--strict" in sys.argv else 8.0
TIMEOUT = 2.0  # of a collective
# A network and a /dev/shm of its own, where that is allowed: nobody else's ports and files are seen.
if os.environ.get("MISUSE_APART") is None:
    os.environ["MISUSE_APART"] = "1"
    apart = ["unshare", "--net", "--mount", "sh", "-c",
             'ip link set lo up && mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
    try:
        if subprocess.run([*apart, "true"], capture_output=True).returncode == 0:
            os.execvp(apart[0], [*apart, sys.executable, *sys.argv])
    except OSError:
        pass
    os.environ["MISUSE_APART"] = "0"
MARK = f"TESSERA_MISUSE_MARK={os.getpid()}.{time.time()}"
WORK = tempfile.TemporaryDirectory()
failed = 0


def fail(name, text):
    global failed
    failed += 1
    print(f"FAIL {name}: {text}", flush=True)


def marked_processes():
    """Processes that carry this test's mark in their environment, and are no zombies."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if MARK.encode() not in f.read():
                    continue
            with open(os.path.dirname(path) + "/stat", encoding="utf-8", errors="replace") as f:
                state = f.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.append(os.path.basename(os.path.dirname(path)))
    return found


def listening():
    """Ports of this network namespace that somebody listens at."""
    ports = set()
    if os.environ["MISUSE_APART"] == "0":
        return ports
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as f:
                for line in f.readlines()[1:]:
                    fields = line.split()
                    if fields[3] == "0A":
                        ports.add((path, fields[1]))
        except OSError:
            pass
    return ports


def files():
    shared = ["/dev/shm/*"] if os.environ["MISUSE_APART"] == "1" else []
    return {p for pattern in (*shared, WORK.name + "/*") for p in glob.glob(pattern)}


def run(args, env=None, timeout=60):
    name, value = MARK.split("=")
    e = {**os.environ, "OMP_NUM_THREADS": "1", name: value, "TMPDIR": WORK.name,
         "XDG_RUNTIME_DIR": WORK.name, **(env or {})}
    start = time.monotonic()
    p = subprocess.run([TESSERA, "launch", *args], capture_output=True, text=True, env=e,
                       timeout=timeout, cwd=WORK.name)
    return p.returncode, p.stdout + p.stderr, time.monotonic() - start


def told_after(text):
    return [float(t) for t in re.findall(r"rank \d+ after ([0-9.]+) s", text)]


def scenario(name, n=2, code=1, says=(), every=(), within=0.0, args=(), total=None, program=None):
    """says: in the output; every: what each rank that is told must be told; within: seconds that
    detection may take (a collective's timeout)."""
    before_ports, before_files = listening(), files()
    rc, text, seconds = run(["-n", str(n), "--timeout", str(TIMEOUT), *args,
                             *(program or [CHILD, name])])
    problems = []
    if rc != code:
        problems.append(f"exit code {rc}, not {code}")
    for part in says:
        if not re.search(part, text):
            problems.append(f"nothing says /{part}/")
    told = [line for line in text.splitlines() if re.search(r"rank \d+ after", line)]
    for line in told:
        for part in every:
            if not re.search(part, line):
                problems.append(f"/{part}/ is not in: {line}")
    late = [t for t in told_after(text) if t > within + SLACK]
    if late:
        problems.append(f"told after {late} s")
    if seconds > (total if total is not None else within + 2 * SLACK + 1):
        problems.append(f"took {seconds:.1f} s")
    time.sleep(0.05)
    for what, left in (("processes", marked_processes()), ("ports", listening() - before_ports),
                       ("files", files() - before_files)):
        if left:
            problems.append(f"{what} are left: {sorted(left)}")
    if problems:
        fail(name, "; ".join(problems) + "\n" + text)
    else:
        slowest = max(told_after(text), default=0.0)
        print(f"ok   {name}: told after {slowest:.2f} s, all gone after {seconds:.2f} s", flush=True)


both = (r"rank 0", r"rank 1", r"misuse_child\.c:\d+.*misuse_child\.c:\d+", r"#\d+.*#\d+")
# Calls that do not fit: at once, on both ranks, with both calls.
scenario("sizes", says=["rank 0 after", "rank 1 after"], every=(*both, "f32", r"\[4\]", r"\[5\]"))
scenario("kinds", says=["rank 0 after", "rank 1 after"], every=(*both, "all_reduce", "broadcast"))
scenario("dtypes", says=["rank 0 after", "rank 1 after"], every=(*both, "i32", "i64"))
scenario("ops", says=["rank 0 after", "rank 1 after"], every=(*both, "sum", "max"))
scenario("roots", says=["rank 0 after", "rank 1 after"], every=(*both, "root 0", "root 1"))
scenario("async_sizes", says=["rank 0 after", "rank 1 after"], every=both)
scenario("receives", says=["MISMATCH"], every=(r"\[4\]|rank 1", r"misuse_child\.c:\d+"))
# Ranks that do not come.
scenario("late", within=TIMEOUT, says=[r"rank 0 after.*TIMEOUT.*rank 1 did not come to all_reduce"],
         every=(r"misuse_child\.c:\d+", f"{TIMEOUT:g} s"))
scenario("leaves", says=[r"rank 0 after.*rank 1 (has left|died).*all_reduce"])
scenario("exits", code=7, says=["rank 1 exited with code 7", "no such data set"])
scenario("killed", code=137, says=[r"rank 1 was killed by signal 9 \(SIGKILL\)"])
scenario("segfaults", code=139, says=[r"rank 1 was killed by signal 11 \(SIGSEGV\)"])
scenario("aborts", says=["rank 0 after.*rank 1 failed: the learning rate is NaN"],
         every=("learning rate is NaN",))
scenario("crossed", n=3, within=TIMEOUT, says=["TIMEOUT"], every=(r"misuse_child\.c:\d+",))
# Data parallel.
scenario("ddp_skips", says=["rank 0 after", "rank 1 after"],
         every=(r"rank 0 is at all_reduce", r"ddp run 5, bucket 0", r"rank 1 is at barrier",
                r"ddp end after 4 runs"))
scenario("ddp_unused", says=[r"on rank 1 the loss does not depend on.*'second\.weight' \(2\), "
                             r"'second\.bias' \(3\)"])
scenario("ddp_shapes", says=["rank 0 after", "rank 1 after"],
         every=(r"on rank 0 parameter 0 is 'first\.weight' f32 \(4,3\); on rank 1 parameter 0 is "
                r"'first\.weight' f32 \(4,4\)",))
# The launcher.
scenario("trivial", code=0, says=["rank 0: fine", "rank 1: fine"])
scenario("once", code=0, args=["--max-restarts", "1"], says=["rank 1 was killed", "rank 1: fine"])
scenario("killed again and again", code=137, args=["--max-restarts", "2"], program=[CHILD, "killed"],
         says=[r"rank 1 was killed by signal 9 \(SIGKILL\)"], total=3 * (2 * SLACK + 1))
with socket.socket() as taken:
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    scenario("port in use", code=1, n=1, program=[CHILD, "trivial"],
             args=["--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                   "--master-port", str(port)], says=[f"{port}.*.*taken"])

print(f"{failed} failed")
sys.exit(1 if failed else 0)
