#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The code blocks of README.md, CONTRIBUTING.md and docs/ do what they say.

usage: blocks.py ROOT BUILD [PAGE...]     checks the pages; all of them, if none is named
       blocks.py ROOT BUILD --self-test   plants faults in a page, and expects to find each

```c      With main(): compiled with strict warnings against the public headers, linked with the shared library, run.
         Else a fragment: its functions and preprocessor lines at file scope, its statements in a function that has the
         variables of PRELUDE; where it does not compile alone, behind the fragments before it on its page.
```yaml   `tessera plan` takes it.
others   where each line is a command: its program is there, its options are known, and short commands are run.
         So it is with commands between ` in the text, which are not run.

An HTML comment before a block says more:
<!-- not run: REASON -->     nothing is checked
<!-- prelude: DECLARATIONS -->   further variables of a fragment
<!-- file: TEXT -->          of YAML: the file that the block, in the place of @BLOCK@, is a part of
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PRELUDE = """tsr_world *world; tsr_graph *g, *graph; const tsr_placement *p, *mesh; tsr_plan *plan;
tsr_tensor *x, *y, *w, *b, *loss, *logits; tsr_module *net, *m; tsr_optimizer *o, *optimizer; tsr_variable *v;
tsr_dataset *dataset; tsr_loader *loader; tsr_ddp *ddp; tsr_group *group; tsr_checkpoint *checkpoint;
void *arg; int64_t n, step, epoch; tsr_status status;"""
INCLUDES = "\n".join(f"#include <{h}>" for h in (
    "inttypes.h", "math.h", "stdio.h", "stdlib.h", "string.h", "tessera/tessera.h")) + "\n"
WARNINGS = ["-std=c17", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-uninitialized", "-Wno-maybe-uninitialized"]
DEFINITION = re.compile(r"^(?!typedef)(?:[\w*]+[ \n]+\**)+\w+\([^;{}]*\)(?: /\*[^\n]*\*/)?\n"
                        r"\{[^\n]*\n(?:.*?\n)?\}(?: /\*[^\n]*\*/)?$", re.M | re.S)
TYPE = re.compile(r"^(?:typedef )?(?:struct|enum)(?: \w+)? \{\n(?:.*?\n)?\}[^\n]*;$|^typedef [^\n{]*;$", re.M | re.S)
DIRECTIVE = re.compile(r"^#(?:[^\n]*\\\n)*[^\n]*$", re.M)
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:build(?:-test)?|tests|scripts|examples)/\S+|"
                     r"^(?:\$ )?(?:tessera|meson|ninja|cc|git|man) ")
PLACEHOLDER = re.compile(r"(?<![\w/.])(?:DIR|FILE|PATH|FOLDER|PROG|NAME|DATA|N|K|A|P|PORT|HOST|ARGS|CHECKPOINT)(?![\w/])|[<>|&]|\.\.\.|\$")


@dataclass
class Block:
    page: Path
    line: int
    language: str
    text: str
    comment: str


def blocks_of(page, text):
    lines, i, comment = text.split("\n"), 0, ""
    while i < len(lines):
        fence = re.match(r"(\s*)```(\w*)\s*$", lines[i])
        if fence:
            begin = i + 1
            i += 1
            body = []
            while i < len(lines) and lines[i].strip() != "```":
                body.append(lines[i][len(fence.group(1)):])
                i += 1
            yield Block(page, begin, fence.group(2), "\n".join(body), comment)
            comment = ""
        elif lines[i].lstrip().startswith("<!--"):
            comment = lines[i].strip()
            while "-->" not in lines[i] and i + 1 < len(lines):
                i += 1
                comment += "\n" + lines[i]
        elif lines[i].strip():
            comment = ""
        i += 1


def mark(block, word):
    m = re.match(rf"<!--\s*{word}:\s*(.*?)\s*-->$", block.comment.strip(), re.S)
    return m.group(1) if m else None


