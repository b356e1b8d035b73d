"""Computes the cost and the limits of the stores: python3 -m tools.measure.scale [--measure | --write]

* The requests and units of each path are those that the named test counts, and its items are those of tests/stores/fixtures/.
* The times of Redis and PostgreSQL and the sizes of their records are those of scale.json. --measure measures them again, and needs
  REDIS_URL and POSTGRES_URL (`make scale`).
* The time for which a batch occupies a connection to PostgreSQL is that of docs/internals/benchmark.md.

--write writes the tables of docs/internals/scale.md, between its markers, and its picture. Otherwise it checks them. The prices and quotas
are constants below.
"""

import datetime
import json
import math
import re
import sys

from tools.lib.common import ROOT
from tools.measure import postgres_time, redis_time

PAGE = ROOT / "docs" / "internals" / "scale.md"
PICTURE = PAGE.with_suffix(".svg")
BENCHMARK = PAGE.with_name("benchmark.md")
MEASURED = ROOT / "tools" / "measure" / "scale.json"
FIXTURES = ROOT / "tests" / "stores" / "fixtures"
TESTS = ROOT / "tests" / "stores"

# DynamoDB, us-east-1, on demand, standard table class, November 2026: dollars per million units.
WRITE_PRICE, READ_PRICE = 0.625, 0.125
# Dollars per GB and month.
STORAGE_PRICE = 0.25
# ElastiCache Serverless for Valkey, us-east-1, November 2026: dollars per GB and hour, and per million ECPUs.
MEMORY_PRICE, ECPU_PRICE = 0.084, 0.0023
# RDS for PostgreSQL, us-east-1, Single-AZ, on demand, November 2026: dollars per vCPU and hour of db.m7g, and per GB and month of gp3.
VCPU_PRICE, DISK_PRICE = 0.084, 0.115
# The sizes of db.m7g.
VCPUS = (2, 4, 8, 16, 32, 48, 64)
# The GB of records that a shard of Redis is planned with.
SHARD_GB = 75
# Write units per second of a table, without an increase of the quota:
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode-max-throughput.html
TABLE_QUOTA = 40_000
# Concurrent execution environments of an account, without an increase of the quota:
# https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
ENVIRONMENTS_QUOTA = 1_000

RATES = (10, 1_000, 100_000)
HOURS_PER_MONTH = 30 * 24
SECONDS_PER_MONTH = HOURS_PER_MONTH * 60 * 60
RETENTION = 15 * 24 * 60 * 60
BATCH = 10
# The time of an invocation whose handlers take 100 ms, ten at a time.
INVOCATION = 0.110
# The share of a thread's time, or of a server's connections, that is planned for.
LOAD = 0.5

# Each path: the records in one request, the requests, the writes and consistent reads of a record for each operation, and the test.
PATHS = {
    "new, one at a time": (1, 2, 2, 0, "dynamodb/calls.rs", "a_new_operation_takes_two_requests"),
    "duplicate, one at a time": (1, 1, 1, 0, "dynamodb/calls.rs", "a_repeated_operation_takes_one_request"),
    "released, one at a time": (1, 2, 2, 0, "dynamodb/calls.rs", "a_failed_operation_takes_two_requests"),
    "takeover, one at a time": (1, 2, 2, 0, "dynamodb/calls.rs", "a_takeover_takes_two_requests"),
    "new, ten in a batch": (10, 2, 2, 0, "dynamodb/deliveries.rs", "ten_new_messages_take_two_requests_and_their_duplicates_two"),
    "duplicate, ten in a batch": (10, 2, 1, 1, "dynamodb/deliveries.rs", "ten_new_messages_take_two_requests_and_their_duplicates_two"),
    "duplicate in the local cache": (1, 0, 0, 0, "dynamodb/deliveries.rs", "duplicates_in_the_local_cache_take_no_request"),
    # Two transactions of a record and a mark, in which each write counts twice.
    "new, in an order": (1, 2, 8, 0, "dynamodb/calls.rs", "an_ordered_operation_takes_two_requests_and_a_refused_one_takes_one"),
}
# The lines of the picture, and their labels.
PICTURED = {"new, in an order": "in an order", "new, ten in a batch": "new", "duplicate, ten in a batch": "duplicate"}


