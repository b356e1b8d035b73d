"""Mutation tests: applies the mutations in tools/tests/planted/ to a copy of the sources, and runs the tests that must fail with each.

python3 -m tools.tests.plants [--check] [--part N/M] [WORD ...]

WORD      only the mutations whose rule or test binary is a WORD, or whose text contains it
--part    the Nth of M parts of them

Mutations of different stores are applied together, others one at a time. A mutant fails if it survives or does not compile, or if its
tests do not exist or fail without it. With --check nothing is built, and the check fails if a text is no longer found in its file, so
that the list stays up to date. The servers of the tests must run (see tools/servers/run_with.py). The copy and its build are below
target/plants/.
"""

import json
import os
import re
import subprocess
import sys

from tools.lib.common import ROOT, exit_on_signals, say
from tools.tests.planted import PLANTS
from tools.tests.planted.chaos import CHAOS

COPY = ROOT / "target" / "plants" / "tree"
BUILD = ROOT / "target" / "plants" / "build"
# The library's unit tests.
LIB = "lib"
# Longer than any of the tests takes.
PATIENCE = 600


def misplaced():
    """Yields the mutations whose text is not in its file, or more than once."""
    for plant in PLANTS + CHAOS:
        count = (ROOT / "src" / plant.file).read_text().count(plant.old)
        if count != 1 or plant.old == plant.new:
            yield f"{plant.rule} {plant.bug}: its text occurs {count} times in src/{plant.file}"


def nameless():
    """The plants whose tests are in no module, macro or file of the sources."""
    files = [*(ROOT / "src").rglob("*.rs"), *(ROOT / "tests").rglob("*.rs")]
    known = {path.stem for path in files} | {path.parent.name for path in files}
    for path in files:
        known.update(re.findall(r"(?:\b(?:fn|mod) |^ +)(\w+)(?=[(<:; ])", path.read_text(), re.MULTILINE))
    for plant in PLANTS:
        for name in re.findall(r"\w+", plant.tests):
            if name not in known | {LIB}:
                yield f"{plant.rule} {plant.bug}: no test is called {name}"


