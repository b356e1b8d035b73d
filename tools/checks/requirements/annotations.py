"""Finds the comments that tie a test to the requirements that it tests, such as `// Tests C5, S2.`

The comment is the last one above the test, before or after its attributes. A test is a function with `#[test]` or `#[tokio::test]`, or
one that a macro makes a test: `on_each_store!(a_claim, …)` in its file, or a list of the conformance suite in the mod.rs beside it.
"""

import re
import subprocess
from pathlib import PurePosixPath

from tools.lib.common import ROOT

NAME = r"(?:IKH-\d[\d.]*-\d+|[A-Z]\d+)"
ANNOTATION = re.compile(rf" *// Tests ({NAME}(?:, {NAME})*)\.")
# Whatever looks like one.
SIMILAR = re.compile(rf" *//[/!]? *[Tt]ests?:? +{NAME}\b")
ATTRIBUTE = re.compile(r" *(?:#\[|//)")
FUNCTION = re.compile(r" *(?:pub(?:\([a-z]+\))? +)?(?:async +)?fn (\w+)")
IS_TEST = re.compile(r" *#\[(?:tokio::)?test\b")
IS_IGNORED = re.compile(r" *#\[ignore\b")
MACRO = re.compile(r"^macro_rules! (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
# A list of functions in its pattern.
LIST = re.compile(r"\$\(\$\w+:ident[,)]")


def sources():
    """Returns the text of each Rust file, by its path."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.rs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: (ROOT / name).read_text() for name in listed.split("\0") if name and (ROOT / name).exists()}


def test_macros(files):
    """Returns the names of the macros that make tests of the functions that they list, themselves or through other macros."""
    found = (macro for text in files.values() for macro in MACRO.findall(text))
    bodies = {name: body for name, body in found if LIST.search(body)}
    found = {name for name, body in bodies.items() if re.search(r"#\[(?:tokio::)?test\b", body)}
    while more := {name for name in bodies.keys() - found if any(f"{other}!" in bodies[name] for other in found)}:
        found |= more
    return found


def arguments(text, start):
    """Returns the text between the bracket at this place and its counterpart."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth == 0:
            return text[start + 1 : place]
    return text[start + 1 :]


def made_by_macros(text, macros):
    """Returns the words that are arguments of these macros in a file."""
    words = set()
    for call in re.finditer(r"\b(\w+)! ?([({])", text):
        if call[1] in macros:
            words.update(re.findall(r"\w+", arguments(text, call.end() - 1)))
    return words


def test_below(lines, number):
    """Returns the name of the function below a comment and its attributes, or None if there is something else."""
    attributes = []
    # Attributes above the comment count, too.
    for line in reversed(lines[:number]):
        if not ATTRIBUTE.match(line):
            break
        attributes.append(line)
    for line in lines[number + 1 :]:
        if function := FUNCTION.match(line):
            return function[1], attributes
        if not ATTRIBUTE.match(line):
            break
        attributes.append(line)
    return None, []


def fault(line, name, attributes, listed):
    """Returns the fault of a comment above this function, or None."""
    if not ANNOTATION.fullmatch(line):
        return f"write `// Tests C5, S2.`, not `{line.strip()}`"
    if name is None or not (any(map(IS_TEST.match, attributes)) or name in listed):
        return "the comment is not above a test"
    if any(map(IS_IGNORED.match, attributes)):
        return f"{name} is ignored"
    return None


def annotations(files):
    """Returns the tests of each requirement, as pairs of a file and a function, and the problems of the comments."""
    macros = test_macros(files)
    annotated, problems = {}, []
    for file, text in files.items():
        if not SIMILAR.search(text):
            continue
        beside = files.get(str(PurePosixPath(file).with_name("mod.rs")), "")
        listed = made_by_macros(text, macros) | made_by_macros(beside, macros)
        lines = text.split("\n")
        for number, line in enumerate(lines):
            if not SIMILAR.match(line):
                continue
            name, attributes = test_below(lines, number)
            if problem := fault(line, name, attributes, listed):
                problems.append(f"{file}:{number + 1}: {problem}")
                continue
            for requirement in ANNOTATION.fullmatch(line)[1].split(", "):
                annotated.setdefault(requirement, set()).add((file, name))
    return annotated, problems
