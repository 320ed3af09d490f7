# SPDX-License-Identifier: Apache-2.0
"""What the manual pages and the HTML reference share: how comments are cut and declarations set."""
import re
import textwrap

from manual.headers import squeeze

KINDS = {"opaque": "an object of the library", "struct": "a struct", "enum": "an enum",
         "callback": "a function of the user's", "macro": "a macro"}


def blocks(comment):
    """[("text" | "code", words)]: code is what is indented, or drawn in columns."""
    out, lines, kind = [], [], "text"

    def end():
        nonlocal lines
        if lines:
            if kind == "code":
                shown = textwrap.dedent("\n".join(lines)).strip("\n")
            else:
                shown = squeeze(" ".join(lines))
            if shown:
                out.append((kind, shown))
        lines = []

    for line in comment.split("\n"):
        is_code = line.startswith("  ") or (kind == "code" and not line.strip())
        if not line.strip() and not is_code:
            end()
            kind = "text"
            continue
        if is_code != (kind == "code"):
            end()
            kind = "code" if is_code else "text"
        lines.append(line)
    end()
    return out


def sentences(comment):
    text = " ".join(words for kind, words in blocks(comment) if kind == "text")
    return [s.strip() for s in re.split(r"(?<=[^.\s]\.)\s+(?=[A-Z*])", text) if s.strip()]


def short(item):
    """One line: the first sentence, cut at 90 columns."""
    said = sentences(item.comment)
    if not said:
        kind, name = getattr(item, "kind", ""), getattr(item, "name", "")
        if kind == "struct" and name.endswith("_opts"):
            return f"options: {', '.join(f.name for f in item.fields if f.name != 'size')}"[:90].rsplit(",", 1)[0]
        if kind == "enum" and item.fields:
            return ", ".join(f.name for f in item.fields)[:90].rsplit(",", 1)[0]
        return KINDS.get(getattr(item, "kind", ""), "a part of Tessera")
    text = said[0].rstrip(".:;")
    head = re.split(r"(?<=[a-z\])])[;:] ", text)[0]
    if len(head.split()) > 3 or len(text) > 90:
        text = head
    if len(text) > 90:
        text = text[:text.rindex(" ", 0, 90)].rstrip(",;:") + " ..."
    return text


def returns(item):
    said = [s for s in sentences(item.comment)
            if re.match(r"(Returns|NULL|For NULL|-1|0 |The next)\b", s) or re.search(r"\bNULL (when|on|if|where|past)\b", s)]
    if item.result == "tsr_status":
        said = [s for s in said if s.startswith("Returns")]
        said.insert(0, "TSR_OK, or the status of the error, whose text tsr_last_error(3) gives.")
    elif item.target and item.result.startswith("tsr_tensor"):
        said = said if len(sentences(item.comment)) > 3 else []
        said.append("A call that fails returns a failed tensor, and tsr_compile(3) reports the graph's first error.")
    return " ".join(dict.fromkeys(said))


def errors(item):
    return " ".join(s for s in sentences(item.comment)
                    if s.startswith(("Errors", "Sticky error")) or re.search(r"\bTSR_ERR_", s))


def declaration(kind, name):
    """A member or parameter, as C writes it."""
    if "(*" in kind:
        return kind
    sizes = "".join(re.findall(r"\[[^\]]*\]", kind))
    kind = re.sub(r"\[[^\]]*\]", "", kind).strip()
    return f"{kind}{'' if kind.endswith('*') else ' '}{name}{sizes}"


def arguments(item, width):
    """The prototype under the user's name, wrapped."""
    head = f"{item.result}{'' if item.result.endswith('*') else ' '}{item.name}("
    words = [p[2] for p in item.params] or ["void"]
    line, lines = head, []
    for i, w in enumerate(words):
        piece = w + (");" if i == len(words) - 1 else ", ")
        if len(line) + len(piece.rstrip()) > width and line.strip() and line != head:
            lines.append(line.rstrip())
            line = " " * min(len(head), 8 if len(head) > 40 else len(head))
        line += piece
    return "\n".join(lines + [line])


def options_macro(struct, items):
    macro = struct.upper()
    return macro if macro in items else ""


def field_words(item, field):
    """What is said of a field: its comment, and its default."""
    # Names of calls stay as they are.
    first = field.comment.split(" ", 1)[0]
    words = field.comment if "_" in first else field.comment[:1].upper() + field.comment[1:]
    if item.kind == "struct" and field.default and "default" not in words.lower():
        words = f"{words.rstrip('.')}. Default {field.default}." if words else f"Default {field.default}."
    return words


def signature(text):
    """S0,B->Pmax as S(0), B -> P(max)."""
    text = re.sub(r"\bS(\d)", r"S(\1)", text)
    text = re.sub(r"\bP(max|min)\b", r"P(\1)", text)
    return text.replace(",", ", ").replace("->", " -> ").strip()
