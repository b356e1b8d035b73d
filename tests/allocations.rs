//! How often a batch goes to the heap for each of its records. The only test of its binary: the allocator counts for the
//! whole process.

#![cfg(feature = "sqs")]
#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::{alloc::System, collections::HashMap};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::{
    Error, Failure, Idempotency, Key, Store,
    batch::{Handler, sqs::SqsService},
    clock::{Clock, SystemClock},
    record::{KeyHash, Record},
    store::{Answers, BoxFuture, ClaimRequest, Claimed, Grant, Limits, SettleRequest, Settled},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What a record may cost, its share of what the whole batch needs included.
const MOST_FOR_A_RECORD: f64 = 9.5;

/// Grants and settles everything at once. A call takes two allocations of its own: its future and its answers.
#[derive(Debug)]
struct Grants;

impl Store for Grants {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let grant = |request: &ClaimRequest| {
            let lease_until = SystemClock.now().after(request.lease);
            Ok(Claimed::Granted(Grant { lease_until, attempt: 1, prior_status: None }))
        };
        Box::pin(async move { requests.iter().map(grant).collect() })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move { requests.iter().map(|_| Ok(Settled::Done)).collect() })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash]) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move { keys.iter().map(|_| Ok(None)).collect() })
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: usize::MAX }
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// Decoding it takes no allocation.
#[derive(Deserialize)]
struct Order {
    total_cents: u64,
}

fn service() -> SqsService<impl Handler<Order, (Order,)>, Order, (Order,)> {
    let once = Idempotency::builder(Grants).scope("tests").disabled(false).build().unwrap();
    once.sqs(Key::pointer("/order_id"), |order: Order| async move { Ok::<_, Failure>(order.total_cents) })
}

fn message(i: usize) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(format!("message-{i}"));
    message.body = Some(format!(
        r#"{{"order_id":"order-{i}","customer":{{"id":17,"name":"Zoë"}},"items":[{{"sku":"A-1","price":5}}],"total_cents":995}}"#
    ));
    message.attributes = HashMap::from([("ApproximateReceiveCount".to_owned(), "1".to_owned())]);
    message
}

/// What an invocation takes, for each of its records.
async fn allocations(records: u32) -> f64 {
    let mut service = service();
    let mut fewest = usize::MAX;
    // Whatever else the process does meanwhile can only add to the count.
    for _ in 0..3 {
        let mut event = SqsEvent::default();
        event.records = (0..records as usize).map(message).collect();
        let mut context = Context::default();
        context.deadline = SystemClock.now().as_millis() + 3_600_000;
        let event = LambdaEvent::new(event, context);
        let region = Region::new(ALLOCATOR);
        let response = service.call(event).await.unwrap();
        let change = region.change();
        assert!(response.batch_item_failures.is_empty());
        fewest = fewest.min(change.allocations + change.reallocations);
    }
    f64::from(u32::try_from(fewest).unwrap()) / f64::from(records)
}

#[tokio::test]
async fn a_record_takes_a_fixed_number_of_allocations_however_large_the_batch() {
    let [of_few, of_many] = [allocations(1_000).await, allocations(10_000).await];
    let found = format!("{of_few} for each of 1,000 records, {of_many} for each of 10,000");
    assert!(of_few <= MOST_FOR_A_RECORD, "{found}");
    assert!((of_few - of_many).abs() <= 1.0, "{found}");
}