def size(item):
    """Returns the size of an item by DynamoDB's rule: names and strings in UTF-8, numbers two digits a byte and one more."""

    def of(value):
        (kind, content), = value.items()
        match kind:
            case "S":
                return len(content.encode())
            case "N":
                return math.ceil(len(content.lstrip("-").strip("0")) / 2) + 1
            case "B":
                return len(content) // 2
            case "BOOL":
                return 1
            case "M":
                return 3 + sum(len(name) + of(member) + 1 for name, member in content.items())
        sys.exit(f"{kind}: an attribute of an unknown type")

    return sum(len(name.encode()) + of(value) for name, value in item.items())


def items():
    """Returns the sizes of the largest completed record without an order, of one with an order, and of the mark."""
    stored = json.loads((FIXTURES / "dynamodb.json").read_text())
    completed = [item for item in stored if item.get("status") == {"S": "COMPLETED"}]
    return (
        max(size(item) for item in completed if "sequence" not in item),
        max(size(item) for item in completed if "sequence" in item),
        max(size(item) for item in stored if item["id"]["S"].endswith("mark")),
    )


def units(path):
    """Returns the requests, write units and read units of one operation."""
    together, requests, writes, reads, _, _ = PATHS[path]
    largest = max(items())
    return requests / together, writes * math.ceil(largest / 1024), reads * math.ceil(largest / 4096)


def dollars(path, operations=1_000_000):
    _, writes, reads = units(path)
    return (writes * WRITE_PRICE + reads * READ_PRICE) * operations / 1e6


def connection_time(batch):
    """Returns the seconds for which a batch of new operations occupies its connection, from the benchmark."""
    section = re.search(r"^### Time per batch with 1 ms latency each way, ms$(.*?)^#", BENCHMARK.read_text(), re.MULTILINE | re.DOTALL)
    row = section and re.search(rf"^\| PostgreSQL \| new \| {batch} \| ([\d.]+) \|", section[1], re.MULTILINE)
    return float(row[1]) / 1000 if row else sys.exit(f"{BENCHMARK.name} has no time for PostgreSQL and {batch} messages")


def measured(store, batch, what):
    return json.loads(MEASURED.read_text())[store][str(batch)][what]


def redis_time_of(batch):
    """Returns the seconds of the main thread for one new operation."""
    return measured("redis", batch, "new") / 1e6


def ecpus(batch, kind):
    """Estimates the processing units of ElastiCache Serverless: one for the time of a simple read."""
    return max(1, measured("redis", batch, kind) / json.loads(MEASURED.read_text())["redis"]["read"])


def redis_gigabytes(rate):
    return rate * RETENTION * measured("redis", BATCH, "bytes") / 1e9


def redis_dollars(rate):
    """Returns the price of a month."""
    units = rate * SECONDS_PER_MONTH * ecpus(BATCH, "new") / 1e6
    return redis_gigabytes(rate) * HOURS_PER_MONTH * MEMORY_PRICE + units * ECPU_PRICE


def shards(rate, batch):
    return max(math.ceil(rate * redis_time_of(batch) / LOAD), math.ceil(redis_gigabytes(rate) / SHARD_GB))


def vcpus(rate):
    """Returns the vCPUs of the smallest instance, or the number that would be needed if no instance is large enough."""
    needed = rate * measured("postgres", BATCH, "new") / 1e6 / LOAD
    return next((count for count in VCPUS if count >= needed), math.ceil(needed))


def postgres_gigabytes(rate):
    return rate * RETENTION * measured("postgres", BATCH, "bytes") / 1e9


def postgres_dollars(rate):
    """Returns the price of a month."""
    return vcpus(rate) * HOURS_PER_MONTH * VCPU_PRICE + postgres_gigabytes(rate) * DISK_PRICE


def per_million(dollars_per_month, rate):
    return f"${number(dollars_per_month / (rate * SECONDS_PER_MONTH / 1e6))}"


def number(value):
    if value >= 100:
        return f"{round(value, 2 - math.floor(math.log10(value))):,.0f}"
    return f"{value:.3g}" if value else "0"


def table(heading, rows):
    align = "|" + "|".join("---" if place == 0 else "---:" for place in range(len(heading))) + "|"
    return "\n".join(["| " + " | ".join(line) + " |" for line in (heading,)] + [align] + [f"| {' | '.join(row)} |" for row in rows])


def environments(rate):
    return max(1, math.ceil(rate / BATCH * INVOCATION))


