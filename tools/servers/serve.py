"""Runs a separate server for a test: python3 -m tools.servers.serve dynamodb|valkey|valkey-cluster|postgres [NAME=VALUE ...]

The settings are those of the server's configuration. The first line on standard output is its URL. Then each line on
standard input is a command, which is executed and answered with `done`: `start`, `stop`, `kill`, `freeze` or `resume`. On a cluster,
all but `stop` take the index of a node, for example `freeze 0`. The server ends with standard input.
"""

import sys

from tools.lib.common import exit_on_signals
from tools.servers import DynamoDbLocal, Postgres, Valkey, ValkeyCluster

SERVERS = {"dynamodb": DynamoDbLocal, "valkey": Valkey, "valkey-cluster": ValkeyCluster, "postgres": Postgres}
COMMANDS = ("start", "stop", "kill", "freeze", "resume")


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in SERVERS:
        sys.exit(__doc__)
    exit_on_signals()
    settings = dict(setting.split("=", 1) for setting in sys.argv[2:])
    with SERVERS[sys.argv[1]](**settings) as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            command, *nodes = line.split()
            if command not in COMMANDS:
                sys.exit(f"{command}: not one of {', '.join(COMMANDS)}")
            if getattr(server, command)(*map(int, nodes)) is False:
                sys.exit(f"the server did not {command}\n{server.log()}")
            print("done", flush=True)


if __name__ == "__main__":
    main()
