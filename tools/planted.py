"""Bugs to plant in the sources, a line or two each: a rule, the bug, its place, and the tests that must fail with it.

A place is a file below src/, the text there, which occurs once, and what replaces it. Tests are a test binary and filters of
its tests, as `cargo test` takes them; `lib` are the unit tests. G1 to G4 are the rules of order, T those of transactions, L5 and H those of the
heartbeat, S2 and S9 those of settles that transactions rely on: docs/protocol.md.
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
MARK_LUA = "store/redis/mark.lua"
SETTLE_LUA = "store/redis/settle.lua"
SETTLE_SQL = "store/postgres/settle.sql"
POSTGRES_ORDERED = "store/postgres/ordered.rs"
POSTGRES_TRANSACTION = "store/postgres/transaction.rs"
DYNAMODB_MARK = "store/dynamodb/mark.rs"
DYNAMODB_ORDERED = "store/dynamodb/single/ordered.rs"
DYNAMODB_COMMIT = "store/dynamodb/single/commit.rs"
DYNAMODB_TRANSACTION = "store/dynamodb/single/transaction.rs"
DYNAMODB_EXPRESSIONS = "store/dynamodb/single/expressions.rs"
COMMITTING = "idempotency/engine/committing.rs"
HEARTBEAT = "idempotency/engine/heartbeat.rs"

# The memory store decides by the shared rules alone, so the suite finds there whatever is wrong with them.
MEMORY = "memory"


def suite(store, *checks):
    """Checks of the conformance suite on a store."""
    return " ".join(["stores", *(f"conformance::{store}::{check}" for check in checks)])



ORDER = [
    # G1: what is not newer than the newest outcome is superseded.
    Plant("G1", "an operation of the newest sequence runs", ORDERING,
          "*newest >= order.sequence", "*newest > order.sequence", MEMORY),
    Plant("G1", "an abandoned operation hides that it is superseded", ORDERING,
          "Judgement::Refused(Refusal::Abandoned { .. }) => superseded(mark, order),", "", MEMORY),
    Plant("G1", "what is done is superseded instead of replayed", ORDERING,
          "        _ => None,\n    };\n    Ok(refusal", "        _ => superseded(mark, order),\n    };\n    Ok(refusal", MEMORY),
    Plant("G1", "Redis runs an operation of the newest sequence", MARK_LUA,
          "fields.newest >= sequence then return true", "fields.newest > sequence then return true", suite("redis", "an_older_operation_is_superseded")),
    Plant("G1", "DynamoDB does not state that nothing newer was completed", DYNAMODB_MARK,
          "AND attribute_not_exists(#owner) AND attribute_not_exists(#doubt) \\\n"
          "             AND (attribute_not_exists(#newest) OR #newest < :sequence))",
          "AND attribute_not_exists(#owner) AND attribute_not_exists(#doubt))", suite("dynamodb", "an_older_operation_is_superseded")),
    # G2: one holder, and doubt.
    Plant("G2", "several claims hold an entity", ORDERING,
          "if is_other && holder.lease_until >= now.before(request.skew_margin) {", "if is_other && false {", MEMORY),
    Plant("G2", "a holder's margin is not waited for", ORDERING,
          "holder.lease_until >= now.before(request.skew_margin)", "holder.lease_until >= now", MEMORY),
    Plant("G2", "a lapsed holder is forgotten before another claims", ORDERING,
          "if is_older(holder.sequence) {", "if false {", MEMORY),
    Plant("G2", "what is older than an operation in doubt runs", ORDERING,
          " || mark.doubt.iter().any(|doubt| is_older(doubt.sequence))", "", MEMORY),
    Plant("G2", "a lapsed holder leaves no doubt", ORDERING,
          "mark.doubt.push(Doubt { key: lapsed.key, sequence: lapsed.sequence });", "", MEMORY),
    Plant("G2", "a claim that takes over its own key ends its doubt", ORDERING,
          "} else if adds_doubt(&mark, &lapsed) {", "} else if lapsed.key != request.key {", MEMORY),
    Plant("G2", "doubt keeps the lower of two sequences of a key", ORDERING,
          "listed.sequence = listed.sequence.max(lapsed.sequence);", "", MEMORY),
    Plant("G2", "a completion ends the doubt of what is newer", ORDERING,
          "mark.doubt.retain(|doubt| doubt.sequence > order.sequence);", "mark.doubt.clear();", MEMORY),
    Plant("G2", "a completion ends no doubt", ORDERING,
          "mark.doubt.retain(|doubt| doubt.sequence > order.sequence);", "", MEMORY),
    Plant("G2", "a failure or a release does not end its own doubt", ORDERING,
          "mark.doubt.retain(|doubt| doubt.key != request.key);", "", MEMORY),
    Plant("G2", "a failure or a release ends the doubt of others", ORDERING,
          "mark.doubt.retain(|doubt| doubt.key != request.key);", "mark.doubt.clear();", MEMORY),
    Plant("G2", "a hand-back ends doubt", ORDERING,
          "Settlement::Release { took_over: true } => {}",
          "Settlement::Release { took_over: true } => mark.doubt.retain(|doubt| doubt.key != request.key),", MEMORY),
    Plant("G2", "doubt has no bound", ORDERING,
          "adds_another && mark.doubt.len() >= MAX_DOUBT", "adds_another && mark.doubt.len() == usize::MAX", MEMORY),
    Plant("G2", "with as much doubt as there may be, what is in doubt cannot run again", ORDERING,
          "mark.doubt.len() > MAX_DOUBT && !is_listed()", "mark.doubt.len() > MAX_DOUBT", MEMORY),
    Plant("G2", "Redis lets several claims hold an entity", MARK_LUA,
          "local is_held = fields.owner ~= owner and", "local is_held = false and", suite("redis", "an_entity_has_one_holder")),
    Plant("G2", "Redis forgets a lapsed holder", MARK_LUA,
          "if is_held or sequence < fields.sequence then", "if is_held then", suite("redis", "what_is_older_than_an_operation_in_doubt_waits")),
    Plant("G2", "Redis runs what is older than an operation in doubt", MARK_LUA,
          "if sequence < doubted then return true end", "", suite("redis", "what_is_older_than_an_operation_in_doubt_waits")),
    Plant("G2", "Redis keeps the lower of two sequences in doubt", MARK_LUA,
          "if listed and listed < fields.sequence then", "if listed and false then", "stores sequences::redis::"),
    Plant("G2", "Redis ends the doubt of what is newer", MARK_LUA,
          "return doubted <= sequence and '' or nil", "return ''", suite("redis", "doubt_ends_with_its_operation_or_a_newer_one")),
    Plant("G2", "Redis has no bound for doubt", MARK_LUA,
          "adds_another and #fields.doubt >= FULL", "adds_another and false", suite("redis", "doubt_is_bounded")),
    Plant("G2", "DynamoDB does not state that nobody holds the entity", DYNAMODB_MARK,
          "AND attribute_not_exists(#owner) AND attribute_not_exists(#doubt) \\", "AND attribute_not_exists(#doubt) \\",
          suite("dynamodb", "an_entity_has_one_holder")),
    Plant("G2", "DynamoDB does not state that nothing is in doubt", DYNAMODB_MARK,
          "AND attribute_not_exists(#owner) AND attribute_not_exists(#doubt) \\", "AND attribute_not_exists(#owner) \\",
          suite("dynamodb", "what_is_older_than_an_operation_in_doubt_waits", "doubt_ends_with_its_operation_or_a_newer_one")),
    Plant("G2", "DynamoDB replaces a mark that has changed since it was read", DYNAMODB_MARK,
          "let placeholders = &self.placeholders()[1..];", "let placeholders = &self.placeholders()[1..2];", suite("dynamodb", "of_many_claims_on_an_entity_exactly_one_is_granted")),
    Plant("G2", "DynamoDB replaces a record that has changed since it was read", DYNAMODB_ORDERED,
          'pin("attempt", &names.attempt);', "", "stores dynamodb::calls::"),
    Plant("G2", "PostgreSQL does not lock a mark", "store/postgres/hold_mark.sql",
          "ON CONFLICT (scope, entity) DO UPDATE SET expiration = m.expiration WHERE false",
          "ON CONFLICT (scope, entity) DO NOTHING", "stores each::order::postgres:: postgres::orders:: transactions::interleavings::postgres::"),
    Plant("G2", "PostgreSQL counts a lease from before the wait for its entity", "store/postgres/read_mark.sql",
          "statement_timestamp()", "transaction_timestamp()", "stores postgres::orders::"),
    Plant("G2", "PostgreSQL writes a mark although its record is another's", "store/postgres/write_mark.sql",
          "AND owner = $12::bytea AND status = 0", "AND ($12::bytea IS NOT NULL OR status = 0)", "stores postgres::orders::"),
    # G3: a completion raises the newest sequence; a settle frees the entity that its claim holds.
    Plant("G3", "a completion supersedes nothing", ORDERING,
          "mark.newest = mark.newest.max(Some(order.sequence));", "", MEMORY),
    Plant("G3", "a late completion lowers the newest sequence", ORDERING,
          "mark.newest = mark.newest.max(Some(order.sequence));", "mark.newest = Some(order.sequence);", MEMORY),
    Plant("G3", "a failure supersedes", ORDERING,
          "Settlement::Fail { .. } | Settlement::Release { took_over: false } => {",
          "Settlement::Fail { .. } | Settlement::Release { took_over: false } => {\n"
          "            mark.newest = mark.newest.max(Some(order.sequence));", MEMORY),
    Plant("G3", "a late settle frees an entity that another claim holds", ORDERING,
          "!(ends && holder.owner == request.owner)", "!ends", MEMORY),
    Plant("G3", "a settle does not free its entity", ORDERING,
          "!(ends && holder.owner == request.owner)", "ends || holder.owner != request.owner", MEMORY),
    Plant("G3", "Redis lowers the newest sequence", MARK_LUA,
          "if not (fields.newest and fields.newest >= sequence) then fields.newest = sequence end",
          "fields.newest = sequence", suite("redis", "a_late_completion_lowers_nothing")),
    Plant("G3", "Redis frees an entity that another claim holds", MARK_LUA,
          "if what ~= 'renew' and fields.owner == owner then", "if what ~= 'renew' then", suite("redis", "a_late_settle_frees_nothing")),
    Plant("G3", "DynamoDB frees an entity that another claim holds", DYNAMODB_MARK,
          '"#owner = :owner AND attribute_not_exists(#doubt) AND #expiration > :now \\',
          '"(#owner = :owner OR attribute_exists(#owner)) AND attribute_not_exists(#doubt) AND #expiration > :now \\', suite("dynamodb", "a_late_settle_frees_nothing")),
    Plant("G3", "DynamoDB lowers the newest sequence", DYNAMODB_MARK,
          '" AND (attribute_not_exists(#newest) OR #newest < :sequence)";', '"";', suite("dynamodb", "a_late_completion_lowers_nothing")),
    # G4: a mark lives as long as its newest outcome, and then counts as absent.
    Plant("G4", "a claim shortens the life of a mark", ORDERING,
          "mark.expiration = mark.expiration.max(expiration);", "mark.expiration = expiration;", MEMORY),
    Plant("G4", "a settle shortens the life of a mark", ORDERING,
          "mark.expiration = mark.expiration.max(until.seconds_rounded_up());",
          "mark.expiration = until.seconds_rounded_up();", MEMORY),
    Plant("G4", "a mark never expires", ORDERING,
          "mark.expiration <= now.seconds_rounded_down()", "mark.expiration == now.seconds_rounded_down() && false", MEMORY),
    Plant("G4", "a claim keeps the sequence of an expired mark", ORDERING,
          "let mut mark = mark.filter(|mark| !is_expired(mark, now)).cloned().unwrap_or_default();",
          "let mut mark = mark.cloned().unwrap_or_default();", MEMORY),
    Plant("G4", "Redis shortens the life of a mark", MARK_LUA,
          "math.max(math.ceil(ends / 1000), number(fields.expiration) or 0)", "math.ceil(ends / 1000)", suite("redis", "a_mark_lives_as_long_as_its_outcomes")),
    Plant("G4", "DynamoDB shortens the life of a mark by a claim", DYNAMODB_MARK,
          "attribute_not_exists(#id) OR (#expiration > :now AND #expiration <= :expiration \\",
          "attribute_not_exists(#id) OR (#expiration > :now \\", suite("dynamodb", "a_mark_lives_as_long_as_its_outcomes")),
    # What the engine makes of them.
    Plant("G2", "an outcome that is not recorded counts although older operations wait for it",
          "idempotency/engine/settling.rs", "Conclusion::Superseded if claim.order().is_some() => {",
          "Conclusion::Superseded if false => {", "operations engine::orders::"),
    Plant("B8", "a queue acknowledges an ordered operation that is not recorded", "batch/processor/outcomes.rs",
          "decision.report.reported |= lease_until.is_some();", "", "batch sqs::orders::"),
]

TRANSACTIONS = [
    # The release decides.
    Plant("T", "a commit without an answer counts as undone", COMMITTING,
          "Verdict::Transient => Settlement::Release { took_over: claim.took_over() },",
          "Verdict::Transient => return end.conclude(Conclusion::NotCommitted(failure)),", "stores transactions::late::"),
    Plant("T", "a commit without an answer counts as done", COMMITTING,
          "Some((true, Status::Completed)) => Fate::Committed,\n"
          "        // The settle was refused although the claim stands, so a late commit is not ruled out.",
          "None => Fate::Committed,\n        Some((true, Status::Completed)) => Fate::Committed,", "stores transactions::late::"),
    Plant("T", "a commit that the release finds applied counts as undone", COMMITTING,
          "Some((true, Status::Completed)) => Fate::Committed,", "Some((true, Status::Completed)) => Fate::Undone,",
          "stores transactions::late::"),
    Plant("T", "a commit of a claim that stands is ruled out", COMMITTING,
          "Some((true, Status::InProgress)) => Fate::Undecided,", "Some((true, Status::InProgress)) => Fate::Undone,",
          "lib engine::committing::"),
    Plant("T", "a successor's outcome does not count after a failed commit", COMMITTING,
          "_ if is_lost => Fate::Overtaken(record),", "_ if is_lost => Fate::Undone,", "lib engine::committing::"),
    Plant("T", "a successor's record is not found by the release", COMMITTING,
          "Some((false, Status::Completed | Status::Failed)) => Fate::Overtaken(record),", "",
          "lib engine::committing::"),
    Plant("T", "without an answer to the release either, the commit counts as undone", COMMITTING,
          "a later delivery finds out\");\n                Fate::Undecided",
          "a later delivery finds out\");\n                Fate::Undone", "stores transactions::late::"),
    Plant("S2", "a settle that was applied before hides the record", RULES,
          "return Ok(Settled::Done { found: current.map(Box::new) });", "return Ok(Settled::Done { found: None });",
          "stores transactions::late::"),
    Plant("S9", "a failed commit of a claim that took over is not handed back", COMMITTING,
          "Settlement::Release { took_over: claim.took_over() }", "Settlement::Release { took_over: false }",
          "stores transactions::late::"),
    # All or nothing.
    Plant("T", "a failure commits the handler's writes", COMMITTING,
          "if !matches!(end.conclusion, Conclusion::Completed(_)) {\n            writes.abandon().await;",
          "if !matches!(end.conclusion, Conclusion::Completed(_)) {\n            let _ = writes.commit(None).await;",
          "stores transactions::commits::"),
    Plant("T", "a run that is dropped leaves its transaction open", COMMITTING,
          "drop(self.store.abandon(&self.transaction));", "",
          "stores transactions::commits:: transactions::misuse::"),
    Plant("T", "writes go to another store than the engine's", "idempotency/transaction.rs",
          "if self.store.id() == id {", "if self.store.id() == id || true {", "stores transactions::misuse::"),
    Plant("T", "PostgreSQL commits writes without their outcome", POSTGRES_TRANSACTION,
          "Ok(false) => return self.lost(connection, request).await,", "Ok(false) => {}",
          "stores transactions::commits:: transactions::ordered:: transactions::lost_entities::"),
    Plant("T", "PostgreSQL takes a rolled back transaction for a committed one", POSTGRES_TRANSACTION,
          'connection.execute_all(COMMIT, "SELECT 1").await.map(|()| true)', "Ok(true)", "stores transactions::misuse::"),
    Plant("T", "PostgreSQL commits while a clone of the transaction is alive", POSTGRES_TRANSACTION,
          "if !transaction.is_unshared() {", "if false {", "stores transactions::misuse::"),
    Plant("T", "PostgreSQL takes a COMMIT without an answer for rolled back", POSTGRES_TRANSACTION,
          "Err(failure) if is_rolled_back(&failure) => {", "Err(failure) if is_rolled_back(&failure) || true => {",
          "stores transactions::cuts::postgres::at_any_message_of_an_operation"),
    Plant("T", "PostgreSQL takes another's outcome for that of its own commit", POSTGRES_TRANSACTION,
          "record.owner == Some(claim.owner) && matches!", "matches!", "stores transactions::claimless:: transactions::late::"),
    Plant("T", "PostgreSQL takes a COMMIT that waits for another session for rolled back", POSTGRES_TRANSACTION,
          "failure.error.status() != ErrorStatus::Ambiguous && failure.connection == Verdict::Usable",
          "failure.error.status() != ErrorStatus::Ambiguous", "stores transactions::outages:: postgres::outages::"),
    Plant("T", "PostgreSQL records a failure together with the writes", POSTGRES_TRANSACTION,
          "&& !request.settlement.took_effect()", "&& false", "stores transactions::commits::"),
    Plant("T", "DynamoDB records a failure together with the writes", DYNAMODB_TRANSACTION,
          "if claim.is_some() && !request.settlement.took_effect() {", "if false {", "stores transactions::commits::"),
    Plant("T", "DynamoDB's commit has another token each time", DYNAMODB_COMMIT,
          "call.client_request_token(&self.token)", 'call.client_request_token(format!("{attempts}{}", &self.token[1..]))',
          "stores transactions::late::"),
    Plant("T", "DynamoDB's commit has a token that is not its owner", DYNAMODB_TRANSACTION,
          "let (token, is_claimless) = (request.owner.to_hex(), claim.is_some());",
          "let (token, is_claimless) = (random_token()?.to_hex(), claim.is_some());", "stores transactions::late::"),
    Plant("T", "DynamoDB's commit is sent again after a mismatch of tokens", DYNAMODB_COMMIT,
          "return Answer::Undone(error.with_source(failure));", "return Answer::Again(error.with_source(failure));",
          "stores transactions::late::"),
    Plant("T", "DynamoDB's commit is undone where silence came before a refusal", DYNAMODB_COMMIT,
          "if is_in_doubt && (self.is_claimless || self.request.is_none()) {", "if false {", "stores transactions::late::"),
    Plant("T", "DynamoDB judges the handler's writes before the record", DYNAMODB_COMMIT,
          "if reasons.iter().take(self.of_records).any(may_pass) || !reasons", "if !reasons", "stores transactions::late::"),
    # With order.
    Plant("G3", "PostgreSQL commits for an entity that another claim holds", POSTGRES_ORDERED,
          "if !(state.may_settle(request) && ordering::may_commit(state.mark.as_ref(), request, order, state.now)) {",
          "if !state.may_settle(request) {", "stores transactions::ordered:: transactions::lost_entities:: transactions::interleavings::"),
    Plant("G3", "a commit does not need its entity to be held", ORDERING,
          "is_held(mark, request, now) && mark.is_some_and(", "mark.is_some_and(", "stores transactions::ordered:: transactions::lost_entities:: transactions::interleavings::"),
    Plant("G1", "a commit is not superseded", ORDERING,
          "is_held(mark, request, now) && mark.is_some_and(|mark| superseded(mark, order).is_none())",
          "is_held(mark, request, now)",
          "stores transactions::ordered:: transactions::lost_entities::"),
    Plant("G2", "DynamoDB runs an operation without a claim whose mark refuses it", DYNAMODB_TRANSACTION,
          "Judgement::Refused(_) => Ok(None),\n            Judgement::Free",
          "Judgement::Refused(_) if matches!(seen, Seen::Nothing) => Ok(None),\n            Judgement::Refused(_) | Judgement::Free",
          "stores transactions::ordered:: transactions::lost_entities::"),
    Plant("T", "DynamoDB takes 100 writes for 98", DYNAMODB_TRANSACTION,
          "if items.len() >= MAX_WRITES {", "if items.len() > MAX_WRITES {", "stores transactions::ordered:: transactions::lost_entities::"),
    # Without a claim.
    Plant("C7", "DynamoDB's commit without a claim replaces no abandoned claim", DYNAMODB_EXPRESSIONS,
          'format!("{if_expired} OR {}", is_lapsed(n, with_fingerprint))', "if_expired.clone()",
          "stores transactions::claimless::"),
    Plant("C6", "DynamoDB's commit without a claim replaces a live claim", DYNAMODB_EXPRESSIONS,
          '"({status} = :inprogress AND {lease} < :lapsed \\', '"({status} = :inprogress AND {lease} <> :lapsed \\',
          "stores transactions::claimless::"),
    Plant("C2", "DynamoDB's commit without a claim replaces another payload's", DYNAMODB_EXPRESSIONS,
          "OR {validation} = :validation)", "OR {validation} <> :validation OR {validation} = :validation)",
          "stores transactions::claimless::"),
]

HEARTBEATS = [
    # A renewal lowers nothing, and revives nothing.
    Plant("L5", "a renewal lowers the lease", RULES,
          "stored.max(now.after(lease))", "{ let _ = stored; now.after(lease) }", MEMORY),
    Plant("L5", "a renewal lowers the expiration", RULES,
          "stored.max(expiration)", "{ let _ = stored; expiration }", MEMORY),
    Plant("L5", "a renewal revives a claim that others may take over", RULES,
          "record.lease_until >= Some(now.before(skew_margin))", "record.lease_until >= Some(now.before(skew_margin)) || true",
          MEMORY),
    Plant("L5", "Redis lowers the lease", SETTLE_LUA,
          "lease = math.max(now + tonumber(ARGV[4]), lease)", "lease = now + tonumber(ARGV[4])", suite("redis", "a_late_renewal_shortens_nothing")),
    Plant("L5", "Redis lowers the expiration", SETTLE_LUA,
          "ends = math.max(ends, lease + margin + 1, (tonumber(found[5] or '') or 0) * 1000)",
          "ends = math.max(ends, lease + margin + 1)", suite("redis", "a_late_renewal_shortens_nothing")),
    Plant("L5", "Redis revives a claim that others may take over", SETTLE_LUA,
          "local is_over = what == 'renew' and not", "local is_over = false and not", suite("redis", "a_renewal_after_the_lease_and_the_margin_revives_nothing")),
    Plant("L5", "PostgreSQL lowers the lease", SETTLE_SQL,
          "WHEN 3 THEN greatest(r.lease_until, now + lease) WHEN 4", "WHEN 3 THEN now + lease WHEN 4", suite("postgres", "a_late_renewal_shortens_nothing")),
    Plant("L5", "PostgreSQL lowers the expiration", SETTLE_SQL,
          "WHEN 3 THEN greatest(r.expiration, (greatest(now", "WHEN 3 THEN greatest(0, (greatest(now", suite("postgres", "a_late_renewal_shortens_nothing")),
    Plant("L5", "PostgreSQL revives a claim that others may take over", SETTLE_SQL,
          "AND (what <> 3 OR r.lease_until >= greatest(now - margin, 0))", "", suite("postgres", "a_renewal_after_the_lease_and_the_margin_revives_nothing")),
    Plant("L5", "DynamoDB lowers the lease", DYNAMODB_EXPRESSIONS,
          "{still_mine} AND {lease} <= :lease AND {lease} >= :lapsed \\", "{still_mine} AND {lease} >= :lapsed \\", suite("dynamodb", "a_late_renewal_shortens_nothing")),
    Plant("L5", "DynamoDB lowers the expiration", DYNAMODB_EXPRESSIONS,
          "AND (attribute_not_exists({expiration}) OR {expiration} <= :expiration)", "", suite("dynamodb", "a_late_renewal_shortens_nothing")),
    Plant("L5", "DynamoDB revives a claim that others may take over", DYNAMODB_EXPRESSIONS,
          "{lease} <= :lease AND {lease} >= :lapsed \\", "{lease} <= :lease AND {lease} <> :lapsed \\", suite("dynamodb", "a_renewal_after_the_lease_and_the_margin_revives_nothing")),
    # An ordered operation renews its mark in the same write.
    Plant("G2", "a renewal does not renew the entity's mark", ORDERING,
          "holder.lease_until = holder.lease_until.max(now.after(lease));", "let _ = lease;", MEMORY),
    Plant("G2", "a renewal lowers the lease of the entity's mark", ORDERING,
          "holder.lease_until = holder.lease_until.max(now.after(lease));", "holder.lease_until = now.after(lease);", MEMORY),
    Plant("G2", "a renewal needs no entity", ORDERING,
          "!matches!(request.settlement, Settlement::Renew { .. }) || is_held(mark, request, now)",
          "true || is_held(mark, request, now)", MEMORY),
    Plant("G2", "Redis renews a claim without its entity", SETTLE_LUA,
          "local is_displaced = what == 'renew' and mark and", "local is_displaced = false and", suite("redis", "a_renewal_keeps_the_entity")),
    Plant("G2", "Redis lowers the lease of the entity's mark", MARK_LUA,
          "lease = math.max(now + lease, number(fields.in_progress_expiration) or 0)", "lease = now + lease", suite("redis", "a_renewal_keeps_the_entity")),
    Plant("G2", "DynamoDB lowers the lease of the entity's mark", DYNAMODB_MARK,
          '" AND #lease <= :lease")', '"")', suite("dynamodb", "a_renewal_keeps_the_entity")),
    # The run.
    Plant("H", "nothing ends a hung handler", HEARTBEAT,
          "let stop = claim.window.stop.min(self.ends);", "let stop = claim.window.stop;", "operations engine::heartbeat::"),
    Plant("H", "a clock that is set back lets a hung handler go on", HEARTBEAT,
          "self.timer_ends.map_or(time, |ends| time.min(ends.saturating_duration_since(Instant::now())))",
          "self.timer_ends.map_or(time, |_| time)", "operations engine::heartbeat::"),
    Plant("H", "the stop point counts from the last repetition of a renewal", HEARTBEAT,
          "let sent = *first_sent.get_or_insert(now);", "first_sent.get_or_insert(now);\n            let sent = now;",
          "operations engine::heartbeat::"),
    Plant("H", "the stop point counts from the answer to a renewal", HEARTBEAT,
          "claim.window.renewed(renewal.sent, &self.engine.settings)",
          "claim.window.renewed(self.engine.clock.now(), &self.engine.settings)", "operations engine::heartbeat::"),
    Plant("H", "a handler whose lease is lost goes on", HEARTBEAT,
          "Err(lost) => return Poll::Ready((this.claim.clone(), Err(lost))),",
          "Err(_) => heartbeat.renewal = None,", "operations engine::heartbeat::"),
    Plant("H", "one renewal that fails loses the lease", HEARTBEAT,
          "Some(Err(error)) => error,", "Some(Err(_)) => return Err(LeaseLost { current: None }),",
          "operations engine::heartbeat::"),
    Plant("H", "a process that thaws renews its lease", HEARTBEAT,
          "if now >= claim.stop_point() {", "if now >= claim.stop_point() && false {", "operations engine::heartbeat::"),
    Plant("H", "a process that thaws after its lease goes on", "idempotency/guard.rs",
          "if now >= this.bounds.stop {", "if now >= this.bounds.stop && !*this.started {",
          "operations engine::heartbeat:: engine::leases::"),
    Plant("H", "a heartbeat outlasts an invocation whose deadline is known", "idempotency/window.rs",
          "(Heartbeat::UpTo(_), Limit::Deadline(_)) => Err(", "(Heartbeat::UpTo(_), Limit::Deadline(_)) if false => Err(",
          "operations engine::heartbeat::"),
    Plant("H", "no lease is renewed unless a heartbeat is asked for", "idempotency/settings.rs",
          "heartbeat: Some(MAX_DURATION),", "heartbeat: None,", "operations engine::heartbeat::"),
]

PLANTS = ORDER + TRANSACTIONS + HEARTBEATS
