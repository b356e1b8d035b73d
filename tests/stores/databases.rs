//! The database names of the stores in traces, which follow the OpenTelemetry conventions, also through wrappers.

use std::sync::Arc;

use lambda_once::{
    CachedStore, DynamoDbStore, MemoryStore, RedisStore, Store,
    store::{Database, fault::FaultStore, postgres},
};

use crate::support;

fn assert_is(store: impl Store + Clone, system: &str, collection: Option<&str>) {
    let wrapped: [Box<dyn Store>; 5] = [
        Box::new(store.clone()),
        Box::new(Box::new(store.clone())),
        Box::new(Arc::new(store.clone())),
        Box::new(FaultStore::new(store.clone(), 1)),
        Box::new(CachedStore::new(store)),
    ];
    for store in wrapped {
        let Database { system: found, collection: table, .. } = store.database();
        assert_eq!((found, table), (system, collection), "{store:?}");
    }
}

/// <https://opentelemetry.io/docs/specs/semconv/registry/attributes/db/>
#[tokio::test]
async fn each_store_has_the_name_of_its_database() {
    assert_is(
        DynamoDbStore::new(support::client("http://127.0.0.1:1").await, "orders"),
        "aws.dynamodb",
        Some("orders"),
    );
    assert_is(RedisStore::new("redis://127.0.0.1:1").unwrap(), "redis", None);
    let postgres = || postgres::Config::from_url("postgres://127.0.0.1:1/shop").unwrap();
    assert_is(postgres().build().unwrap(), "postgresql", Some("once_records"));
    let own = postgres().schema("shop").table("operations");
    assert_is(own.build().unwrap(), "postgresql", Some("shop.operations"));
    assert_is(MemoryStore::new(), "memory", None);
}
