"""The mutants of the Rust code that no test of the measured programs detects, and the reasons."""

RECURSION = "`Default::default()` leads back to this function, so every use overflows the stack, which ends the whole program and counts as no failure"
OTHER_FEATURES = "compiled, or reached, only without some of the features with which the tests are built"
PEERS = "the tests beside AWS Powertools (make powertools) detect it, which are not among the measured programs"
CAPACITY = "the capacity of a buffer"
ONE_HASH = "all keys share a hash, so the map of leaders only compares more of them"
SPANS = "a shortcut: subscribers do not see a disabled span; only the `log` crate would"
ALLOCATIONS = "without lanes nothing is blocked; only the number of allocations differs, whose tests are not measured"
COPY = "the same bytes: it only copies a body of one frame"
NATIVE = "the default of a RecordFormat is Native"
NONE = "the default of an Option is None"
SMALL_BODY = "a shortcut: so small a body fits in any encoding unless its headers take more than three quarters of a megabyte"
UNSEEN = "the pool drops the message, which nobody sees"
FROM_ENVIRONMENT = "every engine takes it from the environment"
ONE_SLOT = "all parts have one slot, so the filter only skips less"
ORDERED_ONLY = "only the ordered requests among them are sent, and without any nothing is"
ONE_CHUNK = "a shortcut: the only chunk is split off as a whole, and without one nothing is sent"
ALL_HAVE_ENTITIES = "if any record has an entity, every record in the claim queues has one"
NO_BYTES = "a shortcut: without binary values the second attempt is the first one again"

