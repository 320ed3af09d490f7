# SPDX-License-Identifier: Apache-2.0
"""A converter for the Markdown that docs/ is written in: headings, paragraphs, lists, tables, code, links."""
import html
import re

ROW = re.compile(r"(?<!\\)\|")


def inline(text, link):
    """link(words, target) gives the HTML of a link; link(words, None) that of a piece of code."""
    out, at = "", 0
    for m in re.finditer(r"`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)|\*\*(.+?)\*\*|(?<![\w*])\*([^*\s][^*]*)\*(?!\w)", text):
        out += html.escape(text[at:m.start()].replace("\\|", "|"), quote=False)
        at = m.end()
        if m.group(1):
            out += link(m.group(1), None)
        elif m.group(2):
            out += link(m.group(2), m.group(3))
        elif m.group(4):
            out += f"<strong>{inline(m.group(4), link)}</strong>"
        else:
            out += f"<em>{inline(m.group(5), link)}</em>"
    return out + html.escape(text[at:].replace("\\|", "|"), quote=False)


def anchor(title):
    return re.sub(r"[^\w]+", "-", title.lower()).strip("-")


def cells(line):
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [c.strip() for c in ROW.split(line)]


def convert(text, link):
    """The HTML of a page."""
    out, lines, i = [], text.split("\n"), 0

    def starts_block(line):
        return not line.strip() or re.match(r"#+ |```|\||- |\d+\. ", line) or line.startswith("<!--")

    while i < len(lines):
        line = lines[i]
        fence = re.match(r"(\s*)```(\w*)", line)
        if fence:
            body = []
            i += 1
            while i < len(lines) and not lines[i].strip().startswith("```"):
                body.append(lines[i][len(fence.group(1)):])
                i += 1
            out.append(f"<pre tabindex=\"0\"><code>{html.escape(chr(10).join(body), quote=False)}</code></pre>")
            i += 1
        elif line.startswith("<!--"):
            while "-->" not in lines[i]:
                i += 1
            i += 1
        elif m := re.match(r"(#+) (.*)", line):
            n = len(m.group(1))
            out.append(f"<h{n} id=\"{anchor(m.group(2))}\">{inline(m.group(2), link)}</h{n}>")
            i += 1
        elif line.startswith("|"):
            rows = []
            while i < len(lines) and lines[i].startswith("|"):
                rows.append(cells(lines[i]))
                i += 1
            head, body = rows[0], [r for r in rows[1:] if not all(re.fullmatch(r":?-+:?", c) for c in r)]
            made = "".join(f"<th>{inline(c, link)}</th>" for c in head)
            made = f"<thead><tr>{made}</tr></thead>" if any(head) else ""
            body = "".join("<tr>" + "".join(f"<td>{inline(c, link)}</td>" for c in r) + "</tr>" for r in body)
            made += f"<tbody>{body}</tbody>"
            out.append(f"<div class=\"wide\" tabindex=\"0\"><table>{made}</table></div>")
        elif re.match(r"(- |\d+\. )", line):
            i = list_of(lines, i, out, link)
        elif not line.strip():
            i += 1
        else:
            words = [line]
            i += 1
            while i < len(lines) and not starts_block(lines[i]):
                words.append(lines[i])
                i += 1
            out.append(f"<p>{inline(' '.join(w.strip() for w in words), link)}</p>")
    return "\n".join(out)


def list_of(lines, i, out, link):
    """Converts the list that begins at line i; an item's indented lines are its own."""
    tag = "ul" if lines[i].startswith("- ") else "ol"
    out.append(f"<{tag}>")
    while i < len(lines) and (m := re.match(r"(- |\d+\. )", lines[i])):
        width, body = len(m.group(1)), [lines[i][len(m.group(1)):]]
        i += 1
        while i < len(lines) and (lines[i].startswith("  ") or (not lines[i].strip() and i + 1 < len(lines) and lines[i + 1].startswith("  "))):
            body.append(lines[i][min(width, len(lines[i]) - len(lines[i].lstrip())):])
            i += 1
        inner = convert("\n".join(body), link)
        only = re.fullmatch(r"<p>(.*)</p>", inner, re.S)
        out.append(f"<li>{only.group(1) if only and '<p>' not in only.group(1) else inner}</li>")
    out.append(f"</{tag}>")
    return i
