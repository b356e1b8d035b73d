"""Runs the stores' tests on other versions of their servers, and kills the consumer: python3 -m tools.tests.other_servers [SERVER ...]

| SERVER      | tested                                                                  |
|-------------|-------------------------------------------------------------------------|
| redis-7.0   | Redis from Debian 12, as a single node and as a cluster                 |
| postgres-15 | PostgreSQL from Debian 12                                               |
| postgres-18 | PostgreSQL 18                                                           |
| pgbouncer   | PgBouncer from Debian 12 in transaction mode, in front of PostgreSQL 16 |
| consumer    | examples/consumer, with Valkey and PostgreSQL 16                        |

The default is all of them. The servers from Debian 12 are skipped on other systems. RACE_ROUNDS, STORE_SEQUENCES and CONSUMER_KILLS set
the numbers of rounds, sequences and kills. Fails if a test fails.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

from tools.lib.common import ROOT, exit_on_signals, must, run, say
from tools.servers import PgBouncer, Postgres, Valkey, ValkeyCluster, debian
from tools.tests.counts import ALL

CARGO = ["cargo", "test", "--workspace", "--all-features", "--test"]
COUNTS = {**ALL, "RACE_ROUNDS": "1000", "CONSUMER_KILLS": "20"}


def redis(running):
    binary = debian.fetch() / "bin" / "redis-server"
    return {
        "VALKEY_BINARY": str(binary),
        "REDIS_URL": running.enter_context(Valkey(binary)).url,
        "REDIS_CLUSTER_URL": running.enter_context(ValkeyCluster(binary)).url,
    }


def postgres(version):
    def start(running):
        server = running.enter_context(Postgres(version))
        return {"POSTGRES_BINARIES": str(server.binaries), "POSTGRES_URL": server.url}

    return start


def pgbouncer(running):
    server = running.enter_context(Postgres(16))
    return {"POSTGRES_URL": running.enter_context(PgBouncer(server)).url}


def valkey_and_postgres(running):
    return {"REDIS_URL": running.enter_context(Valkey()).url, "POSTGRES_URL": running.enter_context(Postgres(16)).url}


# The tests that use only the store. The other tests of `postgres::` need direct sessions, for roles that PgBouncer does not know,
# prepared statements, locks, and connections that they count and end. `wire::` tests the proxy, not the store.
POOLED = [
    "conformance::postgres", "sequences::", "each::", "network::", "races::", "transactions::ended",
    "--skip", "dynamodb", "--skip", "redis", "--skip", "::memory",
]
# For each server its title, whether it comes from Debian, the function that starts it, the program of its tests, and their filters.
SERVERS = {
    "redis-7.0": ("Redis 7.0", True, redis, "stores", ["redis", "wire::resp"]),
    "postgres-15": ("PostgreSQL 15", True, postgres(15), "stores", ["postgres"]),
    "postgres-18": ("PostgreSQL 18", False, postgres(18), "stores", ["postgres"]),
    "pgbouncer": ("PgBouncer 1.18", True, pgbouncer, "stores", POOLED),
    "consumer": ("Valkey, PostgreSQL 16", False, valkey_and_postgres, "consumer", []),
}


def count(program, filters):
    """Returns the number of tests that the filters select. Exits if a filter selects none, because that would go unnoticed."""
    listed = subprocess.run([*CARGO, program, "--", *filters, "--list"], check=True, stdout=subprocess.PIPE, text=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    wanted = filters[: filters.index("--skip")] if "--skip" in filters else filters
    for text in wanted:
        if not any(text in name for name in names):
            sys.exit(f"no test is called {text}")
    return len(names)


def test(start, program, filters):
    """Runs the tests on this server, and returns the verdict, and the number of tests with their duration."""
    chosen = count(program, filters)
    began = time.monotonic()
    try:
        with ExitStack() as running:
            code = run([*CARGO, program, "--", *filters], {**COUNTS, **os.environ, **start(running)})
    except SystemExit as ending:
        # A signal ends this program. A server that does not start counts as failed.
        if not isinstance(ending.code, str):
            raise
        print(ending.code, file=sys.stderr)
        code = 1
    return ("failed" if code else "passed"), f"{chosen} tests, {time.monotonic() - began:.0f} s"


def main():
    names = sys.argv[1:] or list(SERVERS)
    if unknown := set(names) - set(SERVERS):
        sys.exit(f"{', '.join(sorted(unknown))}: not a server\n{__doc__}")
    exit_on_signals()
    os.chdir(ROOT)
    for program in sorted({program for _, _, _, program, _ in (SERVERS[name] for name in names)}):
        must([*CARGO, program, "--no-run"])
    missing, results = debian.unavailable(), []
    for name in names:
        title, is_debian, start, program, filters = SERVERS[name]
        if is_debian and missing:
            results.append((title, "skipped", missing))
            continue
        say(f"the tests on {title}")
        results.append((title, *test(start, program, filters)))
    for title, verdict, details in results:
        print(f"{title:21} {verdict:8} {details}")
    return int(any(verdict == "failed" for _, verdict, _ in results))


if __name__ == "__main__":
    sys.exit(main())
