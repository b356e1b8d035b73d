//! Operations behind the local cache.

use std::sync::Arc;

use lambda_once::{CachedStore, Idempotency, OutcomeKind, store::fault::FaultStore};

use super::{Handler, Layer, World};
use crate::support::stores::{Backend, on_each_store};

struct Operations {
    once: Idempotency,
    handler: Handler,
}

impl Layer for Operations {
    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        let operation = self.once.operation("charge", id).payload(&cents);
        operation.run(|| async { self.handler.run().await }).await.unwrap().kind()
    }
}

async fn operations_behind_the_cache(backend: Backend) {
    let world = World::new(backend).await;
    let counted = FaultStore::new(Arc::clone(&world.store), 1);
    let once = world.engine_on(CachedStore::new(counted.clone()).with_clock(world.clock.clone()));
    let operations = Operations { once, handler: world.handler.clone() };
    world.assert_promises(&operations).await;
    let calls = counted.calls().len();
    assert_eq!(operations.deliver("c", 1).await, OutcomeKind::Replayed);
    assert_eq!(counted.calls().len(), calls, "what the cache knows does not reach the store");
}

on_each_store!(operations_behind_the_cache);
