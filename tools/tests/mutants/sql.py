"""Mutants of the SQL statements."""

import re

from tools.tests.mutants.tokens import mutants, other_number, tokens

SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "=": "<>", "<>": "=", "+": "-", "-": "+"}
WORDS = {"greatest": "least", "least": "greatest", "true": "false", "false": "true"}
CLAUSES = {"WHERE", "FROM", "ORDER", "FOR", "RETURNING", "SET", "SELECT", "ON", "USING", "LIMIT", "WITH", "UNION"}
# Clauses that a statement keeps its syntax without.
OPTIONAL = re.compile(r"\b(FOR UPDATE(?: OF \w+)?(?: SKIP LOCKED)?|SKIP LOCKED|LIMIT \$?[\w:]+|ORDER BY (?:[\w.]+(?: DESC)?(?:, )?)+|MATERIALIZED)")


def changes(text):
    """Yields the changes (start, end, new)."""
    found = tokens(text)
    assigned = set(assignments(found))
    for place, token in enumerate(found):
        before = found[place - 1] if place else None
        following = found[place + 1] if place + 1 < len(found) else None
        if token.kind == "=" and place in assigned:
            continue
        if token.kind in SWAPPED and not (token.kind == "-" and before.kind == "("):
            yield token.start, token.end, SWAPPED[token.kind]
        elif token.text in WORDS:
            yield token.start, token.end, WORDS[token.text]
        elif token.text in ("AND", "OR"):
            yield token.start, token.end, "OR" if token.text == "AND" else "AND"
            end = end_of_term(found, place + 1)
            yield token.start, found[end - 1].end, ""
        elif token.text == "WHERE" and following.text not in ("EXISTS", "false"):
            end = end_of_term(found, place + 1)
            yield following.start, found[end - 1].end, "true"
        elif token.text == "IS":
            yield (following.start, found[place + 2].start, "") if following.text == "NOT" else (token.end, token.end, " NOT")
        elif token.text == "WHEN" and following.kind != "number":
            # The branch is never taken. If its condition is a number, the number is changed.
            then = next(i for i in range(place, len(found)) if found[i].text == "THEN")
            yield following.start, found[then - 1].end, "false"
        elif token.kind == "number" and before.text != "(" and before.kind not in ("FROM",):
            yield token.start, token.end, other_number(token.text)
    for start, end in dropped_assignments(found, assigned):
        yield start, end, ""
    code = re.sub(r"--[^\n]*", lambda comment: " " * len(comment[0]), text)
    for match in OPTIONAL.finditer(code):
        yield match.start(), match.end(), ""


def assignments(found):
    """Yields the places of the `=` that assign: in SET, outside of parentheses and CASE."""
    is_set, depth, cases = False, 0, 0
    for place, token in enumerate(found):
        if token.text == "SET":
            is_set, depth, cases = True, 0, 0
        elif token.text == "CASE":
            cases += 1
        elif token.text == "END":
            cases -= 1
        elif token.kind in "()":
            depth += 1 if token.kind == "(" else -1
        elif is_set and depth == 0 and token.text in ("WHERE", "FROM", "RETURNING"):
            is_set = False
        elif is_set and depth == 0 and cases == 0 and token.kind == "=":
            yield place


def dropped_assignments(found, assigned):
    """Yields (start, end) of each assignment with the comma that divides it from its neighbour."""
    for place in sorted(assigned):
        target = found[place - 1]
        end = end_of_item(found, place + 1)
        if found[end].kind == ",":
            yield target.start, found[end].end
        elif found[place - 2].kind == ",":
            yield found[place - 2].start, found[end - 1].end


def end_of_item(found, place):
    depth, cases = 0, 0
    while place < len(found):
        token = found[place]
        if depth == 0 and cases == 0 and (token.kind == "," or token.text in CLAUSES):
            return place
        depth += {"(": 1, ")": -1}.get(token.kind, 0)
        cases += {"CASE": 1, "END": -1}.get(token.text, 0)
        place += 1
    return place


def end_of_term(found, place):
    """Returns the place after a term: up to the next AND, OR, clause or parenthesis of its level."""
    depth, cases = 0, 0
    is_range = False
    while place < len(found):
        token = found[place]
        if depth == 0 and cases == 0:
            is_distinct_from = token.text == "FROM" and found[place - 1].text == "DISTINCT"
            if token.kind == ")" or token.kind == ";" or token.text in ("AND", "OR", "THEN", "ELSE", "END", "WHEN"):
                if not is_range:
                    return place
            if token.text in CLAUSES and not is_distinct_from and not (token.text == "SELECT" and found[place - 1].kind == "("):
                return place
        depth += {"(": 1, ")": -1}.get(token.kind, 0)
        cases += {"CASE": 1, "END": -1}.get(token.text, 0)
        place += 1
    return place


def of(file, text):
    return mutants(file, text, changes(text))
