"""Plants bugs in the stores' statements and scripts, and finds each by chaos: python3 -m tools.tests.chaos_bugs [WORD ...]

WORD      only the bugs whose rule or store is a WORD, or whose text contains it

Prints, for each bug, the promise that it breaks and the number of operations begun by then. The last run's output is in
target/mutants/chaos.log. Fails if a bug is not found within OPERATIONS, unless it is known to be too rare. Scripts
and SQL are changed in a copy of the program, Rust in a copy of the sources below target/chaos-bugs/, which is built into the same directory
as the workspace.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys

from tools.lib.common import ROOT, exit_on_signals, say
from tools.tests import plants
from tools.tests.mutants.program import FOLDER, Program
from tools.tests.mutants.tokens import Mutant
from tools.tests.planted.chaos import CHAOS, TOO_RARE

OPERATIONS = 4000
COPY = ROOT / "target" / "chaos-bugs"
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
PROGRAM = TARGET / "debug" / "chaos"
TOOL = PROGRAM.with_name("lambda-once")
BUILD = ["cargo", "build", "--quiet", "--workspace", "--all-features", "--bin", "chaos", "--bin", TOOL.name]
FOUND = re.compile(r"^violated: ([^:]+):.*?^the first is found after (\d+) operations", re.MULTILINE | re.DOTALL)


def prepare():
    """Makes the copy. It shares the tools of the workspace, and the files that they have installed."""
    tools = COPY / "tools"
    if tools.is_symlink():
        tools.unlink()
    plants.copy(COPY)
    shutil.rmtree(tools)
    tools.symlink_to(ROOT / "tools")


def is_built(plant):
    """Returns whether the bug is in Rust."""
    return plant.file.endswith(".rs")


@contextlib.contextmanager
def changed(plant):
    """Changes the text in a copy of the program, and returns its path."""
    text = (ROOT / "src" / plant.file).read_text()
    begin = text.index(plant.old)
    mutant = Mutant(plant.file, 0, plant.bug, plant.old, plant.new, 1, begin, begin + len(plant.old))
    program = Program(PROGRAM, "chaos")
    if not program.has(text):
        sys.exit(f"{PROGRAM} has another text of {plant.file}")
    with program.with_text(text, mutant.apply(text)):
        yield program.path


@contextlib.contextmanager
def built(plant):
    """Changes and builds the copy of the sources, and returns the path of the program."""
    file = COPY / "src" / plant.file
    sound = file.read_text()
    file.write_text(sound.replace(plant.old, plant.new))
    try:
        subprocess.run(BUILD, cwd=COPY, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, check=True)
        yield PROGRAM
    finally:
        file.write_text(sound)


def find(plant):
    """Returns the broken promise and the operations until then, or None."""
    with (built if is_built(plant) else changed)(plant) as program:
        command = [program, "--store", plant.tests.split()[1], "--operations", str(OPERATIONS), "--tool", str(TOOL)]
        ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "chaos.log").write_text(ran.stdout)
    if ran.returncode not in (0, 1):
        sys.exit(f"chaos did not run: {plant.bug}")
    found = FOUND.search(ran.stdout)
    return found and found.groups()


def main():
    words = sys.argv[1:]
    is_meant = lambda plant: any(word in (plant.rule, plant.tests.split()[1]) or word in plant.bug for word in words)
    chosen = [plant for plant in CHAOS if not words or is_meant(plant)]
    if not chosen:
        sys.exit(f"no bug matches {' '.join(words)}")
    exit_on_signals()
    subprocess.run(BUILD, cwd=ROOT, check=True)
    # Bugs in Rust replace the program of the workspace.
    chosen.sort(key=is_built)
    if any(map(is_built, chosen)):
        prepare()
    missed = 0
    print("| rule | bug | found by | operations |\n|---|---|---|---:|", flush=True)
    try:
        for plant in chosen:
            found = find(plant)
            missed += not found and plant.bug not in TOO_RARE
            promise, operations = found or ("**not found**", OPERATIONS)
            print(f"| {plant.rule} | {plant.bug} | {promise} | {operations} |", flush=True)
    finally:
        if any(map(is_built, chosen)):
            subprocess.run(BUILD, cwd=ROOT, check=True)
    say(f"{len(chosen)} bugs, {missed} of which should have been found and were not")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
