"""PgBouncer in transaction mode."""

from . import debian
from .postgres import USER, accepts
from .process import Server

# Far fewer server connections than the tests open, so that consecutive uses rarely get the same one.
SETTINGS = {
    "pool_mode": "transaction",
    "default_pool_size": 4,
    "max_client_conn": 1000,
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "trust",
}


class PgBouncer(Server):
    """PgBouncer 1.18 from Debian 12, in front of a running PostgreSQL. It also refuses to run as root."""

    is_unprivileged = True

    def __init__(self, postgres, **settings):
        self.postgres = postgres
        self.settings = {**SETTINGS, **settings}

    @property
    def url(self):
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def prepare(self):
        home = debian.fetch()
        self.binary = self.readable(home, [home], "bin/pgbouncer")
        (self.home / "users").write_text(f'"{USER}" ""\n')
        settings = {**self.settings, "listen_port": self.port, "auth_file": self.home / "users"}
        lines = ["[databases]", f"* = host=127.0.0.1 port={self.postgres.port}", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (self.home / "pgbouncer.ini").write_text("\n".join(lines) + "\n")

    def command(self):
        return [self.binary, self.home / "pgbouncer.ini"]

    def is_up(self):
        return accepts(self.port)
