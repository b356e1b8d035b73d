"""A test program whose embedded texts are changed in place, so that no mutant has to be built."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading

from tools.lib.common import ROOT

FOLDER = ROOT / "target" / "mutants"
# Of one run of all tests of a store, in seconds.
PATIENCE = 600
# The tests mostly wait.
THREADS = "12"
# Mutants that run at once, where that is possible.
AT_ONCE = int(os.environ.get("MUTANTS_AT_ONCE", "4"))


class Program:
    """A copy of a test program."""

    def __init__(self, program, name):
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.path = FOLDER / name
        shutil.copy(program, self.path)
        self.contents = self.path.read_bytes()

    def has(self, text):
        return text.encode() in self.contents

    @contextlib.contextmanager
    def with_text(self, old, new):
        """Replaces a text by another of the same length, everywhere, until the block ends."""
        old, new = old.encode(), new.encode()
        assert len(old) == len(new)
        places = [match.start() for match in re.finditer(re.escape(old), self.contents)]
        try:
            self._write(places, new)
            yield
        finally:
            self._write(places, old)

    def _write(self, places, text):
        with open(self.path, "r+b") as file:
            for place in places:
                file.seek(place)
                file.write(text)


def listed(program):
    """Returns the names of a program's tests."""
    output = subprocess.run([program, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line.removesuffix(": test") for line in output.splitlines() if line.endswith(": test")]


def first_failure(program, tests, variables=None, patience=PATIENCE):
    """Runs tests of a program until one fails. Returns its name, the reason if there is none, or None if all pass."""
    env = {**os.environ, "CARGO_MANIFEST_DIR": str(ROOT), "RUST_BACKTRACE": "0", "RUST_TEST_THREADS": THREADS, **(variables or {})}
    command = [program, "--exact", *tests]
    process = subprocess.Popen(
        command, cwd=env["CARGO_MANIFEST_DIR"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    hangs = threading.Event()
    timer = threading.Timer(patience, lambda: (hangs.set(), stop(process)))
    timer.start()
    try:
        for line in process.stdout:
            if match := re.match(r"test (\S+)(?: - should panic)? \.\.\. FAILED", line):
                return match[1]
        # A test program that dies, as from a stack overflow, has no line for its test.
        return "hangs" if hangs.is_set() else None if process.wait() == 0 else "the program dies"
    finally:
        timer.cancel()
        stop(process)


def stop(process):
    """Kills the program and the processes that its tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
