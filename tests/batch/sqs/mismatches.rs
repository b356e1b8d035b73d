//! A message whose key has another payload. It is lost only if that has an outcome.

use lambda_once::{
    AfterUnknown, Difference, OutcomeKind, PayloadPart, PermanentFailures,
    batch::RecordReport,
    clock::Clock,
    record::{Fingerprint, Record, Status},
    store::fault::Call,
};
use lambda_runtime::LambdaEvent;
use serde_json::json;
use tokio::time::Instant;

use super::dead_letters::Letters;
use crate::support::collector::Collector;
use crate::world::{World, batch, fifo, ids, invoke, millis, order, reported, seconds, work};

/// Gives the record of `A` another payload.
async fn correct(world: &World) {
    let record = world.record("A").await.unwrap();
    let fingerprint = Some(Fingerprint::from_bytes([9; 32]));
    world.memory.insert(world.hash("A"), Record { fingerprint, ..record });
}

fn outcome(report: &RecordReport) -> (OutcomeKind, bool, bool) {
    (report.outcome.unwrap(), report.reported, report.dead_lettered)
}

#[tokio::test(start_paused = true)]
async fn a_corrected_message_is_not_lost_to_a_run_that_fails_for_now() {
    for policy in [Some(PermanentFailures::Report), Some(PermanentFailures::Acknowledge), None] {
        let (world, letters) = (World::new(), Letters::new());
        let (service, corrected) = (world.service(), batch([order("A")]));
        let service = match policy {
            Some(policy) => service.permanent_failures(policy),
            None => service.dead_letters(letters.clone()).dead_letter_abandoned(true),
        };
        let first = world.deliver([work("A", "transient", 1_000)]);
        let meanwhile = async {
            tokio::time::sleep(millis(500)).await;
            world.process(&service, corrected.clone()).await
        };
        let (failed, met) = tokio::join!(first, meanwhile);
        assert_eq!((failed, reported(&met)), (ids(0..1), ids(0..1)), "{policy:?}");
        assert_eq!(outcome(&met.records[0]), (OutcomeKind::Mismatch, true, false), "{policy:?}");
        assert!(letters.ids().is_empty());
        let again = world.process(&service, corrected).await;
        assert_eq!(outcome(&again.records[0]), (OutcomeKind::Executed, false, false), "{policy:?}");
    }
}

/// The differing payload is on record, or belongs to an earlier record of the batch.
#[tokio::test(start_paused = true)]
async fn a_report_and_its_log_event_name_the_parts_that_differ() {
    let world = World::new();
    let (collector, guard) = Collector::install();
    world.deliver([work("A", "succeed", 1)]).await;
    let other = |cents| batch([work("A", "succeed", cents), work("A", "succeed", cents + 1)]);
    let met = world.process(&world.service(), other(2)).await;
    drop(guard);
    for report in &met.records {
        assert_eq!(report.outcome, Ok(OutcomeKind::Mismatch));
        assert_eq!(report.difference, Difference::of([PayloadPart::Body]));
    }
    let lines = collector.lines();
    let differs = |outcome: &str| {
        let lines = lines.iter().filter(|line| line.get("outcome") == outcome);
        lines.map(|line| line.get("differs")).collect::<Vec<_>>()
    };
    assert_eq!((differs("executed"), differs("mismatch")), (vec![""], vec!["body"; 2]));
}

// Tests B6, B7.
#[tokio::test(start_paused = true)]
async fn a_mismatch_with_a_running_claim_reports_when_that_lapses_in_one_call() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    correct(&world).await;
    let met = world.process(&world.service(), batch([order("A")])).await;
    // The lease of ten seconds, and the margin.
    let lapses = world.clock.now().after(seconds(11)).after(millis(1));
    assert_eq!(met.records[0].held_until, Some(lapses));
    assert_eq!(world.store.calls(), [(Call::Claim, 1)]);
}

/// AWS Powertools records no failure, so the key is free again.
#[cfg(feature = "powertools")]
#[tokio::test(start_paused = true)]
async fn a_corrected_message_is_not_lost_to_a_failure_that_is_not_recorded() {
    use crate::world::Backing;
    use lambda_once::{
        Store,
        store::dynamodb::{Config, Powertools},
    };

    let client = aws_sdk_dynamodb::Config::builder().behavior_version_latest().build();
    let client = aws_sdk_dynamodb::Client::from_conf(client);
    let function = Powertools::python("orders.app.handler");
    let format = Config::new("orders").powertools(function).build(client).unwrap().format();
    let world = World::on(Backing { format, ..Backing::default() }, |builder| builder);
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    assert_eq!(world.deliver_to(&service, [work("A", "permanent", 0), order("A")]).await, ["m1"]);
    assert!(world.deliver_to(&service, [order("A")]).await.is_empty());
    assert_eq!(world.journal.keys(), ["A", "A"]);
}

