"""Checks the package of a release: python3 -m tools.checks.package

`cargo package` must accept the crate, with no warnings except those about the excluded tests and about the missing repository address
(see RELEASING.md). The package must contain each file that a source includes, and no files except those that `include` is meant for.

A relative link of a page in the package must lead to a file in it, or to the parts of the repository in OUTSIDE.
"""

import re
import subprocess
import sys

from tools.checks.docs import relative_links, target_of
from tools.lib.common import ROOT

PACKAGE = ["cargo", "package", "--quiet", "--package", "lambda-once", "--allow-dirty"]
# The files that Cargo adds, and those that `include` in Cargo.toml is meant for.
MEANT = re.compile(
    r"\.cargo_vcs_info\.json|Cargo\.(lock|toml|toml\.orig)|LICENSE-(APACHE|MIT)|(CHANGELOG|CONTRIBUTING|README|SECURITY)\.md"
    r"|src/.+\.(rs|sql|lua)|docs/(internals/)?[A-Za-z-]+\.(md|svg|yaml)|tests/vectors/[a-z]+\.json"
)
EXPECTED = (
    re.compile(r"warning: ignoring test `\w+` as `tests/\w+/main\.rs` is not included in the published package"),
    re.compile(r"warning: manifest has no documentation, homepage or repository"),
)
# Parts that are not packaged: other packages, which Cargo excludes, the tests, and the functions' infrastructure. Links to them work only
# in the repository, to which crates.io resolves those of the README.
OUTSIDE = re.compile(
    r"(bench|chaos|cli|examples|functions|fuzz|local-stack|model|sim|templates|tests|tools)/.+|iac/.+|template\.yaml|Makefile|RELEASING\.md"
)
INCLUDED = re.compile(r"""include(?:_str|_bytes)?!\("([^"]+)"\)""")


def cargo(*arguments):
    return subprocess.run([*PACKAGE, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)


def problems():
    listed = cargo("--list").stdout.split()
    yield from (f"{name}: should it be published?" for name in listed if not MEANT.fullmatch(name))
    for name in listed:
        if name.endswith(".rs"):
            for target in INCLUDED.findall((ROOT / name).read_text()):
                path = ((ROOT / name).parent / target).resolve().relative_to(ROOT).as_posix()
                if path not in listed:
                    yield f"{name}: includes {path}, which is not in the package"
    for name in listed:
        if name.endswith(".md"):
            for link in relative_links(ROOT / name):
                path = target_of(ROOT / name, link).relative_to(ROOT).as_posix()
                if path not in listed and not OUTSIDE.fullmatch(path):
                    yield f"{name}: {link} leads to a file that is not in the package"
    # The release workflow also builds the packed crate.
    for line in cargo("--no-verify").stderr.splitlines():
        if line.startswith("warning") and not any(known.fullmatch(line) for known in EXPECTED):
            yield line


def main():
    found = list(problems())
    for problem in found:
        print(f"package: {problem}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
