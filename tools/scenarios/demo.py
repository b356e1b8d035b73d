"""Builds and runs the demo: python3 -m tools.scenarios.demo

STORE selects the store of its functions: dynamodb, postgres or redis.
"""

import os
import sys
import threading

from tools import servers
from tools.lib import builds
from tools.lib.common import exit_on_signals, install, path_with, run, say

FUNCTIONS = ("orders", "payouts", "charges")
# The server of each store. DynamoDB is part of the demo.
SERVERS = {"dynamodb": [], "postgres": ["postgres"], "redis": ["valkey"]}


def main():
    store = os.environ.get("STORE") or "dynamodb"
    if store not in SERVERS:
        sys.exit(f"STORE is {store}; it may be {', '.join(SERVERS)}")
    exit_on_signals()
    say("the demo sends duplicate, failing and poisonous deliveries through three functions, for 30 seconds")
    features = [] if store == "dynamodb" else ["--features", f"functions/{store},local-stack/{store}"]
    # In the background. A failure is reported again below.
    threading.Thread(target=install, args=["lambda-emulator"], daemon=True).start()
    what = "building them; the first time 2 to 4 minutes on two cores"
    programs = builds.programs(what, ["-p", "functions", "-p", "local-stack", *features], ["demo", *FUNCTIONS])
    with servers.started(SERVERS[store]) as env:
        return run([programs / "demo"], {**env, "STORE": store, "PATH": path_with(install("lambda-emulator"))})


if __name__ == "__main__":
    sys.exit(main())
