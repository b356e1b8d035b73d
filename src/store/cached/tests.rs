#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;

use super::*;
use crate::{
    clock::ManualClock,
    documented::assert_states,
    record::{Difference, Fingerprint, NEWEST_KNOWN_VERSION, Owner, PayloadPart, Status},
    store::{
        Mismatch, MismatchState, Settlement, Takeover,
        amend::Amendment,
        fault::{Call, FaultStore},
        memory::MemoryStore,
    },
};

mod doubles;

use doubles::{Scripted, Slow};

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
async fn only_the_first_duplicate_of_this_environments_outcome_costs_a_call() {
    let environment = Environment::new();
    let dropped = Settlement::complete(StoredResult::DROPPED, RETENTION);
    for (settlement, status, result) in [
        (complete("[1]"), Status::Completed, json("[1]")),
        (fail("{}"), Status::Failed, json("{}")),
        (dropped, Status::Completed, StoredResult::DROPPED),
    ] {
        let claim = environment.run(settlement).await;
        for expected in [1, 0, 0] {
            let (record, calls) = environment.replayed(&claim).await;
            assert_eq!((record.status, &record.result, calls), (status, &result, expected));
            assert_eq!(record.fingerprint, claim.fingerprint);
        }
    }
}

#[tokio::test]
async fn an_outcome_that_the_store_showed_is_replayed_without_a_second_call() {
    let environment = Environment::new();
    let other = environment.another();
    for settlement in [complete("1"), fail("1")] {
        let claim = other.run(settlement).await;
        let (shown, calls) = environment.replayed(&claim).await;
        assert_eq!(calls, 1);
        assert_eq!(environment.replayed(&claim).await, (shown.clone(), 0));
        assert_eq!(environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap(), Some(shown));
    }
}

#[tokio::test]
async fn an_entry_without_data_is_not_served_to_a_caller_who_needs_it() {
    let environment = Environment::new();
    let claim = environment.another().run(complete("1")).await;
    let without = ClaimRequest { result_data: ResultData::Omit, ..claim.clone() };
    assert_eq!(environment.replayed(&without).await.0.result, StoredResult::default());
    let (record, calls) = environment.replayed(&without).await;
    assert_eq!((record.result, calls), (StoredResult::default(), 0), "who needs none is served");
    let (record, calls) = environment.replayed(&claim).await;
    assert_eq!((record.result, calls), (json("1"), 1));
    for (request, result) in [(&claim, json("1")), (&without, StoredResult::default())] {
        let (record, calls) = environment.replayed(request).await;
        assert_eq!((record.result, calls), (result, 0), "the data serves both");
    }
}

#[tokio::test]
async fn the_rest_of_a_batch_goes_to_the_store_in_one_call() {
    let environment = Environment::new();
    let (first, last) = (environment.known(complete("1")).await, environment.known(fail("2")).await);
    let shown = environment.another().run(complete("3")).await;
    let claims = [rival(&first), new_claim(), rival(&shown), rival(&last)];
    let before = environment.calls(Call::Claim).len();
    let answers: Vec<Claimed> = environment.store.claim(&claims).await.into_iter().map(Result::unwrap).collect();
    assert!(matches!(&answers[0], Claimed::Refused(Refusal::Completed(record)) if record.result == json("1")));
    assert!(matches!(answers[1], Claimed::Granted(_)));
    assert!(matches!(&answers[2], Claimed::Refused(Refusal::Completed(record)) if record.result == json("3")));
    assert!(matches!(&answers[3], Claimed::Refused(Refusal::Failed(record)) if record.result == json("2")));
    assert_eq!(environment.calls(Call::Claim)[before..], [2]);

    let known = [rival(&first), rival(&shown), rival(&last)];
    assert_eq!(environment.store.claim(&known).await.len(), 3);
    assert_eq!(environment.calls(Call::Claim).len(), before + 1, "nothing is left to ask");
}

