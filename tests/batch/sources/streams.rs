//! Order, checkpoints and retries of both Kinesis and DynamoDB streams.

use std::fmt::Display;

use lambda_once::{
    Error, Key, PermanentFailures,
    batch::{FullBatchFailure, dynamodb::Change, stream::StreamOrder},
    record::Status,
    store::fault::Call,
};
use serde_json::{Value, json};

use crate::{
    sources::{dynamodb, kinesis},
    world::{ALL_DONE, Job, World, millis, order, seconds, work},
};

/// A stream under test.
pub(crate) trait Stream {
    /// Returns an event with these records, each with its value for `StreamOrder::Key`. The first has this number in
    /// the stream.
    fn event(first: usize, records: &[(&str, Value)]) -> Value;

    /// The name of the source.
    const SOURCE: &'static str;

    /// Returns the default key of a record.
    fn key(number: usize) -> (&'static str, String);

    /// Invokes the service once, with these settings.
    async fn invoke(world: &World, settings: Settings, event: &impl Display) -> Result<String, Error>;
}

/// The settings under test.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) order: StreamOrder,
    pub(crate) permanent_failures: PermanentFailures,
    pub(crate) on_full_batch_failure: FullBatchFailure,
    pub(crate) seconds_left: u64,
}

pub(crate) const SHARD: Settings = Settings {
    order: StreamOrder::Shard,
    permanent_failures: PermanentFailures::Report,
    on_full_batch_failure: FullBatchFailure::Report,
    seconds_left: 60,
};

pub(crate) const KEY: Settings = Settings { order: StreamOrder::Key, ..SHARD };

pub(crate) struct Kinesis;
pub(crate) struct DynamoDb;

/// Returns the sequence number of a record. Longer ones are greater, as in real streams.
pub(crate) fn sequence_number(number: usize) -> String {
    (9_998 + number).to_string()
}

/// Returns the response that makes Lambda resume at this record.
pub(crate) fn checkpoint(number: usize) -> String {
    format!(r#"{{"batchItemFailures":[{{"itemIdentifier":"{}"}}]}}"#, sequence_number(number))
}

impl Stream for Kinesis {
    const SOURCE: &'static str = "kinesis";

    fn event(first: usize, records: &[(&str, Value)]) -> Value {
        let record = |(i, (key, job)): (usize, &(&str, Value))| kinesis::record(first + i, key, job.to_string());
        json!({ "Records": records.iter().enumerate().map(record).collect::<Vec<_>>() })
    }

    fn key(number: usize) -> (&'static str, String) {
        (kinesis::STREAM, kinesis::event_id(number))
    }

    async fn invoke(world: &World, settings: Settings, event: &impl Display) -> Result<String, Error> {
        let service = world
            .once
            .kinesis(Key::message_id(), world.handler())
            .order(settings.order)
            .permanent_failures(settings.permanent_failures)
            .on_full_batch_failure(settings.on_full_batch_failure);
        world.invoke(&service, event, seconds(settings.seconds_left)).await
    }
}

impl Stream for DynamoDb {
    const SOURCE: &'static str = "dynamodb-stream";

    fn event(first: usize, records: &[(&str, Value)]) -> Value {
        let record = |(i, (key, job)): (usize, &(&str, Value))| dynamodb::record(first + i, key, job);
        json!({ "Records": records.iter().enumerate().map(record).collect::<Vec<_>>() })
    }

    fn key(number: usize) -> (&'static str, String) {
        (dynamodb::STREAM, dynamodb::event_id(number))
    }

    async fn invoke(world: &World, settings: Settings, event: &impl Display) -> Result<String, Error> {
        let perform = world.handler();
        let service = world
            .once
            .dynamodb_stream(Key::message_id(), move |change: Change<Job>| perform(change.new.unwrap()))
            .order(settings.order)
            .permanent_failures(settings.permanent_failures)
            .on_full_batch_failure(settings.on_full_batch_failure);
        world.invoke(&service, event, seconds(settings.seconds_left)).await
    }
}

/// Turns each function into two tests, for Kinesis and for a DynamoDB stream.
macro_rules! on_both_streams {
    ($($test:ident)*) => {
        mod on_kinesis {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<$crate::sources::streams::Kinesis>().await;
            })*
        }

        mod on_dynamodb {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test::<$crate::sources::streams::DynamoDb>().await;
            })*
        }
    };
}
pub(crate) use on_both_streams;