# The file, the function, the code, its change, and the place if there are several.
RUST = {
    ("src/backoff.rs", "<Backoff as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/batch/envelope/eventbridge.rs", "unquoted", "!detail.get().starts_with('\"')", "false"):
        "a shortcut: a detail that is not a string fails to decode as one and is returned as it is",
    ("src/batch/envelope/unwrapped.rs", "take_out_messages", "i == last", "false"):
        "a shortcut: the last message gets a clone of the metadata as the others do, which costs allocations",
    ("src/batch/options.rs", "<Options as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/batch/processor/actions.rs", "Processor::run", "H::FORM.probes", "true"):
        "the probe of a handler without one finds nothing, so the handler runs as well; the constant only removes code at compile time",
    ("src/batch/processor/batch.rs", "Batch::is_response_fixed", "reported < index", "<= for <"):
        "it is asked only about undecided records, and a reported one is decided",
    ("src/batch/processor/batch.rs", "Batch::new", "false", "!"):
        "only makes the first turn look for blocked records, waits and dead letters, of which there are none before it",
    ("src/batch/processor/decode.rs", "Processor::operation", "self.options.order.is_none() && self.options.label.is_none()", "false"):
        "a shortcut: without an order and a label there are no extras, and `boxed` returns None for them",
    ("src/batch/processor/drive.rs", "Processor::machine", "H::FORM.takes_several", "true"):
        "`several` of a handler that takes one record returns `Several::ONE` as well; the constant only removes code at compile time",
    ("src/batch/processor/drive.rs", "Processor::process", "!H::FORM.takes_several", "false"):
        "a handler of one record has calls of one, which are never begun together; the arm only removes code at compile time",
    ("src/batch/processor/drive.rs", "Processor::process", "true", "!"):
        "before the first call there is nothing to poll, so it only polls an empty set once",
    ("src/batch/processor/entities.rs", "Entities::candidate", "!self.are_any() && self.labels.is_empty()", "false"):
        "a shortcut: extras without a sequence and a label are also boxed as `None`",
    ("src/batch/processor/entities.rs", "Entities::has", "self.are_any() && self.of.contains_key(&index)", "|| for &&"):
        "with an order every record that is claimed has an entity, and any other one is decided without a lease",
    ("src/batch/processor/entities.rs", "Entities::take_turn", "true", "!"): ALL_HAVE_ENTITIES,
    ("src/batch/processor/entities.rs", "Entities::turns_of", "true", "!"): ALL_HAVE_ENTITIES,
    ("src/batch/processor/lanes.rs", "Lanes::advance", "over.len() > before", "false"):
        "a verdict does not depend on turns, so only the lanes of the record and of its duplicates can advance, and these are in the list already",
    ("src/batch/processor/lanes.rs", "Lanes::advance", "self.duplicates.is_empty()", "false"): "a shortcut: nothing can be removed from an empty map",
    ("src/batch/processor/lanes.rs", "Lanes::any_order", "the body", "true"): ALLOCATIONS,
    ("src/batch/processor/lanes.rs", "Lanes::new", "lanes.is_empty()", "false"):
        "only keeps a list of `None`s, which `lane` reads as it does an empty list",
    ("src/batch/processor/lanes.rs", "Lanes::wait_for", "!duplicates.contains(&behind)", "true"):
        "a lane is advanced more often, which changes nothing",
    ("src/batch/processor/lanes.rs", "Lanes::wait_for", "ahead == behind", "false"):
        "the lane is advanced once more, which changes nothing but the order of simultaneous reports, which is not promised",
    ("src/batch/processor/machine/events.rs", "Machine::polled_record", "is_waiting || wait.step(self.now) != WaitStep::Claim", "true"):
        "a shortcut: a record whose key may be claimed is put back among those to claim at the beginning of the next turn",
    ("src/batch/processor/machine/mod.rs", "<TruncatingHasher as Hasher>::finish", "the body", "0"): ONE_HASH,
    ("src/batch/processor/machine/mod.rs", "<TruncatingHasher as Hasher>::finish", "the body", "1"): ONE_HASH,
    ("src/batch/processor/machine/mod.rs", "<TruncatingHasher as Hasher>::write", "the body", "()"): ONE_HASH,
    ("src/batch/processor/machine/mod.rs", "Machine::begin", "self.calls > 0", ">= for >"):
        "without a pending call it only gives the runtime a turn that is not needed",
    ("src/batch/processor/machine/mod.rs", "Machine::begin", "self.now.since(self.last_turn) > MAX_TIME_WITHOUT_TURN", ">= for >"):
        "differs if exactly 2 ms have passed: whether the runtime gets one more turn, which is optional",
    ("src/batch/processor/machine/mod.rs", "Machine::new", "false", "!", "2"):
        "at most one more turn of the runtime before the first handler, if calls are pending",
    ("src/batch/processor/machine/mod.rs", "Machine::turn", "self.lookups.are_on()", "true"): "a shortcut: `look_up` checks it again, in `looks_up`",
    ("src/batch/processor/machine/mod.rs", "Machine::wait", "is_under_way && is_at_hand", "|| for &&"):
        "one more turn at the handler deadline, after which nothing begins in either case: with something at hand and nothing under way, it would have begun",
    ("src/batch/processor/pace.rs", "Pace::took", "time > self.longest", ">= for >"):
        "the longest time does not change, so that waits that are checked again have the same result",
    ("src/batch/processor/queues.rs", "Queues::any_ready", "the body", "true"):
        "it wakes at the handler deadline with nothing to do: without a ready record or a due outcome only decoded records are given up then, which could not begin any more",
    ("src/batch/processor/queues.rs", "Queues::claimed", "!lanes.any_order()", "false"): ALLOCATIONS,
    ("src/batch/processor/queues.rs", "Queues::looked_up", "*other < index", "<= for <"):
        "a record is looked up once, so that its index is not in the list",
    ("src/batch/processor/queues.rs", "Queues::next_claim", "!self.looked_up.is_empty()", "true"):
        "a shortcut: without records that were looked up, those that are decoded are in order, and sorting changes nothing",
    ("src/batch/processor/queues.rs", "Queues::next_claim", "filling.budget.total == 0", "false"):
        "a shortcut: without a budget nothing is decoded or taken; records that were looked up join the others earlier",
    ("src/batch/processor/queues.rs", "Queues::next_looked_up", "budget.total == 0", "false"): "a shortcut: without a budget nothing is taken",
    ("src/batch/processor/queues.rs", "Queues::next_looked_up", "self.free.is_empty() && self.looked_up.is_empty()", "false"):
        "a shortcut: nothing can be taken from empty queues",
    ("src/batch/processor/queues.rs", "take_for_claims", "records.is_empty()", "false"):
        "a shortcut: nothing can be taken from an empty list, for which a vector without capacity allocates nothing",
    ("src/batch/processor/records.rs", "Records::give_up", "matches!(entry.life, Life::Running", "Life::Settling)", "false"):
        "a shortcut: the match below leaves such a record as it is, and returns None",
    ("src/batch/processor/records.rs", "Records::settle", "the body", "()"): "the states Running and Settling are nowhere distinguished",
    ("src/batch/processor/reporting.rs", "Batch::conclude", "index < first", "<= for <"):
        "a record is concluded once, so it is never the first one itself",
    ("src/batch/redaction.rs", "<Beginning as Write>::write_str", "self.is_cut", "false"):
        "once it is cut no character has room, so each further part is cut to nothing",
    ("src/batch/redaction.rs", "Quotations::look_at", "self.short_words.is_empty()", "false"): "a shortcut: no word is found in an empty map",
    ("src/batch/redaction.rs", "Quotations::look_at", "self.slots[slot(part)]", "true"):
        "a shortcut: the filter only skips parts that are not in the map",
    ("src/batch/redaction.rs", "slot", "(number.wrapping_mul(0x9E37_79B1) >> 20) as usize % SLOTS", "/ for %"):
        "the number is smaller than `SLOTS`, so all parts get slot 0, and the filter only skips less",
    ("src/batch/redaction.rs", "slot", "the body", "0"): ONE_SLOT,
    ("src/batch/redaction.rs", "slot", "the body", "1"): ONE_SLOT,
    ("src/batch/report.rs", "Report::new", "false", "!"): "only decisions read the flag, and they set it",
    ("src/batch/report.rs", "Report::new", "false", "!", "2"): "only decisions read the flag, and they set it",
    ("src/batch/report.rs", "Report::new", "false", "!", "3"): "only decisions read the flag, and they set it",
    ("src/batch/report.rs", "tell", "engine.settings.observers.is_empty()", "false"): "a shortcut: without observers `observe` returns at once",
    ("src/batch/service.rs", "BatchService::check", "H::FORM.in_transaction", "true"):
        "other handlers have no store, so `store` returns None; the constant only removes code at compile time",
    ("src/batch/sources/encoding.rs", "<Optional as de::Visitor>::visit_none", "the body", "Ok(Default::default())"): NONE,
    ("src/batch/sources/encoding.rs", "<Optional as de::Visitor>::visit_unit", "the body", "Ok(Default::default())"): NONE,
    ("src/batch/sources/image.rs", "decode", "false", "!"): NO_BYTES,
    ("src/batch/sources/image.rs", "decode", "has_bytes", "true"): NO_BYTES,
    ("src/batch/spans.rs", "batch_span", "!spans::are_wanted(Level::DEBUG)", "false"): SPANS,
    ("src/batch/spans.rs", "of_record", "!spans::are_wanted(Level::INFO)", "false"): SPANS,
    ("src/batch/spans.rs", "of_records", "!spans::are_wanted(Level::INFO)", "false"): SPANS,
    ("src/http/admission.rs", "PlaceWait::refusal_on_record", "ends.since(now) < MIN_CALL_TIME", "<= for <"):
        "differs if exactly 100 ms are left: whether one more read is tried, which is optional",
    ("src/http/answer.rs", "LayerSettings::conclude", "the arm Outcome::Superseded { .. }", "deleted"):
        "no run of a request ends so: its errors are transient, and its transactions have no classifier",
    ("src/http/entry.rs", "LayerSettings::candidate", "false", "!"):
        "the flag of a label's headers is not read: a label that cannot be selected is left out",
    ("src/http/exchange.rs", "LayerSettings::respond_or_wait", "self.engine.clock.now() < entry.wait_until", "<= for <"):
        "in that millisecond the wait gives up at once, with the same refusal",
    ("src/http/header_key.rs", "quoted", "text.len() > 1", ">= for >"):
        "a lone quote is stripped as the opening one, and the empty rest has no closing one, so the guard never decides",
    ("src/http/lambda.rs", "api", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "deadline", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_invocation", "false", "!"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_invocation", "the body", "true", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_rewritten", "false", "!"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_rewritten", "the body", "true", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "path", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "request_id", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "response_limit", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "takes_response", "body.len() < MAX_RESPONSE_BYTES / 8", "<= for <"): SMALL_BODY,
    ("src/http/lambda.rs", "takes_response", "body.len() < MAX_RESPONSE_BYTES / 8", "false"): SMALL_BODY,
    ("src/http/lambda.rs", "takes_response", "encoded + headers.sum::<usize>() + FRAME_BYTES <= MAX_RESPONSE_BYTES", "< for <="):
        "differs for one length, within the 16 KiB in reserve",
    ("src/http/lambda.rs", "takes_response", "the body", "false", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "takes_response", "true", "!", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "tenant", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/multipart.rs", "pieces", "begin.starts_with(&dashed)", "false"):
        "such a part would contain the boundary, so the check at the end refuses it, too",
    ("src/http/request_body.rs", "BodyReader::read", "first.is_empty() && more.is_empty()", "false"): COPY,
    ("src/http/response_body.rs", "ResponseBody::buffer", "first.is_empty()", "false"): COPY,
    ("src/http/response_body.rs", "joined", "more.is_empty()", "false"): COPY,
    ("src/http/response_stream.rs", "Opened::response", "may_open", "true"):
        "once it is false, the receiver has ended, and `try_recv` returns an error",
    ("src/http/settings.rs", "LayerSettings::needs_request_later", "the body", "true"):
        "without these hooks nothing reads the copy of the request, so it only costs time and memory",
    ("src/idempotency/claim.rs", "Claim::cancelled_at", "self.granted().window.stop == stop", "false"):
        "a shortcut: setting the time that the claim has already changes nothing, and only allocates",
    ("src/idempotency/engine/claiming.rs", "Engine::claim_again", "self.clock.now() >= until", "> for >="):
        "the pause is random, so no test can make it end exactly with the time for claims",
    ("src/idempotency/engine/claiming.rs", "Engine::claim_again", "self.clock.now().after(pause) >= until", "> for >="):
        "the pause is random, so no test can make it end exactly with the time for claims",
    ("src/idempotency/engine/settling.rs", "Engine::settle_once_more", "resumes >= unsettled.until", "> for >="):
        "the pause is random, so no test can make it end exactly when the settle is given up",
    ("src/idempotency/engine/claiming.rs", "Engine::withdraw_unanswered", "resumes < *until", "<= for <"):
        "the pause is random, so no test can make it end exactly when the withdrawal is given up",
    ("src/idempotency/engine/claiming.rs", "applied", "false", "!"): "the claim that is made of this grant does not keep the flag",
    ("src/idempotency/engine/committing.rs", "Engine::settle_with_retries", "self.clock.now().after(pause) < until", "<= for <"):
        "the pause is random, so no test can make it end exactly when the settle is given up",
    ("src/idempotency/engine/committing.rs", "fate", "false", "!", "2"):
        "a store answers `Renewed` to renewals alone, and `fate` gets the answers to other settles",
    ("src/idempotency/engine/ending.rs", "End::failure_name", "the arm Conclusion::LeaseLost", "deleted"):
        "called before a batch's run is settled, so its lease cannot be known to be lost",
    ("src/idempotency/engine/heartbeat.rs", "Renewing::new", "claim.granted().window.bounds_runs()", "true"):
        "without a custom limit the run stops with the window, as its claim shows already",
    ("src/idempotency/engine/running.rs", "Engine::supersession", "!self.store.format().keeps_every_outcome()", "false"): PEERS,
    ("src/idempotency/engine/settling.rs", "Engine::settle_again", "!open.is_empty()", "true"):
        "with nothing open, the loop draws a pause that nobody waits for, and ends",
    ("src/idempotency/names.rs", "OnlyOperation::check", "tenant.is_some()", "false"): PEERS,
    ("src/idempotency/result.rs", "Encoder::through_codec", "bytes.len() + 1", "- for +"): CAPACITY,
    ("src/idempotency/settings.rs", "<EngineSettings as Default>::default", "false", "!"): FROM_ENVIRONMENT,
    ("src/idempotency/settings.rs", "<EngineSettings as Default>::default", "false", "!", "2"): FROM_ENVIRONMENT,
    ("src/idempotency/settings.rs", "<EngineSettings as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/idempotency/verdict.rs", "boxed", "the body", "Default::default()"): OTHER_FEATURES,
    ("src/idempotency/window.rs", "Window::bounds_runs", "the body", "true"):
        "without a custom limit the run stops with the window, as its claim shows already; the claim only allocates room for other times",
    ("src/key/canonical.rs", "Member::compare_names", "self.escaped || other.escaped", "true"):
        "names without escapes are their own unescaped text, so it only compares them more slowly",
    ("src/key/canonical.rs", "Member::new", "escaped", "true"): "a name without escapes is its own unescaped text, so it is only copied more slowly",
    ("src/key/canonical.rs", "Writer::string", "false", "!"):
        "names without escapes are their own unescaped text, so they are only copied and compared more slowly",
    ("src/key/canonical.rs", "Writer::string", "self.valid < self.at", "<= for <"):
        "the byte there is a quote, which is valid, so the valid text never ends just before it",
    ("src/key/canonical.rs", "canonical", "2 * text.len()", "+ for *"): CAPACITY,
    ("src/key/delivery.rs", "source", "the body", 'Some("")'): "its only reader through the trait takes a missing source as the empty text",
    ("src/key/expression/encoded.rs", "bytes", "encoded.contains(|c: char| c.is_ascii_whitespace())", "true"):
        "it only copies a text from which the filter removes nothing",
    ("src/key/expression/encoded.rs", "header_end", "at <= file.len()", "< for <="):
        "a file that ends with its header has no trailer, which is the same error",
    ("src/key/powertools/mod.rs", "Dialect::text", "json.len() + json.len() / 4", "- for +"): CAPACITY,
    ("src/key/powertools/mod.rs", "Dialect::text", "json.len() / 4", "* for /"): CAPACITY,
    ("src/key/powertools/number.rs", "Shortest::scientific", "exponent < 0", "<= for <"): "numbers with the exponent 0 are written without one",
    ("src/key/powertools/number.rs", "typescript", "value < 0.0", "<= for <"): "zero has been returned before",
    ("src/key/powertools/number.rs", "typescript", "value == 0.0", "false"): "without the early return both zeros are also written as `0`",
    ("src/key/text.rs", "write_characters", "byte < 0x20", "<= for <"): "a byte that needs an escape is never 0x20, the space",
    ("src/key/value.rs", "json", 'text.windows(4).any(|part| part == b"null")', "true"):
        "a shortcut: a number that is not finite is written as `null`, so the second pass finds nothing in any other text",
    ("src/order.rs", "<Mark as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/record.rs", "stored_text", "text.contains('\\0')", "true"): "without a NUL, replacing it only copies the text once more",
    ("src/store/cached.rs", "CachedStore::look_up", "answers.is_empty()", "true"):
        "the list has its length from then on, so setting it again changes nothing",
    ("src/store/dynamodb/item.rs", "attempts", "*number >= 0.0", "> for >="):
        "DynamoDB returns every zero as `0`, which is read as an integer before, and its smallest number is not rounded to zero",
    ("src/store/dynamodb/mark.rs", "Schema::replaced_mark", "seen.is_some()", "true"):
        "without a mark that was read, the condition is that there is none, so the further attributes that the update removes do not exist",
    ("src/store/dynamodb/region.rs", "<Described as Intercept>::name", "the body", '""'):
        "the SDK shows an interceptor's name only in the error of one that failed, and this one never fails",
    ("src/store/dynamodb/schema.rs", "<AttributeNames as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::claim_ordered", "self.clock.now().after(pause) >= lease_until", "> for >="):
        "the pause is random, so no test can make it end exactly with the lease",
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::claimed_record", "item.is_none()", "false"):
        "the other two pins fail on every item with a status or attempts, and over any other item that may be replaced the grant is the same, in one try less",
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::claimed_record", "item.is_none()", "true"):
        "an item that was read has its id, so the pin fails only if the item was deleted since, and then the other two pins fail as well, or the next try has the same grant because the item had neither status nor attempts",
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::claimed_record", "restarts", "false", "2"):
        "attempts that restart a claim cannot be read, and count as 0 without the branch, too",
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::explain_ordered", "matches!(request.settlement, Settlement::HandBack)", "true"):
        "of the other settlements only a renewal can be refused on a record that it may still settle, and the rule below has the same answer for it",
    ("src/store/dynamodb/single/transaction.rs", "<DynamoDbStore as Transactional>::open", "the body", "Default::default()"):
        "the body is the default, too",
    ("src/store/dynamodb/single/transaction.rs", "DynamoDbStore::commit_writes", "false", "!"):
        "without a request the flag decides nothing: `is_claimless || request.is_none()` is true either way",
    ("src/store/fault.rs", "FaultStore::draw", "drawn < 0.0", "<= for <"):
        "differs if a random number is exactly a sum of rates, about once in 2^52 draws",
    ("src/store/memory.rs", "<MemoryStore as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/store/memory.rs", "<MemoryStore as Store>::format", "the body", "Default::default()"): NATIVE,
    ("src/store/memory.rs", "MemoryStore::new", "the body", "Default::default()"): RECURSION,
    ("src/store/memory.rs", "MemoryStore::with_clock", "the body", "Default::default()"): RECURSION,
    ("src/store/mod.rs", "format", "the body", "Default::default()"): NATIVE,
    ("src/store/ordering/resolving.rs", "check_resolution", '!cfg!(feature = "order")', "false"): OTHER_FEATURES,
    ("src/store/postgres/claim.rs", "PostgresStore::claim_all", "requests.iter().any(|request| request.order().is_some())", "true"): ORDERED_ONLY,
    ("src/store/postgres/claim.rs", "PostgresStore::claim_together", "!undecided.is_empty()", "true"):
        "a shortcut: without undecided claims there is no group, so nothing is sent",
    ("src/store/postgres/claim.rs", "PostgresStore::enter", "refused.is_empty()", "false"):
        "a shortcut: without a refused claim no row is decoded, and neither a record nor an error is used",
    ("src/store/postgres/config.rs", "Config::root_certificates_of", "the body", "Ok(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/postgres/connection.rs", "<Manager as managed::Manager>::recycle", "SystemClock.now().since(session.last_used) < "
     "CHECK_AFTER", "<= for <"):
        "differs if the connection has been idle for exactly 5 s of the system clock, which no test can bring about",
    ("src/store/postgres/connection.rs", "<Manager as managed::Manager>::recycle", "failed.is_err()", "false"): UNSEEN,
    ("src/store/postgres/connection.rs", "<Manager as managed::Manager>::recycle", "failed.is_err()", "true"): UNSEEN,
    ("src/store/postgres/error.rs", "of_connect", "false", "!"): "only the kind is used, which the flag does not decide",
    ("src/store/postgres/mod.rs", "<PostgresStore as Store>::format", "the body", "Default::default()"): NATIVE,
    ("src/store/postgres/read.rs", "records", "is_wanted(&key)", "true"): "the records of other keys are decoded, too, and nobody looks them up",
    ("src/store/postgres/settle.rs", "PostgresStore::settle_all", "requests.iter().any(|request| request.order().is_some())", "true"): ORDERED_ONLY,
    ("src/store/postgres/statements.rs", "<TableName as Default>::default", "the body", "Default::default()"): RECURSION,
    ("src/store/postgres/statements.rs", "Statements::within", "statements.names == names", "false"):
        "a cache: the same statements are built again for each transaction",
    ("src/store/postgres/statements.rs", "TableName::of_transaction", "self.schema.is_none()", "true"):
        "the schema that is found for a table with a configured schema is that schema, so the statements stay the same",
    ("src/store/postgres/tls.rs", "connector", "the arm SslMode::Disable", "SslMode::Prefer", "deleted"): OTHER_FEATURES,
    ("src/store/postgres/tls.rs", "connector", "the body", "Ok(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/redis/calls.rs", "RedisStore::evaluate", "!unknown.is_empty()", "true"): "a shortcut: nothing is sent for no commands",
    ("src/store/redis/calls.rs", "RedisStore::send", "chunks.len() <= 1", "< for <="): ONE_CHUNK,
    ("src/store/redis/calls.rs", "RedisStore::send", "chunks.len() <= 1", "false"): ONE_CHUNK,
    ("src/store/redis/config.rs", "read", "!info.addr().is_supported()", "false"): OTHER_FEATURES,
    ("src/store/redis/mod.rs", "<RedisStore as Store>::format", "the body", "Default::default()"): NATIVE,
    ("src/store/redis/node.rs", "Node::attempt", "true", "!"): "a call that was not sent is not repeated, whatever the flag",
    ("src/store/redis/node.rs", "Node::is_suspect", "SystemClock.now().since(last) > IDLE", ">= for >"):
        "differs if the last response was exactly 5 s ago by the system clock, which no test can bring about",
    ("src/store/redis/scripts.rs", "Script::call_on_mark", "false", "!"): "only puts mark.lua before resolve.lua, which calls nothing of it",
    ("src/store/redis/scripts.rs", "Script::call_on_mark", "false", "!", "2"): "only puts index.lua before resolve.lua, which calls nothing of it",
    ("src/store/remote/tls.rs", "built_in", "the body", "None", "2"): OTHER_FEATURES,
    ("src/store/remote/tls.rs", "built_in", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/remote/tls.rs", "built_in", "the body", "Some(Default::default())", "3"): OTHER_FEATURES,
    ("src/store/remote/tls.rs", "install_provider", "CryptoProvider::get_default().is_none()", "true"):
        "installing over an installed provider fails, which is ignored, and changes nothing",
    ("src/store/rules/amending.rs", "check_amendment", '!cfg!(feature = "order") && request.read.sequence.is_some() && matches!(request.amendment, '
     "Amendment…", "false"):
        OTHER_FEATURES,
    ("src/store/rules/amending.rs", "check_amendment", "matches!(request.amendment, Amendment::Settle { .. })", "!"): OTHER_FEATURES,
    ("src/telemetry/spans.rs", "answered", "!span.is_disabled()", "true"): "recording into a disabled span does nothing",
    ("src/telemetry/spans.rs", "are_wanted", "the body", "true"):
        "if no subscriber wants the level, the macros make a disabled span, which is only slower than none, and no current span is an operation's",
    ("src/telemetry/spans.rs", "call", "!are_wanted(Level::DEBUG)", "false"):
        "if no subscriber wants the level, the macro makes a disabled span, which is only slower than none",
}
