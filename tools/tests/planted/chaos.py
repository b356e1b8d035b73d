"""Bugs in each store's statements and scripts that `python3 -m tools.tests.chaos_bugs` must find by running chaos."""

from tools.tests.planted.plant import DYNAMODB_EXPRESSIONS, SETTLE_LUA, Plant

CLAIM_LUA = "store/redis/claim.lua"
CLAIM_SQL = "store/postgres/claim.sql"
RELEASE_SQL = "store/postgres/release.sql"

# Not found in 4,000 operations.
TOO_RARE = {"Redis: a settle does not check the owner"}

CHAOS = [
    Plant("C6", "DynamoDB: a claim replaces one that stands", DYNAMODB_EXPRESSIONS,
          "AND {lease} < :lapsed \\", "AND ({lease} < :lapsed OR {lease} >= :lapsed) \\", "chaos dynamodb"),
    Plant("C8", "DynamoDB: a grant does not show that it took over", DYNAMODB_EXPRESSIONS,
          'let replaced = format!("if_not_exists({status}, :none)");', 'let replaced = ":none";', "chaos dynamodb"),
    Plant("C6", "Redis: a claim replaces one that stands", CLAIM_LUA,
          "and lease and lease < math.max(now - margin, 0)", "and lease", "chaos redis"),
    Plant("C3", "Redis: a completed record is claimed again when its lease has ended", CLAIM_LUA,
          "and status == 'INPROGRESS' and attempt", "and attempt", "chaos redis"),
    Plant("C7", "Redis: a lapsed claim is taken over under every policy", CLAIM_LUA,
          "(may_take_over == '1' or is_released) and status", "status", "chaos redis"),
    Plant("C7", "Redis: a released claim is not granted", CLAIM_LUA,
          "(may_take_over == '1' or is_released) and status", "may_take_over == '1' and status", "chaos redis"),
    Plant("C8", "Redis: a grant does not show that it took over", CLAIM_LUA,
          "and status or 'NONE'", "and 'NONE' or 'NONE'", "chaos redis"),
    Plant("S1", "Redis: a settle does not check the owner", SETTLE_LUA,
          "or found[2] ~= owner or is_over", "or is_over", "chaos redis"),
    Plant("C6", "PostgreSQL: a claim replaces one that stands", CLAIM_SQL,
          "greatest(now - $6::bigint, 0)", "greatest(now + 1000000 - $6::bigint, 0)", "chaos postgres"),
    Plant("C3", "PostgreSQL: a completed record is claimed again when its lease has ended", CLAIM_SQL,
          "AND r.status = 0 AND r.v", "AND r.v", "chaos postgres"),
    Plant("C7", "PostgreSQL: a lapsed claim is taken over under every policy", CLAIM_SQL,
          "($8::boolean OR r.released = r.attempt)", "($8::boolean OR true)", "chaos postgres"),
    Plant("C7", "PostgreSQL: a released claim is not granted", CLAIM_SQL,
          "($8::boolean OR r.released = r.attempt)", "$8::boolean", "chaos postgres"),
    Plant("C8", "PostgreSQL: a grant does not show that it took over", CLAIM_SQL,
          "THEN r.status END,", "THEN NULL END,", "chaos postgres"),
    Plant("S1", "PostgreSQL: a release does not check the owner", RELEASE_SQL,
          "r.scope = $1::text AND r.owner = o AND r.status = 0", "r.scope = $1::text AND o IS NOT NULL AND r.status = 0", "chaos postgres"),
]