#[tokio::test]
async fn another_payload_is_a_mismatch_without_a_call() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    let calls = environment.calls(Call::Claim).len();
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    assert_eq!(environment.claim(&misuse).await, Claimed::Refused(Refusal::Mismatch(mismatch(MismatchState::Final))));
    let unnamed = ClaimRequest { fingerprint: None, ..rival(&claim) };
    assert!(matches!(environment.claim(&unnamed).await, Claimed::Refused(Refusal::Completed(_))));
    assert_eq!(environment.calls(Call::Claim).len(), calls);
}

#[tokio::test]
async fn an_entry_expires_no_later_than_the_record() {
    let retention = Duration::from_secs(20);
    let environment = Environment::new();
    let claim = environment.known(Settlement::complete(json("1"), retention)).await;
    let stored = environment.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
    assert_eq!(stored.expiration, Some(2_000_000_021));

    environment.clock.set(Timestamp::from_millis(2_000_000_020_999));
    assert_eq!(environment.replayed(&claim).await, (stored, 0));
    environment.clock.set(Timestamp::from_millis(2_000_000_021_000));
    environment.granted(&rival(&claim)).await;
    assert!(!environment.keeps(&claim), "expired entries are removed when they are met");
}

#[tokio::test]
async fn the_time_that_a_call_takes_lengthens_no_entry() {
    let environment = Environment::new();
    let store = CachedStore::new(Slow(environment.memory.clone(), environment.clock.clone()))
        .with_clock(environment.clock.clone());
    let shown = environment.run(complete("2")).await;
    let asked = environment.clock.now();
    store.claim(&[rival(&shown)]).await.remove(0).unwrap();
    assert_eq!(store.lock().list.peek(&shown.key).unwrap().asked, asked);
}

// Tests P4.
#[tokio::test]
async fn a_record_that_was_deleted_is_served_for_max_age_and_no_longer() {
    let age = Duration::from_secs(30);
    let environment = Environment::new().with(|store| store.max_age(age));
    let of_this = environment.known(complete("1")).await;
    let of_another = environment.another().run(complete("1")).await;
    environment.replayed(&of_another).await;
    for claim in [&of_this, &of_another] {
        environment.memory.remove(&claim.key);
    }
    environment.clock.advance(age);
    for claim in [&of_this, &of_another] {
        assert_eq!(environment.replayed(claim).await.1, 0, "a replay makes no entry younger");
    }
    environment.clock.advance(A_MILLISECOND);
    for claim in [&of_this, &of_another] {
        environment.granted(&rival(claim)).await;
        assert!(!environment.keeps(claim));
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_entry_last_longer() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    environment.clock.set(environment.clock.now().before(A_MILLISECOND));
    assert_eq!(environment.replayed(&claim).await.1, 1);
}

#[tokio::test]
async fn a_live_claim_is_never_cached() {
    let environment = Environment::new();
    let claim = new_claim();
    environment.granted(&claim).await;
    let mut lease = None;
    for asked in 2..5 {
        let refused = environment.claim(&rival(&claim)).await;
        let Claimed::Refused(Refusal::InProgress { lease_until, .. }) = refused else { panic!("{refused:?}") };
        lease = lease_until;
        assert_eq!(environment.calls(Call::Claim).len(), asked);
    }
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    let standing = Refusal::Mismatch(mismatch(MismatchState::InProgress { lease_until: lease, attempt: 1 }));
    assert_eq!(environment.claim(&misuse).await, Claimed::Refused(standing));
    let renew = Settlement::Renew { lease: LEASE, skew_margin: Duration::ZERO, retention: RETENTION };
    assert!(matches!(environment.settle(&claim, renew).await.unwrap(), Settled::Renewed { .. }));
    assert_eq!(environment.settle(&claim, Settlement::Release).await.unwrap(), Settled::Done { found: None });
    assert!(!environment.keeps(&claim));
    assert_eq!(environment.calls(Call::Settle), [1, 1]);
    environment.granted(&rival(&claim)).await;
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
    assert!(matches!(CachedStore::new(Scripted(Vec::new())).format(), RecordFormat::Powertools(_)));
}

#[tokio::test]
async fn the_least_recently_used_make_room() {
    let of_one = ENTRY_BYTES + 100;
    let environment = Environment::new().with(|store| store.max_bytes(3 * of_one));
    let result = "x".repeat(100);
    let mut claims = Vec::new();
    for _ in 0..3 {
        claims.push(environment.known(complete(&result)).await);
    }
    assert_eq!(environment.store.lock().bytes, 3 * of_one);
    assert_eq!(environment.replayed(&claims[0]).await.1, 0);
    claims.push(environment.known(complete(&result)).await);
    assert_eq!(claims.iter().map(|claim| environment.keeps(claim)).collect::<Vec<_>>(), [true, false, true, true]);
    // A larger entry takes the room of two.
    claims.push(environment.known(complete(&"x".repeat(101))).await);
    assert_eq!(
        claims.iter().map(|claim| environment.keeps(claim)).collect::<Vec<_>>(),
        [false, false, false, true, true]
    );
    assert_eq!(environment.store.lock().bytes, 2 * of_one + 1);
}

#[tokio::test]
async fn an_oversized_record_is_not_cached_and_evicts_nothing() {
    let environment = Environment::new().with(|store| store.max_bytes(ENTRY_BYTES + 100));
    let small = environment.known(complete("1")).await;
    let large = environment.known(complete(&"x".repeat(101))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&large)), (true, false));
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert_eq!(environment.replayed(&large).await.1, 1);
    assert!(environment.keeps(&small));
    let largest = environment.known(complete(&"x".repeat(100))).await;
    assert_eq!((environment.keeps(&small), environment.keeps(&largest)), (false, true));
}

