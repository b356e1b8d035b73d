"""The end-to-end test on AWS: python3 -m tools.scenarios.e2e_aws PROFILE [REGION]

Builds the functions with SAM, deploys template.yaml to the account of an AWS profile, in a stack with a new name, and runs the
scenarios of deployed.py and deployed_faults.py, apart from those that need a local stack. Then it denies the functions each permission
in turn. An operation must wait or take effect, and must have taken effect once after the permission is restored. The stack is deleted
in every case. If everything passed, the Region and the date are written to the README's status.

It takes about 40 minutes. The stack has two queues, two on-demand tables, three functions and alarms. Some hundred messages and
requests and an hour of metrics cost less than 0.50 USD.
"""

import contextlib
import datetime
import json
import os
import re
import sys
import time
import uuid
from pathlib import Path

from tools.lib.common import ROOT, exit_on_signals, install, must, path_with, say, wait_until
from tools.scenarios import deployed, deployed_faults

# Changes of a role usually reach DynamoDB within seconds, but may take longer.
PROPAGATION_S = 120
POLICY = "lambda-once-e2e"
STATUS = re.compile(r"^\*\*Status:\*\* (.*?)[Tt]ested on .*$", re.MULTILINE)
TESTED = "DynamoDB Local and MiniStack, Valkey, Redis and PostgreSQL"


class OnAws(deployed.Stack):
    patience = 300

    def __init__(self, session, name, env):
        super().__init__(session, name, env)
        self.logs, self.roles = session.client("logs"), session.client("iam")
        tables = session.client("dynamodb")
        self.table_arn = tables.describe_table(TableName=self.outputs["IdempotencyTableName"])["Table"]["TableArn"]

    def api(self):
        return self.outputs["ChargesUrl"].removesuffix("/charges")

    def function(self, part):
        return self.functions.get_function_configuration(FunctionName=self.outputs[f"{part}FunctionName"])

    def lines(self, part, text, since_ms=0):
        """Returns the messages of a function's log that contain a text."""
        group = self.function(part)["LoggingConfig"]["LogGroup"]
        pages = self.logs.get_paginator("filter_log_events").paginate(
            logGroupName=group, filterPattern=f'"{text}"', startTime=since_ms
        )
        return [event["message"] for page in pages for event in page["events"]]

    def metrics(self):
        """Waits for the metrics, because CloudWatch Logs returns a function's output after some seconds."""
        found = lambda: [json.loads(line) for part in ("Orders", "Payouts") for line in self.lines(part, "_aws")]
        wait_until(lambda: len({line["Function"] for line in found()}) == 2, PROPAGATION_S, pause=5)
        return found()

    def role(self, part):
        return self.function(part)["Role"].rsplit("/", 1)[1]

    def allowed(self, part):
        """Returns the actions on the idempotency table that the template allows a function."""
        role, actions = self.role(part), set()
        for name in self.roles.list_role_policies(RoleName=role)["PolicyNames"]:
            document = self.roles.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
            for statement in document["Statement"]:
                if statement.get("Sid") == "Claims":
                    actions.update(statement["Action"])
        return sorted(actions)

    @contextlib.contextmanager
    def denying(self, part, action):
        statement = {"Effect": "Deny", "Action": action, "Resource": self.table_arn}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        role = self.role(part)
        self.roles.put_role_policy(RoleName=role, PolicyName=POLICY, PolicyDocument=document)
        try:
            yield
        finally:
            self.roles.delete_role_policy(RoleName=role, PolicyName=POLICY)


def test_permissions_of_orders(stack, check):
    """Ten orders and one that fails at first use every action: batched and single claims and outcomes, and a release."""
    actions = stack.allowed("Orders")
    check.equal("actions that the template allows the orders", len(actions), 7)
    # Longer than the wait for a denial, so that no order is dead-lettered meanwhile.
    stack.set_visibility("Orders", 45)
    for action in actions:
        say(f"orders without {action}")
        orders = [deployed.order(outcome="transient", until_receive=1), *(deployed.order() for _ in range(10))]
        since_ms = int(time.time() * 1000)
        with stack.denying("Orders", action):
            for body in orders:
                stack.send("OrdersQueueUrl", body)
            denied = f"not authorized to perform: {action}"
            is_seen = wait_until(lambda: stack.lines("Orders", denied, since_ms), PROPAGATION_S, pause=5)
            say(f"the log {'contains' if is_seen else 'does not contain'} the denied action")
            # Without it nothing is claimed. Whether the others are used depends on how SQS batches the messages.
            if action == "dynamodb:UpdateItem":
                check.equal(f"{action} is denied, and the log contains it", is_seen, True)
            ledger = stack.ledger()
            check.equal(f"orders that took effect twice without {action}",
                        sum(ledger[body["order_id"]] > 1 for body in orders), 0)
        wait_until(lambda: stack.messages("OrdersQueueUrl") == 0, 600, pause=5)
        ledger = stack.ledger()
        check.equal(f"orders that took effect once, with {action} again",
                    sum(ledger[body["order_id"]] == 1 for body in orders), len(orders))
        check.equal("messages in the dead-letter queue", stack.messages("OrdersDeadLettersUrl"), 0)


