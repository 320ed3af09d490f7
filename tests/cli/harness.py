# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share."""
import importlib
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

TESSERA = os.path.abspath(sys.argv[1])
# Figures that somebody measured on this machine must not change what is planned here.
CACHE = tempfile.TemporaryDirectory()
# A build with sanitizers: the same calls on smaller programs reach the same code.
SLOWER = int(os.environ.get("TESSERA_TEST_SLOWER", "1"))
IS_INSTRUMENTED = SLOWER != 1
checks = 0


def needs(module):
    """Imports an optional module, or ends the test as skipped."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"skipped: {error} (Debian: python3-{module})")
        sys.exit(77)


def tessera(*args, code=0, env=None, stdin=None, timeout=60, launch=0):
    """Runs the command; returns (stdout, stderr). `launch`: as that many processes."""
    command = [TESSERA] + (["launch", "-n", str(launch), "--", TESSERA] if launch else [])
    e = {**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1", **(env or {})}
    p = subprocess.run(command + [str(a) for a in args], capture_output=True, text=True, env=e,
                       input=stdin, timeout=timeout * SLOWER)
    check(p.returncode == code, f"tessera {' '.join(map(str, args))}: exit code {p.returncode}, "
          f"expected {code}\n{p.stdout}{p.stderr}")
    return p.stdout, p.stderr


def tessera_json(*args, **kw):
    """What --json prints; of a plan with values and placements in the place of their ids."""
    json_ = json.loads(tessera(*args, "--json", **kw)[0])
    return resolve(json_) if args[0] == "plan" else json_


def resolve(plan):
    for v in plan["values"]:
        p = plan["placements"][v["placement"]]
        ranks = p["ranks"]
        for size in p["hierarchy"][:0:-1]:
            ranks = [ranks[i:i + size] for i in range(0, len(ranks), size)]
        v["placement"] = p["device"] + ":" + json.dumps(ranks, separators=(",", ":"))
    for x in plan["ops"] + plan["boxing"]:
        for ends in ("in", "out"):
            x[ends] = [plan["values"][v] for v in x[ends]]
    return plan


def children_s():
    """Seconds of CPU time of the commands that have ended: a busy machine does not change them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def check(ok, text):
    global checks
    checks += 1
    if not ok:
        sys.exit(f"FAILED: {text}")


def equal(found, expected, what):
    check(found == expected, f"{what}: found {found!r}, expected {expected!r}")


def near(found, expected, what, rel=1e-9):
    check(abs(found - expected) <= rel * max(abs(found), abs(expected)),
          f"{what}: found {found!r}, expected {expected!r}")


def scaled(v, units):
    """Three digits, as the command prints them."""
    i = 0
    while i < len(units) - 1 and abs(v) >= 999.5:
        v /= 1000
        i += 1
    digits = 0 if v == int(v) and i == 0 else 2 if abs(v) < 9.995 else 1 if abs(v) < 99.95 else 0
    return f"{v:.{digits}f} {units[i]}"


def seconds(s):
    return scaled(s * 1e9, ["ns", "us", "ms", "s"])


def shared_memory():
    return {n for n in os.listdir("/dev/shm") if "tessera" in n} if os.path.isdir("/dev/shm") else set()


def expect_no_shared_memory(before):
    """That of programs beside this test comes and goes."""
    until = time.monotonic() + 20
    while shared_memory() - before and time.monotonic() < until:
        time.sleep(0.05)
    equal(shared_memory() - before, set(), "left in /dev/shm")


def done():
    print(f"{checks} checks")


def weights(folder):
    """All values of a folder's trained weights in f64, by the names of variables."""
    with open(os.path.join(folder, "weights.safetensors"), "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    values = []
    for key in sorted(k for k in header if k != "__metadata__"):
        equal(header[key]["dtype"], "F64", key)
        begin, end = header[key]["data_offsets"]
        values += struct.unpack(f"<{(end - begin) // 8}d", data[begin:end])
    return values
