#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the #include lines against the house's layers, and the sources against a few rules of form; files and
functions that comments name are there. usage: layers.py ROOT [--self-test]"""
import collections
import os
import re
import sys
import tempfile

TARGET = ["src/target/"]
CORE = TARGET + ["src/core/"]
PLACE = CORE + ["placement/"]
SBP = PLACE + ["sbp/"]
KERNELS = CORE + ["kernels/"]
COMM = KERNELS + ["src/comm/"]
GRAPH = sorted(set(SBP + COMM + ["src/graph/"]))
IR = GRAPH + ["src/ir/"]
PLAN = IR + ["src/plan/"]
EXEC = PLAN + ["src/rewrite/", "src/exec/"]
NN = EXEC + ["src/autograd/", "src/nn/", "src/optim/", "src/data/", "src/train/"]
# folder -> private folders that it may include; public headers are open to all.
LAYERS = {
    "include/": [], "src/target/": TARGET, "src/core/": CORE, "placement/": PLACE, "sbp/": SBP, "kernels/": KERNELS,
    "src/comm/": COMM, "src/graph/": GRAPH, "src/functional/": GRAPH + ["src/functional/"], "src/autograd/": GRAPH + ["src/autograd/"],
    "src/rewrite/": GRAPH + ["src/rewrite/"], "src/ir/": IR, "src/plan/pass/": IR + ["src/plan/pass/", "src/plan/infer/"],
    "src/plan/infer/": IR + ["src/plan/infer/"], "src/plan/": PLAN, "src/exec/": EXEC, "src/nn/": NN, "src/optim/": NN, "src/data/": NN, "src/train/": NN,
    "src/config/": NN + ["src/config/"], "src/cli/": NN + ["src/config/", "src/cli/"],
    "models/": [], "examples/": [],
}
# room -> its headers that other rooms and folders may include; the rest is the room's own.
ROOMS = {
    "sbp/rule/": ["rule.h", "layout.h", "sbp.h"],
    "sbp/route/": ["route.h", "step.h", "pieces.h", "joint.h", "cost_model.h"],
    "sbp/search/": ["search.h"],
    "src/comm/move/": ["move.h"],
    "src/comm/schedule/": ["plan.h"],
    "src/comm/flight/": ["flight.h"],
    "src/comm/collective/": ["collective.h", "side.h"],
    "src/comm/store/": ["store.h"],
    "src/comm/local/": ["arena.h", "local.h"],
    "src/comm/gloo/": ["gloo.h"],
    "src/comm/nccl/": [],
    "src/comm/world/": ["hosts.h", "measure.h"],
    "src/data/sampler/": ["batch_sampler.h"],
    "src/data/loader/": ["decoder.h", "loader.h"],
    "src/data/sets/": [],
    "src/ir/text/": ["text.h"],
    "src/plan/infer/": ["answer.h", "strategies.h"], "src/plan/pass/": ["pass.h"], "src/plan/lower/": ["steps.h"],
    "src/plan/report/": ["report.h", "timeline.h", "stages.h"], "src/plan/choose/": ["choose.h", "cut.h", "need.h"],
    "src/plan/price/": ["price.h"],
    "kernels/cuda/library/": [], "kernels/cuda/plain/": [], "kernels/cuda/fast/": [],
    "src/train/checkpoint/": ["index.h", "shard.h", "folder.h"],
    "src/config/layers/": ["layers.h"], "src/config/print/": ["man.h"],
    "src/config/rules/": ["entries.h", "pin.h", "stages.h"], "src/config/source/": ["source.h"],
    "src/cli/plan/": ["plan.h"], "src/cli/page/": ["moves.h", "page.h", "pieces.h"],
    "src/cli/run/": [], "src/cli/box/": [], "src/cli/ckpt/": [], "src/cli/launch/": [], "src/cli/flight/": [], "src/cli/trace/": [],
}
# third-party header -> the one folder that may include it
HOMES = {"oneapi/": "kernels/cpu/", "dnnl": "kernels/cpu/", "cuda_": "kernels/cuda/",
         "cublas": "kernels/cuda/", "cudnn": "kernels/cuda/", "nccl.h": "src/comm/",
         "gloo/": "src/comm/", "yaml.h": "src/config/", "cjson/": "src/", "zlib.h": "src/",
         "xxhash.h": "src/train/checkpoint/"}
MAX_LINES, MAX_COLUMNS, MAX_SOURCES, MAX_FIELDS = 700, 100, 25, 30
# Tables of functions, or of an op's words, may have more.
WIDE = {"tsri_config_op", "tsri_device_ops", "tsri_fast_isa", "tsri_op_def"}
STRUCT = re.compile(r"^(?:typedef )?struct (\w+) \{\n(.*?)^\}", re.M | re.S)
# Files that comments name although they are not ours, or are made by the build.
FOREIGN = {"nccl.h", "cublasLt.h", "topo.h", "tuning.cc", "record_writer.h", "matmul_interpolator_data.h",
           "NAME.h", "device.h"}
NAMED = re.compile(r"[\w./*-]+\.(?:c|h|cu|cuh|cc|md)\b")
FUNCTION = re.compile(r"\btsri?_\w*[a-z0-9]\b")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def sources(root):
    for top in ("include", "placement", "sbp", "kernels", "src", "models", "examples", "tests"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".c", ".h", ".cu", ".cuh", ".cc")):
                    yield os.path.relpath(os.path.join(folder, name), root)


class Known:
    """The files of the tree, and the names that its code has outside comments."""

    def __init__(self, root):
        self.paths = {os.path.relpath(os.path.join(folder, name), root)
                      for top in ("include", "placement", "sbp", "kernels", "src", "models", "examples", "tests", "docs", "man", "scripts")
                      for folder, _, names in os.walk(os.path.join(root, top)) for name in names}
        self.names = {os.path.basename(path) for path in self.paths} | FOREIGN | {"README.md", "CHANGELOG.md"}
        self.code = set()
        for path in self.paths:
            if path.endswith((".c", ".h", ".cu", ".cuh", ".cc", ".inc")):
                with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
                    self.code |= set(re.findall(r"\w+", COMMENT.sub("", f.read())))

    def has_file(self, name, folder=""):
        """Of a name with folders the end of a path must be the same; `../` begins at the folder."""
        base = os.path.basename(name)
        if "/" not in name or base in FOREIGN | {"README.md"}:
            return base in self.names
        whole = os.path.normpath(os.path.join(folder, name)) if name.startswith(".") else name
        return bool(self.find(whole))

    def find(self, name):
        """The files that a name means."""
        return [path for path in self.paths if path == name or path.endswith("/" + name)]

    def has_function(self, name):
        """Also of a macro's name without `_at`, of several (tsr_ddps), and of a pattern (tsr_NAME)."""
        return bool({name, name + "_at", name.removesuffix("s")} & self.code) or "NAME" in name


