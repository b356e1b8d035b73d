"""The mutants that no test can detect, because they change nothing that the protocol promises, and the reasons. Those of the Rust code
are in rust_survivors.py."""

from typing import NamedTuple

from tools.tests.mutants.rust_survivors import RUST


class Survivor(NamedTuple):
    file: str
    # The source line without its indentation, in its printed form.
    line: str
    old: str
    new: str
    why: str
    place: int = 1


SINCE_1970 = "times are since 1970, so the bound only prevents a negative number"
EQUAL = "equal sequences are equal texts"
SPELLING = "the client reads both forms of the answer, one of which is quicker to parse"
ANY_VALUE = "only the presence of the field counts"
ANY_NUMBER = "the client takes every number as applied"
FORGOTTEN = "a row that is forgotten is deleted, not updated"
FILTERED = "the client filters the records again"
ONE_CLAIM = "a token belongs to one claim, and a row that was handed back is locked by this transaction"
HINT = "a hint to the planner, which changes no result"

SURVIVORS = [
    Survivor("amend.lua", "local has_lapsed = lease and lease < math.max(now - tonumber(margin), 0) or not found[4] and what == 'forget'",
             "0", "1", SINCE_1970),
    Survivor("amend.lua", "mark.settle(what, owner, 0, 0, now)", "0", "1", "only a renewal uses the lease"),
    Survivor("amend.lua", "mark.settle(what, owner, 0, 0, now)", "0", "1", "only a renewal uses the margin", place=2),
    Survivor("amend.lua", "if not found[8] then redis.call('HSET', key, 'result_dropped', 1) end", "1", "2", ANY_VALUE),
    Survivor("amend.lua", "return 1", "1", "2", ANY_NUMBER),
    Survivor("claim.lua", "margin = tonumber(margin)", "margin = tonumber(margin)", "", "Lua converts the text when it calculates"),
    Survivor("claim.lua", "local is_released = attempt and attempt > 0 and number(found[7]) == attempt", ">", ">=",
             "attempts begin with 1, and an operator releases none before"),
    Survivor("claim.lua", "and lease and lease < math.max(now - margin, 0)", "0", "1", SINCE_1970),
    Survivor("claim.lua", "'claimed_at', 'settled_at', 'released'}", "'released'", "'zz'",
             "the explanation of a refusal does not depend on a release"),
    Survivor("claim.lua", "if with_data == '1' then", "with_data == '1'", "true", "the client drops a result that was not asked for"),
    Survivor("claim.lua", "if status then", "status", "true", "without a record there are no fields to delete"),
    Survivor("claim.lua", "if not status and attempt == 1 and not begins_to_merge then return ends end", "not", "", SPELLING),
    Survivor("claim.lua", "if not status and attempt == 1 and not begins_to_merge then return ends end",
             "not status and attempt == 1 and not begins_to_merge", "false", SPELLING),
    Survivor("claim.lua", "if not status and attempt == 1 and not begins_to_merge then return ends end", "==", "~=", SPELLING),
    Survivor("claim.lua", "if not status and attempt == 1 and not begins_to_merge then return ends end", "1", "2", SPELLING),
    Survivor("common.lua", "return time[1] * 1000 + math.floor(time[2] / 1000)", "floor", "ceil", "a millisecond of the server's clock"),
    Survivor("mark.lua", "if not lowest or doubted < lowest then lowest = doubted end", "<", "<=", EQUAL),
    Survivor("mark.lua", "if listed and listed < fields.sequence then", "<", "<=", EQUAL),
    Survivor("mark.lua", "local is_held = fields.owner ~= owner and number(fields.in_progress_expiration) >= math.max(now - margin, 0)",
             "0", "1", SINCE_1970),
    Survivor("mark.lua", "lease = math.max(now + lease, number(fields.in_progress_expiration) or 0)", "0", "1", SINCE_1970),
    Survivor("mark.lua", "local expiration = math.max(math.ceil(ends / 1000), number(fields.expiration) or 0)", "0", "1", SINCE_1970),
    Survivor("mark.lua", "begins_to_merge = count >= MAX_DOUBT and not string.find(fields.doubt, ' ,', 1, true)", "1", "2",
             "an entry begins with its sequence"),
    Survivor("mark.lua", "begins_to_merge = count >= MAX_DOUBT and not string.find(fields.doubt, ' ,', 1, true)", "true", "false",
             "the text has no magic characters"),
    Survivor("mark.lua", "if not (fields.newest and fields.newest >= sequence) then fields.newest = sequence end", ">=", ">", EQUAL),
    Survivor("settle.lua", "margin = tonumber(margin)", "margin = tonumber(margin)", "", "Lua converts the text when it calculates"),
    Survivor("settle.lua", "local is_over = what == 'renew' and not (lease and lease >= math.max(now - margin, 0))", "0", "1", SINCE_1970),
    Survivor("resolve.lua", "return 1", "1", "2", ANY_NUMBER),
    Survivor("settle.lua", "return what == 'renew' and lease or 1", "1", "2", ANY_NUMBER),
    Survivor("settle.lua", "return 1", "1", "2", ANY_NUMBER),
    Survivor("settle.lua", "return 1", "1", "2", ANY_NUMBER, place=2),
    Survivor("settle.lua", "ends = math.max(ends, lease + margin + 1, (tonumber(found[5] or '') or 0) * 1000)", "0", "1", SINCE_1970),
    Survivor("amend.sql", "WITH w AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    Survivor("amend.sql", "), held AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    Survivor("amend.sql", "AND (was <> 0 OR r.lease_until < greatest(now - margin, 0) OR what = 3 AND r.lease_until IS NULL)", "0", "1",
             SINCE_1970, place=2),
    Survivor("claim.sql", "AND r.lease_until < (SELECT greatest(now - $6::bigint, 0) FROM clock)", "0", "1", SINCE_1970),
    Survivor("hold_mark.sql", "VALUES ($1::text, $2::bytea, 0)", "0", "1", "either time is long over"),
    Survivor("hold_mark.sql", "ON CONFLICT (scope, entity) DO UPDATE SET expiration = m.expiration WHERE false", "false", "true",
             "the row is locked in any case, and written as it is"),
    Survivor("claim.sql", "WITH clock AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    Survivor("list.sql", "WITH page AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    Survivor("list_open.sql", "WITH page AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    *(Survivor("list_open.sql", "LEFT JOIN page ON status = $5::smallint AND ($6::text IS NULL OR operation = $6::text)", old, new, FILTERED)
      for old, new in (("AND", "OR"), ("AND ($6::text IS NULL OR operation = $6::text)", ""))),
    Survivor("locked.sql", "WITH free AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    *(Survivor("amend.sql", line, old, new, FORGOTTEN)
      for line in ("status = CASE WHEN what < 3 THEN what ELSE r.status END,",
                   "expiration = CASE WHEN what < 3 THEN (now + retention + 999) / 1000 ELSE r.expiration END,",
                   "settled_at = CASE WHEN what < 3 THEN now ELSE r.settled_at END,")
      for old, new in (("<", "<="), ("3", "4"))),
    *(Survivor("amend.sql", "encoding = CASE WHEN what < 3 THEN held.encoding WHEN what = 4 AND r.encoding IS DISTINCT FROM 3 THEN 2 ELSE r.encoding END",
               old, new, FORGOTTEN) for old, new in (("<", "<="), ("3", "4"))),
    Survivor("amend.sql", "WHERE r.scope = $1::text AND r.key_hash = k AND what <> 3", "AND what <> 3", "", FORGOTTEN),
    Survivor("amend.sql", "owner = CASE WHEN what > 3 THEN r.owner END,", ">", ">=", FORGOTTEN),
    *(Survivor("list.sql", "LEFT JOIN page ON status = $4::smallint AND ($5::text IS NULL OR operation = $5::text)", old, new, FILTERED)
      for old, new in (("AND", "OR"), ("AND ($5::text IS NULL OR operation = $5::text)", ""))),
    *(Survivor(file, line, "MATERIALIZED", "", HINT)
      for file in ("purge.sql", "purge_marks.sql") for line in ("WITH clock AS MATERIALIZED (", "), expired AS MATERIALIZED (")),
    Survivor("release.sql", "WITH held AS MATERIALIZED (", "MATERIALIZED", "", HINT),
    Survivor("settle.sql", "AND (what <> 3 OR r.lease_until >= greatest(now - margin, 0))  -- a late renewal would revive a claim whose holder has stopped",
             "0", "1", SINCE_1970),
    Survivor("settle.sql",
             "WHEN 3 THEN greatest(r.expiration, (greatest(now + retention, greatest(r.lease_until, now + lease) + margin + 1) + 999) / 1000)",
             "1", "2", "a record may expire a millisecond later"),
    *(Survivor("settle.sql", line, "MATERIALIZED", "", HINT) for line in ("WITH w AS MATERIALIZED (", "), held AS MATERIALIZED (")),
    *(Survivor("write_mark.sql",
               "SELECT FROM once_records WHERE scope = $1::text AND key_hash = $11::bytea AND owner IS NOT DISTINCT FROM $12::bytea AND status = 0",
               old, new, ONE_CLAIM)
      for old, new in (("scope = $1::text", "true"), ("AND key_hash = $11::bytea", ""), ("AND status = 0", ""))),
    Survivor("schema_marks.sql", "v               integer  NOT NULL DEFAULT 1,", "1", "2", "a row without a written version has the expiration 0, so it counts as absent"),
    Survivor("is_migrated.sql", "SELECT 1", "1", "2", "only the presence of the row counts"),
]

# Of DynamoDB's expressions: the purpose of the request, the part and its change.
EXPRESSIONS = {
    ("read filter", part, new): FILTERED
    for part, new in (
        ("begins_with ( id , :prefix )", "always true"),
        ("begins_with ( id , :prefix ) AND operation = :operation", "OR for AND"),
        ("operation = :operation", "always true"),
        ("status = :status", "always true"),
        ("status = :status AND begins_with ( id", "OR for AND"),
    )
} | {
    (f"update attempt in_progress_expiration owner {written}status condition", "attribute_not_exists ( validation )", "never true"):
        "NOT BETWEEN also holds without the attribute, in the layout with versions"
    for written in ("", "released ")
} | {
    (f"mark {write} condition", part, new): "a mark has all four attributes of a holder or none"
    for write in ("delete or check", "update doubt holder in_progress_expiration newest owner")
    for part, new in (
        ("attribute_not_exists ( owner ) AND in_progress_expiration = :lease", "OR for AND"),
        ("attribute_not_exists ( sequence ) AND holder = :holder", "OR for AND"),
        ("sequence = :sequence AND attribute_not_exists ( holder", "OR for AND"),
    )
} | {
    (purpose, part, new): "a write by a test itself"
    for purpose, part, new in (
        ("update condition", "attribute_exists ( id )", "always true"),
        ("mark update condition", "attribute_exists ( id )", "always true"),
        ("update update", "hint = :hint", "not written"),
        ("mark update update", "hint = :hint", "not written"),
    )
}

EXPLAINED = {(it.file, it.line, it.old, it.new, it.place): it.why for it in SURVIVORS}
EXPLAINED |= {" | ".join(parts): why for parts, why in (EXPRESSIONS | RUST).items()}
