"""Checks the infrastructure below iac/: python3 -m tools.setup.with_tools iac sam -- python -m tools.checks.iac

* cfn-lint accepts its templates and the resources in the README, and an HCL parser accepts its Terraform files.
* The Terraform module uses each variable that it declares, and its example sets no undeclared one.
* Alarms and dashboards read metrics that the library or AWS emits.
* template.yaml grants its functions no permission on the idempotency table that the policy lacks.
* The operator's policy grants what `lambda-once table policy operator --ordered` prints, and writes nothing but records and messages.
  Only actions without resource-level permissions are granted on every resource.
"""

import json
import re
import subprocess
import sys
import textwrap

from tools.lib.common import ROOT

IAC = ROOT / "iac"
MODULE = IAC / "terraform"
EMF = ROOT / "src/telemetry/emf.rs"
POLICY = ROOT / "cli/src/policy.rs"
# The parts that an operator may change.
WRITES = {
    "dynamodb:UpdateItem", "dynamodb:DeleteItem",
    "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:SendMessage",
}
# https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html
WITHOUT_RESOURCES = {"lambda:ListEventSourceMappings", "tag:GetResources"}
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
OF_AWS = {"Invocations", "Errors", "Throttles", "ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"}


def template_of_readme():
    """Returns a SAM template with the resources in the README."""
    resources = re.search(r"^```yaml\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    file = ROOT / "target" / "readme.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"Transform: AWS::Serverless-2016-10-31\nResources:\n{textwrap.indent(resources, '  ')}")
    return file


def templates():
    files = [*sorted(IAC.glob("*.yaml")), template_of_readme()]
    if subprocess.run(["cfn-lint", "--regions", "us-east-1", "--", *files]).returncode:
        yield "cfn-lint rejects a template"


def terraform():
    import hcl2

    parsed = {file: hcl2.loads(file.read_text()) for file in sorted(MODULE.rglob("*.tf"))}
    text = "".join(file.read_text() for file in MODULE.glob("*.tf"))
    unquoted = lambda name: name.strip('"')
    declared = {unquoted(name) for tree in parsed.values() for block in tree.get("variable", []) for name in block}
    for name in sorted(declared):
        if not re.search(rf"\bvar\.{name}\b", text):
            yield f"iac/terraform: nothing uses the variable {name}"
    for name in sorted(set(re.findall(r"\bvar\.(\w+)", text)) - declared):
        yield f"iac/terraform: the variable {name} is not declared"
    outputs = {unquoted(name) for tree in parsed.values() for block in tree.get("output", []) for name in block}
    example = (MODULE / "example/main.tf").read_text()
    for name in sorted(set(re.findall(r"\bmodule\.idempotency\.(\w+)", example)) - outputs):
        yield f"iac/terraform/example: the module has no output {name}"
    module = re.search(r'^module "idempotency" \{\n(.*?)^\}', example, re.MULTILINE | re.DOTALL)[1]
    for name in sorted(set(re.findall(r"^ *(\w+) *=", module, re.MULTILINE)) - declared - {"source"}):
        yield f"iac/terraform/example: the module has no variable {name}"


def emitted():
    """Returns the names of the library's metrics."""
    names = set(re.findall(r'"([A-Z]\w+)"', EMF.read_text()))
    return names - {"Name", "Unit", "Count", "Milliseconds", "Function", "Operation", "Namespace", "Dimensions", "Metrics", "Timestamp"}


def metrics():
    text = (IAC / "monitoring.yaml").read_text()
    read = set(re.findall(r"^ *MetricName: (\w+)$", text, re.MULTILINE)) | set(re.findall(r'\["[^"]+", "(\w+)"', text))
    if not read:
        yield "iac/monitoring.yaml reads no metric"
    for name in sorted(read - emitted() - OF_AWS):
        yield f"iac/monitoring.yaml: nothing emits {name}"


def granted_by(policy, resource=None):
    """Returns the actions that a policy allows, if a resource is given only those on it."""
    allowed = set()
    for statement in json.loads((IAC / "policies" / policy).read_text())["Statement"]:
        resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        if statement["Effect"] == "Allow" and resource in (None, *resources):
            allowed.update(statement["Action"])
    return allowed


def operator():
    granted = granted_by("operator.json")
    text = POLICY.read_text().partition("#[cfg(test)]")[0]
    groups = dict(re.findall(r"^const (\w+): [^=]*=\s*(.*?);", text, re.MULTILINE | re.DOTALL))
    for group in ("RECORDS", "READS", "TABLE", "ORDERED"):
        for action in sorted(set(re.findall(r'"(\w+:\w+)"', groups[group])) - granted):
            yield f"iac/policies/operator.json lacks {action}, which the operator's tool prints"
    for action in sorted(granted - WRITES):
        if not re.search(r":(Get|List|Describe|ConditionCheckItem$|PartiQLSelect$|Scan$|Query$)", action):
            yield f"iac/policies/operator.json grants {action}"
    for action in sorted(granted_by("operator.json", "*") - WITHOUT_RESOURCES):
        yield f"iac/policies/operator.json grants {action} on every resource"


def permissions():
    granted = granted_by("function.json")
    statements = re.findall(r"- Sid: Claims\n(.*?)Resource: !GetAtt IdempotencyTable\.Arn", (ROOT / "template.yaml").read_text(), re.DOTALL)
    if not statements:
        yield "template.yaml grants no permissions for claims"
    for action in sorted({action for text in statements for action in re.findall(r"- (dynamodb:\w+)", text)} - granted):
        yield f"template.yaml grants {action}, which iac/policies/function.json does not"


def main():
    problems = [problem for check in (templates, terraform, metrics, permissions, operator) for problem in check()]
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