on_both_streams! {
    a_shard_runs_in_order_one_record_after_the_other
    the_first_failure_is_the_checkpoint_and_nothing_behind_it_ran
    an_undecodable_record_is_a_checkpoint
    the_retry_resumes_at_the_checkpoint
    a_retry_of_the_whole_batch_runs_nothing_twice
    keys_run_side_by_side_and_each_in_order
    a_failure_blocks_only_its_key_and_records_done_past_it_are_replayed
    of_several_failures_the_lowest_sequence_number_is_the_checkpoint
    a_permanent_failure_is_the_checkpoint_in_every_delivery_and_runs_once
    a_permanent_failure_that_is_acknowledged_lets_the_stream_continue
    a_batch_that_failed_as_a_whole_may_be_an_error
    an_event_without_records_gets_an_empty_failure_list
    keys_take_two_calls_for_a_batch_and_its_replay_takes_one
    a_shard_takes_one_call_to_claim_and_one_for_each_outcome
}

async fn a_shard_runs_in_order_one_record_after_the_other<S: Stream>() {
    let world = World::new();
    let event = S::event(0, &["a", "b", "a", "c"].map(|key| (key, work(key, "succeed", 10))));
    assert_eq!(S::invoke(&world, SHARD, &event).await.unwrap(), ALL_DONE);
    let runs = world.journal.runs();
    assert_eq!(world.journal.keys(), ["a", "b", "a", "c"]);
    assert!(runs.windows(2).all(|pair| pair[0].ended.is_some_and(|ended| ended <= pair[1].began)), "{runs:?}");
}

async fn the_first_failure_is_the_checkpoint_and_nothing_behind_it_ran<S: Stream>() {
    for act in ["transient", "permanent", "unknown", "panic"] {
        let world = World::new();
        let records = [order("0"), order("1"), work("2", act, 0), order("3"), work("4", act, 0)].map(|job| ("a", job));
        assert_eq!(S::invoke(&world, SHARD, &S::event(0, &records)).await.unwrap(), checkpoint(2), "{act}");
        assert_eq!(world.journal.keys(), ["0", "1", "2"], "{act}");
        for (number, status) in [(0, Some(Status::Completed)), (1, Some(Status::Completed)), (3, None), (4, None)] {
            assert_eq!(world.status_in(S::SOURCE, &S::key(number)).await, status, "{number} after {act}");
        }
    }
}

async fn an_undecodable_record_is_a_checkpoint<S: Stream>() {
    let world = World::new();
    let records = [order("0"), json!({ "no": "job" }), order("2")].map(|job| ("a", job));
    assert_eq!(S::invoke(&world, SHARD, &S::event(0, &records)).await.unwrap(), checkpoint(1));
    assert_eq!(world.journal.keys(), ["0"]);
    assert_eq!(world.status_in(S::SOURCE, &S::key(1)).await, None, "nothing is claimed for it");
}

async fn the_retry_resumes_at_the_checkpoint<S: Stream>() {
    let world = World::new();
    let records = [order("0"), work("1", "transient once", 0), order("2")].map(|job| ("a", job));
    assert_eq!(S::invoke(&world, SHARD, &S::event(0, &records)).await.unwrap(), checkpoint(1));
    assert_eq!(S::invoke(&world, SHARD, &S::event(1, &records[1..])).await.unwrap(), ALL_DONE);
    assert_eq!(world.journal.keys(), ["0", "1", "1", "2"]);
}

async fn a_retry_of_the_whole_batch_runs_nothing_twice<S: Stream>() {
    let world = World::new();
    let records = [order("0"), work("1", "transient once", 0), order("2")].map(|job| ("a", job));
    for _ in 0..3 {
        S::invoke(&world, SHARD, &S::event(0, &records)).await.unwrap();
    }
    assert_eq!(world.journal.keys(), ["0", "1", "1", "2"]);
}

// Tests B4.
async fn keys_run_side_by_side_and_each_in_order<S: Stream>() {
    let world = World::new();
    let began = tokio::time::Instant::now();
    let names = [("a", "a0"), ("b", "b0"), ("a", "a1"), ("c", "c0"), ("a", "a2")];
    let event = S::event(0, &names.map(|(key, name)| (key, work(name, "succeed", 100))));
    assert_eq!(S::invoke(&world, KEY, &event).await.unwrap(), ALL_DONE);
    assert_eq!(began.elapsed(), millis(300), "as long as the key with the most records");
    let names = world.journal.keys();
    assert_eq!(names.iter().filter(|name| name.starts_with('a')).collect::<Vec<_>>(), ["a0", "a1", "a2"]);
}

