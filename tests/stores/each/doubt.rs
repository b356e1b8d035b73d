//! Ordered operations that may have taken effect without an outcome, on each store.

use lambda_once::{Failure, Idempotency, OutcomeKind, Verdict, record::KeyHash};

use super::LAPSE;
use crate::support::{
    clock::TokioClock,
    stores::{Backend, Records, on_each_store},
};

const SET: &str = "set";
const ENTITY: &str = "document";

struct World {
    clock: TokioClock,
    records: Records,
    once: Idempotency,
}

impl World {
    async fn new(backend: Backend) -> Self {
        let clock = TokioClock::new();
        let records = Records::new(backend, clock.clone()).await;
        let builder = Idempotency::builder(records.store().await).clock(clock.clone()).scope("tests");
        Self { once: builder.disabled(false).build().unwrap(), records, clock }
    }

    /// Delivers the operation that sets the entity to this version, with work that ends as given.
    async fn set(&self, version: u64, end: Result<u64, Failure>) -> OutcomeKind {
        let operation = self.once.operation(SET, &version).ordered_by(ENTITY, version);
        operation.run(|| async { end }).await.unwrap().kind()
    }

    /// Leaves a run with an unknown outcome, and ends its lease.
    async fn lose(&self, version: u64) {
        let unknown = Err(Failure::unknown("timed out"));
        assert_eq!(self.set(version, unknown).await, OutcomeKind::Failed(Verdict::Unknown), "version {version}");
        self.clock.jump(LAPSE);
    }

    /// Deletes the operation's record, like an operator or a short retention.
    async fn delete(&self, version: u64) {
        let entity = self.once.key_hash(SET, ENTITY).unwrap();
        let operation = self.once.key_hash(SET, &version).unwrap();
        self.records.delete(&KeyHash::ordered(&entity, &operation)).await;
    }
}

async fn the_loss_of_a_record_and_a_release_end_no_doubt(backend: Backend) {
    use OutcomeKind::{Executed, Failed, InProgress, Superseded};
    let world = World::new(backend).await;
    world.lose(6).await;
    assert_eq!(world.set(5, Ok(5)).await, InProgress, "6 may have taken effect");
    world.delete(6).await;
    let release = Err(Failure::transient("busy"));
    assert_eq!(world.set(6, release).await, Failed(Verdict::Transient), "claimed anew, and released");
    assert_eq!(world.set(5, Ok(5)).await, InProgress, "6 may still have taken effect");
    assert_eq!(world.set(6, Ok(6)).await, Executed, "its record was deleted, so nothing is known of its first run");
    assert_eq!(world.set(5, Ok(5)).await, Superseded);
}

async fn after_many_lost_operations_a_newer_one_runs_and_ends_all_doubt(backend: Backend) {
    use OutcomeKind::{Executed, InProgress, Superseded};
    let world = World::new(backend).await;
    for version in 1..=70 {
        world.lose(version).await;
    }
    for older in [1, 6, 69] {
        assert_eq!(world.set(older, Ok(older)).await, InProgress, "version {older}");
    }
    assert_eq!(world.set(71, Ok(71)).await, Executed);
    for older in [1, 6, 69] {
        assert_eq!(world.set(older, Ok(older)).await, Superseded, "version {older}");
    }
    assert_eq!(world.set(72, Ok(72)).await, Executed);
}

on_each_store!(
    the_loss_of_a_record_and_a_release_end_no_doubt,
    after_many_lost_operations_a_newer_one_runs_and_ends_all_doubt,
);
