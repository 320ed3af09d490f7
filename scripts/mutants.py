# SPDX-License-Identifier: Apache-2.0
"""Finds the places in C source where a small fault can be planted, and writes the source with many
faults in it, each chosen at run time. Used by scripts/mutate.

There is no parser here: tokens, matched brackets and the precedence of operators are enough to find
an operator's operands and a statement's end in formatted C17. A wrong guess does not compile, and
the caller drops it.
"""

import re

TOKEN = re.compile(r'''
    (?P<space>[ \t\r\n\f\v]+ | //[^\n]* | /\*.*?\*/ | \\\n)
  | (?P<directive>\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>(?:u8|[LuU])?"(?:[^"\\\n]|\\.)*")
  | (?P<char>[LuU]?'(?:[^'\\\n]|\\.)*')
  | (?P<number>\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.'])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<op>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|[-+*/%<>=!~&|^?:;,.(){}\[\]])
''', re.VERBOSE | re.DOTALL)

PRECEDENCE = {'*': 10, '/': 10, '%': 10, '+': 9, '-': 9, '<<': 8, '>>': 8, '<': 7, '<=': 7, '>': 7,
              '>=': 7, '==': 6, '!=': 6, '&': 5, '^': 4, '|': 3, '&&': 2, '||': 1}
SWAPS = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '==', '&&': '||', '||': '&&',
         '+': '-', '-': '+', '*': '/', '/': '*', '%': '*', '<<': '>>', '>>': '<<', '&': '|', '|': '&'}
ASSIGN = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}
ASSIGN_SWAPS = {'+=': '-=', '-=': '+=', '*=': '/=', '/=': '*=', '|=': '&=', '&=': '|='}
CALL_SWAPS = {'fmin': 'fmax', 'fmax': 'fmin', 'min64': 'max64', 'max64': 'min64', 'vmin': 'vmax',
              'vmax': 'vmin', 'tsri_min': 'tsri_max', 'tsri_max': 'tsri_min'}
KEYWORDS = {'return', 'case', 'else', 'do', 'goto', 'sizeof', 'if', 'for', 'while', 'switch',
            'break', 'continue', 'default', 'throw', 'try', 'catch', 'delete', 'new'}
TYPE_WORDS = {'const', 'static', 'struct', 'enum', 'union', 'unsigned', 'signed', 'int', 'char',
              'short', 'long', 'float', 'double', 'void', 'bool', 'volatile', 'extern', 'register',
              'auto', 'typedef', 'using', 'template', 'class', 'namespace', '_Alignas', '_Atomic',
              '_Static_assert', 'static_assert', '_Thread_local', '__attribute__'}
OPEN, CLOSE = {'(': ')', '[': ']', '{': '}'}, {')': '(', ']': '[', '}': '{'}


class Token:
    __slots__ = ('kind', 'text', 'start', 'end', 'line', 'match')

    def __init__(self, kind, text, start, line):
        self.kind, self.text, self.start, self.line = kind, text, start, line
        self.end, self.match = start + len(text), -1


class Mutant:
    """Tokens [first, last) of a file, and how to write them once the fault is in."""

    def __init__(self, path, line, kind, first, last, old, new, write):
        self.path, self.line, self.kind, self.first, self.last = path, line, kind, first, last
        self.old, self.new, self.write, self.id = old, new, write, -1

    def key(self):
        return f'{self.path}:{self.line}:{self.first}:{self.kind}:{self.new}'


