"""Checks docs/openapi-idempotency.yaml: python3 -m tools.setup.with_tools openapi -- python -m tools.checks.openapi

- It is a valid OpenAPI document with valid schemas, and each example matches its schema.
- Its codes are those of src/http/problem.rs, each in an example of the response in which the library sends it.
"""

import re
import sys
from http import HTTPStatus

import jsonschema
import yaml
from openapi_spec_validator import validate

from tools.lib.common import ROOT

DOCUMENT = ROOT / "docs" / "openapi-idempotency.yaml"
PROBLEMS = ROOT / "src" / "http" / "problem.rs"
# Python uses different names for this status.
STATUSES = {"PAYLOAD_TOO_LARGE": 413}


def sent():
    """Returns the status and `retryable` of each code that the library sends."""
    found = {}
    for made in PROBLEMS.read_text().split("Self::new(")[1:]:
        status, code = re.match(r'\s*StatusCode::(\w+),\s*"(\w+)"', made).groups()
        # The code up to the end of the item, without texts, which may contain semicolons and span several lines.
        calls = re.split("[;}]", re.sub(r'(?s)"(\\.|[^"\\])*"', '""', made), maxsplit=1)[0]
        is_retryable = ".retryable()" in calls or ".retry_after(" in calls
        found[code] = (STATUSES.get(status) or HTTPStatus[status].value, is_retryable)
    return found


def documented(responses):
    """Returns the status and `retryable` of each code in the examples, and the contradictions there."""
    found, wrong = {}, []
    for status, response in responses:
        for name, example in response["content"]["application/problem+json"]["examples"].items():
            value = example["value"]
            found[value["code"]] = (value["status"], value["retryable"])
            if (name, status) != (value["code"], value["status"]):
                wrong.append(f"the example {name} of {status} has code {value['code']} and status {value['status']}")
    return found, wrong


def schemas(node):
    """Yields the schemas at or below a part of the document."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from [value] if name == "schema" else schemas(value)


def main():
    document = yaml.safe_load(DOCUMENT.read_text())
    validate(document)
    components = document["components"]
    # The validator above accepts any object as a schema.
    for schema in [*components["schemas"].values(), *schemas(document)]:
        jsonschema.Draft202012Validator.check_schema(schema)
    responses = [
        (int(status), components["responses"][response["$ref"].rpartition("/")[2]])
        for path in document["paths"].values()
        for status, response in path["post"]["responses"].items()
        if "$ref" in response
    ]
    wrong = []
    if len(responses) != len(components["responses"]):
        wrong.append("a response is not in the example path")
    problem = jsonschema.Draft202012Validator(components["schemas"]["Problem"])
    for _, response in responses:
        for name, example in response["content"]["application/problem+json"]["examples"].items():
            wrong += [f"the example {name}: {error.message}" for error in problem.iter_errors(example["value"])]
    key = components["parameters"]["IdempotencyKey"]
    for name, example in key["examples"].items():
        if not jsonschema.Draft202012Validator(key["schema"]).is_valid(example["value"]):
            wrong.append(f"the key {name} does not match its schema")

    in_examples, contradictions = documented(responses)
    wrong += contradictions
    codes, library = problem.schema["properties"]["code"]["enum"], sent()
    if codes != sorted(library):
        wrong.append(f"the schema's codes are not the sorted codes of the library: {sorted(set(codes) ^ set(library))}")
    for code in sorted(library.keys() | in_examples.keys()):
        if library.get(code) != in_examples.get(code):
            wrong.append(f"{code}: the library has {library.get(code)}, the example {in_examples.get(code)}")
    for message in wrong:
        print(f"{DOCUMENT.name}: {message}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
