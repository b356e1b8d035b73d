"""The labelled rules of docs/internals/protocol.md, and the bugs that the mutation tests plant against them."""

import re
from collections import Counter
from typing import NamedTuple

from tools.checks.protocol import PAGE, REFERENCE, ROW, SECTION
from tools.lib.common import ROOT
from tools.tests.planted import PLANTS

BATCHES = ROOT / "tests" / "property" / "planted_bugs.rs"
PLANTED = re.compile(r'^ +\(?"([A-Z]\d+)",', re.MULTILINE)
# The link to the tests below a heading, and the function that decides a sentence, in parentheses.
TESTS = re.compile(r"^\[Tests\]\(.*\)$", re.MULTILINE)
DECIDED_IN = re.compile(r"\s*\([^()]*`[\w/-]+\.(?:rs|lua|sql)`[^()]*\)")


class Rule(NamedTuple):
    id: str
    text: str
    # Pairs of a path below src/ and the functions there, as Markdown.
    code: list


def plain(text):
    """Returns a text without links and anchors."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<a [^>]*></a>", "", text)


def sentence(text):
    """Returns the first sentence of a text in one line, without its full stop."""
    return " ".join(re.split(r"\.(?:\s|$)", plain(text).strip(), maxsplit=1)[0].split())


def places(text):
    """Returns the files that a text names, with the functions that it names after each."""
    found = {}
    for path, names in REFERENCE.findall(text):
        known = found.setdefault(path, [])
        known.extend(name for name in re.findall(r"`[^`]+`", names) if name not in known)
    return list(found.items())


def rules():
    """Returns the rules in the order of the page."""
    text = PAGE.read_text()
    found = []
    for row in ROW.finditer(text):
        cells = [cell.strip() for cell in row[0].strip("|").split("|")]
        condition = f"{plain(cells[1])} → " if len(cells) == 4 else ""
        found.append((row.start(), Rule(row[1], condition + sentence(cells[-2]), places(cells[-1]))))
    for section in SECTION.finditer(text):
        heading, body = section[0].split("\n", 1)
        title = heading.rpartition(": ")[2]
        first = sentence(DECIDED_IN.sub("", TESTS.sub("", body)).strip().removeprefix("1. "))
        text = f"{title[0].upper()}{title[1:]}. {first}"
        found.append((section.start(), Rule(section[1], text, places(section[0]))))
    return [rule for _, rule in sorted(found, key=lambda pair: pair[0])]


def mutants():
    """Returns the number of bugs that are planted against each rule: in a copy of the sources, and around batches."""
    return Counter(plant.rule for plant in PLANTS) + Counter(PLANTED.findall(BATCHES.read_text()))
