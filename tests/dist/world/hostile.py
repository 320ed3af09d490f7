#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs on two machines (network namespaces), while strangers without the token attack them from a
third and on their own, and members that have it misbehave. A stranger changes nothing,
and what a member does leaves the result as it is, or ends the run with a reason: never with a
crash, a hang, a wrong value, or a success that is none.

usage: hostile.py TESSERA CHILD [--frames N] [--rounds N] [--seed S]

A million frames, values and verdicts, on a build with sanitizers (some ten minutes on two cores):

    meson setup build-asan -Dcuda=disabled -Db_sanitize=address,undefined \\
        -Dbuildtype=debugoptimized -Ddefault_library=static -Db_lundef=false
    ninja -C build-asan
    TESSERA_FULL=1 TESSERA_GLOO_MODULE=$PWD/build-asan/src/comm/gloo/libtessera_gloo.so \\
        python3 tests/dist/world/hostile.py build-asan/src/cli/tessera build-asan/tests/dist/hostile_child

Exits with 77 (skipped) where network namespaces can't be made."""
import argparse
import collections
import ctypes
import multiprocessing
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import hostile_wire as wire
from network import Network, PORT

NODES = 2
STORE = ("10.77.0.1", PORT)
TIMEOUT_S = 3
ENDS_S = 45  # after the attack: of waiting for others, for the store, for signals
CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
LIBC = ctypes.CDLL(None, use_errno=True)
fork = multiprocessing.get_context("fork")
KINDS = ["strangers' frames", "strangers at Gloo's ports", "members' frames", "values", "verdicts"]
counters = {kind: fork.Value("q", 0) for kind in KINDS}


# --- the run --------------------------------------------------------------------------------------

class Run:
    """The child on both machines, by `tessera launch` or, without it, by variables."""

    def __init__(self, net, args, token, by_launch, ranks):
        self.by_launch, self.nranks = by_launch, NODES * ranks
        self.stop = f"{net.folder}/stop"
        if os.path.exists(self.stop):
            os.unlink(self.stop)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": net.folder, "TESSERA_STORE_TOKEN": token,
               "TESSERA_TIMEOUT_S": str(TIMEOUT_S), "TESSERA_RUN_ID": "hostile",
               "TESSERA_FLIGHT_DIR": net.folder}
        self.processes = []
        for i in range(NODES):
            enter = ["ip", "netns", "exec", net.names[i]]
            if by_launch:
                self.start([*enter, args.tessera, "launch", "--nnodes", str(NODES), "--node-rank",
                            str(i), "--master-addr", STORE[0], "--master-port", str(PORT),
                            "--rdzv-id", "hostile", "-n", str(ranks), "--timeout", str(TIMEOUT_S),
                            "--join-timeout", "10", "--signal-timeout", "2", args.child, self.stop],
                           env, net.folder)
                continue
            for r in range(ranks):
                mine = {"RANK": str(i * ranks + r), "WORLD_SIZE": str(self.nranks),
                        "MASTER_ADDR": STORE[0], "MASTER_PORT": str(PORT)}
                self.start([*enter, args.child, self.stop], {**env, **mine}, net.folder)

    def start(self, command, env, folder):
        out = tempfile.TemporaryFile()
        # A test that is killed takes its runs with it.
        process = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=folder, start_new_session=True,
                                   preexec_fn=lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM))
        self.processes.append((process, out))

    def has_begun(self):
        return "".join(self.texts()).count("has begun") == self.nranks

    def is_over(self):
        return all(p.poll() is not None for p, _ in self.processes)

    def texts(self):
        """What each process has said."""
        texts = []
        for _, out in self.processes:
            out.seek(0)
            texts.append(out.read().decode(errors="replace"))
        return texts

    def end(self):
        """Exit codes; None: it hangs."""
        with open(self.stop, "w", encoding="ascii"):
            pass
        until = time.monotonic() + ENDS_S
        while time.monotonic() < until and not self.is_over():
            time.sleep(0.01)
        codes = [p.poll() for p, _ in self.processes]
        for p, _ in self.processes:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
        return codes


