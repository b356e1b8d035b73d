"""Checks the length of function names, especially of tests: python3 -m tools.checks.names

A test is named after the behavior that it checks, in at most LONGEST characters. If that takes more, split the test or use shorter words.
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
                    print(f"{file}:{number}: {name} has {len(name)} characters, at most {LONGEST} are allowed", file=sys.stderr)
    return int(bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
