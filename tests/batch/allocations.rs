//! Heap allocations per record of a batch, and the maximum heap size. Only the test's own thread counts, so the figures
//! are the same in every run.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use allocation_counter::{AllocationInfo, measure};
use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::{
    BoxFuture, Error, Failure, Idempotency, Key, Payload, Store,
    batch::{RecordInfo, Source},
    clock::{Clock, SystemClock},
    record::{KeyHash, Record},
    store::{Answers, ClaimRequest, Claimed, Grant, Limits, ResultData, SettleRequest, Settled, StoreId},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use tower_service::Service;

/// The maximum allocations for a record that needs no decoding, including its share of those for the batch.
const MOST_TO_SCHEDULE_A_RECORD: f64 = 4.0;

/// The maximum allocations for a message with its key in its body. The canonical form takes two, and `serde_json` takes
/// one to skip the members that the handler's type does not have.
const MOST_FOR_A_MESSAGE: f64 = 7.0;

/// A store that grants and settles everything. Each call takes two allocations, for its future and its results.
#[derive(Debug)]
struct Grants;

impl Store for Grants {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let grant = |request: &ClaimRequest| {
            let lease_until = SystemClock.now().after(request.lease);
            Ok(Claimed::Granted(Grant { lease_until, attempt: 1, prior_status: None, has_merged_doubt: false }))
        };
        Box::pin(async move { requests.iter().map(grant).collect() })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move { requests.iter().map(|_| Ok(Settled::Done { found: None })).collect() })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], _: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move { keys.iter().map(|_| Ok(None)).collect() })
    }

    fn id(&self) -> StoreId {
        StoreId::unique()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: usize::MAX, orders: false }
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

fn engine() -> Idempotency {
    Idempotency::builder(Grants).scope("tests").disabled(false).build().unwrap()
}

/// Ids without bodies or an order, which need no decoding.
#[derive(Clone)]
struct Plain;

impl Source for Plain {
    type Event = Vec<String>;
    type Record = String;
    type Rest = ();
    type Body = [u8; 0];
    type Response = usize;

    const OPERATION: &'static str = "plain";

    fn split(&self, ids: Vec<String>) -> Result<(Vec<String>, ()), Error> {
        Ok((ids, ()))
    }

    fn lane<'a>(&self, _: &'a String) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, id: String) -> (RecordInfo, [u8; 0]) {
        (RecordInfo::new(id), [])
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<usize, Error> {
        Ok(failed.len())
    }
}

#[derive(Deserialize)]
struct Order {
    total_cents: u64,
}

fn message(i: usize, note: &str) -> SqsMessage {
    let mut message = SqsMessage::default();
    message.message_id = Some(format!("message-{i}"));
    message.body = Some(format!(
        r#"{{"order_id":"order-{i}","customer":{{"id":17,"name":"Zoë"}},"items":[{{"sku":"A-1","price":5}}],"note":"{note}","total_cents":995}}"#
    ));
    message.attributes = HashMap::from([("ApproximateReceiveCount".to_owned(), "1".to_owned())]);
    message
}

fn messages(count: usize, note: &str) -> SqsEvent {
    let mut event = SqsEvent::default();
    event.records = (0..count).map(|i| message(i, note)).collect();
    event
}

/// Returns the allocations of the invocation, from the decoded event to the response.
fn invocation<E, R>(
    mut service: impl Service<LambdaEvent<E>, Response = R, Error = Error>,
    event: E,
) -> (AllocationInfo, R) {
    let mut context = Context::default();
    context.deadline = SystemClock.now().as_millis() + 3_600_000;
    let event = LambdaEvent::new(event, context);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut response = None;
    let info = measure(|| response = Some(runtime.block_on(service.call(event))));
    (info, response.unwrap().unwrap())
}

fn for_each_id(count: usize) -> f64 {
    let handle = |()| async { Ok::<_, Failure>(()) };
    let service = engine().batch(Plain, Key::message_id(), |_, _| Ok(()), handle).payload(Payload::Ignored);
    let ids = (0..count).map(|i| format!("90c192cf-d3ac-44af-8f21-{i:012}")).collect();
    let (info, failed) = invocation(service, ids);
    assert_eq!(failed, 0);
    info.count_total as f64 / count as f64
}

fn of_messages(event: SqsEvent) -> AllocationInfo {
    let handle = |order: Order| async move { Ok::<_, Failure>(order.total_cents) };
    let (info, response) = invocation(engine().sqs(Key::pointer("/order_id"), handle), event);
    assert!(response.batch_item_failures.is_empty());
    info
}

fn for_each_message(count: usize) -> f64 {
    of_messages(messages(count, "")).count_total as f64 / count as f64
}

fn is_the_same_for_large_batches(for_each: impl Fn(usize) -> f64, most: f64) {
    let [of_few, of_many] = [1_000, 10_000].map(for_each);
    let found = format!("{of_few} for each of 1,000 records, {of_many} for each of 10,000");
    assert!(of_many <= most, "{found}");
    assert!((of_few - of_many).abs() <= 0.1, "{found}");
}

#[test]
fn scheduling_a_record_takes_at_most_four_allocations_at_any_batch_size() {
    is_the_same_for_large_batches(for_each_id, MOST_TO_SCHEDULE_A_RECORD);
}

#[test]
fn a_message_takes_a_fixed_number_of_allocations_however_large_the_batch() {
    is_the_same_for_large_batches(for_each_message, MOST_FOR_A_MESSAGE);
}

/// The settings, whose text would contain the scope, are compared only with those of a service of the same records.
#[test]
fn the_only_service_of_its_records_makes_no_text_of_its_settings() {
    const SCOPE_BYTES: usize = 1_000_000;
    let once = Idempotency::builder(Grants).scope("s".repeat(SCOPE_BYTES)).disabled(false).build().unwrap();
    let handle = |order: Order| async move { Ok::<_, Failure>(order.total_cents) };
    let service = once.sqs(Key::pointer("/order_id"), handle);
    for _ in 0..2 {
        let (info, response) = invocation(service.clone(), messages(1, ""));
        assert!(response.batch_item_failures.is_empty());
        assert!(info.bytes_total < SCOPE_BYTES as u64, "{info:?}");
    }
}

/// Returns the maximum heap size of a batch including its decoded event, and the size of that event including its JSON.
fn most_held(event: &SqsEvent) -> (u64, u64) {
    let json = serde_json::to_string(event).unwrap();
    let mut decoded = None;
    let decoding = measure(|| decoded = serde_json::from_str(&json).ok());
    let decoded_bytes = u64::try_from(decoding.bytes_current).unwrap();
    let most = decoded_bytes + of_messages(decoded.unwrap()).bytes_max;
    (most, decoded_bytes + json.len() as u64)
}

#[test]
fn a_batch_holds_no_more_than_the_decoded_event_and_its_json() {
    // 10,000 messages of 500 bytes, and Lambda's 6 MB in messages of up to 1 MiB, the maximum of SQS.
    for (count, note) in [(10_000, 380), (600, 10_000), (24, 250_000), (6, 1_000_000)] {
        let (most, allowed) = most_held(&messages(count, &"n".repeat(note)));
        assert!(most <= allowed, "{count} messages: {most} bytes, {allowed} allowed");
    }
}
