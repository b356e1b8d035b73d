"""Checks the English of pages, comments, messages and test names: python3 -m tools.checks.english

* No page, comment or message contains a phrase of PHRASES, except those that EXCEPTIONS lists.
* No test's name contains a word of NAMES.
* Each exception is still needed.

Of Rust sources, the comments are checked, and in the library and the tool the messages as well. Tables of docs/internals/ are not checked,
because programs write most of them.
"""

import re
import subprocess
import sys

from tools.lib.common import ROOT

# Each with its replacement.
PHRASES = {
    r"time-outs?": "timeout",
    r"fail-overs?": "failover",
    r"back-offs?": "backoff",
    r"look-ups?": "lookup",
    r"serialis\w+": "serialize",
    r"recognis\w+": "recognize",
    r"sandbox\w*": "execution environment",
    r"of (?:its|their|your|our) own|of yours": "custom, separate",
    r"t(?:ake|akes|ook|aking) place": "happens",
    r"in vain": "without success",
    r"reckon\w*": "expect, assume",
    r"for want of": "because … is missing",
    r"for good": "permanently",
    r"cuts? off": "cancel",
    r"stop[- ]points?": "handler deadline",
    r"by hand": "hand-written, manually",
    r"go(?:es)? on|went on": "continue, resume",
    r"another one|others than": "a different …",
    r"as they came|as it (?:is|was) (?=[,.;)])": "unchanged",
    r"(?<=/ )(?:how|what) [a-z]+": "a noun, or a verb such as Returns",
    r"says|tells|(?:is|are|was|were) told": "reports, returns, contains",
    r"what (?:is|are|was|were|it|they|a|an|the|has|have|follows|happens|happened|fails|failed|remains|another|each|no|nothing)": "a noun",
    r"where (?:there|no|they|it(?! was))": "if, when",
}
# Words in the names of tests.
NAMES = {
    "what": "a noun",
    "says": "reports, contains",
    "tells": "reports, contains",
    "told|said": "gets, sees, marked",
    "knows": "has",
    "answers?": "response, result",
    "sandbox": "execution environment",
    "cuts?_off": "cancelled",
    "ones_own": "custom",
    "standing": "live",
    "stop_point": "handler deadline",
    "by_hand": "manual",
    "for_good": "permanent",
    "goes_on|go_on": "continues",
    "trouble": "errors",
}
# Places where a phrase may stay.
EXCEPTIONS = {
    "cli/src/order/explain.rs": ["what happened"],
    "cli/src/show.rs": ["what happened"],
    "tools/lib/chromium.py": ["--no-sandbox"],
    "tools/measure/instructions.py": ["by hand, {section}"],
    "tools/servers/debian.py": ["APT::Sandbox"],
}
CHECKED = ("*.md", "*.rs", "*.py", "*.mjs", "*.sql", "*.lua", "*.html", "*.toml", "*.yaml", "*.yml", "*.tf", "Makefile")
# Sources in which messages are checked, too.
MESSAGES = re.compile(r"(cli/)?src/(?!.*tests)")
# A sentence, as tests and checks have as names, also those that a macro lists.
TEST = re.compile(r"\bfn ([a-z0-9]+(?:_[a-z0-9]+){3,})")
THIS = "tools/checks/english.py"


def files(*patterns):
    command = ["git", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def lines(name):
    """Yields the lines of a file that are checked, with their numbers."""
    is_code = False
    for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
        if name.endswith(".md"):
            is_code ^= line.lstrip().startswith(("```", "~~~"))
            if not is_code and not (name.startswith("docs/internals/") and line.startswith("|")):
                yield number, re.sub(r"\]\([^)]*\)", "]", line)
        elif not name.endswith(".rs") or MESSAGES.match(name):
            yield number, line
        elif "//" in line:
            yield number, line.partition("//")[2]


def phrases(used):
    known = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): better for phrase, better in PHRASES.items()}
    for name in files(*CHECKED):
        if name == THIS:
            continue
        for number, line in lines(name):
            for exception in EXCEPTIONS.get(name, ()):
                if exception in line:
                    used.add((name, exception))
                    line = line.replace(exception, "")
            for phrase, better in known.items():
                for match in phrase.finditer(line):
                    yield f"{name}:{number}: {match[0]}: write {better}"


def names():
    known = {re.compile(rf"(?:^|_)(?:{word})(?:_|$)"): better for word, better in NAMES.items()}
    for name in files("*.rs"):
        for test in TEST.findall((ROOT / name).read_text()):
            for word, better in known.items():
                if word.search(test):
                    yield f"{name}: {test}: write {better}"


def main():
    used = set()
    found = [*phrases(used), *names()]
    for name, exceptions in EXCEPTIONS.items():
        found += [f"{name}: {exception}: not needed" for exception in exceptions if (name, exception) not in used]
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
