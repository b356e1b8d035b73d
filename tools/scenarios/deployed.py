"""Scenarios on a deployed template.yaml, on any endpoint.

They send duplicate and failing orders and payouts through the queues and event source mappings, and a retried charge through the REST
API. The ledger then shows the number and the order of each operation's executions.
"""

import contextlib
import functools
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter

from tools.lib import builds
from tools.lib.common import say, wait_until


@functools.cache
def operators_tool():
    return builds.programs("building the operator's tool", builds.ALL, ["lambda-once"]) / "lambda-once"


def order(**simulate):
    body = {"order_id": str(uuid.uuid4()), "customer_id": "customer-17", "amount_cents": 4990, "currency": "EUR"}
    return {**body, "simulate": simulate} if simulate else body


class Checks:
    """Counts the checks of each scenario, and prints a table."""

    def __init__(self):
        self.failed = 0
        self.made = 0
        self.rows = []

    def equal(self, what, found, expected):
        self.made += 1
        if found == expected:
            print(f"ok    {what}: {found}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {what}: {found}, expected {expected}", flush=True)

    @contextlib.contextmanager
    def section(self, scenario):
        started, made, failed = time.monotonic(), self.made, self.failed
        try:
            yield
        finally:
            self.rows.append((scenario, self.made - made, self.failed - failed, round(time.monotonic() - started)))

    def print_table(self):
        width = max((len(row[0]) for row in self.rows), default=0)
        print(f"\n{'scenario':{width}}  checks  failed  seconds")
        for scenario, made, failed, seconds in self.rows:
            print(f"{scenario:{width}}  {made:6}  {failed:6}  {seconds:7}")
        print(flush=True)


class Stack:
    """The deployed stack. Subclasses provide its API's URL and its functions' metrics."""

    # The maximum time until a queue is empty, in seconds.
    patience = 60
    # The visibility timeout of the queues in the scenarios, in seconds.
    visibility_s = 5
    # Whether the stack supports `kill` and `without_table`.
    is_local = False

    def __init__(self, session, name, env, endpoint=None):
        """Opens the stack. `env` lets a program reach the same account and Region as the session."""
        self.env = env
        self.sqs = session.client("sqs", endpoint_url=endpoint)
        self.functions = session.client("lambda", endpoint_url=endpoint)
        self.alarms = session.client("cloudwatch", endpoint_url=endpoint)
        self.table = session.resource("dynamodb", endpoint_url=endpoint).Table
        stack = session.client("cloudformation", endpoint_url=endpoint).describe_stacks(StackName=name)["Stacks"][0]
        self.outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def api(self):
        """Returns the URL of the REST API's stage."""
        raise NotImplementedError

    def metrics(self):
        """Returns the parsed metrics of the functions behind queues."""
        raise NotImplementedError

    def tool(self, *arguments):
        """Runs the operator's tool, and returns its output."""
        ended = subprocess.run([operators_tool(), *arguments], env=self.env, capture_output=True, text=True)
        # 5: there are findings.
        if ended.returncode not in (0, 5):
            sys.exit(f"lambda-once {arguments[0]} failed:\n{ended.stderr}")
        return ended.stdout

    def prepare(self):
        """Lets the functions behind queues simulate failures, unlike the template, and shortens the redelivery to seconds."""
        for part in ("Orders", "Payouts"):
            self.deploy_variables(part, {**self.variables(part), "ALLOW_SIMULATION": "1"})
            self.set_visibility(part, self.visibility_s)

    def variables(self, part):
        name = self.outputs[f"{part}FunctionName"]
        return self.functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]

    def deploy_variables(self, part, variables):
        name = self.outputs[f"{part}FunctionName"]
        self.functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
        self.functions.get_waiter("function_updated_v2").wait(FunctionName=name)

    @contextlib.contextmanager
    def visibility(self, part, seconds):
        """Sets the visibility timeout of a queue until the block ends."""
        self.set_visibility(part, seconds)
        try:
            yield
        finally:
            self.set_visibility(part, self.visibility_s)

    def set_visibility(self, part, seconds):
        self.sqs.set_queue_attributes(
            QueueUrl=self.outputs[f"{part}QueueUrl"], Attributes={"VisibilityTimeout": str(seconds)}
        )

    def owns(self, alarm):
        """Returns whether an alarm of the account is for this stack's functions and queues."""
        names = [self.outputs[f"{part}FunctionName"] for part in ("Orders", "Payouts", "Charges")]
        names += [url.rsplit("/", 1)[1] for name, url in self.outputs.items() if name.endswith("Url") and "/" in url]
        return any(dimension["Value"] in names for dimension in alarm["Dimensions"])

    def send(self, queue, body, **options):
        self.sqs.send_message(QueueUrl=self.outputs[queue], MessageBody=json.dumps(body), **options)

    def messages(self, queue):
        """Returns the number of messages in a queue, including those in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.outputs[queue], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def rows(self):
        """Returns the rows of the ledger, one per execution, in order."""
        rows = self.table(self.outputs["LedgerTableName"]).scan(ConsistentRead=True)["Items"]
        return sorted(rows, key=lambda row: row["at"])

    def charges_of(self, customer):
        """Returns the number of executions of a customer's charges."""
        return sum(row["party_id"] == customer for row in self.rows())

    def statuses(self):
        """Returns the number of operations by their status."""
        records = self.table(self.outputs["IdempotencyTableName"]).scan(ConsistentRead=True)["Items"]
        return Counter(record.get("status") for record in records)

    def in_progress(self):
        """Returns the number of operations in progress."""
        return self.statuses()["INPROGRESS"]

    def completed(self):
        """Returns the number of completed operations."""
        return self.statuses()["COMPLETED"]

    def sum_of(self, metric):
        return sum(line.get(metric, 0) for line in self.metrics())

    def ledger(self):
        """Returns the number of executions per operation key."""
        return Counter(row["key"] for row in self.rows())

    def request(self, method, path, body=None, headers=()):
        """Calls the REST API, and returns the status, headers and body of the response."""
        request = urllib.request.Request(self.api() + path, body, dict(headers), method=method)
        try:
            response = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.headers, response.read()

    def charge(self, customer, key, **more):
        """Posts a charge with an Idempotency-Key, and returns the response as `request` does."""
        body = {"customer_id": customer, "amount_cents": 4990, "currency": "EUR", **more}
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return self.request("POST", "/charges", json.dumps(body).encode(), headers)