class Checker:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.tessera = build / "src/cli/tessera"
        self.faults, self.counts, self.helps = [], {}, {}
        self.folder = Path(tempfile.mkdtemp())
        self.env = dict(os.environ, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=str(build))

    def fault(self, block, words):
        self.faults.append(f"{block.page}:{block.line}: {words.strip()}")

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self, command, limit=120, **more):
        try:
            r = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=self.env, errors="replace",
                               stdin=subprocess.DEVNULL, **more)
        except subprocess.TimeoutExpired:
            return f"took more than {limit} s"
        return "" if r.returncode == 0 else f"exit code {r.returncode}\n{(r.stdout + r.stderr)[-2000:]}"

    # --- C

    def compile(self, text, *options):
        source = self.folder / "block.c"
        source.write_text(text)
        return self.run([*shlex.split(os.environ.get("CC", "cc")), *WARNINGS, *options, f"-I{self.root / 'include'}", str(source)]
                        + ([] if "-fsyntax-only" in options else [f"-L{self.build}", "-ltessera", "-lm"]))

    def parts(self, block):
        """What stands at file scope, [(name or "", text)], and the statements."""
        top, rest = [], block.text
        for pattern in (DIRECTIVE, DEFINITION, TYPE):
            for m in pattern.finditer(rest):
                name = re.search(r"(\w+)\(", m.group(0)) if pattern is DEFINITION else None
                top.append((m.start(), name.group(1) if name else "", m.group(0)))
            rest = pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), rest)
        return [(name, text) for _, name, text in sorted(top)], rest

    def fragment(self, chain):
        """The text of a file with the last fragment of a chain, behind the others."""
        top, statements, close = {}, "", ""
        for i, block in enumerate(chain):
            pieces, rest = self.parts(block)
            for k, (name, text) in enumerate(pieces):
                top.pop(name, None)
                top[name or (i, k)] = text
            extra = mark(block, "prelude") or ""
            statements += f"{{\n{extra}\n{{\n{rest}\n"
            close += "}}"
        return (f"{INCLUDES}" + "\n".join(top.values()) +
                f"\nstatic tsr_status block(void)\n{{\n{PRELUDE}\n{statements}\n{close}\nreturn TSR_OK;\n}}\n"
                "tsr_status block_used(void);\ntsr_status block_used(void) { return block(); }\n")

    def c(self, block, before):
        if re.search(r"^int main\(", block.text, re.M):
            program = self.folder / "program"
            said = self.compile(block.text, "-o", str(program)) or self.run([str(program)], cwd=self.folder)
            self.count("programs run")
        else:
            said = self.compile(self.fragment([block]), "-fsyntax-only")
            if said and before and not self.compile(self.fragment(before + [block]), "-fsyntax-only"):
                said = ""
            self.count("fragments compiled")
        if said:
            self.fault(block, f"this C is wrong: {said}")

    # --- YAML

    def yaml(self, block):
        file = mark(block, "file") or "@BLOCK@"
        indent = re.search(r"^( *)@BLOCK@", file, re.M)
        indent = indent.group(1) if indent else ""
        text = file.replace(f"{indent}@BLOCK@", "\n".join(indent + line for line in block.text.split("\n")))
        place = self.folder / "yaml"
        place.mkdir(exist_ok=True)
        (place / "block.yaml").write_text(text + "\n")
        for plugin in (self.build / "examples/plugin").glob("*.so"):
            shutil.copy(plugin, place)
        said = self.run([str(self.tessera), "plan", "block.yaml"], cwd=place)
        self.count("YAML files planned")
        if said:
            self.fault(block, f"tessera plan: {said}")

    # --- commands

    def options(self, command):
        if command not in self.helps:
            r = subprocess.run([self.tessera, command, "--help"], capture_output=True, text=True)
            self.helps[command] = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", r.stdout)) if r.returncode == 0 else None
        return self.helps[command]

    def command(self, block, line, may_run):
        try:
            words = shlex.split(re.sub(r"^\$ ", "", line), comments=True)
        except ValueError as e:
            self.fault(block, f"{line}: {e}")
            return
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if not words:
            return
        self.count("commands checked")
        program = re.sub(r"^build(-test)?/", "BUILD/", words[0])
        path = self.build / program[6:] if program.startswith("BUILD/") else self.root / program
        if program == "tessera":
            path = self.tessera
        if "/" in program and not path.exists():
            if not re.search(r"[{*<]|\.\.\.", program):
                self.fault(block, f"there is no {words[0]}")
            return
        short = False
        if path == self.tessera and len(words) > 1 and not words[1].startswith("-"):
            short = self.subcommand(block, line, words[1:])
        elif program.startswith("BUILD/examples/"):
            short = True
        elif "/" in program and path.is_file() and not program.startswith("BUILD/"):
            text = path.read_text(errors="replace")
            for word in words[1:]:
                if word.startswith("--") and word.split("=")[0] not in text:
                    self.fault(block, f"{words[0]} has no option {word}")
        if short and may_run and not PLACEHOLDER.search(re.sub(r"#.*", "", line)):
            words = [re.sub(r"^build(-test)?/", f"{self.build}/", w) for w in words]
            words[0] = str(path)
            said = self.run(words, cwd=self.copy())
            self.count("commands run")
            if said:
                self.fault(block, f"{line}: {said}")

    def copy(self):
        """A folder to run commands in, where the examples are as in the source tree."""
        place = self.folder / "tree"
        if not place.exists():
            place.mkdir()
            (place / "examples").symlink_to(self.root / "examples")
        return place

    def subcommand(self, block, line, words):
        """Checks the options of tessera COMMAND; returns whether it can be run, and is short."""
        before = len(self.faults)
        known = self.options(words[0])
        if known is None:
            self.fault(block, f"tessera has no command {words[0]}")
            return False
        for word in words[1:]:
            if word == "--" or (words[0] == "launch" and not word.startswith("-") and "/" in word):
                break
            name = word.split("=")[0]
            if word.startswith("-") and len(word) > 1 and not re.match(r"-\d", word) and name not in known:
                self.fault(block, f"tessera {words[0]} has no option {name}")
        for word in words[1:]:
            if word.startswith("examples/") and not (self.root / word).exists():
                self.fault(block, f"there is no {word}")
        if len(self.faults) > before:
            return False
        return words[0] in ("plan", "box", "run") or (words[0] == "launch" and "/examples/" in line)

    # --- pages

    def page(self, page, text):
        before = []
        for block in blocks_of(page, text):
            if block.comment.startswith("<!-- not run"):
                if not mark(block, "not run"):
                    self.fault(block, "<!-- not run: REASON --> needs a reason")
                self.count("not run")
            elif block.language in ("c", "C"):
                self.c(block, before)
                before.append(block)
            elif block.language in ("yaml", "yml"):
                self.yaml(block)
            elif block.language in ("", "sh", "bash", "console", "shell"):
                lines = [x for x in re.sub(r"\\\n\s*", "", block.text).split("\n") if x.strip() and not x.startswith("#")]
                commands = [x for x in lines if COMMAND.match(x)]
                if commands and (len(commands) == len(lines) or block.language):
                    for line in commands:
                        self.command(block, line, True)
        bare = re.sub(r"^\s*```.*?^\s*```", lambda m: re.sub(r"[^\n]", "", m.group(0)), text, flags=re.M | re.S)
        for m in re.finditer(r"`([^`\n]+)`", bare):
            if re.match(r"(build(-test)?/\S+|tessera (box|plan|run|ckpt|info|flight|launch)\b)", m.group(1)):
                self.command(Block(page, bare.count("\n", 0, m.start()) + 1, "", m.group(1), ""), m.group(1), False)

    def finish(self):
        shutil.rmtree(self.folder, ignore_errors=True)


