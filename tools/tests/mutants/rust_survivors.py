"""The mutants of the Rust code that no test of the measured programs detects, and the reasons."""

OTHER_FEATURES = "compiled, or reached, only without some of the features with which the tests are built"
PEERS = "the tests beside AWS Powertools (make powertools) detect it, which are not among the measured programs"
CAPACITY = "the capacity of a buffer"

# The file, the function, the code, its change, and the place if there are several.
RUST = {
    ("src/store/ordering/resolving.rs", "check_resolution", '!cfg!(feature = "order")', "false"): OTHER_FEATURES,
    ("src/store/rules/amending.rs", "check_amendment", '!cfg!(feature = "order") && request.read.sequence.is_some() '
     "&& matches!(request.amendment, Amendment…", "false"): OTHER_FEATURES,
    ("src/store/rules/amending.rs", "check_amendment", "matches!(request.amendment, Amendment::Settle { .. })", "!"): OTHER_FEATURES,
    ("src/batch/envelope/eventbridge.rs", "unquoted", '!detail.get().starts_with(\'"\')', "false"):
        "a shortcut: a detail that is not a string fails to decode as one and is returned as it is",
    ("src/batch/processor/batch.rs", "Batch::is_response_fixed", "reported < index", "<= for <"):
        "it is asked only about undecided records, and a reported one is decided",
    ("src/batch/processor/entities.rs", "Entities::take_turn", "true", "!"):
        "if any record has an entity, every record in the claim queues has one",
    ("src/batch/processor/entities.rs", "Entities::turns_of", "true", "!"):
        "if any record has an entity, every record in the claim queues has one",
    ("src/batch/sources/encoding.rs", "<Optional as de::Visitor>::visit_none", "the body", "Ok(Default::default())"):
        "the default of an Option is None",
    ("src/batch/sources/encoding.rs", "<Optional as de::Visitor>::visit_unit", "the body", "Ok(Default::default())"):
        "the default of an Option is None",
    ("src/batch/sources/image.rs", "decode", "false", "!"): "a shortcut: without binary values the second attempt is the first one again",
    ("src/batch/sources/image.rs", "decode", "has_bytes", "true"):
        "a shortcut: without binary values the second attempt is the first one again",
    ("src/http/admission.rs", "PlaceWait::refusal_on_record", "ends.since(now) < MIN_CALL_TIME", "<= for <"):
        "differs if exactly 100 ms are left: whether one more read is tried, which is optional",
    ("src/http/answer.rs", "LayerSettings::conclude", "the arm Outcome::Superseded { .. }", "deleted"):
        "no run of a request ends so: its errors are transient, and its transactions have no classifier",
    ("src/http/entry.rs", "LayerSettings::candidate", "false", "!"):
        "the flag of a label's headers is not read: a label that cannot be selected is left out",
    ("src/http/exchange.rs", "LayerSettings::respond_or_wait", "self.engine.clock.now() < entry.wait_until", "<= for <"):
        "in that millisecond the wait gives up at once, with the same refusal",
    ("src/http/lambda.rs", "api", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "deadline", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_invocation", "false", "!"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_invocation", "the body", "true", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_rewritten", "false", "!"): OTHER_FEATURES,
    ("src/http/lambda.rs", "is_rewritten", "the body", "true", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "path", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "request_id", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "response_limit", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "takes_response", "true", "!", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "takes_response", "the body", "false", "2"): OTHER_FEATURES,
    ("src/http/lambda.rs", "tenant", "the body", 'Some("")', "2"): OTHER_FEATURES,
    ("src/http/multipart.rs", "pieces", "begin.starts_with(&dashed)", "false"):
        "such a part would contain the boundary, so the check at the end refuses it, too",
    ("src/http/response_stream.rs", "Opened::response", "may_open", "true"):
        "once it is false, the receiver has ended, and `try_recv` returns an error",
    ("src/idempotency/engine/committing.rs", "fate", "false", "!", "2"):
        "a store answers `Renewed` to renewals alone, and `fate` gets the answers to other settles",
    ("src/idempotency/engine/ending.rs", "End::failure_name", "the arm Conclusion::LeaseLost", "deleted"):
        "called before a batch's run is settled, so its lease cannot be known to be lost",
    ("src/idempotency/engine/running.rs", "Engine::supersession", "!self.store.format().keeps_every_outcome()", "false"): PEERS,
    ("src/idempotency/names.rs", "OnlyOperation::check", "tenant.is_some()", "true"): PEERS,
    ("src/idempotency/names.rs", "OnlyOperation::check", "tenant.is_some()", "false"): PEERS,
    ("src/idempotency/names.rs", "OnlyOperation::check", "**only == *operation", "true"): PEERS,
    ("src/idempotency/names.rs", "OnlyOperation::check", "**only == *operation", "false"): PEERS,
    ("src/idempotency/names.rs", "OnlyOperation::check", "the body", "Ok(())"): PEERS,
    ("src/idempotency/result.rs", "Encoder::through_codec", "bytes.len() + 1", "- for +"): CAPACITY,
    ("src/idempotency/verdict.rs", "boxed", "the body", "Default::default()"): OTHER_FEATURES,
    ("src/key/canonical.rs", "Member::compare_names", "self.escaped || other.escaped", "true"):
        "names without escapes are their own unescaped text, so it only compares them more slowly",
    ("src/key/delivery.rs", "source", "the body", 'Some("")'): "its only reader through the trait takes a missing source as the empty text",
    ("src/key/expression/encoded.rs", "bytes", "encoded.contains(|c: char| c.is_ascii_whitespace())", "true"):
        "it only copies a text from which the filter removes nothing",
    ("src/key/expression/encoded.rs", "header_end", "at <= file.len()", "< for <="):
        "a file that ends with its header has no trailer, which is the same error",
    ("src/key/powertools/mod.rs", "Dialect::text", "json.len() + json.len() / 4", "- for +"): CAPACITY,
    ("src/key/powertools/mod.rs", "Dialect::text", "json.len() / 4", "* for /"): CAPACITY,
    ("src/key/powertools/number.rs", "Shortest::scientific", "exponent < 0", "<= for <"):
        "numbers with the exponent 0 are written without one",
    ("src/key/powertools/number.rs", "typescript", "value < 0.0", "<= for <"): "zero has been returned before",
    ("src/key/powertools/number.rs", "typescript", "value == 0.0", "false"): "without the early return both zeros are also written as `0`",
    ("src/store/dynamodb/region.rs", "<Described as Intercept>::name", "the body", '""'):
        "the SDK shows an interceptor's name only in the error of one that failed, and this one never fails",
    ("src/store/dynamodb/single/ordered.rs", "DynamoDbStore::claim_ordered", "self.clock.now().after(pause) >= lease_until", "> for >="):
        "the pause is random, so no test can make it end exactly with the lease",
    ("src/store/dynamodb/single/transaction.rs", "DynamoDbStore::commit_writes", "false", "!"):
        "without a request the flag decides nothing: `is_claimless || request.is_none()` is true either way",
    ("src/store/postgres/config.rs", "Config::root_certificates_of", "the body", "Ok(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/postgres/tls.rs", "connector", "the arm SslMode::Disable", "SslMode::Prefer", "deleted"): OTHER_FEATURES,
    ("src/store/postgres/tls.rs", "connector", "the body", "Ok(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/redis/scripts.rs", "Script::call_on_mark", "false", "!"):
        "only puts mark.lua before resolve.lua, which calls nothing of it",
    ("src/store/redis/scripts.rs", "Script::call_on_mark", "false", "!", "2"):
        "only puts index.lua before resolve.lua, which calls nothing of it",
    ("src/store/remote/tls.rs", "built_in", "the body", "None", "2"): OTHER_FEATURES,
    ("src/store/remote/tls.rs", "built_in", "the body", "Some(Default::default())", "2"): OTHER_FEATURES,
    ("src/store/remote/tls.rs", "built_in", "the body", "Some(Default::default())", "3"): OTHER_FEATURES,
}
