//! Other receivers of each record's outcome: observers, tests, and the handler's own log.

use std::sync::{Arc, Mutex};

use lambda_once::{
    ErrorKind, Failure, Interruption, Key, OutcomeKind, Verdict,
    batch::{OnFailure, Processed, RecordReport},
    record::Status,
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

use crate::{
    sqs::dead_letters::Letters,
    support::collector::Collector,
    world::{World, batch, event, fifo, message, order, seconds, work},
};

type Heard = Arc<Mutex<Vec<(usize, Result<OutcomeKind, ErrorKind>, bool)>>>;

fn note(heard: &Heard) -> impl Fn(&RecordReport) + Send + Sync + use<> {
    let heard = Arc::clone(heard);
    move |report| heard.lock().unwrap().push((report.index, report.outcome, report.reported))
}

#[tokio::test(start_paused = true)]
async fn every_record_is_reported_with_its_outcome() {
    let world = World::new();
    let bodies = world.messages_of_every_outcome();
    let event = LambdaEvent::new(batch(bodies), world.left(seconds(60)));
    let Processed { response, records, .. } = world.service().process(event).await;
    let outcomes: Vec<_> = records.iter().map(|report| report.outcome).collect();
    let expected = [
        Ok(OutcomeKind::Executed),
        Ok(OutcomeKind::Failed(Verdict::Transient)),
        Err(ErrorKind::Payload),
        Ok(OutcomeKind::Mismatch),
        Ok(OutcomeKind::Replayed),
        Ok(OutcomeKind::Failed(Verdict::Permanent)),
        Ok(OutcomeKind::Failed(Verdict::Unknown)),
        Ok(OutcomeKind::Interrupted(Interruption::Panicked)),
        Ok(OutcomeKind::Interrupted(Interruption::Cancelled)),
        Err(ErrorKind::KeyMissing),
        Ok(OutcomeKind::Replayed),
        Ok(OutcomeKind::ReplayedFailure),
        Ok(OutcomeKind::InProgress),
        Ok(OutcomeKind::TookOver),
    ];
    assert_eq!(outcomes, expected);
    let places: Vec<_> = records.iter().map(|report| (report.index, report.record.id().to_owned())).collect();
    assert_eq!(places, (0..14).map(|i| (i, format!("m{i}"))).collect::<Vec<_>>());
    let reported: Vec<_> = records.iter().filter(|report| report.reported).map(|report| report.record.id()).collect();
    let failures = response.unwrap().batch_item_failures;
    assert_eq!(reported, failures.iter().map(|failure| &*failure.item_identifier).collect::<Vec<_>>());
    assert_eq!(records[0].key, Some(world.hash("A")));
    assert_eq!([&records[2], &records[9]].map(|report| report.key), [None, None]);
    assert_eq!(records[1].error.as_deref(), Some("the shop is closed"));
    assert_eq!(records[0].error, None);
}

// Tests B5.
#[tokio::test(start_paused = true)]
async fn records_skipped_or_not_started_are_reported_too() {
    let world = World::new();
    let bodies =
        [work("A", "transient", 0), order("B"), work("C", "hang", 0), order("D"), order("E"), order("F"), order("E")];
    let event =
        LambdaEvent::new(fifo(["a", "a", "b", "b", "c", "c", "d"].into_iter().zip(bodies)), world.left(seconds(5)));
    let processed = world.service().concurrency(1).process(event).await;
    let failed = OutcomeKind::Failed(Verdict::Transient);
    let cancelled = OutcomeKind::Interrupted(Interruption::Cancelled);
    let (skipped, not_started) = (OutcomeKind::Skipped, OutcomeKind::NotStarted);
    let outcomes = [failed, skipped, cancelled, skipped, not_started, skipped, not_started];
    assert_eq!(processed.outcomes(), outcomes.map(Ok));
    assert_eq!(processed.reported().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_completed_record_behind_an_undecided_duplicate_is_skipped() {
    let world = World::new();
    world.put("D", Status::Completed, "1");
    let bodies = [work("A", "hang", 0), order("B"), order("C"), order("C"), order("D")];
    let event = LambdaEvent::new(fifo(["a", "b", "b", "c", "c"].into_iter().zip(bodies)), world.left(seconds(5)));
    let processed = world.service().concurrency(1).process(event).await;
    let cancelled = OutcomeKind::Interrupted(Interruption::Cancelled);
    let (skipped, not_started) = (OutcomeKind::Skipped, OutcomeKind::NotStarted);
    assert_eq!(processed.outcomes(), [cancelled, not_started, skipped, skipped, skipped].map(Ok));
    assert_eq!(processed.reported().len(), 5);
}

/// In whichever order the groups appear.
#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_record_behind_an_undecided_duplicate_is_skipped() {
    let world = World::new();
    let bodies = [work("A", "succeed", 300), order("B"), order("C"), order("C"), order("D"), order("D")];
    let event = LambdaEvent::new(fifo(["a", "b", "b", "c", "c", "a"].into_iter().zip(bodies)), world.left(seconds(1)));
    let processed = world.service().concurrency(1).process(event).await;
    let (executed, skipped, not_started) = (OutcomeKind::Executed, OutcomeKind::Skipped, OutcomeKind::NotStarted);
    assert_eq!(processed.outcomes(), [executed, not_started, skipped, skipped, skipped, skipped].map(Ok));
    assert_eq!(processed.reported().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_skipped_dead_letter_has_the_known_outcome() {
    let (world, letters) = (World::new(), Letters::new());
    world.put("K", Status::Failed, "1");
    let service = world.service().dead_letters(letters.clone());
    let event = fifo([("a", work("A", "transient", 50)), ("a", order("K")), ("b", order("K"))]);
    let processed = world.process(&service, event).await;
    let failed = OutcomeKind::Failed(Verdict::Transient);
    let outcomes = [failed, OutcomeKind::Skipped, OutcomeKind::ReplayedFailure];
    assert_eq!(processed.outcomes(), outcomes.map(Ok));
    assert_eq!((processed.reported().len(), letters.ids()), (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_dead_letter_behind_one_not_started_has_the_outcome() {
    let (world, letters) = (World::new(), Letters::new());
    world.put("K", Status::Failed, "1");
    let service = world.service().dead_letters(letters.clone()).concurrency(1);
    let bodies = [work("A", "succeed", 300), order("B"), order("K"), order("K")];
    let event = fifo(["a", "b", "b", "c"].into_iter().zip(bodies));
    let processed = world.process_within(&service, event, seconds(1)).await;
    let (executed, not_started) = (OutcomeKind::Executed, OutcomeKind::NotStarted);
    let outcomes = [executed, not_started, OutcomeKind::Skipped, OutcomeKind::ReplayedFailure];
    assert_eq!(processed.outcomes(), outcomes.map(Ok));
    assert_eq!((processed.reported().len(), letters.ids()), (3, vec![]));
}

#[tokio::test(start_paused = true)]
async fn records_kept_from_starting_by_another_groups_failure_are_skipped() {
    let world = World::new();
    let service = world.service().concurrency(1).on_failure(OnFailure::StopBatch);
    let bodies = [order("A"), work("B", "transient", 0), order("C"), order("D"), order("C")];
    let event = LambdaEvent::new(fifo(["a", "b", "a", "c", "d"].into_iter().zip(bodies)), world.left(seconds(60)));
    let outcomes = service.process(event).await.outcomes();
    let (failed, skipped) = (OutcomeKind::Failed(Verdict::Transient), OutcomeKind::Skipped);
    assert_eq!(outcomes, [OutcomeKind::Executed, failed, skipped, skipped, skipped].map(Ok));
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_each_record_once_also_beside_a_test() {
    let (world, heard) = (World::new(), Heard::default());
    let service = world.service().on_record(note(&heard));
    world.deliver_to(&service, [order("A"), work("B", "transient", 0)]).await;
    let executed = (0, Ok(OutcomeKind::Executed), false);
    let failed = (1, Ok(OutcomeKind::Failed(Verdict::Transient)), true);
    let sorted = |heard: &Heard| {
        let mut heard = std::mem::take(&mut *heard.lock().unwrap());
        heard.sort_unstable_by_key(|(index, ..)| *index);
        heard
    };
    assert_eq!(sorted(&heard), [executed, failed]);

    let event = LambdaEvent::new(batch([order("A")]), world.left(seconds(60)));
    assert_eq!(service.process(event).await.records.len(), 1);
    assert_eq!(sorted(&heard), [(0, Ok(OutcomeKind::Replayed), false)]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_changes_nothing() {
    let world = World::new();
    let service = world.service().on_record(|_| std::panic::resume_unwind(Box::new("the meter is broken")));
    assert_eq!(world.deliver_to(&service, [order("A"), work("B", "transient", 0), order("C")]).await, ["m1"]);
    assert_eq!(world.journal.keys(), ["A", "B", "C"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_refused_has_no_reports() {
    let world = World::new();
    let mut nameless = message("x", &order("A"));
    nameless["messageId"] = json!("");
    let event = LambdaEvent::new(event([nameless]), world.left(seconds(60)));
    let processed = world.service().process(event).await;
    assert_eq!(processed.response.unwrap_err().kind(), ErrorKind::Event);
    assert!(processed.records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_runs_unprotected_is_reported_without_a_key() {
    let world = World::with(|builder| builder.missing_key(lambda_once::MissingKey::RunUnprotected));
    let event = LambdaEvent::new(batch([order(""), order("A")]), world.left(seconds(60)));
    let records = world.service().process(event).await.records;
    assert!(records.iter().all(|report| report.outcome == Ok(OutcomeKind::Executed)));
    assert_eq!(records.iter().map(|report| report.key.is_some()).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_handlers_logs_identify_its_record() {
    let world = World::new();
    let service = world.once.sqs(Key::pointer("/order_id"), |_: Value| async {
        tokio::task::yield_now().await;
        tracing::info!("booking");
        Ok::<_, Failure>(())
    });
    let service = service.concurrency(1);
    let mut traced = message("m1", &order("B"));
    traced["attributes"]["AWSTraceHeader"] = json!("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1");
    let (collector, guard) = Collector::install();
    let event = LambdaEvent::new(event([message("m0", &order("A")), traced]), world.left(seconds(60)));
    service.process(event).await;
    drop(guard);
    let said: Vec<_> = collector.all().into_iter().filter(|line| line.get("message") == "booking").collect();
    let of = |field| said.iter().map(|line| line.of_span(field).to_owned()).collect::<Vec<_>>();
    assert_eq!(of("message_id"), ["m0", "m1"]);
    assert_eq!(of("key"), ["A", "B"].map(|key| world.hash(key).to_string()));
    assert_eq!(of("attempt"), ["1", "1"]);
    assert_eq!(of("aws_trace_header"), ["", "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"]);
    let outside = collector.lines().into_iter().filter(|line| line.get("message") == "record");
    assert!(outside.map(|line| line.of_span("message_id").to_owned()).all(|id| id.is_empty()));
}
