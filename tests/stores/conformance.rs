//! Runs the conformance suite on every store, by value, in a `Box` and in an `Arc`, and by two connections in turn. The
//! unit tests cover the memory store by value.

use std::sync::Arc;

use lambda_once::{
    CachedStore, DynamoDbStore, PostgresStore, RedisStore, Store,
    clock::ManualClock,
    store::{
        amend::Amend,
        conformance::Subject,
        dynamodb::{AttributeNames, Calls, Config},
        fault::FaultStore,
        listing::List,
        memory::MemoryStore,
    },
};

use crate::support;

/// Runs the whole suite on a subject, with a manual clock.
macro_rules! suites {
    ($($name:ident: $subject:expr;)+) => {
        $(
            mod $name {
                use super::*;

                lambda_once::conformance_tests!($subject.await);
            }
        )+
    };
}

/// Runs the time-dependent checks that pass on a busy machine, with the server's clock.
macro_rules! suites_by_the_servers_clock {
    ($($name:ident: $subject:expr;)+) => {
        $(
            mod $name {
                use super::*;

                lambda_once::conformance_tests!($subject.await;
                    a_lapsed_claim_sent_again_takes_over,
                    a_takeover_sent_again_still_took_over,
                    a_lapsed_claim_is_taken_over_once,
                    an_abandoned_claim_stays_so_where_takeover_is_refused,
                    a_taken_over_claim_is_handed_back,
                    a_late_release_does_not_forget_a_takeover,
                    a_renewal_after_the_lease_and_the_margin_revives_nothing,
                    a_record_expires_no_earlier_than_its_retention,
                    a_forgotten_record_leaves_its_key_free,
                );
            }
        )+
    };
}

suites! {
    memory_in_a_box: in_a_box(memory);
    memory_in_an_arc: in_an_arc(memory);
    faultless_fault_store: by_value(async |clock| FaultStore::new(MemoryStore::with_clock(clock), 1));
    cached_memory: by_value(async |clock: ManualClock| {
        CachedStore::new(MemoryStore::with_clock(clock.clone())).with_clock(clock)
    });
    dynamodb: dynamodb(Calls::Auto);
    dynamodb_with_single_keys: dynamodb(Calls::Single);
    dynamodb_with_a_listing_index: created(config(Calls::Auto).listing_index(true));
    dynamodb_in_batches_with_a_listing_index: created(config(Calls::Batched).listing_index(true));
    dynamodb_in_batches: dynamodb(Calls::Batched);
    cached_dynamodb: by_value(async |clock: ManualClock| {
        let client = support::client(&support::dynamodb_endpoint()).await;
        CachedStore::new(support::store(client, clock.clone()).await).with_clock(clock)
    });
    dynamodb_table_of_another_shape: dynamodb_of_another_shape(Calls::Auto);
    dynamodb_table_of_another_shape_in_batches: dynamodb_of_another_shape(Calls::Batched);
    redis: by_value(redis);
    redis_with_a_listing_index: by_value(indexed_redis);
    redis_in_a_box: in_a_box(redis);
    redis_in_an_arc: in_an_arc(redis);
    redis_by_two_connections: by_two_connections(async |clock: ManualClock| {
        let config = support::redis_config();
        [config.clone(), config].map(|config| config.build().unwrap().with_clock(clock.clone()))
    });
    redis_cluster: by_value(async |clock| support::redis_cluster().with_clock(clock));
    postgres: by_value(postgres);
    postgres_in_a_box: in_a_box(postgres);
    postgres_in_an_arc: in_an_arc(postgres);
    postgres_by_two_connections: by_two_connections(async |clock: ManualClock| {
        let config = support::postgres::config(support::postgres::connection().await);
        [config.clone(), config].map(|config| config.build().unwrap().with_clock(clock.clone()))
    });
}

/// Runs the checks of amendments on a subject.
macro_rules! amendments {
    ($($name:ident: $subject:expr;)+) => {
        $(
            mod $name {
                use super::*;

                lambda_once::conformance_tests!(amendments: $subject.await);
            }
        )+
    };
}

amendments! {
    amendments_in_memory: amending(memory);
    amendments_in_a_cache: amending(async |clock: ManualClock| {
        CachedStore::new(MemoryStore::with_clock(clock.clone())).with_clock(clock)
    });
    amendments_in_a_fault_store: amending(async |clock| FaultStore::new(MemoryStore::with_clock(clock), 1));
    amendments_in_dynamodb: amending(async |clock: ManualClock| created_store(config(Calls::Auto), clock).await);
    amendments_in_dynamodb_in_batches: amending(async |clock: ManualClock| created_store(config(Calls::Batched), clock).await);
    amendments_in_a_table_of_another_shape: amending(async |clock: ManualClock| {
        created_store(config_of_another_shape(Calls::Auto), clock).await
    });
    amendments_in_redis: amending(redis);
    amendments_in_redis_with_a_listing_index: amending(indexed_redis);
    amendments_in_a_redis_cluster: amending(async |clock| support::redis_cluster().with_clock(clock));
    amendments_in_postgres: amending(postgres);
}

/// Runs the checks of lists on a subject.
macro_rules! lists {
    ($($name:ident: $subject:expr;)+) => {
        $(
            mod $name {
                use super::*;

                lambda_once::conformance_tests!(listing: $subject.await);
            }
        )+
    };
}

