#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names, paths and contents that somebody else chose reach a terminal as text alone, whichever command shows them.
usage: foreign.py TESSERA"""
import csv
import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile

from harness import CACHE, TESSERA, check, done, equal

FOLDER = tempfile.TemporaryDirectory()
EVIL = "\x1b]0;pwn\x07 \x9b31m\nfake: line\r\x7f\u202e"   # in UTF-8: C1, and a mark that turns the text
RAW = os.fsencode(FOLDER.name) + b"/\x1b]0;pwn\x07\nfake\x9b\xff"  # and bytes that are none
EXPERIMENT = """\
tessera: 1
mesh: {x: 4}
cluster: {nodes: 2, ranks_per_node: 2}
graph:
  a: {op: normal, shape: [64, 64], sbp: S(0)}
  y: {op: to_global, in: a, sbp: B}
"""


def run(*args, code=None, env=None):
    """stdout and stderr, in which a terminal finds nothing to act on."""
    p = subprocess.run([TESSERA, *args], capture_output=True, check=False, timeout=60,
                       env={**os.environ, "XDG_CACHE_HOME": CACHE.name, "OMP_NUM_THREADS": "1", **(env or {})})
    both = p.stdout + b"\n" + p.stderr
    text = both.decode("utf-8", "backslashreplace")
    shown = f"{args}: {p.returncode} {both[:1500]!r}"
    try:
        both.decode("utf-8")
    except UnicodeDecodeError:
        check(False, f"no UTF-8: {shown}")
    if "--json" in args:
        text = text.replace("\t", "")
    check(not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text), shown)
    check(not re.search("^fake", text, re.MULTILINE), f"a line of its own: {shown}")
    if code is not None:
        equal(p.returncode, code, shown)
    return p.stdout.decode(), p.stderr.decode()


def write(path, text):
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def names_of_files():
    good = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/experiments/matmul.yaml")
    shutil.copy(good, RAW + b".yaml")
    run("plan", RAW + b".yaml", code=0)
    run("plan", "--full", RAW + b".yaml", code=0)
    run("plan", RAW + b".yaml", RAW + b".yaml")
    run("run", RAW + b".yaml", code=0)
    run("run", "--out", RAW + b"/none/x", RAW + b".yaml")
    run("plan", "--dot", RAW + b"/none", RAW + b".yaml")
    write(RAW + b".txt", EVIL)
    for command in (["plan"], ["run"], ["schema"], ["trace"], ["flight"], ["ckpt", "list"], ["ckpt", "verify"],
                    ["launch"], ["launch", "--log-dir"], ["ckpt", "compare", RAW], ["ckpt", "convert", RAW],
                    ["ckpt", "merge", RAW]):
        for path in (RAW, RAW + b".txt"):
            run(*command, path)
    run("launch", "--log-dir", RAW + b".txt", "true")
    os.makedirs(RAW, exist_ok=True)
    run("flight", RAW, code=1)
    run("ckpt", "list", RAW)
    run("info", env={"XDG_CACHE_HOME": os.fsdecode(RAW)})
    run("launch", "-n", "2", "--token-file", RAW + b".txt", "--nnodes", "2", "--node-rank", "0", "true")


def arguments():
    for args in ([EVIL], ["plan", "--" + EVIL], ["plan", "-n", EVIL], ["box", "-s", EVIL, "-f", "S(0)", "-t", "B"],
                 ["box", "-s", "4", "-f", "cpu:[0,1] " + EVIL, "-t", "cpu:[0,1] B"], ["launch", "-n", EVIL, "true"],
                 ["launch", "--role", EVIL, EVIL], ["launch", "--rdzv-id", EVIL, "true"]):
        _, err = run(*args)
        check("\\x1b" in err, f"it is named: {err}")
    path = write(os.path.join(FOLDER.name, "good.yaml"), EXPERIMENT)
    for sets in (EVIL, f"{EVIL}=1", f"cluster.nodes={EVIL}", f"graph.a.sbp={EVIL}"):
        run("plan", "--set", sets, path)
    run("plan", "--why", EVIL, path)


def experiments():
    quoted = json.dumps(EVIL)
    for text in (f"tessera: 1\n{quoted}: 3\n", f"tessera: 1\nmodel: {{name: {quoted}}}\n", f"include: {quoted}\ntessera: 1\n",
                 EXPERIMENT + f"  {quoted}: {{op: neg, in: y}}\n", EXPERIMENT + f"  z: {{op: {quoted}, in: y}}\n",
                 EXPERIMENT + f"  z: {{op: neg, in: {quoted}}}\n", f"tessera: 1\n: {EVIL}\n", EVIL):
        path = write(os.path.join(FOLDER.name, "bad.yaml"), text)
        for command in "plan", "run", "schema":
            run(command, path)
    path = write(os.path.join(FOLDER.name, "cluster.yaml"), """\
tessera: 1
mesh: {x: 8}
cluster: {nodes: 4, gpus_per_node: 2, gpu: h100-sxm, nodes_per_rack: 2, rack_link_name: %s}
graph:
  a: {op: normal, shape: [64, 64], sbp: S(0)}
  y: {op: to_global, in: a, sbp: B}