async fn a_failure_blocks_only_its_key_and_records_done_past_it_are_replayed<S: Stream>() {
    let world = World::new();
    let records = [
        ("a", order("a0")),
        ("a", work("a1", "transient once", 0)),
        ("b", order("b2")),
        ("a", order("a3")),
        ("b", order("b4")),
    ];
    assert_eq!(S::invoke(&world, KEY, &S::event(0, &records)).await.unwrap(), checkpoint(1));
    let mut ran = world.journal.keys();
    ran.sort();
    assert_eq!(ran, ["a0", "a1", "b2", "b4"]);
    assert_eq!(
        world.status_in(S::SOURCE, &S::key(3)).await,
        None,
        "the claim of a record blocked by a failure is released"
    );
    assert_eq!(S::invoke(&world, KEY, &S::event(1, &records[1..])).await.unwrap(), ALL_DONE);
    assert_eq!(world.journal.keys()[4..], ["a1", "a3"], "b2 and b4 were done");
}

// Tests B9.
async fn of_several_failures_the_lowest_sequence_number_is_the_checkpoint<S: Stream>() {
    let world = World::new();
    let records = [
        ("a", order("a0")),
        ("b", work("b1", "transient", 50)),
        ("c", work("c2", "transient", 0)),
        ("d", work("d3", "transient", 20)),
    ];
    assert_eq!(S::invoke(&world, KEY, &S::event(0, &records)).await.unwrap(), checkpoint(1), "not what failed first");
}

async fn a_permanent_failure_is_the_checkpoint_in_every_delivery_and_runs_once<S: Stream>() {
    let world = World::new();
    let records = [work("0", "permanent", 0), order("1")].map(|job| ("a", job));
    for _ in 0..3 {
        assert_eq!(S::invoke(&world, SHARD, &S::event(0, &records)).await.unwrap(), checkpoint(0));
    }
    assert_eq!(world.journal.keys(), ["0"]);
}

async fn a_permanent_failure_that_is_acknowledged_lets_the_stream_continue<S: Stream>() {
    let world = World::new();
    let settings = Settings { permanent_failures: PermanentFailures::Acknowledge, ..SHARD };
    let records = [work("0", "permanent", 0), json!({ "no": "job" }), order("2")].map(|job| ("a", job));
    assert_eq!(S::invoke(&world, settings, &S::event(0, &records)).await.unwrap(), ALL_DONE);
    assert_eq!(world.journal.keys(), ["0", "2"]);
}

async fn a_batch_that_failed_as_a_whole_may_be_an_error<S: Stream>() {
    let world = World::new();
    let settings = Settings { on_full_batch_failure: FullBatchFailure::Error, ..SHARD };
    let records = |act| [work("0", act, 0), work("1", "transient", 0)].map(|job| ("a", job));
    let error = S::invoke(&world, settings, &S::event(0, &records("transient"))).await.unwrap_err();
    assert_eq!(error.kind(), lambda_once::ErrorKind::Batch);
    assert_eq!(S::invoke(&world, settings, &S::event(2, &records("succeed"))).await.unwrap(), checkpoint(3));
}

async fn an_event_without_records_gets_an_empty_failure_list<S: Stream>() {
    let world = World::new();
    assert_eq!(S::invoke(&world, SHARD, &S::event(0, &[])).await.unwrap(), ALL_DONE);
    assert!(world.store.calls().is_empty());
}

async fn keys_take_two_calls_for_a_batch_and_its_replay_takes_one<S: Stream>() {
    let world = World::new();
    let event = S::event(0, &["a", "b", "c", "d"].map(|key| (key, order(key))));
    S::invoke(&world, KEY, &event).await.unwrap();
    assert_eq!(world.store.calls(), [(Call::Claim, 4), (Call::Settle, 4)]);
    S::invoke(&world, KEY, &event).await.unwrap();
    assert_eq!(world.store.calls()[2..], [(Call::Claim, 4)]);
}

async fn a_shard_takes_one_call_to_claim_and_one_for_each_outcome<S: Stream>() {
    let world = World::new();
    let event = S::event(0, &["a", "b", "c", "d"].map(|key| (key, order(key))));
    S::invoke(&world, SHARD, &event).await.unwrap();
    assert_eq!((world.calls(Call::Claim), world.calls(Call::Settle)), (vec![4], vec![1; 4]));
    S::invoke(&world, SHARD, &event).await.unwrap();
    assert_eq!((world.calls(Call::Claim), world.calls(Call::Settle).len()), (vec![4, 4], 4));
}
