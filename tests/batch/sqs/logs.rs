//! One log event per record, without payloads or keys.

use lambda_once::{
    AfterUnknown, Classify, Key, PermanentFailures, Verdict,
    batch::{RecordInfo, sqs::Sqs},
    store::fault::{Call, Fault},
};
use serde_json::{Value, json};
use tracing::Level;

use crate::{
    support::collector::{Collector, Line},
    world::{World, batch, order, work},
};

/// Delivers these bodies, and returns all log lines.
async fn lines(world: &World, policy: PermanentFailures, bodies: impl IntoIterator<Item = Value>) -> Vec<Line> {
    let (collector, guard) = Collector::install();
    let service = world.service().permanent_failures(policy);
    world.deliver_to(&service, bodies).await;
    drop(guard);
    collector.lines()
}

/// Returns for each record its message id, outcome, whether it was reported, and the level of its log event.
async fn records(world: &World, bodies: impl IntoIterator<Item = Value>) -> Vec<(String, String, String, Level)> {
    let lines = lines(world, PermanentFailures::Report, bodies).await;
    let records = lines.iter().filter(|line| line.get("message") == "record");
    let mut records: Vec<_> = records
        .map(|line| {
            assert_eq!(line.get("receive_count"), "3");
            assert_eq!(line.get("operation"), "tests.sqs");
            let get = |field| line.get(field).to_owned();
            (get("message_id"), get("outcome"), get("reported"), line.level)
        })
        .collect();
    // They are logged as the outcomes become known.
    records.sort_by_key(|(id, ..)| id[1..].parse::<u32>().unwrap());
    records
}

fn line(id: &str, outcome: &str, reported: bool, level: Level) -> (String, String, String, Level) {
    (id.to_owned(), outcome.to_owned(), reported.to_string(), level)
}

