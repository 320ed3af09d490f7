#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the calls between files against the house: the rooms of a folder, and the files of a room,
form a line, so that each can be read with only those below it in mind. What calls what is read
from the objects of the static library. usage: circles.py ROOT LIBTESSERA.a

With --planted: the same with two calls planted, which must be found: one up between rooms, one back
between the files of a room."""
import os
import re
import subprocess
import sys


def files(folder, names):
    return {f"{folder}/{name}.c" for name in names.split()}


# Circles that are still there: they may lose members, and go from this list when they are gone.
KNOWN = [
    files("src/comm/store", "conn limits meet serve server"),
]


def sources(root):
    """Meson's object names of the sources."""
    names = {}
    for top in ("placement", "sbp", "kernels", "src"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in files:
                path = os.path.relpath(os.path.join(folder, name), root)
                names[path.replace(os.sep, "_") + ".o"] = path
    return names


def calls(root, library):
    """{file: {file that it calls: a function}}"""
    names, defines, needs = sources(root), {}, {}
    text = subprocess.run(["nm", "-A", library], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        m = re.match(r"[^:]*:([^:]+):\s*[0-9a-f]*\s+(\w)\s+(\S+)$", line)
        path = m and names.get(m.group(1).split("/")[-1])
        if not path:
            continue
        if m.group(2) == "U":
            needs.setdefault(path, []).append(m.group(3))
        elif m.group(2).isupper():
            defines[m.group(3)] = path
    edges = {}
    for path, symbols in needs.items():
        for symbol in symbols:
            to = defines.get(symbol)
            if to and to != path:
                edges.setdefault(path, {}).setdefault(to, symbol)
    return edges


def circles(edges):
    """The strongly connected parts of more than one node (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(u):
        index[u] = low[u] = len(index)
        stack.append(u)
        on.add(u)
        for w in edges.get(u, {}):
            if w not in index:
                visit(w)
                low[u] = min(low[u], low[w])
            elif w in on:
                low[u] = min(low[u], index[w])
        if low[u] == index[u]:
            part = []
            while not part or part[-1] != u:
                part.append(stack.pop())
                on.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(10000)
    for u in sorted(edges):
        if u not in index:
            visit(u)
    return found


def between(edges, key):
    """The same edges between what key(file) says: rooms, or files of one room."""
    out = {}
    for a, to in edges.items():
        for b, symbol in to.items():
            if key(a) and key(b) and key(a) != key(b):
                out.setdefault(key(a), {}).setdefault(key(b), f"{a} calls {symbol} of {b}")
    return out


PLANTED = [("sbp/rule/rule.c", "sbp/route/route.c"), ("sbp/route/mover.c", "sbp/route/cross.c")]


def check(edges):
    met = []
    for what, graph in (("rooms", between(edges, os.path.dirname)),
                        *((f"files of {room}", between(
                            edges, lambda f, r=room: f if os.path.dirname(f) == r else None))
                          for room in sorted({os.path.dirname(f) for f in edges}))):
        for circle in circles(graph):
            known = next((k for k in KNOWN if k >= set(circle)), None)
            if known:
                met.append(known)
                continue
            yield f"{what} in a circle: {', '.join(circle)}"
            for a in circle:
                for b in circle:
                    if b in graph.get(a, {}):
                        yield f"    {graph[a][b]}"
    for known in KNOWN:
        if known not in met:
            yield f"no longer in a circle, to be taken from the list: {', '.join(sorted(known))}"


def main():
    edges = calls(sys.argv[1], sys.argv[2])
    if "--planted" in sys.argv:
        for a, b in PLANTED:
            edges[a][b] = "what was planted"
        found = "\n".join(check(edges))
        missed = [f"not found: {a} calling {b}" for a, b in PLANTED
                  if f"{a} calls what was planted of {b}" not in found]
        print("\n".join(missed) or "found")
        return 1 if missed else 0
    bad = list(check(edges))
    print("\n".join(bad) or f"{len(edges)} files")
    return 1 if bad or not edges else 0


if __name__ == "__main__":
    sys.exit(main())
