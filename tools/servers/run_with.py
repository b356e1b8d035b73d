"""Runs a command with the servers of the stores: python3 -m tools.servers.run_with [SERVER ...] -- COMMAND [ARGUMENT ...]

The servers are dynamodb, valkey, valkey-cluster, postgres and ministack. The default is all of them; `none` starts no server. The command finds
them by the environment variables in servers/__init__.py. Missing programs are installed below target/ and .venv/.
"""

import sys

from tools import servers
from tools.lib.common import exit_on_signals, run


def main():
    arguments = sys.argv[1:]
    if "--" not in arguments[:-1]:
        sys.exit(__doc__)
    split = arguments.index("--")
    names, command = arguments[:split] or list(servers.NAMED), arguments[split + 1 :]
    if names == ["none"]:
        names = []
    if unknown := set(names) - set(servers.NAMED):
        sys.exit(f"{', '.join(sorted(unknown))}: not a server\n{__doc__}")
    exit_on_signals()
    with servers.started(names) as env:
        return run(command, env)


if __name__ == "__main__":
    sys.exit(main())
