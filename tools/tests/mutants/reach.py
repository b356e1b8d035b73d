"""The mutants that each test reaches. A test can detect no others, so a mutant runs only these tests."""

import concurrent.futures
import hashlib
import json
import time
from pathlib import Path

from tools.lib.common import say
from tools.tests.mutants.program import AT_ONCE, FOLDER, PATIENCE, first_failure

# The likely tests of a mutant run in groups of this size, before the others.
AT_A_TIME = 12
# The start of a test program.
START_S = 0.3
# A group of tests hangs after this multiple of the sum of their times, and these seconds more.
PATIENCE_FACTOR, PATIENCE_S = 3, 30


class Reach:
    """The tests by the mutants that they reach, from one run of each test alone.

    `subject.version` identifies mutants that are not in the programs. `subject.recording()` yields the variables for the process of a
    test, and a function that returns the mutants that it reached.
    `subject.applied(mutant)` yields the variables with which a mutant is on, and `subject.selects(mutant, program, test)` returns whether a
    test counts for it.
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
        for (program, test), (seconds, reached) in sorted(json.loads(kept.read_text()), key=lambda entry: entry[1][0]):
            for mutant in reached:
                self.by_mutant.setdefault(mutant, []).append((program, test, seconds))

    def alone(self, named):
        """Returns the test's seconds and the mutants that it reaches. If it fails twice, exits."""
        program, test = named
        for _ in range(2):
            with self.subject.recording() as (variables, reached):
                began = time.monotonic()
                if not first_failure(self.programs[program], [test], variables):
                    return round(time.monotonic() - began, 2), reached()
        raise SystemExit(f"{test} fails without a mutation")

    def detects(self, mutant, weights, is_all):
        """Returns the test that detects the mutant, or None. A test that fails only once detects nothing.

        Tests with a weight run first, the heaviest for their time before the others. Unless `is_all`, only these run and, if there
        are none, the quickest. Tests that have passed are not run again for the same mutant.
        """
        tests = [entry for entry in self.by_mutant.get(mutant, []) if self.subject.selects(mutant, *entry[:2])]
        order = lambda entry: -weights[entry[1]] / (START_S + entry[2])
        likely = sorted((entry for entry in tests if weights[entry[1]]), key=order) or tests[:AT_A_TIME]
        groups = [likely[place : place + AT_A_TIME] for place in range(0, len(likely), AT_A_TIME)]
        passed = self.passed.setdefault(mutant, set())
        with self.subject.applied(mutant) as variables:
            for some in [*groups, tests] if is_all else groups:
                some = [entry for entry in some if entry not in passed]
                for program in dict.fromkeys(program for program, _, _ in some):
                    names = [test for other, test, _ in some if other == program]
                    patience = PATIENCE_S + PATIENCE_FACTOR * sum(seconds for other, _, seconds in some if other == program)
                    if failed := confirmed(self.programs[program], names, variables, patience):
                        return failed
                passed.update(some)
        return None


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
