"""Checks that the files and functions in docs/internals/protocol.md exist: python3 -m tools.checks.protocol

Paths are relative to src/. Functions follow their file, in parentheses or after a colon, as `name` or `Type::name`.
"""

import re
import sys

from tools.lib.common import ROOT

PAGE = ROOT / "docs" / "internals" / "protocol.md"
NAME = r"`[A-Za-z_:]+`"
# A path, and the names after it.
REFERENCE = re.compile(rf"`([\w/-]+\.(?:rs|lua|sql))`(?:\s*(?::|\()\s*({NAME}(?:(?:,| and|,\s+and)\s+{NAME})*))?")
DEFINITION = r"\b(?:fn|struct|enum|const|static|trait|type|function) +(?:\w+\.)?{name}\b"


def problems(text):
    found = REFERENCE.findall(text)
    if len(found) < 40:
        yield f"the page names only {len(found)} files; has its format changed?"
    for path, names in found:
        file = ROOT / "src" / path
        if not file.is_file():
            yield f"{path} does not exist"
            continue
        code = file.read_text()
        for name in re.findall(r"`([A-Za-z_:]+)`", names):
            for part in name.split("::"):
                is_type = part[0].isupper()
                pattern = rf"\b{part}\b" if is_type else DEFINITION.format(name=part)
                if not re.search(pattern, code):
                    yield f"{path} has no {name}"


def main():
    found = sorted(set(problems(PAGE.read_text())))
    for problem in found:
        print(f"{PAGE.relative_to(ROOT)}: {problem}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