#[tokio::test(start_paused = true)]
async fn a_mismatch_with_an_outcome_follows_the_policy() {
    for status in [Status::Completed, Status::Failed] {
        let (world, letters) = (World::new(), Letters::new());
        world.put("A", status, "1");
        correct(&world).await;
        assert_eq!(world.deliver([order("A")]).await, ids(0..1));
        let acknowledging = world.service().permanent_failures(PermanentFailures::Acknowledge);
        assert!(world.deliver_to(&acknowledging, [order("A")]).await.is_empty());
        let met = world.process(&world.service().dead_letters(letters.clone()), batch([order("A")])).await;
        assert_eq!(outcome(&met.records[0]), (OutcomeKind::Mismatch, false, true), "{status:?}");
        assert!(world.journal.keys().is_empty());
    }
}

// Tests B7.
#[tokio::test(start_paused = true)]
async fn a_lapsed_claim_of_another_payload_counts_as_abandoned() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let (world, letters) = (World::with(|builder| builder.after_unknown(policy)), Letters::new());
        world.abandon("A");
        correct(&world).await;
        let acknowledging = world.service().permanent_failures(PermanentFailures::Acknowledge);
        let met = world.process(&acknowledging, batch([order("A")])).await;
        assert_eq!(outcome(&met.records[0]), (OutcomeKind::Abandoned, true, false), "{policy:?}");
        let waits = world.service().dead_letters(letters.clone());
        let met = world.process(&waits, batch([order("A")])).await;
        assert_eq!(outcome(&met.records[0]), (OutcomeKind::Abandoned, true, false), "{policy:?}");
        let met = world.process(&waits.dead_letter_abandoned(true), batch([order("A")])).await;
        assert_eq!(outcome(&met.records[0]), (OutcomeKind::Abandoned, false, true), "{policy:?}");
        assert!(world.journal.keys().is_empty());
    }
}

/// Delivers two messages of a group while another payload holds the key of the first for ten seconds. After two seconds
/// that becomes `status` or is released. Returns the outcomes and the time to the response.
async fn in_order(world: &World, status: Option<Status>) -> (Vec<&'static str>, std::time::Duration) {
    world.put("A", Status::InProgress, "");
    correct(world).await;
    let began = Instant::now();
    let end = async {
        tokio::time::sleep(seconds(2)).await;
        match status {
            Some(Status::InProgress) => {}
            Some(status) => {
                world.put("A", status, "1");
                correct(world).await;
            }
            None => drop(world.memory.remove(&world.hash("A"))),
        }
    };
    let event = LambdaEvent::new(fifo([("a", order("A")), ("a", order("B"))]), world.left(seconds(60)));
    let service = world.service().permanent_failures(PermanentFailures::Acknowledge);
    let (processed, ()) = tokio::join!(service.process(event), end);
    let names = processed.records.iter().map(|report| report.outcome.unwrap().as_str()).collect();
    (names, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn in_an_order_a_run_of_another_payload_is_waited_for() {
    for (status, outcomes) in [
        (None, ["executed", "executed"]),
        (Some(Status::Completed), ["mismatch", "executed"]),
        (Some(Status::Failed), ["mismatch", "executed"]),
    ] {
        let world = World::new();
        let (found, took) = in_order(&world, status).await;
        assert_eq!(found, outcomes, "{status:?}");
        assert!(took >= seconds(2) && took <= seconds(4), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_an_order_a_lapsed_run_of_another_payload_blocks_those_behind_it() {
    let world = World::new();
    let (found, took) = in_order(&world, Some(Status::InProgress)).await;
    assert_eq!(found, ["abandoned", "skipped"]);
    assert!(took >= seconds(11) && took < millis(11_100), "{took:?}");
    assert!(world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_an_order_a_lapsed_claim_of_another_payload_is_not_waited_for() {
    let (world, letters) = (World::new(), Letters::new());
    world.abandon("A");
    correct(&world).await;
    let began = Instant::now();
    let event = || fifo([("a", order("A")), ("a", order("B"))]);
    assert_eq!(invoke(&world.service(), event(), world.left(seconds(60))).await.unwrap(), ids(0..2));
    // On its last receive it takes no others along.
    let service = world.service().dead_letters(letters.clone()).max_receive_count(3);
    assert!(invoke(&service, event(), world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!((letters.ids(), world.journal.keys()), (ids(0..1), vec!["B".to_owned()]));
    assert!(began.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_wait_continues_when_the_records_payload_changes() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let corrects = async {
        tokio::time::sleep(seconds(2)).await;
        correct(&world).await;
        tokio::time::sleep(seconds(4)).await;
        drop(world.memory.remove(&world.hash("A")));
    };
    let event = fifo([("a", json!({ "order_id": "A", "act": "succeed", "ms": 0 }))]);
    let service = world.service();
    let (left, ()) = tokio::join!(invoke(&service, event, world.left(seconds(60))), corrects);
    assert_eq!((left.unwrap(), world.journal.keys()), (vec![], vec!["A".to_owned()]));
}
