"""Counts the instructions of the library's hot paths under callgrind: python3 -m tools.measure.instructions [--write] PROGRAM

PROGRAM is bench/batches/src/bin/instructions.rs, built with the profile `measure`. Fails if a section takes 3 % more
instructions than in bench/instructions.json. If that file is from a different rustc, this is only a warning. For sections
with a hand-written equivalent, the ratio is printed. --write updates the file.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.lib.common import ROOT, must, say

BASELINE = ROOT / "bench" / "instructions.json"
TOLERANCE = 0.03

# Instructions in this function count ...
COUNTED = "instructions::counted"
# ... except the instructions of the server and of hashing, because valgrind lacks the SHA instructions of processors.
NOT_COUNTED = ["bench_batches::stub::stub_response", "sha2::sha256::compress256"]

# Sections with a hand-written equivalent, with their target ratios.
RATIOS = {"batched, 100 records": 1.6, "batched, 10 records": 1.4, "single, 1 record": 1.2}


def valgrind():
    if shutil.which("valgrind"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit("install valgrind first; on Debian: apt-get install valgrind")
    say("installing valgrind")
    must(["apt-get", "update", "-qq"])
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    must(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "valgrind"], env=environment)


def count(program, section, out):
    """Returns the number of instructions per record of a section."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--zero-before={COUNTED}"]
    command += [f"--toggle-collect={function}" for function in [COUNTED, *NOT_COUNTED]]
    # Makes memory copies the same on every processor.
    environment = os.environ | {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-ERMS,-FSRM", "RUST_BACKTRACE": "0"}
    run = subprocess.run([*command, program, section], env=environment, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{section}: {run.stdout}{run.stderr}")
    total = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
    if not total or int(total[1]) == 0:
        sys.exit(f"{section}: callgrind did not find {COUNTED}")
    return round(int(total[1]) / int(run.stdout))


def main():
    arguments = sys.argv[1:]
    write = "--write" in arguments
    arguments = [argument for argument in arguments if argument != "--write"]
    if len(arguments) != 1:
        sys.exit(__doc__.strip())
    program = Path(arguments[0]).resolve()
    valgrind()
    sections = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    folder = ROOT / "target" / "tmp" / "instructions"
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for number, section in enumerate(sections):
        counts[section] = count(program, section, folder / f"{number}.callgrind")
    rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.strip()

    baseline = json.loads(BASELINE.read_text()) if BASELINE.is_file() else {"rustc": rustc, "instructions": {}}
    # The seeds of hash maps move a count by up to 0.3 %, so the median of three decides whether it is too high.
    for number, section in enumerate(sections):
        if counts[section] > baseline["instructions"].get(section, counts[section]) * (1 + TOLERANCE):
            again = [count(program, section, folder / f"{number}.callgrind") for _ in range(2)]
            counts[section] = sorted([counts[section], *again])[1]
    failures = report(counts, baseline["instructions"])
    if write:
        BASELINE.write_text(json.dumps({"rustc": rustc, "instructions": counts}, indent=2) + "\n")
        say(f"wrote {BASELINE.relative_to(ROOT)}")
    elif failures and baseline["rustc"] != rustc:
        say(f"only a warning, because the baseline is from {baseline['rustc']} and this is {rustc}")
    elif failures:
        sys.exit("more instructions than the baseline allows; `make instructions INSTRUCTIONS_ARGS=--write` updates it")


def report(counts, baseline):
    """Prints a line for each section, and returns whether any takes too many instructions."""
    failures = False
    for section, found in counts.items():
        line = f"{found:>10,}  {section}"
        if section in baseline:
            change = found / baseline[section] - 1
            failures |= change > TOLERANCE
            line += f": {change:+.1%}" + (" TOO MANY" if change > TOLERANCE else "")
        else:
            failures = True
            line += ": not in the baseline"
        if by_hand := counts.get(f"by hand, {section}"):
            ratio = found / by_hand
            line += f", {ratio:.2f} x hand-written"
            if section in RATIOS:
                line += f" (target: {RATIOS[section]})"
        print(line)
    return failures


main()