def copy(to=COPY):
    """Makes the copy equal to the sources. Equal files keep their modification times, so that they are not built again."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    wanted = {name for name in names if name and (ROOT / name).is_file()}
    for found in [path for path in to.rglob("*") if path.is_file()]:
        if str(found.relative_to(to)) not in wanted:
            found.unlink()
    for name in wanted:
        source, target = ROOT / name, to / name
        if not target.is_file() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())


def build(binaries):
    """Builds the test programs, and returns them, or None if they do not compile."""
    tests = [word for binary in sorted(binaries) for word in (["--lib"] if binary == LIB else ["--test", binary])]
    # Without debug information for the crate that is built each time.
    lean = ["--config", 'profile.dev.package."lambda-once".debug=false']
    command = ["cargo", "test", *lean, "-p", "lambda-once", "--all-features", "--no-run", "--message-format", "json", *tests]
    # A mutation changes little of the library, so that incremental builds compile only its dependents again.
    env = {**os.environ, "CARGO_TARGET_DIR": str(BUILD), "CARGO_TERM_QUIET": "true", "CARGO_INCREMENTAL": "1"}
    built = subprocess.run(command, cwd=COPY, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    if built.returncode:
        errors = [message["message"]["rendered"] for message in messages if message["reason"] == "compiler-message"]
        print("".join(text for text in errors if text.startswith("error")) or built.stderr, file=sys.stderr)
        return None
    programs = {
        message["target"]["name"]: message["executable"]
        for message in messages
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]
    }
    return {binary: programs["lambda_once" if binary == LIB else binary] for binary in binaries}


def test(program, filters):
    """Returns the tests that failed, or None if one hangs."""
    env = {**os.environ, "CARGO_MANIFEST_DIR": str(COPY), "RUST_BACKTRACE": "0"}
    try:
        ran = subprocess.run(
            [program, *filters], cwd=COPY, env=env, timeout=PATIENCE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except subprocess.TimeoutExpired:
        return None
    failed = re.findall(r"^test (\S+)(?: - should panic)? \.\.\. FAILED$", ran.stdout, re.MULTILINE)
    return failed


def healthy(plants):
    """Returns whether the tests of the mutations exist, and pass without them."""
    filters = {}
    for plant in plants:
        binary, *words = plant.tests.split()
        filters.setdefault(binary, set()).update(words)
    programs = build(filters)
    if programs is None:
        return False
    is_healthy = True
    for binary, words in filters.items():
        listed = subprocess.run([programs[binary], "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
        names = [line.removesuffix(": test") for line in listed.splitlines()]
        for word in words:
            if not any(word in name for name in names):
                print(f"no test of {binary} matches {word}", file=sys.stderr)
                is_healthy = False
        if (failed := test(programs[binary], sorted(words))) != []:
            print(f"{binary}: fails without a mutation: {failed}", file=sys.stderr)
            is_healthy = False
    return is_healthy


def store_of(plant):
    """Returns the only store whose files the mutation changes, or an empty string if others use them, too."""
    folder = re.match(r"store/(dynamodb|postgres|redis)/", plant.file)
    return folder[1] if folder else ""


def rounds(plants):
    """Groups the mutations into builds: one of each store, whose tests have its name, or a single other one."""
    open_rounds = []
    for plant in plants:
        store, binary = store_of(plant), plant.tests.split()[0]
        fits = lambda others: all(store_of(other) not in ("", store) and other.tests.split()[0] == binary for other in others)
        found = next((others for others in open_rounds if store and fits(others)), None)
        if found is None:
            open_rounds.append([plant])
        else:
            found.append(plant)
    return open_rounds


def notice(plants):
    """Returns for each mutation whether it is detected, and by which test, or the reason why not.

    A test whose name has no store may fail because of any of them. So a mutation that survives among others is tested alone.
    """
    files = {COPY / "src" / plant.file for plant in plants}
    sound = {file: file.read_text() for file in files}
    try:
        for plant in plants:
            file = COPY / "src" / plant.file
            file.write_text(sound[file].replace(plant.old, plant.new))
        programs = build({plant.tests.split()[0] for plant in plants})
        is_alone = len(plants) == 1
        results = [(plant, *noticed_in(programs, plant, "" if is_alone else store_of(plant))) for plant in plants]
    finally:
        for file, text in sound.items():
            file.write_text(text)
    return [result if is_alone or result[1] else notice([result[0]])[0] for result in results]


def noticed_in(programs, plant, store):
    if programs is None:
        return False, "does not compile"
    binary, *filters = plant.tests.split()
    failed = test(programs[binary], filters)
    if failed is None:
        return False, "the tests hang"
    # Failures caused by another store's mutation do not count.
    failed = [name for name in failed if store in name]
    if not failed:
        return False, f"survives {plant.tests}"
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return True, f"detected by {failed[0]}{more}"


def main():
    words = [word for word in sys.argv[1:] if word != "--check"]
    part, parts = 1, 1
    if "--part" in words:
        place = words.index("--part")
        part, parts = map(int, words[place + 1].split("/"))
        del words[place : place + 2]
    if stale := [*misplaced(), *nameless()]:
        sys.exit("\n".join(stale))
    if "--check" in sys.argv:
        return 0
    is_meant = lambda plant: any(word in (plant.rule, plant.tests.split()[0]) or word in plant.bug for word in words)
    plants = [plant for plant in PLANTS if not words or is_meant(plant)]
    if not plants:
        sys.exit(f"no mutation matches {' '.join(words)}")
    exit_on_signals()
    chosen = rounds(plants)
    chosen = chosen[(part - 1) * len(chosen) // parts : part * len(chosen) // parts]
    plants = [plant for together in chosen for plant in together]
    say(f"{len(plants)} mutations; the first build takes 5 to 10 minutes")
    copy()
    if not healthy(plants):
        return 1
    unnoticed = 0
    for together in chosen:
        for plant, is_noticed, how in notice(together):
            unnoticed += not is_noticed
            print(f"{plant.rule:3} {plant.bug}: {how}", flush=True)
    print(f"{len(plants) - unnoticed} of {len(plants)} mutations are detected")
    return int(unnoticed > 0)


if __name__ == "__main__":
    sys.exit(main())
