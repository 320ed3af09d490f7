#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generators, samplers and data loaders beside PyTorch's: the same random cases through both, all
values compared. Needs python3-torch; without it the exit code is 77, which meson calls skipped.

usage: samplers.py PEER [--cases N] [--seed S]

PEER is tests/models/sampler_peer; N (500) the cases of the distributed sampler, of which the others
have a share.
"""
import argparse
import random
import struct
import subprocess
import sys

try:
    import torch
    from torch.utils.data import (DataLoader, RandomSampler, SubsetRandomSampler,
                                  WeightedRandomSampler)
    from torch.utils.data.distributed import DistributedSampler
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

SEEDS = [0, 1, 42, 2 ** 32 + 1, 2 ** 63 - 1, -1, -2 ** 63]


def some_seed(r):
    return r.choice(SEEDS) if r.random() < 0.2 else r.randrange(-2 ** 40, 2 ** 40)


def some_size(r):
    return r.choice([0, 1, 2, 3, r.randrange(20), r.randrange(200), r.randrange(3000)])


def generator(seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return g


def next_word(g):
    return f"next {torch.randint(0, 2 ** 32 - 1, (1,), generator=g).item()}" if g else ""


def words(values):
    return "".join(f"{v} " for v in values)


# Each: from a random source, (the line for the peer, what it must answer or a function that judges).

def distributed(r):
    n, world, epoch = some_size(r), r.randrange(1, 18), r.randrange(50)
    if r.random() < 0.1:
        n, world = r.randrange(5), r.randrange(1, 200)
    seed = r.choice([0, r.randrange(1000), r.randrange(-10 ** 9, 10 ** 9), 2 ** 40 + 7])
    shuffle, drop, pad = r.random() < 0.8, r.random() < 0.4, r.random() < 0.85
    want = ""
    for rank in range(world):
        s = DistributedSampler(range(n), world, rank, shuffle, seed, drop)
        s.set_epoch(epoch)
        if pad or drop:
            got = list(s) if n else []  # 1.13 divides by n
            assert len(got) == len(s)
        else:  # the order that PyTorch gives one replica, every world-th of it
            one = DistributedSampler(range(n), 1, 0, shuffle, seed, drop)
            one.set_epoch(epoch)
            got = list(one)[rank::world] if n else []
        want += f"{len(got)}: " + words(got) + "| "
    return (f"distributed {n} {world} {epoch} {seed} {shuffle:d} {drop:d} {pad:d}", want)


def randperm(r):
    n, seed = r.choice([0, 1, 2, 3, r.randrange(100), r.randrange(3000)]), some_seed(r)
    g = generator(seed)
    two = torch.randperm(n, generator=g).tolist() + torch.randperm(n, generator=g).tolist()
    return f"randperm {seed} {n}", words(two) + next_word(g)


def long_randperm(r):
    n, seed = r.randrange(100000, 200000), some_seed(r)
    g = generator(seed)
    two = torch.randperm(n, generator=g).tolist() + torch.randperm(n, generator=g).tolist()
    return f"randperm {seed} {n}", words(two) + next_word(g)


def bits(t):
    code, as_int = ("d", "Q") if t.dtype == torch.float64 else ("f", "I")
    return [struct.unpack("<" + as_int, struct.pack("<" + code, v))[0] for v in t.tolist()]


def floats(r):
    f64, normal, seed = r.random() < 0.5, r.random() < 0.7, some_seed(r)
    counts = [r.choice([1, 2, 3, 15, 16, 17, 31, 32, 40, r.randrange(1, 200)])
              for _ in range(r.randrange(1, 5))]
    g, dtype = generator(seed), torch.float64 if f64 else torch.float32
    draw = torch.randn if normal else torch.rand
    drawn = [draw(n, generator=g, dtype=dtype) for n in counts]
    after = next_word(g)

    def judge(answer):
        got, _, last = answer.partition("next ")
        got = [int(word, 16) for word in got.split()]
        if "next " + last != after or len(got) != sum(counts):
            return False
        at = 0
        for t in drawn:
            part, want = got[at:at + len(t)], bits(t)
            at += len(t)
            if normal:  # 1.13 has log(1 - u) for log1p(-u), and for f32 its own log, sin and cos
                form = ("<Q", "<d") if f64 else ("<I", "<f")
                values = [struct.unpack(form[1], struct.pack(form[0], b))[0] for b in part]
                limit = 4e-16 if f64 else 1e-6 if len(t) >= 16 else 1.2e-7
                if not all(abs(a - b) <= limit * max(1, abs(b))
                           for a, b in zip(values, t.tolist())):
                    return False
            elif part != want:
                return False
        return True

    return f"floats {seed} {f64:d} {normal:d} " + words(counts), judge


def randint(r):
    span = r.choice([1, 2, 10, 1000, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 40, r.randrange(1, 2 ** 62)])
    low, n, seed = r.randrange(-2 ** 40, 2 ** 40), r.randrange(40), some_seed(r)
    g = generator(seed)
    drawn = torch.randint(low, low + span, (n,), generator=g).tolist()
    return f"randint {seed} {low} {low + span} {n}", words(drawn) + next_word(g)


def bernoulli(r):
    n, p, seed = r.randrange(60), r.choice([0, 1000, r.randrange(1001)]), some_seed(r)
    g = generator(seed)
    drawn = torch.empty(n).bernoulli_(p / 1000, generator=g)
    return f"bernoulli {seed} {n} {p}", words(int(v) for v in drawn) + next_word(g)


def state(r):
    seed, n, normals = some_seed(r), r.choice([0, 1, 623, 624, 625, r.randrange(3000)]), r.randrange(3)
    g = generator(seed)
    torch.randint(0, 2 ** 32 - 1, (n,), generator=g)
    for _ in range(normals):
        torch.randn(1, generator=g, dtype=torch.float64)
    blob, after = bytes(g.get_state().tolist()), next_word(g).split()[1]
    at = 24 + 8 * 624 + 8  # of the normal that is kept: see floats

    def judge(answer):
        got, word = answer.split()
        got = bytes.fromhex(got)
        a, b = (struct.unpack_from("<d", x, at)[0] for x in (got, blob))
        return (word == after and abs(a - b) <= 4e-16 * max(1, abs(b)) and
                got[:at] + got[at + 8:] == blob[:at] + blob[at + 8:])

    return f"state {seed} {n} {normals}", judge


def source(r, seed):
    """Of the sampler under test: a generator of its own, or PyTorch's default one."""
    if r.random() < 0.5:
        return generator(seed)
    torch.manual_seed(seed)
    return None