def gone(path, line, known):
    """The files and functions of ours that a line of comment names, outside quotes and brackets, and that are not there."""
    if not re.match(r"\s*(/\*|\*|//)|.*/\*", line):
        return []
    text = re.sub(r'"[^"]*"|\'[^\']*\'|<[^>]*>|\([\w.]+:\d+\)', "", line)
    return [name for name in NAMED.findall(text)
            if "*" not in name and not name.startswith("_") and not known.has_file(name, os.path.dirname(path))] + \
        [name for name in FUNCTION.findall(text) if not known.has_function(name)]


def count_fields(body):
    """The members of a struct without comments, of which a declaration may have several."""
    count = depth = 0
    for c in body:
        depth += (c in "{([") - (c in "})]")
        count += c in ",;" and not depth
    return count


def wide_structs(root):
    """The structs with too many fields that are not options: {name: (path, fields)}"""
    found = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for m in STRUCT.finditer(COMMENT.sub("", f.read())):
                if not path.startswith("tests/") and not m[1].endswith(("_opts", "options")) and count_fields(m[2]) > MAX_FIELDS:
                    found[m[1]] = path, count_fields(m[2])
    return found


def check_widths(found):
    for name, (path, fields) in sorted(found.items()):
        if name not in WIDE:
            yield f"{path}: {name} has {fields} fields; at most {MAX_FIELDS}"
    for name in sorted(WIDE - set(found)):
        yield f"{name} is listed as wide, and is not"