GOOD = """# A page
`tessera plan FILE --json` and `build/src/cli/tessera box --run`.

```c
tsr_tensor *z = tsr_matmul(x, w);
```

It goes on:

```c
static int twice(int i)
{
    return 2 * i;
}

tsr_output(g, "z", tsr_mul_scalar(z, twice(1)), p, TSR_B);
```

<!-- prelude: int mine; -->
```c
mine = (int)n;
```

<!-- not run: it is a drawing -->
```c
x -> y
```

```
build/src/cli/tessera box --shape 8,6 --from 'cpu:[0,1] S(0)' --to B
```
"""
PLANTED = [  # (a block, words of the fault)
    ("```c\ntsr_no_such_call(x);\n```", "tsr_no_such_call"),
    ("```c\ntsr_matmul(x);\n```", "this C is wrong"),
    ("```c\nmine = 1;\n```", "mine"),
    ("```c\nint main(void)\n{\n    return 3;\n}\n```", "exit code 3"),
    ("```yaml\nno_such_key: 1\n```", "no_such_key"),
    ("```\nbuild/src/cli/tessera box --shapes 8,6\n```", "no option --shapes"),
    ("```\nbuild/src/cli/tessera box --shape 8,6 --from 'cpu:[0,1] S(7)' --to B\n```", "exit code"),
    ("```\nbuild/examples/no_such_example\n```", "there is no build/examples/no_such_example"),
    ("```sh\nscripts/test --no-such-option\n```", "has no option --no-such-option"),
    ("`tessera plan FILE --no-such`", "no option --no-such"),
    ("<!-- not run: -->\n```c\n?\n```", "needs a reason"),
]


def self_test(root, build):
    checker = Checker(root, build)
    checker.page(Path("good.md"), GOOD)
    bad = [f"a good page: {f}" for f in checker.faults]
    for text, words in PLANTED:
        checker.faults = []
        checker.page(Path("planted.md"), f"# Planted\n\n{text}\n")
        if len(checker.faults) != 1 or words not in checker.faults[0]:
            bad.append(f"{text!r}: {checker.faults}")
    checker.finish()
    print("\n".join(bad) or f"{len(PLANTED)} planted faults were found")
    return bool(bad)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if sys.argv[3:] == ["--self-test"]:
        return self_test(root, build)
    pages = [Path(p).resolve() for p in sys.argv[3:]] or [
        root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    checker = Checker(root, build)
    for page in pages:
        checker.page(page.relative_to(root) if page.is_relative_to(root) else page, page.read_text(encoding="utf-8"))
    checker.finish()
    print("\n".join(checker.faults))
    print(f"{len(pages)} pages: " + ", ".join(f"{n} {what}" for what, n in sorted(checker.counts.items())))
    return bool(checker.faults)


if __name__ == "__main__":
    sys.exit(main())
