"""Runs the tests of a store against each mutant of its statements: python3 -m tools.tests.mutants [OPTION ...] lua|sql|expressions [WORD ...]

WORD      only the mutants whose description contains it
--check   runs nothing, and fails if survivors.py names a mutant that is no longer there
--list    prints the mutants and runs none (of expressions, after the tests have run once)
--part    with N/M, the Nth of M parts of them
--again   also those whose result is known

A mutant is detected if a test of its store fails, and fails again when it runs alone. Results are kept in target/mutants/, by the code of each
file, so that an interrupted run continues, and survivors are tried again. The run fails if a mutant survives that tools/tests/mutants/survivors.py does not
explain. The servers of the tests must run (see tools/servers/run_with.py).
"""

import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path

from tools.lib.builds import ALL, tests
from tools.lib.common import exit_on_signals, say
from tools.tests.mutants import lua, sql
from tools.tests.mutants.embedded import Embedded
from tools.tests.mutants.program import FOLDER, Program
from tools.tests.mutants.survivors import EXPLAINED
from tools.tests.mutants.wire import Wire, proxy

# The stores by the languages of their statements.
STORES = {"lua": "redis", "sql": "postgres", "expressions": "dynamodb"}
# The tests of wrappers and of clusters, which repeat the store's.
REPEATED = ("cluster", "_in_a_box", "_in_an_arc")
# Tests of one store that do not name it.
UNNAMED = {"postgres": "transactions::"}
# Each store's tests in the order in which they run: by words in their names, the quick ones that check the rules first.
STAGES = (("conformance::",), ("sequences::", "versions::", "fixtures::", "races::", "::orders::", "::records", "::rows"))


class Results:
    """The known results of the mutants of one language. A changed file makes its results void."""

    def __init__(self, language):
        self.path = FOLDER / f"{language}.json"
        self.known = self.stored()

    def stored(self):
        return json.loads(self.path.read_text()) if self.path.is_file() else {}

    def add(self, key, detected):
        # Other parts may run at the same time.
        with open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.known = {**self.stored(), key: detected}
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.known, indent=0, sort_keys=True))
            new.replace(self.path)


@contextlib.contextmanager
def subject_of(language):
    """Returns the statements of a language, as something that has mutants and applies them."""
    if language == "expressions":
        wire = Wire(os.environ["DYNAMODB_ENDPOINT"])
        with proxy(wire) as address:
            os.environ["DYNAMODB_ENDPOINT"] = address
            yield wire
    else:
        yield embedded(language)


def embedded(language):
    return Embedded(language, {"lua": lua, "sql": sql}[language], f"src/store/{STORES[language]}")


def stale():
    """Yields the explained mutants of files that are no longer there."""
    known = {mutant.identity() for language in ("lua", "sql") for mutant in embedded(language).mutants()}
    for identity in EXPLAINED:
        if identity[0].endswith((".lua", ".sql")) and identity not in known:
            yield f"tools/tests/mutants/survivors.py: no such mutant: {identity}"


def built():
    """Builds the tests of the stores, and returns their program."""
    programs = tests("building the tests of the stores", [*ALL, "--test", "stores"])
    return next(Path(program.path) for program in programs if program.name == "stores")


def stages(program, store):
    """Returns the store's tests, in groups that run one after the other."""
    named = lambda test: next((name for name in STORES.values() if name in test), None)
    is_of_store = lambda test: named(test) == store or named(test) is None and test.startswith(UNNAMED.get(store, "-"))
    tests = [test for test in program.tests() if is_of_store(test) and not any(word in test for word in REPEATED)]
    number = lambda test: next((n for n, words in enumerate(STAGES) if any(word in test for word in words)), len(STAGES))
    return [[test for test in tests if number(test) == stage] for stage in range(len(STAGES) + 1)]


def detects(program, groups):
    """Returns the test that detects the mutant, or None. A test that fails only once detects nothing."""
    for tests in groups:
        while failed := program.first_failure(tests):
            # A program that hangs or dies has no failed test, so all of them run again.
            if again := program.first_failure([failed] if failed in tests else tests):
                return again
            tests = [test for test in tests if test != failed]
    return None


def main():
    arguments = sys.argv[1:]
    part, parts = 1, 1
    if "--part" in arguments:
        place = arguments.index("--part")
        part, parts = map(int, arguments[place + 1].split("/"))
        del arguments[place : place + 2]
    if lines := [*stale()]:
        sys.exit("\n".join(lines))
    if "--check" in arguments:
        return 0
    language, *words = [argument for argument in arguments if not argument.startswith("--")] or [""]
    if language not in STORES:
        sys.exit(__doc__)
    exit_on_signals()
    with subject_of(language) as subject:
        program = Program(built(), f"{language}-{part}-of-{parts}")
        subject.prepare(program)
        groups = stages(program, STORES[language])
        subject.is_recording = True
        began = time.monotonic()
        if failed := detects(program, groups):
            sys.exit(f"{failed} fails without a mutation")
        subject.is_recording = False
        mutants = [mutant for mutant in subject.mutants() if not words or any(word in str(mutant) for word in words)]
        mutants = mutants[(part - 1) * len(mutants) // parts : part * len(mutants) // parts]
        if "--list" in arguments:
            print(*mutants, sep="\n")
            return 0
        say(f"{len(mutants)} mutants, {sum(map(len, groups))} tests, which take {time.monotonic() - began:.0f} s without a mutation")
        return perform(subject, program, groups, mutants, Results(language), is_again="--again" in arguments)


def likely(results, key, groups):
    """Returns the tests that have detected other mutants of the file or the purpose, as a first group, if there are any."""
    place = f"{key.partition(' | ')[0]} | "
    detected = {test for other, test in results.known.items() if other.startswith(place)}
    tests = [test for group in groups for test in group if test in detected]
    return [tests] if tests else []


def perform(subject, program, groups, mutants, results, is_again):
    """Runs the tests against each mutant, and returns the exit status."""
    survivors = 0
    for mutant in mutants:
        key, explained = subject.key(mutant), EXPLAINED.get(mutant.identity())
        # The result of a test that is no longer there is void.
        tests = {test for group in groups for test in group} | {"hangs", "the program dies"}
        is_known = results.known.get(key) in tests or key in results.known and explained
        if is_again or not is_known:
            with subject.applied(mutant):
                results.add(key, detects(program, [*likely(results, key, groups), *groups]))
        detected = results.known[key]
        survivors += not (detected or explained)
        verdict = f"detected by {detected}" if detected else f"survives: {explained}" if explained else "SURVIVES"
        print(f"{mutant}: {verdict}", flush=True)
    print(f"{len(mutants)} mutants, {survivors} survivors without an explanation")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