def check_file(root, path, known):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        lines = f.read().split("\n")
    if "SPDX-License-Identifier: Apache-2.0" not in lines[0]:
        yield f"{path}:1: no SPDX line"
    if lines[-1] != "":
        yield f"{path}: no newline at the end"
    if len(lines) > MAX_LINES:
        yield f"{path}: {len(lines)} lines; at most {MAX_LINES}"
    layer = next((d for d in LAYERS if path.startswith(d)), None)
    for i, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield f"{path}:{i}: {len(line)} columns; at most {MAX_COLUMNS}"
        if line.startswith("/* --- ") and line.endswith(("-", "*/")) and \
                not (line.endswith("- */") and len(line) == 100) or line.startswith(" * " + 20 * "-"):
            yield f"{path}:{i}: a heading is one line of 100 columns: /* --- what --- ... --- */"
        for name in gone(path, line, known):
            yield f"{path}:{i}: names {name}, which is not there"
        if line != line.rstrip() or "\t" in line:
            yield f"{path}:{i}: tab, or blanks at the end"
        if "open_memstream(" in line and not path.startswith("tests/"):
            yield f"{path}:{i}: open_memstream hides that memory ran out: src/core/text_stream.h"
        m = re.match(r'\s*#\s*include\s+(["<])([^">]+)', line)
        if not m:
            continue
        quote, name = m.groups()
        for header, home in HOMES.items():
            if quote == "<" and name.startswith(header) and not path.startswith((home, "tests/")):
                yield f"{path}:{i}: <{name}> has its home in {home}"
        if layer is None or quote == "<":
            if layer == "include/" and not name.startswith("tessera/") and "/" in name:
                yield f"{path}:{i}: a public header includes <{name}>"
            continue
        if not name.startswith(tuple(LAYERS[layer])):
            yield f"{path}:{i}: {layer} may not include \"{name}\""
        room, header = os.path.split(name)
        if header not in ROOMS.get(room + "/", [header]) and \
                not path.startswith(("tests/", room + "/")):
            yield f"{path}:{i}: {header} is for {room}/ alone"


def self_test():
    """Each of the planted names is told, and no other."""
    text = """/* SPDX-License-Identifier: Apache-2.0 */
/* See core/there.c, there.c, ../core/there.c and tsri_there. */
/* See core/gone.c. */
/* See gone.h. */
/* See other/there.c. */
/* See gone.md. */
/* See tsri_gone. */
int tsri_there;
struct wide {
    int a, b[2], c; /* d, e; */
};
"""
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "src/core"))
        with open(os.path.join(root, "src/core/there.c"), "w", encoding="utf-8") as f:
            f.write(text)
        found = [fault.split(": ")[1] for fault in check_file(root, "src/core/there.c", Known(root))]
        fields = [count_fields(m[2]) for m in STRUCT.finditer(COMMENT.sub("", text))]
    print("\n".join(found), fields)
    return fields != [3] or found != [f"names {name}, which is not there"
                     for name in ("core/gone.c", "gone.h", "other/there.c", "gone.md", "tsri_gone")]


def main():
    if sys.argv[2:] == ["--self-test"]:
        return self_test()
    root = sys.argv[1]
    bad, n, compiled = [], 0, collections.Counter()
    known = Known(root)
    for path in sorted(sources(root)):
        n += 1
        bad += check_file(root, path, known)
        compiled[os.path.dirname(path)] += path.endswith((".c", ".cu", ".cc"))
    bad += check_widths(wide_structs(root))
    bad += [f"{folder}: {count} sources; at most {MAX_SOURCES}: give it rooms"
            for folder, count in sorted(compiled.items()) if count > MAX_SOURCES]
    print("\n".join(bad) or f"{n} files")
    return 1 if bad or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
