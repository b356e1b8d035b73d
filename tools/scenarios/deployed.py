"""Scenarios on a deployed template.yaml, wherever that is.

Duplicate and failing orders and payouts go through the queues and event source mappings, a retried charge through the REST API. The
ledger then shows how often each operation was executed, and in which order.
"""

import json
import urllib.error
import urllib.request
import uuid
from collections import Counter

from tools.lib.common import say, wait_until


class Checks:
    def __init__(self):
        self.failed = 0

    def equal(self, what, found, expected):
        if found == expected:
            print(f"ok    {what}: {found}", flush=True)
        else:
            self.failed += 1
            print(f"FAIL  {what}: {found}, expected {expected}", flush=True)


class Stack:
    """The deployed stack: a subclass knows where its API is and where its functions' metrics are."""

    # Longest time until a queue is empty, in seconds.
    patience = 60

    def __init__(self, session, name, endpoint=None):
        self.sqs = session.client("sqs", endpoint_url=endpoint)
        self.functions = session.client("lambda", endpoint_url=endpoint)
        self.alarms = session.client("cloudwatch", endpoint_url=endpoint)
        self.ledger_table = session.resource("dynamodb", endpoint_url=endpoint).Table
        stack = session.client("cloudformation", endpoint_url=endpoint).describe_stacks(StackName=name)["Stacks"][0]
        self.outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def api(self):
        """The URL of the REST API's stage."""
        raise NotImplementedError

    def metrics(self):
        """The metrics that the functions of queues have written, parsed."""
        raise NotImplementedError

    def prepare(self):
        """Lets the queues' functions simulate failures, which the template never does, and redelivers after seconds."""
        for part in ("Orders", "Payouts"):
            name = self.outputs[f"{part}FunctionName"]
            variables = self.functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
            variables["ALLOW_SIMULATION"] = "1"
            self.functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
            self.functions.get_waiter("function_updated_v2").wait(FunctionName=name)
            self.sqs.set_queue_attributes(
                QueueUrl=self.outputs[f"{part}QueueUrl"], Attributes={"VisibilityTimeout": "5"}
            )

    def owns(self, alarm):
        """Whether an alarm of the account is about this stack's functions and queues."""
        names = [self.outputs[f"{part}FunctionName"] for part in ("Orders", "Payouts", "Charges")]
        names += [url.rsplit("/", 1)[1] for name, url in self.outputs.items() if name.endswith("Url") and "/" in url]
        return any(dimension["Value"] in names for dimension in alarm["Dimensions"])

    def send(self, queue, body, **options):
        self.sqs.send_message(QueueUrl=self.outputs[queue], MessageBody=json.dumps(body), **options)

    def messages(self, queue):
        """How many messages a queue holds, those in flight included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.outputs[queue], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def rows(self):
        """The ledger: a row for each execution, in their order."""
        rows = self.ledger_table(self.outputs["LedgerTableName"]).scan(ConsistentRead=True)["Items"]
        return sorted(rows, key=lambda row: row["at"])

    def ledger(self):
        """How many executions the ledger shows for each operation's key."""
        return Counter(row["key"] for row in self.rows())

    def request(self, method, path, body=None, headers=()):
        """Status, headers and body of one call of the REST API."""
        request = urllib.request.Request(self.api() + path, body, dict(headers), method=method)
        try:
            response = urllib.request.urlopen(request, timeout=30)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            return response.status, response.headers, response.read()


def test_orders(stack, check):
    say("orders: two, one of them sent twice, the other failing at its first delivery")
    plain = {"order_id": str(uuid.uuid4()), "customer_id": "customer-17", "amount_cents": 4990, "currency": "EUR"}
    failing = {**plain, "order_id": str(uuid.uuid4()), "simulate": {"outcome": "transient", "until_receive": 1}}
    for order in (plain, failing, plain):
        stack.send("OrdersQueueUrl", order)
    wait_until(lambda: stack.messages("OrdersQueueUrl") == 0, stack.patience)
    ledger = stack.ledger()
    check.equal("executions of the order sent twice", ledger[plain["order_id"]], 1)
    check.equal("executions of the order that failed at first", ledger[failing["order_id"]], 1)
    check.equal("messages left in the queue", stack.messages("OrdersQueueUrl"), 0)
    check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_payouts(stack, check):
    say("payouts: two to one seller, the first failing at first and sent twice, and one to another seller")
    names = {}

    def payout(name, seller, **more):
        body = {"payout_id": str(uuid.uuid4()), "seller_id": seller, "amount_cents": 4990, "currency": "EUR", **more}
        names[body["payout_id"]] = name
        return body

    first = payout("first", "seller-17", simulate={"outcome": "transient", "until_receive": 1})
    for body in (first, payout("second", "seller-17"), first, payout("another", "seller-23")):
        # An id of its own for each send: the queue takes the repeated one for a new message, as after 5 minutes.
        stack.send("PayoutsQueueUrl", body, MessageGroupId=body["seller_id"], MessageDeduplicationId=str(uuid.uuid4()))
    wait_until(lambda: stack.messages("PayoutsQueueUrl") == 0, stack.patience)
    paid = [names[row["key"]] for row in stack.rows() if row["key"] in names]
    check.equal("payouts, in order", paid, ["another", "first", "second"])
    check.equal("messages left in the FIFO queue", stack.messages("PayoutsQueueUrl"), 0)
    check.equal("messages in its dead-letter queue", stack.messages("PayoutsDeadLettersUrl"), 0)


def test_charges(stack, check):
    say("charges: one, sent twice with the same Idempotency-Key")
    key = str(uuid.uuid4())
    customer = f"customer-{uuid.uuid4()}"
    body = json.dumps({"customer_id": customer, "amount_cents": 4990, "currency": "EUR"}).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    first = stack.request("POST", "/charges", body, headers)
    second = stack.request("POST", "/charges", body, headers)
    check.equal("status of the charge", first[0], 201)
    check.equal("status of its retry", second[0], 201)
    check.equal("both answers are equal", second[2] == first[2], True)
    check.equal("Idempotency-Replayed of the charge", first[1].get("Idempotency-Replayed"), None)
    check.equal("Idempotency-Replayed of its retry", second[1].get("Idempotency-Replayed"), "true")
    # The ledger has the hash of the key.
    charges = [row for row in stack.rows() if row["party_id"] == customer]
    check.equal("executions of the charge", len(charges), 1)
    check.equal("rows with the plain key", stack.ledger()[key], 0)
    if first[0] == 201:
        charge = json.loads(first[2])["charge_id"]
        check.equal("GET of the charge", stack.request("GET", f"/charges/{charge}")[0], 200)
    check.equal("GET of a charge that does not exist", stack.request("GET", f"/charges/{uuid.uuid4()}")[0], 404)


def test_monitoring(stack, check):
    """The alarms on the library's metrics have the dimensions that the functions of queues write."""
    say("monitoring: alarms, and the metrics that the functions have written")
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
    check.equal("functions of queues that have written metrics", len(written), 2)
    check.equal("metrics that no alarm reads", written - read, set())


def test_all(stack, check):
    stack.prepare()
    test_orders(stack, check)
    test_payouts(stack, check)
    test_charges(stack, check)
    test_monitoring(stack, check)
