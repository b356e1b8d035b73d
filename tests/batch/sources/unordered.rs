//! `StreamOrder::None`: the records of a shard run concurrently, and the response is still the first failure.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    Failure, Key, OutcomeKind, Verdict,
    batch::{
        BatchService, Handler, Processed, Source,
        dynamodb::{Change, DynamoDbStreamEvent},
        kinesis::KinesisEvent,
        stream::StreamOrder,
        stream::StreamResponse,
    },
    testing::{self, Redeliver, dynamodb, kinesis},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tokio::sync::Barrier;

type Outcomes = Vec<Result<OutcomeKind, lambda_once::ErrorKind>>;

const DONE: Result<OutcomeKind, lambda_once::ErrorKind> = Ok(OutcomeKind::Executed);
const REPLAYED: Result<OutcomeKind, lambda_once::ErrorKind> = Ok(OutcomeKind::Replayed);

/// Returns whether the response is this record, which must be the first reported one.
fn is_checkpoint(delivered: &Processed<StreamResponse>, index: usize) -> bool {
    let checkpoint = delivered.response.as_ref().unwrap().checkpoint.as_deref();
    let number = delivered.records[index].record.attribute("sequenceNumber");
    checkpoint.is_some() && checkpoint == number
}

/// Returns the numbers from 0 as records of one shard, and for DynamoDB of one item.
fn shard(count: usize) -> (testing::Batch<KinesisEvent>, testing::Batch<DynamoDbStreamEvent>) {
    let item = |number: usize| json!({ "id": "same", "number": number });
    (
        kinesis::batch(
            (0..count).map(|number| testing::record(&json!({ "number": number })).attribute("partitionKey", "same")),
        ),
        dynamodb::batch(["id"], (0..count).map(|number| dynamodb::insert(&item(number)))),
    )
}

/// Runs the same work for both kinds of streams.
async fn both<F, Fut, R>(count: usize, work: impl Fn() -> F, check: impl Fn(Vec<Processed<StreamResponse>>) -> R)
where
    F: Fn(u64) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (records, changes) = shard(count);
    let run = work();
    let handler = move |value: Value| run(value["number"].as_u64().unwrap());
    let service = testing::engine().kinesis(Key::message_id(), handler).order(StreamOrder::None);
    check(twice(&service, &records).await);
    let run = work();
    let handler = move |change: Change<Value>| run(change.new.unwrap()["number"].as_u64().unwrap());
    let service = testing::engine().dynamodb_stream(Key::message_id(), handler).order(StreamOrder::None);
    check(twice(&service, &changes).await);
}

async fn twice<S, H, T, A, E>(service: &BatchService<S, H, T, A>, event: &E) -> Vec<Processed<S::Response>>
where
    S: Source,
    H: Handler<T, A>,
    T: Send + 'static,
    A: 'static,
    E: Redeliver<Event = S::Event> + Sync,
{
    let deliveries = testing::deliver_twice(service, event).await;
    vec![deliveries.first, deliveries.second]
}

// Tests B4.
#[tokio::test(start_paused = true)]
async fn the_records_of_a_shard_run_side_by_side() {
    // Each continues when all of them run, so in an order none ever would.
    let work = || {
        let barrier = Arc::new(Barrier::new(5));
        move |_| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Ok(())
            }
        }
    };
    both(5, work, |deliveries| {
        assert_eq!(deliveries[0].outcomes(), [DONE; 5]);
        assert_eq!(deliveries[1].outcomes(), [REPLAYED; 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_response_is_the_first_failure_and_work_done_behind_it_is_replayed() {
    let work = || {
        let tries = Arc::new(AtomicUsize::new(0));
        move |number| {
            let fails = [1, 3].contains(&number) && tries.fetch_add(1, Ordering::SeqCst) < 2;
            async move { if fails { Err(Failure::transient("not now")) } else { Ok(()) } }
        }
    };
    both(5, work, |deliveries| {
        let failed = Ok(OutcomeKind::Failed(Verdict::Transient));
        assert_eq!(deliveries[0].outcomes(), [DONE, failed, DONE, failed, DONE]);
        assert!(is_checkpoint(&deliveries[0], 1));
        let expected: Outcomes = vec![REPLAYED, DONE, REPLAYED, DONE, REPLAYED];
        assert_eq!(deliveries[1].outcomes(), expected);
        assert!(deliveries[1].response.as_ref().unwrap().checkpoint.is_none());
    })
    .await;
}

/// An immediate failure would redeliver the whole rest of the shard, and use up one of its attempts.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_in_progress_elsewhere_is_waited_for() {
    let once = testing::engine().named("stream");
    let batch = shard(1).0;
    let lost = once.kinesis(Key::message_id(), |_: Value| async { Err::<(), _>(Failure::unknown("no answer")) });
    let context = testing::context(Duration::from_secs(5));
    let failed = lost.process(LambdaEvent::new(batch.delivery(1), context)).await;
    assert_eq!(failed.outcomes(), [Ok(OutcomeKind::Failed(Verdict::Unknown))]);
    drop(lost);
    let service = once.kinesis(Key::message_id(), |_: Value| async { Ok::<_, Failure>(()) }).order(StreamOrder::None);
    assert_eq!(testing::deliver(&service, &batch).await.outcomes(), [Ok(OutcomeKind::TookOver)]);
}
