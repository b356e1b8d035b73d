"""Runs the tests against each mutant: python3 -m tools.tests.mutants [OPTION ...] lua|sql|expressions|rust [WORD ...]

lua, sql and expressions are the statements of a store, and rust is the library's code.

WORD      only the mutants whose description contains it
--check   runs nothing, and fails if survivors.py names a mutant that is no longer there
--list    prints the mutants and runs none (of expressions and rust, after the tests have run once)
--part    with N/M, the Nth of M parts of them
--first   with REGEX, of expressions and rust: tests whose names match it run before all others
--again   also those whose result is known
--keep    of rust: runs none, and writes the results so far to tools/tests/mutants/rust.json, with which a run in another clone continues

A mutant is detected if a test fails, and fails again when it runs alone. Results are kept in target/mutants/, by the code of each file (of
expressions, by the text), so that an interrupted run continues, and survivors are tried again. They outlive a change of the tests. The
run fails if a mutant survives that survivors.py in this folder does not explain. The servers of the tests must run (see
tools/servers/run_with.py).
"""

import collections
import concurrent.futures
import fcntl
import json
import os
import re
import sys
import threading
import time
from pathlib import Path

from tools.lib import builds
from tools.lib.common import ROOT, exit_on_signals, say
from tools.tests.mutants import kept, lua, sql
from tools.tests.mutants.embedded import Embedded
from tools.tests.mutants.program import AT_ONCE, FOLDER, Program, listed
from tools.tests.mutants.reach import ALL, FIRST, LIKELY, QUICK, Reach, confirmed
from tools.tests.mutants.rust import IGNORED_TESTS, Rust
from tools.tests.mutants.rust_survivors import RUST
from tools.tests.mutants.survivors import EXPLAINED
from tools.tests.mutants.wire import VARIABLE, Expressions

# The stores by the languages of their statements.
STORES = {"lua": "redis", "sql": "postgres", "expressions": "dynamodb"}
# Their mutants share one program, and run only the tests that reach them.
REACHED = ("expressions", "rust")
# The weight of a test that has detected a mutant of the same file or purpose.
SAME_PLACE = 100
# Results besides the names of tests. The result of a test that is no longer there is void, and so is the death of a program, which may
# have been an interruption.
VALID = ("hangs", kept.EARLIER)
# The tests of wrappers and of clusters, which repeat the store's.
REPEATED = ("cluster", "_in_a_box", "_in_an_arc")
# Tests of one store that do not name it.
UNNAMED = {"postgres": "transactions::"}
# Each store's tests in the order in which they run: by words in their names, the quick ones that check the rules first.
STAGES = (("conformance::",), ("sequences::", "versions::", "fixtures::", "races::", "::orders::", "::records", "::rows"))


class Results:
    """The known results of the mutants of one language."""

    def __init__(self, language):
        self.path = FOLDER / f"{language}.json"
        self.lock = threading.Lock()
        self.known = self.stored()

    def stored(self):
        return json.loads(self.path.read_text()) if self.path.is_file() else {}

    def add(self, key, detected):
        self.add_all({key: detected})

    def add_all(self, more):
        # Other parts may run at the same time.
        with self.lock, open(self.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.known = {**self.stored(), **more}
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.known, indent=0, sort_keys=True))
            new.replace(self.path)

    def detections(self, key, of_others=1):
        """Returns the weights of tests: the mutants of the same file or purpose that each has detected, and, with less weight, others."""
        place = f"{key.partition(' | ')[0]} | "
        weights = collections.Counter()
        for other, test in dict(self.known).items():
            if test and test != kept.EARLIER:
                weights[test] += SAME_PLACE if other.startswith(place) else of_others
        return weights


def embedded(language):
    return Embedded(language, {"lua": lua, "sql": sql}[language], f"src/store/{STORES[language]}")


