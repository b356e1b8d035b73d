"""Mutants of the Lua scripts."""

import re

from tools.tests.mutants.tokens import mutants, other_number, tokens

SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "~=", "~=": "==", "+": "-", "*": "/", "/": "*",
}
WORDS = {"and": "or", "or": "and", "true": "false", "false": "true", "max": "min", "min": "max", "ceil": "floor", "floor": "ceil"}
# A field that no record has.
NO_FIELD = "'zz'"


def changes(text):
    """Yields the changes (start, end, new)."""
    found = tokens(text)
    for place, token in enumerate(found):
        before = found[place - 1] if place else None
        if token.kind in SWAPPED:
            yield token.start, token.end, SWAPPED[token.kind]
        elif token.kind == "-" and before and (before.kind in ("word", "number", ")", "]")) and before.text != "return":
            yield token.start, token.end, "+"
        elif token.text in WORDS:
            yield token.start, token.end, WORDS[token.text]
        elif token.text == "not":
            yield token.start, found[place + 1].start, ""
        elif token.kind == "number":
            yield token.start, token.end, other_number(token.text)
        elif token.kind == "string" and re.fullmatch(r"'[a-z_]{2,}'", token.text):
            yield token.start, token.end, NO_FIELD
        elif token.text in ("if", "elseif", "while"):
            then = next(other for other in found[place:] if other.text in ("then", "do"))
            condition = found[place + 1].start, text.rindex(text[then.start - 1], 0, then.start)
            yield *condition, "false"
            if token.text != "while":
                yield *condition, "true"
    yield from deletions(text)


# A call for its effect, or an assignment to what exists, which ends on its line.
STATEMENT = re.compile(r"(?:^ *|\bthen |\bdo )((?:redis\.p?call|table\.insert|index\.\w+|mark\.\w+|write)\(.*?\)|[a-z_.,\[\]\w ]*[\w\]] = [^\n]*?)(?= end\b|$)", re.MULTILINE)


def deletions(text):
    for match in STATEMENT.finditer(text):
        statement = match[1]
        is_whole = all(statement.count(opening) == statement.count(closing) for opening, closing in ("()", "{}", "[]"))
        if not is_whole or statement.startswith(("local ", "return ", "if ", "for ", "mark = {")) or statement.endswith(","):
            continue
        if re.search(r"(and|or)$", statement) or "function" in statement.split("=")[0]:
            continue
        yield match.start(1), match.end(1), ""


def of(file, text):
    return mutants(file, text, changes(text))
