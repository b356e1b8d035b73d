//! Waits for claims that are held elsewhere: up to a setting, and only while the response depends on them.

use std::time::Duration;

use lambda_once::{Key, OutcomeKind, batch::stream::StreamOrder, record::Status, store::fault::Call};
use lambda_runtime::LambdaEvent;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    sources::{
        mq::{active, active_event},
        streams::{Kinesis, Stream, checkpoint},
    },
    world::{World, fifo, ids, millis, order, reported, seconds, work},
};

/// The maximum wait of a record by default.
const CAP: Duration = Duration::from_secs(20);
/// The tolerance of a wait's duration.
const SLACK: Duration = Duration::from_millis(100);
/// The maximum duration of a function.
const LONGEST: Duration = Duration::from_secs(900);

fn hold(world: &World, key: &str, lease: Duration) {
    world.hold_in("sqs", key, lease);
}

/// Delivers three groups with 900 s left, of which the head of one is held by another invocation, and returns each
/// record's outcome and the time to the response.
async fn beside_a_held_group(
    world: &World,
    wait_up_to: Option<Duration>,
) -> (Vec<Result<OutcomeKind, lambda_once::ErrorKind>>, Duration) {
    let began = Instant::now();
    let groups = [("a", order("H")), ("b", work("B", "succeed", 300)), ("a", order("F")), ("c", order("C"))];
    let event = LambdaEvent::new(fifo(groups), world.left(LONGEST));
    let processed = match wait_up_to {
        Some(time) => world.service().wait_up_to(time).process(event).await,
        None => world.service().process(event).await,
    };
    (processed.outcomes(), began.elapsed())
}

const HELD: [Result<OutcomeKind, lambda_once::ErrorKind>; 4] =
    [Ok(OutcomeKind::InProgress), Ok(OutcomeKind::Executed), Ok(OutcomeKind::Skipped), Ok(OutcomeKind::Executed)];

