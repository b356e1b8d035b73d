"""Sends 100 identical POST /charges concurrently, and checks that they have one effect: python3 -m tools.scenarios.concurrent_charges [--watch]

The function `charges` runs in 8 instances behind the Lambda APIs of cargo lambda watch, with an embedded DynamoDB. With --watch,
cargo lambda watch builds the function and starts its instances, as for users.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from tools.lib import builds, functions
from tools.lib.common import DOWNLOADS, ROOT, Background, exit_on_signals, free_port, install, must, path_with, say

REQUESTS = 100
INSTANCES = 8
ROUNDS = 2
# Long enough for the other instances to claim the key meanwhile.
DELAY_MS = 300
# In seconds. The first invocation builds the function.
START = 300
TIME_OUT = 120
LOG = DOWNLOADS / "concurrent-charges.log"


class Answer(NamedTuple):
    status: int
    content_type: str
    replayed: str | None
    body: bytes

    def code(self):
        """Returns the code of a problem document."""
        if self.content_type != "application/problem+json":
            return None
        return json.loads(self.body).get("code")


def post(address, path, body, headers, seconds):
    """Returns the status, headers and body of the response. The request bypasses proxies, because the address is local."""
    connection = http.client.HTTPConnection(address, timeout=seconds)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Client:
    """A client that makes a single charge, with a unique key and customer, in any number of requests."""

    def __init__(self, address):
        self.address = address
        self.customer = f"customer-{uuid.uuid4()}"
        self.headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}

    def charge(self, seconds=TIME_OUT):
        body = {
            "customer_id": self.customer, "amount_cents": 4990, "currency": "EUR", "simulate": {"delay_ms": DELAY_MS},
        }
        status, headers, body = post(self.address, "/lambda-url/charges/charges", body, self.headers, seconds)
        return Answer(status, headers.get("Content-Type"), headers.get("Idempotency-Replayed"), body)

    def charge_at_once(self):
        """Sends all requests concurrently, and returns their responses."""
        barrier, answers, errors = threading.Barrier(REQUESTS), [], []

        def send():
            try:
                barrier.wait(TIME_OUT)
                answers.append(self.charge())
            except (OSError, http.client.HTTPException, threading.BrokenBarrierError) as error:
                errors.append(error)

        # Daemons, so that a Ctrl-C does not wait for responses.
        threads = [threading.Thread(target=send, daemon=True) for _ in range(REQUESTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            sys.exit(f"{len(errors)} of {REQUESTS} requests got no response, one because of {errors[0]!r}; see {LOG}")
        return answers


def start(address):
    """Makes a first charge, which makes cargo lambda watch start the instances."""
    deadline = time.monotonic() + START
    while True:
        left = deadline - time.monotonic()
        try:
            answer = Client(address).charge(max(left, 1))
        except OSError as error:
            if left <= 0:
                sys.exit(f"no response within {START} s: {error}; end of the log:\n{LOG.read_text()[-2000:]}")
            # It does not listen yet.
            time.sleep(0.1)
            continue
        if answer.status != 201:
            sys.exit(f"a single charge got status {answer.status}: {answer.body.decode(errors='replace')}; see {LOG}")
        return


def ledger(endpoint, customer):
    """Returns the ids of this customer's rows in the ledger, one per effect of a charge."""
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.Scan",
        # The embedded DynamoDB requires a signature, but does not check it.
        "X-Amz-Date": "20200101T000000Z",
        "Authorization": "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=none",
    }
    scan = {"TableName": "ledger", "ConsistentRead": True}
    status, _, body = post(urlsplit(endpoint).netloc, "/", scan, headers, TIME_OUT)
    found = json.loads(body)
    if status != 200 or "LastEvaluatedKey" in found:
        sys.exit(f"the ledger cannot be read: {status} {body[:500]}")
    return [row["entry_id"]["S"] for row in found["Items"] if row["party_id"]["S"] == customer]


def failures(answers, late, rows):
    """Returns the failed checks."""
    created = [answer for answer in answers if answer.status == 201]
    refused = [answer for answer in answers if answer.status == 409]
    bodies = {answer.body for answer in created}
    marks = Counter(answer.replayed for answer in created)
    checks = {
        "every status is 201 or 409": len(created) + len(refused) == len(answers) == REQUESTS,
        "some statuses are 201": len(created) > 0,
        "all 201 have the same body": len(bodies) == 1,
        "one 201 is not a replay, and all others are marked as replays": marks == Counter({None: 1, "true": len(created) - 1}),
        "every 409 is a problem document with the code in_progress": {a.code() for a in refused} <= {"in_progress"},
        "a later request gets the same response, as a replay": (late.status, late.replayed) == (201, "true")
        and {late.body} == bodies,
        "the ledger has one row, for the charge in the response": [{row} for row in rows]
        == [{json.loads(body)["charge_id"] for body in bodies}],
    }
    return [check for check, holds in checks.items() if not holds]


def check(address, endpoint):
    """Runs a round, and returns whether it had one effect and how many of its requests were refused."""
    client = Client(address)
    answers = client.charge_at_once()
    late = client.charge()
    rows = ledger(endpoint, client.customer)
    statuses = Counter(answer.status for answer in answers)
    found = failures(answers, late, rows)
    counts = ", ".join(f"{number} × {status}" for status, number in sorted(statuses.items()))
    print(f"{REQUESTS} concurrent requests: {counts}; rows in the ledger: {len(rows)}", flush=True)
    for failure in found:
        print(f"failed: {failure}", file=sys.stderr)
    for answer in {answer.status: answer for answer in answers if answer.status not in (201, 409)}.values():
        print(f"a response with status {answer.status}: {answer.body.decode(errors='replace')}", file=sys.stderr)
    return not found, statuses[409]


@contextmanager
def watched(env, log):
    """Runs cargo lambda watch until the block ends. The value is the address at which it serves the function."""
    env = {**env, "PATH": path_with(install("cargo-lambda"))}
    # The same build as cargo lambda watch's, which then has nothing left to do.
    must(["cargo", "build", "--quiet", "--package", "functions", "--bin", "charges"], cwd=ROOT)
    port = free_port()
    command = functions.watch(port, "--ignore-changes", "--package", "functions", "--concurrency", str(INSTANCES))
    with Background(command, cwd=ROOT, env=env, stdout=log, stderr=subprocess.STDOUT):
        yield f"127.0.0.1:{port}"


def main():
    if sys.argv[1:] not in ([], ["--watch"]):
        sys.exit(__doc__)
    exit_on_signals()
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    selection = ["-p", "functions", "-p", "local-stack"]
    programs = builds.programs("building the function; the first time some minutes", selection, ["charges", "local-dynamodb"])
    with functions.dynamodb(programs / "local-dynamodb") as env, open(LOG, "w") as log:
        env = {**env, "ALLOW_SIMULATION": "1"}
        serve = watched(env, log) if sys.argv[1:] else functions.emulated("charges", INSTANCES, env, log)
        with serve as address:
            say(f"charges at http://{address}/lambda-url/charges/charges")
            start(address)
            rounds = [check(address, env["AWS_ENDPOINT_URL_DYNAMODB"]) for _ in range(ROUNDS)]
    if not all(held for held, _ in rounds):
        sys.exit(f"the functions' log is {LOG}")
    if not any(refused for _, refused in rounds):
        sys.exit("no requests overlapped, so this shows nothing")
    print(f"each round of {REQUESTS} concurrent requests had one effect")


if __name__ == "__main__":
    main()
