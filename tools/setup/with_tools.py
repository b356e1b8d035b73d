"""Runs a command with groups of tools on its PATH: python3 -m tools.setup.with_tools GROUP ... -- COMMAND [ARGUMENT ...]

A group is a file tools/setup/requirements/GROUP.txt. It is installed into .venv/GROUP first unless it exists.
"""

import os
import sys

from tools.lib.common import install, path_with

if "--" not in sys.argv[1:-1]:
    sys.exit(__doc__)
split = sys.argv.index("--")
groups, command = sys.argv[1:split], sys.argv[split + 1 :]
os.environ["PATH"] = path_with(*[install(group) for group in groups])
os.execvp(command[0], command)
