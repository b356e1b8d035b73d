"""Builds the book in target/book, and checks its links: python3 -m tools.setup.with_tools mdbook -- python -m tools.checks.book build

* A link to a file outside docs/ is replaced by one to the repository in Cargo.toml, or by its text if there is none. For this, mdBook
  calls this program without `build`, as a preprocessor with JSON input and output.
* Each other link of a generated page must lead to an existing file and anchor of the book.
"""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse

from tools.checks.docs import FENCE, LINK
from tools.lib.common import ROOT

BOOK = ROOT / "target" / "book"


def repository():
    found = re.search(r'^repository = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    return found and found[1]


def without_outer_links(text, page, address):
    """Returns the text of a page, whose path is relative to docs/, with its links to files outside docs/ replaced."""

    def replace(match):
        link = match[1]
        if link is None:  # an image
            return match[0]
        target = os.path.normpath(os.path.join("docs", os.path.dirname(page), link))
        if re.match(r"[a-z]+:|#", link) or target.startswith("docs" + os.sep):
            return match[0]
        label = match[0][: -len(f"]({link})")]
        return f"{label}]({address.rstrip('/')}/blob/main/{target})" if address else label.removeprefix("[")

    end, parts = 0, []
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(replace, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(replace, text[end:])])


def preprocess(book, address):
    chapters = [item["Chapter"] for item in book["items"] if "Chapter" in item]
    while chapters:
        chapter = chapters.pop()
        chapter["content"] = without_outer_links(chapter["content"], chapter["source_path"] or "", address)
        chapters += [item["Chapter"] for item in chapter["sub_items"] if "Chapter" in item]
    return book


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


def broken_links():
    # print.html repeats the other pages, and 404.html contains addresses of the site.
    pages = {path: Page(path) for path in BOOK.rglob("*.html") if path.name not in ("print.html", "404.html", "toc.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.relative_to(BOOK)}: {link}: there is no such file"
            elif target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(BOOK)}: {link}: the page has no such heading"


def build():
    shutil.rmtree(BOOK, ignore_errors=True)
    built = subprocess.run(["mdbook", "build"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    print(built.stderr, end="", file=sys.stderr)
    # mdBook does not fail on warnings.
    problems = [line for line in built.stderr.splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    if built.returncode == 0 and not problems:
        problems = sorted(set(broken_links()))
        for problem in problems:
            print(problem, file=sys.stderr)
    if built.returncode == 0 and not problems:
        print(f"{BOOK.relative_to(ROOT)}/index.html")
    return int(built.returncode != 0 or bool(problems))


def main():
    match sys.argv[1:]:
        case ["build"]:
            return build()
        case ["supports", renderer]:
            return int(renderer != "html")
        case []:
            _, book = json.load(sys.stdin)
            json.dump(preprocess(book, repository()), sys.stdout)
            return 0
    return __doc__


if __name__ == "__main__":
    sys.exit(main())
