"""Writes the table of docs/internals/chaos.md from the counters in chaos/results/: python3 -m tools.measure.chaos [--write]

Without --write it fails if the page has another table.
"""

import json
import re
import sys

from tools.lib.common import ROOT

PAGE = ROOT / "docs" / "internals" / "chaos.md"
RESULTS = ROOT / "chaos" / "results"
STORES = ("dynamodb", "redis", "redis-cluster", "postgres")
BETWEEN = re.compile(r"(?<=<!-- counters -->\n).*(?=<!-- end of counters -->)", re.DOTALL)

COUNTERS = (
    "operations", "messages", "deliveries", "invocations, and receipts of consumers", "HTTP requests", "runs of handlers", "runs that took over", "effects",
    "effects repeated, under Rerun after a loss", "rows committed in transactions", "probes", "messages replayed or superseded",
    "responses replayed", "messages dead-lettered, refused", "HTTP keys refused", "workers killed", "workers frozen",
    "servers killed and restarted", "log-ins refused for a while", "servers out of memory for a while", "failovers",
    "replicas killed and restarted", "moves of 400 slots between nodes", "keys in these slots", "operations released by an operator", "operations settled by an operator", "purges of expired rows", "requests lost", "requests lost in silence", "responses lost", "responses lost in silence",
    "requests late, after their sender had given up", "requests that arrived twice", "requests slow", "requests throttled",
    "requests applied and reported as failed", "responses that took more than 0.25 s", "stalls of the machine", "seconds", "messages lost", "keys stuck",
    "violations of the promise",
)  # fmt: skip
RECOVERIES = "recoveries by tenths of a second"
SHARES = {"half within": 50, "99 of 100 within": 99, "all within": 100}


def within(counts, share):
    """Returns the seconds within which this share of the recoveries ended, in percent."""
    left = -(-sum(counts) * share // 100)
    for place, count in enumerate(counts):
        left -= count
        if left <= 0:
            return (place + 1) / 10
    return 0.0


def table():
    results = [json.loads((RESULTS / f"{store}.json").read_text()) for store in STORES]
    totals = [result["total"] for result in results]
    if missing := [name for name in COUNTERS if not any(name in total for total in totals)]:
        sys.exit(f"no counters of these names in {RESULTS.relative_to(ROOT)}: {missing}")
    rows = [["counter", *(result["server"] for result in results)]]
    rows += [[name, *(f"{total.get(name, 0):,}" for total in totals)] for name in COUNTERS]
    rows += [[f"time to recover, {words}", *(f"{within(total[RECOVERIES], share):.1f} s" for total in totals)] for words, share in SHARES.items()]
    lines = [f"| {' | '.join(row)} |\n" for row in rows]
    return "\n" + lines[0] + f"|---|{'---:|' * len(STORES)}\n" + "".join(lines[1:]) + "\n"


def main():
    page = PAGE.read_text()
    assert BETWEEN.search(page), f"{PAGE} has no markers of the table"
    written = BETWEEN.sub(lambda _: table(), page)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written)
    elif written != page:
        sys.exit("docs/internals/chaos.md has other counters than chaos/results/: python3 -m tools.measure.chaos --write")


if __name__ == "__main__":
    main()
