//! The stores to test, and a test on each of them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a module of its own")]

use std::sync::Arc;

use lambda_once::{
    DynamoDbStore, MemoryStore, Store,
    clock::{Clock, Timestamp},
    store::dynamodb::{Calls, Config},
};

use super::{client, dynamodb_endpoint, unique_name};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Memory,
    DynamoDb(Calls),
}

/// Makes of each function, which takes a [`Backend`], one test for each store.
#[allow(unused_macros, reason = "not every test binary tests stores")]
macro_rules! on_each_store {
    ($($test:ident),+ $(,)?) => {
        $crate::support::stores::on_each_store!(memory, Memory; $($test),+);
        $crate::support::stores::on_each_server!($($test),+);
    };
    ($module:ident, $backend:expr; $($test:ident),+) => {
        mod $module {
            use $crate::support::stores::Backend::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test($backend).await;
                }
            )+
        }
    };
}

/// As [`on_each_store!`], without the store in memory.
#[allow(unused_macros, reason = "not every test binary tests stores")]
macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {
        $crate::support::stores::on_each_store!(
            dynamodb, DynamoDb(lambda_once::store::dynamodb::Calls::Auto); $($test),+
        );
        $crate::support::stores::on_each_store!(
            dynamodb_with_single_keys, DynamoDb(lambda_once::store::dynamodb::Calls::Single); $($test),+
        );
        $crate::support::stores::on_each_store!(
            dynamodb_in_batches, DynamoDb(lambda_once::store::dynamodb::Calls::Batched); $($test),+
        );
    };
}
#[allow(unused_imports, reason = "not every test binary tests stores")]
pub(crate) use {on_each_server, on_each_store};

/// Records that no other test sees, in a table, under a prefix or in a scope of their own, and the clock they go by.
#[derive(Clone, Debug)]
pub struct Records {
    backend: Backend,
    name: String,
    memory: MemoryStore,
    clock: SharedClock,
}

impl Records {
    /// No records yet.
    pub async fn new(backend: Backend, clock: impl Clock) -> Self {
        let clock = SharedClock(Arc::new(clock));
        let memory = MemoryStore::with_clock(clock.clone());
        let records = Self { backend, name: unique_name("records"), memory, clock };
        if let Backend::DynamoDb(calls) = backend {
            records.dynamodb(calls).await.create_table().await.expect("the table is created");
        }
        records
    }

    /// A store of these records, with connections of its own.
    pub async fn store(&self) -> Arc<dyn Store> {
        match self.backend {
            Backend::Memory => Arc::new(self.memory.clone()),
            Backend::DynamoDb(calls) => Arc::new(self.dynamodb(calls).await),
        }
    }

    async fn dynamodb(&self, calls: Calls) -> DynamoDbStore {
        let config = Config::new(&self.name).calls(calls);
        config.build(client(&dynamodb_endpoint()).await).unwrap().with_clock(self.clock.clone())
    }
}

/// A clock of any type.
#[derive(Clone, Debug)]
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}
