#!/usr/bin/env python3
"""Plants the bugs of tools/planted.py in a copy of the sources, one at a time, and runs the tests that must fail with it.

tools/plants.py [--check] [WORD ...]    only the plants whose rule is a WORD, or whose text contains it

With --check nothing is built: it fails if a text is no longer found in its file, so that the list stays true. A plant that no
test notices fails, and so does one that does not compile, or tests that are not there or fail without it. The servers of the
tests must run: tools/with-servers.py. The copy and its build are below target/plants/.
"""

import json
import os
import re
import subprocess
import sys
import time

from common import ROOT, exit_on_signals, say
from planted import PLANTS

COPY = ROOT / "target" / "plants" / "tree"
BUILD = ROOT / "target" / "plants" / "build"
# Longer than any of the tests takes.
PATIENCE = 600


def misplaced():
    """The plants whose text is not in its file, or more than once."""
    for plant in PLANTS:
        count = (ROOT / "src" / plant.file).read_text().count(plant.old)
        if count != 1 or plant.old == plant.new:
            yield f"{plant.rule} {plant.bug}: its text occurs {count} times in src/{plant.file}"


def copy():
    """Makes the copy equal to the sources. What is equal already keeps its time, so that it is not built again."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for found in [path for path in COPY.rglob("*") if path.is_file()]:
        if str(found.relative_to(COPY)) not in wanted:
            found.unlink()
    for name in wanted:
        source, target = ROOT / name, COPY / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def build(binaries):
    """The programs of the tests; None if they do not compile."""
    tests = [argument for binary in sorted(binaries) for argument in ("--test", binary)]
    command = ["cargo", "test", "--workspace", "--all-features", "--no-run", "--message-format", "json", *tests]
    env = {**os.environ, "CARGO_TARGET_DIR": str(BUILD), "CARGO_TERM_QUIET": "true"}
    built = subprocess.run(command, cwd=COPY, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    if built.returncode:
        errors = [message["message"]["rendered"] for message in messages if message["reason"] == "compiler-message"]
        print("".join(text for text in errors if text.startswith("error")) or built.stderr, file=sys.stderr)
        return None
    return {
        message["target"]["name"]: message["executable"]
        for message in messages
        if message["reason"] == "compiler-artifact" and message["executable"] and "test" in message["target"]["kind"]
    }


def test(program, filters):
    """How many tests ran, and those that failed. None for one that hangs."""
    env = {**os.environ, "CARGO_MANIFEST_DIR": str(COPY), "RUST_BACKTRACE": "0"}
    try:
        ran = subprocess.run(
            [program, *filters], cwd=COPY, env=env, timeout=PATIENCE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except subprocess.TimeoutExpired:
        return 0, None
    count = re.search(r"^running (\d+) tests?$", ran.stdout, re.MULTILINE)
    failed = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", ran.stdout, re.MULTILINE)
    if ran.returncode and not failed:
        failed = [f"exit code {ran.returncode}"]
    return int(count[1]) if count else 0, failed


def healthy(plants):
    """Whether the tests of the plants are there, and pass without them."""
    programs = build({plant.tests.split()[0] for plant in plants})
    if programs is None:
        return False
    is_healthy = True
    for tests in sorted({plant.tests for plant in plants}):
        binary, *filters = tests.split()
        listed = [subprocess.run([programs[binary], word, "--list"], stdout=subprocess.PIPE, text=True).stdout for word in filters]
        missing = [word for word, names in zip(filters, listed) if ": test\n" not in names]
        ran, failed = test(programs[binary], filters)
        if missing or failed or not ran:
            print(f"{tests}: without a plant {failed or 'no test'} {missing}", file=sys.stderr)
            is_healthy = False
    return is_healthy


def notice(plant):
    """What notices the plant, or why nothing does."""
    file = COPY / "src" / plant.file
    sound = file.read_text()
    binary, *filters = plant.tests.split()
    try:
        file.write_text(sound.replace(plant.old, plant.new))
        programs = build({binary})
        if programs is None:
            return False, "does not compile"
        _, failed = test(programs[binary], filters)
    finally:
        file.write_text(sound)
    if failed is None:
        return False, "the tests hang"
    if not failed:
        return False, f"not noticed by {plant.tests}"
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return True, f"noticed by {failed[0]}{more}"


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    if stale := list(misplaced()):
        sys.exit("\n".join(stale))
    if "--check" in sys.argv:
        return 0
    plants = [plant for plant in PLANTS if not words or any(word == plant.rule or word in plant.bug for word in words)]
    if not plants:
        sys.exit(f"no plant is called {' '.join(words)}")
    exit_on_signals()
    say(f"{len(plants)} plants; the first build takes 3 to 8 minutes")
    copy()
    if not healthy(plants):
        return 1
    unnoticed = 0
    for plant in plants:
        began = time.monotonic()
        is_noticed, how = notice(plant)
        unnoticed += not is_noticed
        print(f"{plant.rule:3} {plant.bug}: {how} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(plants) - unnoticed} of {len(plants)} plants are noticed")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
