"""Checks the pages: python3 -m tools.checks.docs

* Each relative link leads to an existing file and heading or anchor.
* The front page of the API documentation lists the features in Cargo.toml, and marks the default ones.
* The README has at most 170 lines.
* docs/ has at most 15 pages for users, which have at most 25,000 words with the index and the summary; docs/internals/ is not counted.
  Each page is in the summary.
* A page for users does not name a rule of the protocol by its label.
"""

import re
import subprocess
import sys

from tools.lib.common import ROOT

LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")
TAG = re.compile(r"<[a-z]+ [^>]*>")
ATTRIBUTE = re.compile(r"""\b(?:href|src|srcset)=["']([^"']+)["']""")
FENCE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
ANCHOR = re.compile(r"""<a (?:id|name)=["']([^"']+)["']""")
LABEL = re.compile(r"^\| \*\*([A-Z]\d+)\*\* \||^### ([A-Z]\d+):", re.MULTILINE)
WORD = re.compile(r"\S*\w\S*")  # not the bars of a table
DOCS = ROOT / "docs"
SUMMARY = DOCS / "SUMMARY.md"
README_LINES = 170
USER_PAGES = 15
USER_WORDS = 25_000


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


def relative_links(page):
    """Yields the links of a page to files of the repository, in Markdown and in HTML."""
    text = prose(page.read_text())
    links = [next(filter(None, groups)) for groups in LINK.findall(text)]
    for attribute in ATTRIBUTE.findall(" ".join(TAG.findall(text))):
        # `srcset` lists files, each with an optional size.
        links += [part.split()[0] for part in attribute.split(",")]
    yield from (link for link in links if not re.match(r"[a-z]+:", link))


def target_of(page, link):
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


def broken_links(page):
    for link in relative_links(page):
        fragment, target = link.partition("#")[2], target_of(page, link)
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


def sizes():
    pages = [page for page in DOCS.glob("*.md") if page.name not in ("README.md", "SUMMARY.md")]
    total = sum(len(WORD.findall(page.read_text())) for page in DOCS.glob("*.md"))
    for count, limit, of in ((len(pages), USER_PAGES, "pages for users"), (total, USER_WORDS, "words in pages for users")):
        if count > limit:
            yield f"{count:,} {of} are more than {limit:,}"


def summary():
    entries = {(DOCS / path).resolve() for path in re.findall(r"\]\((.*?)\)", SUMMARY.read_text())}
    pages = set(DOCS.rglob("*.md")) - {SUMMARY}
    for page in sorted(pages - entries):
        yield f"{page.relative_to(DOCS)} is missing"
    for page in sorted(entries - pages):
        yield f"{page.relative_to(DOCS)} does not exist"


def labels(page, known):
    for label in sorted(set(re.findall(r"\b[A-Z]\d+\b", page.read_text())) & known):
        yield f"{label} is a label of the protocol's rules, which users do not know"


def main():
    listed = subprocess.run(["git", "ls-files", "-z", "*.md", ":!bench"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    pages = [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]
    found = [f"{page.relative_to(ROOT)}: {problem}" for page in pages for problem in broken_links(page)]
    found += [f"src/lib.rs: {problem}" for problem in features()]
    found += [f"docs: {problem}" for problem in sizes()]
    found += [f"docs/SUMMARY.md: {problem}" for problem in summary()]
    # S3 is a service, too.
    rules = {label for names in LABEL.findall((DOCS / "internals" / "protocol.md").read_text()) for label in names} - {"", "S3"}
    found += [f"{page.relative_to(ROOT)}: {problem}" for page in sorted(DOCS.glob("*.md")) for problem in labels(page, rules)]
    lines = (ROOT / "README.md").read_text().count("\n")
    if lines > README_LINES:
        found.append(f"README.md: {lines} lines are more than {README_LINES}")
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
