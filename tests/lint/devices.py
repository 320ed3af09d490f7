#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources to asking what a device can: no line outside of src/target and kernels/cuda names a kind
(TSR_DEVICE_CPU), and none compares with the host's (== TSRI_TARGET_HOST), where tsri_target_can is meant.
usage: devices.py ROOT

With --planted: the same with lines planted, which must be found."""
import os
import re
import sys

NAMED = re.compile(r"\bTSR_DEVICE_\w+")
COMPARED = re.compile(r"(?:[=!<>]=|[<>])\s*TSRI_TARGET_HOST\b|\bTSRI_TARGET_HOST\s*(?:[=!]=|[<>])|\bcase TSRI_TARGET_HOST\b")
HOMES = ("src/target/", "kernels/cuda/")
# path -> how many lines of it name a kind, and why they do.
ALLOWED = {
    "include/tessera/placement.h": (2, "declares the kinds"),
    "placement/placement.c": (2, "tells a C program which words it can use"),
    "placement/cluster.c": (1, "all GPUs of its table are CUDA's"),
    "src/cli/info.c": (1, "prints what the CUDA module finds"),
}
PLANTED = [
    ("src/plan/pass/fuse.c", "    if (tsr_placement_device(p) == TSR_DEVICE_CPU)"),
    ("kernels/registry.c", "    for (int k = TSR_DEVICE_CPU; k <= TSR_DEVICE_CUDA; k++)"),
    ("src/cli/info.c", "    bool here = kind != TSRI_TARGET_HOST;"),
    ("src/exec/run.c", "    bool here = TSRI_TARGET_HOST == kind;"),
    ("src/exec/run.c", "    case TSRI_TARGET_HOST:"),
]
FINE = [
    ("src/exec/run.c", "    const tsr_device kind = TSRI_TARGET_HOST; // TSR_DEVICE_CPU"),
    ("src/exec/run.c", "    tsr_device_name(TSRI_TARGET_HOST); /* was TSR_DEVICE_CPU */"),
    ("kernels/cuda/module.c", "    kind == TSR_DEVICE_CUDA;"),
]


def without_comments(text):
    """The text with comments blanked, so that lines keep their numbers."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def sources(root):
    """(path, text) of each file that asks of devices."""
    for top in ("include", "placement", "sbp", "kernels", "src"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith((".c", ".h", ".cc", ".cu", ".cuh")) and not path.startswith(HOMES):
                    with open(os.path.join(root, path), encoding="utf-8") as f:
                        yield path, f.read()


def faults(path, text):
    """The lines of a file that name a kind without leave, or compare with the host's."""
    if path.startswith(HOMES):
        return
    lines = list(enumerate(without_comments(text).split("\n"), 1))
    named = [i for i, line in lines if NAMED.search(line)]
    allowed = ALLOWED.get(path, (0, ""))[0]
    if len(named) > allowed:
        for i in named:
            yield f"{path}:{i}: names a kind of device: ask tsri_target_can (src/target/target.h)"
    elif len(named) < allowed:
        yield f"{path}: {len(named)} lines name a kind of device, not {allowed}: correct ALLOWED in tests/lint/devices.py"
    for i, line in lines:
        if COMPARED.search(line):
            yield f"{path}:{i}: compares a kind with the host's: ask tsri_target_can (src/target/target.h)"


def planted(root):
    """What is wrong with finding the planted lines."""
    texts = dict(sources(root))
    for path, line in PLANTED:
        if not list(faults(path, texts.get(path, "") + line + "\n")):
            yield f"not found in {path}: {line}"
    for path, line in FINE:
        for fault in faults(path, texts.get(path, "") + line + "\n"):
            yield f"found, although fine: {fault}"


def main():
    root = sys.argv[1]
    if "--planted" in sys.argv:
        wrong = list(planted(root))
        print("\n".join(wrong) or f"{len(PLANTED)} planted lines found")
        return 1 if wrong else 0
    files = list(sources(root))
    bad = [fault for path, text in files for fault in faults(path, text)]
    bad += [f"{path}: in ALLOWED of tests/lint/devices.py, but not there"
            for path in sorted(set(ALLOWED) - {path for path, _ in files})]
    print("\n".join(bad) or f"{len(files)} files")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
