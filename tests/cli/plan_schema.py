#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera plan --json: the plan of every example is valid by the JSON Schema that is installed (draft 2020-12).
usage: plan_schema.py TESSERA SCHEMA"""
import glob
import json
import os
import sys

from harness import check, done, needs, tessera

validator = needs("jsonschema").Draft202012Validator(json.load(open(sys.argv[2], encoding="utf-8")))
for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "../../examples/experiments/*.yaml"))):
    for options in ([], ["--memory-limit", "900G"]):
        errors = list(validator.iter_errors(json.loads(tessera("plan", path, "--json", *options)[0])))
        check(not errors, f"{path} {options}: {[(list(e.absolute_path), e.message[:200]) for e in errors[:3]]}")
done()
