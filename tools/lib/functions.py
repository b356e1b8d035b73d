"""Local execution of the functions, with an embedded DynamoDB and the Lambda APIs of cargo lambda."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

from tools.lib import builds
from tools.lib.common import ROOT, Background, free_port, install, path_with, wait_until

# The environment of the functions, with a fictional account.
ENVIRONMENT = {
    "IDEMPOTENCY_TABLE": "idempotency",
    "LEDGER_TABLE": "ledger",
    # The SDK requires a Region and credentials, and the embedded DynamoDB accepts any.
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}
START_S = 30


@contextmanager
def dynamodb(binary):
    """Runs an embedded DynamoDB with empty tables until the block ends. The value is the environment of the functions."""
    env = {**os.environ, **ENVIRONMENT}
    with Background([binary], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        name, _, endpoint = process.stdout.readline().strip().partition("=")
        if name != "DYNAMODB_ENDPOINT":
            sys.exit("the embedded DynamoDB did not start")
        yield {**env, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}


def listens(port):
    """Returns whether a connection is accepted. A request would wait for a function."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def watch(port, *options):
    """Returns the command that serves the functions at this port of 127.0.0.1."""
    # Without the address, cargo lambda listens on every interface.
    return ["cargo", "lambda", "watch", "--invoke-address", "127.0.0.1", "--invoke-port", str(port), *options]


@contextmanager
def emulated(function, instances, env, log):
    """Runs instances of a built function until the block ends. The value is the address at which they are invoked."""
    port = free_port()
    env = {**env, "PATH": path_with(install("lambda-emulator"))}
    options = {"stdout": log, "stderr": subprocess.STDOUT}
    with ExitStack() as running:
        # It reads the manifest in its directory. By default it would build the function and run it with Cargo.
        command = watch(port, "--only-lambda-apis")
        process = running.enter_context(Background(command, cwd=ROOT / "functions", env=env, **options))
        if not wait_until(lambda: listens(port), START_S, process):
            sys.exit(f"cargo lambda watch did not start; its log is {log.name}")
        api = {
            # The address at which cargo lambda watch serves each function's Runtime API.
            "AWS_LAMBDA_RUNTIME_API": f"http://127.0.0.1:{port}/.rt/{function}",
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
        }
        for _ in range(instances):
            running.enter_context(Background([builds.PROGRAMS / function], env={**env, **api}, **options))
        yield f"127.0.0.1:{port}"
