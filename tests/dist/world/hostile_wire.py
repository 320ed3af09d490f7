# SPDX-License-Identifier: Apache-2.0
"""The store's wire (src/comm/store/wire.h), spoken by strangers and by members that misbehave."""
import hashlib
import hmac
import os
import socket
import struct

MAGIC, VERSION = b"TSRS\r\n\r\n", 2
NONCE, PROOF, GREETING, VERDICT = 32, 32, 48, 40
SET, GET, ADD, COMPARE_SET, WAIT, CHECK, DELETE, COUNT, JOIN = range(1, 10)
OPS = range(SET, JOIN + 1)
NO_ROOM = 1000


class Broken(AssertionError):
    """What must not happen has happened."""


def greeting(has_token=True):
    return MAGIC + struct.pack("<II", VERSION, int(has_token)) + os.urandom(NONCE)


def prove(token, who, mine, its):
    return hmac.new(token, who + mine + its, hashlib.sha256).digest()


def connect(address, timeout=5):
    s = socket.create_connection(address, timeout)
    # Closed by a reset: no port stays in use.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return s


def receive(s, n):
    """n bytes, or less if the other side closes."""
    got = b""
    while len(got) < n:
        try:
            part = s.recv(n - len(got))
        except ConnectionError:
            break
        if not part:
            break
        got += part
    return got


def text(b):
    return struct.pack("<I", len(b)) + b


def request(op, fields, wait_s=0.0, payload=None, number=1, zero=0):
    n = len(fields) if payload is None else payload
    return struct.pack("<IHHQd", n & 0xFFFFFFFF, op & 0xFFFF, zero, number, wait_s) + fields


def fields_of(op, key, value=b"x"):
    """What makes sense for the operation."""
    return {
        SET: text(key) + text(value),
        GET: text(key) + struct.pack("<Q", 1 << 20),
        ADD: text(key) + struct.pack("<q", 1),
        COMPARE_SET: text(key) + text(b"") + text(value) + struct.pack("<Q", 1 << 20),
        WAIT: struct.pack("<I", 1) + text(key),
        CHECK: struct.pack("<I", 1) + text(key),
        DELETE: text(key),
        COUNT: text(key),
        JOIN: text(key) + struct.pack("<II", 0, 1) + text(b"id"),
    }[op]


class Member:
    """A client with the token. ConnectionError: the server is gone, or has closed this one."""

    def __init__(self, address, token, timeout=5):
        self.socket = connect(address, timeout)
        try:
            mine = greeting()
            self.socket.sendall(mine)
            its = self.exactly(GREETING)
            self.talk = mine + prove(token, b"client", mine, its)
            self.socket.sendall(self.talk[GREETING:])
            verdict = self.exactly(VERDICT)
            if verdict[:4] != bytes(4):
                raise ConnectionError("another token")
            if verdict[8:] != prove(token, b"server", mine, its):
                raise Broken("the server has not proven that it has the token")
        except BaseException:
            self.socket.close()
            raise

    def exactly(self, n):
        got = receive(self.socket, n)
        if len(got) != n:
            raise ConnectionError("closed")
        return got

    def ask(self, op, fields, wait_s=0.0):
        self.socket.sendall(request(op, fields, wait_s))
        return self.answer()

    def answer(self):
        size, status = struct.unpack("<Ii", self.exactly(24)[:8])
        return status, self.exactly(size)

    def set(self, key, value):
        return self.ask(SET, text(key) + text(value))[0]

    def get(self, key, wait_s=0.0):
        """Its value; None: it is not there."""
        status, reply = self.ask(GET, text(key) + struct.pack("<Q", 16 << 20), wait_s)
        return reply[8:] if status == 0 else None

    def count(self, prefix=b""):
        return struct.unpack("<q", self.ask(COUNT, text(prefix))[1])[0]

    def close(self):
        self.socket.close()


# --- strangers ------------------------------------------------------------------------------------
# Each returns how many frames it has sent. `held` are connections that it leaves open.

def expect_nothing(s, limit):
    """What a stranger hears: at most a greeting, and the word that its proof is wrong."""
    got = receive(s, limit + 1)
    if len(got) > limit or (len(got) > GREETING and got[GREETING:] != b"\1" + bytes(VERDICT - 1)):
        raise Broken(f"a stranger was told {got!r}")
    if got and got[:8] != MAGIC:
        raise Broken(f"a stranger was told {got!r}")
    return got


def say_noise(address, rng, held, tape):
    with connect(address) as s:
        s.sendall(rng.randbytes(rng.randint(1, 300)))
        expect_nothing(s, GREETING)
    return 1


def say_magic_and_noise(address, rng, held, tape):
    """Of another version the server says its own; of ours nothing but a greeting."""
    with connect(address) as s:
        version = rng.choice([0, 1, 3, 2**31, 2**32 - 1, rng.getrandbits(32)])
        s.sendall(MAGIC + struct.pack("<II", version, rng.getrandbits(32))
                  + rng.randbytes(rng.choice([0, 5, 32, 200])))
        expect_nothing(s, GREETING + VERDICT if version == VERSION else 16)
    return 1


