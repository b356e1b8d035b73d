"""Compares the library's public items with tools/checks/surface.txt: python3 -m tools.checks.surface [--write]

The items are read from rustdoc's JSON with all features: modules, types, traits, functions, methods, public fields, variants, constants
and macros, each by its shortest path, without `#[doc(hidden)]` items. The check fails in any of these cases:

* The list differs.
* There are more types or functions than AUDIENCES allows.
* A signature contains a type of a crate that FOREIGN does not allow there.
* Two paths lead to an item, unless the crate root re-exports it from a public module.
* The documentation of a module has no example in Rust, or a term in SEARCHED is no item's alias.

--write regenerates the list.
"""

import json
import os
import re
import subprocess
import sys

from tools.lib.common import ROOT, say

LIST = ROOT / "tools" / "checks" / "surface.txt"
# Who uses the items below these paths, of which the first that fits counts, and the most types and functions for them.
AUDIENCES = {
    "tests of applications": (("testing",), 7, 49),
    "applications": (("store::dynamodb", "store::postgres", "store::redis"), 129, 398),
    "authors of stores": (("Store", "record", "store"), 44, 86),
}
# Of the rest.
APPLICATIONS = "applications"

# The crates whose types may be in signatures, and the paths below which they may (without paths, everywhere). A new major version of one
# of them requires a new major version of this crate.
FOREIGN = {
    # The standard library, with all its names.
    "std": (), "core": (), "alloc": (),
    # The common crates of Lambda, serde and tower.
    "lambda_runtime": (), "serde_core": (), "serde_json": (), "tower_layer": (), "tower_service": (),
    "axum_core": ("http",), "bytes": ("http",), "http": ("http",), "http_body": ("http",),
    "aws_sdk_dynamodb": ("store::dynamodb", "DynamoDbStore::new"),
    "aws_smithy_runtime_api": ("store::dynamodb",),
    "aws_types": ("store::dynamodb",),
    "aws_sdk_sqs": ("batch::sqs",),
    # The event that the SQS source takes.
    "aws_lambda_events": ("testing::sqs",),
    "serde_dynamo": ("batch::dynamodb",),
    "tokio_postgres": ("store::postgres",),
}

# The terms by which people search for the library's items in its documentation.
SEARCHED = ("deduplication", "exactly-once", "Idempotency-Key", "DLQ", "dead-letter queue", "partial batch response",
            "ReportBatchItemFailures", "lock", "fencing token")

# The first line of an example in Rust.
EXAMPLE = re.compile(r"^```(?:rust|no_run)?(?:,\w+)*\n(?=\S)", re.MULTILINE)

CRATE = "lambda_once"
TYPES = {"struct", "enum", "union", "trait", "type_alias"}


def rustdoc():
    """Returns rustdoc's description of the library's items. The format is unstable, and depends on the current toolchain."""
    say("listing the library's public items; half a minute")
    # For the whole workspace, so that crates are compiled with the same features as for clippy.
    command = ["cargo", "doc", "--quiet", "--workspace", "--all-features", "--no-deps", "--lib"]
    flags = "-Z unstable-options --output-format json"
    env = {**os.environ, "RUSTDOC": str(ROOT / "tools" / "checks" / "rustdoc-unstable.sh"), "RUSTDOCFLAGS": flags}
    subprocess.run(command, cwd=ROOT, check=True, env=env)
    target = json.loads(subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout)["target_directory"]
    return json.loads(open(f"{target}/doc/{CRATE}.json").read())


