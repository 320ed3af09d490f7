#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversions of OneFlow's own tests, with the values that each rank must hold, through `tessera
run`: a generated YAML graph, and the .npy file of each rank's part.
usage: oneflow_cases.py TESSERA [CASES.json]; TESSERA_ONEFLOW_CASES names another file."""
import json
import os
import sys
import tempfile

from harness import check, done, needs, tessera

np = needs("numpy")


def signature(entries):
    text = [f"S({e[1:]})" if e[0] == "S" else e for e in entries]
    return text[0] if len(text) == 1 else "(" + ",".join(text) + ")"


def ranks_of(placement):
    return [r for part in placement for r in ranks_of(part)] if isinstance(placement, list) \
        else [placement]


def program(case):
    source = {"placement": "in", "sbp": signature(case["in_sbp"]), "dtype": "f32"}
    if case["given"] == "locals":
        locals_ = [case["in_locals"][str(r)] for r in ranks_of(case["in_placement"])]
        source.update(op="from_local", locals=locals_)
    else:
        source.update(op="constant", value=case["logical"])
    return {
        "tessera": 1,
        "placements": {"in": {"ranks": case["in_placement"]},
                       "out": {"ranks": case["out_placement"]}},
        "graph": {"x": source,
                  "y": {"op": "to_global", "in": ["x"], "placement": "out",
                        "sbp": signature(case["out_sbp"])}},
        "fetch": ["y"],
    }


def part_shape(case, index):
    """The shape of a part by the definition: outer dimensions first."""
    shape, dims, level = list(case["logical_shape"]), [], case["out_placement"]
    while isinstance(level, list):
        dims.append(len(level))
        level = level[0]
    below = int(np.prod(dims))
    for k, e in zip(dims, case["out_sbp"]):
        below //= k
        if e[0] == "S":
            a, i = int(e[1:]), index // below % k
            shape[a] = shape[a] // k + (i < shape[a] % k)
    return tuple(shape)


def group_of(case, index):
    """Parts whose addends belong together: equal but for the P dimensions."""
    dims, level, key = [], case["out_placement"], []
    while isinstance(level, list):
        dims.append(len(level))
        level = level[0]
    below = int(np.prod(dims))
    for k, e in zip(dims, case["out_sbp"]):
        below //= k
        if e[0] != "P":
            key.append(index // below % k)
    return tuple(key)


def check_case(case, folder):
    what = f"case {case['id']}, {case['name']}"
    path = os.path.join(folder, "case.yaml")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(program(case), f)  # JSON is YAML
    tessera("run", path, "--ranks", case["world"], "--out", folder)
    ranks = ranks_of(case["out_placement"])
    parts = [np.load(os.path.join(folder, f"y.rank{r}.npy")) for r in ranks]
    whole = np.load(os.path.join(folder, "y.npy"))
    logical = np.array(case["logical"], np.float32).reshape(case["logical_shape"])
    check(np.array_equal(whole, logical), f"{what}: the whole is {whole}")
    for i, part in enumerate(parts):
        check(part.dtype == np.float32 and part.shape == part_shape(case, i),
              f"{what}: rank {ranks[i]} has {part.dtype}{part.shape}, not {part_shape(case, i)}")
    if "P" in case["out_sbp"]:
        for key in {group_of(case, i) for i in range(len(ranks))}:
            total = sum(p for i, p in enumerate(parts) if group_of(case, i) == key)
            expected = logical if total.shape == logical.shape else None
            check(expected is not None and np.array_equal(total, expected),
                  f"{what}: addends make {total}")
        return
    for i, part in enumerate(parts):
        expected = np.array(case["expect_locals"][str(ranks[i])], np.float32)
        check(np.array_equal(part, expected.reshape(part.shape)),
              f"{what}: rank {ranks[i]} holds {part}, expected {expected}")


def main():
    path = os.environ.get("TESSERA_ONEFLOW_CASES") or (sys.argv + [""])[2]
    if not os.path.exists(path):
        print(f"skipped: there is no file of cases '{path}'; set TESSERA_ONEFLOW_CASES")
        sys.exit(77)
    with open(path, encoding="utf-8") as f:
        cases = json.load(f)
    check(len(cases) > 0, "no cases")
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            check_case(case, folder)
    print(f"{len(cases)} cases")
    done()


main()
