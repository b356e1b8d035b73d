"""Real servers for tests, without root, Docker or an account: installed below .venv/ and target/, stopped when their block is left.

Each is a context manager whose value has a `url`.

| name           | what                                    | where programs find it       |
|----------------|-----------------------------------------|------------------------------|
| dynamodb       | DynamoDB Local                          | DYNAMODB_ENDPOINT            |
| valkey         | Valkey                                  | REDIS_URL                    |
| valkey-cluster | three nodes of Valkey, without replicas | REDIS_CLUSTER_URL, by commas |
| postgres       | PostgreSQL 16                           | POSTGRES_URL                 |

One whose variable is set already is not started. VALKEY_BINARY (valkey-server or redis-server) and POSTGRES_BINARIES (a
directory) name other programs to start.
"""

import os
from contextlib import ExitStack, contextmanager

from .dynamodb import DynamoDbLocal
from .pgbouncer import PgBouncer
from .postgres import Postgres
from .valkey import Valkey, ValkeyCluster

__all__ = ["NAMED", "DynamoDbLocal", "PgBouncer", "Postgres", "Valkey", "ValkeyCluster", "fetch", "started"]

NAMED = {
    "dynamodb": ("DYNAMODB_ENDPOINT", DynamoDbLocal),
    "valkey": ("REDIS_URL", Valkey),
    "valkey-cluster": ("REDIS_CLUSTER_URL", ValkeyCluster),
    "postgres": ("POSTGRES_URL", Postgres),
}


def fetch(names=NAMED):
    """Installs what these servers need."""
    for name in names:
        variable, server = NAMED[name]
        if not os.environ.get(variable):
            server.fetch()


@contextmanager
def started(names=NAMED):
    """The environment in which programs find these servers, which run until the block is left."""
    env = dict(os.environ)
    with ExitStack() as running:
        for name in names:
            variable, server = NAMED[name]
            if not env.get(variable):
                env[variable] = running.enter_context(server()).url
        yield env
