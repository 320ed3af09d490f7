# SPDX-License-Identifier: Apache-2.0
"""Manual pages of section 3: one for each call, struct, enum, callback, macro and header."""
import re
import textwrap

from manual.words import arguments, blocks, declaration, errors, field_words, options_macro, returns, short, signature

WIDTH = 71
TIE = "\0"  # a space at which no line is broken


ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", '"': "\\(dq"}


def esc(text):
    """Text as roff has it; a line may begin with anything."""
    text = "".join(ESCAPES.get(c, c) for c in text)
    text = re.sub(r"[^\x00-\x7f]", lambda m: f"\\[u{ord(m.group(0)):04X}]", text)
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def paragraphs(comment):
    """A comment as roff: paragraphs are filled, drawings and code stay as they are."""
    out = []
    for kind, text in blocks(comment):
        if kind == "code":
            out.append(f".PP\n.RS 4\n.nf\n{esc(text)}\n.fi\n.RE")
        else:
            out.append(f".PP\n{esc(text)}")
    return "\n".join(out)


def code(text):
    return f".nf\n{esc(text)}\n.fi"


def legal(signs):
    """The signatures of a rule, wrapped between them."""
    text = "over 2 ranks: " + ";  ".join(signature(s).replace(" ", TIE) for s in signs)
    text = textwrap.fill(text, 70, initial_indent="    ", subsequent_indent="        ", break_on_hyphens=False)
    return text.replace(TIE, " ")


