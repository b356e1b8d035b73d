"""Checks the pages: python3 -m tools.checks.docs

* Each relative link leads to an existing file and heading or anchor.
* The front page of the API documentation lists the features in Cargo.toml, and marks the default ones.
* The README has at most 170 lines.
"""

import re
import subprocess
import sys

from tools.lib.common import ROOT

LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
ANCHOR = re.compile(r"""<a (?:id|name)=["']([^"']+)["']""")
README_LINES = 170


def prose(text):
    return FENCE.sub("", text)


def slug(heading):
    """Returns the anchor of a heading, as GitHub generates it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip()).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(path):
    found, text = set(ANCHOR.findall(path.read_text())), prose(path.read_text())
    for heading in HEADING.findall(text):
        anchor, number = slug(heading), 0
        while (name := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(name)
    return found


def broken_links(page):
    for groups in LINK.findall(prose(page.read_text())):
        link = next(filter(None, groups))
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif fragment and target.suffix == ".md" and fragment not in anchors(target):
            yield f"{link}: the page has no such heading"


def features():
    section = re.search(r"^\[features\]\n(.*?)^\[", (ROOT / "Cargo.toml").read_text(), re.MULTILINE | re.DOTALL)[1]
    known = re.findall(r"^([a-z-]+) = ", section, re.MULTILINE)
    default = re.findall(r'"([a-z-]+)"', re.search(r"^default = (.*)$", section, re.MULTILINE)[1])
    table = re.search(r"^//! # Features\n(.*?)^[^/]", (ROOT / "src/lib.rs").read_text(), re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^//! \| (`.*?) \|", table, re.MULTILINE)
    listed = {name: f"`{name}` (default)" in row for row in rows for name in re.findall(r"`([a-z-]+)`", row)}
    expected = {name: name in default for name in known if name != "default"}
    for name in sorted(listed.keys() | expected.keys()):
        if listed.get(name) != expected.get(name):
            yield f"the feature {name} is not listed as in Cargo.toml"


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md", ":!bench"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    pages = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]
    found = [f"{page.relative_to(ROOT)}: {problem}" for page in pages for problem in broken_links(page)]
    found += [f"src/lib.rs: {problem}" for problem in features()]
    lines = (ROOT / "README.md").read_text().count("\n")
    if lines > README_LINES:
        found.append(f"README.md: {lines} lines are more than {README_LINES}")
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
