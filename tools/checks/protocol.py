"""Checks docs/internals/protocol.md: python3 -m tools.checks.protocol

* Each file and each function that the page names exists. Paths are relative to src/. Functions are named after their file, in
  parentheses or after a colon, as `name` or `Type::name`.
* Each label that the introduction lists, such as [C1–C9], has its anchor, and there is no other.
* Each rule names a place that decides it: in its row of a table, or in its section, there at each numbered item.
"""

import re
import sys

from tools.lib.common import ROOT

PAGE = ROOT / "docs" / "internals" / "protocol.md"
NAME = r"`[A-Za-z_:]+`"
# A path, and the names after it.
REFERENCE = re.compile(rf"`([\w/-]+\.(?:rs|lua|sql))`(?:\s*(?::|\()\s*({NAME}(?:(?:,| and|,\s+and)\s+{NAME})*))?")
DEFINITION = r"\b(?:fn|struct|enum|const|static|trait|type|function) +(?:\w+\.)?{name}\b"
RANGE = re.compile(r"\[([A-Z])1–\1(\d+)\]")
ANCHOR = r'<a id="([A-Z]\d+)"></a>'
ROW = re.compile(rf"^\| {ANCHOR}.*$", re.MULTILINE)
SECTION = re.compile(rf"^#+ {ANCHOR}.*?(?=^#+ |\Z)", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^\d+\. .*?(?=^\d+\. |^$|\Z)", re.MULTILINE | re.DOTALL)


def names_a_place(text):
    """Whether the text names a function, or a file that is one script or statement."""
    return any(names or not path.endswith(".rs") for path, names in REFERENCE.findall(text))


def missing(text):
    """The paths and names that do not exist."""
    if (count := len(REFERENCE.findall(text))) < 40:
        yield f"the page names only {count} files; has its format changed?"
    yield from unknown_places(text)


def unknown_places(text):
    """The files and functions that a text names and that do not exist."""
    for path, names in REFERENCE.findall(text):
        file = ROOT / "src" / path
        if not file.is_file():
            yield f"{path} does not exist"
            continue
        code = file.read_text()
        for name in re.findall(r"`([A-Za-z_:]+)`", names):
            for part in name.split("::"):
                is_type = part[0].isupper()
                pattern = rf"\b{part}\b" if is_type else DEFINITION.format(name=part)
                if not re.search(pattern, code):
                    yield f"{path} has no {name}"


def undecided(text):
    """The labels without a rule, and the rules without a place that decides them."""
    ranges = RANGE.findall(text)
    if not ranges:
        yield "the introduction lists no labels: has the way in which it lists them changed?"
    listed = [f"{letter}{number}" for letter, last in ranges for number in range(1, int(last) + 1)]
    rules = [(found[1], found[0]) for pattern in (ROW, SECTION) for found in pattern.finditer(text)]
    labels = [label for label, _ in rules]
    for label in listed:
        if labels.count(label) != 1:
            yield f"{label} has {labels.count(label)} rows or sections with its anchor"
    for label in sorted(set(labels) - set(listed)):
        yield f"the introduction does not list {label}"
    for label, rule in rules:
        if not names_a_place(rule):
            yield f"{label} names no place that decides it"
        for item in ITEM.findall(rule):
            if not names_a_place(item):
                yield f"{label} names no place that decides this: {' '.join(item.split())[:60]}"


def main():
    text = PAGE.read_text()
    found = sorted({*missing(text), *undecided(text)})
    for problem in found:
        print(f"{PAGE.relative_to(ROOT)}: {problem}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
