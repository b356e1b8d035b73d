#!/usr/bin/env python3
"""Runs a command with the stores' servers behind it: tools/with-servers.py [SERVER ...] -- COMMAND [ARGUMENT ...]

| SERVER         | what                                    | where the command finds it   |
|----------------|-----------------------------------------|------------------------------|
| dynamodb       | DynamoDB Local                          | DYNAMODB_ENDPOINT            |
| valkey         | Valkey                                  | REDIS_URL                    |
| valkey-cluster | three nodes of Valkey, without replicas | REDIS_CLUSTER_URL, by commas |
| postgres       | PostgreSQL 16                           | POSTGRES_URL                 |

Without a SERVER all of them; `none` for none. One whose variable is set already is not started. What is missing is installed below
target/ and .venv/. VALKEY_BINARY (valkey-server or redis-server) and POSTGRES_BINARIES (a directory) name other programs to start.
"""

import os
import sys
from contextlib import ExitStack

from common import exit_on_signals, run
from servers import DynamoDbLocal, Postgres, Valkey, ValkeyCluster

SERVERS = {
    "dynamodb": ("DYNAMODB_ENDPOINT", DynamoDbLocal),
    "valkey": ("REDIS_URL", Valkey),
    "valkey-cluster": ("REDIS_CLUSTER_URL", ValkeyCluster),
    "postgres": ("POSTGRES_URL", Postgres),
}


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments[:-1]:
        sys.exit(__doc__)
    split = arguments.index("--")
    names, command = arguments[:split] or list(SERVERS), arguments[split + 1 :]
    if names == ["none"]:
        names = []
    if unknown := set(names) - set(SERVERS):
        sys.exit(f"{', '.join(sorted(unknown))}: not a server\n{__doc__}")
    exit_on_signals()
    env = dict(os.environ)
    with ExitStack() as running:
        for name in names:
            variable, server = SERVERS[name]
            if not env.get(variable):
                env[variable] = running.enter_context(server()).url
        return run(command, env)


if __name__ == "__main__":
    sys.exit(main())
