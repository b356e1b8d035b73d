//! Polls of a FIFO queue, because an operation that is in progress elsewhere may end before its lease.

use lambda_once::{
    AfterUnknown, OutcomeKind,
    record::Status,
    store::fault::{Call, Fault},
};
use lambda_runtime::LambdaEvent;
use tokio::time::Instant;

use crate::world::{Latency, World, fifo, invoke, millis, order, seconds, work};

/// Delivers two messages of a group while the first is in progress elsewhere. Two seconds later, that becomes `status`
/// or is released. Returns both outcomes and the time to the response.
async fn meanwhile(world: &World, status: Option<Status>) -> (Vec<&'static str>, std::time::Duration) {
    world.put("A", Status::InProgress, "");
    let began = Instant::now();
    let end = async {
        tokio::time::sleep(seconds(2)).await;
        match status {
            Some(status) => world.put("A", status, "1"),
            None => drop(world.memory.remove(&world.hash("A"))),
        }
    };
    let event = LambdaEvent::new(fifo([("a", order("A")), ("a", order("B"))]), world.left(seconds(60)));
    let service = world.service();
    let (processed, ()) = tokio::join!(service.process(event), end);
    let names = processed.records.iter().map(|report| report.outcome.map_or("", OutcomeKind::as_str)).collect();
    (names, began.elapsed())
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn work_done_elsewhere_meanwhile_is_replayed_before_its_lease_ends() {
    let world = World::new();
    let (outcomes, took) = meanwhile(&world, Some(Status::Completed)).await;
    assert_eq!(outcomes, ["replayed", "executed"]);
    assert!(took >= seconds(2) && took <= seconds(4), "{took:?}");
    assert_eq!((world.journal.keys(), world.calls(Call::Claim)), (vec!["B".to_owned()], vec![2]));
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_elsewhere_during_a_wait_fails_its_group() {
    let world = World::new();
    let (outcomes, took) = meanwhile(&world, Some(Status::Failed)).await;
    assert_eq!(outcomes, ["replayed_failure", "skipped"]);
    assert!(took <= seconds(4), "{took:?}");
    assert!(world.journal.keys().is_empty());
    assert_eq!(world.record("B").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_record_released_elsewhere_during_a_wait_is_claimed_and_run() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let world = World::with(|builder| builder.after_unknown(policy));
        let (outcomes, took) = meanwhile(&world, None).await;
        assert_eq!(outcomes, ["executed", "executed"], "{policy:?}");
        assert!(took <= seconds(4), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_meanwhile_is_waited_for() {
    let world = World::new();
    let (outcomes, took) = meanwhile(&world, Some(Status::InProgress)).await;
    assert_eq!(outcomes, ["took_over", "executed"]);
    // Two seconds, the new lease of ten and the margin of one.
    assert!(took >= seconds(13) && took < millis(13_100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_late_poll_finds_renewed_is_waited_for() {
    let latency = Latency { read: seconds(2), ..Latency::default() };
    let world = World::on(latency, |builder| builder);
    // With the margin, it ends before the first poll does.
    world.hold_in("sqs", "A", millis(500));
    let renewing = async {
        tokio::time::sleep(millis(1)).await;
        world.hold_in("sqs", "A", seconds(30));
    };
    // Meanwhile the claimed C waits for the handler of B, so that A is not claimed.
    let event = fifo([("a", order("A")), ("b", work("B", "succeed", 25_000)), ("c", order("C"))]);
    let service = world.service().concurrency(1).wait_up_to(seconds(60));
    let (processed, ()) = tokio::join!(world.process_within(&service, event, seconds(120)), renewing);
    assert_eq!(processed.outcomes()[0], Ok(OutcomeKind::TookOver));
    assert_eq!(world.journal.keys(), ["B", "C", "A"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_for_too_long_is_not() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let began = Instant::now();
    let renewing = async {
        tokio::time::sleep(seconds(3)).await;
        world.put("A", Status::InProgress, "");
    };
    let event = fifo([("a", order("A")), ("a", order("B"))]);
    let service = world.service();
    let (reported, ()) = tokio::join!(invoke(&service, event, world.left(seconds(13))), renewing);
    assert_eq!(reported.unwrap(), ["m0", "m1"]);
    assert!(began.elapsed() <= seconds(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn all_waiting_records_share_few_polls() {
    let world = World::new();
    for key in ["A", "B", "C"] {
        world.put(key, Status::InProgress, "");
    }
    let event = fifo([("a", order("A")), ("b", order("B")), ("c", order("C"))]);
    assert!(invoke(&world.service(), event, world.left(seconds(60))).await.unwrap().is_empty());
    let looks = world.calls(Call::Read);
    assert!(looks.iter().all(|keys| *keys == 3), "{looks:?}");
    assert!((8..=17).contains(&looks.len()), "eleven seconds, at last one or two each: {looks:?}");
    assert_eq!(world.calls(Call::Claim), [3, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_is_waited_through() {
    for fault in [Fault::Throttled, Fault::AccessDenied] {
        let world = World::new();
        world.store.always(Call::Read, fault);
        let (outcomes, took) = meanwhile(&world, Some(Status::Completed)).await;
        assert_eq!(outcomes, ["replayed", "executed"], "it is claimed when its lease has ended");
        assert!(took >= seconds(11) && took < millis(11_100), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_groups_continue_while_one_waits() {
    let world = World::new();
    world.put("A", Status::InProgress, "");
    let mut messages = vec![("a", order("A"))];
    messages.extend(["B", "C", "D"].map(|key| ("b", work(key, "succeed", 700))));
    assert!(invoke(&world.service(), fifo(messages), world.left(seconds(60))).await.unwrap().is_empty());
    assert_eq!(world.journal.keys(), ["B", "C", "D", "A"]);
}
