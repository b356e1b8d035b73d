"""Measures the time that one operation takes of Redis's main thread, and the memory of its record, by calls of the library's scripts:
python3 -m tools.servers.run_with valkey -- python3 -m tools.measure.redis_time

The calls are those of a queue's new message and of its duplicate, in pipelines of a batch's size, and of a simple read. The time is the
CPU time of the server's main thread, system calls included.
"""

import json
import os
import pathlib
import re
import secrets
import socket
import sys
import urllib.parse

from tools.lib.common import ROOT

SOURCES = ROOT / "src" / "store" / "redis"
OPERATIONS = 50_000
DAYS_15 = 15 * 24 * 60 * 60 * 1000


def constant(name):
    return re.search(rf"{name}: u32 = (?:(\d+)|RECORD_VERSION \+ 1)", (ROOT / "src" / "record.rs").read_text())[1]


class Server:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port or 6379))
        self.file = self.socket.makefile("rb")
        if parts.password:
            self.call(*(["AUTH"] + ([parts.username] if parts.username else []) + [parts.password]))

    def send(self, commands):
        encoded = bytearray()
        for command in commands:
            encoded += b"*%d\r\n" % len(command)
            for argument in command:
                argument = str(argument).encode()
                encoded += b"$%d\r\n%s\r\n" % (len(argument), argument)
        self.socket.sendall(encoded)
        return [self.reply() for _ in commands]

    def call(self, *command):
        return self.send([command])[0]

    def reply(self):
        line = self.file.readline().rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            sys.exit(rest.decode())
        if kind == b"$" and rest != b"-1":
            return self.file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest.decode()

    def script(self, name, first_line):
        text = first_line + (SOURCES / "common.lua").read_text() + (SOURCES / f"{name}.lua").read_text()
        return self.call("SCRIPT", "LOAD", text)

    def thread_time(self):
        """Returns the CPU time of the main thread, in seconds."""
        cpu = dict(line.split(":") for line in self.call("INFO", "cpu").splitlines() if ":" in line)
        return sum(float(cpu[f"used_cpu_{kind}_main_thread"]) for kind in ("sys", "user"))

    def memory(self):
        """Returns the bytes that are in use."""
        memory = dict(line.split(":") for line in self.call("INFO", "memory").splitlines() if ":" in line)
        return int(memory["used_memory"])


def measure_read():
    """Returns the microseconds of a simple read, which is not pipelined."""
    server, name = Server(os.environ["REDIS_URL"]), f"scale:{secrets.token_hex(8)}"
    server.call("SET", name, "x" * 100)
    begun = server.thread_time()
    for _ in range(OPERATIONS):
        server.call("GET", name)
    time = (server.thread_time() - begun) / OPERATIONS * 1e6
    server.call("UNLINK", name)
    return round(time, 1)


def measure(batch):
    server = Server(os.environ["REDIS_URL"])
    claim, settle = server.script("claim", ""), server.script("settle", "#!lua flags=allow-oom\n")
    version = constant("RECORD_VERSION")
    newest = constant("NEWEST_KNOWN_VERSION") or int(version) + 1
    terms = f"31000 1000 {DAYS_15} 1 {version} {newest} 0 "
    complete = f"COMPLETED {DAYS_15} 0 0 data "
    hashes = [secrets.token_hex(32) for _ in range(OPERATIONS)]
    names = [f"scale:{{{key[:32]}}}{key[32:]}" for key in hashes]

    def claims(owners):
        return [("EVALSHA", claim, 1, name, owner, key, terms, "orders.sqs", "") for name, owner, key in zip(names, owners, hashes)]

    def run(commands, expected):
        begun = server.thread_time()
        for start in range(0, OPERATIONS, batch):
            answers = server.send(commands[start : start + batch])
            if not all(isinstance(answer, expected) for answer in answers):
                sys.exit(f"unexpected: {answers[0]}")
        return (server.thread_time() - begun) / OPERATIONS * 1e6

    owners = [secrets.token_hex(16) for _ in range(OPERATIONS)]
    before = server.memory()
    new = run(claims(owners), int)
    new += run([("EVALSHA", settle, 1, name, owner, complete, '{"receipt":"r-1234567890"}') for name, owner in zip(names, owners)], int)
    size = (server.memory() - before) / OPERATIONS
    duplicate = run(claims([secrets.token_hex(16) for _ in range(OPERATIONS)]), list)
    for start in range(0, OPERATIONS, 1000):
        server.call("UNLINK", *names[start : start + 1000])
    return {"new": round(new, 1), "duplicate": round(duplicate, 1), "bytes": round(size)}


def machine():
    processor = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{processor[1] if processor else 'unknown'}, {os.cpu_count()} cores"


def record():
    """Returns the measurements by the size of a pipeline, with the server."""
    info = dict(line.split(":", 1) for line in Server(os.environ["REDIS_URL"]).call("INFO", "server").splitlines() if ":" in line)
    version = info.get("valkey_version")
    return {
        "server": f"Valkey {version}" if version else f"Redis {info['redis_version']}",
        "read": measure_read(),
        **{str(batch): measure(batch) for batch in (1, 10, 100)},
    }


if __name__ == "__main__":
    print(json.dumps(record(), indent=2))