#[tokio::test(start_paused = true)]
async fn a_group_held_for_long_delays_the_response_by_twenty_seconds() {
    let world = World::new();
    hold(&world, "H", seconds(800));
    let (outcomes, took) = beside_a_held_group(&world, None).await;
    assert_eq!(outcomes, HELD);
    assert!((CAP..=CAP + SLACK).contains(&took), "{took:?}");
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn how_long_a_record_waits_is_a_setting() {
    for time in [seconds(5), seconds(60)] {
        let world = World::new();
        hold(&world, "H", seconds(800));
        let (outcomes, took) = beside_a_held_group(&world, Some(time)).await;
        assert_eq!(outcomes, HELD);
        assert!((time..=time + SLACK).contains(&took), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_time_to_wait_a_held_record_is_reported_at_once() {
    let world = World::new();
    hold(&world, "H", seconds(10));
    let (outcomes, took) = beside_a_held_group(&world, Some(Duration::ZERO)).await;
    assert_eq!(outcomes, HELD);
    assert!(took <= millis(300) + SLACK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn several_groups_wait_side_by_side() {
    let world = World::new();
    let began = Instant::now();
    for key in ["A", "B", "C"] {
        hold(&world, key, seconds(800));
    }
    let event = fifo([("a", order("A")), ("b", order("B")), ("c", order("C"))]);
    let processed = world.service().process(LambdaEvent::new(event, world.left(LONGEST))).await;
    assert_eq!(reported(&processed), ids(0..3));
    assert!(began.elapsed() <= CAP + SLACK, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_within_the_time_is_waited_for_and_the_record_runs() {
    for (lease, wait_up_to) in [(15, None), (15, Some(17)), (100, Some(102))] {
        let world = World::new();
        hold(&world, "H", seconds(lease));
        let (outcomes, took) = beside_a_held_group(&world, wait_up_to.map(seconds)).await;
        assert_eq!((outcomes[0], outcomes[2]), (Ok(OutcomeKind::TookOver), Ok(OutcomeKind::Executed)));
        // Plus the margin of one second.
        assert!(took >= seconds(lease + 1) && took <= seconds(lease + 1) + SLACK, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_margin_counts_as_a_part_of_the_wait() {
    let world = World::new();
    hold(&world, "H", millis(9_500));
    let (outcomes, took) = beside_a_held_group(&world, Some(seconds(10))).await;
    assert_eq!(outcomes, HELD);
    assert!(took <= seconds(10) + SLACK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_elsewhere_in_time_is_not_reported_despite_its_lease() {
    for is_released in [false, true] {
        let world = World::new();
        hold(&world, "H", seconds(800));
        let end = async {
            tokio::time::sleep(seconds(10)).await;
            if is_released {
                world.memory.remove(&world.hash("H"));
            } else {
                world.put("H", Status::Completed, "1");
            }
        };
        let ((outcomes, took), ()) = tokio::join!(beside_a_held_group(&world, None), end);
        let expected = if is_released { OutcomeKind::Executed } else { OutcomeKind::Replayed };
        assert_eq!((outcomes[0], outcomes[2]), (Ok(expected), Ok(OutcomeKind::Executed)));
        assert!(took < seconds(13), "{took:?}");
    }
}

/// Delivers messages of a broker with a minute left, of which those with the key H are held elsewhere, and returns the
/// time until the error.
async fn broker(bodies: &[Value]) -> Duration {
    let world = World::new();
    world.hold_in("mq", "H", seconds(10));
    let service = world.once.mq(Key::pointer("/order_id"), world.handler());
    let messages = bodies.iter().enumerate().map(|(i, body)| active(&format!("ID:{i}"), body));
    let began = Instant::now();
    world.fail(&service, &active_event(messages)).await;
    began.elapsed()
}

// Tests B6.
#[tokio::test(start_paused = true)]
async fn nothing_is_waited_for_after_a_failure_that_brings_everything_back() {
    let (held, fails) = (|| order("H"), || work("F", "transient", 0));
    for bodies in [[fails(), held(), order("1")], [held(), fails(), order("1")], [order("1"), held(), fails()]] {
        let took = broker(&bodies).await;
        assert!(took < SLACK, "{took:?}: {bodies:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_a_wait_that_has_begun_where_one_brings_everything_back() {
    let took = broker(&[order("H"), work("F", "transient", 3_000)]).await;
    assert!(took >= seconds(3) && took < seconds(3) + SLACK, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_its_limit_even_if_one_failure_fails_the_batch() {
    let world = World::new();
    world.hold_in("mq", "H", seconds(40));
    let service = world.once.mq(Key::pointer("/order_id"), world.handler());
    let began = Instant::now();
    world.fail(&service, &active_event([active("ID:0", &order("H")), active("ID:1", &order("1"))])).await;
    assert!(began.elapsed() <= CAP + SLACK, "{:?}", began.elapsed());
}

/// Delivers concurrent records of a shard with a minute left, of which those with the key H are held for 10 s. Returns
/// the response, its duration, and the records that ran.
async fn shard(records: &[(&str, Value)]) -> (String, Duration, Vec<String>) {
    let world = World::new();
    world.hold_in("kinesis", "H", seconds(10));
    let service = world.once.kinesis(Key::pointer("/order_id"), world.handler()).order(StreamOrder::Key);
    let began = Instant::now();
    let answer = world.invoke(&service, &Kinesis::event(0, records), seconds(60)).await.unwrap();
    assert!(!world.calls(Call::Claim).is_empty());
    (answer, began.elapsed(), world.journal.keys())
}

#[tokio::test(start_paused = true)]
async fn a_record_behind_the_lowest_failed_one_is_not_waited_for() {
    for milliseconds in [0, 2_000] {
        let fails = work("F", "transient", milliseconds);
        let behind = [("c", order("H")), ("d", order("3")), ("e", work("E", "transient", 0))];
        let records: Vec<_> = [("a", order("0")), ("b", fails)].into_iter().chain(behind).collect();
        let (answer, took, _) = shard(&records).await;
        assert_eq!(answer, checkpoint(1));
        assert!(took < millis(milliseconds) + SLACK, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_before_the_lowest_failed_one_is_waited_for() {
    let fails = work("F", "transient", 0);
    let (answer, took, ran) = shard(&[("a", order("0")), ("c", order("H")), ("b", fails)]).await;
    assert_eq!(answer, checkpoint(2), "without the wait it would be 1");
    assert!(took >= seconds(11) && took < seconds(11) + SLACK, "{took:?}");
    assert_eq!(ran.last().map(String::as_str), Some("H"));
}