#[tokio::test(start_paused = true)]
async fn one_event_for_each_record_has_its_outcome_and_whether_it_was_reported() {
    let world = World::new();
    let bodies = world.messages_of_every_outcome();
    let expected = [
        line("m0", "executed", false, Level::DEBUG),
        line("m1", "failed", true, Level::INFO),
        line("m2", "invalid_payload", true, Level::WARN),
        line("m3", "mismatch", true, Level::WARN),
        line("m4", "replayed", false, Level::DEBUG),
        line("m5", "failed", true, Level::WARN),
        line("m6", "failed", true, Level::WARN),
        line("m7", "panicked", true, Level::ERROR),
        line("m8", "cancelled", true, Level::ERROR),
        line("m9", "key_missing", true, Level::WARN),
        line("m10", "replayed", false, Level::DEBUG),
        line("m11", "replayed_failure", true, Level::INFO),
        line("m12", "in_progress", true, Level::INFO),
        line("m13", "took_over", false, Level::WARN),
    ];
    assert_eq!(records(&world, bodies).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_logged_as_loudly_as_the_one_whose_verdict_it_gets() {
    let world = World::new();
    let bodies = [order("A"), order("A"), work("B", "permanent", 0), work("B", "permanent", 0)];
    let expected = [
        line("m0", "executed", false, Level::DEBUG),
        line("m1", "replayed", false, Level::DEBUG),
        line("m2", "failed", true, Level::WARN),
        line("m3", "failed", true, Level::WARN),
    ];
    assert_eq!(records(&world, bodies).await, expected);
}

#[tokio::test(start_paused = true)]
async fn store_errors_are_logged_for_each_record() {
    let world = World::new();
    world.store.next(Call::Claim, Fault::AccessDenied);
    world.store.always(Call::Settle, Fault::AccessDenied);
    let expected = [line("m0", "access_denied", true, Level::ERROR), line("m1", "unrecorded", false, Level::ERROR)];
    assert_eq!(records(&world, [order("A"), order("B")]).await, expected);
}

#[tokio::test(start_paused = true)]
async fn records_not_started_or_abandoned_are_logged_too() {
    let world = World::with(|builder| builder.after_unknown(AfterUnknown::Refuse).reserve(crate::world::seconds(5)));
    world.abandon("A");
    let bodies = (0..12).map(|i| work(&format!("order-{i}"), "hang", 0));
    let logged = records(&world, std::iter::once(order("A")).chain(bodies)).await;
    assert_eq!(logged.len(), 13);
    assert_eq!(logged[0], line("m0", "abandoned", true, Level::WARN));
    assert_eq!(logged[12], line("m12", "not_started", true, Level::INFO));
}

// Tests P28, P29.
#[tokio::test(start_paused = true)]
async fn no_event_holds_a_payload_or_a_plain_key() {
    let secret = |act: &str| json!({"order_id": "secret-7", "act": act, "ms": 0, "card": "secret-8"});
    for act in ["succeed", "transient", "permanent", "unknown", "panic", "hang"] {
        for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
            let world = World::new();
            let other_payload = json!({"order_id": "secret-7", "act": act, "ms": 1, "card": "secret-9"});
            let bodies = [secret(act), secret(act), other_payload, json!("secret-0"), json!({"order_id": "secret-1"})];
            let lines = lines(&world, policy, bodies).await;
            assert_eq!(lines.iter().filter(|line| line.get("message") == "record").count(), 5);
            assert!(!format!("{lines:?}").contains("secret"), "{lines:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_errors_of_a_key_function_and_of_a_decoder_are_not_quoted() {
    let world = World::new();
    let (collector, guard) = Collector::install();
    let key = Key::from_fn(|delivery| Err(format!("secret {:?}", delivery.body()).into()));
    let fails = world.once.sqs(key, |_: Value| async { anyhow::Ok(()) });
    let decode = |_: &RecordInfo, body: &String| Err::<Value, _>(format!("secret {body}").into());
    let undecodable = world.once.batch(Sqs, Key::message_id(), decode, |_: Value| async { anyhow::Ok(()) });
    assert_eq!(world.deliver_to(&fails, [order("secret-7")]).await, ["m0"]);
    assert_eq!(world.deliver_to(&undecodable, [order("secret-7")]).await, ["m0"]);
    drop(guard);
    let lines = format!("{:?}", collector.lines());
    assert!(lines.contains("record") && !lines.contains("secret"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn each_batch_ends_with_a_summary_at_info() {
    let world = World::new();
    let bodies = world.messages_of_every_outcome();
    let lines = lines(&world, PermanentFailures::Report, bodies).await;
    let summaries: Vec<_> = lines.iter().filter(|line| line.get("message") == "batch").collect();
    let [summary] = summaries[..] else { panic!("{summaries:?}") };
    assert_eq!(lines.last().unwrap().get("message"), "batch");
    assert_eq!((summary.level, summary.get("operation")), (Level::INFO, "tests.sqs"));
    let names = ["records", "executed", "duplicates_saved", "failed", "errors", "other", "reported"];
    // `A` and the lost one run. The copy of `A`, the completed one and the permanently failed one are duplicates. `B`
    // to `F` fail. A body that is not an order and one without a key are errors. One with the key of `A` and a running
    // one are neither.
    assert_eq!(names.map(|name| summary.get(name)), ["14", "2", "3", "5", "2", "2", "10"]);
}

#[tokio::test(start_paused = true)]
async fn a_summary_counts_records_that_the_store_did_not_decide_as_errors() {
    let world = World::new();
    world.store.always(Call::Claim, Fault::AccessDenied);
    let lines = lines(&world, PermanentFailures::Report, [order("A"), order("B")]).await;
    let summary = lines.iter().find(|line| line.get("message") == "batch").unwrap();
    let names = ["records", "failed", "errors", "other", "reported"];
    assert_eq!(names.map(|name| summary.get(name)), ["2", "0", "2", "0", "2"]);
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_failed_record_has_its_verdict() {
    for (act, level) in [("transient", Level::INFO), ("permanent", Level::WARN), ("unknown", Level::WARN)] {
        let lines = lines(&World::new(), PermanentFailures::Report, [work("A", act, 0)]).await;
        let record = lines.iter().find(|line| line.get("message") == "record").unwrap();
        assert_eq!((record.get("outcome"), record.get("verdict"), record.level), ("failed", act, level));
    }
    let lines = lines(&World::new(), PermanentFailures::Report, [order("A")]).await;
    assert_eq!(lines[0].get("verdict"), "");
}

#[tokio::test(start_paused = true)]
async fn a_decoders_error_is_logged_without_the_values_of_the_body() {
    let world = World::new();
    let (collector, guard) = Collector::install();
    for verdict in [Verdict::Permanent, Verdict::Transient] {
        let decode = move |_: &RecordInfo, body: &String| {
            let order: Value = serde_json::from_str(body)?;
            Ok(Err::<Value, _>(format!("schema 7 is not known to {}", order["order_id"])).classify(|_| verdict)?)
        };
        let service = world.once.batch(Sqs, Key::message_id(), decode, |_: Value| async { anyhow::Ok(()) });
        assert_eq!(world.deliver_to(&service, [order("secret-7")]).await, ["m0"]);
    }
    drop(guard);
    let lines = format!("{:?}", collector.lines());
    assert_eq!(lines.matches("schema 7 is not known to").count(), 2, "{lines}");
    assert!(!lines.contains("secret"), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn a_decoders_long_error_is_cut_within_a_word_or_after_a_space() {
    /// An error whose `Display` writes several parts.
    #[derive(Debug, Clone, Copy)]
    struct Long(&'static str);
    impl std::fmt::Display for Long {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{}{}", "x".repeat(150), "x".repeat(45))?;
            f.write_str(self.0)?;
            f.write_str(&"y".repeat(150))
        }
    }
    impl std::error::Error for Long {}
    // 200 characters are kept.
    for (end, kept) in [(" four", " four…"), (" one ", " one …"), ("", "yyyyy…")] {
        let (world, long) = (World::new(), Long(end));
        let decode = move |_: &RecordInfo, _: &String| Err::<Value, _>(long.into());
        let service = world.once.batch(Sqs, Key::message_id(), decode, |_: Value| async { anyhow::Ok(()) });
        let processed = world.process(&service, batch([order("A")])).await;
        let error = processed.records[0].error.as_deref().unwrap();
        let (_, said) = error.rsplit_once(": ").unwrap();
        assert_eq!(said, format!("{}{kept}", "x".repeat(195)));
    }
}

#[tokio::test(start_paused = true)]
async fn the_key_in_an_event_is_the_hash_under_which_the_record_is_stored() {
    let world = World::new();
    let lines = lines(&world, PermanentFailures::Report, [order("A")]).await;
    assert_eq!(lines[0].get("key"), world.hash("A").to_hex());
}

#[tokio::test(start_paused = true)]
async fn a_call_with_several_settles_is_not_named_after_one_of_them() {
    for (other, policy, operation) in [
        ("permanent", AfterUnknown::Rerun, "settle"),
        // A release that is abandoned before the completion no longer shares its calls.
        ("transient", AfterUnknown::Refuse, "settle"),
        ("succeed", AfterUnknown::Rerun, "complete"),
    ] {
        let world = World::with(|builder| builder.after_unknown(policy));
        world.store.always(Call::Settle, Fault::Silence);
        let bodies = [work(&format!("{other} A"), other, 0), work(&format!("{other} B"), "succeed", 0)];
        let lines = lines(&world, PermanentFailures::Report, bodies).await;
        let unrecorded = lines.iter().filter(|line| line.get("message").starts_with("the operation is done but"));
        let errors: Vec<_> = unrecorded.map(|line| line.get("error")).collect();
        assert!(!errors.is_empty() && errors.iter().all(|error| error.starts_with(operation)), "{errors:?}");
    }
}