#[tokio::test]
async fn a_lost_lease_keeps_nothing_and_the_successors_outcome_is_replayed() {
    let environment = Environment::new();
    let claim = new_claim();
    environment.granted(&claim).await;
    environment.clock.advance(LEASE * 2);
    let (other, taker) = (environment.another(), rival(&claim));
    other.granted(&taker).await;
    for outcome in [complete("\"late\""), fail("\"late\"")] {
        assert!(matches!(environment.settle(&claim, outcome).await.unwrap(), Settled::LeaseLost { .. }));
        assert!(!environment.keeps(&claim));
    }
    other.settle(&taker, complete("\"successor\"")).await.unwrap();
    for (environment, calls) in [(&other, 1), (&other, 0), (&environment, 1), (&environment, 0)] {
        let (record, asked) = environment.replayed(&claim).await;
        assert_eq!((record.result, asked), (json("\"successor\""), calls));
    }
}

#[tokio::test]
async fn a_record_of_an_unknown_version_is_not_kept() {
    let environment = Environment::new();
    let claim = environment.run(complete("1")).await;
    for (version, kept) in [(NEWEST_KNOWN_VERSION, 1), (NEWEST_KNOWN_VERSION + 1, 0)] {
        let record = Record { version, ..environment.replayed(&claim).await.0 };
        let store = CachedStore::new(Scripted(vec![Claimed::Refused(Refusal::Completed(Box::new(record)))]));
        store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
        assert_eq!(store.lock().list.len(), kept);
    }
}

#[tokio::test]
async fn a_store_that_miscounts_teaches_nothing_about_other_keys() {
    let environment = Environment::new();
    let claim = environment.run(complete("1")).await;
    let refusal = environment.claim(&rival(&claim)).await;
    let store = CachedStore::new(Scripted(vec![refusal])).with_clock(environment.clock.clone());
    assert_eq!(store.claim(&[new_claim(), claim.clone()]).await.len(), 1, "the engine finds it");
    assert_eq!(store.lock().list.len(), 0);
    store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
    let answers = store.claim(&[new_claim(), claim.clone(), new_claim()]).await;
    assert!(answers[0].is_err() && answers[1].is_ok() && answers[2].is_err());
    assert_eq!(store.lock().list.len(), 1);
}

