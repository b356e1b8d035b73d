//! Operations on a store whose responses get lost.

use lambda_once::{
    Idempotency, OutcomeKind,
    store::fault::{Call, Fault, FaultStore},
};
use std::sync::Arc;

use super::{Handler, Layer, World};
use crate::support::stores::{Backend, on_each_store};

struct Operations {
    faults: FaultStore<Arc<dyn lambda_once::Store>>,
    once: Idempotency,
    handler: Handler,
}

impl Layer for Operations {
    /// Loses the first response to the claim, and the first one to the settle.
    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        self.faults.heal();
        self.faults.next(Call::Claim, Fault::ErrorAfter);
        self.faults.next(Call::Settle, Fault::ErrorAfter);
        let operation = self.once.operation("charge", id).payload(&cents);
        operation.run(|| async { self.handler.run().await }).await.unwrap().kind()
    }
}

async fn operations_keep_their_promises_despite_lost_responses(backend: Backend) {
    let world = World::new(backend).await;
    let faults = FaultStore::new(Arc::clone(&world.store), 1);
    let once = world.engine_on(faults.clone());
    world.assert_promises(&Operations { faults, once, handler: world.handler.clone() }).await;
}

on_each_store!(operations_keep_their_promises_despite_lost_responses);
