#!/usr/bin/env python3
"""Installs what later targets use, so that nothing waits for it then: tools/fetch.py GROUP ...

A GROUP is a file tools/requirements/GROUP.txt, or `servers` for those of the stores.
"""

import sys

import servers
from common import install

for group in sys.argv[1:]:
    if group == "servers":
        servers.fetch()
    else:
        install(group)
