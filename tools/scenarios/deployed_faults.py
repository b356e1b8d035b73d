"""Further scenarios on a deployed template.yaml: overlapping deliveries, killed functions, a missing table, and dead letters.

They take minutes, because they wait for visibility timeouts and leases.
"""

import contextlib
import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tools.lib.common import say, wait_until
from tools.scenarios.deployed import order

# The handler's delay, during which a scenario interferes.
DELAY_MS = 10_000
REQUESTS = 8


def until_claimed(stack, claimed):
    """Waits until one more operation than before is in progress."""
    if not wait_until(lambda: stack.in_progress() > claimed, stack.patience, pause=0.1):
        raise SystemExit("the function claims nothing")


def until_empty(stack, part):
    return wait_until(lambda: stack.messages(f"{part}QueueUrl") == 0, stack.patience * 2)


@contextlib.contextmanager
def changed(stack, part, **variables):
    """Deploys a function with changed variables, and restores them."""
    before = stack.variables(part)
    stack.deploy_variables(part, {**before, **variables})
    try:
        yield
    finally:
        stack.deploy_variables(part, before)


def test_overlapping_deliveries(stack, check):
    say("two deliveries at once: an order is sent again while the function runs it")
    body, claimed, refused = order(delay_ms=DELAY_MS), stack.in_progress(), stack.sum_of("InProgress")
    stack.send("OrdersQueueUrl", body)
    until_claimed(stack, claimed)
    stack.send("OrdersQueueUrl", body)
    wait_until(lambda: stack.ledger()[body["order_id"]] > 0, stack.patience)
    check.equal("both messages are deleted", until_empty(stack, "Orders"), True)
    check.equal("the second was refused while the first ran", stack.sum_of("InProgress") > refused, True)
    check.equal("executions of the order", stack.ledger()[body["order_id"]], 1)
    check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_killed_function(stack, check):
    say("kill -9: a function dies mid-batch, after three of its four orders")
    slow, quick = order(delay_ms=DELAY_MS), [order() for _ in range(3)]
    claimed, completed, replayed = stack.in_progress(), stack.completed(), stack.sum_of("Replayed")
    # Redeliveries while the dead function's lease lasts are receives, too.
    with stack.visibility("Orders", 15):
        stack.send_together("Orders", [slow, *quick])
        three = lambda: stack.completed() == completed + 3 and stack.in_progress() == claimed + 1
        check.equal("three orders are completed, and one is in progress", wait_until(three, stack.patience, pause=0.05), True)
        check.equal("processes were killed", stack.kill("Orders") > 0, True)
        check.equal("executions of the order in progress", stack.ledger()[slow["order_id"]], 0)
        wait_until(lambda: stack.ledger()[slow["order_id"]] > 0, stack.patience * 2)
        check.equal("all messages are deleted", until_empty(stack, "Orders"), True)
    ledger = stack.ledger()
    check.equal("executions of each order", [ledger[body["order_id"]] for body in (slow, *quick)], [1] * 4)
    check.equal("orders replayed", stack.sum_of("Replayed") - replayed, 3)
    check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_failing_fifo_head(stack, check):
    say("FIFO: the first of a seller's payouts fails permanently, and those behind it wait until it is dead-lettered")
    seller = f"seller-{uuid.uuid4()}"

    def payout(**more):
        return {"payout_id": str(uuid.uuid4()), "seller_id": seller, "amount_cents": 4990, "currency": "EUR", **more}

    def paid():
        return [row["key"] for row in stack.rows() if row["party_id"] == seller]

    early = []

    def is_dead_lettered():
        # Read before the queue, so that they were paid before the move.
        found = paid()
        if stack.messages("PayoutsDeadLettersUrl") == 0:
            early.extend(found)
            return False
        return True

    head, behind = payout(simulate={"outcome": "transient"}), [payout(), payout()]
    send = lambda body: stack.send("PayoutsQueueUrl", body, MessageGroupId=seller, MessageDeduplicationId=str(uuid.uuid4()))
    failed = stack.sum_of("FailedTransient")
    with stack.visibility("Payouts", 2):
        send(head)
        # Messages that are received as often as the first would be dead-lettered with it.
        wait_until(lambda: stack.sum_of("FailedTransient") > failed, stack.patience)
        for body in behind:
            send(body)
        check.equal("the first is dead-lettered", wait_until(is_dead_lettered, stack.patience * 2), True)
        check.equal("payouts before that", early, [])
        wait_until(lambda: len(paid()) == 2, stack.patience)
        check.equal("no message is left in the queue", until_empty(stack, "Payouts"), True)
    check.equal("those behind it are paid in order", paid() == [body["payout_id"] for body in behind], True)
    check.equal("messages in the dead-letter queue", stack.messages("PayoutsDeadLettersUrl"), 1)
    stack.sqs.purge_queue(QueueUrl=stack.outputs["PayoutsDeadLettersUrl"])