def test_orders(stack, check):
    say("orders: two, of which one is sent twice and the other fails on its first delivery")
    plain, failing = order(), order(outcome="transient", until_receive=1)
    for body in (plain, failing, plain):
        stack.send("OrdersQueueUrl", body)
    wait_until(lambda: stack.messages("OrdersQueueUrl") == 0, stack.patience)
    ledger = stack.ledger()
    check.equal("executions of the order sent twice", ledger[plain["order_id"]], 1)
    check.equal("executions of the order that failed at first", ledger[failing["order_id"]], 1)
    check.equal("messages left in the queue", stack.messages("OrdersQueueUrl"), 0)
    check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_payouts(stack, check):
    say("payouts: two to one seller, of which the first is sent twice and fails at first, and one to another seller")
    names = {}

    def payout(name, seller, **more):
        body = {"payout_id": str(uuid.uuid4()), "seller_id": seller, "amount_cents": 4990, "currency": "EUR", **more}
        names[body["payout_id"]] = name
        return body

    first = payout("first", "seller-17", simulate={"outcome": "transient", "until_receive": 1})
    for body in (first, payout("second", "seller-17"), first, payout("another", "seller-23")):
        # A unique id per send, so that the queue accepts the repeated one as a new message, as after 5 minutes.
        stack.send("PayoutsQueueUrl", body, MessageGroupId=body["seller_id"], MessageDeduplicationId=str(uuid.uuid4()))
    wait_until(lambda: stack.messages("PayoutsQueueUrl") == 0, stack.patience)
    paid = [names[row["key"]] for row in stack.rows() if row["key"] in names]
    check.equal("payouts, in order", paid, ["another", "first", "second"])
    check.equal("messages left in the FIFO queue", stack.messages("PayoutsQueueUrl"), 0)
    check.equal("messages in its dead-letter queue", stack.messages("PayoutsDeadLettersUrl"), 0)


def test_charges(stack, check):
    say("charges: one, which is sent twice with the same Idempotency-Key")
    customer, key = f"customer-{uuid.uuid4()}", str(uuid.uuid4())
    first, second = (stack.charge(customer, key) for _ in range(2))
    check.equal("status of the charge", first[0], 201)
    check.equal("status of its retry", second[0], 201)
    check.equal("both responses are equal", second[2] == first[2], True)
    check.equal("Idempotency-Replayed of the charge", first[1].get("Idempotency-Replayed"), None)
    check.equal("Idempotency-Replayed of its retry", second[1].get("Idempotency-Replayed"), "true")
    check.equal("executions of the charge", stack.charges_of(customer), 1)
    # The ledger contains the hash of the key.
    check.equal("rows with the plain key", stack.ledger()[key], 0)
    if first[0] == 201:
        charge = json.loads(first[2])["charge_id"]
        check.equal("GET of the charge", stack.request("GET", f"/charges/{charge}")[0], 200)
    check.equal("GET of a charge that does not exist", stack.request("GET", f"/charges/{uuid.uuid4()}")[0], 404)


def test_monitoring(stack, check):
    """Checks that the alarms on the library's metrics have the dimensions that the functions behind queues write."""
    say("monitoring: alarms, and the metrics of the functions")
    written = {
        (line["_aws"]["CloudWatchMetrics"][0]["Namespace"], frozenset((name, line[name]) for name in ("Function", "Operation")))
        for line in stack.metrics()
    }
    alarms = stack.alarms.describe_alarms(MaxRecords=100)["MetricAlarms"]
    alarms = [alarm for alarm in alarms if stack.owns(alarm)]
    check.equal("alarms", Counter(alarm["Namespace"] for alarm in alarms),
                {"AWS/SQS": 4, "AWS/Lambda": 6, "lambda-once": 12})
    of_library = (alarm for alarm in alarms if not alarm["Namespace"].startswith("AWS/"))
    read = {
        (alarm["Namespace"], frozenset((dimension["Name"], dimension["Value"]) for dimension in alarm["Dimensions"]))
        for alarm in of_library
    }
    check.equal("functions behind queues that have written metrics", len(written), 2)
    check.equal("metrics that no alarm reads", written - read, set())


def test_all(stack, check):
    stack.prepare()
    with check.section("orders: duplicates, a transient failure"):
        test_orders(stack, check)
    with check.section("payouts: order in a FIFO queue"):
        test_payouts(stack, check)
    with check.section("charges: a retry"):
        test_charges(stack, check)
    with check.section("alarms and metrics"):
        test_monitoring(stack, check)
