//! The stores to test, and macros for tests of each of them.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it, as a separate module")]

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
#[cfg(feature = "redis")]
use lambda_once::store::redis;
use lambda_once::{
    DynamoDbStore, MemoryStore, Store,
    clock::{Clock, Timestamp},
    record::{KeyHash, Record},
    store::{
        ResultData,
        amend::Amend,
        dynamodb::{Calls, Config},
    },
};
#[cfg(feature = "postgres")]
use lambda_once::{PostgresStore, store::postgres};
#[cfg(feature = "postgres")]
use tokio_postgres::types::Type as PgType;

use super::{client, dynamodb_endpoint, unique_name, wire::Protocol};

/// A timeout that is long enough for a busy machine, so that no response appears lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    Memory,
    DynamoDb(Calls),
    #[cfg(feature = "redis")]
    Redis,
    #[cfg(feature = "redis-cluster")]
    RedisCluster,
    #[cfg(feature = "postgres")]
    Postgres,
}

/// Turns each function, which takes a [`Backend`], into one test per store.
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

/// Does the same as [`on_each_store!`] without the memory store.
#[allow(unused_macros, reason = "not every test binary tests stores")]
macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {
        $crate::support::stores::on_each_store!(
            dynamodb, DynamoDb(lambda_once::store::dynamodb::Calls::Auto); $($test),+
        );
        #[cfg(feature = "redis-cluster")]
        $crate::support::stores::on_each_store!(redis_cluster, RedisCluster; $($test),+);
        $crate::support::stores::on_each_proxied_store!($($test),+);
    };
}

/// Does the same as [`on_each_store!`] for the stores that the [wire proxy](super::wire) supports.
#[allow(unused_macros, reason = "not every test binary tests stores")]
macro_rules! on_each_proxied_store {
    ($($test:ident),+ $(,)?) => {
        $crate::support::stores::on_each_store!(
            dynamodb_with_single_keys, DynamoDb(lambda_once::store::dynamodb::Calls::Single); $($test),+
        );
        $crate::support::stores::on_each_store!(
            dynamodb_in_batches, DynamoDb(lambda_once::store::dynamodb::Calls::Batched); $($test),+
        );
        #[cfg(feature = "redis")]
        $crate::support::stores::on_each_store!(redis, Redis; $($test),+);
        #[cfg(feature = "postgres")]
        $crate::support::stores::on_each_store!(postgres, Postgres; $($test),+);
    };
}
#[allow(unused_imports, reason = "not every test binary tests stores")]
pub(crate) use {on_each_proxied_store, on_each_server, on_each_store};

impl Backend {
    /// Returns the protocol and the URL of its server.
    ///
    /// # Panics
    ///
    /// If the [wire proxy](super::wire) does not support it.
    pub fn wire(self) -> (Protocol, String) {
        match self {
            Self::DynamoDb(_) => (Protocol::DynamoDb, dynamodb_endpoint()),
            #[cfg(feature = "redis")]
            Self::Redis => (Protocol::Resp, super::server("REDIS_URL")),
            #[cfg(feature = "postgres")]
            Self::Postgres => (Protocol::Postgres, super::server("POSTGRES_URL")),
            other => panic!("{other:?} has no proxy"),
        }
    }
}

/// Records for a single test, in a separate table, prefix or scope, with their clock.
#[derive(Clone, Debug)]
pub struct Records {
    backend: Backend,
    name: String,
    memory: MemoryStore,
    /// The clock, or `None` for the server's, or for the system's if the server has none.
    clock: Option<SharedClock>,
}

impl Records {
    /// Creates an empty set of records, with this clock.
    pub async fn new(backend: Backend, clock: impl Clock) -> Self {
        Self::create(backend, Some(SharedClock(Arc::new(clock)))).await
    }

    /// Creates an empty set of records, with the default clock of the store.
    pub async fn on_its_own_clock(backend: Backend) -> Self {
        Self::create(backend, None).await
    }