def stale():
    """Yields the explained mutants that are no longer there. The mutants of expressions are known only after the tests have run."""
    known = {mutant.identity() for language in ("lua", "sql") for mutant in embedded(language).mutants()}
    for identity in EXPLAINED:
        if isinstance(identity, tuple) and identity not in known:
            yield f"tools/tests/mutants/survivors.py: no such mutant: {identity}"
    for file, function, code, *_ in RUST:
        if not has_code(file, function, code):
            yield f"tools/tests/mutants/rust_survivors.py: no such code: {file}, {function}: {code}"


def has_code(file, function, code):
    """Returns whether the file contains the function, followed by the code, which may be truncated."""
    path = ROOT / file
    text = " ".join(path.read_text().split()) if path.is_file() else ""
    _, _, rest = text.partition(f"fn {function.rpartition('::')[2]}")
    return code.removesuffix("…").removeprefix("the arm ") in rest or code == "the body" and bool(rest)


def built():
    """Builds the tests of the stores, and returns their program."""
    programs = builds.tests("building the tests of the stores", [*builds.ALL, "--test", "stores"])
    return next(Path(program.path) for program in programs if program.name == "stores")


def stages(program, store):
    """Returns the store's tests, in groups that run one after the other."""
    named = lambda test: next((name for name in STORES.values() if name in test), None)
    is_of_store = lambda test: named(test) == store or named(test) is None and test.startswith(UNNAMED.get(store, "-"))
    tests = [test for test in listed(program) if is_of_store(test) and not any(word in test for word in REPEATED)]
    number = lambda test: next((n for n, words in enumerate(STAGES) if any(word in test for word in words)), len(STAGES))
    return [[test for test in tests if number(test) == stage] for stage in range(len(STAGES) + 1)]