def judge(run, codes, token, may_fail, log):
    """What is wrong with how a run has ended; "" if nothing is."""
    texts = run.texts()
    said = "\n".join(texts)
    control = re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]", said)
    if None in codes:
        return f"it hangs {ENDS_S} s after its end"
    if "Sanitizer" in said or "runtime error:" in said:
        return "a report of a sanitizer"
    if control:
        return f"a control character, {control.group()!r}"
    if token in said:
        return "the token is shown"
    if any(c < 0 for c in codes) or "was killed by signal" in said:
        return "somebody was killed"
    if re.search(r"call \d+: (sum|value) \[", said):
        return "a wrong value"
    for code, text in zip(codes, texts):
        right = len(re.findall(r"rank \d+: all values of \d+ calls are right", text))
        if code == 0 and right != run.nranks // len(texts):
            return f"success, but {right} of {run.nranks // len(texts)} ranks are right"
        if code and not re.search(r"^(tessera launch|hostile_child): \S", text, re.MULTILINE):
            return "a failure, and nobody says why"
    log["told why" if any(codes) else "unchanged"] += 1
    return "it has failed by what a stranger did" if any(codes) and not may_fail else ""


# --- attackers ------------------------------------------------------------------------------------

def enter(netns):
    with open(f"/run/netns/{netns}", encoding="ascii") as f:
        if LIBC.setns(f.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


def attack_in(netns, over, broken, what, *args):
    """Starts a process that does what(over, *args) in a network namespace, until `over` is set."""
    def work():
        try:
            enter(netns)
            what(over, *args)
        except wire.Broken as e:
            broken.put(str(e))
    p = fork.Process(target=work, daemon=True)
    p.start()
    return p


def count(kind, n):
    with counters[kind].get_lock():
        counters[kind].value += n


def record_talks(over, token):
    """What members say when they greet, for strangers to repeat. Sets a key for them to find."""
    talks = []
    while len(talks) < 3 and not over.is_set():
        try:
            m = wire.Member(STORE, token)
        except (OSError, socket.timeout):
            time.sleep(0.01)
            continue
        talks.append(m.talk)
        m.set(b"canary", b"alive")
        m.close()
    return talks


def strangers(over, seed, limit, token):
    tape = record_talks(over, token)
    rng, held, said = random.Random(seed), [], 0
    while said < limit and not over.is_set():
        try:
            said_now = rng.choice(wire.STRANGERS)(STORE, rng, held, tape)
        except (OSError, socket.timeout):
            time.sleep(0.001)  # it is not there yet, or no more
            continue
        said += said_now
        count(KINDS[0], said_now)
    over.wait()


def flood_members(over, seed, limit, token):
    rng, said = random.Random(seed), 0
    while said < limit and not over.is_set():
        try:
            now = wire.talk_as_member(STORE, token, rng, 400)
        except (OSError, socket.timeout):
            time.sleep(0.001)
            continue
        said += now
        count(KINDS[2], now)
    over.wait()


def listening():
    """(address, port) of what is listened at in this network namespace."""
    found = []
    with open("/proc/thread-self/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                a, port = words[1].split(":")
                found.append((socket.inet_ntoa(struct.pack("<I", int(a, 16))), int(port, 16)))
    return found


def gloo_noise(rng):
    """Nothing, noise, and preambles of Gloo's messages (six numbers)."""
    way = rng.randrange(5)
    if way == 0:
        return b""
    if way == 1:
        return rng.randbytes(rng.randint(1, 300))
    slot = rng.choice([4, 5, 6, 8, rng.getrandbits(64)])
    size = rng.choice([0, 1, 100, 4096, 2**40])
    said = struct.pack("<6Q", 48 + size, rng.choice([0, 1, 2, 3, 9]), slot, 0, size,
                       rng.choice([0, 0, 2**60]))
    return said + rng.randbytes(min(size, 4096))


def gloo_strangers(over, seed):
    """Connects to whatever port comes up beside the store's, and stays or goes. It is on the machine
    whose ports these are, and sees them; a scan would find them too."""
    rng, held = random.Random(seed), []
    while not over.is_set():
        ports = [a for a in listening() if a[1] != PORT]
        for a in ports * 20:
            try:
                s = wire.connect(a, 0.5)
                s.sendall(gloo_noise(rng))
                count(KINDS[1], 1)
            except (OSError, socket.timeout):
                continue
            if rng.random() < 0.5:
                s.close()
            else:
                held.append(s)
        while len(held) > 200:
            held.pop(rng.randrange(len(held))).close()
        if not ports:
            time.sleep(0.0005)


# --- values ---------------------------------------------------------------------------------------

def machine_name(netns):
    """As world_meet.c names a machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        boot = f.read().strip()[:40]
    return (f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}-{os.stat(f'/run/netns/{netns}').st_ino}"
            f"-{os.geteuid()}")


def hash_ranks(h, n):
    """As Gloo's groups are named (gloo/group.c)."""
    for rank in range(n):
        h = ((h ^ rank) * 0x9E3779B97F4A7C15) & (2**64 - 1)
        h ^= h >> 31
    return h


def keys_of(net, by_launch, nranks):
    prefix = "tessera/hostile/0/" if by_launch else "tessera/hostile/"
    group = f"{nranks}-{hash_ranks(1, nranks):016x}{hash_ranks(0x243F6A8885A308D3, nranks):016x}/"
    keys = [prefix + "kept by a world", prefix + "gloo/1/end", prefix + "gloo/1/end"]
    for r in range(nranks):
        keys += [f"{prefix}gloo/worlds/{r}", f"{prefix}gloo/1/left/{r}/0"]
    for lane in (-1, 0):
        keys += [f"{prefix}gloo/1/0/{lane}/{group}{a}/{b}" for a in range(nranks)
                 for b in range(nranks) if a != b]
    if by_launch:
        return keys + ["launch/n/0", "launch/n/1", "launch/next", "launch/b/0", "launch/b/1",
                       "launch/d/0", "launch/d/1", "launch/s/0", "launch/s/1", "launch/d/2"]
    keys += [prefix + k for k in ("meet/all", "meet/count", "meet/came/0", "meet/came/1")]
    for i in range(NODES):
        name = f"{prefix}meet/{machine_name(net.names[i])}/"
        keys += [name + k for k in ("n", "1", "2", "blind/1", "blind/3", "looked", "sights", "arena",
                                    "arena", "opened", "open")]
    return keys


VERDICT_KEYS = ["launch/v/0", "launch/v/1", "launch/v/1", "launch/v/1", "launch/v/2"]
WORDS = [b"", b"0", b"1", b"-1", b"2", b"99999999999999999999", b"-2147483649", b"O", b"! 0 x",
         b"! -5 no", b"! 1 -5 no", b"! 0 1", b"1 1", b"0 1", b"-1 5", b"7 99", b"1 0", b"0 0:0",
         b"1:3:4096 0 1", b"-1 0 0 x", b"-7 1 0 it is over", b"0 0 0 x", b"5 0 0 x", b"-3 9 9 x",
         b"2 2 0 hostile host 5", b"1 2 0 hostile \x1b[31mhost 5", b"1 3 0 - h 1", b"\0", b"\n",
         b"O hostile 1 1", b"O hostile 2 2", b"O hostile 1 1 1", b"O hostile -1 3", b"O ../x 1 1",
         b"F 0 0 0 0\nx", b"F 1 0 0 0\n\x1b]0;x\x07text\nmore", b"F 256 0 0 0\nx", b"F 3 1 1 -2\nx",
         b"F 3 1 1 99\n" + b"\xff\x9b31m" * 9, b"F 3 0 0 1\n" + b"long " * 9000, b"F", b"o"]


def hostile_value(rng, real):
    way = rng.randrange(8)
    if real and way < 4:
        v = bytearray(real)
        for _ in range(rng.choice([1, 1, 2, 8])):
            v[rng.randrange(len(v))] = rng.getrandbits(8)
        v = bytes(v)
        return [v, real[:rng.randint(0, len(real) - 1)], real + rng.randbytes(rng.randint(1, 99)),
                real.replace(b"0", b"9")][way]
    if way == 4:
        return rng.randbytes(rng.choice([1, 8, 60, 137, 1000]))
    if way == 5 and rng.random() < 0.3:
        return rng.choice([b"1", b"\x1b[2J", rng.randbytes(1)]) * (1 << 20)
    if way == 6:
        return b"%d" % rng.choice([0, 1, -1, 2, 3, 99, 2**31 - 1, -2**31, 2**63 - 1, -2**63, 10**40])
    return rng.choice(WORDS)


def members(over, seed, token, keys, early):
    """Sets keys that the run reads: before it comes to them, behind it, and in between."""
    rng, m = random.Random(seed), None
    real = {k: None for k in keys}
    while not over.is_set():
        try:
            m = m or wire.Member(STORE, token)
            k = rng.choice(keys)
            key = k.encode()
            real[k] = m.get(key) or real[k]
            if real[k] is None and not early:
                continue
            value = hostile_value(rng, real[k])
            way = rng.random()
            if way < 0.7:
                m.set(key, value)
            elif way < 0.8:
                m.ask(wire.ADD, wire.text(key) + struct.pack("<q", rng.choice([1, -1, 9, 2**62])))
            elif way < 0.9:
                m.ask(wire.COMPARE_SET, wire.text(key) + wire.text(real[k] or b"") + wire.text(value)
                      + struct.pack("<Q", 0))
            else:
                m.ask(wire.DELETE, wire.text(key))
            count(KINDS[4] if k.startswith("launch/v/") else KINDS[3], 1)
            time.sleep(rng.choice([0, 0.001, 0.01]))
        except (OSError, socket.timeout, struct.error):
            if m:
                m.close()
            m = None
            time.sleep(0.001)


# --- rounds ---------------------------------------------------------------------------------------

class Hostile:
    def __init__(self, args, net, rng):
        self.args, self.net, self.rng, self.log = args, net, rng, collections.Counter()
        self.token = "%032x" % rng.getrandbits(128)
        self.broken = fork.SimpleQueue()

    def round(self, name, attackers, may_fail, by_launch=True, ranks=1, lasts_s=0.5, done=None,
              after=None):
        """attackers: (index of a machine, function, arguments); `done`: of the attack."""
        run = Run(self.net, self.args, self.token, by_launch, ranks)
        over, begin = fork.Event(), time.monotonic()
        crew = [attack_in(self.net.names[i], over, self.broken, what, *more)
                for i, what, *more in attackers]
        begun = None
        while not run.is_over() and time.monotonic() < begin + 120:
            begun = begun or (time.monotonic() if run.has_begun() else None)
            if begun and time.monotonic() > begun + lasts_s and (not done or done()):
                break
            if may_fail and not done and time.monotonic() > begin + lasts_s + 20:
                break
            if any(p.exitcode is not None for p in crew):
                break
            time.sleep(0.01)
        wrong = after() if after and not run.is_over() else ""
        over.set()
        codes = run.end()
        for p in crew:
            p.join(20)
            if p.exitcode != 0:
                wrong = wrong or "an attacker has failed"
        if not self.broken.empty():
            wrong = self.broken.get()
        wrong = wrong or judge(run, codes, self.token, may_fail, self.log)
        if wrong or self.args.verbose:
            print(f"{name}: {wrong or 'ok'}: exit codes {codes}, {time.monotonic() - begin:.1f} s\n"
                  + "\n".join(run.texts())[:20000], flush=True)
        if wrong:
            raise AssertionError(f"{name} (--seed {self.args.seed}): {wrong}")

    def keys_are_unchanged(self):
        """With the token: no stranger has left anything."""
        m = wire.Member(STORE, self.token.encode())
        found = m.count(b"planted"), m.count(b"canary"), m.get(b"canary"), m.get(b"launch/v/1")
        m.close()
        return "" if found == (0, 1, b"alive", None) else f"strangers have changed keys: {found}"

    def strangers(self, frames):
        """Half of them on another machine, half on the store's own."""
        token = self.token.encode()
        share, before = frames // 2, counters[KINDS[0]].value
        enough = lambda: counters[KINDS[0]].value >= before + 2 * share
        self.round("strangers", [(2, strangers, self.rng.getrandbits(32), share, token),
                                 (0, strangers, self.rng.getrandbits(32), share, token)], False,
                   self.rng.random() < 0.5, done=enough, after=self.keys_are_unchanged_here)

    def keys_are_unchanged_here(self):
        found = fork.SimpleQueue()
        p = attack_in(self.net.names[1], fork.Event(), self.broken,
                      lambda over: found.put(self.keys_are_unchanged()))
        p.join(10)
        return found.get() if p.exitcode == 0 and not found.empty() else "the store can't be read"

    def gloo(self):
        by_launch = self.rng.random() < 0.5
        attackers = [(i, gloo_strangers, self.rng.getrandbits(32)) for i in range(NODES)]
        self.round("strangers at Gloo's ports", attackers, False, by_launch,
                   self.rng.choice([1, 2, 2]), lasts_s=0.5)

    def flood(self, frames):
        before = counters[KINDS[2]].value
        self.round("members' frames",
                   [(2, flood_members, self.rng.getrandbits(32), frames, self.token.encode())], True,
                   done=lambda: counters[KINDS[2]].value >= before + frames)

    def values(self):
        by_launch = self.rng.random() < 0.5
        ranks = self.rng.choice([1, 2])
        some = keys_of(self.net, by_launch, NODES * ranks)
        if by_launch and self.rng.random() < 0.5:
            some = VERDICT_KEYS
        keys = self.rng.sample(some, self.rng.choice([1, 2, 5]))
        self.round(f"values of {keys}", [(2, members, self.rng.getrandbits(32), self.token.encode(),
                                          keys, self.rng.random() < 0.5)], True, by_launch, ranks,
                   lasts_s=0.3)


def main():
    parser = argparse.ArgumentParser()
    full = os.environ.get("TESSERA_FULL") == "1"
    parser.add_argument("tessera", type=os.path.abspath)
    parser.add_argument("child", type=os.path.abspath)
    parser.add_argument("--frames", type=int, default=1000000 if full else 2000)
    parser.add_argument("--rounds", type=int, default=100 if full else 1)
    parser.add_argument("--seed", type=int, default=random.getrandbits(32) if full else 1)
    parser.add_argument("--only", choices=["strangers", "gloo", "members", "values"])
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    print(f"--seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Network(1, args.tessera, folder):
                pass
        except OSError as e:
            print(f"skipped: {e}")
            return 77
        with Network(NODES + 1, args.tessera, folder) as net:
            attack(args, net)
    return 0


def attack(args, net):
    hostile = Hostile(args, net, random.Random(args.seed))
    floods = max(args.rounds // 10, 1)
    begin = time.monotonic()
    plan = {"gloo": [hostile.gloo] * args.rounds, "values": [hostile.values] * (2 * args.rounds),
            "strangers": [lambda: hostile.strangers(args.frames * 9 // 10 // floods)] * floods,
            "members": [lambda: hostile.flood(args.frames // 10 // floods)] * floods}
    rounds = [r for name, some in plan.items() if args.only in (None, name) for r in some]
    hostile.rng.shuffle(rounds)
    try:
        for do_round in rounds:
            do_round()
    finally:
        for kind in KINDS:
            print(f"{counters[kind].value} {kind}")
        print(f"{sum(c.value for c in counters.values())} in all, {time.monotonic() - begin:.0f} s; "
              f"runs: {dict(hostile.log)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
