"""Searches with the fuzz targets: python3 -m tools.tests.fuzz [OPTION ...] [TARGET ...]

TARGET     a part of the names of targets; the default is all
--seconds  with N, the seconds for each target (default: 10)
--corpus   adds the first case of each kind to the committed corpus
--write    adds the counts to fuzz/results.json, and writes the table of docs/internals/fuzzing.md
--list     only prints the names of the targets
--check    runs nothing, and fails if the page is not up to date, or if a target lacks a description or a corpus

A target that fails prints its case. Put that into a file of its corpus, which `cargo test` replays.
"""

import json
import os
import re
import resource
import subprocess
import sys

from tools.lib.builds import ALL, tests
from tools.lib.common import ROOT, exit_on_signals, say

RESULTS = ROOT / "fuzz" / "results.json"
PAGE = ROOT / "docs" / "internals" / "fuzzing.md"
# The programs that contain targets, and the folders of their sources.
PROGRAMS = {"fuzz": "fuzz/tests/fuzz", "lambda-once": "cli/src"}
SELECTION = [*ALL, "--test", "fuzz", "--bin", "lambda-once"]
LINE = re.compile(r"^(?:test .* \.\.\. )?fuzz: (?P<name>\S+) cases=(?P<cases>\d+) kinds=(?P<kinds>\d+)$", re.MULTILINE)
TARGET = re.compile(r"target!\(\s*((?:///.*\n\s*)+)(\w+),")
BEGIN, END = "<!-- targets -->", "<!-- end of targets -->"


def described():
    """Returns the targets in the sources: their names with the file and the description of each."""
    found = {}
    for folder in PROGRAMS.values():
        for file in sorted((ROOT / folder).glob("*.rs")):
            for comment, name in TARGET.findall(file.read_text()):
                words = " ".join(line.strip().removeprefix("///").strip() for line in comment.strip().splitlines())
                found[f"{file.stem}::{name}"] = (file, words)
    return found


def corpus(name, file):
    """Returns the files of a target's corpus, which bolero reads."""
    return sorted((file.parent / "__fuzz__" / name.replace("::", "__") / "corpus").glob("*"))


def results():
    return json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}


def table():
    known = results()
    lines = ["| target | cases | CPU seconds | corpus | found |", "|---|---:|---:|---:|---|"]
    for name, (file, words) in described().items():
        result = known.get(name, {})
        path = file.relative_to(ROOT)
        found = "; ".join(result.get("found", [])) or "nothing"
        lines.append(
            f"| [`{name}`](../../{path}): {words} | {result.get('cases', 0):,} | {result.get('cpu', 0):,.0f} | {len(corpus(name, file))} | {found} |"
        )
    return "\n".join(lines)


def page():
    """Returns the page with its table."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END, 1)[1]}"


def problems():
    if PAGE.read_text() != page():
        yield f"{PAGE.relative_to(ROOT)} is not up to date: python3 -m tools.tests.fuzz --write --list"
    names = described()
    for name in results():
        if name not in names:
            yield f"{RESULTS.relative_to(ROOT)}: no such target: {name}"
    for name, (file, _) in names.items():
        if not corpus(name, file):
            yield f"{name} has no corpus: make fuzz FUZZ={name} FUZZ_ARGS=--corpus"


def perform(program, name, seconds, keeps):
    """Searches with a target, and returns its counts, or None if it has failed."""
    environment = {**os.environ, "BOLERO_RANDOM_TEST_TIME_MS": str(int(seconds * 1_000)), "BOLERO_RANDOM_ITERATIONS": str(10**12)}
    if keeps:
        environment["FUZZ_CORPUS"] = "1"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [program.path, "--exact", name, "--nocapture", "--test-threads", "1"]
    # As Cargo runs it.
    done = subprocess.run(command, cwd=program.package, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    found = LINE.search(done.stdout)
    if done.returncode or not found:
        print(done.stdout, file=sys.stderr)
        return None
    return {"cases": int(found["cases"]), "kinds": int(found["kinds"]), "cpu": cpu}


def add(name, counts):
    """Adds the counts to the counts of earlier runs."""
    known = results()
    result = known.setdefault(name, {})
    result["cases"] = result.get("cases", 0) + counts["cases"]
    result["cpu"] = round(result.get("cpu", 0) + counts["cpu"], 1)
    RESULTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def main():
    arguments = sys.argv[1:]
    seconds = 10.0
    if "--seconds" in arguments:
        place = arguments.index("--seconds")
        seconds = float(arguments[place + 1])
        del arguments[place : place + 2]
    options = {argument for argument in arguments if argument.startswith("--")}
    words = [argument for argument in arguments if not argument.startswith("--")]
    if options - {"--corpus", "--write", "--list", "--check"}:
        sys.exit(__doc__)
    if "--check" in options:
        found = list(problems())
        print("".join(f"{problem}\n" for problem in found), end="", file=sys.stderr)
        return int(bool(found))
    names = [name for name in described() if not words or any(word in name for word in words)]
    if not names:
        sys.exit(f"no target is named like {' or '.join(words)}")
    failed = []
    if "--list" in options:
        print(*names, sep="\n")
    else:
        exit_on_signals()
        programs = {program.name: program for program in tests("building the fuzz targets", SELECTION) if program.name in PROGRAMS}
        for name in names:
            file, _ = described()[name]
            program = next(program for program in programs.values() if file.is_relative_to(ROOT / PROGRAMS[program.name]))
            counts = perform(program, name, seconds, "--corpus" in options)
            if counts is None:
                failed.append(name)
                continue
            say(f"{name}: {counts['cases']:,} cases of {counts['kinds']} kinds, {counts['cpu']:.1f} CPU seconds")
            if "--write" in options:
                add(name, counts)
    if "--write" in options:
        PAGE.write_text(page())
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
