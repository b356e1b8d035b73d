//! The number of requests per delivery of messages, counted by a proxy.

use std::{sync::Arc, time::Duration};

use lambda_once::{
    CachedStore, Failure, Idempotency, Key,
    clock::{Clock, ManualClock},
    store::dynamodb::{Calls, Config},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::json;
use tower::{Service, ServiceExt};

use super::{LEASE, MARGIN, Purpose, World, support};
use crate::support::{cases, wire::Request};

impl World {
    /// Delivers messages with the keys of these numbers to a handler that succeeds, and returns the reported ids.
    async fn deliver(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        deliver(&self.once, numbers, Ok(()), Context::default()).await
    }

    /// Returns the engine behind the proxy, with a clock that does not advance. By the real clock the number of
    /// requests depends on the speed of the machine, because outcomes that have been due for some milliseconds are sent
    /// early.
    fn timeless(&self) -> Idempotency {
        let clock = ManualClock::at(self.clock.now());
        Idempotency::builder(Arc::clone(self.once.store())).clock(clock).build().unwrap()
    }

    /// Does the same as [`deliver`](Self::deliver) with the [timeless](Self::timeless) engine.
    async fn deliver_timeless(&self, numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
        deliver(&self.timeless(), numbers, Ok(()), Context::default()).await
    }
}

pub(super) async fn deliver(
    once: &Idempotency,
    numbers: impl IntoIterator<Item = u32>,
    end: Result<(), &'static str>,
    context: Context,
) -> Vec<String> {
    let message = |number| json!({ "messageId": format!("m{number}"), "body": format!(r#"{{"id":{number}}}"#) });
    let records: Vec<_> = numbers.into_iter().map(message).collect();
    let event = serde_json::from_value(json!({ "Records": records })).unwrap();
    let handler = move |_: serde_json::Value| async move { end.map_err(Failure::unknown) };
    let mut service = once.sqs(Key::pointer("/id"), handler).validate().unwrap();
    let response = service.ready().await.unwrap().call(LambdaEvent::new(event, context)).await.unwrap();
    response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect()
}

#[tokio::test]
async fn ten_new_messages_take_two_requests_and_their_duplicates_two() {
    let world = World::new().await;
    assert!(world.deliver_timeless(0..10).await.is_empty());
    assert_eq!(world.requests(), ["BatchExecuteStatement", "BatchExecuteStatement"]);
    world.proxy.reset();
    assert!(world.deliver_timeless(0..10).await.is_empty());
    assert_eq!(world.requests(), ["BatchExecuteStatement", "BatchExecuteStatement"]);
}

#[tokio::test]
async fn twenty_five_messages_of_all_kinds_take_four_requests() {
    let world = World::new().await;
    deliver(&world.elsewhere, 0..8, Err("nobody knows"), Context::default()).await;
    world.clock.jump(LEASE + MARGIN * 2);
    assert!(world.deliver(8..16).await.is_empty());
    world.proxy.reset();
    assert!(world.deliver_timeless(0..25).await.is_empty());
    assert_eq!(world.requests().len(), 4, "{:?}", world.purposes());
}

#[tokio::test]
async fn one_new_message_takes_two_requests_for_its_key_alone() {
    let world = World::new().await;
    assert!(world.deliver([7]).await.is_empty());
    assert_eq!(world.requests(), ["UpdateItem", "UpdateItem"]);
}

#[tokio::test]
async fn with_single_calls_each_message_takes_two_requests() {
    let world = World::of(Calls::Single).await;
    assert!(world.deliver(0..10).await.is_empty());
    assert_eq!(world.requests(), ["UpdateItem"; 20]);
}

#[tokio::test]
async fn a_throttled_message_of_many_is_sent_again_alone() {
    let world = World::new().await;
    world.on(Purpose::Claim).fail_member(3, "ThrottlingError");
    assert!(world.deliver_timeless(0..10).await.is_empty());
    world.all_struck();
    let requests = world.proxy.requests();
    let (claims, settles): (Vec<&Request>, Vec<_>) =
        requests.iter().partition(|request| Purpose::of(request) == Purpose::Claim);
    let statements = |request: &&Request| request.body()["Statements"].as_array().map_or(1, Vec::len);
    assert_eq!(claims.iter().map(statements).collect::<Vec<_>>(), [10, 1]);
    // The outcomes of the others do not wait for it.
    assert_eq!(settles.iter().map(statements).sum::<usize>(), 10);
}

#[tokio::test]
async fn duplicates_in_the_local_cache_take_no_request() {
    let world = World::new().await;
    let client = support::client(&world.url).await;
    let store = Config::new(&world.table).build(client).unwrap().with_clock(world.clock.clone());
    let store = CachedStore::new(store).with_clock(world.clock.clone());
    let once = Idempotency::builder(store).clock(world.clock.clone()).build().unwrap();
    // The second delivery gets the outcomes of the first.
    for _ in 0..2 {
        assert!(deliver(&once, 0..10, Ok(()), Context::default()).await.is_empty());
    }
    world.proxy.reset();
    assert!(deliver(&once, 0..10, Ok(()), Context::default()).await.is_empty());
    assert_eq!(world.proxy.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_messages_whose_handlers_end_at_once_take_eight_requests_a_hundred() {
    let messages: u32 = cases("DELIVERED_MESSAGES", 1_000);
    let world = World::new().await;
    let mut context = Context::default();
    context.deadline = world.clock.now().after(Duration::from_secs(900)).as_millis();
    assert!(deliver(&world.timeless(), 0..messages, Ok(()), context).await.is_empty());
    let claims = world.purposes().into_iter().filter(|purpose| *purpose == Purpose::Claim).count();
    assert_eq!(
        (claims, world.proxy.requests().len()),
        (messages.div_ceil(25) as usize, messages.div_ceil(25) as usize * 2)
    );
}
