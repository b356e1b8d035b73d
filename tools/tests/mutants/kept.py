"""The results of the Rust mutants in the repository, so that a run in another clone goes on from there."""

import json
from pathlib import Path

FILE = Path(__file__).with_name("rust.json")
# The test that detects a mutant, if only an earlier run knows it.
EARLIER = "an earlier run"


def of_file(mutant):
    file, _, rest = mutant.partition(" | ")
    return file, rest


def detected(mutants, codes):
    """Returns the mutants that an earlier run has detected in files that have not changed since. `codes` are the hashes of files."""
    kept = json.loads(FILE.read_text())["files"] if FILE.is_file() else {}
    same = {file: set(entry["not detected"]) for file, entry in kept.items() if entry["code"] == codes.get(file)}
    return [mutant for mutant in mutants if (parts := of_file(mutant))[0] in same and parts[1] not in same[parts[0]]]


def write(mutants, codes, is_detected):
    """Writes the number of mutants of each file, and those that no test has detected yet. They may not have been run."""
    files = {}
    for mutant in mutants:
        file, rest = of_file(mutant)
        entry = files.setdefault(file, {"code": codes[file], "mutants": 0, "not detected": []})
        entry["mutants"] += 1
        if not is_detected(mutant):
            entry["not detected"].append(rest)
    total = {"mutants": len(mutants), "detected": sum(map(is_detected, mutants))}
    FILE.write_text(json.dumps({"total": total, "files": files}, indent=1, ensure_ascii=False) + "\n")
    return total
