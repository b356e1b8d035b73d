"""Runs the functions under cargo lambda watch with an embedded DynamoDB: python3 -m tools.scenarios.watch [WATCH OPTION ...]

Both stop on Ctrl-C. The tables are empty at each start.
"""

import socket
import sys

from tools.lib import builds, functions
from tools.lib.common import exit_on_signals, free_port, install, path_with, run, say

CARGO_LAMBDA_PORT = 9000


def invoke_port():
    """Returns cargo lambda's default port, or a free one if that is in use."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", CARGO_LAMBDA_PORT))
        except OSError:
            return free_port()
    return CARGO_LAMBDA_PORT


def main():
    exit_on_signals()
    what = "building the embedded DynamoDB; the first time some minutes"
    programs = builds.programs(what, ["-p", "functions", "-p", "local-stack"], ["local-dynamodb"])
    with functions.dynamodb(programs / "local-dynamodb") as env:
        env["PATH"] = path_with(install("cargo-lambda"))
        port = invoke_port()
        # Without the address, cargo lambda invoke tries [::1].
        address = f"--invoke-address 127.0.0.1 --invoke-port {port}"
        endpoint = env["AWS_ENDPOINT_URL_DYNAMODB"]
        say(f"DynamoDB at {endpoint}; functions at http://127.0.0.1:{port}, each built on its first invocation. Try:")
        invoke = ".venv/cargo-lambda/bin/cargo-lambda lambda invoke"
        for function, file in (("orders", "sqs-batch"), ("payouts", "sqs-fifo")):
            say(f"  {invoke} {function} {address} --data-file events/{file}.json")
        return run(functions.watch(port, *sys.argv[1:]), env)


if __name__ == "__main__":
    sys.exit(main())
