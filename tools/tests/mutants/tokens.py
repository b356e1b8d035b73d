"""Splits texts of Lua, SQL and DynamoDB's expressions into tokens, and describes changes of them."""

import re
from typing import NamedTuple


class Token(NamedTuple):
    # word, number, string, or the text itself for everything else.
    kind: str
    text: str
    start: int

    @property
    def end(self):
        return self.start + len(self.text)


class Mutant(NamedTuple):
    """A change of a text. `line` is the source line without its indentation, which identifies it in lists."""

    file: str
    number: int
    line: str
    old: str
    new: str
    # Which of the equal changes of this line it is, from 1.
    place: int
    start: int
    end: int

    def __str__(self):
        nth = f" (no. {self.place})" if self.place > 1 else ""
        return f"{self.file}:{self.number}: {self.old} → {self.new or 'nothing'}{nth} in: {self.line}"

    def identity(self):
        return self.file, self.line, self.old, self.new, self.place

    def apply(self, text):
        """Returns the changed text. Its length is the same as the original's, from which comments and alignment give way if it has to
        grow."""
        changed = text[: self.start] + self.new.ljust(self.end - self.start) + text[self.end :]
        while len(changed.encode()) > len(text.encode()):
            spare = re.search(r"^ *--[^\n]*\n", changed, re.MULTILINE) or re.search(r"(?<=\S ) +", changed)
            if spare is None:
                raise ValueError(f"{self}: nothing gives way to the longer text")
            changed = changed[: spare.start()] + changed[spare.end() :]
        # The end is left unchanged, since other text may follow it.
        missing = len(text.encode()) - len(changed.encode())
        return changed[:-1] + " " * missing + changed[-1]


TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*)|(?P<string>'(?:\\.|[^'\\])*'|"[^"]*")|(?P<word>[#:$]?[A-Za-z_]\w*|\$\d+)|(?P<number>\d+)"""
    r"""|(?P<sign>==|~=|<=|>=|<>|\.\.\.|\.\.|::|[^\s\w])"""
)


def tokens(text):
    """Returns the tokens of a text, without its comments."""
    found = []
    for match in TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "comment":
            continue
        found.append(Token(match[0] if kind == "sign" else kind, match[0], match.start()))
    return found


def other_number(text):
    """Returns the next number, or a tenth of a large one, which has a unit."""
    return str(int(text) + 1 if len(text) < 3 else int(text) // 10)


def mutants(file, text, changes):
    """Returns mutants of a text for changes (start, end, new), in the order of the text and without repetitions."""
    seen, found = {}, []
    for start, end, new in sorted(set(changes)):
        begin = text.rfind("\n", 0, start) + 1
        stop = text.find("\n", start)
        line = text[begin : stop if stop >= 0 else len(text)].strip()
        old = " ".join(text[start:end].split())
        place = seen[line, old, new] = seen.get((line, old, new), 0) + 1
        found.append(Mutant(file, text.count("\n", 0, start) + 1, line, old, new, place, start, end))
    return found