def passes_of(g, sampler, passes):
    want = "".join(words(int(i) for i in sampler) + "| " for _ in range(passes))
    return want + next_word(g)


def random_sampler(r):
    n, replacement, seed, passes = 1 + some_size(r), r.random() < 0.4, some_seed(r), r.randrange(1, 4)
    num = r.choice([0, n, 32, 64, 2 * n, r.randrange(1, 3 * n + 2)])
    g = source(r, seed)
    s = RandomSampler(range(n), replacement, num or None, g)
    return (f"random {g is not None:d} {seed} {passes} {n} {replacement:d} {num}",
            passes_of(g, s, passes))


def subset(r):
    n, seed, passes = some_size(r), some_seed(r), r.randrange(1, 4)
    g = source(r, seed)
    s = SubsetRandomSampler([1000 - 2 * i for i in range(n)], g)
    return f"subset {g is not None:d} {seed} {passes} {n}", passes_of(g, s, passes)


def weighted(r):
    n, seed, passes = r.randrange(1, 60), some_seed(r), r.randrange(1, 4)
    weights = [r.choice([0, 1, r.randrange(1000), r.randrange(10 ** 6)]) for _ in range(n)]
    weights[r.randrange(n)] += 1
    num = r.choice([2, n + 1, r.randrange(2, 500)])
    g = source(r, seed)
    s = WeightedRandomSampler([w / 1000 for w in weights], num, True, g)
    return (f"weighted {g is not None:d} {seed} {passes} {num} " + words(weights),
            passes_of(g, s, passes))


def loader(r, workers=0):
    n = r.choice([1, 2, r.randrange(1, 40), r.randrange(1, 300)])
    batch, seed, epochs = r.choice([1, 2, 7, 64, r.randrange(1, 40)]), some_seed(r), r.randrange(1, 4)
    shuffle, drop = r.random() < 0.7, r.random() < 0.3
    persistent = workers > 0 and r.random() < 0.5
    g = source(r, seed)
    d = DataLoader(range(n), batch, shuffle, num_workers=workers, drop_last=drop, generator=g,
                   persistent_workers=persistent)
    want = ""
    for _ in range(epochs):
        it = iter(d)
        for i, b in enumerate(it):
            want += (f"base {it._base_seed} " if i == 0 else "") + words(b.tolist()) + ", "
        want += "| "
    line = (f"loader {g is not None:d} {seed} {epochs} {n} {batch} {shuffle:d} {drop:d} "
            f"{workers} {persistent:d}")
    return line, want + next_word(g)


def loader_threads(r):
    """The peer with threads, PyTorch without: the order is the same."""
    line, want = loader(r)
    at = line.split()
    at[8] = str(r.randrange(1, 4))
    return " ".join(at), want


def loader_workers(r):
    return loader(r, r.randrange(1, 3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    r, n = random.Random(args.seed), args.cases
    kinds = [(distributed, n), (randperm, n // 2), (long_randperm, 2), (floats, n // 2), (randint, n // 4),
             (bernoulli, n // 8), (state, n // 25), (random_sampler, n // 2), (subset, n // 4),
             (weighted, n // 4), (loader, n // 5), (loader_threads, n // 10), (loader_workers, 4)]
    cases = [(kind.__name__, *kind(r)) for kind, count in kinds for _ in range(count)]
    text = "".join(line.rstrip() + "\n" for _, line, _ in cases)
    p = subprocess.run([args.peer], input=text, capture_output=True, text=True, check=False)
    answers = p.stdout.split("\n")[:-1]
    if p.returncode or len(answers) != len(cases):
        print(f"FAIL samplers: the peer ended with {p.returncode} after {len(answers)} of "
              f"{len(cases)} cases: {p.stderr.strip()}")
        return 1
    failed = False
    for kind, count in kinds:
        bad = [(line, want, got) for (name, line, want), got in zip(cases, answers)
               if name == kind.__name__ and not (want(got) if callable(want) else
                                                 got.rstrip() == want.rstrip())]
        print(f"{'FAIL' if bad else 'ok  '} samplers: {kind.__name__}: {count - len(bad)} of {count} "
              "cases as PyTorch", flush=True)
        for line, want, got in bad[:3]:
            print(f"  {line[:300]}\n  PyTorch: {str(want)[:300]}\n  Tessera: {got[:300]}")
        failed = failed or bool(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
