//! Every store, by the value, in a `Box` and in an `Arc`, against the suite.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use crate::support;

use std::sync::Arc;

use lambda_once::{
    CachedStore,
    store::{
        conformance::Subject,
        dynamodb::{AttributeNames, Calls, Config},
        fault::FaultStore,
        memory::MemoryStore,
    },
};

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

mod cached_memory {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let store = CachedStore::new(MemoryStore::with_clock(clock.clone()));
        Subject::new(store.with_clock(clock.clone()), clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb {
    use super::*;

    async fn subject() -> Subject {
        dynamodb_subject(Calls::Auto).await
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb_with_single_keys {
    use super::*;

    async fn subject() -> Subject {
        dynamodb_subject(Calls::Single).await
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb_in_batches {
    use super::*;

    async fn subject() -> Subject {
        dynamodb_subject(Calls::Batched).await
    }

    lambda_once::conformance_tests!(subject().await);
}

mod cached_dynamodb {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let client = support::client(&support::dynamodb_endpoint()).await;
        let store = CachedStore::new(support::store(client, clock.clone()).await);
        Subject::new(store.with_clock(clock.clone()), clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb_table_of_another_shape {
    use super::*;

    async fn subject() -> Subject {
        shaped_subject(Calls::Auto).await
    }

    lambda_once::conformance_tests!(subject().await);
}

mod dynamodb_table_of_another_shape_in_batches {
    use super::*;

    async fn subject() -> Subject {
        shaped_subject(Calls::Batched).await
    }

    lambda_once::conformance_tests!(subject().await);
}

mod postgres {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        Subject::new(support::postgres::migrated().await.with_clock(clock.clone()), clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod postgres_in_a_box {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let store: Box<dyn lambda_once::Store> =
            Box::new(support::postgres::migrated().await.with_clock(clock.clone()));
        Subject::new(store, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod postgres_in_an_arc {
    use super::*;

    async fn subject() -> Subject {
        let clock = clock();
        let store: Arc<dyn lambda_once::Store> =
            Arc::new(support::postgres::migrated().await.with_clock(clock.clone()));
        Subject::new(store, clock)
    }

    lambda_once::conformance_tests!(subject().await);
}

mod postgres_on_the_servers_clock {
    use super::*;

    async fn subject() -> Subject {
        let store = support::postgres::migrated().await;
        Subject::with_time(store, |time| Box::pin(tokio::time::sleep(time)))
    }

    // Those that a busy machine cannot make late.
    lambda_once::conformance_tests!(subject().await;
        a_lapsed_claim_is_taken_over_once,
        an_abandoned_claim_stays_so_where_takeover_is_refused,
        a_renewal_after_the_lease_and_the_margin_revives_nothing,
        a_record_expires_no_earlier_than_its_retention,
    );
}

async fn dynamodb_subject(calls: Calls) -> Subject {
    created(Config::new(support::unique_name("records")).calls(calls)).await
}

async fn shaped_subject(calls: Calls) -> Subject {
    let mut names = AttributeNames::default();
    names.id = "pk".into();
    names.owner = "held by (who?)".into();
    names.data = "select".into();
    names.status = "state".into();
    names.in_progress_expiration = "lease".into();
    names.version = "format".into();
    let config =
        Config::new(support::unique_name("shaped")).attributes(names).key_prefix("").sort_key("s.k-[0]", "once");
    created(config.calls(calls)).await
}

async fn created(config: Config) -> Subject {
    let clock = clock();
    let client = support::client(&support::dynamodb_endpoint()).await;
    let store = config.build(client).expect("the names differ").with_clock(clock.clone());
    store.create_table().await.expect("the table is created");
    Subject::new(store, clock)
}
