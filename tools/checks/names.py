"""Checks the names of functions, tests above all: python3 -m tools.checks.names

A test is named after what it promises, in at most LONGEST characters: what takes more is two tests, or has a shorter word.
"""

import re
import subprocess
import sys

from tools.lib.common import ROOT

LONGEST = 70


def main():
    files = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    too_long = 0
    for file in files:
        for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
            for name in re.findall(r"\bfn (\w+)", line):
                if len(name) > LONGEST:
                    too_long += 1
                    print(f"{file}:{number}: {name} has {len(name)} characters, of {LONGEST}", file=sys.stderr)
    return int(bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
