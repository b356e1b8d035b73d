"""The end-to-end test: deploys template.yaml onto MiniStack, a local AWS endpoint, and uses what was deployed.

Duplicate and failing orders and payouts go through the real queues and event source mappings, a retried charge through
the REST API. The ledger then tells how often each operation was executed, and in which order. Linux only: MiniStack
runs the functions' binaries as processes of this machine.

The functions are those that `make test` and `make demo` build. With --sam-build, `sam build` builds them, as for a deployment.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from pathlib import Path

from tools.lib import builds
from tools.lib.common import (
    ROOT, Background, answers, exit_on_signals, free_port, install, must, path_with, say, wait_until,
)

STACK = "lambda-once-e2e"
WORK = ROOT / "target" / "e2e"
ARCHITECTURE = {"x86_64": "x86_64", "aarch64": "arm64"}

FUNCTIONS = ("orders", "payouts", "charges")
# A function of the template, as sam build takes it.
BUILT_BY_SAM = re.compile(r"    Metadata:\n      BuildMethod: rust-cargolambda\n      BuildProperties:\n        Binary: (\w+)\n    Properties:\n")

# Quick to compile; make build uses the profile as it is in Cargo.toml.
QUICK_RELEASE = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "1",
}


def local_aws(endpoint):
    """An environment from which no AWS tool can reach a real account."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **env,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
        "NO_PROXY": "127.0.0.1,localhost",
    }


def sam(arguments, env, log):
    """Runs SAM; what it prints is shown only if it fails."""
    with open(log, "w") as output:
        process = subprocess.run(["sam", *arguments], cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT)
    if process.returncode != 0:
        sys.exit(f"sam {arguments[0]} failed:\n{log.read_text()}")


def sam_build(env):
    say("building the functions for this machine (the first time some minutes)")
    # A directory of its own, so that sam deploy by hand never finds a binary that was built to be quick to compile.
    sam(["build", "--build-dir", WORK / "build", "--no-cached",
         "--parameter-overrides", f"Architecture={ARCHITECTURE[platform.machine()]}"],
        # SAM looks for the binaries in target/, wherever Cargo is told to put them.
        {**env, **QUICK_RELEASE, "CARGO_TARGET_DIR": str(ROOT / "target")}, WORK / "build.log")
    return WORK / "build" / "template.yaml"


def package():
    """The template, with the functions that Cargo has built in the place of those that SAM would."""
    programs = builds.programs("building the functions; the first time some minutes", ["-p", "functions"], FUNCTIONS)
    for function in FUNCTIONS:
        bootstrap = WORK / "package" / function / "bootstrap"
        bootstrap.parent.mkdir(parents=True, exist_ok=True)
        # Without the names of functions it is a tenth of the size to upload.
        must(["strip", "-o", bootstrap, programs / function])
    text, count = BUILT_BY_SAM.subn(r"    Properties:\n      CodeUri: package/\1\n", (ROOT / "template.yaml").read_text())
    if count != len(FUNCTIONS) or "BuildMethod" in text:
        sys.exit(f"template.yaml has not {len(FUNCTIONS)} functions that tools/scenarios/e2e.py knows")
    (WORK / "template.yaml").write_text(text)
    # Nested stacks.
    shutil.copytree(ROOT / "iac", WORK / "iac", dirs_exist_ok=True, ignore=shutil.ignore_patterns("terraform"))
    return WORK / "template.yaml"


