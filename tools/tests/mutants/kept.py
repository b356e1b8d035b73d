"""The results of the Rust mutants in the repository, with which a run in another clone continues."""

import hashlib
import json
from pathlib import Path

FILE = Path(__file__).with_name("rust.json")
# The test that detects a mutant, if only an earlier run knows it.
EARLIER = "an earlier run"


def by_file(mutants):
    """Returns the mutants by file, without its name."""
    files = {}
    for mutant in mutants:
        file, _, rest = mutant.partition(" | ")
        files.setdefault(file, []).append(rest)
    return files


def version(code, mutants):
    """Returns a hash of a file's code, by its hash, and of its mutants."""
    return hashlib.sha256("\n".join([code, *mutants]).encode()).hexdigest()[:12]


def detected(mutants, codes):
    """Returns the mutants that an earlier run has detected, of files whose code and mutants are the same. `codes` are hashes of the files."""
    kept = json.loads(FILE.read_text())["files"] if FILE.is_file() else {}
    for file, own in by_file(mutants).items():
        if file in kept and kept[file]["version"] == version(codes[file], own):
            yield from (f"{file} | {mutant}" for mutant in own if mutant not in kept[file]["not detected"])


def write(mutants, codes, is_detected):
    """Writes the number of mutants of each file, and those that no test has detected so far, or that were not run. Returns the totals."""
    files = {}
    for file, own in by_file(mutants).items():
        left = [mutant for mutant in own if not is_detected(f"{file} | {mutant}")]
        files[file] = {"version": version(codes[file], own), "mutants": len(own), "not detected": left}
    total = {"mutants": len(mutants), "detected": sum(map(is_detected, mutants))}
    FILE.write_text(json.dumps({"total": total, "files": files}, indent=1, ensure_ascii=False) + "\n")
    return total
