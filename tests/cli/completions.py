#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions know every command and option of the --help texts, and shells take them.
usage: completions.py TESSERA SCRIPT"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

tessera, script = sys.argv[1:3]
faults = []


def run(*words, code=0):
    r = subprocess.run(words, capture_output=True, text=True)
    if r.returncode != code or r.stderr:
        faults.append(f"{' '.join(words)[:200]}: {r.returncode}: {r.stderr}")
    return r.stdout


def bash_completes(file, *words):
    """What bash offers for the last word."""
    line = " ".join(f"'{w}'" for w in words)
    return run("bash", "--norc", "-c", f"""source '{file}'; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
_tessera; printf '%s\\n' "${{COMPREPLY[@]}}" """).split()


def want(found, expected, what):
    missing = set(expected) - set(found)
    if missing or not expected:
        faults.append(f"{what}: missing {sorted(missing)} of {sorted(expected)}; offered {found}")


with tempfile.TemporaryDirectory() as folder:
    files = {shell: os.path.join(folder, shell) for shell in ("bash", "zsh", "fish")}
    for shell, file in files.items():
        run(sys.executable, script, tessera, shell, file)
    text = run(tessera, "--help")
    commands = re.findall(r"^  (\w+)  ", text, re.M)
    want(bash_completes(files["bash"], "tessera", ""), commands, "commands")
    zsh, fish = open(files["zsh"]).read(), open(files["fish"]).read()
    for c in commands:
        rows = [re.split(r"(?<=\S)  +", line)[0] for line in run(tessera, c, "--help").split("\n") if line.startswith("  -")]
        options = re.findall(r"(?:^  |, )(--?[a-z][\w-]*)", "\n".join(row + " " for row in rows), re.M)
        want(bash_completes(files["bash"], "tessera", c, "-"), options, f"bash: {c}")
        part = zsh[zsh.index(f"\n    {c})"):].split(";;")[0]
        want(re.findall(r"'(--?[\w-]+)\[", part), options, f"zsh: {c}")
        rows = re.findall(rf"seen_subcommand_from {c}' -([ls]) ([\w-]+)", fish)
        want([("--" if kind == "l" else "-") + name for kind, name in rows], options, f"fish: {c}")
    for words, expected in [(["box", "--dtype", "f"], ["f32", "f16", "f64"]), (["ckpt", "c"], ["convert", "compare"]),
                            (["box", "--sh"], ["--shape"]), (["launch", "--ma"], ["--master-addr", "--master-port", "--max-restarts"])]:
        want(bash_completes(files["bash"], "tessera", *words), expected, " ".join(words))
    os.mkdir(os.path.join(folder, "here"))
    os.chdir(os.path.join(folder, "here"))
    for name in ("a.yaml", "b.txt"):
        open(name, "w").close()
    for words, offered in [(["plan", ""], ["a.yaml"]), (["plan", "a.yaml", "-n", ""], []),
                           (["launch", "-n", "2", "prog", ""], ["a.yaml", "b.txt"]), (["plan", "-d", "b"], ["b.txt"])]:
        got = bash_completes(files["bash"], "tessera", *words)
        if sorted(got) != offered:
            faults.append(f"bash: {words}: {got}; {offered} are meant")
    for shell in ("zsh", "fish"):
        if shutil.which(shell):
            run(shell, "-n", files[shell])
        else:
            print(f"{shell} is not installed: its file was not parsed by it")

print("\n".join(faults) or f"{len(commands)} commands")
sys.exit(bool(faults))