#[test]
fn the_record_of_the_later_call_is_kept() {
    let mut entries = Entries::new();
    let claim = new_claim();
    let asked = Timestamp::from_seconds(2_000_000_000);
    let record = |text: &str| Record { attempt: 1, result: json(text), ..Record::new(Status::Completed) };
    for (text, asked) in [("1", asked), ("22", asked.after(A_MILLISECOND)), ("333", asked)] {
        entries.keep(&claim, &record(text), asked, MAX_BYTES);
    }
    assert_eq!(entries.list.peek(&claim.key).unwrap().record.result, json("22"));
    assert_eq!(entries.bytes, ENTRY_BYTES + 2);
}

#[tokio::test]
async fn debug_shows_no_contents() {
    let environment = Environment::new();
    let claim = environment.known(complete("\"secret\"")).await;
    let shown = format!("{:?}", environment.store);
    assert!(!shown.contains("secret") && !shown.contains(&claim.key.to_hex()), "{shown}");
    assert!(shown.contains("entries: 1"), "{shown}");
}

#[tokio::test]
async fn a_panic_under_the_lock_costs_the_entries_and_nothing_else() {
    let environment = Environment::new();
    let claim = environment.known(complete("1")).await;
    let panicked = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _entries = environment.store.lock();
            std::panic::resume_unwind(Box::new("under the lock"));
        });
        holder.join().is_err()
    });
    assert!(panicked && !environment.keeps(&claim));
    assert_eq!(environment.replayed(&claim).await.1, 1);
    assert_eq!(environment.replayed(&claim).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_run_each_operation_once_and_keep_within_the_bound() {
    const OPERATIONS: usize = 40;
    let max_bytes = OPERATIONS / 2 * (ENTRY_BYTES + 10);
    let environment = Arc::new(Environment::new().with(|store| store.max_bytes(max_bytes)));
    let operations: Arc<Vec<ClaimRequest>> = Arc::new((0..OPERATIONS).map(|_| new_claim()).collect());
    let runs = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|worker| {
            let (environment, operations, runs) =
                (Arc::clone(&environment), Arc::clone(&operations), Arc::clone(&runs));
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(worker);
                for _ in 0..2_000 {
                    let claim = rival(random.choice(operations.iter()).unwrap());
                    let own = format!("{:010}", u32::from_be_bytes(claim.key.as_bytes()[..4].try_into().unwrap()));
                    match environment.claim(&claim).await {
                        Claimed::Granted(_) => {
                            runs.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(
                                environment.settle(&claim, complete(&own)).await.unwrap(),
                                Settled::Done { found: None }
                            );
                        }
                        Claimed::Refused(Refusal::Completed(record)) => assert_eq!(record.result, json(&own)),
                        Claimed::Refused(refusal) => assert!(matches!(refusal, Refusal::InProgress { .. })),
                    }
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(runs.load(Ordering::Relaxed) as usize, OPERATIONS);
    let entries = environment.store.lock();
    assert_eq!(entries.bytes, entries.list.iter().map(|(_, entry)| entry.bytes()).sum::<usize>());
    assert!(entries.bytes <= max_bytes && !entries.list.is_empty());
}

#[tokio::test]
async fn an_amendment_without_a_response_leaves_nothing_in_the_cache() {
    let clock = ManualClock::at(Timestamp::from_millis(2_000_000_000_700));
    let memory = MemoryStore::with_clock(clock.clone());
    let store = CachedStore::new(Slow(memory.clone(), clock.clone())).with_clock(clock);
    let claim = new_claim();
    assert!(matches!(store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap(), Claimed::Granted(_)));
    store.settle(&[settle(&claim, complete("1"))]).await.remove(0).unwrap();
    let replay = async || store.claim(&[rival(&claim)]).await.remove(0).unwrap();
    replay().await;
    let record = memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
    let redact = [AmendRequest::new(claim.key, &record, Amendment::Redact)];
    assert!(store.amend(&redact).now_or_never().is_none());
    let shown = replay().await;
    assert!(
        matches!(&shown, Claimed::Refused(Refusal::Completed(record)) if record.result == StoredResult::DROPPED),
        "{shown:?}"
    );
}