class Pages:
    def __init__(self, version, headers, rules, torch):
        self.version, self.headers, self.rules, self.torch = version, headers, rules, torch
        self.items = {i.name: i for h in headers for i in h.items}
        self.pages = {}

    def head(self, name, summary):
        summary = esc(summary)
        return f'.TH {esc(name)} 3 "" "Tessera {esc(self.version)}" "Tessera"\n.nh\n.ad l\n.SH NAME\n{esc(name)} \\- {summary}\n'

    def fields(self, item):
        out = []
        for f in item.fields:
            if f.name == "size" and f.type == "size_t" and item.kind == "struct" and not f.comment:
                continue
            value = f" = {f.default}" if f.default and item.kind == "enum" else ""
            words = field_words(item, f)
            title = declaration(f.type, f.name) if item.kind == "struct" else f.name + value
            out.append(f".TP\n.B {esc(title)}\n{esc(words) if words else chr(92) + '&'}")
        return "\n".join(out) + "\n"

    def options(self, item):
        """The sections of the structs of options that a call takes."""
        out = ""
        for kind, _, text in item.params:
            name = re.sub(r"\b(const|struct)\b|\*", "", kind).strip()
            struct = self.items.get(name)
            if not struct or struct.kind != "struct" or not name.endswith("_opts"):
                continue
            macro = options_macro(name, self.items)
            how = f"The macro {macro}(...) makes them, with the defaults where a field is left out. " if macro else ""
            out += "" if out else ".SH OPTIONS\n"
            out += f".SS {esc(name)}\n{esc(f'These are the fields of {name}(3). {how}'.strip())}\n{self.fields(struct)}"
        return out

    def signatures(self, item):
        ops, made = self.rules.of(item)
        names = self.torch.get(item.name)
        out = ""
        if ops:
            out += ".SH SIGNATURES\n"
            for op, rule, rows in ops:
                shown = " or ".join(rule)
                out += f".PP\nOp {esc(op)}" + (f", rule: {esc(shown)}\n" if shown else "\n")
                if rows:
                    lines = "".join(esc(f"{text}\n{legal(signs)}") + "\n" for text, signs in rows)
                    out += f".RS 4\n.nf\n{lines}.fi\n.RE\n"
            out += ".PP\nB of all operands is legal always. The page docs/extending/own\\-op.md explains rules.\n"
        elif made:
            out += f".SH SIGNATURES\nThis call is made of {esc(', '.join(m + '(3)' for m in made))}; signatures follow from theirs.\n"
        if names:
            out += f".SH PYTORCH\n{esc('; '.join(names))}\n"
        return out

    def see(self, item, header):
        near = [i.name for i in header.items if i.section == item.section and i.kind == item.kind and i.name != item.name]
        at = [i.name for i in header.items if i.section == item.section and i.kind == item.kind].index(item.name)
        near = near[max(0, at - 4):at + 4]
        near += [n for n in self.named(item) if n not in near and n != item.name][:6]
        near.append(f"tessera_{header.name}")
        lines = ",\n".join(f".BR {esc(n)} (3)" for n in near)
        return f".SH SEE ALSO\n{lines}\n"

    def named(self, item):
        return [n for n in dict.fromkeys(re.findall(r"\btsr_\w+", item.comment)) if n in self.items]

    def call(self, item, header):
        out = self.head(item.name, short(item))
        out += f".SH SYNOPSIS\n.nf\n.B #include <tessera/{header.name}>\n.PP\n{esc(arguments(item, WIDTH))}\n.fi\n"
        out += f".SH DESCRIPTION\n{paragraphs(item.comment)}\n"
        note = header.notes.get(item.section)
        if note and item.section:
            out += f".PP\nOf all calls of this section:\n{paragraphs(note)}\n"
        said = returns(item)
        if said:
            out += f".SH RETURN VALUE\n{esc(said)}\n"
        wrong = errors(item)
        if wrong:
            out += f".SH ERRORS\n{esc(wrong)}\n"
        out += self.options(item) + self.signatures(item)
        if item.target and item.kind == "call":
            out += f".SH NOTES\nThis is a macro that passes the place of the call to {esc(item.target)}(), for messages.\n"
        return out + self.see(item, header)

    def other(self, item, header):
        out = self.head(item.name, short(item))
        out += f".SH SYNOPSIS\n.nf\n.B #include <tessera/{header.name}>\n.PP\n"
        if item.kind in ("struct", "enum"):
            named = f"typedef {item.kind} {item.name} {{ ... }} {item.name};"
            out += f"{esc(named if item.text.startswith('typedef') else item.kind + ' { ... };')}\n.fi\n"
        else:
            out += f"{esc(item.text.strip())}\n.fi\n"
        if item.comment:
            out += f".SH DESCRIPTION\n{paragraphs(item.comment)}\n"
        if item.fields:
            out += f".SH {'FIELDS' if item.kind == 'struct' else 'VALUES'}\n"
            if item.kind == "struct" and options_macro(item.name, self.items):
                macro = options_macro(item.name, self.items)
                out += esc(f"{macro}(...) makes a literal with the defaults; a field that is given overrides its default.") + "\n"
            out += self.fields(item)
        users = [i.name for h in self.headers for i in h.items
                 if i.kind == "call" and any(re.search(rf"\b{item.name}\b", p[2]) for p in i.params)]
        if users:
            out += ".SH USED BY\n" + ",\n".join(f".BR {esc(u)} (3)" for u in users[:24]) + "\n"
        return out + self.see(item, header)

    def header(self, header):
        name = f"tessera_{header.name}"
        out = self.head(name, short(header))
        out += f".SH SYNOPSIS\n.B #include <tessera/{header.name}>\n.SH DESCRIPTION\n{paragraphs(header.comment)}\n"
        for section in dict.fromkeys([""] + header.sections):
            items = [i for i in header.items if i.section == section]
            if not items:
                continue
            out += f".SH {esc((section or 'what is in it').upper())}\n"
            if header.notes.get(section):
                out += paragraphs(header.notes[section]) + "\n"
            for i in items:
                out += f".TP\n.BR {esc(i.name)} (3)\n{esc(short(i))}\n"
        return out

    def make(self):
        pages = {}
        for h in self.headers:
            pages[f"tessera_{h.name}"] = self.header(h)
            for item in h.items:
                if item.kind == "macro" and item.name.endswith("_OPTS"):
                    struct = item.name.lower()
                    pages[item.name] = f".so man3/{struct}.3\n" if struct in self.items else self.other(item, h)
                else:
                    pages[item.name] = self.call(item, h) if item.kind == "call" else self.other(item, h)
        return pages
