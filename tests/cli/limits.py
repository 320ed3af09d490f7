#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan within a limit of memory that a large program does not keep: what is told while it
is searched, and what fits. usage: limits.py TESSERA"""
import json
import os
import pty
import re
import shlex
import subprocess
import tempfile

from harness import IS_INSTRUMENTED, SLOWER, TESSERA, check, done, equal, tessera, tessera_json

FOLDER = tempfile.TemporaryDirectory()
PATH = os.path.join(FOLDER.name, "gpt.yaml")
with open(PATH, "w", encoding="utf-8") as f:
    f.write(f"""\
tessera: 1
placements: {{all: {{device: cuda, ranks: {[[i * 8 + j for j in range(8)] for i in range(8)]}}}}}
model: {{name: gpt, args: {{layers: {1 if IS_INSTRUMENTED else 3}, heads: 96, width: 12288}}}}
data: {{dataset: synthetic, shape: [1, 1, 2048], classes: 256, samples: 4096, batch_size: 8}}
tensors: {{input: {{sbp: "(S(0),B)"}}, label: {{sbp: "(S(0),B)"}}}}
parameters:
  - {{match: "*", sbp: B}}
  - {{match: "*.c_attn.*", sbp: "(B,S(0))"}}
  - {{match: "*.attn.c_proj.weight", sbp: "(B,S(1))"}}
  - {{match: "*.c_fc.*", sbp: "(B,S(0))"}}
  - {{match: "*.mlp.c_proj.weight", sbp: "(B,S(1))"}}
