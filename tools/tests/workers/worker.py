"""Runs operations with AWS Powertools for Python: one request per line on standard input, its response on standard output.

Requests and responses are JSON. Values of operations (data, results) are JSON texts within them, so that only Powertools reads or
writes them. tests/powertools/worker.rs sends the requests.
"""

import json
import queue
import sys
import threading
import warnings

import boto3
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent, idempotent_function
from aws_lambda_powertools.utilities.idempotency.persistence.base import BasePersistenceLayer, _IdempotencyKeyEncoder
from aws_lambda_powertools.utilities.jmespath_utils import query

warnings.simplefilter("ignore")


class Context:
    """The part of a Lambda context that Powertools uses."""

    def __init__(self, remaining):
        self.remaining = remaining

    def get_remaining_time_in_millis(self):
        return self.remaining


class Failed(Exception):
    """The error of the handler."""


class Hasher(DynamoDBPersistenceLayer):
    """Powertools' own hash, without a table."""

    def __init__(self):
        BasePersistenceLayer.__init__(self)
        self.configure(IdempotencyConfig(), key_prefix="p")


class Run:
    """A call of an idempotent function, which may be held while it runs."""

    def __init__(self, request):
        self.request = request
        self.ran = False
        self.entered = threading.Event()
        self.goes_on = threading.Event()
        self.answer = queue.Queue()
        if not request.get("hold"):
            self.goes_on.set()

    def work(self):
        self.ran = True
        self.entered.set()
        self.goes_on.wait()
        if self.request.get("fails"):
            raise Failed
        return json.loads(self.request["result"])

    def call(self):
        request = self.request
        options = request.get("options", {})
        layer = DynamoDBPersistenceLayer(
            table_name=request["table"],
            boto3_client=boto3.client("dynamodb", endpoint_url=request["endpoint"]),
            **request.get("layer", {}),
        )
        config = IdempotencyConfig(**options)
        if request.get("remaining") is not None:
            config.register_lambda_context(Context(request["remaining"]))
        data = json.loads(request["data"])
        prefix = request.get("prefix")
        if prefix is None:

            @idempotent(persistence_store=layer, config=config)
            def handler(event, context):
                return self.work()

            remaining = request.get("remaining")
            return handler(data, Context(remaining if remaining is not None else 30_000))

        @idempotent_function(
            data_keyword_argument="data", persistence_store=layer, config=config, key_prefix=prefix
        )
        def function(data):
            return self.work()

        return function(data=data)

    def run(self):
        try:
            answer = {"result": json.dumps(self.call())}
        except Exception as error:  # the test gets the name of any error
            answer = {"error": type(error).__name__}
        self.entered.set()
        self.answer.put({**answer, "ran": self.ran})


def texts(request):
    data = json.loads(request["data"])
    return {
        "text": json.dumps(data, cls=_IdempotencyKeyEncoder, sort_keys=True),
        "hash": Hasher()._generate_hash(data),
    }


def expression(request):
    try:
        return {"found": json.dumps(query(json.loads(request["data"]), request["expression"]))}
    except Exception as error:
        return {"error": type(error).__name__}


def main():
    held = {}
    for line in sys.stdin:
        request = json.loads(line)
        match request["do"]:
            case "text":
                answer = texts(request)
            case "expression":
                answer = expression(request)
            case "run":
                run = Run(request)
                threading.Thread(target=run.run, daemon=True).start()
                if request.get("hold"):
                    run.entered.wait()
                    held[request["hold"]] = run
                    # A call that ended without running was refused.
                    answer = {"ran": run.ran} if run.ran else run.answer.get()
                else:
                    answer = run.answer.get()
            case "resume":
                run = held.pop(request["held"])
                run.goes_on.set()
                answer = run.answer.get()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
