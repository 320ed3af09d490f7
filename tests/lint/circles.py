#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the calls between files against the house: the rooms of a folder, and the files of a room,
form a line, so that each can be read with only those below it in mind. The calls are read from the
objects of static libraries. usage: circles.py ROOT BUILD LIBRARY.a... [--planted]

With --planted: calls that close circles are planted, and circles that are not there are listed as
known ones; all of these must be found."""
import os
import re
import subprocess
import sys


def files(folder, names):
    return {f"{folder}/{name}.c" for name in names.split()}


# Circles that are still there. The list can only shrink: a circle that loses members loses them here, too.
KNOWN = [
    files("src/comm/store", "conn limits meet serve server"),
    {"src/config", *(f"src/config/{room}" for room in "evaluation layers print rules source".split())},
    files("src/config", "mesh named values"),
    files("src/config", "build_data build_graph build_model build_values check check_data check_graph experiment program"),
    files("src/config/layers", "check_layers layers"),
    files("src/cli/box", "box others"),
    files("src/cli/flight", "judge text"),
    files("src/cli/launch", "join launch nodes output watch"),
    files("src/cli/plan", "compare html json json_time long plan ranks screen text uneven why"),
    files("src/cli/plan", "sweep sweep_table"),
    files("src/cli/run", "files page rank run show summary upkeep"),
]


def sources(root, folder):
    """Meson's object names of the sources in and below a folder, of which a library is made."""
    names = {}
    for top in ("placement", "sbp", "kernels", "src") if folder == "." else (folder,):
        for where, _, files in os.walk(os.path.join(root, top)):
            for name in files:
                path = os.path.join(where, name)
                object_name = os.path.relpath(path, os.path.join(root, folder)).replace(os.sep, "_") + ".o"
                names[object_name] = os.path.relpath(path, root)
    return names


def calls(root, build, libraries):
    """{file: {file that it calls: a function}}"""
    defines, needs = {}, {}
    for library in libraries:
        names = sources(root, os.path.relpath(os.path.dirname(os.path.abspath(library)), build))
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


PLANTED = [("sbp/rule/rule.c", "sbp/route/route.c"), ("sbp/route/mover.c", "sbp/route/cross.c"),
           ("src/config/tree.c", "src/cli/options.c"), ("src/cli/trace/read.c", "src/cli/trace/command.c")]


def check(edges, known):
    met = []
    for what, graph in (("rooms", between(edges, os.path.dirname)),
                        *((f"files of {room}", between(
                            edges, lambda f, r=room: f if os.path.dirname(f) == r else None))
                          for room in sorted({os.path.dirname(f) for f in edges}))):
        for circle in circles(graph):
            same = next((k for k in known if k >= set(circle)), None)
            if same:
                met.append(same)
                if same > set(circle):
                    yield f"a known circle has lost {', '.join(sorted(same - set(circle)))}, to be taken from the list"
                continue
            yield f"{what} in a circle: {', '.join(circle)}"
            for a in circle:
                for b in circle:
                    if b in graph.get(a, {}):
                        yield f"    {graph[a][b]}"
    for k in known:
        if k not in met:
            yield f"no longer in a circle, to be taken from the list: {', '.join(sorted(k))}"


def check_planted(edges):
    """The faults that are not found."""
    for a, b in PLANTED:
        edges.setdefault(a, {})[b] = "what was planted"
    left, gone = KNOWN[0] | {"src/comm/store/log.c"}, files("sbp/search", "memo search")
    found = "\n".join(check(edges, [left, gone, *KNOWN[1:]]))
    for words in (*(f"{a} calls what was planted of {b}" for a, b in PLANTED),
                  "a known circle has lost src/comm/store/log.c,",
                  "no longer in a circle, to be taken from the list: sbp/search/memo.c, sbp/search/search.c"):
        if words not in found:
            yield f"not found: {words}"


def main():
    planted = "--planted" in sys.argv
    root, build, *libraries = [a for a in sys.argv[1:] if a != "--planted"]
    edges = calls(root, build, libraries)
    bad = list(check_planted(edges) if planted else check(edges, KNOWN))
    print("\n".join(bad) or f"{len(edges)} files")
    return 1 if bad or not edges else 0


if __name__ == "__main__":
    sys.exit(main())