class Source:
    """One file: its tokens, the bodies of its functions and the mutants that it offers."""

    def __init__(self, path, text):
        self.path, self.text = path, text
        self.tokens = tokens_of(text)
        self.matched = match_brackets(self.tokens)
        self.mutants = []
        if self.matched:
            for first, last in self.bodies():
                self.scan(first, last)

    def bodies(self):
        toks, i, found = self.tokens, 0, []
        while i < len(toks):
            t = toks[i]
            if t.text == '{':
                before = toks[i - 1].text if i else ''
                if before == ')':
                    found.append((i + 1, t.match))
                    i = t.match
                elif before in ('=', ',', ']'):
                    i = t.match
            elif t.text in ('(', '['):
                i = t.match
            i += 1
        return found

    def operand_ends(self, i):
        """True if the token before i ends an operand, so that an operator at i is a binary one."""
        p = self.tokens[i - 1]
        if p.kind in ('number', 'string', 'char') or p.text in (']', '++', '--'):
            return True
        if p.text == ')':
            return not self.is_cast(p.match)
        return p.kind == 'name' and p.text not in KEYWORDS

    def is_cast(self, i):
        """True if the bracket at i opens a cast, as far as one can tell without knowing types."""
        before = self.tokens[i - 1]
        if (before.kind == 'name' and before.text not in KEYWORDS - {'sizeof'}) or \
                before.text in (')', ']'):
            return False
        inner = [t.text for t in self.tokens[i + 1:self.tokens[i].match]]
        if not inner or any(not re.fullmatch(r'\w+|\*', t) for t in inner):
            return False
        return inner[-1] == '*' or any(t in TYPE_WORDS for t in inner) or (
            len(inner) == 1 and re.fullmatch(r'\w+_t|tsri?_\w+', inner[0]) is not None)

    def left_of(self, i, level):
        j = i
        while True:
            t = self.tokens[j - 1]
            if t.text in (')', ']'):
                j = t.match
            elif t.text in ('(', '[', '{', '}', ',', ';', '?', ':') or t.text in ASSIGN or \
                    t.text in KEYWORDS - {'sizeof'} or t.kind == 'directive':
                return j
            elif t.text in PRECEDENCE and PRECEDENCE[t.text] < level and \
                    self.operand_ends(j - 1):
                return j
            else:
                j -= 1

    def right_of(self, i, level):
        j = i + 1
        while True:
            t = self.tokens[j]
            if t.text in ('(', '[') or (t.text == '{' and self.tokens[j - 1].text == ')'):
                j = t.match + 1
                continue
            if t.text in (',', ';', ')', ']', '}', '{') or t.kind == 'directive':
                return j
            if level and (t.text in ('?', ':') or t.text in ASSIGN):
                return j
            if t.text in PRECEDENCE and PRECEDENCE[t.text] <= level and self.operand_ends(j):
                return j
            j += 1

    def pure(self, first, last):
        """True if tokens [first, last) can be evaluated twice: no call and no assignment."""
        for j in range(first, last):
            t = self.tokens[j]
            if t.text in ASSIGN or t.text in ('++', '--'):
                return False
            if t.text == '(' and (self.tokens[j - 1].kind == 'name' or
                                  self.tokens[j - 1].text == ')') and \
                    self.tokens[j - 1].text not in KEYWORDS and \
                    not (self.tokens[j - 1].text == ')' and
                         self.is_cast(self.tokens[j - 1].match)):
                return False
        return True

    def add(self, i, kind, first, last, new, write):
        if first >= last or any(t.kind == 'directive' for t in self.tokens[first:last]):
            return
        old = ' '.join(t.text for t in self.tokens[first:last])
        self.mutants.append(Mutant(self.path, self.tokens[i].line, kind, first, last,
                                   old if len(old) <= 100 else old[:97] + '...', new, write))

    def scan(self, first, last):
        toks, i, statement = self.tokens, first, True
        while i < last:
            t = toks[i]
            if t.text in ('assert', 'static_assert', '_Static_assert') and toks[i + 1].text == '(':
                i, statement = toks[i + 1].match + 1, False
                continue
            if statement and t.kind != 'directive':
                self.scan_statement(i, last)
            statement = self.starts_statement(i)
            if t.kind == 'number':
                self.scan_number(i)
            elif t.text in SWAPS and self.operand_ends(i) and t.text != '=':
                self.scan_binary(i)
            elif t.text in ASSIGN_SWAPS:
                self.scan_assign(i)
            elif t.text in ('++', '--'):
                self.scan_step(i)
            elif t.text == '!':
                self.scan_not(i)
            elif t.text in ('if', 'while') and toks[i + 1].text == '(':
                self.scan_condition(i)
            elif t.text in CALL_SWAPS and toks[i + 1].text == '(':
                self.scan_call(i)
            i += 1

    def starts_statement(self, i):
        """True if a statement can start behind token i."""
        t = self.tokens[i]
        if t.text in (';', '{', '}', 'else', 'do') or t.kind == 'directive':
            return True
        return t.text == ')' and self.tokens[t.match - 1].text in ('if', 'for', 'while', 'switch')

    def scan_number(self, i):
        t = self.tokens[i]
        text = t.text
        if re.fullmatch(r'[0-9]+[uUlL]*|0x[0-9a-fA-F]+[uUlL]*', text):
            self.add(i, 'constant', i, i + 1, f'{text} + 1',
                     lambda n, get: f'(tsri_mutant({n}) ? {text} + 1 : {text})')
            if text not in ('0', '0u', '0U'):
                self.add(i, 'constant', i, i + 1, f'{text} - 1',
                         lambda n, get: f'(tsri_mutant({n}) ? {text} - 1 : {text})')
        elif re.fullmatch(r'[0-9.]+(?:[eE][-+]?[0-9]+)?[fF]?', text):
            self.add(i, 'constant', i, i + 1, f'{text} + 1',
                     lambda n, get: f'(tsri_mutant({n}) ? {text} + 1 : {text})')

    def scan_binary(self, i):
        op = self.tokens[i].text
        new, level = SWAPS[op], PRECEDENCE[op]
        first, last = self.left_of(i, level), self.right_of(i, level)
        if first == i or last == i + 1:
            return
        if op in ('*', '&') and first == i - 1 and self.starts_statement(first - 1) and \
                self.tokens[i + 1].kind == 'name':
            return  # a declaration of a pointer
        differs = op in ('<', '<=', '>', '>=', '+', '-') and self.pure(first, last)

        def write(n, get):
            left, right = get(first, i), get(i + 1, last)
            was, now = f'({left} {op} {right})', f'({left} {new} {right})'
            if differs:
                return f'(tsri_mutant_if({n}, {was} != {now}) ? {now} : {was})'
            return f'(tsri_mutant({n}) ? {now} : {was})'
        self.add(i, 'operator', first, last, f'{op} -> {new}', write)

    def scan_assign(self, i):
        op = self.tokens[i].text
        new = ASSIGN_SWAPS[op]
        first, last = self.left_of(i, 0), self.right_of(i, 0)
        self.add(i, 'assignment', first, last, f'{op} -> {new}', lambda n, get: (
            f'(tsri_mutant({n}) ? ({get(first, i)} {new} {get(i + 1, last)})'
            f' : ({get(first, i)} {op} {get(i + 1, last)}))'))

    def primary_before(self, i):
        j = i
        while True:
            t = self.tokens[j - 1]
            if t.text in (')', ']'):
                j = t.match
                if t.text == ')' and self.tokens[j - 1].kind != 'name':
                    return j
            elif t.kind == 'name' and t.text not in KEYWORDS:
                j -= 1
                if self.tokens[j - 1].text not in ('.', '->'):
                    return j
                j -= 1
            else:
                return j

    def primary_after(self, i):
        j = i + 1
        while self.tokens[j].text == '*':
            j += 1
        if self.tokens[j].text == '(':
            j = self.tokens[j].match + 1
        else:
            j += 1
        while True:
            t = self.tokens[j].text
            if t in ('.', '->'):
                j += 2
            elif t in ('[', '('):
                j = self.tokens[j].match + 1
            else:
                return j

    def scan_step(self, i):
        op = self.tokens[i].text
        new = '--' if op == '++' else '++'
        before = self.tokens[i - 1]
        if before.text in (')', ']') or (before.kind == 'name' and before.text not in KEYWORDS):
            first = self.primary_before(i)
            self.add(i, 'step', first, i + 1, f'{op} -> {new}', lambda n, get: (
                f'(tsri_mutant({n}) ? {get(first, i)}{new} : {get(first, i)}{op})'))
        else:
            last = self.primary_after(i)
            self.add(i, 'step', i, last, f'{op} -> {new}', lambda n, get: (
                f'(tsri_mutant({n}) ? {new}{get(i + 1, last)} : {op}{get(i + 1, last)})'))

    def scan_not(self, i):
        last = self.primary_after(i)
        self.add(i, 'not', i, last, 'without !', lambda n, get: (
            f'(tsri_mutant({n}) ? !!{get(i + 1, last)} : !{get(i + 1, last)})'))

    def scan_condition(self, i):
        """The branch is never taken: an error ignored, a special case forgotten."""
        first, last = i + 2, self.tokens[i + 1].match
        self.add(i, 'condition', first, last, 'false',
                 lambda n, get: f'tsri_mutant_false({n}, !!({get(first, last)}))')

    def scan_call(self, i):
        old, last = self.tokens[i].text, self.tokens[i + 1].match + 1
        new = CALL_SWAPS[old]
        self.add(i, 'call', i, last, f'{old} -> {new}', lambda n, get: (
            f'(tsri_mutant({n}) ? {new}{get(i + 1, last)} : {old}{get(i + 1, last)})'))

    def scan_statement(self, i, last):
        t = self.tokens[i]
        if t.text in ('break', 'continue') and self.tokens[i + 1].text == ';':
            new = 'continue' if t.text == 'break' else 'break'
            old = t.text
            self.add(i, 'jump', i, i + 2, new,
                     lambda n, get: f'{{ if (tsri_mutant({n})) {new}; {old}; }}')
            return
        if t.text == 'TSRI_TRY' and self.tokens[i + 1].text == '(':
            end = self.tokens[i + 1].match
            if self.tokens[end + 1].text == ';':
                self.add(i, 'ignored', i, end + 2, 'status ignored', lambda n, get: (
                    f'{{ tsr_status tsri_try_ = ({get(i + 2, end)}); if (tsri_try_ != TSR_OK && '
                    f'!tsri_mutant({n})) return tsri_try_; }}'))
            return
        if not (t.kind == 'name' or t.text in ('*', '++', '--', '(')) or t.text in KEYWORDS or \
                t.text in TYPE_WORDS:
            return
        second = self.tokens[i + 1]
        if t.kind == 'name' and (second.kind == 'name' or second.text in (':', '::') or (
                second.text == '*' and self.tokens[i + 2].kind == 'name') or (
                second.text == '*' and self.tokens[i + 2].text in ('*', 'const'))):
            return  # a declaration or a label
        j = i
        while j < last and self.tokens[j].text != ';':
            if self.tokens[j].text in OPEN:
                if self.tokens[j].text == '{' and self.tokens[j - 1].text != ')':
                    return
                j = self.tokens[j].match
            j += 1
        if j < last:
            self.add(i, 'statement', i, j + 1, 'dropped',
                     lambda n, get: f'{{ if (!tsri_mutant({n})) {get(i, j)}; }}')


