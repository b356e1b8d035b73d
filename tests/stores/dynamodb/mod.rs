//! DynamoDB: its items, requests and their number, refusals, and batches that fail in part. A proxy is between the real
//! client, with its own retries, and DynamoDB Local.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use crate::support;

mod batches;
mod calls;
mod claimless;
mod commits;
mod conditions;
mod deliveries;
mod items;
mod leases;
mod listing;
mod marks;
mod orders;
mod powertools;
mod refusals;
mod regions;
mod set_up;

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::purpose::Purpose;
use aws_sdk_dynamodb::{Client, types::AttributeValue};
use lambda_once::{
    Builder, DynamoDbStore, Error, Failure, Idempotency, Outcome,
    clock::ManualClock,
    record::{KeyHash, Owner},
    store::dynamodb::{Calls, Config},
};
use support::{
    FUTURE, assert_outcome,
    clock::TokioClock,
    wire::{Fault, Protocol, Proxy, host_and_port},
};

const CHARGE: &str = "charge";
const KEY: &str = "order 7";
/// The default lease of claims without a deadline, without the skew margin.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

type Item = HashMap<String, AttributeValue>;

/// Runs each of these tests with one request per key, and with PartiQL batches.
macro_rules! in_both_shapes {
    ($($test:ident),* $(,)?) => {
        mod single {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(lambda_once::store::dynamodb::Calls::Single).await;
                }
            )*
        }

        mod batched {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(lambda_once::store::dynamodb::Calls::Batched).await;
                }
            )*
        }
    };
}
use in_both_shapes;

/// A separate table, an engine that reaches it through the proxy, and one that reaches it directly.
struct World {
    proxy: Proxy,
    /// The URL of the proxy.
    url: String,
    direct: Client,
    table: String,
    clock: TokioClock,
    once: Idempotency,
    elsewhere: Idempotency,
    runs: Arc<AtomicU32>,
}

impl World {
    async fn new() -> Self {
        Self::build(Calls::Auto, |builder| builder).await
    }

    /// Creates a world with these request shapes behind the proxy.
    async fn of(calls: Calls) -> Self {
        Self::build(calls, |builder| builder).await
    }

    /// Creates a world with these request shapes, and other engine settings, behind the proxy.
    async fn build(calls: Calls, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let table = support::unique_name("faults");
        let clock = TokioClock::new();
        let url = support::dynamodb_endpoint();
        let proxy = Proxy::start(Protocol::DynamoDb, host_and_port(&url)).await;
        let direct = support::client(&url).await;
        let url = proxy.in_place_of(&url);
        let store =
            |client, calls| Config::new(table.clone()).calls(calls).build(client).unwrap().with_clock(clock.clone());
        store(direct.clone(), Calls::Single).create_table().await.unwrap();
        let builder = |store| Idempotency::builder(store).clock(clock.clone());
        let once = settings(builder(store(support::client(&url).await, calls))).build().unwrap();
        let elsewhere = builder(store(direct.clone(), Calls::Single)).build().unwrap();
        Self { proxy, url, direct, table, clock, once, elsewhere, runs: Arc::default() }
    }

    /// Returns a store behind the proxy, with this clock.
    async fn store(&self, calls: Calls, clock: &ManualClock) -> DynamoDbStore {
        let config = Config::new(&self.table).calls(calls);
        config.build(support::client(&self.url).await).unwrap().with_clock(clock.clone())
    }

    /// Returns work that succeeds with the number of its runs.
    fn work(&self) -> impl Future<Output = Result<u32, Failure>> + Send + use<> {
        let runs = Arc::clone(&self.runs);
        async move { Ok(runs.fetch_add(1, Ordering::SeqCst) + 1) }
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Runs the operation through the proxy, with work that succeeds.
    async fn run(&self) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).run(|| self.work()).await
    }

    /// Runs the operation directly, with work that succeeds.
    async fn run_elsewhere(&self) -> Result<Outcome<u32>, Error> {
        self.elsewhere.operation(CHARGE, KEY).run(|| self.work()).await
    }

    /// Runs the operation through the proxy, with work that ends as given.
    async fn run_to(&self, end: Result<u32, Failure>) -> Result<Outcome<u32>, Error> {
        self.once.operation(CHARGE, KEY).run(|| async { end }).await
    }

    /// Leaves a claim with an unknown outcome, bypassing the proxy.
    async fn abandon(&self) {
        let unknown =
            self.elsewhere.operation(CHARGE, KEY).run(|| async { Err::<u32, _>(Failure::unknown("timed out")) });
        assert_outcome!(unknown.await, Ok(Outcome::Failed(_)));
    }

    /// Ends every lease, including the skew margin.
    fn lapse(&self) {
        self.clock.jump(LEASE + MARGIN + Duration::from_millis(1));
    }

    fn id(&self) -> AttributeValue {
        AttributeValue::S(format!("once#{}", self.once.key_hash(CHARGE, KEY).unwrap()))
    }

    async fn item(&self) -> Option<Item> {
        let get = self.direct.get_item().table_name(&self.table).key("id", self.id()).consistent_read(true);
        get.send().await.unwrap().item
    }

    /// Puts an item with its key and these attributes, bypassing the rules.
    async fn put(&self, attributes: impl IntoIterator<Item = (&str, AttributeValue)>) {
        let mut put = self.direct.put_item().table_name(&self.table).item("id", self.id());
        for (name, value) in attributes {
            put = put.item(name, value);
        }
        put.send().await.unwrap();
    }

    /// Replaces the record of a key, bypassing the rules.
    async fn write(&self, key: &KeyHash, attributes: Item) {
        let put = self.direct.put_item().table_name(&self.table).set_item(Some(attributes));
        put.item("id", text(&format!("once#{}", key.to_hex()))).send().await.unwrap();
    }

    async fn read(&self, key: &KeyHash) -> Item {
        let get = self.direct.get_item().table_name(&self.table).key("id", text(&format!("once#{}", key.to_hex())));
        get.consistent_read(true).send().await.unwrap().item.expect("a record")
    }

    /// Returns the operations of the requests that passed the proxy.
    fn requests(&self) -> Vec<String> {
        self.proxy.requests().into_iter().map(|request| request.command).collect()
    }

    /// Returns the purposes of the requests that passed the proxy.
    fn purposes(&self) -> Vec<Purpose> {
        self.proxy.requests().iter().map(Purpose::of).collect()
    }

    /// Prepares a fault for the next request of this purpose.
    fn on(&self, purpose: Purpose) -> Fault<'_> {
        self.proxy.on(move |request| Purpose::of(request) == purpose)
    }

    /// Asserts that every requested fault has occurred.
    fn all_struck(&self) {
        assert_eq!(self.proxy.pending_faults(), 0, "faults that found no request");
    }
}

/// A time in seconds, as records and marks contain it.
fn seconds(after_future: u64) -> AttributeValue {
    number(FUTURE.seconds_rounded_up() + after_future)
}

fn owner(byte: u8) -> AttributeValue {
    text(&Owner::from_bytes([byte; 16]).to_hex())
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
