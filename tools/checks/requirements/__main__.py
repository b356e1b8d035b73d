"""Checks that each requirement has a test: python3 -m tools.checks.requirements [--write]

The requirements are those of the Idempotency-Key draft (draft.py), the promises (promises.py), and the rules of
docs/internals/protocol.md. A comment `// Tests C5, S2.` above a test names the ones that it tests. --write writes
docs/internals/requirements.md. The check fails if

* a requirement has no test, or a comment names a requirement that does not exist,
* a comment is not above a test that runs, or is spelled differently,
* a requirement names code that does not exist,
* a promise is not on its page, or a guarantee of that page is no promise in the list,
* the page is not the one that --write would write.
"""

import sys

from tools.checks.protocol import unknown_places
from tools.checks.requirements.annotations import annotations, sources
from tools.checks.requirements.draft import DRAFT
from tools.checks.requirements.page import PAGE, page
from tools.checks.requirements.promises import PROMISES, unlisted, withdrawn
from tools.checks.requirements.rules import rules
from tools.lib.common import ROOT


def covered(known, annotated):
    """Yields the requirements without a test, and the annotations without a requirement."""
    for name in known:
        if name not in annotated:
            yield f"{name} has no test: write one below a comment `// Tests {name}.`"
    for name in annotated.keys() - set(known):
        places = ", ".join(sorted({file for file, _ in annotated[name]}))
        yield f"{places}: there is no requirement {name}"


def problems(files, written):
    """Yields the problems in these sources, by their path, and in the page as it is written."""
    annotated, faults = annotations(files)
    yield from faults
    decided = rules()
    needed = [item.id for item in DRAFT if not item.exempt] + [promise.id for promise in PROMISES] + [rule.id for rule in decided]
    for name in sorted({name for name in needed if needed.count(name) > 1}):
        yield f"{name} is the name of several requirements"
    yield from covered(needed, annotated)
    for item in DRAFT:
        yield from (f"{item.id}: {problem}" for problem in unknown_places(item.code))
    for promise in PROMISES:
        yield from (f"{promise.id} depends on {name}, which is no rule" for name in promise.rules if name not in needed)
    yield from withdrawn()
    yield from unlisted()
    if written != page(decided, annotated):
        yield f"{PAGE.relative_to(ROOT)} is not up to date: python3 -m tools.checks.requirements --write"


def main():
    files = sources()
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(rules(), annotations(files)[0]))
    elif sys.argv[1:]:
        sys.exit(__doc__)
    found = sorted(set(problems(files, PAGE.read_text() if PAGE.exists() else "")))
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
