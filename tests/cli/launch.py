#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera launch: what ranks leave running, limits of descriptors, and lines of any length.
usage: launch.py TESSERA"""
import os
import re
import resource
import signal
import subprocess
import tempfile
import time

from harness import TESSERA, check, done, equal

FOLDER = tempfile.TemporaryDirectory()


def begin(*args, limit=None, **kw):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    return subprocess.Popen([TESSERA, "launch", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=lower if limit else None, **kw)


def launch(*args, code=0, **kw):
    """What it writes to stdout and to stderr, and the seconds that it takes."""
    start = time.monotonic()
    p = begin(*args, **kw)
    out, err = p.communicate(timeout=60)
    equal(p.returncode, code, f"launch {args}: {out[:1000]}{err[:1000]}")
    return out, err, time.monotonic() - start


def is_there(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def expect_gone(pids, what):
    until = time.monotonic() + 20
    while any(map(is_there, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    equal([pid for pid in pids if is_there(pid)], [], what)


def pids_in(text):
    return [int(pid) for pid in re.findall(r"pid (\d+)\.", text)]


def left_running():
    out, err, seconds = launch("-n", "2", "sh", "-c", 'sleep 60 & echo "pid $!."; exit 0')
    equal(len(pids_in(out)), 2, out)
    expect_gone(pids_in(out), "what the ranks left")
    check("tessera launch: stopping what rank 0 has left running\n" in err, err)
    check(seconds < 20, f"{seconds} s")
    # Of one rank alone, deeper, and deaf: SIGKILL ends it.
    out, err, seconds = launch(
        "-n", "3", "--signal-timeout", "0.5", "sh", "-c",
        '[ $RANK = 1 ] || exit 0; (sh -c \'trap "" TERM; echo "pid $$."; while :; do sleep 0.1; done\' &); sleep 0.2')
    equal(len(pids_in(out)), 1, out)
    expect_gone(pids_in(out), "what is deaf")
    check("stopping what rank 1 has left running" in err and 0.5 < seconds < 20, f"{err}, {seconds} s")
    # Who reads a rank's output to its end may do so, and nothing is said of it.
    copy = os.path.join(FOLDER.name, "copy")
    _, err, _ = launch("-n", "1", "bash", "-c", f'exec > >(sleep 0.1; cat > {copy}); echo all of it')
    with open(copy, encoding="ascii") as f:
        equal(f.read(), "all of it\n", "read by what the rank left")
    equal(err, "", "stderr")
    # A daemon has left the group.
    out, err, _ = launch("-n", "1", "sh", "-c", 'setsid sh -c \'echo "pid $$."; exec sleep 60 >&- 2>&-\' & sleep 0.3')
    check(is_there(pids_in(out)[0]) and err == "", err)
    os.kill(pids_in(out)[0], signal.SIGKILL)


def left_when_told():
    """A signal does not wait for what is left, and what is left does not outlive a killed launcher."""
    deaf = 'trap "" TERM; (while :; do sleep 0.1; done) & echo "pid $!."'
    for sig in (signal.SIGTERM, signal.SIGKILL):
        p = begin("-n", "1", "--signal-timeout", "50", "sh", "-c", deaf)
        pid = pids_in(p.stdout.readline())
        time.sleep(0.6)
        check(is_there(pid[0]), "it is still there")
        start = time.monotonic()
        p.send_signal(sig)
        p.communicate(timeout=60)
        check(time.monotonic() - start < 10, f"{sig}: {time.monotonic() - start} s")
        expect_gone(pid, f"what was left, after {sig}")


def few_descriptors():
    out, err, _ = launch("-n", "31", "echo", "here", limit=64, code=1)
    m = re.fullmatch(r"tessera launch: 31 ranks need (\d+) open files, but the limit is 64: raise it \(ulimit -n\), or "
                     r"start fewer ranks\n", err)
    check(m and out == "", f"{out}{err}")
    need = int(m[1])
    for args, more in ([], 0), (["--prefix"], 31), (["--log-dir", FOLDER.name], 93):
        out, _, _ = launch("-n", "31", *args, "echo", "here", limit=need + more)
        equal(out.count("here\n"), 31, f"as many as are needed, {args}")
        _, err, _ = launch("-n", "31", *args, "echo", "here", limit=need + more - 1, code=1)
        check(f"need {need + more} open files, but the limit is {need + more - 1}" in err, err)
    # Somebody lowers the limit below what is open.
    p = begin("-n", "8", "--prefix", "sh", "-c", "echo begun; read x; sleep 60", stdin=subprocess.PIPE)
    for _ in range(8):
        check("begun" in p.stdout.readline(), "all begin")
    resource.prlimit(p.pid, resource.RLIMIT_NOFILE, (8, 8))
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=20)
    equal(p.returncode, 143, "SIGTERM with fewer descriptors than are open")


def long_lines():
    script = ('for n in 65536 70000 1 3000000 100; do head -c $n /dev/zero | tr "\\0" $((RANK + 1)); echo; done;'
              'printf "no end %s" $RANK')
    for args in [], ["--log-dir", FOLDER.name]:
        out, _, _ = launch("-n", "3", "--prefix", *args, "sh", "-c", script)
        lines = sorted(out.split("\n")[:-1])
        expected = sorted([f"[{r}] {str(r + 1) * n}" for r in range(3) for n in (65536, 70000, 1, 3000000, 100)]
                          + [f"[{r}] no end {r}" for r in range(3)])
        equal([len(x) for x in lines], [len(x) for x in expected], "lengths of lines")
        check(lines == expected, "lines are whole")
    # A reader that takes nothing for a while keeps no signal from the launcher.
    p = begin("-n", "2", "--prefix", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x; echo; sleep 60")
    time.sleep(1)
    start = time.monotonic()
    p.send_signal(signal.SIGTERM)
    p.wait(timeout=30)
    equal(p.returncode, 143, "SIGTERM while nobody reads")
    check(time.monotonic() - start < 15, f"{time.monotonic() - start} s")
    p.communicate()


left_running()
left_when_told()
few_descriptors()
long_lines()
done()
