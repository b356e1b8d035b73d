"""Runs the checks that CI omits: python3 -m tools.tests.nightly [--list] [PART ...]

Each part takes at most 80 minutes on two cores. Parts that have passed for this commit are recorded in target/nightly/ and not repeated,
so that an interrupted run can be resumed. The last lines are a table of all parts.
"""

import datetime
import hashlib
import json
import os
import resource
import subprocess
import sys
import time

from tools.lib.common import ROOT, Background, exit_on_signals, say

FOLDER = ROOT / "target" / "nightly"


def module(name, *arguments):
    return [sys.executable, "-m", name, *arguments]


def plants(part):
    return module("tools.servers.run_with", "--", *module("tools.tests.plants", "--part", part))


def mutants(*arguments):
    return module("tools.servers.run_with", "--", *module("tools.tests.mutants", *arguments))


def numbers():
    features = ("arbitrary_precision", "float_roundtrip", "preserve_order")
    targets = ("--lib", "--test", "batch", "--test", "http", "--test", "operations")
    return ["cargo", "test", "--package", "lambda-once", "--all-features", *(f"--features=serde_json/{name}" for name in features), *targets]


def chaos(store):
    return ["make", "chaos", f"STORE={store}", "OPS=35000", f"CHAOS_ARGS=--json {FOLDER / f'chaos-{store}.json'}"]


def first_seed():
    """Returns a seed from the date, so that a fresh checkout does not repeat earlier nights. 10^8 steps take some 280,000 seeds."""
    return (datetime.datetime.now(datetime.timezone.utc).date() - datetime.date(2026, 1, 1)).days * 10_000_000


PARTS = {
    "features": (module("tools.checks.features", "--all"), "each feature alone, and AWS-LC"),
    "numbers": (numbers(), "tests without servers, with serde_json's features that any crate of a build may turn on"),
    "test-all": (["make", "test-all"], "ten times the random cases"),
    "test-servers": (["make", "test-servers"], "Redis 7.0, PostgreSQL 15 and 18, PgBouncer, the consumer killed 20 times"),
    "stress": (["make", "stress"], "100,000 random plans of batches, with a new seed"),
    "fuzz": (["make", "fuzz", "SECONDS=60"], "each fuzz target for a minute"),
    "sim": (["make", "sim", f"SIM_ARGS=--steps 100_000_000 --seed {first_seed()} --json {FOLDER / 'sim.json'}"], "the whole engine, simulated for 10^8 steps"),
    "sim-bugs": (["make", "sim", "SIM_ARGS=--bugs --histories 12000"], "the simulation finds each planted bug"),
    "chaos-dynamodb": (chaos("dynamodb"), "35,000 operations on DynamoDB Local, with workers, network and server that fail"),
    "chaos-redis": (chaos("redis"), "the same on Valkey"),
    "chaos-redis-cluster": (chaos("redis-cluster"), "the same on a cluster, with failovers and slots that move"),
    "chaos-postgres": (chaos("postgres"), "the same on PostgreSQL"),
    "bugs-1": (plants("1/4"), "mutation tests, first quarter"),
    "bugs-2": (plants("2/4"), "second quarter"),
    "bugs-3": (plants("3/4"), "third quarter"),
    "bugs-4": (plants("4/4"), "fourth quarter"),
    "mutants-lua": (mutants("lua"), "mutants of the Lua scripts"),
    "mutants-sql": (mutants("sql"), "mutants of the SQL"),
    "mutants-expressions": (mutants("expressions"), "mutants of DynamoDB's expressions"),
    "mutants-rust": (mutants("rust", "src/store/rules", "src/store/ordering"), "mutants of the rules in Rust"),
    "model": (["make", "model-deep", "MODEL_ARGS=--minutes 30"], "larger worlds of the protocol's model, for half an hour"),
    "instructions": (["make", "instructions"], "instruction counts of the hot paths"),
    "sizes": (["make", "sizes"], "sizes of functions in the release profile"),
    "package": (["cargo", "package", "--quiet", "--package", "lambda-once", "--allow-dirty"], "the package of a release, packed and built"),
    "build": (["make", "build"], "sam build for the architecture in samconfig.toml"),
    "book": (["make", "book"], "the pages as a book, and its links"),
    "e2e": (["make", "e2e", "E2E_ARGS=--sam-build --all"], "end to end, with functions built by SAM, and its longer scenarios"),
    "durable": (["make", "durable"], "an operation inside a step of the AWS durable execution SDK"),
    "tutorial": (["make", "tutorial"], "the commands of docs/getting-started.md"),
    "watch": (["make", "concurrent", "CONCURRENT_ARGS=--watch"], "functions that cargo lambda watch builds and starts"),
}
LONGEST_S = 80 * 60


def commit():
    """Returns one name for the commit and the changes since."""
    git = lambda *arguments: subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    changes = git("diff", "HEAD")
    for name in git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0"):
        if name:
            changes += name + (ROOT / os.fsdecode(name)).read_bytes()
    suffix = f"-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else ""
    return git("rev-parse", "--short=12", "HEAD").decode().strip() + suffix


def perform(name):
    """Runs a part. Its output goes to a file, and also to the screen if it fails."""
    command, what = PARTS[name]
    log = FOLDER / f"{name}.log"
    say(f"{name}: {what}; its log is {log.relative_to(ROOT)}")
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "w") as output:
        options = {"cwd": ROOT, "stdout": output, "stderr": subprocess.STDOUT}
        # Longer than the command takes to stop its own processes.
        with Background(command, grace=120, env={**os.environ, "MAKEFLAGS": ""}, **options) as process:
            try:
                verdict = "passed" if process.wait(LONGEST_S) == 0 else "failed"
            except subprocess.TimeoutExpired:
                verdict = "too long"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    if verdict != "passed":
        print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-60:]), file=sys.stderr)
    return {"verdict": verdict, "seconds": round(time.monotonic() - began), "cpu": round(cpu)}


def main():
    names = [name for name in sys.argv[1:] if name != "--list"]
    if unknown := set(names) - set(PARTS):
        sys.exit(f"{', '.join(sorted(unknown))}: not a part\n{__doc__}")
    exit_on_signals()
    FOLDER.mkdir(parents=True, exist_ok=True)
    name_of_commit = commit()
    record = FOLDER / f"{name_of_commit}.json"
    results = json.loads(record.read_text()) if record.is_file() else {}
    if "--list" not in sys.argv[1:]:
        for name in names or PARTS:
            if results.get(name, {}).get("verdict") != "passed":
                results[name] = perform(name)
                record.write_text(json.dumps(results, indent=2))
    print(f"\n{name_of_commit}")
    for name, (_, what) in PARTS.items():
        result = results.get(name)
        times = f"{result['seconds']:6} s {result['cpu']:6} s CPU" if result else " " * 21
        print(f"{name:14} {result['verdict'] if result else 'to do':9}{times}  {what}")
    return int(any(results.get(name, {}).get("verdict") != "passed" for name in names or PARTS))


if __name__ == "__main__":
    sys.exit(main())