def say_half(address, rng, held, tape):
    whole = greeting() + rng.randbytes(PROOF)
    s = connect(address)
    s.sendall(whole[:rng.randint(0, len(whole) - 1)])
    if rng.random() < 0.5:
        held.append(s)
        if len(held) > 300:
            held.pop(rng.randrange(len(held))).close()
    else:
        s.close()
    return 1


def after_greeting(address, mine, then):
    with connect(address) as s:
        s.sendall(mine)
        its = receive(s, GREETING)
        if len(its) < GREETING:
            return 1
        s.sendall(then(its))
        got = receive(s, VERDICT + 1)
        if got not in (b"", b"\1" + bytes(VERDICT - 1)):
            raise Broken(f"a stranger was told {got!r}")
    return 2


def say_wrong_proof(address, rng, held, tape):
    mine = greeting(rng.random() < 0.9)
    way = rng.randrange(4)
    if way == 0:
        return after_greeting(address, mine, lambda its: rng.randbytes(PROOF))
    if way == 1:
        return after_greeting(address, mine, lambda its: prove(b"", b"client", mine, its))
    if way == 2:
        return after_greeting(address, mine, lambda its: prove(rng.randbytes(16), b"client", mine,
                                                               its))
    return after_greeting(address, mine, lambda its: its[16:])


def say_replay(address, rng, held, tape):
    """What a member has said before, on a connection of its own."""
    talk = rng.choice(tape)
    return after_greeting(address, talk[:GREETING], lambda its: talk[GREETING:])


def say_reflection(address, rng, held, tape):
    """The server's own words, said back to it on another connection."""
    with connect(address) as a:
        a.sendall(greeting())
        its = receive(a, GREETING)
        if len(its) < GREETING:
            return 1
        count = after_greeting(address, its, lambda other: other[16:])
        a.sendall(its[16:])
        got = receive(a, VERDICT + 1)
        if got not in (b"", b"\1" + bytes(VERDICT - 1)):
            raise Broken(f"a stranger was told {got!r}")
    return count + 2


def say_request(address, rng, held, tape):
    """Each operation in place of a proof, or of a greeting; the keys are looked for afterwards."""
    op, key = rng.choice(OPS), rng.choice([b"canary", b"planted", b"launch/v/1", b"launch/d/1"])
    said = request(op, fields_of(op, key), rng.choice([0.0, 1.0, 1e9]))
    if rng.random() < 0.2:
        with connect(address) as s:
            s.sendall(said)
            expect_nothing(s, 0)
        return 1
    return after_greeting(address, greeting(), lambda its: said + rng.randbytes(16))


def say_nothing(address, rng, held, tape):
    connect(address).close()
    return 1


STRANGERS = [say_noise, say_magic_and_noise, say_half, say_wrong_proof, say_wrong_proof, say_replay,
             say_reflection, say_request, say_request, say_nothing]


# --- members --------------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 7, 255, 4096, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
WAITS = [0.0, 0.001, -1.0, 1e300, float("nan"), float("inf"), -0.0]


def hostile_fields(rng, op):
    """Some that make sense for keys under "junk/", some that do not."""
    key = b"junk/%d" % rng.randrange(50) if rng.random() < 0.9 else rng.randbytes(rng.randint(0, 9))
    if rng.random() < 0.3:
        key = b"junk/" + rng.randbytes(rng.randint(0, 60))
    fields = fields_of(op, key, rng.randbytes(rng.choice([0, 1, 8, 100])))
    way = rng.random()
    if op == JOIN and way < 0.7:
        return text(b"junk/%d/" % rng.randrange(9)) + struct.pack(
            "<II", rng.choice(NUMBERS) & 0xFFFFFFFF, rng.choice(NUMBERS) & 0xFFFFFFFF) + text(
                rng.randbytes(rng.choice([0, 3, 127, 128])))
    if way < 0.02:
        return fields[:rng.randint(0, len(fields))]
    if way < 0.03:
        return fields + rng.randbytes(rng.randint(1, 20))
    if way < 0.04:
        at = rng.randrange(len(fields))
        return fields[:at] + rng.randbytes(1) + fields[at + 1:]
    return fields


def talk_as_member(address, token, rng, n):
    """Up to n frames on one connection, until the server closes it. Returns how many were said."""
    m = Member(address, token)
    said = 0
    try:
        while said < n:
            batch, some = b"", rng.randint(1, 60)
            for _ in range(some):
                op = rng.choice(OPS) if rng.random() < 0.99 else rng.getrandbits(16)
                f = hostile_fields(rng, op) if op in OPS else rng.randbytes(rng.randint(0, 40))
                wait = rng.choice(WAITS) if rng.random() < 0.03 else 0.0
                odd = rng.random()
                batch += request(op, f, wait, rng.choice(NUMBERS) if odd < 0.003 else None,
                                 rng.getrandbits(64), int(0.003 < odd < 0.005))
            said += some
            m.socket.sendall(batch)
            for _ in range(some):
                m.answer()
    except (ConnectionError, socket.timeout, struct.error):
        pass
    finally:
        m.close()
    return said + 2
