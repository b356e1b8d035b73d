#!/usr/bin/env python3
"""Runs the functions under cargo lambda watch with an embedded DynamoDB: tools/watch.py [WATCH OPTION ...]

Both stop at Ctrl-C. The tables start empty each time.
"""

import os
import socket
import subprocess
import sys

from common import ROOT, Background, exit_on_signals, free_port, install, must, path_with, run, say

CARGO_LAMBDA_PORT = 9000


def invoke_port():
    """The port that cargo lambda uses by default, or a free one if that is taken."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", CARGO_LAMBDA_PORT))
        except OSError:
            return free_port()
    return CARGO_LAMBDA_PORT


def main():
    exit_on_signals()
    env = {
        **os.environ,
        "PATH": path_with(install("cargo-lambda")),
        "IDEMPOTENCY_TABLE": "idempotency",
        "LEDGER_TABLE": "ledger",
        # The SDK wants a Region and credentials; the embedded DynamoDB accepts any.
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    database = ["cargo", "run", "--quiet", "--package", "local-stack", "--bin", "local-dynamodb"]
    say("building the embedded DynamoDB (the first time some minutes)")
    must(["cargo", "build", *database[2:]], cwd=ROOT, env=env)
    with Background(database, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        name, _, endpoint = process.stdout.readline().strip().partition("=")
        if name != "DYNAMODB_ENDPOINT":
            sys.exit("the embedded DynamoDB did not start")
        port = invoke_port()
        # Named, because cargo lambda invoke tries [::1] otherwise.
        address = f"--invoke-address 127.0.0.1 --invoke-port {port}"
        say(f"DynamoDB at {endpoint}; functions at http://127.0.0.1:{port}, each built at its first invocation. Try:")
        invoke = ".venv/cargo-lambda/bin/cargo-lambda lambda invoke"
        for function, file in (("orders", "sqs-batch"), ("payouts", "sqs-fifo")):
            say(f"  {invoke} {function} {address} --data-file events/{file}.json")
        watch = ["cargo", "lambda", "watch", "--invoke-address", "127.0.0.1", "--invoke-port", str(port)]
        return run([*watch, *sys.argv[1:]], {**env, "AWS_ENDPOINT_URL_DYNAMODB": endpoint})


if __name__ == "__main__":
    sys.exit(main())
