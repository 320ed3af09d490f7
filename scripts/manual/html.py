# SPDX-License-Identifier: Apache-2.0
"""The reference as HTML: one page of all headers, and a page for each file of docs/. No page needs a network."""
import html
import json
import os
import re
from pathlib import Path

from manual import markdown
from manual.words import arguments, blocks, errors, field_words, declaration, options_macro, short, signature

HERE = Path(__file__).parent
RULES = "Ops and their rules"
ORDER = {"": 0, "tutorial": 1, "guides": 2, "extending": 3}  # of the folders of docs/ in the index
OWN_OP = Path("extending/own-op.md")
NAME = re.compile(r"\b(?:tsr|TSR)_\w+")


def esc(text):
    return html.escape(text, quote=False)


class Site:
    def __init__(self, version, headers, rules, torch, root):
        self.version, self.headers, self.rules, self.torch, self.root = version, headers, rules, torch, root
        self.items = {i.name: i for h in headers for i in h.items}
        self.places = {n: self.place_of(i) for n, i in self.items.items()}
        self.docs = {p.relative_to(root / "docs"): p.read_text(encoding="utf-8") for p in sorted((root / "docs").rglob("*.md"))}

    # --- pieces

    def place_of(self, item):
        """The anchor of an item: macros of options stand with their structs, bare macros together."""
        if item.kind == "macro" and item.name.endswith("_OPTS") and item.name.lower() in self.items:
            return item.name.lower()
        return f"{item.header}-macros" if self.is_bare(item) else item.name

    @staticmethod
    def is_bare(item):
        return item.kind == "macro" and not item.comment

    def linked(self, text, of="", base=""):
        """Escaped text in which each public name, but `of`, is a link."""
        def one(m):
            name = m.group(0)
            place = self.places.get(name)
            if not place or of in (name, place):
                return name
            return f'<a href="{base}#{place}">{name}</a>'
        return NAME.sub(one, esc(text))

    def words(self, text, of=""):
        """As linked; what stands between ` is code."""
        return re.sub(r"`([^`]+)`", r"<code>\1</code>", self.linked(text, of))

    def prose(self, comment, of=""):
        return "\n".join(f'<pre tabindex="0">{self.linked(t, of)}</pre>' if kind == "code" else f"<p>{self.words(t, of)}</p>"
                         for kind, t in blocks(comment))

    def fields(self, item):
        rows = ""
        for f in item.fields:
            if item.kind == "struct" and f.name == "size" and f.type == "size_t" and not f.comment:
                continue
            value = f" = {f.default}" if f.default and item.kind == "enum" else ""
            title = declaration(f.type, f.name) if item.kind == "struct" else f.name + value
            rows += f"<dt>{self.linked(title)}</dt><dd>{self.words(field_words(item, f)) or '&#160;'}</dd>\n"
        return f"<dl>{rows}</dl>" if rows else ""

    def signatures(self, item):
        ops, made = self.rules.of(item)
        out = ""
        if ops:
            out += "<h5>Signatures</h5>"
            for op, rule, rows in ops:
                said = " or ".join(f"<code>{esc(r)}</code>" for r in rule)
                out += f"<p class=\"rule\">op <code>{op}</code>{', rule ' + said if said else ''}</p>"
                if rows:
                    lines = "".join(f"<tr><td><code>{esc(text)}</code></td><td>{esc('; '.join(map(signature, signs)))}</td></tr>"
                                    for text, signs in rows)
                    out += ('<div class="wide" tabindex="0"><table><thead><tr><th>rule of a shape</th><th>legal over 2 ranks, beside B</th>'
                            f"</tr></thead><tbody>{lines}</tbody></table></div>")
        elif made:
            out += f"<h5>Signatures</h5><p>Made of {', '.join(self.linked(m) for m in made)}; signatures follow from theirs.</p>"
        if self.torch.get(item.name):
            out += f"<h5>PyTorch</h5><p>{esc('; '.join(self.torch[item.name]))}</p>"
        return out

    def article(self, item):
        kind = "" if item.kind == "call" else f"<small>{'object' if item.kind == 'opaque' else item.kind}</small>"
        out = f'<article id="{item.name}"><h4><a href="#{item.name}">{item.name}</a>{kind}</h4>\n'
        if item.kind == "call":
            out += f'<pre tabindex="0">{self.linked(arguments(item, 96), item.name)}</pre>'
        elif item.kind in ("callback", "macro", "opaque"):
            out += f'<pre tabindex="0">{self.linked(item.text.strip(), item.name)}</pre>'
        out += self.prose(item.comment, item.name)
        if item.kind in ("struct", "enum"):
            macro = options_macro(item.name, self.items)
            if macro:
                out += f"<p>{macro}(...) makes a literal with the defaults; a field that is given overrides its default.</p>"
            out += self.fields(item)
        if item.kind == "call":
            wrong = errors(item)
            if wrong and len(item.comment) > 400:
                out += f"<h5>Errors</h5><p>{self.words(wrong, item.name)}</p>"
            for kind_of, _, _ in item.params:
                name = re.sub(r"\bconst\b|\*", "", kind_of).strip()
                if name.endswith("_opts") and name in self.items:
                    out += f'<details><summary>Options: the fields of {name}</summary>{self.fields(self.items[name])}</details>'
            out += self.signatures(item)
        return out + "</article>\n"

    # --- pages

    def page(self, title, main, base, nav, more=""):
        css = (HERE / "page.css").read_text()
        up = base.rsplit("/", 1)[0] + "/" if "/" in base else ""
        docs = ""
        for folder in sorted({p.parent for p in self.docs}, key=lambda f: (ORDER.get(f.name, len(ORDER)), f)):
            docs += f'<h2>{folder.name.capitalize() or "Pages"}</h2>\n<ul class="titles">'
            docs += "" if folder.name else f'<li><a href="{up}rules.html">{RULES}</a></li>'
            docs += "".join(f'<li><a href="{up}{self.page_of(p)}">{esc(self.title_of(p))}</a></li>'
                            for p in self.docs if p.parent == folder)
            docs += "</ul>\n"
        return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{esc(title)}</title>
