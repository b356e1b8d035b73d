"""Plants bugs in the stores' statements and scripts, and finds each by chaos: python3 -m tools.tests.chaos_bugs [WORD ...]

WORD      only the bugs whose rule or store is a WORD, or whose text contains it

Prints a table of the broken promise, and of the operations that had begun until then. Fails if a bug is not found within OPERATIONS. The
sources are changed in a copy below target/chaos-bugs/, which is built into the same directory as the workspace.
"""

import os
import re
import shutil
import subprocess
import sys

from tools.lib.common import ROOT, exit_on_signals, run, say
from tools.tests import plants
from tools.tests.planted.chaos import CHAOS

OPERATIONS = 1000
COPY = ROOT / "target" / "chaos-bugs"
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
FOUND = re.compile(r"^violated: ([^:]+):.*?^the first is found after (\d+) operations", re.MULTILINE | re.DOTALL)


def prepare():
    """Makes the copy. It shares the tools of the workspace, and the files that they have installed."""
    tools = COPY / "tools"
    if tools.is_symlink():
        tools.unlink()
    plants.copy(COPY)
    shutil.rmtree(tools)
    tools.symlink_to(ROOT / "tools")


def find(plant):
    """Returns the broken promise and the operations until then, or None."""
    file = COPY / "src" / plant.file
    sound = file.read_text()
    file.write_text(sound.replace(plant.old, plant.new))
    env = {**os.environ, "CARGO_TARGET_DIR": str(TARGET)}
    try:
        build = ["cargo", "build", "--quiet", "--workspace", "--all-features", "--bin", "chaos"]
        subprocess.run(build, cwd=COPY, env=env, check=True)
        store = plant.tests.split()[1]
        command = [TARGET / "debug" / "chaos", "--store", store, "--operations", str(OPERATIONS)]
        ran = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    finally:
        file.write_text(sound)
    found = FOUND.search(ran.stdout)
    return found and found.groups()


def main():
    words = sys.argv[1:]
    is_meant = lambda plant: any(word in (plant.rule, plant.tests.split()[1]) or word in plant.bug for word in words)
    chosen = [plant for plant in CHAOS if not words or is_meant(plant)]
    if not chosen:
        sys.exit(f"no bug matches {' '.join(words)}")
    exit_on_signals()
    prepare()
    missed = 0
    print("| rule | bug | found by | operations |\n|---|---|---|---:|", flush=True)
    for plant in chosen:
        found = find(plant)
        missed += not found
        promise, operations = found or ("**not found**", OPERATIONS)
        print(f"| {plant.rule} | {plant.bug} | {promise} | {operations} |", flush=True)
    # The program of the workspace again.
    run(["cargo", "build", "--quiet", "--workspace", "--all-features", "--bin", "chaos"], dict(os.environ))
    say(f"{len(chosen) - missed} of {len(chosen)} bugs are found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