    /// Returns the records with this name, which another process has created by
    /// [`on_its_own_clock`](Self::on_its_own_clock).
    pub fn of_another_process(backend: Backend, name: String) -> Self {
        Self { backend, name, memory: MemoryStore::new(), clock: None }
    }

    /// Returns the records with this name, which another process has created by [`new`](Self::new).
    pub fn of_another_process_with(backend: Backend, name: String, clock: impl Clock) -> Self {
        Self { clock: Some(SharedClock(Arc::new(clock))), ..Self::of_another_process(backend, name) }
    }

    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the name by which other processes find them.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn create(backend: Backend, clock: Option<SharedClock>) -> Self {
        let memory = clock.clone().map_or_else(MemoryStore::new, MemoryStore::with_clock);
        let records = Self { backend, name: unique_name("records"), memory, clock };
        if let Backend::DynamoDb(calls) = backend {
            records.dynamodb(calls, &dynamodb_endpoint()).await.create_table().await.expect("the table is created");
        }
        #[cfg(feature = "postgres")]
        if backend == Backend::Postgres {
            super::postgres::connection().await;
        }
        records
    }

    /// Returns a store of these records, with separate connections.
    pub async fn store(&self) -> Arc<dyn Amend> {
        match self.backend {
            Backend::Memory => Arc::new(self.memory.clone()),
            #[cfg(feature = "redis-cluster")]
            Backend::RedisCluster => self.redis(redis::Config::cluster(super::server("REDIS_CLUSTER_URL").split(','))),
            backend => self.store_at(&backend.wire().1).await,
        }
    }

    /// Returns a store of these records whose server is at this URL.
    pub async fn store_at(&self, url: &str) -> Arc<dyn Amend> {
        match self.backend {
            Backend::DynamoDb(calls) => Arc::new(self.dynamodb(calls, url).await),
            #[cfg(feature = "redis")]
            Backend::Redis => self.redis(redis::Config::new(url)),
            #[cfg(feature = "postgres")]
            Backend::Postgres => Arc::new(self.postgres(url)),
            other => panic!("{other:?} has no URL: {url}"),
        }
    }

    /// Puts records into the memory store, bypassing the rules.
    pub fn insert(&self, records: impl IntoIterator<Item = (KeyHash, Record)>) {
        records.into_iter().for_each(|(key, record)| self.memory.insert(key, record));
    }

    /// Deletes a record directly, like an operator or an expiration. The order marker of its entity remains.
    pub async fn delete(&self, key: &KeyHash) {
        let hex = key.to_hex();
        #[cfg(feature = "redis")]
        let of_redis = {
            let (entity, operation) = hex.split_at(32);
            ::redis::Cmd::del(format!("{}:{{{entity}}}{operation}", self.name))
        };
        match self.backend {
            Backend::Memory => drop(self.memory.remove(key)),
            Backend::DynamoDb(_) => {
                let id = AttributeValue::S(format!("once#{hex}"));
                let client = client(&dynamodb_endpoint()).await;
                client.delete_item().table_name(&self.name).key("id", id).send().await.unwrap();
            }
            #[cfg(feature = "redis")]
            Backend::Redis => {
                let client = ::redis::Client::open(super::server("REDIS_URL")).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                of_redis.exec_async(&mut connection).await.unwrap();
            }
            #[cfg(feature = "redis-cluster")]
            Backend::RedisCluster => {
                let urls = super::server("REDIS_CLUSTER_URL");
                let client = ::redis::cluster::ClusterClient::new(urls.split(',')).unwrap();
                of_redis.exec_async(&mut client.get_async_connection().await.unwrap()).await.unwrap();
            }
            #[cfg(feature = "postgres")]
            Backend::Postgres => {
                let client = super::postgres::client(&super::postgres::connection().await).await;
                let delete = "DELETE FROM once_records WHERE scope = $1 AND key_hash = $2";
                let (name, key) = (&self.name, &key.as_bytes()[..]);
                client.query_typed(delete, &[(name, PgType::TEXT), (&key, PgType::BYTEA)]).await.unwrap();
            }
        }
    }

