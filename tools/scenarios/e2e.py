"""The end-to-end test, which deploys template.yaml to MiniStack, a local AWS endpoint, and runs the scenarios of deployed.py.

Linux only, because MiniStack runs the functions' binaries as processes of this machine.

The functions are those that `make test` and `make demo` build. With --sam-build, `sam build` builds them, as for a deployment. With
--all, the scenarios of deployed_faults.py follow, which take minutes.
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tools.lib.common import (
    ROOT, Background, answers, exit_on_signals, free_port, install, must, path_with, say, wait_until,
)
from tools.scenarios import deployed, deployed_faults
from tools.scenarios.functions import ARCHITECTURE, WORK, for_this_machine, package, sam, sam_build
from tools.servers.ministack import settings

STACK = "lambda-once-e2e"


def local_aws(endpoint):
    """Returns an environment in which no AWS tool can reach a real account."""
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


def deploy(template, env):
    say("deploying template.yaml")
    sam(["deploy", "--template-file", template, "--stack-name", STACK,
         "--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset", *for_this_machine()],
        env, WORK / "deploy.log")


class OnMiniStack(deployed.Stack):
    is_local = True

    def __init__(self, endpoint, env, log):
        import boto3  # from .venv/sam, in which main() runs

        session = boto3.Session(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"], region_name=env["AWS_REGION"])
        super().__init__(session, STACK, env, endpoint)
        self.endpoint, self.log = endpoint, log

    def api(self):
        return f"{self.endpoint}/restapis/{self.outputs['ChargesApiId']}/live/_user_request_"

    def metrics(self):
        """Reads MiniStack's log, which lacks the output of functions that its API invokes."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{") and '"_aws"' in line]

    @contextlib.contextmanager
    def without_table(self):
        """Deletes the table of records, and creates it again at the end."""
        name = self.outputs["IdempotencyTableName"]
        client = self.table(name).meta.client
        table = client.describe_table(TableName=name)["Table"]
        client.update_table(TableName=name, DeletionProtectionEnabled=False)
        client.delete_table(TableName=name)
        try:
            yield
        finally:
            client.create_table(
                TableName=name, KeySchema=table["KeySchema"], AttributeDefinitions=table["AttributeDefinitions"],
                BillingMode="PAY_PER_REQUEST",
            )
            client.update_time_to_live(
                TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiration"}
            )

    def send_together(self, part, bodies):
        """Sends messages that the function gets in one batch, while its mapping is disabled."""
        name = self.outputs[f"{part}FunctionName"]
        mapping, = self.functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
        enable = lambda enabled: self.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=enabled)
        enable(False)
        try:
            entries = [{"Id": str(place), "MessageBody": json.dumps(body)} for place, body in enumerate(bodies)]
            self.sqs.send_message_batch(QueueUrl=self.outputs[f"{part}QueueUrl"], Entries=entries)
        finally:
            enable(True)

    def kill(self, part):
        """Kills the processes of a function, and returns their number. Only they have these variables."""
        killed, name = 0, self.outputs[f"{part}FunctionName"]
        variables = {f"AWS_LAMBDA_FUNCTION_NAME={name}", f"AWS_ENDPOINT_URL={self.endpoint}"}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                found = set((process / "environ").read_bytes().decode(errors="replace").split("\0"))
                if variables <= found:
                    os.kill(int(process.name), signal.SIGKILL)
                    killed += 1
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                # It has ended, or it belongs to another user.
                continue
        return killed


def doctor(stack):
    """Returns the number of findings of the operator's tool by code, without notes."""
    output = stack.tool("doctor", "--stack", STACK, "--p99", "2s", "--redrive-within", "10d", "--severity", "warning", "--json")
    lines = map(json.loads, output.splitlines())
    return Counter(line["code"] for line in lines if line["kind"] == "finding")


def test(stack, check, options):
    say("doctor: before and after the test shortens the visibility timeouts of both queues")
    with check.section("doctor: the template as deployed"):
        check.equal("misconfigurations of template.yaml", doctor(stack), {})
    deployed.test_all(stack, check)
    with check.section("doctor: shortened visibility timeouts"):
        check.equal("misconfigurations", doctor(stack), {"visibility-timeout-short": 2, "lease-outlasts-receives": 2})
    if "--all" in options:
        deployed_faults.test_all(stack, check)


def main():
    exit_on_signals()
    options = set(sys.argv[1:])
    if options - {"--sam-build", "--all"}:
        sys.exit(__doc__)
    if sys.platform != "linux" or platform.machine() not in ARCHITECTURE:
        sys.exit("make e2e needs Linux on x86-64 or arm64")
    tools = [install(group) for group in ("sam", "ministack")]
    if Path(sys.prefix) != tools[0].parent:
        # boto3 is part of SAM, so continue in its environment.
        os.execv(tools[0] / "python", [str(tools[0] / "python"), "-m", "tools.scenarios.e2e", *sys.argv[1:]])
    if "--sam-build" in options:
        # First, because its Python is the one with Zig.
        tools.insert(0, install("cargo-lambda"))

    started = time.monotonic()
    shutil.rmtree(WORK / "tmp", ignore_errors=True)
    (WORK / "tmp").mkdir(parents=True)
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    env = {**local_aws(endpoint), "PATH": path_with(*tools)}
    template = sam_build(env) if "--sam-build" in options else package()

    say("starting MiniStack")
    log = WORK / "ministack.log"
    ministack = {**env, **settings(port), "TMPDIR": str(WORK / "tmp")}
    check = deployed.Checks()
    with open(log, "w") as output:
        with Background(["ministack"], cwd=WORK, env=ministack, stdout=output, stderr=subprocess.STDOUT) as process:
            if not wait_until(lambda: answers(f"{endpoint}/_ministack/health"), 60, process):
                sys.exit(f"MiniStack did not start; end of its log:\n{log.read_text()[-2000:]}")
            deploy(template, env)
            stack = OnMiniStack(endpoint, env, log)
            try:
                test(stack, check, options)
            finally:
                check.print_table()
    seconds = round(time.monotonic() - started)
    if check.failed:
        sys.exit(f"e2e: {check.failed} checks failed after {seconds} s; the functions' logs are in {log}")
    print(f"e2e: all checks passed in {seconds} s")


if __name__ == "__main__":
    main()
