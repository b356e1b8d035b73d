"""Runs a command with the stores' servers behind it: python3 -m tools.servers.run_with [SERVER ...] -- COMMAND [ARGUMENT ...]

Without a SERVER all of them: dynamodb, valkey, valkey-cluster, postgres; `none` for none. servers/__init__.py says where the
command finds each. What is missing is installed below target/ and .venv/.
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
