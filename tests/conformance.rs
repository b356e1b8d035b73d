//! Every store, by the value, in a `Box` and in an `Arc`, against the suite.

#![allow(clippy::unwrap_used, reason = "a test panics")]

mod support;

use std::sync::Arc;

use lambda_once::store::{conformance::Subject, fault::FaultStore, memory::MemoryStore};

use support::future_clock as clock;

mod memory {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        Subject::new(MemoryStore::with_clock(clock.clone()), clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod memory_in_a_box {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let store: Box<dyn lambda_once::Store> = Box::new(MemoryStore::with_clock(clock.clone()));
        Subject::new(store, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod memory_in_an_arc {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let store: Arc<dyn lambda_once::Store> = Arc::new(MemoryStore::with_clock(clock.clone()));
        Subject::new(store, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod faultless_fault_store {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        Subject::new(FaultStore::new(MemoryStore::with_clock(clock.clone()), 1), clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let client = support::client(&support::dynamodb_endpoint()).await;
        Subject::new(support::store(client, clock.clone()).await, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb_table_of_another_shape {
    use lambda_once::store::dynamodb::{AttributeNames, Config};

    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let client = support::client(&support::dynamodb_endpoint()).await;
        let mut names = AttributeNames::default();
        names.id = "pk".into();
        names.status = "state".into();
        names.in_progress_expiration = "lease".into();
        names.version = "format".into();
        let config =
            Config::new(support::unique_name("shaped")).attributes(names).key_prefix("").sort_key("sk", "once");
        let store = config.build(client).expect("the names differ").with_clock(clock.clone());
        store.create_table().await.expect("the table is created");
        Subject::new(store, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}
