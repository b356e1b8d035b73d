"""Builds all tests and runs them, several programs concurrently: python3 -m tools.tests.run [--all] [--build] [FILTER ...]

--all     as many random cases as in the nightly run, instead of enough to detect every mutation
--build   only builds the tests and fetches the servers
FILTER    only tests whose path contains one of the filters

The servers of the stores are started (see servers/__init__.py), and stopped in every case.
"""

import re
import subprocess
import sys
import tempfile
import threading
import time

from tools import servers
from tools.lib import builds
from tools.lib.common import ROOT, Background, exit_on_signals, say
from tools.tests import clients, powertools
from tools.tests.counts import ALL

# Many of its tests wait for a server, or for a lease to end, so more of them than there are processors run concurrently, together with
# one of the other programs. The other program has a lower priority, because some of these tests depend on real time.
STORES = "stores"
# The operator's tool waits for queues.
WAITING = (STORES, "operator")
WAITING_THREADS = 4
NICE = ["nice", "-n", "10"]
PROGRAMS_AT_ONCE = 2
SLOWEST = 10

LINE = re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. (?P<verdict>ok|FAILED|ignored).*?(?:<(?P<seconds>[\d.]+)s>)?$")
SUMMARY = re.compile(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


class Run:
    """A test program that runs until the block ends, with its output in a file."""

    def __init__(self, name, command, **options):
        self.name = name
        self.file = tempfile.TemporaryFile("w+")
        self.background = Background(command, stdout=self.file, stderr=subprocess.STDOUT, **options)

    def __enter__(self):
        self.began = time.monotonic()
        self.process = self.background.__enter__()
        return self

    def __exit__(self, *_):
        self.background.__exit__()
        self.seconds = time.monotonic() - self.began
        self.file.seek(0)
        self.output = self.file.read()
        self.file.close()

    def counts(self):
        """Returns the numbers of passed, failed and ignored tests. A program that ends in any other way has failed, too."""
        found = [tuple(map(int, counts)) for counts in SUMMARY.findall(self.output)]
        passed, failed, ignored = map(sum, zip(*found)) if found else (0, 0, 0)
        return passed, failed or int(self.process.returncode != 0 or not found), ignored

    def times(self):
        lines = map(LINE.match, self.output.splitlines())
        return [(float(line["seconds"]), f"{self.name} {line['name']}") for line in lines if line and line["seconds"]]


def start(program, filters, env):
    # The option for the times of single tests is unstable.
    command = [program.path, *filters, "-Z", "unstable-options", "--report-time"]
    env = {**env, "RUSTC_BOOTSTRAP": "1", "CARGO_MANIFEST_DIR": str(program.package)}
    if program.name == "powertools":
        env = {**env, **powertools.variables()}
    if program.name == "examples":
        env = {**env, **clients.variables()}
    if program.name in WAITING:
        env["RUST_TEST_THREADS"] = str(WAITING_THREADS)
    if program.name != STORES:
        command = NICE + command
    return Run(program.name, command, cwd=program.package, env=env)


def perform(programs, filters, env):
    """Runs all programs, up to the limit concurrently, and returns their runs."""
    programs = sorted(programs, key=lambda program: program.name != STORES)
    waiting = [start(program, filters, env) for program in programs]
    documentation = [*NICE, "cargo", "test", "--quiet", *builds.ALL, "--doc", "--", *filters]
    waiting.append(Run("documentation", documentation, cwd=ROOT, env=env))
    runs, ended = [], []
    try:
        while waiting or runs:
            while waiting and len(runs) < PROGRAMS_AT_ONCE:
                runs.append(waiting.pop(0))
                runs[-1].__enter__()
            for run in [run for run in runs if run.process.poll() is not None]:
                run.__exit__()
                runs.remove(run)
                ended.append(run)
                passed, failed, ignored = run.counts()
                if passed or failed:
                    print(f"{run.name:16} {passed:5} passed {failed:3} failed {run.seconds:6.1f} s", flush=True)
            time.sleep(0.05)
    finally:
        for run in runs:
            run.__exit__()
    return ended


def report(ended):
    """Prints the failures and the slowest tests, and returns the numbers of failed and passed tests."""
    for run in ended:
        if run.counts()[1]:
            print(f"\n== {run.name}\n{run.output}")
    slowest = sorted((time for run in ended for time in run.times()), reverse=True)[:SLOWEST]
    print(f"\nThe {len(slowest)} slowest tests:")
    for seconds, name in slowest:
        print(f"{seconds:7.1f} s  {name}")
    passed, failed, ignored = map(sum, zip(*(run.counts() for run in ended)))
    print(f"\n{passed} passed, {failed} failed, {ignored} skipped")
    return failed, passed


class Fetching(threading.Thread):
    """Installs the servers, AWS Powertools and the clients for Node.js while the tests are compiled."""

    def __init__(self):
        # A daemon, so that it does not delay the end of the program.
        super().__init__(daemon=True)
        self.error = None

    def run(self):
        try:
            servers.fetch()
            powertools.variables()
            clients.variables()
        except BaseException as error:
            self.error = error

    def finish(self):
        self.join()
        if self.error is not None:
            raise self.error


def main():
    options = {word for word in sys.argv[1:] if word in ("--all", "--build")}
    filters = [word for word in sys.argv[1:] if word not in options]
    exit_on_signals()
    fetching = Fetching()
    fetching.start()
    began = time.monotonic()
    programs = builds.tests("building the tests; the first time 5 to 10 minutes on two cores", builds.ALL)
    built = time.monotonic()
    fetching.finish()
    if "--build" in options:
        return 0
    say("starting the servers")
    with servers.started() as env:
        ended = perform(programs, filters, {**(ALL if "--all" in options else {}), **env})
    failed, passed = report(ended)
    print(f"built in {built - began:.0f} s, run in {time.monotonic() - built:.0f} s")
    if not passed:
        sys.exit(f"no test matches {' or '.join(filters)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
