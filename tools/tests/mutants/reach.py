"""The mutants that each test reaches. A test can detect no others, so a mutant runs only these tests."""

import collections
import concurrent.futures
import hashlib
import json
import re
import time
from pathlib import Path

from tools.lib.common import say
from tools.tests.mutants.program import AT_ONCE, FOLDER, PATIENCE, first_failure

# The likely tests of a mutant run in groups of this size, before the others.
AT_A_TIME = 12
# At most this many such groups.
GROUPS = 8
# Slower tests run in the last pass only.
QUICK_S = 1
# The weight of all the words that the name of a test and the place of a mutant share, if no other test has them.
SAME_WORDS = 3_000
# The passes over all mutants.
LIKELY, QUICK, ALL = 1, 2, 3
# The weight of a test that the command names, which is heavier than any number of detections.
FIRST = 1_000_000_000
# The start of a test program.
START_S = 0.3
# A group of tests hangs after this multiple of the sum of their times, and these seconds more.
PATIENCE_FACTOR, PATIENCE_S = 3, 30


class Reach:
    """The tests by the mutants that they reach, from one run of each test alone.

    `subject.version` identifies mutants that are not in the programs. `subject.recording()` yields the variables for the process of a
    test, and a function that returns the mutants that it reached.
    `subject.applied(mutant)` yields the variables with which a mutant is on, and `subject.is_near(mutant, program, test)` returns whether a
    test also runs before the last pass.
    """

    def __init__(self, subject, name, programs, tests):
        """`programs` are files by name, and `tests` pairs of the program's name and the test's."""
        self.subject, self.programs = subject, programs
        digest = hashlib.sha256(repr(tests).encode() + subject.version)
        for path in sorted(map(str, programs.values())):
            digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
        kept = FOLDER / f"{name}-reach-{digest.hexdigest()[:12]}.json"
        if not kept.is_file():
            say(f"running {len(tests)} tests alone, to record the mutants that they reach")
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                kept.write_text(json.dumps(list(zip(tests, pool.map(self.alone, tests)))))
        self.by_mutant, self.passed = {}, {}
        self.rarity = collections.Counter(word for _, test in tests for word in words(test))
        # How long it took to notice that a test fails, which may be much longer than until it passes.
        self.failing = {}
        for (program, test), (seconds, reached) in sorted(json.loads(kept.read_text()), key=lambda entry: entry[1][0]):
            for mutant in reached:
                self.by_mutant.setdefault(mutant, []).append((program, test, seconds))

    def seconds(self, mutant):
        """Returns how long the tests of the mutant take, one after the other."""
        return sum(seconds for _, _, seconds in self.by_mutant.get(mutant, []))

    def alone(self, named):
        """Returns the test's seconds and the mutants that it reaches. If it fails twice, exits."""
        program, test = named
        for _ in range(2):
            with self.subject.recording() as (variables, reached):
                began = time.monotonic()
                if not first_failure(self.programs[program], [test], variables):
                    return round(time.monotonic() - began, 2), reached()
        raise SystemExit(f"{test} fails without a mutation")

    def detects(self, mutant, weights, by=ALL):
        """Returns the test that detects the mutant, or None. A test that fails only once detects nothing.

        Tests run in the order of their weights, and of the words that they share with the mutant's place, for their time. Those with
        the weight FIRST run first, however slow they are. `by` is the pass. Tests that have passed are not run again for the same mutant.
        """
        tests, place = self.by_mutant.get(mutant, []), words(mutant[: mutant.rfind(" | ", 0, mutant.rfind(" | "))])
        quick = [entry for entry in tests if entry[2] <= QUICK_S and self.subject.is_near(mutant, *entry[:2]) or weights[entry[1]] >= FIRST]
        shared = lambda test: SAME_WORDS * sum(1 / self.rarity[word] for word in place & words(test))
        order = lambda entry: -(weights[entry[1]] + shared(entry[1])) / (START_S + max(entry[2], self.failing.get(entry[1], 0)))
        likely = sorted(quick, key=order)
        groups = [likely[place : place + AT_A_TIME] for place in range(0, len(likely), AT_A_TIME)][:GROUPS]
        groups += {LIKELY: [], QUICK: [quick], ALL: [quick, tests]}[by]
        passed = self.passed.setdefault(mutant, set())
        with self.subject.applied(mutant) as variables:
            for some in groups:
                some = [entry for entry in some if entry not in passed]
                for program in dict.fromkeys(program for program, _, _ in some):
                    names = [test for other, test, _ in some if other == program]
                    patience = PATIENCE_S + PATIENCE_FACTOR * sum(seconds for other, _, seconds in some if other == program)
                    began = time.monotonic()
                    if failed := confirmed(self.programs[program], names, variables, patience):
                        self.failing[failed] = max(time.monotonic() - began, self.failing.get(failed, 0))
                        return failed
                passed.update(some)
        return None


def words(text):
    return {word.removesuffix("s") for word in re.findall("[a-z]{4,}", text.lower())}


def confirmed(program, tests, variables=None, patience=PATIENCE):
    """Returns the first test that fails, and fails again when it runs alone, or None."""
    while tests and (failed := first_failure(program, tests, variables, patience)):
        if failed not in tests:
            # The program hangs or dies, so that no test is known to have failed.
            failed = first_failure(program, tests, variables, patience)
            if failed not in tests:
                return failed
        if again := first_failure(program, [failed], variables, patience):
            return again
        tests = [test for test in tests if test != failed]
    return None
