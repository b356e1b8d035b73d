//! What an operation promises on DynamoDB when requests and answers are lost, late or refused: a proxy between the real
//! client, with its own retries, and DynamoDB Local plays the network.

#![allow(clippy::unwrap_used, reason = "a test panics")]

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod items;
mod late;
mod lost;
mod refusals;

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_once::{DynamoDbStore, Error, Failure, Idempotency, Outcome, idempotency::Builder};
use support::{assert_outcome, clock::TokioClock, proxy::Proxy};

const KEY: &str = "order 7";
/// The lease of claims without a deadline, and the margin that comes on top: the defaults.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

type Item = HashMap<String, AttributeValue>;

/// A table of its own, an engine that reaches it through the proxy, and another one that does not.
struct World {
    proxy: Proxy,
    direct: Client,
    table: String,
    clock: TokioClock,
    once: Idempotency,
    elsewhere: Idempotency,
    runs: Arc<AtomicU32>,
}

impl World {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    /// With other settings of the engine behind the proxy.
    async fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let table = support::unique_name("faults");
        let clock = TokioClock::new();
        let proxy = Proxy::start(&support::dynamodb_endpoint()).await;
        let direct = support::client(&support::dynamodb_endpoint()).await;
        let store = |client| DynamoDbStore::new(client, table.clone()).with_clock(clock.clone());
        store(direct.clone()).create_table().await.unwrap();
        let builder = |store| Idempotency::builder(store).clock(clock.clone());
        let once = settings(builder(store(support::client(proxy.endpoint()).await))).build().unwrap();
        let elsewhere = builder(store(direct.clone())).build().unwrap();
        Self { proxy, direct, table, clock, once, elsewhere, runs: Arc::default() }
    }

    /// Work that succeeds, and whose result is how often it has run.
    fn work(&self) -> impl Future<Output = Result<u32, Failure>> + Send + use<> {
        let runs = Arc::clone(&self.runs);
        async move { Ok(runs.fetch_add(1, Ordering::SeqCst) + 1) }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Runs the operation through the proxy, with work that succeeds.
    async fn run(&self) -> Result<Outcome<u32>, Error> {
        self.once.operation(KEY).run(|| self.work()).await
    }

    /// Runs the operation past the proxy, with work that succeeds.
    async fn run_elsewhere(&self) -> Result<Outcome<u32>, Error> {
        self.elsewhere.operation(KEY).run(|| self.work()).await
    }

    /// Runs the operation through the proxy, with work that ends as given.
    async fn run_to(&self, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(KEY).run(|| async { end }).await
    }

    /// Leaves, past the proxy, a claim whose outcome nobody knows.
    async fn abandon(&self) {
        let unknown = self.elsewhere.operation(KEY).run(|| async { Err::<u32, _>(Failure::unknown("timed out")) });
        assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    }

    /// Lets any lease end, for others too.
    fn lapse(&self) {
        self.clock.jump(LEASE + MARGIN + Duration::from_millis(1));
    }

    fn id(&self) -> AttributeValue {
        AttributeValue::S(format!("once#{}", self.once.key_hash(KEY).unwrap()))
    }

    async fn item(&self) -> Option<Item> {
        let get = self.direct.get_item().table_name(&self.table).key("id", self.id()).consistent_read(true);
        get.send().await.unwrap().item
    }

    /// Puts an item with these attributes besides its key, past every rule.
    async fn put(&self, attributes: impl IntoIterator<Item = (&str, AttributeValue)>) {
        let mut put = self.direct.put_item().table_name(&self.table).item("id", self.id());
        for (name, value) in attributes {
            put = put.item(name, value);
        }
        put.send().await.unwrap();
    }

    /// The operations of the requests that the proxy has seen.
    fn requests(&self) -> Vec<String> {
        self.proxy.calls().into_iter().map(|call| call.operation).collect()
    }

    /// Every fault that the test asked for has struck.
    fn all_struck(&self) {
        assert_eq!(self.proxy.pending_faults(), 0, "faults that found no request");
    }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