    /// Returns everything that the database contains of a record, read directly. PostgreSQL's row is also included as
    /// text.
    pub async fn raw(&self, key: &KeyHash) -> Vec<u8> {
        let hex = key.to_hex();
        #[cfg(feature = "redis")]
        let of_redis = {
            let (entity, operation) = hex.split_at(32);
            let mut command = ::redis::cmd("HGETALL");
            command.arg(format!("{}:{{{entity}}}{operation}", self.name));
            command
        };
        match self.backend {
            Backend::Memory => {
                let record = self.memory.read(&[*key], ResultData::Include).await.remove(0).unwrap().unwrap();
                serde_json::to_vec(&record).unwrap()
            }
            Backend::DynamoDb(_) => {
                let client = client(&dynamodb_endpoint()).await;
                let get = client.get_item().table_name(&self.name).key("id", AttributeValue::S(format!("once#{hex}")));
                let item = get.consistent_read(true).send().await.unwrap().item.unwrap();
                let mut raw = Vec::new();
                append(&AttributeValue::M(item), &mut raw);
                raw
            }
            #[cfg(feature = "redis")]
            Backend::Redis => {
                let client = ::redis::Client::open(super::server("REDIS_URL")).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                of_redis.query_async::<Vec<Vec<u8>>>(&mut connection).await.unwrap().concat()
            }
            #[cfg(feature = "redis-cluster")]
            Backend::RedisCluster => {
                let urls = super::server("REDIS_CLUSTER_URL");
                let client = ::redis::cluster::ClusterClient::new(urls.split(',')).unwrap();
                let mut connection = client.get_async_connection().await.unwrap();
                of_redis.query_async::<Vec<Vec<u8>>>(&mut connection).await.unwrap().concat()
            }
            #[cfg(feature = "postgres")]
            Backend::Postgres => {
                let client = super::postgres::client(&super::postgres::connection().await).await;
                let select = "SELECT convert_to(r::text, 'UTF8') || r.data FROM once_records r WHERE scope = $1 AND key_hash = $2";
                let (name, key) = (&self.name, &key.as_bytes()[..]);
                let rows = client.query_typed(select, &[(name, PgType::TEXT), (&key, PgType::BYTEA)]).await.unwrap();
                rows[0].get(0)
            }
        }
    }

    pub async fn dynamodb(&self, calls: Calls, url: &str) -> DynamoDbStore {
        let store = Config::new(&self.name).calls(calls).build(client(url).await).unwrap();
        match &self.clock {
            Some(clock) => store.with_clock(clock.clone()),
            None => store,
        }
    }

    #[cfg(feature = "postgres")]
    pub fn postgres(&self, url: &str) -> PostgresStore {
        let config = postgres::Config::from_url(url).unwrap().connect_timeout(PATIENCE);
        let store = config.scope(&self.name).build().unwrap();
        match &self.clock {
            Some(clock) => store.with_clock(clock.clone()),
            None => store,
        }
    }

    #[cfg(feature = "redis")]
    fn redis(&self, config: redis::Config) -> Arc<dyn Amend> {
        let config = config.connect_timeout(PATIENCE).response_timeout(PATIENCE);
        let store = config.key_prefix(format!("{}:", self.name)).build().unwrap();
        Arc::new(match &self.clock {
            Some(clock) => store.with_clock(clock.clone()),
            None => store,
        })
    }
}

/// Appends the bytes of a value, with the names of its members.
fn append(value: &AttributeValue, raw: &mut Vec<u8>) {
    match value {
        AttributeValue::S(text) | AttributeValue::N(text) => raw.extend_from_slice(text.as_bytes()),
        AttributeValue::B(bytes) => raw.extend_from_slice(bytes.as_ref()),
        AttributeValue::M(members) => {
            for (name, value) in members {
                raw.extend_from_slice(name.as_bytes());
                append(value, raw);
            }
        }
        other => raw.extend_from_slice(format!("{other:?}").as_bytes()),
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
