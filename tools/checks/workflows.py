"""Checks the files below .github/ against their schemas: python3 -m tools.setup.with_tools workflows -- python -m tools.checks.workflows

The workflows must also run only targets of the Makefile, and the nightly workflow all parts of `make nightly`.
"""

import re
import subprocess
import sys

from tools.lib.common import ROOT
from tools.tests.nightly import PARTS

FOLDER = ROOT / ".github"
SCHEMAS = {
    "github-workflows": "workflows/*.yml",
    "dependabot": "dependabot.yml",
    "github-issue-config": "ISSUE_TEMPLATE/config.yml",
    "github-issue-forms": "ISSUE_TEMPLATE/[!c]*.yml",
}


def main():
    failed = False
    for schema, pattern in SCHEMAS.items():
        files = sorted(FOLDER.glob(pattern))
        command = ["check-jsonschema", "--quiet", "--builtin-schema", f"vendor.{schema}", *files]
        failed |= not files or subprocess.run(command, cwd=ROOT).returncode != 0
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for file in (FOLDER / "workflows").glob("*.yml"):
        for target in re.findall(r"\bmake ([a-z0-9-]+)", file.read_text()):
            if target not in targets:
                print(f"{file.relative_to(ROOT)}: the Makefile has no target {target}", file=sys.stderr)
                failed = True
    parts = re.search(r"part: \[(.*)\]", (FOLDER / "workflows" / "nightly.yml").read_text())
    if parts is None or parts[1].split(", ") != list(PARTS):
        print(f"nightly.yml: its parts are not {', '.join(PARTS)}", file=sys.stderr)
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
