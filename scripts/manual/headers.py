# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers into calls, structs, enums, callbacks and macros, each with its comment."""
import re
from dataclasses import dataclass, field


@dataclass
class Field:
    type: str
    name: str
    comment: str = ""
    default: str = ""


@dataclass
class Item:
    kind: str  # call, struct, opaque, enum, callback, macro
    name: str
    comment: str
    header: str
    section: str
    line: int
    result: str = ""
    params: list = field(default_factory=list)  # of (type, name, declaration)
    fields: list = field(default_factory=list)  # of a struct or an enum
    text: str = ""  # of a macro, an enum or a callback, as the header has it
    target: str = ""  # of a call: the function that its macro calls
    attribute: str = ""

    @property
    def page(self):
        return self.name


@dataclass
class Header:
    name: str
    comment: str = ""
    sections: list = field(default_factory=list)  # of titles, in order
    notes: dict = field(default_factory=dict)  # title -> comment that is of the whole section
    items: list = field(default_factory=list)


TOKEN = re.compile(r"/\*.*?\*/|//[^\n]*|\n|[ \t]+|#(?:[^\n\\]|\\.|\\\n)*|[^\s]", re.S)
SPACE = re.compile(r"\s+")


def plain(comment):
    """The text of a comment, with its line breaks, without stars."""
    body = comment[2:-2].strip("*\n ")
    lines = [re.sub(r"^\s*\* ?", "", line) if i else line.strip() for i, line in enumerate(body.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def squeeze(text):
    return SPACE.sub(" ", text).strip()


def split_top(text, at=","):
    """Splits at commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([{"
        depth -= c in ")]}"
        if c == at and not depth:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return [p.strip() for p in parts if p.strip()]


def parameter(text):
    """(type, name, declaration) of one parameter."""
    text = squeeze(text)
    if text in ("void", "..."):
        return (text, "", text)
    m = re.match(r"(.*)\(\*(\w+)\)\((.*)\)$", text)
    if m:
        return (text, m.group(2), text)
    m = re.match(r"(.*?[\s*])(\w+)((?:\[[^\]]*\])*)$", text)
    return (m.group(1).strip() + m.group(3), m.group(2), text) if m else (text, "", text)


def take_is(text):
    """Takes TSR_IS(default) out of a member; returns what is left, and the default."""
    at = text.find("TSR_IS(")
    if at < 0:
        return text, ""
    depth, end = 0, at + 6
    while True:
        depth += text[end] == "("
        depth -= text[end] == ")"
        end += 1
        if not depth:
            break
    return text[:at] + text[end:], squeeze(text[at + 7:end - 1])


def members(body):
    """The fields of a struct's body; one for each name."""
    fields, pending, last, declaration = [], "", [], ""
    same_line = False
    for m in TOKEN.finditer(body):
        t = m.group(0)
        if t == "\n":
            same_line = False
            continue
        if t.startswith("/*"):
            words = squeeze(plain(t))
            if declaration.strip():
                pending = f"{pending} {words}".strip()
            elif same_line and last:
                for f in last:
                    f.comment = f"{f.comment.rstrip('.')}. {words}" if f.comment else words
            else:
                pending = f"{pending} {words}".strip()
        elif t.startswith(("//", "#")):
            continue
        elif t == ";" and declaration.count("{") == declaration.count("}"):
            last = []
            parts, base = split_top(declaration), ""
            for i, part in enumerate(parts):
                part, default = take_is(part)
                kind, name, text = parameter(part if not i else f"{base} {part.lstrip('* ')}")
                if not i:
                    base = re.sub(r"[\s*]*\w+(\[[^\]]*\])*\s*$", "", squeeze(part))
                last.append(Field(kind, name, pending, default))
            fields += last
            pending, declaration, same_line = "", "", True
        else:
            declaration += t
    return fields


def listed_members(body, text):
    """The members of an enum that a list macro of the header makes: LIST(ENTRY), with #define LIST(X) X(...) ..."""
    use = re.search(r"^\s*(\w+)\((\w+)\)\s*$", body, re.M)
    entry = use and re.search(rf"#define {use.group(2)}\(([^)]*)\) (.*)", body)
    rows = use and re.search(rf"#define {use.group(1)}\((\w+)\)((?:[^\n]*\\\n)+[^\n]*)", text)
    if not entry or not rows:
        return None
    made, params = [], [p.strip() for p in entry.group(1).split(",")]
    for row in re.findall(rf"\b{rows.group(1)}\(((?:[^()\"]|\"[^\"]*\")*)\)", rows.group(2)):
        given = dict(zip(params, split_top(row)))
        member = re.sub(r"\w+", lambda m: given.get(m.group(0), m.group(0)), entry.group(2)).replace("##", "").rstrip(", ")
        name, _, value = member.partition("=")
        words = [v.strip('"') for v in given.values() if v.startswith('"')]
        made.append(Field("", name.strip(), " ".join(words), value.strip()))
    return made


def enum_members(body):
    fields, pending, last, words = [], "", None, ""
    fresh = True
    for m in TOKEN.finditer(body + "\n,"):
        t = m.group(0)
        if t == "\n":
            fresh = True
            words += " "
        elif t.startswith("/*"):
            said = squeeze(plain(t))
            if last and not fresh and not words.strip():
                last.comment = f"{last.comment} {said}".strip()
            elif words.strip():  # the last one, without a comma
                pending = f"{pending} {said}".strip()
            else:
                pending = f"{pending} {said}".strip()
        elif t == ",":
            if words.strip():
                name, _, value = squeeze(words).partition("=")
                last = Field("", name.strip(), pending, value.strip())
                fields.append(last)
            pending, words, fresh = "", "", False
        elif not t.startswith("#"):
            words += t
    return [f for f in fields if not f.name.endswith("_COUNT_")]


class Reader:
    def __init__(self, name, text):
        self.header = Header(name)
        self.text = text
        self.section = ""
        self.pending = None
        self.macros = {}  # function -> [(macro, arguments or None)]
        self.functions = []

    def add(self, kind, name, line, **more):
        comment = self.pending or ""
        self.pending = None
        item = Item(kind, name, comment, self.header.name, self.section, line, **more)
        self.header.items.append(item)
        return item

    def read(self):
        declaration, start, last, newline_since = "", 0, None, True
        first_comment = True
        blank = False  # an empty line since the pending comment
        newlines = 0
        for m in TOKEN.finditer(self.text):
            t = m.group(0)
            if declaration:
                declaration += " " if t.startswith("/*") and "{" not in declaration else t
                inner = re.sub(r"/\*.*?\*/", "", declaration, flags=re.S)
                if t == ";" and inner.count("{") == inner.count("}"):
                    last = self.declare(declaration, self.text.count("\n", 0, start) + 1)
                    declaration, newline_since = "", False
                elif inner.strip() in ('extern "C" {', "}"):
                    declaration = ""
                continue
            if t == "\n":
                newline_since = True
                newlines += 1
                blank = blank or newlines > 1
                continue
            if t.isspace():
                continue
            newlines = 0
            if t.startswith("/*"):
                words = plain(t)
                if words.startswith("SPDX") or t.startswith("//"):
                    continue
                heading = re.match(r"--- (.*?) -+$", words)
                if heading:
                    self.note()
                    self.section = heading.group(1)
                    self.header.sections.append(self.section)
                elif first_comment:
                    self.header.comment, first_comment = words, False
                elif last and not newline_since:
                    last.comment = f"{last.comment}\n\n{words}".strip()
                else:
                    self.note()
                    self.pending = words
                blank = False
                continue
            if t.startswith("//"):
                continue
            if t.startswith("#"):
                made = self.directive(t, self.text.count("\n", 0, m.start()) + 1)
                if made:
                    last, newline_since = made, False
                continue
            if t == "}":
                continue
            declaration, start = t, m.start()
        self.note()
        return self

    def note(self):
        """A comment that another follows is the section's."""
        if self.pending:
            old = self.header.notes.get(self.section, "")
            self.header.notes[self.section] = f"{old}\n\n{self.pending}".strip()
            self.pending = None

    def directive(self, text, line):
        m = re.match(r"#\s*define\s+(\w+)(\(([^)]*)\))?(.*)", text.replace("\\\n", " "), re.S)
        if not m:
            return None
        name, with_arguments, arguments, body = m.group(1), m.group(2), m.group(3), squeeze(m.group(4))
        if name.endswith("_H") and not body or name.startswith("TSR_STATUS_ENUM") or name in ("TSR_API", "TSR_PRINTF"):
            return None
        called = re.match(r"(tsr_\w+_at)\(", body)
        if name.startswith("tsr_") and called:
            names = None if arguments == "..." else [a.strip() for a in arguments.split(",")]
            self.macros.setdefault(called.group(1), []).append((name, names))
            return None
        if not name.startswith("TSR_"):
            return None
        for item in self.header.items:
            if item.name == name:
                return None
        item = self.add("macro", name, line, text=text)
        item.params = [("", a.strip(), a.strip()) for a in (arguments or "").split(",") if a.strip()]
        item.attribute = "function" if with_arguments else ""
        return item

    def declare(self, text, line):
        flat = squeeze(re.sub(r"/\*.*?\*/", "", text, flags=re.S))
        if flat.startswith('extern "C"'):
            return self.declare(text[text.index("{") + 1:], line)
        m = re.match(r"typedef struct (\w+) (\w+);", flat)
        if m:
            if any(i.name == m.group(2) for i in self.header.items):
                return None
            return self.add("opaque", m.group(2), line, text=flat)
        m = re.match(r"(?:typedef )?(struct|enum)\s*(\w*) ?\{", flat)
        if m:
            body = text[text.index("{") + 1:text.rindex("}")]
            name = m.group(2) or re.search(r"\}\s*(\w*)\s*;", flat).group(1)
            fields = members(body) if m.group(1) == "struct" else listed_members(body, self.text) or enum_members(body)
            if not name:
                name = fields[0].name if fields else "enum"
            return self.add(m.group(1), name, line, fields=fields, text=text)
        m = re.match(r"typedef (.*?[\s*])(\w+)\((.*)\);$", flat)
        if m:
            return self.add("callback", m.group(2), line, result=m.group(1).strip(), text=flat,
                            params=[parameter(p) for p in split_top(m.group(3))])
        m = re.match(r"TSR_API (.*?[\s*])(\w+)\((.*?)\)\s*(TSR_PRINTF\([^)]*\))?;$", flat)
        if m:
            return self.add("call", m.group(2), line, result=m.group(1).strip(), attribute=m.group(4) or "",
                            params=[parameter(p) for p in split_top(m.group(3))])
        return None


def under_user_names(readers):
    """Renames calls that take the caller's place after the macros that give it."""
    macros, faults = {}, []
    for r in readers:
        for function, names in r.macros.items():
            macros.setdefault(function, []).extend(names)
    for r in readers:
        items = []
        for item in r.header.items:
            takes_place = item.kind == "call" and [p[1] for p in item.params[-2:]] == ["file", "line"]
            if not takes_place:
                items.append(item)
                continue
            users = macros.get(item.name, [])
            if not users:
                faults.append(f"{r.header.name}:{item.line}: no macro calls {item.name}")
            for name, arguments in users:
                params = item.params[:-2]
                if arguments is not None:
                    by_name = {p[1]: p for p in params}
                    params = [by_name.get(a, ("", a, a)) for a in arguments]
                items.append(Item("call", name, item.comment, item.header, item.section, item.line, item.result,
                                  params, target=item.name))
        r.header.items = items
    return faults


def one_home(readers):
    """An object that several headers declare belongs to the one with its calls."""
    homes = {}
    for r in readers:
        for item in r.header.items:
            if item.kind == "opaque":
                calls = sum(i.kind == "call" and i.name.startswith(item.name + "_") for i in r.header.items)
                homes.setdefault(item.name, []).append((calls, r.header.name))
    for r in readers:
        r.header.items = [i for i in r.header.items if i.kind != "opaque" or max(homes[i.name])[1] == r.header.name]


def read(folder):
    """(headers, faults) of the folder include/tessera. A fault is a call without a comment of its own."""
    names = [p.name for p in folder.glob("*.h")]
    order = re.findall(r"#include <tessera/(\w+\.h)>", (folder / "tessera.h").read_text())
    order += sorted(set(names) - set(order))
    readers = [Reader(n, (folder / n).read_text()).read() for n in order]
    faults = under_user_names(readers)
    one_home(readers)
    headers = [r.header for r in readers if r.header.items]
    calls = {}
    for h in headers:
        for item in h.items:
            if item.kind == "call" and item.name in calls:
                faults.append(f"{h.name}:{item.line}: {item.name} is declared again; see {calls[item.name]}")
            if item.kind == "call":
                calls[item.name] = f"{h.name}:{item.line}"
            if item.kind == "call" and not item.comment:
                faults.append(f"{h.name}:{item.line}: {item.name} has no comment")
    return headers, faults
