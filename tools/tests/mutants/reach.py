"""The mutants that each test reaches. A test can detect no others, so a mutant runs only these tests."""

import concurrent.futures
import hashlib
import json
import time
from pathlib import Path

from tools.lib.common import say
from tools.tests.mutants.program import AT_ONCE, FOLDER, PATIENCE, first_failure

# The quickest tests of a mutant run first.
FIRST = 12
# How often as long as alone, and how many seconds longer, tests may take together before they count as hanging.
SLOWER, LONGER = 3, 30


class Reach:
    """The tests by the mutants that they reach, from one run of each test alone.

    `subject.recording()` yields the variables for the process of a test, and a function that returns the mutants that it reached.
    `subject.applied(mutant)` yields the variables with which a mutant is on.
    """

    def __init__(self, subject, name, programs, tests):
        """`programs` are files by name, and `tests` pairs of the program's name and the test's."""
        self.subject, self.programs = subject, programs
        digest = hashlib.sha256(repr(tests).encode())
        for path in sorted(map(str, programs.values())):
            digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
        kept = FOLDER / f"{name}-reach-{digest.hexdigest()[:12]}.json"
        if not kept.is_file():
            say(f"running {len(tests)} tests alone, to record the mutants that they reach")
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                kept.write_text(json.dumps(list(zip(tests, pool.map(self.alone, tests)))))
        self.by_mutant = {}
        self.failed = []
        for (program, test), (seconds, reached) in sorted(json.loads(kept.read_text()), key=lambda entry: entry[1][0]):
            if reached is None:
                self.failed.append(test)
            for mutant in reached or ():
                self.by_mutant.setdefault(mutant, []).append((program, test, seconds))
        if self.failed:
            say(f"fail alone without a mutant, and do not count: {', '.join(self.failed)}")

    def alone(self, named):
        """Returns the test's seconds and the mutants that it reaches, or None for them if it fails."""
        program, test = named
        with self.subject.recording() as (variables, reached):
            began = time.monotonic()
            failed = first_failure(self.programs[program], [test], variables)
            return round(time.monotonic() - began, 2), None if failed else reached()

    def detects(self, mutant):
        """Returns the test that detects the mutant, or None. A test that fails only once detects nothing."""
        tests = self.by_mutant.get(mutant, [])
        with self.subject.applied(mutant) as variables:
            for some in (tests[:FIRST], tests[FIRST:]):
                for program in dict.fromkeys(program for program, _, _ in some):
                    names = [test for other, test, _ in some if other == program]
                    patience = LONGER + SLOWER * sum(seconds for other, _, seconds in some if other == program)
                    if failed := confirmed(self.programs[program], names, variables, patience):
                        return failed
        return None


def confirmed(program, tests, variables=None, patience=PATIENCE):
    """Returns the first test that fails, and fails again when it runs alone, or None."""
    while tests and (failed := first_failure(program, tests, variables, patience)):
        # If the program hangs or dies, no test has failed, so all of them run again.
        if again := first_failure(program, [failed] if failed in tests else tests, variables, patience):
            return again
        tests = [test for test in tests if test != failed]
    return None