""" % quoted)
    out, _ = run("plan", path, code=0)
    check("\\x1b]0;pwn" in out and "\\nfake: line" in out, f"it is named: {out}")
    run("plan", "--full", path)
    run("plan", "--json", path)


def sheet():
    """Cells of CSV that would be formulas."""
    path = write(os.path.join(FOLDER.name, "s.yaml"), EXPERIMENT)
    name = os.path.join(FOLDER.name, "s.csv")
    run("plan", path, "--sweep", "cluster.nodes=2,=1+1,@x,+y,-z,-3,+1e3,-0x1p3", "--csv", name, code=0)
    with open(name, encoding="utf-8", newline="") as f:
        rows = list(csv.reader(f))
    equal([row[0] for row in rows[1:]], ["2", "'=1+1", "'@x", "'+y", "'-z", "-3", "+1e3", "-0x1p3"], "cells")
    check(all(re.match("'--set|/", row[-1]) for row in rows[2:]), f"errors: {[row[-1] for row in rows]}")


def tensor_file(name):
    header = json.dumps({name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(8)


def tensors():
    one = write(os.path.join(FOLDER.name, "one.safetensors"), tensor_file(EVIL))
    two = write(os.path.join(FOLDER.name, "two.safetensors"), tensor_file(EVIL + "2"))
    for args in (["list", one], ["list", "--json", one], ["verify", one], ["compare", one, two], ["compare", one, one]):
        out, err = run("ckpt", *args)
        check("pwn" in out + err or args[0] == "verify" or args[1:] == [one, one], f"{args}: {out}{err}")


def index():
    """An index of a checkpoint with a good sum."""
    try:
        xxh = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    except OSError as e:
        print(f"no index is forged: {e}")
        return
    xxh.restype, xxh.argtypes = ctypes.c_uint64, [ctypes.c_char_p, ctypes.c_size_t]
    folder = os.path.join(FOLDER.name, "ckpt")
    path = write(os.path.join(FOLDER.name, "t.yaml"), f"""\
tessera: 1
placements: {{all: {{ranks: [0]}}}}
model: {{name: mlp, args: {{inputs: 64, hidden: 8, outputs: 10}}}}
data: {{dataset: synthetic, shape: [1,8,8], classes: 10, samples: 20, batch_size: 10}}
optimizer: {{name: sgd, lr: 0.1}}
train: {{steps: 2, checkpoint: {{dir: {json.dumps(folder)}}}}}
""")
    run("run", path, code=0)
    step = os.path.join(folder, sorted(x for x in os.listdir(folder) if x.startswith("step-"))[-1])
    name = os.path.join(step, "index.json")
    with open(name, "rb") as f:
        body = f.read().rpartition(b'\n"checksum":"')[0]
    evil = json.dumps(EVIL)[1:-1].encode()
    tried = 0
    for word in sorted(set(re.findall(rb'"([^"\\]+)"', body))):
        for forged in (body.replace(b'"%s"' % word, b'"%s"' % evil), body.replace(b'"%s"' % word, b'"%s%s"' % (word, evil))):
            write(name, forged + b'\n"checksum":"%016x"}\n' % xxh(forged, len(forged)))
            for args in (["list", step], ["list", "--json", step], ["verify", step]):
                run("ckpt", *args)
            tried += 1
    check(tried > 20, f"{tried} words of the index")
    run("run", path, "--set", "train.steps=3")


def dumps():
    folder = os.path.join(FOLDER.name, "dumps")
    os.mkdir(folder)
    evil = EVIL.replace("\n", "")
    lines = ["tessera flight 1", "run r1", "rank 0 of 2", "world 1", "restart 0", f"host {evil}", "pid 7",
             "time 1700000000000000000 2023-11-14T22:14:20Z", f"reason {evil}", "exit -", "calls 1",
             f"group 1 comm=local{evil} lane=0 nranks=2 ranks=0,1 started=1 completed=0",
             "call 1 state=started group=1 world=1 seq=1 shown=0 kind=all_reduce algo=0 op=sum root=- dtype=f32 shape=4,2 "
             "segments=1 bytes=32 hash=00000000000000aa asked=1 started=1 ended=0 waits=1 "
             f"at=\"{evil}.c:1\" what=\"{evil}\"", "end", ""]
    for drop in (None, 5, 8, 11, 12):
        text = "\n".join(re.sub("[^ -~]", "", x) if i == drop else x for i, x in enumerate(lines))
        write(os.path.join(folder, "flight.rank0.txt"), text)
        run("flight", folder)
        run("flight", "--json", folder)


def traces():
    event = {"name": EVIL, "ph": "X", "pid": 0, "tid": 0, "ts": 1, "dur": 5, "cat": EVIL, "args": {"kernel": EVIL}}
    for trace in ([event], {"traceEvents": [event]}, {"traceEvents": [{**event, "cat": "compute"}]},
                  {EVIL: 1}, [{**event, "ph": EVIL}]):
        path = write(os.path.join(FOLDER.name, "trace.json"), json.dumps(trace))
        run("trace", path)
        run("trace", "--json", path)


names_of_files()
arguments()
experiments()
sheet()
tensors()
index()
dumps()
traces()
done()
