# SPDX-License-Identifier: Apache-2.0
"""What each call is made of, read from the sources: ops with their SBP rules, or other calls."""
import re
from collections import defaultdict

from manual.headers import split_top

FUNCTION = re.compile(r"^(?:static )?(?:inline )?(?:const )?[\w*]+[\s*]+(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.M | re.S)
MAKER = re.compile(r"^#define (\w+)\(([^)]*)\)((?:[^\n]*\\\n)+[^\n]*)", re.M)


def strings(text):
    """The C string literals at the start of a text, joined."""
    m = re.match(r'\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', text)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', m.group(1))) if m else None


def def_rules(sources):
    """op -> text of its rule, where its definition has one; rules that are chosen: the literals of the function."""
    rules = {}
    for text in sources:
        functions = {m.group(1): m.group(3) for m in FUNCTION.finditer(text)}
        for m in re.finditer(r"tsri_op_def tsri_def_(\w+) = \{(.*?)\};", text, re.S):
            body = m.group(2)
            at = re.search(r"\.rule_text = ", body)
            if at:
                rules[m.group(1)] = [strings(body[at.end():])]
                continue
            at = re.search(r"\.rule_of = (\w+)", body)
            if at:
                found = re.findall(r'"((?:[^"\\]|\\.)*->[^"]*)"', functions.get(at.group(1), ""))
                if found:
                    rules[m.group(1)] = found
    return rules


def recorded(path):
    """op -> [(rule, signatures over 2 ranks)], as the tests have them on record."""
    rows = defaultdict(list)
    for m in re.finditer(r'^"(\w+): ([^;"]*); over 2: ([^;"]*)', path.read_text(), re.M):
        row = (m.group(2).strip(), m.group(3).split())
        if row not in rows[m.group(1)]:
            rows[m.group(1)].append(row)
    return rows


def list_rules(root):
    """call -> rule, of the functions of one and two numbers, which are rows of a table."""
    rules = {}
    unary = (root / "src/core/unary_list.h").read_text()
    for m in re.finditer(r"X\(T, [A-Z0-9_]+, (\w+), (?:OPERAND|RESULT)", unary):
        rules[m.group(1)] = ("unary", "!... -> ...")
    binary = (root / "src/core/binary_list.h").read_text()
    for m in re.finditer(r'X\(T, [A-Z0-9_]+, (\w+), [A-Z]+, "([^"]*)"', binary):
        rules[m.group(1)] = ("binary", m.group(2))
    for m in re.finditer(r"X\(T, [A-Z0-9_]+, (\w+), [01], ", binary):
        rules[m.group(1)] = ("binary", "!..., !... -> ...")
    return rules


def inside(text, at):
    """What stands between the bracket that opens before `at` and the one that closes it."""
    end, depth = at, 1
    while depth:
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    return text[at:end - 1]


def made_by_macros(text):
    """name -> body of the functions tsr_NAME_at that a macro of a file declares."""
    found = {}
    for m in MAKER.finditer(text):
        name = re.search(r"\btsr_(\w*)##(\w+)##(\w*_at)\(", m.group(3))
        if not name:
            continue
        params = [p.strip() for p in m.group(2).split(",")]
        for use in re.finditer(rf"^{m.group(1)}\(", text, re.M):
            args = split_top(inside(text, use.end()))
            given = dict(zip(params, args))
            given["__VA_ARGS__"] = ", ".join(args[len(params) - 1:])
            body = re.sub(r"\b\w+\b", lambda w: given.get(w.group(0), w.group(0)), m.group(3)[m.group(3).index("{"):])
            found[f"tsr_{name.group(1)}{given.get(name.group(2))}{name.group(3)}"] = body
    return found


def bodies(sources):
    """function -> (what its body and those of the static functions that it calls say)."""
    all_of = {}
    makers = {}
    for text in sources:
        makers.update({m.group(1): m.group(3) for m in FUNCTION.finditer(text) if m.group(1).startswith("tsri_make_")})
    for text in sources:
        own = {m.group(1): m.group(3) for m in FUNCTION.finditer(text)}
        own.update(made_by_macros(text))
        for name, body in own.items():
            if not name.startswith("tsr_"):
                continue
            seen, todo, words = {name}, [body], ""
            while todo:
                part = todo.pop()
                words += part
                for called in re.findall(r"\b\w+\b", part):
                    if called in own and called not in seen and not called.startswith("tsr_"):
                        seen.add(called)
                        todo.append(own[called])
            if not re.search(r"TSRI_OP_|\btsr_(?!dims_)\w+\(", words):
                words += "".join(makers.get(f, "") for f in re.findall(r"\btsri_make_\w+", words))
            all_of[name] = words
    return all_of


def extreme(text):
    m = re.search(r"\b(max|min)\b", text)
    return m.group(1) if m else ""


class Rules:
    def __init__(self, root, calls):
        """calls: user names."""
        sources = [p.read_text() for d in ("src/graph/ops", "src/graph/defs", "src/functional") for p in sorted((root / d).glob("*.c"))]
        self.rules = def_rules(sources)
        self.records = recorded(root / "tests/unit/graph/ops_rules.inc")
        self.listed = list_rules(root)
        self.bodies = bodies(sources)
        self.calls = calls
        ops = (root / "src/core/op_list.h").read_text()
        self.names = dict(re.findall(r"X\(([A-Z0-9_]+), (\w+)\)", ops))

    def of(self, item):
        """(ops, calls): [(op, [rule], [(recorded rule, signatures)])] and names of calls that a call is made of."""
        bare = item.name.removeprefix("tsr_")
        if bare in self.listed and item.header == "ops.h":
            op, rule = self.listed[bare]
            rows = [r for r in self.records[op] if r[0].replace("!a b", "!...") == rule]
            return [(op, [rule], rows[:1])], []
        body = self.bodies.get(item.target)
        if not body or item.header not in ("ops.h", "functional.h"):
            return [], []
        kinds = []
        for k in re.findall(r"\bTSRI_OP_([A-Z0-9_]+)", body):
            op = self.names.get(k)
            if op and op not in kinds and not op.endswith(("_dx", "_dw", "_grad")):
                kinds.append(op)
        ops = []
        for op in kinds:
            rows = [r for r in self.records.get(op, []) if op != "reduce" or extreme(r[0]) == extreme(bare)]
            chosen = [r for r in self.rules.get(op, []) if op != "reduce" or extreme(r) == extreme(bare)]
            ops.append((op, chosen, rows[:3]))
        made = []
        for name in re.findall(r"\b(tsr_\w+?)(?:_at\b|\()", body):
            if name in self.calls and name != item.name and name not in made and "tsr_dims_" not in name:
                made.append(name)
        return [o for o in ops if o[1] or o[2]], made


def pytorch(path):
    """call -> PyTorch's names, from the tables of docs/ops.md."""
    names = defaultdict(list)
    for line in path.read_text().split("\n"):
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if len(cells) < 2 or not line.startswith("|") or set(cells[0]) <= set("- "):
            continue
        for call in re.findall(r"`(tsr_\w+)", cells[1]):
            said = cells[0].replace("`", "")
            same = call.removeprefix("tsr_")
            said = same if same in said.split(", ") else said
            if said not in names[call]:
                names[call].append(said)
    return names
