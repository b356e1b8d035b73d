"""Mutants of DynamoDB's expressions and PartiQL statements, which the store builds from parts.

A proxy before the server changes them in requests. So they are mutants of the requests that a run of the tests has sent: each comparison,
function and conjunction of a condition, and each attribute that an update writes. A text with the same part for the same purpose
changes with it, whatever else it contains.
"""

import re
from typing import NamedTuple

from tools.tests.mutants.tokens import tokens

# At the bound.
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
# Some tests rename attributes, and add a sort key. Their texts have the same mutants as the others.
RENAMED = {"pk": "id", "s.k-[0]": "id", "held by (who?)": "owner", "select": "data", "state": "status", "lease": "in_progress_expiration",
           "format": "v"}
# Without the key an item is not found at all.
KEY = '"id"'
# No item has this attribute.
ABSENT = "zz"
# Fields of requests with texts.
FIELDS = ("ConditionExpression", "UpdateExpression", "KeyConditionExpression", "FilterExpression", "ProjectionExpression", "Statement")
# The names of tables differ from test to test.
TABLE = re.compile(r'\b(UPDATE|INTO|FROM) "[^"]+"')


class Mutant(NamedTuple):
    """A change of a part of the texts for one purpose."""

    purpose: str
    old: str
    new: str

    def __str__(self):
        return " | ".join(self)


class Change(NamedTuple):
    """A change of one text."""

    mutant: Mutant
    start: int
    end: int
    new: str


def texts(body):
    """Yields (holder, field, purpose) for each text in a request."""
    if isinstance(body, list):
        for item in body:
            yield from texts(item)
    elif isinstance(body, dict):
        for field in FIELDS:
            if isinstance(body.get(field), str):
                yield body, field, f"{purpose(body)} {field.removesuffix('Expression').lower()}"
        for value in body.values():
            if isinstance(value, (dict, list)):
                yield from texts(value)


def purpose(request):
    """Names a request by its writes."""
    if "Statement" in request:
        text = request["Statement"]
        written = re.findall(r'(?:SET|REMOVE) "([^"]+)"', text) or re.findall(r"'([^']+)':\?", text)
        verb = text.split()[0].lower()
    else:
        names = request.get("ExpressionAttributeNames", {})
        update = request.get("UpdateExpression", "")
        targets = re.findall(r"([#\w]+) = ", update) + re.findall(r"[#\w]+", update.partition("REMOVE ")[2])
        written = [names.get(target, target) for target in targets]
        verb = "update" if update else "put" if "Item" in request else "read" if "ProjectionExpression" in request else "delete or check"
    written = [usual(name) for name in written]
    # Marks have their own conditions.
    verb = "mark " * any(value.get("S", "").endswith("mark") for value in request.get("Key", {}).values()) + verb
    core = ("status", "owner", "attempt", "in_progress_expiration", "released", "newest", "holder", "doubt")
    return " ".join([verb, *sorted({name for name in written if name in core})])


def changes(text, names, purpose):
    """Yields the changes of a text. `names` are the names of the placeholders in it."""
    found = tokens(TABLE.sub(lambda match: match[0].replace('"', "'"), text))
    shown = lambda some: " ".join(usual(names.get(token.text, token.text)) for token in some)
    is_key = lambda place: shown([found[place - 1]]) == KEY and found[place].kind == "="
    condition = condition_begins(found, purpose)

    def change(first, last, new, name=None):
        some = found[first : last + 1]
        return Change(Mutant(purpose, shown(some), name or new), some[0].start, some[-1].end, new)

    for place, token in enumerate(found):
        if place < condition:
            if is_target(found, place):
                new = f'"{ABSENT}"' if token.text.startswith('"') else ABSENT
                is_set = found[place + 1].kind == "=" if place + 1 < len(found) else False
                shown_part = shown(found[place : place + 3]) if is_set else f"REMOVE {shown([token])}"
                yield Change(Mutant(purpose, shown_part, "not written"), token.start, token.end, new)
            continue
        if token.text in ("AND", "OR") and not is_between(found, place):
            other = "OR" if token.text == "AND" else "AND"
            # Between the two parts of a key.
            if is_key(place - 2) and is_key(place + 2):
                continue
            context = shown(found[atom_before(found, place) : place + 4])
            yield Change(Mutant(purpose, context, f"{other} for {token.text}"), token.start, token.end, other)
        elif token.kind in (*COMPARISONS, "=", "<>"):
            if is_key(place):
                continue
            if other := COMPARISONS.get(token.kind):
                yield change(place, place, other)._replace(mutant=Mutant(purpose, shown(found[place - 1 : place + 2]), other))
            yield from always(found, place - 1, place + 1, change)
        elif token.text in ("attribute_not_exists", "attribute_exists", "begins_with", "contains"):
            end = next(i for i in range(place, len(found)) if found[i].kind == ")")
            yield from always(found, place, end, change)
        elif token.text == "MISSING":
            yield from always(found, place - 2, place, change)
        elif token.text == "BETWEEN":
            yield from always(found, place - 1, place + 3, change)


def usual(name):
    """Returns the usual name of an attribute, with its quotes."""
    quote = '"' if name.startswith('"') else ""
    return f"{quote}{RENAMED.get(name.strip(chr(34)), name.strip(chr(34)))}{quote}"


def always(found, first, last, change):
    """Yields the changes to a condition that always holds, and to one that never does. Values stay in use."""
    start, end = found[first], found[last]
    missing = f'"{ABSENT}" IS MISSING' if start.text.startswith('"') else f"attribute_not_exists({ABSENT})"
    present = f'"{ABSENT}" IS NOT MISSING' if start.text.startswith('"') else f"attribute_exists({ABSENT})"
    text = " ".join(token.text for token in found[first : last + 1])
    yield change(first, last, f"({text} OR {missing})", "always true")
    yield change(first, last, f"({text} AND {present})", "never true")


def condition_begins(found, purpose):
    if purpose.endswith(("update", "projection")):
        return len(found)
    if purpose.endswith("statement"):
        return next((place for place, token in enumerate(found) if token.text == "WHERE"), len(found))
    return 0


def is_target(found, place):
    """Returns whether an update writes or removes the attribute here."""
    token, before = found[place], found[place - 1] if place else None
    if token.kind not in ("word", "string") or token.text[0] in ":'" or before is None or token.text in ("SET", "REMOVE"):
        return False
    return before.text in ("SET", "REMOVE") or before.kind == "," and depth(found, place) == 0


def depth(found, place):
    return sum({"(": 1, ")": -1}.get(token.kind, 0) for token in found[:place])


def is_between(found, place):
    return found[place].text == "AND" and place >= 2 and found[place - 2].text == "BETWEEN"


def atom_before(found, place):
    """Returns the begin of the atom before a conjunction."""
    if found[place - 1].kind != ")":
        return max(place - 3, 0)
    level = 0
    for i in range(place - 1, -1, -1):
        level += {")": 1, "(": -1}.get(found[i].kind, 0)
        if level == 0:
            return max(i - 1, 0)
    return 0
