#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads of which one file operation goes wrong: interrupted, with EIO or ENOSPC, moving a part. The run
then goes on, and ends with the bits of a run that nothing happened to. Readers, too, that are stopped before an
operation while another run removes what they read. A sample, drawn from TESSERA_SEED; each operation with TESSERA_FULL.
usage: checkpoint_faults.py PEER TESSERA MODULE"""
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

PEER, TESSERA, MODULE = sys.argv[1:4]
SEED = int(os.environ.get("TESSERA_SEED", "1"))
RANDOM = random.Random(SEED)
FULL = bool(os.environ.get("TESSERA_FULL"))
KINDS = ["EINTR", "EIO", "ENOSPC", "short"]
SAMPLE = 6 # operations of each kind and layout
FOLDER = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) # synced at no cost
LAYOUTS = [{"ranks": 1, "mode": "sync"}, {"ranks": 2, "param": "S(0)", "mode": "async"}]


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def path(*names):
    return os.path.join(FOLDER.name, *names)


def begin(command, fault="", log=""):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": ""}
    if fault:
        env.update({"LD_PRELOAD": MODULE, "FAULTY_FILES": fault, "FAULTY_FILES_LOG": log})
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def end(process, what):
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        sys.exit(f"FAILED: {what}: it hangs\n{process.communicate()}")
    check(process.returncode in (0, 1), f"{what}: exit code {process.returncode}\n{out}{err}")
    check(process.returncode == 0 or err.strip(), f"{what}: it fails and does not say why")
    return process.returncode, out + err


def peer(folder, **more):
    return [PEER, *(f"{k}={v}" for k, v in {"folder": path(folder), "every": 2, "keep": 1, **more}.items())]


def run(folder, what="", fault="", log="", code=0, **more):
    got, said = end(begin(peer(folder, **more), fault, log), what)
    check(code is None or got == code, f"{what}: exit code {got}\n{said}")
    return got, said


def loaded(said):
    return int(re.search(r"loaded (-?\d+)", said)[1])


def content(name):
    with open(path(name), "rb") as f:
        return f.read()


def copy(a, b):
    shutil.rmtree(path(b), ignore_errors=True)
    shutil.copytree(path(a), path(b))


def operations(command, folder):
    """The names of the file operations of a command that succeeds."""
    log = path("log")
    with open(log, "w", encoding="utf-8"):
        pass
    code, said = end(begin(command, f"{path(folder)} 0 none", log), "counting")
    check(code == 0, said)
    with open(log, encoding="utf-8") as f:
        return f.read().split()


def drawn(n):
    """The numbers of the operations that are tried, of n. The order of two ranks' differs from run to run."""
    numbers = range(1, n + 1)
    return numbers if FULL else sorted(RANDOM.sample(numbers, min(SAMPLE, n)))


def try_fault(layout, number, kind, name, tried):
    """One operation of a run that loads step 4 and saves step 6, in the place of older ones; then to step 8."""
    what = f"{layout}: operation {number} ({name}): {kind}"
    copy("base", "f")
    code, said = run("f", what, f"{path('f')} {number} {kind}", os.devnull, code=None, steps=6, **layout)
    tried[kind, code] += 1
    if kind in ("EINTR", "short"):
        check(code == 0 and loaded(said) == 4, f"{what}: {said}")
    check(code == 0 or path("f") in said, f"{what}: it does not name the file: {said}")
    _, after = run("f", f"{what}, going on", steps=8, last=path("last"), **layout)
    check(content("last") == content("whole"), f"{what}: the weights are not the same")
    check(loaded(after) == 6 if code == 0 else loaded(after) in (4, 6), f"{what}: {said}, then {after}")
    left = [x for x in os.listdir(path("f")) if not re.fullmatch(r"\.lock|step-\d{8}", x)]
    check(not left and len(os.listdir(path("f"))) <= 3, f"{what}: {sorted(os.listdir(path('f')))} is left\n{said}\n{after}")


def faults(layout):
    run("none", every=100, steps=8, last=path("whole"), **layout)
    shutil.rmtree(path("base"), ignore_errors=True)
    run("base", steps=4, **layout)
    copy("base", "f")
    names = operations(peer("f", steps=6, **layout), "f")
    check(len(set(names)) > 12, f"{layout}: operations are not seen: {collections.Counter(names)}")
    tried = collections.Counter()
    for kind in KINDS:
        for number in drawn(len(names)):
            if kind != "short" or names[number - 1] in ("read", "write", "pread", "pwrite"):
                try_fault(layout, number, kind, names[number - 1], tried)
    print(f"{layout}: {len(names)} operations, {sum(tried.values())} faults: {dict(tried)}")


# --- readers beside a run that saves ----------------------------------------------------------------

def step_on(folder):
    """As a run that saves and keeps one checkpoint does: the newer ones come, then the older go."""
    for name in os.listdir(path("newer")):
        if not os.path.exists(path(folder, name)):
            shutil.copytree(path("newer", name), path(folder, f".{name}"))
            os.rename(path(folder, f".{name}"), path(folder, name))
    for name in set(os.listdir(path(folder))) - set(os.listdir(path("newer"))):
        shutil.rmtree(path(folder, name), ignore_errors=True)


def save_again(folder):
    """As a run that saves the same step again: other files under the same name."""
    for name in os.listdir(path("other")):
        if name.startswith("step-") and os.path.exists(path(folder, name)):
            shutil.rmtree(path(folder, name))
            shutil.copytree(path("other", name), path(folder, name))


def beside(what, command, meanwhile):
    copy("base", "f")
    names = operations(command, "f")
    for number in drawn(len(names)):
        copy("base", "f")
        p = begin(command, f"{path('f')} {number} stop", os.devnull)
        stopped = os.waitid(os.P_PID, p.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT).si_code == os.CLD_STOPPED
        if stopped:
            meanwhile("f")
            p.send_signal(signal.SIGCONT)
        code, said = end(p, what)
        check(code == 0, f"{what}: stopped before operation {number} ({names[number - 1]}): {said}")
        check("list" in command or re.search(r"loaded [46]|good|compared|^$", said), f"{what}: {said}")


def readers():
    shutil.rmtree(path("base"), ignore_errors=True)
    run("base", steps=4, ranks=2)
    copy("base", "other")
    shutil.rmtree(path("other/step-00000004"))
    shutil.rmtree(path("newer"), ignore_errors=True)
    run("other", steps=4, ranks=2)
    copy("base", "newer")
    run("newer", steps=6, ranks=2)
    for name in os.listdir(path("newer")):
        if name != "step-00000006":
            shutil.rmtree(path("newer", name), ignore_errors=True)
    os.path.exists(path("newer/.lock")) and os.remove(path("newer/.lock"))
    for meanwhile in step_on, save_again:
        for ranks in 1, 2:
            beside(f"a load on {ranks} ranks, {meanwhile.__name__}", peer("f", eval=1, ranks=ranks), meanwhile)
        for args in ["list"], ["verify"], ["merge"]:
            command = [TESSERA, "ckpt", *args, path("f"), *([path("merged")] if args == ["merge"] else [])]
            beside(f"ckpt {args[0]}, {meanwhile.__name__}", command, meanwhile)


print(f"seed {SEED}")
for l in LAYOUTS:
    faults(l)
readers()
print("ok")