def tables():
    """Returns the generated parts of the page, by their names."""
    record, ordered, mark = items()
    links = {path: f"[test](../../tests/stores/{PATHS[path][4]})" for path in PATHS}
    paths = [
        [path, number(units(path)[0]), number(units(path)[1]), number(units(path)[2]), f"${dollars(path):,.3f}".rstrip("0").rstrip("."), links[path]]
        for path in PATHS
    ]
    new = "new, ten in a batch"
    stored = lambda rate: rate * RETENTION * record / 1e9
    dynamodb_dollars = lambda rate: dollars(new, rate * SECONDS_PER_MONTH) + stored(rate) * STORAGE_PRICE
    dynamodb = [
        [
            f"{rate:,}", number(rate * units(new)[0]), number(rate * units(new)[1]),
            f"{rate * units(new)[1] / TABLE_QUOTA:.0%}" if rate * units(new)[1] >= TABLE_QUOTA / 100 else "under 1%",
            number(stored(rate)), f"${number(dynamodb_dollars(rate))}", per_million(dynamodb_dollars(rate), rate),
        ]
        for rate in RATES
    ]
    redis = [
        [
            f"{rate:,}", f"{rate * redis_time_of(BATCH):.2g}", f"{rate * redis_time_of(100):.2g}", number(redis_gigabytes(rate)),
            f"{shards(rate, BATCH):,}",
            f"${number(redis_dollars(rate))}", per_million(redis_dollars(rate), rate),
        ]
        for rate in RATES
    ]
    postgres = [
        [
            f"{rate:,}", f"{environments(rate):,}", number(rate / BATCH * 2), number(max(rate / BATCH * connection_time(BATCH), 0.001)),
            number(rate / 100 * connection_time(100)), f"{vcpus(rate):,}", number(postgres_gigabytes(rate)),
            f"${number(postgres_dollars(rate))}", per_million(postgres_dollars(rate), rate),
        ]
        for rate in RATES
    ]
    known = json.loads(MEASURED.read_text())
    source = lambda store: f"{known[store]['server']}, {known['machine']}, {known['date']}:\n\n"
    redis_times = [
        [
            f"{batch}", *(number(measured("redis", batch, kind)) for kind in ("new", "duplicate")), number(1 / redis_time_of(batch)),
            *(f"${number(ecpus(batch, kind) * ECPU_PRICE)}" for kind in ("new", "duplicate")),
        ]
        for batch in (1, 10, 100)
    ]
    postgres_times = [
        [
            f"{batch}", *(number(measured("postgres", batch, kind)) for kind in ("new", "duplicate")),
            *(f"${number(measured('postgres', batch, kind) / LOAD / 3600 * VCPU_PRICE)}" for kind in ("new", "duplicate")),
        ]
        for batch in (1, 10, 100)
    ]
    day = {"redis": 24 * MEMORY_PRICE, "postgres": DISK_PRICE / 30}
    kept = lambda store: f"${number(measured(store, BATCH, 'bytes') / 1e3 * day[store])}"
    return {
        "items": f"A completed record has {record} bytes, one in an order {ordered}, and the mark of an entity {mark}: one unit for each.",
        "paths": table(["operation", "requests", "write units", "read units", "per million", "counted by"], paths),
        "dynamodb": table(["operations/s", "requests/s", "write units/s", "of a table's quota", "GB stored", "per month", "per million"], dynamodb),
        "redis-time": source("redis") + table(
            ["in a pipeline", "new, µs", "duplicate, µs", "new operations/s of a thread", "a million new", "a million duplicates"], redis_times
        ),
        "redis-size": f"A record has {measured('redis', BATCH, 'bytes')} bytes of memory, with a result of 26 bytes. A million of them cost "
        f"{kept('redis')} a day.",
        "redis": table(
            ["operations/s", "threads' time, batches of 10", "of 100", "GB of memory", "shards", "per month", "per million"], redis
        ),
        "postgres-time": source("postgres")
        + table(["in a batch", "new, µs", "duplicate, µs", "a million new", "a million duplicates"], postgres_times),
        "postgres-size": f"A row has {measured('postgres', BATCH, 'bytes')} bytes, with its index entries and a result of 26 bytes. A million of "
        f"them cost {kept('postgres')} a day.",
        "postgres": table(
            [
                "operations/s", "environments", "commits/s", "busy connections, batches of 10", "of 100", "vCPUs", "GB", "per month", "per million",
            ],
            postgres,
        ),
    }