<style>
{css}</style>
</head>
<body>
<a class="skip" href="#main">To the text</a>
<nav aria-label="Index">
<h1><a href="{base}">Tessera {esc(self.version)}</a></h1>
{nav}
{docs}</nav>
<main id="main" tabindex="-1">
{main}
</main>
{more}</body>
</html>
"""

    def title_of(self, path):
        return re.search(r"^# (.*)", self.docs[path], re.M).group(1)

    @staticmethod
    def page_of(path):
        return str(path.with_suffix(".html"))

    def index(self):
        nav, main, rows = "", "", []
        for h in self.headers:
            if not h.items:
                continue
            nav += f'<details><summary><a href="#{h.name}">{h.name}</a></summary>'
            main += f'<h2 id="{h.name}">{h.name}</h2>\n<pre>#include &lt;tessera/{h.name}&gt;</pre>\n{self.prose(h.comment)}\n'
            for n, section in enumerate(dict.fromkeys([""] + h.sections)):
                items = [i for i in h.items if i.section == section and self.place_of(i) == i.name]
                if not items:
                    continue
                if section:
                    place = f"{h.name}-{n}"
                    nav += f'<div class="part"><a href="#{place}">{esc(section)}</a></div>'
                    main += f'<h3 id="{place}">{esc(section[:1].upper() + section[1:])}</h3>\n'
                if h.notes.get(section):
                    main += self.prose(h.notes[section])
                nav += "<ul>" + "".join(f'<li><a href="#{i.name}">{i.name}</a></li>' for i in items) + "</ul>"
                for i in items:
                    main += self.article(i)
                    rows.append([i.name, short(i), h.name, section, " ".join(self.torch.get(i.name, []))])
            bare = [i for i in h.items if self.is_bare(i) and self.place_of(i) != i.name.lower()]
            if bare:
                lines = "\n".join(i.text.strip() for i in bare)
                main += f'<article id="{h.name}-macros"><h4>Macros of {h.name}</h4><pre tabindex="0">{self.linked(lines)}</pre></article>\n'
            nav += "</details>\n"
        calls = sum(i.kind == "call" for i in self.items.values())
        main = (f"<h1>Tessera's calls</h1>\n<p>{calls} calls of {len(self.headers)} headers, from the comments of the headers. "
                "Each has a manual page too: <code>man tsr_matmul</code>. Type <kbd>/</kbd> to search by name, words or "
                f"PyTorch's name.</p>\n{main}")
        search = ('<label for="search" class="skip">Search</label><input id="search" type="search" placeholder="Search  (/)" '
                  'autocomplete="off" spellcheck="false"><p id="count" role="status"></p><ul id="found"></ul>'
                  f'<div id="index"><h2>Headers</h2>\n{nav}</div>')
        data = json.dumps(rows, separators=(",", ":")).replace("</", "<\\/")
        more = f'<script type="application/json" id="rows">{data}</script>\n<script>\n{(HERE / "page.js").read_text()}</script>\n'
        return self.page(f"Tessera {self.version}", main, "index.html", search, more)

    def doc(self, path):
        up = "../" * (len(path.parts) - 1)

        def link(words, target):
            if target is None:
                said = self.linked(words, base=f"{up}index.html")
                return f"<code>{said}</code>"
            if re.match(r"\w+://", target):
                return f'<a href="{html.escape(target)}">{esc(words)}</a>'
            file, _, place = target.partition("#")
            at = Path(os.path.normpath(path.parent / file)) if file else path
            if at in self.docs:
                to = os.path.relpath(self.page_of(at), path.parent) + (f"#{place}" if place else "")
                return f'<a href="{to}">{esc(words)}</a>'
            if target.endswith("include/tessera"):
                return f'<a href="{up}index.html">{esc(words)}</a>'
            header = re.search(r"include/tessera/(\w+\.h)$", target)
            if header:
                return f'<a href="{up}index.html#{header.group(1)}">{esc(words)}</a>'
            return esc(words)

        main = markdown.convert(self.docs[path], link)
        return self.page(f"{self.title_of(path)} - Tessera {self.version}", main, f"{up}index.html",
                         f'<ul class="titles"><li><a href="{up}index.html">All calls</a></li></ul>')

    def table(self):
        """All ops with their rules and PyTorch's names."""
        rows = ""
        for h in self.headers:
            for item in h.items:
                ops, made = self.rules.of(item) if item.kind == "call" else ([], [])
                if not ops and not made:
                    continue
                said = []
                for op, rule, recorded in ops:
                    said += rule or [text for text, _ in recorded]
                rule = "<br>".join(f"<code>{esc(r)}</code>" for r in dict.fromkeys(said))
                if not ops:
                    rule = "as of " + ", ".join(self.linked(m, base="index.html") for m in made)
                torch = esc("; ".join(self.torch.get(item.name, [])))
                rows += f"<tr><td>{self.linked(item.name, base='index.html')}</td><td>{rule}</td><td>{torch}</td></tr>\n"
        main = (f"<h1>{RULES}</h1>\n<p>A rule says which signatures an op has: " + f'<a href="{self.page_of(OWN_OP)}">an op of your own</a> '
                "explains the letters. <code>A</code> stands for all axes of operand 0, <code>B</code> and <code>C</code> for lists of axes "
                "that follow from the options; an op of several steps has the rule of each.</p>\n"
                '<div class="wide" tabindex="0"><table><thead><tr><th>call</th><th>rule</th><th>PyTorch</th></tr></thead><tbody>\n'
                f"{rows}</tbody></table></div>")
        return self.page(f"{RULES} - Tessera {self.version}", main, "index.html",
                         '<ul class="titles"><li><a href="index.html">All calls</a></li></ul>')

    def make(self):
        files = {"index.html": self.index(), "rules.html": self.table()}
        files.update({self.page_of(p): self.doc(p) for p in self.docs})
        return files
