"""Real servers for tests, without root, Docker or an account. They are installed below .venv/ and target/, and stop when their block ends.

Each is a context manager whose value has a `url`.

| name           | server                              | environment variable               |
|----------------|-------------------------------------|------------------------------------|
| dynamodb       | DynamoDB Local                      | DYNAMODB_ENDPOINT                  |
| valkey         | Valkey                              | REDIS_URL                          |
| valkey-cluster | three Valkey nodes without replicas | REDIS_CLUSTER_URL, comma-separated |
| postgres       | PostgreSQL 16                       | POSTGRES_URL                       |
| ministack      | MiniStack                           | MINISTACK_ENDPOINT                 |

A server whose variable is already set is not started. VALKEY_BINARY (valkey-server or redis-server) and POSTGRES_BINARIES
(a directory) select other programs.
"""

import os
from contextlib import ExitStack, contextmanager

from .dynamodb import DynamoDbLocal
from .ministack import MiniStack
from .pgbouncer import PgBouncer
from .postgres import Postgres
from .valkey import Valkey, ValkeyCluster

__all__ = ["NAMED", "DynamoDbLocal", "MiniStack", "PgBouncer", "Postgres", "Valkey", "ValkeyCluster", "fetch", "started"]

NAMED = {
    "dynamodb": ("DYNAMODB_ENDPOINT", DynamoDbLocal),
    "valkey": ("REDIS_URL", Valkey),
    "valkey-cluster": ("REDIS_CLUSTER_URL", ValkeyCluster),
    "postgres": ("POSTGRES_URL", Postgres),
    "ministack": ("MINISTACK_ENDPOINT", MiniStack),
}


def fetch(names=NAMED):
    """Installs the programs of these servers."""
    for name in names:
        variable, server = NAMED[name]
        if not os.environ.get(variable):
            server.fetch()


@contextmanager
def started(names=NAMED):
    """Runs these servers until the block ends. The value is the environment in which programs find them."""
    env = dict(os.environ)
    with ExitStack() as running:
        for name in names:
            variable, server = NAMED[name]
            if not env.get(variable):
                env[variable] = running.enter_context(server()).url
        yield env
