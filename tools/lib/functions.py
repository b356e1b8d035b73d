"""The functions, run locally: an embedded DynamoDB, and the Lambda APIs of cargo lambda."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

from tools.lib import builds
from tools.lib.common import ROOT, Background, free_port, install, path_with, wait_until

# Set for the functions, with an account that does not exist.
ENVIRONMENT = {
    "IDEMPOTENCY_TABLE": "idempotency",
    "LEDGER_TABLE": "ledger",
    # The SDK wants a Region and credentials; the embedded DynamoDB accepts any.
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}
START_S = 30


@contextmanager
def dynamodb(binary):
    """The environment in which the functions find an embedded DynamoDB with empty tables, until the block is left."""
    env = {**os.environ, **ENVIRONMENT}
    with Background([binary], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as process:
        name, _, endpoint = process.stdout.readline().strip().partition("=")
        if name != "DYNAMODB_ENDPOINT":
            sys.exit("the embedded DynamoDB did not start")
        yield {**env, "AWS_ENDPOINT_URL_DYNAMODB": endpoint}


def listens(port):
    """Whether anybody accepts a connection. A request would wait for a function."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def watch(port, *options):
    """The command that serves the functions at this port of 127.0.0.1."""
    # Named, because cargo lambda listens on every interface otherwise.
    return ["cargo", "lambda", "watch", "--invoke-address", "127.0.0.1", "--invoke-port", str(port), *options]


@contextmanager
def emulated(function, instances, env, log):
    """The address at which instances of a function that is built are invoked, until the block is left."""
    port = free_port()
    env = {**env, "PATH": path_with(install("lambda-emulator"))}
    options = {"stdout": log, "stderr": subprocess.STDOUT}
    with ExitStack() as running:
        # It reads the manifest in its directory. Left to itself it would build the function, and run it by Cargo.
        command = watch(port, "--only-lambda-apis")
        process = running.enter_context(Background(command, cwd=ROOT / "functions", env=env, **options))
        if not wait_until(lambda: listens(port), START_S, process):
            sys.exit(f"cargo lambda watch did not start; its log is {log.name}")
        api = {
            # Where cargo lambda watch has the Runtime API of each function.
            "AWS_LAMBDA_RUNTIME_API": f"http://127.0.0.1:{port}/.rt/{function}",
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_LAMBDA_FUNCTION_VERSION": "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
        }
        for _ in range(instances):
            running.enter_context(Background([builds.PROGRAMS / function], env={**env, **api}, **options))
        yield f"127.0.0.1:{port}"