optimizer: {{name: adamw, lr: 0.001}}
""")
PROGRESS = re.compile(r"^(planning|trying --set .*): \d+ s$", re.M)


# By far too little: the states alone are more, and a smaller batch is not tried for long.
_, err = tessera("plan", PATH, "-m", "2GiB", code=1, timeout=110)
check(not PROGRESS.search(err), "progress is for a terminal alone: " + err)
said = err.splitlines()
check(said[0].startswith("tessera plan: no plan fits memory_limit, 2.15 GB a rank; the leanest "
                         "found needs "), err)
check(any(line.startswith("    optimizer states ") for line in said), "a table by kind: " + err)
check("  a smaller batch is not enough: --set data.batch_size=1 does not fit" in said, err)
named = [line for line in said if line.startswith("  what fits: --set ")]
check(len(named) == 1 or "nothing fits of what was tried" in err or (IS_INSTRUMENTED and "not tried to the end" in err), err)
for line in named:
    change = shlex.split(line.split(":", 1)[1].split(", where ")[0])
    check(any("optimizer.state" in c or "zero3" in c for c in change), f"states are more than the limit: {line}")
    tessera("plan", PATH, "-m", "2GiB", *change, timeout=110)

# On a terminal the line is written over, and is gone in the end.
master, slave = pty.openpty()
p = subprocess.Popen([TESSERA, "plan", PATH, "-m", "2GiB"], stdout=subprocess.DEVNULL, stderr=slave,
                     env={**os.environ, "NO_COLOR": "1"})
os.close(slave)
seen = b""
while True:
    try:
        part = os.read(master, 65536)
    except OSError:
        break
    if not part:
        break
    seen += part
equal(p.wait(), 1, "refused on a terminal too")
shown = ""
for line in seen.decode().replace("\r\n", "\n").split("\n"):
    # What a terminal shows of a line: all behind the last return to its start and clearing.
    shown += line.split("\r\033[K")[-1].split("\r")[-1] + "\n"
check("no plan fits memory_limit" in shown, shown)
check(not re.search(r"\d s\033?", "\n".join(x for x in shown.splitlines() if x.startswith("trying"))),
      "a line of progress is left: " + shown)

# Each change that is said to fit does: all limits and overrides that are named are planned.
SMALL = os.path.join(FOLDER.name, "small.yaml")
with open(SMALL, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
placements: {all: {device: cpu, ranks: [0, 1, 2, 3]}}
model: {name: gpt, args: {layers: 2, heads: 4, width: 64}}
data: {dataset: synthetic, shape: [1, 1, 32], classes: 256, samples: 64, batch_size: 16}
parameters: [{match: "*", sbp: B}]
optimizer: {name: adamw, lr: 0.001}
""")
kinds = set()
out, _ = tessera("plan", SMALL, "--json")
need = max(row["total"] for row in json.loads(out)["memory"])
for share in (95, 30):
    limit = str(need * share // 100)
    p = subprocess.run([TESSERA, "plan", SMALL, "-m", limit], capture_output=True, text=True, timeout=110 * SLOWER)
    for line in p.stderr.splitlines():
        if not line.startswith("  what fits: "):
            continue
        change = line.split(": ", 1)[1]
        alone = re.match(r"a memory_limit of (\d+) bytes", change)
        updates = re.match(r"with infer_updates, a memory_limit of (\d+) bytes", change)
        kinds.add("limit" if alone else "updates" if updates else change.split("=")[0])
        how = ["-m", alone[1]] if alone else \
            ["-m", updates[1], "--set", "infer_updates=true"] if updates else \
            ["-m", limit] + shlex.split(change.split(", where ")[0])
        out, _ = tessera("plan", SMALL, "--json", *how, timeout=110)
        most = max(row["total"] for row in json.loads(out)["memory"])
        check(most <= int(how[1]), f"{line}: {most} bytes")
for kind in ("limit", "--set data.batch_size", "--set optimizer.state.sbp"):
    check(kind in kinds, f"no '{kind}' among {kinds}")

# On GPUs libraries' scratch counts, also in what fits.
example = os.path.join(FOLDER.name, "small.yaml")
with open(example, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
mesh: {dp: 8}
device: cuda
cluster: h100-sxm
strategy: data
model: {name: gpt, args: {layers: 1, heads: 8, width: 1024, dropout: 0}}
data: {dataset: synthetic, shape: [1, 1, 257], classes: 10, samples: 64, batch_size: 8}
optimizer: {name: adamw, lr: 0.001}
""")
scratch = tessera_json("plan", example)["memory"][0]["scratch"]
check(scratch > 0, "a product on a GPU may take scratch")
_, err = tessera("plan", example, "-m", "1M", code=1, timeout=110)
less = str(int(re.search(r"a memory_limit of (\d+) bytes", err)[1]) - scratch // 8)
_, err = tessera("plan", example, "-m", less, code=1, timeout=110)
advice = re.findall(r"what fits: (?:a memory_limit of (\d+) bytes|(--set .*?)(?:, where .*)?$)", err, re.M)
check(len(advice) > 1, err)
for limit, sets in advice:
    tessera("plan", example, "-m", limit or less, *shlex.split(sets), timeout=110)

# The leanest layout is tried, and keeps a larger batch than signatures that are searched for.
with open(example, "w", encoding="utf-8") as f:
    f.write("""\
tessera: 1
mesh: {dp: 64}
device: cuda
cluster: {gpu: h100-sxm, nodes: 8, gpus_per_node: 8}
model: {name: gpt, args: {layers: 2, heads: 64, width: 8192, dropout: 0}}
data: {dataset: synthetic, shape: [1, 1, 2049], classes: 256, samples: 4096, batch_size: 64}
optimizer: {name: adamw, lr: 0.001}
strategy: data
""")
_, err = tessera("plan", example, "-m", "3G", code=1, timeout=110)
advice = re.findall(r"what fits: (--set 'strategy=\[zero3, megatron\]' --set 'mesh=\{dp: 8, tp: 8\}'.*?)(?:, where .*)?$", err, re.M)
check(len(advice) == 1 or "not tried to the end" in err, err)
for sets in advice:
    tessera("plan", example, "-m", "3G", *shlex.split(sets), timeout=110)
check("nothing fits of what was tried" not in err, err)

done()