def test_permissions_of_charges(stack, check):
    """Without the permission a charge is refused or made. A retry with the permission finds one charge."""
    actions = stack.allowed("Charges")
    check.equal("actions that the template allows the charges", len(actions), 3)
    for action in actions:
        say(f"charges without {action}")
        customer, key = f"customer-{uuid.uuid4()}", str(uuid.uuid4())
        send = lambda: stack.charge(customer, key)[0]
        with stack.denying("Charges", action):
            time.sleep(15)
            check.equal(f"status without {action} is 201, 409 or 503", send() in (201, 409, 503), True)
        check.equal(f"the retry with {action} succeeds", wait_until(lambda: send() == 201, PROPAGATION_S, pause=5), True)
        check.equal("executions of the charge", stack.charges_of(customer), 1)


def write_status(region):
    """Replaces the status line of the README, which contains the tested Region and date."""
    readme = ROOT / "README.md"
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    line = rf"**Status:** \1Tested on AWS ({region}, {today}), {TESTED}."
    text, count = STATUS.subn(line, readme.read_text())
    if count != 1:
        sys.exit("the README has no status line")
    readme.write_text(text)
    say(f"README.md: {STATUS.search(text)[0]}")


def environment(session, env):
    """Returns variables by which a program gets the session's account and Region, whatever the profile is."""
    credentials = session.get_credentials().get_frozen_credentials()
    found = {name: value for name, value in env.items() if not name.startswith("AWS_")}
    found |= {
        "AWS_ACCESS_KEY_ID": credentials.access_key, "AWS_SECRET_ACCESS_KEY": credentials.secret_key, "AWS_REGION": session.region_name,
    }
    return {**found, "AWS_SESSION_TOKEN": credentials.token} if credentials.token else found


def main():
    exit_on_signals()
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    profile, *region = sys.argv[1:]
    tools = [install(group) for group in ("cargo-lambda", "sam")]
    if Path(sys.prefix) != tools[1].parent:
        # boto3 is part of SAM, so continue in its environment.
        os.execv(tools[1] / "python", [str(tools[1] / "python"), "-m", "tools.scenarios.e2e_aws", *sys.argv[1:]])
    import boto3

    session = boto3.Session(profile_name=profile, region_name=region[0] if region else None)
    if not session.region_name:
        sys.exit(f"the profile {profile} has no Region; specify one")
    account = session.client("sts").get_caller_identity()["Account"]
    name = f"lambda-once-e2e-{uuid.uuid4().hex[:8]}"
    say(f"account {account}, {session.region_name}: deploying the stack {name}, which is deleted at the end")
    where = ["--profile", profile, "--region", session.region_name]
    env = {**os.environ, "PATH": path_with(*tools), "CARGO_TARGET_DIR": str(ROOT / "target"), "SAM_CLI_TELEMETRY": "0"}
    check = deployed.Checks()
    must(["sam", "build"], cwd=ROOT, env=env)
    try:
        must(["sam", "deploy", "--stack-name", name, "--no-confirm-changeset", *where], cwd=ROOT, env=env)
        stack = OnAws(session, name, environment(session, env))
        deployed.test_all(stack, check)
        deployed_faults.test_all(stack, check)
        with check.section("orders without each permission"):
            test_permissions_of_orders(stack, check)
        with check.section("charges without each permission"):
            test_permissions_of_charges(stack, check)
    finally:
        check.print_table()
        must(["sam", "delete", "--stack-name", name, "--no-prompts", *where], cwd=ROOT, env=env)
    if check.failed:
        sys.exit(f"e2e on AWS: {check.failed} checks failed")
    write_status(session.region_name)


if __name__ == "__main__":
    main()
