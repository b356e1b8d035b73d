"""Installs groups of tools in advance for later targets: python3 -m tools.setup.fetch GROUP ...

A GROUP is a file tools/setup/requirements/GROUP.txt, or `servers` for the servers of the stores.
"""

import sys

from tools import servers
from tools.lib.common import install

for group in sys.argv[1:]:
    if group == "servers":
        servers.fetch()
    else:
        install(group)