class Surface:
    def __init__(self, document):
        self.index = document["index"]
        self.paths = document["paths"]
        self.crates = document["external_crates"]
        # The kind of each item, by path.
        self.items = {}
        # The path of each item, by id.
        self.found = {}
        self.doubles = []
        self.foreign = set()
        self.without_example = []
        # Breadth first, so that the shortest path is found first.
        self.queue = [(document["root"], CRATE)]
        while self.queue:
            self.module(*self.queue.pop(0))

    def item(self, identity):
        return self.index.get(str(identity))

    def module(self, identity, path):
        for item in filter(None, map(self.item, self.item(identity)["inner"]["module"]["items"])):
            if item["visibility"] != "public":
                continue
            name, inner = item["name"], item["inner"]
            if "use" in inner:
                use = inner["use"]
                item = self.item(use["id"]) if use["id"] is not None else None
                # An item of another crate, with the name that it has here.
                if item is None or item["crate_id"] != 0:
                    self.items[f"{path}::{use['name']}"] = "reexport"
                    continue
                if use["is_glob"]:
                    self.queue.append((use["id"], path))
                    continue
                name, inner = use["name"], item["inner"]
            self.add(item, f"{path}::{name}", next(iter(inner)))

    def add(self, item, path, kind):
        if item["id"] in self.found:
            if not self.is_shown_in_root(item["id"], path):
                self.doubles.append((self.found[item["id"]], path))
            return
        self.found[item["id"]] = path
        self.items[path] = kind
        inner = item["inner"][kind]
        if kind == "module":
            if not EXAMPLE.search(item["docs"] or ""):
                self.without_example.append(path)
            self.queue.append((item["id"], path))
            return
        self.signature(path, {key: value for key, value in inner.items() if key not in ("impls", "items", "implementations")}
                       if isinstance(inner, dict) else inner)
        for member in self.members(kind, inner):
            name, of = member["name"], next(iter(member["inner"]))
            where = f"{path}::{name}"
            if where not in self.items:
                self.items[where] = of
                self.signature(where, member["inner"])
        for implementation in inner.get("impls", []) if isinstance(inner, dict) else []:
            implementation = self.item(implementation)
            # Without implementations by the compiler or by another crate for every type.
            own = implementation and implementation["inner"]["impl"]
            if own and own["trait"] and not own["is_synthetic"] and own["blanket_impl"] is None:
                self.signature(path, own["trait"])

    def is_shown_in_root(self, identity, path):
        """Returns whether this second path of an item is in its defining module or the public one around it, and the first path is
        in the crate root."""
        module = path.split("::")[:-1]
        return self.found[identity].count("::") == 1 and self.paths[str(identity)]["path"][: len(module)] == module

    def members(self, kind, inner):
        """Yields the fields, variants, and items of the inherent implementations."""
        identities = []
        if kind == "struct" and "plain" in (inner["kind"] if isinstance(inner["kind"], dict) else {}):
            identities += inner["kind"]["plain"]["fields"]
        if kind == "enum":
            identities += inner["variants"]
        if kind == "trait":
            identities += inner["items"]
        for implementation in filter(None, map(self.item, inner.get("impls", []) if kind in ("struct", "enum", "union") else [])):
            if implementation["inner"]["impl"]["trait"] is None:
                identities += implementation["inner"]["impl"]["items"]
        for member in filter(None, map(self.item, identities)):
            if kind in ("trait", "enum") or member["visibility"] == "public":
                yield member

    def signature(self, path, node):
        """Records the crates whose types this contains."""
        if isinstance(node, dict):
            identity = node.get("id")
            known = self.paths.get(str(identity)) if isinstance(identity, int) and "path" in node else None
            if known and known["crate_id"] != 0:
                self.foreign.add((self.crates[str(known["crate_id"])]["name"], path))
            for value in node.values():
                self.signature(path, value)
        elif isinstance(node, list):
            for value in node:
                self.signature(path, value)


def may_name(crate, path):
    """Returns whether the item with this path may have a type of the crate in its signature."""
    if crate not in FOREIGN:
        return False
    below = [f"{CRATE}::{place}" for place in FOREIGN[crate]] or [CRATE]
    return any(path == place or path.startswith(f"{place}::") for place in below)


def audience(path):
    name = path.removeprefix(f"{CRATE}::")
    is_below = lambda places: any(name == place or name.startswith(f"{place}::") for place in places)
    return next((who for who, (places, *_) in AUDIENCES.items() if is_below(places)), APPLICATIONS)


def main():
    if sys.argv[1:] not in ([], ["--write"]):
        sys.exit(__doc__)
    surface = Surface(rustdoc())
    lines = [f"{kind:12} {path}" for path, kind in sorted(surface.items.items())]
    problems = []
    for who, (_, most_types, most_functions) in AUDIENCES.items():
        kinds = [kind for path, kind in surface.items.items() if audience(path) == who]
        types, functions = sum(kind in TYPES for kind in kinds), kinds.count("function")
        print(f"for {who}: {types} types, {functions} functions")
        if types > most_types or functions > most_functions:
            problems.append(f"for {who} {types} types and {functions} functions are public, of {most_types} and {most_functions} that are allowed")
    problems += [f"{second} is also public as {first}" for first, second in surface.doubles]
    for crate, path in sorted(surface.foreign):
        if not may_name(crate, path):
            problems.append(f"the signature of {path} contains a type of {crate}")
    problems += [f"the documentation of the module {path} has no example" for path in surface.without_example]
    attributes = " ".join(str(surface.item(identity)["attrs"]) for identity in surface.found)
    problems += [f"no item has the alias {term}" for term in SEARCHED if f'"{term}"' not in attributes]
    text = "".join(f"{line}\n" for line in lines)
    if sys.argv[1:] == ["--write"]:
        LIST.write_text(text)
    elif not LIST.is_file() or LIST.read_text() != text:
        problems.append(f"the list has changed; see `git diff` after {sys.argv[0]} --write")
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
