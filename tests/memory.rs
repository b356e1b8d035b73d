//! The memory store against the suite, in a program that is quickly built: whoever changes a shared rule runs this first.

use lambda_once::{
    MemoryStore,
    clock::{ManualClock, Timestamp},
    store::conformance::Subject,
};

async fn memory() -> Subject {
    let clock = ManualClock::at(Timestamp::from_seconds(4_000_000_000));
    Subject::new(MemoryStore::with_clock(clock.clone()), clock)
}

lambda_once::conformance_tests!(memory().await);
