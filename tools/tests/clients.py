"""Runs a command that may start clients for Node.js: python3 -m tools.tests.clients -- COMMAND [ARGUMENT ...]

| the command finds             | in              |
|-------------------------------|-----------------|
| Node.js                       | CLIENTS_NODE    |
| the directory of its packages | CLIENTS_MODULES |

The versions are pinned in examples/tests/retries/node/package-lock.json.
"""

import os
import sys

from tools.lib import node
from tools.lib.common import ROOT

FOLDER = ROOT / "examples" / "tests" / "retries" / "node"


def variables():
    program, modules = node.modules("clients", "clients for Node.js", FOLDER)
    return {"CLIENTS_NODE": str(program), "CLIENTS_MODULES": str(modules)}


def main():
    arguments = sys.argv[1:]
    if arguments[:1] != ["--"] or len(arguments) == 1:
        sys.exit(__doc__)
    os.execvpe(arguments[1], arguments[1:], {**os.environ, **variables()})


if __name__ == "__main__":
    main()
