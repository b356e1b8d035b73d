"""Checks that the stores use only the public contract, like a third-party store: python3 -m tools.checks.contract

All items below `crate` that a store uses must be in tools/checks/surface.txt, the list of public items, or in ALLOWED. The same applies to
the methods that it calls on the contract's types. For the store of the cookbook, which uses only public items, the compiler checks this.
"""

import re
import sys

from tools.lib.common import ROOT

STORES = [ROOT / "src" / "store" / name for name in ("dynamodb", "postgres", "redis")]
SURFACE = ROOT / "tools" / "checks" / "surface.txt"

# The internal items that the stores use, and their purpose. At most ten, because a separate crate would have to duplicate them.
ALLOWED = {
    "store::remote": "chunks, terms, passwords and TLS that stores on servers share",
    "store::rules": "the times of a settlement (resolved), for DynamoDB, which has no clock; the rest repeats public items",
    "store::ordering": "the rules of order one by one, for stores that read record and mark apart",
    "backoff::Backoff": "the pauses between attempts",
    "error::root_cause": "the innermost source of an error, as text",
    "key::powertools": "the hashes of AWS Powertools",
    "key::text": "JSON as DynamoDB's values, without losing digits",
    "Error::config": "short for an error of the configuration",
    "Error::for_each": "one error for each request of a call",
    "Error::without_source": "a copy of an error",
}
MAX_ALLOWED = 10

# The files in which types of the contract have internal methods.
HOMES = ["error.rs", "record.rs", "order.rs", "clock.rs", "store/mod.rs", "store/claim.rs", "store/settlement.rs", "store/format.rs"]
METHOD = re.compile(r"pub\(crate\) (?:const )?fn (\w+)")


def expanded(tree, prefix=""):
    """Yields the paths of a `use` tree."""
    tree = tree.strip()
    if not tree.startswith("{"):
        head, separator, rest = tree.partition("::")
        if separator:
            yield from expanded(rest, f"{prefix}{head}::")
        else:
            yield (prefix + head.split(" as ")[0]).removesuffix("::self")
        return
    depth, part = 0, ""
    for character in f"{tree[1:-1]},":
        if character == "," and depth == 0:
            if part.strip():
                yield from expanded(part, prefix)
            part = ""
        else:
            depth += (character == "{") - (character == "}")
            part += character


def named(code):
    """Yields the paths below `crate` in a file."""
    use = re.compile(r"\buse crate::(.*?);", re.DOTALL)
    for tree in use.findall(code):
        yield from expanded(tree)
    yield from re.findall(r"\bcrate::((?:\w+::)*\w+)", use.sub("", code))


def code_of(file):
    """Returns a file without its tests and comments."""
    code = re.split(r"#\[cfg\((?:all\()?test", file.read_text())[0]
    return re.sub(r"//[^\n]*", "", code)


def problems():
    public = {line.split()[-1].rsplit("::", 1)[-1] for line in SURFACE.read_text().splitlines()}
    methods = {}
    for home in HOMES:
        for name in METHOD.findall((ROOT / "src" / home).read_text()):
            methods.setdefault(name, set()).add(home)
    allowed = lambda path: any(path == name or path.startswith(f"{name}::") for name in ALLOWED)
    for folder in STORES:
        for file in sorted(folder.rglob("*.rs")):
            code = code_of(file)
            where = file.relative_to(ROOT)
            for path in named(code):
                own = path.startswith(f"store::{folder.name}")
                if not own and not allowed(path) and path.rsplit("::", 1)[-1] not in public:
                    yield f"{where} uses {path}, which is not public"
            for name in re.findall(r"\bError::(\w+)\b", code):
                if name in methods and "error.rs" in methods[name] and not allowed(f"Error::{name}"):
                    yield f"{where} calls Error::{name}, which is not public"
            defined = set(re.findall(r"\bfn (\w+)", code))
            for name in methods.keys() - defined - public:
                if re.search(rf"\.{name}\(", code) and not allowed(f"Error::{name}"):
                    yield f"{where} calls .{name}(), which is not public on a type of {', '.join(sorted(methods[name]))}"


def main():
    found = sorted(set(problems()))
    if len(ALLOWED) > MAX_ALLOWED:
        found.append(f"{len(ALLOWED)} items are allowed, of {MAX_ALLOWED}")
    for problem in found:
        print(problem, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