class Selection:
    """The mutants to run, by the command's arguments."""

    def __init__(self, arguments):
        self.part, self.parts = 1, 1
        if "--part" in arguments:
            place = arguments.index("--part")
            self.part, self.parts = map(int, arguments[place + 1].split("/"))
            arguments = arguments[:place] + arguments[place + 2 :]
        self.first = None
        if "--first" in arguments:
            place = arguments.index("--first")
            self.first = arguments[place + 1]
            arguments = arguments[:place] + arguments[place + 2 :]
        self.options = {argument for argument in arguments if argument.startswith("--")}
        self.language, *self.words = [argument for argument in arguments if not argument.startswith("--")] or [""]

    def of(self, mutants):
        """Returns the mutants to run, and prints them if that is all."""
        some = [mutant for mutant in mutants if not self.words or any(word in str(mutant) for word in self.words)]
        some = some[(self.part - 1) * len(some) // self.parts : self.part * len(some) // self.parts]
        if "--list" in self.options:
            print(*some, sep="\n")
            return []
        say(f"{len(some)} mutants")
        return some


def main():
    selection = Selection(sys.argv[1:])
    if lines := [*stale()]:
        sys.exit("\n".join(lines))
    if "--check" in selection.options:
        return 0
    if selection.language not in (*STORES, *REACHED):
        sys.exit(__doc__)
    exit_on_signals()
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = Results(selection.language)
    return of_reach(selection, results) if selection.language in REACHED else of_program(selection, results)


def of_program(selection, results):
    """Changes the texts in a test program, and returns the exit status."""
    language = selection.language
    subject = embedded(language)
    program = Program(built(), f"{language}-{selection.part}-of-{selection.parts}")
    subject.prepare(program)
    groups = stages(program.path, STORES[language])
    began = time.monotonic()
    if failed := detects(program.path, groups):
        sys.exit(f"{failed} fails without a mutation")
    say(f"{sum(map(len, groups))} tests, which take {time.monotonic() - began:.0f} s without a mutation")

    def detect(mutant):
        with subject.applied(mutant):
            return detects(program.path, [*likely(results, subject.key(mutant), groups), *groups])

    verdicts = Verdicts(selection, results, detect, {test for group in groups for test in group})
    return report([verdicts.of(mutant, subject.key(mutant), mutant.identity()) for mutant in selection.of(subject.mutants())])


def detects(program, groups):
    return next((failed for tests in groups if (failed := confirmed(program, tests))), None)


def likely(results, key, groups):
    """Returns the tests that have detected other mutants of the file, as a first group, if there are any."""
    weights = results.detections(key, of_others=0)
    tests = [test for group in groups for test in group if weights[test]]
    return [tests] if tests else []


def of_reach(selection, results):
    """Runs the tests that reach each mutant, several mutants at once, and returns the exit status."""
    # Copies of the programs, because the tests may be built again meanwhile.
    part = f"{selection.part}-of-{selection.parts}"
    if selection.language == "rust":
        subject = Rust()
        # Sorted, because Cargo's order varies, and the recording is found by the order of the tests.
        programs = {name: Program(path, f"rust-{name}-{part}").path for name, path in sorted(subject.build().items())}
        if gone := [mutant for mutant in map(" | ".join, RUST) if mutant not in subject.mutants()]:
            sys.exit("\n".join(["tools/tests/mutants/rust_survivors.py: no such mutants:", *gone]))
        earlier = [subject.key(mutant) for mutant in kept.detected(subject.mutants(), subject.codes)]
        results.add_all({key: kept.EARLIER for key in earlier if key not in results.known})
        names = [(program, test) for program in programs for test in listed(programs[program]) if not IGNORED_TESTS.search(test)]
        if "--keep" in selection.options:
            valid = {*(test for _, test in names), *VALID}
            total = kept.write(subject.mutants(), subject.codes, lambda mutant: results.known.get(subject.key(mutant)) in valid)
            say(f"{total['detected']} of {total['mutants']} mutants are detected so far")
            return 0
        mutants = selection.of(subject.mutants())
    else:
        subject = Expressions(os.environ[VARIABLE])
        programs = {"stores": Program(built(), f"expressions-{part}").path}
        names = [("stores", test) for test in sum(stages(programs["stores"], STORES[selection.language]), [])]
    reach = Reach(subject, selection.language, programs, names)
    if selection.language == "expressions":
        mutants = selection.of(sorted(reach.by_mutant))

    named = collections.Counter({test: FIRST for _, test in names if selection.first and re.search(selection.first, test)})

    def detect(mutant, by=ALL):
        return reach.detects(mutant, results.detections(subject.key(mutant)) + named, by)

    verdicts = Verdicts(selection, results, detect, {test for _, test in names})
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        # All tests of a mutant may take minutes. So the likely ones run first, for all mutants, and then the quick ones.
        for by in (LIKELY, QUICK):
            [*pool.map(lambda mutant: verdicts.try_some(mutant, subject.key(mutant), by), sorted(mutants, key=reach.seconds))]
        return report([*pool.map(lambda mutant: verdicts.of(mutant, subject.key(mutant), mutant), mutants)])


class Verdicts:
    """The results of mutants. `detect` runs a mutant's tests, and returns the one that detects it."""

    def __init__(self, selection, results, detect, tests):
        self.results, self.detect = results, detect
        self.is_again = "--again" in selection.options
        self.valid = {*tests, *VALID}

    def is_known(self, key, identity):
        known = self.results.known
        return known.get(key) in self.valid or key in known and known[key] is None and bool(EXPLAINED.get(identity))

    def try_some(self, mutant, key, by):
        """Runs some tests of a mutant whose result is neither known nor explained, and keeps the result if it is detected."""
        if not self.is_again and not self.is_known(key, mutant) and not EXPLAINED.get(mutant):
            if detected := self.detect(mutant, by):
                self.results.add(key, detected)
                print(f"{len(self.results.known)} results", end="\r", flush=True)

    def of(self, mutant, key, identity):
        """Prints the result of a mutant, after its tests have run unless it is known. Returns whether it is detected or explained."""
        explained = EXPLAINED.get(identity)
        if self.is_again or not self.is_known(key, identity):
            self.results.add(key, self.detect(mutant))
        detected = self.results.known[key]
        print(f"{mutant}: {f'detected by {detected}' if detected else f'survives: {explained}' if explained else 'SURVIVES'}", flush=True)
        return bool(detected or explained)


def report(verdicts):
    print(f"{len(verdicts)} mutants, {verdicts.count(False)} survivors without an explanation")
    return int(False in verdicts)


if __name__ == "__main__":
    sys.exit(main())