def test_concurrent_charges(stack, check):
    say("charges: the same request several times at once, and the same key with another amount")
    customer, key = f"customer-{uuid.uuid4()}", str(uuid.uuid4())
    send = lambda **more: stack.charge(customer, key, simulate={"delay_ms": 1000}, **more)
    with changed(stack, "Charges", ALLOW_SIMULATION="1"):
        with ThreadPoolExecutor(REQUESTS) as pool:
            found = [sent.result() for sent in [pool.submit(send) for _ in range(REQUESTS)]]
        made = [answer for answer in found if answer[0] == 201]
        refused = [answer for answer in found if answer[0] == 409]
        check.equal("each request is answered with the charge or a conflict", len(made) + len(refused), REQUESTS)
        check.equal("requests in conflict", len(refused) > 0, True)
        check.equal("responses that are no replay",
                    sum(answer[1].get("Idempotency-Replayed") != "true" for answer in made), 1)
        late = send()
        check.equal("a later retry is a replay", (late[0], late[1].get("Idempotency-Replayed")), (201, "true"))
        check.equal("all responses are equal", {answer[2] for answer in made} == {late[2]}, True)
        other = send(amount_cents=1)
        check.equal("another amount with the key", (other[0], json.loads(other[2]).get("code")), (422, "key_reused"))
    check.equal("executions of the charge", stack.charges_of(customer), 1)


def test_dead_store(stack, check):
    say("a dead store: its table disappears under running functions, which run nothing until it is back")
    first, body, customer = order(), order(), f"customer-{uuid.uuid4()}"
    # A function that starts without its table fails at once, so these start now.
    stack.send("OrdersQueueUrl", first)
    check.equal("the first charge", stack.charge(customer, str(uuid.uuid4()))[0], 201)
    check.equal("the first order is executed", wait_until(lambda: stack.ledger()[first["order_id"]] == 1, stack.patience), True)
    until_empty(stack, "Orders")
    errors, key = stack.sum_of("StoreErrors"), str(uuid.uuid4())
    executions = lambda: (stack.ledger()[body["order_id"]], stack.charges_of(customer) - 1)
    with stack.without_table():
        stack.send("OrdersQueueUrl", body)
        seen = wait_until(lambda: stack.sum_of("StoreErrors") > errors, stack.patience, pause=0.5)
        check.equal("the metric StoreErrors shows it", seen, True)
        status, _, answer = stack.charge(customer, key)
        check.equal("the second charge", (status, json.loads(answer).get("code")), (503, "unavailable"))
        check.equal("executions without the table", executions(), (0, 0))
        check.equal("messages in the queue", stack.messages("OrdersQueueUrl"), 1)
    check.equal("the retried charge", stack.charge(customer, key)[0], 201)
    check.equal("the message is deleted", until_empty(stack, "Orders"), True)
    check.equal("executions", executions(), (1, 1))
    check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_dead_letters(stack, check):
    say("poison: a version of the function cannot read an order; the next one can, and `lambda-once dlq redrive` brings it back")
    body = order(delay_ms=1)
    with stack.visibility("Orders", 1), changed(stack, "Orders", ALLOW_SIMULATION="0"):
        stack.send("OrdersQueueUrl", body)
        moved = wait_until(lambda: stack.messages("OrdersDeadLettersUrl") == 1, stack.patience * 2)
        check.equal("the order is dead-lettered", moved, True)
        check.equal("executions before the fix", stack.ledger()[body["order_id"]], 0)
    dlq = lambda *arguments: stack.tool("dlq", *arguments, "--function", stack.outputs["OrdersFunctionName"], "--selector", "/order_id")
    listed = [json.loads(line) for line in dlq("list", "--json").splitlines()]
    check.equal("states in `dlq list`", Counter(line["state"] for line in listed), {"absent": 1})
    dlq("redrive", "--yes")
    check.equal("the dead-letter queue is empty", wait_until(lambda: stack.messages("OrdersDeadLettersUrl") == 0, stack.patience), True)
    check.equal("the order is executed", wait_until(lambda: stack.ledger()[body["order_id"]] == 1, stack.patience), True)
    check.equal("its message is deleted", until_empty(stack, "Orders"), True)
    check.equal("executions of the order", stack.ledger()[body["order_id"]], 1)


def test_all(stack, check):
    with check.section("two deliveries at once"):
        test_overlapping_deliveries(stack, check)
    if stack.is_local:
        with check.section("kill -9 mid-batch"):
            test_killed_function(stack, check)
        with check.section("dead store"):
            test_dead_store(stack, check)
    with check.section("failing head of a FIFO group"):
        test_failing_fifo_head(stack, check)
    with check.section("concurrent charges, another body"):
        test_concurrent_charges(stack, check)
    with check.section("poison, fix, redrive"):
        test_dead_letters(stack, check)