def deploy(template, env):
    say("deploying template.yaml")
    sam(["deploy", "--template-file", template, "--stack-name", STACK,
         "--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset",
         "--parameter-overrides", f"Architecture={ARCHITECTURE[platform.machine()]}"],
        env, WORK / "deploy.log")


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
    """What was deployed."""

    def __init__(self, endpoint, env):
        import boto3  # from .venv/sam, in which main() runs

        session = boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], region_name=env["AWS_REGION"])
        self.endpoint = endpoint
        self.sqs = session.client("sqs", endpoint_url=endpoint)
        self.functions = session.client("lambda", endpoint_url=endpoint)
        self.alarms = session.client("cloudwatch", endpoint_url=endpoint)
        self.ledger_table = session.resource("dynamodb", endpoint_url=endpoint).Table
        stack = session.client("cloudformation", endpoint_url=endpoint).describe_stacks(StackName=STACK)["Stacks"][0]
        self.outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

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
        """Status, headers and body of one call of the REST API, by the path that MiniStack gives it."""
        url = f"{self.endpoint}/restapis/{self.outputs['ChargesApiId']}/live/_user_request_{path}"
        request = urllib.request.Request(url, body, dict(headers), method=method)
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
    wait_until(lambda: stack.messages("OrdersQueueUrl") == 0, 60)
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
    wait_until(lambda: stack.messages("PayoutsQueueUrl") == 0, 60)
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


def test_monitoring(stack, check, log):
    """The alarms on the library's metrics have the dimensions that the functions of queues write.

    MiniStack keeps no output of functions that its API invokes.
    """
    say("monitoring: alarms, and the metrics that the functions have written")
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and '"_aws"' in line]
    written = {
        (line["_aws"]["CloudWatchMetrics"][0]["Namespace"], frozenset((name, line[name]) for name in ("Function", "Operation")))
        for line in lines
    }
    alarms = stack.alarms.describe_alarms(MaxRecords=100)["MetricAlarms"]
    check.equal("alarms", Counter(alarm["Namespace"] for alarm in alarms),
                {"AWS/SQS": 4, "AWS/Lambda": 6, "lambda-once": 12})
    of_library = (alarm for alarm in alarms if not alarm["Namespace"].startswith("AWS/"))
    read = {
        (alarm["Namespace"], frozenset((dimension["Name"], dimension["Value"]) for dimension in alarm["Dimensions"]))
        for alarm in of_library
    }
    check.equal("functions of queues that have written metrics", len(written), 2)
    check.equal("metrics that no alarm reads", written - read, set())


def main():
    exit_on_signals()
    if sys.argv[1:] not in ([], ["--sam-build"]):
        sys.exit(__doc__)
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURE:
        sys.exit("make e2e needs Linux on x86-64 or arm64")
    tools = [install(group) for group in ("sam", "ministack")]
    if Path(sys.prefix) != tools[0].parent:
        # boto3 comes with SAM: go on in its environment.
        os.execv(tools[0] / "python", [str(tools[0] / "python"), "-m", "tools.scenarios.e2e", *sys.argv[1:]])
    if "--sam-build" in sys.argv[1:]:
        # First, as its Python is the one that has Zig.
        tools.insert(0, install("cargo-lambda"))

    started = time.monotonic()
    shutil.rmtree(WORK / "tmp", ignore_errors=True)
    (WORK / "tmp").mkdir(parents=True)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    env = {**local_aws(endpoint), "PATH": path_with(*tools)}
    template = sam_build(env) if "--sam-build" in sys.argv[1:] else package()

    say("starting MiniStack")
    log = WORK / "ministack.log"
    # The two listeners that are switched off would be open to the network.
    ministack = {
        **env, "BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "TMPDIR": str(WORK / "tmp"),
        "IOT_MTLS_ENABLED": "0", "SFTP_ENABLED": "0",
    }
    check = Checks()
    with open(log, "w") as output:
        with Background(["ministack"], cwd=WORK, env=ministack, stdout=output, stderr=subprocess.STDOUT) as process:
            if not wait_until(lambda: answers(f"{endpoint}/_ministack/health"), 60, process):
                sys.exit(f"MiniStack did not start; its log ends:\n{log.read_text()[-2000:]}")
            deploy(template, env)
            stack = Stack(endpoint, env)
            stack.prepare()
            test_orders(stack, check)
            test_payouts(stack, check)
            test_charges(stack, check)
            test_monitoring(stack, check, log)
    seconds = round(time.monotonic() - started)
    if check.failed:
        sys.exit(f"e2e: {check.failed} checks failed after {seconds} s; the functions' logs are in {log}")
    print(f"e2e: all checks passed in {seconds} s")


if __name__ == "__main__":
    main()
