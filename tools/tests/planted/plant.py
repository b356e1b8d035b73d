"""A mutation of the sources: a rule, the bug, its place, and the tests that must fail with it.

The place is a file below src/, a text that occurs once in it, and its replacement. The tests are a test binary and filters of its tests,
as for `cargo test`. `lib` is the unit tests.
"""

from typing import NamedTuple


class Plant(NamedTuple):
    rule: str
    bug: str
    file: str
    old: str
    new: str
    tests: str


ORDERING = "store/ordering.rs"
RULES = "store/rules.rs"
FINGERPRINT = "record/fingerprint.rs"
MARK_LUA = "store/redis/mark.lua"
SETTLE_LUA = "store/redis/settle.lua"
SETTLE_SQL = "store/postgres/settle.sql"
LISTING = "store/listing.rs"
AMEND_LUA = "store/redis/amend.lua"
WRITE_MARK_SQL = "store/postgres/write_mark.sql"
POSTGRES_ORDERED = "store/postgres/ordered.rs"
POSTGRES_TRANSACTION = "store/postgres/transaction.rs"
POSTGRES_ROLLBACK = "store/postgres/rollback.rs"
DYNAMODB_MARK = "store/dynamodb/mark.rs"
DYNAMODB_ORDERED = "store/dynamodb/single/ordered.rs"
DYNAMODB_COMMIT = "store/dynamodb/single/commit.rs"
DYNAMODB_TRANSACTION = "store/dynamodb/single/transaction.rs"
DYNAMODB_EXPRESSIONS = "store/dynamodb/single/expressions.rs"
COMMITTING = "idempotency/engine/committing.rs"
HEARTBEAT = "idempotency/engine/heartbeat.rs"

# The memory store uses only the shared rules, so the suite finds every bug in them there.
MEMORY = "lib store::memory::"


def suite(store, *checks):
    """Returns the tests for these checks of the conformance suite on a store."""
    return " ".join(["stores", *(f"conformance::{store}::{check}" for check in checks)])