lists! {
    lists_in_memory: listing(memory);
    lists_in_a_cache: listing(async |clock: ManualClock| {
        CachedStore::new(MemoryStore::with_clock(clock.clone())).with_clock(clock)
    });
    lists_in_a_fault_store: listing(async |clock| FaultStore::new(MemoryStore::with_clock(clock), 1));
    lists_in_dynamodb: listing(async |clock: ManualClock| created_store(config(Calls::Auto), clock).await);
    lists_in_dynamodb_in_batches: listing(async |clock: ManualClock| created_store(config(Calls::Batched), clock).await);
    lists_in_a_table_of_another_shape: listing(async |clock: ManualClock| {
        created_store(config_of_another_shape(Calls::Auto), clock).await
    });
    lists_in_dynamodb_by_its_index: listing(async |clock: ManualClock| {
        created_store(config(Calls::Auto).listing_index(true), clock).await
    });
    lists_in_dynamodb_in_batches_by_its_index: listing(async |clock: ManualClock| {
        created_store(config(Calls::Batched).listing_index(true), clock).await
    });
    lists_in_a_table_of_another_shape_by_its_index: listing(async |clock: ManualClock| {
        created_store(config_of_another_shape(Calls::Single).listing_index(true), clock).await
    });
    lists_in_redis: listing(redis);
    lists_in_redis_by_its_index: listing(indexed_redis);
    lists_in_a_redis_cluster: listing(async |clock| support::redis_cluster().with_clock(clock));
    lists_in_postgres: listing(postgres);
    lists_in_postgres_by_its_index: listing(async |clock: ManualClock| {
        let config = support::postgres::config(support::postgres::connection().await);
        let store = config.table(support::unique_name("listed")).listing_index(true).build().unwrap();
        store.migrate().await.unwrap();
        store.with_clock(clock)
    });
}

suites_by_the_servers_clock! {
    redis_by_its_own_clock: by_itself(support::redis());
    redis_cluster_by_its_own_clock: by_itself(support::redis_cluster());
    postgres_by_its_own_clock: by_itself(support::postgres::migrated().await);
}

async fn memory(clock: ManualClock) -> MemoryStore {
    MemoryStore::with_clock(clock)
}

async fn redis(clock: ManualClock) -> RedisStore {
    support::redis().with_clock(clock)
}

async fn indexed_redis(clock: ManualClock) -> RedisStore {
    support::redis_config().listing_index(true).build().unwrap().with_clock(clock)
}

async fn postgres(clock: ManualClock) -> PostgresStore {
    support::postgres::migrated().await.with_clock(clock)
}

async fn by_value<S: Store>(store: impl AsyncFnOnce(ManualClock) -> S) -> Subject {
    let clock = support::future_clock();
    Subject::new(store(clock.clone()).await, clock)
}

/// Each call of a check is made by a different store than the one before, without shared connections.
async fn by_two_connections<S: Store>(stores: impl AsyncFnOnce(ManualClock) -> [S; 2]) -> Subject {
    let clock = support::future_clock();
    let [first, second] = stores(clock.clone()).await;
    Subject::new(first, clock).with_connection(second)
}

async fn amending<S: Amend + Clone>(store: impl AsyncFnOnce(ManualClock) -> S) -> Subject {
    let clock = support::future_clock();
    let store = store(clock.clone()).await;
    // `Arc` and `Box` forward amendments.
    let amend: Arc<dyn Amend> = Arc::new(store.clone());
    Subject::new(store, clock).with_amendments(Box::new(amend))
}

async fn listing<S: List + Clone>(store: impl AsyncFnOnce(ManualClock) -> S) -> Subject {
    let clock = support::future_clock();
    let store = store(clock.clone()).await;
    // `Arc` and `Box` forward lists.
    let list: Arc<dyn List> = Arc::new(store.clone());
    Subject::new(store, clock).with_lists(Box::new(list))
}

async fn in_a_box<S: Store>(store: impl AsyncFnOnce(ManualClock) -> S) -> Subject {
    let clock = support::future_clock();
    let store: Box<dyn Store> = Box::new(store(clock.clone()).await);
    Subject::new(store, clock)
}

async fn in_an_arc<S: Store>(store: impl AsyncFnOnce(ManualClock) -> S) -> Subject {
    let clock = support::future_clock();
    let store: Arc<dyn Store> = Arc::new(store(clock.clone()).await);
    Subject::new(store, clock)
}

async fn by_itself<S: Amend + Clone>(store: S) -> Subject {
    Subject::with_time(store.clone(), |time| Box::pin(tokio::time::sleep(time))).with_amendments(store)
}

async fn dynamodb(calls: Calls) -> Subject {
    created(config(calls)).await
}

fn config(calls: Calls) -> Config {
    Config::new(support::unique_name("records")).calls(calls)
}

async fn dynamodb_of_another_shape(calls: Calls) -> Subject {
    created(config_of_another_shape(calls)).await
}

fn config_of_another_shape(calls: Calls) -> Config {
    let mut names = AttributeNames::default();
    names.id = "pk".into();
    names.owner = "held by (who?)".into();
    names.data = "select".into();
    names.status = "state".into();
    names.in_progress_expiration = "lease".into();
    names.version = "format".into();
    let config =
        Config::new(support::unique_name("shaped")).attributes(names).key_prefix("").sort_key("s.k-[0]", "once");
    config.calls(calls)
}

async fn created(config: Config) -> Subject {
    by_value(async |clock| created_store(config, clock).await).await
}

async fn created_store(config: Config, clock: ManualClock) -> DynamoDbStore {
    let client = support::client(&support::dynamodb_endpoint()).await;
    let store = config.build(client).expect("the names differ").with_clock(clock);
    store.create_table().await.expect("the table is created");
    store
}
