"""Real servers for tests, without root, Docker or an account: installed below .venv/ and target/, stopped when their block is left.

Each is a context manager whose value has a `url`.
"""

from .dynamodb import DynamoDbLocal
from .pgbouncer import PgBouncer
from .postgres import Postgres
from .valkey import Valkey, ValkeyCluster

__all__ = ["DynamoDbLocal", "PgBouncer", "Postgres", "Valkey", "ValkeyCluster"]
