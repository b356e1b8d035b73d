//! Effects of the clock on a batch of both Kinesis and DynamoDB streams.

use lambda_once::record::Status;

use crate::{
    sources::streams::{SHARD, Settings, Stream, checkpoint, on_both_streams},
    world::{ALL_DONE, World, millis, order, seconds, work},
};

on_both_streams! {
    a_record_hung_at_the_handler_deadline_is_the_checkpoint_and_claimed
    a_record_not_expected_to_end_in_time_is_the_unstarted_checkpoint
    a_retry_waits_for_the_claim_of_an_invocation_that_timed_out
    a_retry_waits_for_the_claim_of_an_environment_that_died
    a_retry_that_has_no_time_to_wait_fails_at_once
}

const TEN_SECONDS: Settings = Settings { seconds_left: 10, ..SHARD };

async fn a_record_hung_at_the_handler_deadline_is_the_checkpoint_and_claimed<S: Stream>() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let event = S::event(0, &[order("0"), work("1", "hang", 0), order("2")].map(|job| ("a", job)));
    assert_eq!(S::invoke(&world, TEN_SECONDS, &event).await.unwrap(), checkpoint(1));
    assert_eq!(began.elapsed(), millis(9_500));
    assert_eq!(world.status_in(S::SOURCE, &S::key(1)).await, Some(Status::InProgress), "nobody knows what it did");
    assert_eq!(world.status_in(S::SOURCE, &S::key(2)).await, None);
}

async fn a_record_not_expected_to_end_in_time_is_the_unstarted_checkpoint<S: Stream>() {
    let world = World::new();
    let event = S::event(0, &["0", "1", "2", "3"].map(|name| ("a", work(name, "succeed", 4_000))));
    assert_eq!(S::invoke(&world, TEN_SECONDS, &event).await.unwrap(), checkpoint(2));
    assert_eq!(world.journal.keys(), ["0", "1"]);
    assert_eq!(
        world.status_in(S::SOURCE, &S::key(2)).await,
        None,
        "its claim is released, so that the retry need not wait"
    );
}

/// Retries a batch in which the first invocation left a claim, and returns the response and its duration.
async fn retry<S: Stream>(world: &World, records: &[(&str, serde_json::Value)]) -> (String, std::time::Duration) {
    let began = tokio::time::Instant::now();
    let answer = S::invoke(world, TEN_SECONDS, &S::event(1, &records[1..])).await.unwrap();
    (answer, began.elapsed())
}

async fn a_retry_waits_for_the_claim_of_an_invocation_that_timed_out<S: Stream>() {
    let world = World::new();
    let records = [order("0"), work("1", "hang once", 0), order("2")].map(|job| ("a", job));
    assert_eq!(S::invoke(&world, TEN_SECONDS, &S::event(0, &records)).await.unwrap(), checkpoint(1));
    let (answer, took) = retry::<S>(&world, &records).await;
    assert_eq!(answer, ALL_DONE);
    assert_eq!(world.journal.keys(), ["0", "1", "1", "2"]);
    assert_eq!(
        world.record_in(S::SOURCE, &S::key(1)).await.unwrap().prior_status,
        Some(Status::InProgress),
        "it took over"
    );
    // Half a second to the deadline, one to the end of the lease, and the margin of one.
    assert!(took >= millis(2_500) && took < millis(2_600), "{took:?}");
}

async fn a_retry_waits_for_the_claim_of_an_environment_that_died<S: Stream>() {
    let world = World::new();
    let records = [order("0"), work("1", "hang once", 0), order("2")].map(|job| ("a", job));
    let event = S::event(0, &records);
    let first = S::invoke(&world, TEN_SECONDS, &event);
    assert!(tokio::time::timeout(seconds(5), first).await.is_err());
    let (answer, took) = retry::<S>(&world, &records).await;
    assert_eq!((answer.as_str(), took.as_secs()), (ALL_DONE, 7), "five to the deadline, and two");
    assert_eq!(world.journal.keys(), ["0", "1", "1", "2"]);
}

async fn a_retry_that_has_no_time_to_wait_fails_at_once<S: Stream>() {
    let world = World::new();
    let records = [order("0"), work("1", "hang once", 0), order("2")].map(|job| ("a", job));
    let event = S::event(0, &records);
    let first = S::invoke(&world, TEN_SECONDS, &event);
    assert!(tokio::time::timeout(seconds(1), first).await.is_err());
    assert_eq!(retry::<S>(&world, &records).await, (checkpoint(1), millis(0)));
    assert_eq!(world.journal.keys(), ["0", "1"]);
}
