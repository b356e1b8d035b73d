//! Random faults of a store.

use lambda_once::{
    ErrorKind, MemoryStore, Store,
    record::KeyHash,
    store::{
        ResultData,
        fault::{Fault, FaultStore},
    },
};

#[tokio::test]
async fn a_rate_is_the_fraction_of_requests_with_the_fault() {
    for (rates, throttled, denied) in [
        ([0.0, 0.0], 0..=0, 0..=0),
        ([1.0, 0.0], 1_000..=1_000, 0..=0),
        ([0.0, 1.0], 0..=0, 1_000..=1_000),
        ([0.25, 0.5], 150..=350, 400..=600),
    ] {
        let store = FaultStore::new(MemoryStore::new(), 1);
        let store = store.with_rate(Fault::Throttled, rates[0]).with_rate(Fault::AccessDenied, rates[1]);
        let answers = store.read(&[KeyHash::from_bytes([0; 32]); 1_000], ResultData::Omit).await;
        let failed =
            |kind| answers.iter().filter(|answer| answer.as_ref().is_err_and(|error| error.kind() == kind)).count();
        let (found, refused) = (failed(ErrorKind::Throttled), failed(ErrorKind::AccessDenied));
        assert!(throttled.contains(&found) && denied.contains(&refused), "{rates:?}: {found} and {refused}");
    }
}