def tokens_of(text):
    toks, pos, line = [], 0, 1
    while pos < len(text):
        m = TOKEN.match(text, pos)
        if not m:
            raise ValueError(f'line {line}: cannot read {text[pos:pos + 20]!r}')
        if m.lastgroup != 'space':
            toks.append(Token(m.lastgroup, m.group(), pos, line))
        line += m.group().count('\n')
        pos = m.end()
    return toks


def match_brackets(toks):
    stack = []
    for i, t in enumerate(toks):
        if t.kind != 'op':
            continue
        if t.text in OPEN:
            stack.append(i)
        elif t.text in CLOSE:
            if not stack or toks[stack[-1]].text != CLOSE[t.text]:
                return False  # conditional compilation splits a bracket: the file is left out
            t.match = stack[-1]
            toks[stack.pop()].match = i
    return not stack


def render(source, mutants, header):
    """The file's text with `mutants` in it. Line numbers stay right by a #line behind the header."""
    toks = source.tokens
    chosen = sorted(mutants, key=lambda m: (m.first, -m.last, m.kind != 'condition', m.id))

    def flat(first, last):
        out, end = [], None
        for t in toks[first:last]:
            out.append(t.text if end is None or t.start == end else ' ' + t.text)
            end = t.end
        return ''.join(out)

    def piece(first, last, inside):
        """Tokens [first, last) on one line, with those of `inside` that lie in them."""
        out, at = [], first
        todo = [m for m in inside if first <= m.first and m.last <= last]
        while todo:
            m = todo.pop(0)
            if m.first < at:
                continue
            deeper = [d for d in todo if d.last <= m.last]
            out.append(flat(at, m.first))
            out.append(m.write(m.id, lambda a, b, d=deeper: piece(a, b, d)))
            at = m.last
            todo = [d for d in todo if d.first >= at]
        out.append(flat(at, last))
        return ' '.join(o for o in out if o)

    text, out, pos, todo = source.text, [f'#include "{header}"\n#line 1\n'], 0, chosen
    while todo:
        m = todo.pop(0)
        deeper = [d for d in todo if d.last <= m.last and d.first >= m.first]
        todo = [d for d in todo if d.first >= m.last]
        start, end = toks[m.first].start, toks[m.last - 1].end
        out.append(text[pos:start])
        out.append(m.write(m.id, lambda a, b, d=deeper: piece(a, b, d)))
        out.append('\n' * text.count('\n', start, end))
        pos = end
    out.append(text[pos:])
    return ''.join(out)


def mutants_of(path, text):
    source = Source(path, text)
    return source, source.mutants
