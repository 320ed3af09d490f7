#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes completions for the command `tessera` from what its --help texts say.
usage: completions.py TESSERA bash|zsh|fish FILE"""
import re
import subprocess
import sys
from dataclasses import dataclass

PATHS = ("FILE", "DIR", "PATH", "FOLDER")
TYPES = "f32 f16 bf16 f64 i64 i32 u8 bool"


@dataclass
class Option:
    name: str  # with dashes
    value: str  # "" for a flag
    help: str


@dataclass
class Command:
    name: str
    help: str
    options: list
    words: list  # of the first operand
    operand: str  # yaml, files, folders, program or ""


def help_of(tessera, *words):
    return subprocess.run([tessera, *words, "--help"], check=True, capture_output=True, text=True).stdout


def options_of(text):
    """An alias without a value takes that of the next one on its line: -n, --ranks N."""
    found = []
    for left, words in re.findall(r"^  (-\S.*?)(?:  +(\S.*))?$", text, re.M):
        pieces = [p.partition(" ") for p in left.split(", ")]
        for i, (name, _, value) in enumerate(pieces):
            value = value or next((v for _, _, v in pieces[i:] if v), "")
            found.append(Option(name, value, words.strip()))
    return found


def operand_of(usage):
    if "FILE.yaml" in usage:
        return "yaml"
    if "PROG" in usage:
        return "program"
    return "files" if re.search(r"PATH|\bFILE\b", usage) else "folders" if re.search(r"\bDIR$", usage) else ""


def commands(tessera):
    rows = re.findall(r"^  (\w+)  +(.*)$", help_of(tessera), re.M)
    made = []
    for name, words in rows:
        text = help_of(tessera, name)
        usage = text.split("\n")[0]
        choice = re.search(r" (\w+(?:\|\w+)+) ", usage)
        made.append(Command(name, words, options_of(text), choice.group(1).split("|") if choice else [], operand_of(usage)))
    return made


# --- bash


def bash(found):
    out = """# bash completion for tessera, made from its --help texts
_tessera()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local options= valued= paths= types= words= operand= i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W '%s --help --version' -- "$cur"))
        return
    fi
    case $command in
""" % " ".join(c.name for c in found)
    for c in found:
        valued = [o.name for o in c.options if o.value]
        paths = [o.name for o in c.options if o.value in PATHS]
        types = [o.name for o in c.options if o.value == "TYPE"]
        out += f"""    {c.name})
        options='{" ".join(o.name for o in c.options)}'
        valued=' {" ".join(valued)} ' paths=' {" ".join(paths)} ' types=' {" ".join(types)} '
        words='{" ".join(c.words)}' operand='{c.operand}'
        ;;
"""
    return out + f"""    *) return ;;
    esac
    if [[ $operand == program ]]; then # what follows the program is its own
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [[ $valued == *" ${{COMP_WORDS[i]}} "* ]]; then
                ((i++))
            elif [[ ${{COMP_WORDS[i]}} != -* ]]; then
                COMPREPLY=($(compgen -f -- "$cur"))
                return
            fi
        done
    fi
    if [[ $valued == *" $prev "* ]]; then
        if [[ $paths == *" $prev "* ]]; then
            COMPREPLY=($(compgen -f -- "$cur"))
        elif [[ $types == *" $prev "* ]]; then
            COMPREPLY=($(compgen -W '{TYPES}' -- "$cur"))
        fi
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ -n $words && $COMP_CWORD -eq 2 ]]; then
        COMPREPLY=($(compgen -W "$words" -- "$cur"))
    else
        case $operand in
        yaml) COMPREPLY=($(compgen -f -X '!*.y*ml' -- "$cur") $(compgen -d -- "$cur")) ;;
        program) COMPREPLY=($(compgen -c -- "$cur") $(compgen -f -- "$cur")) ;;
        folders) COMPREPLY=($(compgen -d -- "$cur")) ;;
        files) COMPREPLY=($(compgen -f -- "$cur")) ;;
        esac
    fi
}}
complete -o filenames -F _tessera tessera
"""


# --- zsh


def quoted(text):
    return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def zsh(found):
    out = "#compdef tessera\n# zsh completion for tessera, made from its --help texts\n_tessera()\n{\n    local -a commands\n    commands=(\n"
    out += "".join(f"        '{c.name}:{quoted(c.help)}'\n" for c in found)
    out += """    )
    if ((CURRENT == 2)); then
        _describe -t commands command commands
        _values option --help --version
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
"""
    action = {"yaml": "*:file:_files -g \"*.y*ml\"", "program": "*::program:_normal", "folders": "*:folder:_files -/",
              "files": "*:file:_files", "": ""}
    for c in found:
        lines = []
        for o in c.options:
            value = ""
            if o.value:
                how = "_files" if o.value in PATHS else f"({TYPES})" if o.value == "TYPE" else " "
                value = f":{quoted(o.value)}:{how}"
            lines.append(f"'{o.name}[{quoted(o.help)}]{value}'")
        if c.words:
            lines.append(f"'1:word:({' '.join(c.words)})'")
        if action[c.operand]:
            lines.append(f"'{action[c.operand]}'")
        out += f"    {c.name})\n        _arguments " + " \\\n            ".join(lines) + "\n        ;;\n"
    return out + '    esac\n}\n_tessera "$@"\n'


# --- fish


def fish(found):
    out = "# fish completion for tessera, made from its --help texts\ncomplete -c tessera -f\n"

    def said(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    for c in found:
        out += f"complete -c tessera -n __fish_use_subcommand -a {c.name} -d {said(c.help)}\n"
        here = f"complete -c tessera -n '__fish_seen_subcommand_from {c.name}'"
        for o in c.options:
            name = f"-l {o.name[2:]}" if o.name.startswith("--") else f"-s {o.name[1:]}"
            value = " -x" if o.value else ""
            if o.value == "TYPE":
                value = f" -x -a '{TYPES}'"
            elif o.value in PATHS:
                value = " -r -F"
            out += f"{here} {name}{value} -d {said(o.help)}\n"
        if c.words:
            out += f"{here} -a '{' '.join(c.words)}'\n"
        if c.operand:
            out += f"{here} -F\n"
    return out


def main():
    if len(sys.argv) != 4 or sys.argv[2] not in ("bash", "zsh", "fish"):
        sys.exit(__doc__)
    text = {"bash": bash, "zsh": zsh, "fish": fish}[sys.argv[2]](commands(sys.argv[1]))
    with open(sys.argv[3], "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