def picture():
    """Returns the dollars of DynamoDB by the rate, and the rates at which something has to change."""
    width, height, left, top, bottom = 760, 400, 85, 20, 330
    first, last, low, high = 0, 5, 0, 7  # powers of ten: operations per second, dollars per month

    def x(rate):
        return left + (math.log10(rate) - first) / (last - first) * (width - left - 90)

    def y(cost):
        return bottom - (math.log10(cost) - low) / (high - low) * (bottom - top)

    def text(x, y, words, anchor="start", extra=""):
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{extra}>{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#57606a">',
        "<title>The cost of DynamoDB's requests per month by operations per second, and the limits of each store</title>",
    ]
    for power in range(first, last + 1):
        parts.append(f'<path d="M{x(10**power):.0f} {top}V{bottom}" stroke="#d0d7de"/>')
        parts.append(text(x(10**power), bottom + 18, f"{10**power:,}", "middle"))
    for power in range(low, high + 1):
        parts.append(f'<path d="M{left} {y(10**power):.0f}H{x(10**last):.0f}" stroke="#d0d7de"/>')
        parts.append(text(left - 8, y(10**power) + 4, f"${10**power:,}", "end"))
    colors = ("#cf222e", "#0969da", "#1a7f37")
    for (path, label), color, shift in zip(PICTURED.items(), colors, (4, 0, 12)):
        ends = [(x(10**power), y(dollars(path, 10**power * SECONDS_PER_MONTH))) for power in (first, last)]
        parts.append(f'<path d="M{ends[0][0]:.0f} {ends[0][1]:.0f}L{ends[1][0]:.0f} {ends[1][1]:.0f}" stroke="{color}" stroke-width="2"/>')
        parts.append(text(ends[1][0] + 6, ends[1][1] + shift, label, extra=f' fill="{color}"'))
    limits = {
        "Lambda: an account's environments": ENVIRONMENTS_QUOTA / INVOCATION * BATCH,
        "DynamoDB: a table's quota": TABLE_QUOTA / units("new, ten in a batch")[1],
        "Redis: half of a thread": LOAD / redis_time_of(BATCH),
    }
    for place, (words, rate) in enumerate(sorted(limits.items(), key=lambda limit: limit[1])):
        parts.append(f'<path d="M{x(rate):.0f} {top}V{bottom}" stroke="#8250df" stroke-dasharray="4 3"/>')
        parts.append(text(x(rate) - 5, bottom - 12 - 16 * place, f"{words}, {number(rate)}/s", "end", ' fill="#8250df"'))
    parts.append(text((left + x(10**last)) / 2, bottom + 40, "new operations per second", "middle"))
    parts.append(text(left, height - 12, "requests of DynamoDB, per month, on demand"))
    return "\n".join([*parts, "</svg>\n"])


def filled(text):
    """Returns the page with its generated parts."""
    for name, part in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        found = re.search(rf"{begin}\n.*?{end}", text, re.DOTALL)
        if not found:
            sys.exit(f"{PAGE.name} has no markers for {name}")
        text = text[: found.start()] + f"{begin}\n{part}\n{end}" + text[found.end() :]
    return text


def problems():
    for path, (*_, file, test) in PATHS.items():
        if f"fn {test}(" not in (TESTS / file).read_text():
            yield f"{path}: tests/stores/{file} has no test {test}"
    if PAGE.read_text() != filled(PAGE.read_text()):
        yield f"{PAGE.relative_to(ROOT)} is not up to date: python3 -m tools.measure.scale --write"
    if not PICTURE.exists() or PICTURE.read_text() != picture():
        yield f"{PICTURE.relative_to(ROOT)} is not up to date: python3 -m tools.measure.scale --write"


def main():
    match sys.argv[1:]:
        case ["--measure"]:
            found = {
                "machine": redis_time.machine(), "date": datetime.date.today().isoformat(),
                "redis": redis_time.record(), "postgres": postgres_time.record(),
            }
            MEASURED.write_text(json.dumps(found, indent=2) + "\n")
            print(MEASURED.read_text(), end="")
        case ["--write"]:
            pass
        case []:
            found = list(problems())
            for problem in found:
                print(problem, file=sys.stderr)
            return int(bool(found))
        case _:
            sys.exit(__doc__)
    PAGE.write_text(filled(PAGE.read_text()))
    PICTURE.write_text(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main())
