#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{
    clock::ManualClock,
    documented::assert_states,
    record::{Difference, Fingerprint, Owner, PayloadPart, StoredResult},
    store::{
        Mismatch, MismatchState, Settlement, Takeover,
        fault::{Call, FaultStore},
        memory::MemoryStore,
    },
};

mod contents;
mod doubles;
mod expiry;
mod replays;
mod room;
mod threads;

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(3_600);
const A_MILLISECOND: Duration = Duration::from_millis(1);

/// An execution environment: a cache in front of a shared store.
struct Environment {
    clock: ManualClock,
    memory: MemoryStore,
    inner: FaultStore<MemoryStore>,
    store: CachedStore<FaultStore<MemoryStore>>,
}

impl Environment {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_millis(2_000_000_000_700));
        let memory = MemoryStore::with_clock(clock.clone());
        Self::on(memory, clock)
    }

    fn on(memory: MemoryStore, clock: ManualClock) -> Self {
        let inner = FaultStore::new(memory.clone(), 1);
        let store = CachedStore::new(inner.clone()).with_clock(clock.clone());
        Self { clock, memory, inner, store }
    }

    fn another(&self) -> Self {
        Self::on(self.memory.clone(), self.clock.clone())
    }

    fn with(
        mut self,
        change: impl FnOnce(CachedStore<FaultStore<MemoryStore>>) -> CachedStore<FaultStore<MemoryStore>>,
    ) -> Self {
        self.store = change(self.store);
        self
    }

    async fn claim(&self, request: &ClaimRequest) -> Claimed {
        self.store.claim(std::slice::from_ref(request)).await.remove(0).unwrap()
    }

    async fn granted(&self, request: &ClaimRequest) {
        assert!(matches!(self.claim(request).await, Claimed::Granted(_)));
    }

    async fn settle(&self, claim: &ClaimRequest, settlement: Settlement) -> Result<Settled, Error> {
        self.store.settle(&[settle(claim, settlement)]).await.remove(0)
    }

    /// Runs a new operation here.
    async fn run(&self, settlement: Settlement) -> ClaimRequest {
        let claim = new_claim();
        self.granted(&claim).await;
        assert_eq!(self.settle(&claim, settlement).await.unwrap(), Settled::Done { found: None });
        claim
    }

    /// Runs a new operation here and claims it once more, so that it is cached.
    async fn known(&self, settlement: Settlement) -> ClaimRequest {
        let claim = self.run(settlement).await;
        self.replayed(&claim).await;
        claim
    }

    /// Returns the record for a duplicate, and the number of store calls that this took.
    async fn replayed(&self, claim: &ClaimRequest) -> (Record, usize) {
        let before = self.calls(Call::Claim).len();
        let record = match self.claim(&rival(claim)).await {
            Claimed::Refused(Refusal::Completed(record) | Refusal::Failed(record)) => *record,
            other => panic!("expected a replay, got {other:?}"),
        };
        (record, self.calls(Call::Claim).len() - before)
    }

    /// Returns the number of requests in each call of this kind.
    fn calls(&self, kind: Call) -> Vec<usize> {
        self.inner.calls().into_iter().filter(|(call, _)| *call == kind).map(|(_, requests)| requests).collect()
    }

    fn keeps(&self, claim: &ClaimRequest) -> bool {
        self.store.lock().list.contains(&claim.key)
    }
}

/// A mismatch of two payloads whose fingerprints differ in all bytes.
fn mismatch(state: MismatchState) -> Mismatch {
    use PayloadPart::{Body, Headers, MethodAndPath, Query};
    Mismatch::new(state, Difference::of([MethodAndPath, Query, Headers, Body]))
}

fn new_claim() -> ClaimRequest {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut key = [0; 32];
    key[..4].copy_from_slice(&NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    ClaimRequest {
        key: KeyHash::from_bytes(key),
        fingerprint: Some(Fingerprint::from_bytes([1; 32])),
        owner: Owner::from_bytes(fastrand::u128(..).to_be_bytes()),
        lease: LEASE,
        skew_margin: Duration::from_secs(1),
        retention: RETENTION,
        takeover: Takeover::Allowed,
        result_data: ResultData::Include,
        order: None,
        operation: "orders".into(),
        label: None,
    }
}

fn rival(claim: &ClaimRequest) -> ClaimRequest {
    ClaimRequest { owner: Owner::from_bytes(fastrand::u128(..).to_be_bytes()), ..claim.clone() }
}

fn settle(claim: &ClaimRequest, settlement: Settlement) -> SettleRequest {
    SettleRequest { key: claim.key, owner: claim.owner, fingerprint: claim.fingerprint, settlement, order: claim.order }
}

fn json(text: &str) -> StoredResult {
    StoredResult::of(StoredData::Json(text.to_owned()))
}

fn complete(text: &str) -> Settlement {
    Settlement::complete(json(text), RETENTION)
}

fn fail(text: &str) -> Settlement {
    Settlement::fail(json(text), RETENTION)
}

#[test]
fn the_documented_defaults_are_in_effect() {
    let (mib, age) = (MAX_BYTES >> 20, MAX_AGE.as_secs());
    let texts = [format!("`max_age` ({age} s)"), format!("`max_bytes` ({mib} MiB)")];
    assert_states("docs/settings.md", texts);
    assert_states("docs/how-it-works.md", [format!("when its entry expires, after {age} s by default")]);
    let texts = [
        format!("| [`max_bytes`](Self::max_bytes) | {mib} MiB |"),
        format!("| [`max_age`](Self::max_age) | {age} s |"),
    ];
    assert_states("src/store/cached.rs", texts);
}

#[tokio::test]
async fn reads_ask_the_store() {
    let environment = Environment::new();
    let claim = environment.run(complete("1")).await;
    environment.memory.remove(&claim.key);
    assert_eq!(environment.store.read(&[claim.key], ResultData::Include).await.remove(0).unwrap(), None);
    assert_eq!(environment.store.limits(), environment.memory.limits());
}

#[cfg(feature = "powertools")]
#[test]
fn the_format_is_the_one_of_the_store() {
    assert!(matches!(CachedStore::new(doubles::Scripted(Vec::new())).format(), RecordFormat::Powertools(_)));
}

#[tokio::test]
async fn debug_shows_no_contents() {
    let environment = Environment::new();
    let claim = environment.known(complete("\"secret\"")).await;
    let shown = format!("{:?}", environment.store);
    assert!(!shown.contains("secret") && !shown.contains(&claim.key.to_hex()), "{shown}");
    assert!(shown.contains("entries: 1"), "{shown}");
}
