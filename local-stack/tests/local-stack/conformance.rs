//! The DynamoDB store on the embedded DynamoDB, against the suite that every store must pass.

use std::sync::{
    LazyLock,
    atomic::{AtomicU32, Ordering},
};

use lambda_once::{
    clock::{ManualClock, Timestamp},
    store::{
        conformance::Subject,
        dynamodb::{Calls, Config},
    },
};
use local_stack::{EmbeddedDynamoDb, client};

static DYNAMODB: LazyLock<EmbeddedDynamoDb> =
    LazyLock::new(|| EmbeddedDynamoDb::start().expect("the embedded DynamoDB starts"));

async fn subject(calls: Calls) -> Subject {
    static TABLES: AtomicU32 = AtomicU32::new(0);
    let table = format!("records-{}", TABLES.fetch_add(1, Ordering::Relaxed));
    // Far from now, so that no record expires by itself.
    let clock = ManualClock::at(Timestamp::from_seconds(4_000_000_000));
    let config = Config::new(table).calls(calls);
    let store = config.build(client(DYNAMODB.endpoint())).expect("the names differ").with_clock(clock.clone());
    store.create_table().await.expect("the table is created");
    Subject::new(store, clock)
}

mod single {
    lambda_once::conformance_tests!(super::subject(super::Calls::Auto).await);
}

mod batched {
    lambda_once::conformance_tests!(super::subject(super::Calls::Batched).await);
}
