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

use doubles::{Says, Slow};

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(3_600);
const A_MILLISECOND: Duration = Duration::from_millis(1);

/// An execution environment: a cache in front of a shared store.
struct Sandbox {
    clock: ManualClock,
    memory: MemoryStore,
    inner: FaultStore<MemoryStore>,
    store: CachedStore<FaultStore<MemoryStore>>,
}

impl Sandbox {
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
    let sandbox = Sandbox::new();
    let dropped = Settlement::complete(StoredResult::DROPPED, RETENTION);
    for (settlement, status, result) in [
        (complete("[1]"), Status::Completed, json("[1]")),
        (fail("{}"), Status::Failed, json("{}")),
        (dropped, Status::Completed, StoredResult::DROPPED),
    ] {
        let claim = sandbox.run(settlement).await;
        for expected in [1, 0, 0] {
            let (record, calls) = sandbox.replayed(&claim).await;
            assert_eq!((record.status, &record.result, calls), (status, &result, expected));
            assert_eq!(record.fingerprint, claim.fingerprint);
        }
    }
}

#[tokio::test]
async fn an_outcome_that_the_store_showed_is_replayed_without_a_second_call() {
    let sandbox = Sandbox::new();
    let other = sandbox.another();
    for settlement in [complete("1"), fail("1")] {
        let claim = other.run(settlement).await;
        let (shown, calls) = sandbox.replayed(&claim).await;
        assert_eq!(calls, 1);
        assert_eq!(sandbox.replayed(&claim).await, (shown.clone(), 0));
        assert_eq!(sandbox.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap(), Some(shown));
    }
}

#[tokio::test]
async fn an_entry_without_data_is_not_served_to_a_caller_who_needs_it() {
    let sandbox = Sandbox::new();
    let claim = sandbox.another().run(complete("1")).await;
    let without = ClaimRequest { result_data: ResultData::Omit, ..claim.clone() };
    assert_eq!(sandbox.replayed(&without).await.0.result, StoredResult::default());
    let (record, calls) = sandbox.replayed(&without).await;
    assert_eq!((record.result, calls), (StoredResult::default(), 0), "who needs none is served");
    let (record, calls) = sandbox.replayed(&claim).await;
    assert_eq!((record.result, calls), (json("1"), 1));
    for (request, result) in [(&claim, json("1")), (&without, StoredResult::default())] {
        let (record, calls) = sandbox.replayed(request).await;
        assert_eq!((record.result, calls), (result, 0), "the data serves both");
    }
}

#[tokio::test]
async fn the_rest_of_a_batch_goes_to_the_store_in_one_call() {
    let sandbox = Sandbox::new();
    let (first, last) = (sandbox.known(complete("1")).await, sandbox.known(fail("2")).await);
    let shown = sandbox.another().run(complete("3")).await;
    let claims = [rival(&first), new_claim(), rival(&shown), rival(&last)];
    let before = sandbox.calls(Call::Claim).len();
    let answers: Vec<Claimed> = sandbox.store.claim(&claims).await.into_iter().map(Result::unwrap).collect();
    assert!(matches!(&answers[0], Claimed::Refused(Refusal::Completed(record)) if record.result == json("1")));
    assert!(matches!(answers[1], Claimed::Granted(_)));
    assert!(matches!(&answers[2], Claimed::Refused(Refusal::Completed(record)) if record.result == json("3")));
    assert!(matches!(&answers[3], Claimed::Refused(Refusal::Failed(record)) if record.result == json("2")));
    assert_eq!(sandbox.calls(Call::Claim)[before..], [2]);

    let known = [rival(&first), rival(&shown), rival(&last)];
    assert_eq!(sandbox.store.claim(&known).await.len(), 3);
    assert_eq!(sandbox.calls(Call::Claim).len(), before + 1, "nothing is left to ask");
}

#[tokio::test]
async fn another_payload_is_a_mismatch_without_a_call() {
    let sandbox = Sandbox::new();
    let claim = sandbox.known(complete("1")).await;
    let calls = sandbox.calls(Call::Claim).len();
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    assert_eq!(sandbox.claim(&misuse).await, Claimed::Refused(Refusal::Mismatch(mismatch(MismatchState::Final))));
    let unnamed = ClaimRequest { fingerprint: None, ..rival(&claim) };
    assert!(matches!(sandbox.claim(&unnamed).await, Claimed::Refused(Refusal::Completed(_))));
    assert_eq!(sandbox.calls(Call::Claim).len(), calls);
}

#[tokio::test]
async fn an_entry_expires_no_later_than_the_record() {
    let retention = Duration::from_secs(20);
    let sandbox = Sandbox::new();
    let claim = sandbox.known(Settlement::complete(json("1"), retention)).await;
    let stored = sandbox.memory.read(&[claim.key], ResultData::Include).await.remove(0).unwrap().unwrap();
    assert_eq!(stored.expiration, Some(2_000_000_021));

    sandbox.clock.set(Timestamp::from_millis(2_000_000_020_999));
    assert_eq!(sandbox.replayed(&claim).await, (stored, 0));
    sandbox.clock.set(Timestamp::from_millis(2_000_000_021_000));
    sandbox.granted(&rival(&claim)).await;
    assert!(!sandbox.keeps(&claim), "what has expired is removed when it is met");
}

#[tokio::test]
async fn the_time_that_a_call_takes_lengthens_no_entry() {
    let sandbox = Sandbox::new();
    let store = CachedStore::new(Slow(sandbox.memory.clone(), sandbox.clock.clone())).with_clock(sandbox.clock.clone());
    let shown = sandbox.run(complete("2")).await;
    let asked = sandbox.clock.now();
    store.claim(&[rival(&shown)]).await.remove(0).unwrap();
    assert_eq!(store.lock().list.peek(&shown.key).unwrap().asked, asked);
}

// Tests P4.
#[tokio::test]
async fn a_record_that_was_deleted_is_served_for_max_age_and_no_longer() {
    let age = Duration::from_secs(30);
    let sandbox = Sandbox::new().with(|store| store.max_age(age));
    let of_this = sandbox.known(complete("1")).await;
    let of_another = sandbox.another().run(complete("1")).await;
    sandbox.replayed(&of_another).await;
    for claim in [&of_this, &of_another] {
        sandbox.memory.remove(&claim.key);
    }
    sandbox.clock.advance(age);
    for claim in [&of_this, &of_another] {
        assert_eq!(sandbox.replayed(claim).await.1, 0, "a replay makes no entry younger");
    }
    sandbox.clock.advance(A_MILLISECOND);
    for claim in [&of_this, &of_another] {
        sandbox.granted(&rival(claim)).await;
        assert!(!sandbox.keeps(claim));
    }
}

#[tokio::test]
async fn a_clock_that_is_set_back_makes_no_entry_last_longer() {
    let sandbox = Sandbox::new();
    let claim = sandbox.known(complete("1")).await;
    sandbox.clock.set(sandbox.clock.now().before(A_MILLISECOND));
    assert_eq!(sandbox.replayed(&claim).await.1, 1);
}

#[tokio::test]
async fn a_claim_that_stands_is_never_kept() {
    let sandbox = Sandbox::new();
    let claim = new_claim();
    sandbox.granted(&claim).await;
    let mut lease = None;
    for asked in 2..5 {
        let refused = sandbox.claim(&rival(&claim)).await;
        let Claimed::Refused(Refusal::InProgress { lease_until, .. }) = refused else { panic!("{refused:?}") };
        lease = lease_until;
        assert_eq!(sandbox.calls(Call::Claim).len(), asked);
    }
    let misuse = ClaimRequest { fingerprint: Some(Fingerprint::from_bytes([2; 32])), ..rival(&claim) };
    let standing = Refusal::Mismatch(mismatch(MismatchState::InProgress { lease_until: lease, attempt: 1 }));
    assert_eq!(sandbox.claim(&misuse).await, Claimed::Refused(standing));
    let renew = Settlement::Renew { lease: LEASE, skew_margin: Duration::ZERO, retention: RETENTION };
    assert!(matches!(sandbox.settle(&claim, renew).await.unwrap(), Settled::Renewed { .. }));
    assert_eq!(sandbox.settle(&claim, Settlement::Release).await.unwrap(), Settled::Done { found: None });
    assert!(!sandbox.keeps(&claim));
    assert_eq!(sandbox.calls(Call::Settle), [1, 1]);
    sandbox.granted(&rival(&claim)).await;
}

#[tokio::test]
async fn reads_ask_the_store() {
    let sandbox = Sandbox::new();
    let claim = sandbox.run(complete("1")).await;
    sandbox.memory.remove(&claim.key);
    assert_eq!(sandbox.store.read(&[claim.key], ResultData::Include).await.remove(0).unwrap(), None);
    assert_eq!(sandbox.store.limits(), sandbox.memory.limits());
}

#[tokio::test]
async fn the_least_recently_used_make_room() {
    let of_one = ENTRY_BYTES + 100;
    let sandbox = Sandbox::new().with(|store| store.max_bytes(3 * of_one));
    let result = "x".repeat(100);
    let mut claims = Vec::new();
    for _ in 0..3 {
        claims.push(sandbox.known(complete(&result)).await);
    }
    assert_eq!(sandbox.store.lock().bytes, 3 * of_one);
    assert_eq!(sandbox.replayed(&claims[0]).await.1, 0);
    claims.push(sandbox.known(complete(&result)).await);
    assert_eq!(claims.iter().map(|claim| sandbox.keeps(claim)).collect::<Vec<_>>(), [true, false, true, true]);
    // A larger entry takes the room of two.
    claims.push(sandbox.known(complete(&"x".repeat(101))).await);
    assert_eq!(claims.iter().map(|claim| sandbox.keeps(claim)).collect::<Vec<_>>(), [false, false, false, true, true]);
    assert_eq!(sandbox.store.lock().bytes, 2 * of_one + 1);
}

#[tokio::test]
async fn what_is_larger_than_the_bound_is_not_kept_and_drives_nothing_out() {
    let sandbox = Sandbox::new().with(|store| store.max_bytes(ENTRY_BYTES + 100));
    let small = sandbox.known(complete("1")).await;
    let large = sandbox.known(complete(&"x".repeat(101))).await;
    assert_eq!((sandbox.keeps(&small), sandbox.keeps(&large)), (true, false));
    assert_eq!(sandbox.replayed(&large).await.1, 1);
    assert_eq!(sandbox.replayed(&large).await.1, 1);
    assert!(sandbox.keeps(&small));
}

#[tokio::test]
async fn a_lost_lease_keeps_nothing_and_the_successors_outcome_is_replayed() {
    let sandbox = Sandbox::new();
    let claim = new_claim();
    sandbox.granted(&claim).await;
    sandbox.clock.advance(LEASE * 2);
    let (other, taker) = (sandbox.another(), rival(&claim));
    other.granted(&taker).await;
    for outcome in [complete("\"late\""), fail("\"late\"")] {
        assert!(matches!(sandbox.settle(&claim, outcome).await.unwrap(), Settled::LeaseLost { .. }));
        assert!(!sandbox.keeps(&claim));
    }
    other.settle(&taker, complete("\"successor\"")).await.unwrap();
    for (sandbox, calls) in [(&other, 1), (&other, 0), (&sandbox, 1), (&sandbox, 0)] {
        let (record, asked) = sandbox.replayed(&claim).await;
        assert_eq!((record.result, asked), (json("\"successor\""), calls));
    }
}

#[tokio::test]
async fn a_record_of_an_unknown_version_is_not_kept() {
    let sandbox = Sandbox::new();
    let claim = sandbox.run(complete("1")).await;
    for (version, kept) in [(NEWEST_KNOWN_VERSION, 1), (NEWEST_KNOWN_VERSION + 1, 0)] {
        let record = Record { version, ..sandbox.replayed(&claim).await.0 };
        let store = CachedStore::new(Says(vec![Claimed::Refused(Refusal::Completed(Box::new(record)))]));
        store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
        assert_eq!(store.lock().list.len(), kept);
    }
}

#[tokio::test]
async fn a_store_that_miscounts_teaches_nothing_about_other_keys() {
    let sandbox = Sandbox::new();
    let claim = sandbox.run(complete("1")).await;
    let refusal = sandbox.claim(&rival(&claim)).await;
    let store = CachedStore::new(Says(vec![refusal])).with_clock(sandbox.clock.clone());
    assert_eq!(store.claim(&[new_claim(), claim.clone()]).await.len(), 1, "the engine finds it");
    assert_eq!(store.lock().list.len(), 0);
    store.claim(std::slice::from_ref(&claim)).await.remove(0).unwrap();
    let answers = store.claim(&[new_claim(), claim.clone(), new_claim()]).await;
    assert!(answers[0].is_err() && answers[1].is_ok() && answers[2].is_err());
    assert_eq!(store.lock().list.len(), 1);
}

#[test]
fn of_two_answers_the_one_to_the_later_question_counts() {
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
    let sandbox = Sandbox::new();
    let claim = sandbox.known(complete("\"secret\"")).await;
    let shown = format!("{:?}", sandbox.store);
    assert!(!shown.contains("secret") && !shown.contains(&claim.key.to_hex()), "{shown}");
    assert!(shown.contains("entries: 1"), "{shown}");
}

#[tokio::test]
async fn a_panic_under_the_lock_costs_the_entries_and_nothing_else() {
    let sandbox = Sandbox::new();
    let claim = sandbox.known(complete("1")).await;
    let panicked = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _entries = sandbox.store.lock();
            std::panic::resume_unwind(Box::new("under the lock"));
        });
        holder.join().is_err()
    });
    assert!(panicked && !sandbox.keeps(&claim));
    assert_eq!(sandbox.replayed(&claim).await.1, 1);
    assert_eq!(sandbox.replayed(&claim).await.1, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_run_each_operation_once_and_keep_within_the_bound() {
    const OPERATIONS: usize = 40;
    let max_bytes = OPERATIONS / 2 * (ENTRY_BYTES + 10);
    let sandbox = Arc::new(Sandbox::new().with(|store| store.max_bytes(max_bytes)));
    let operations: Arc<Vec<ClaimRequest>> = Arc::new((0..OPERATIONS).map(|_| new_claim()).collect());
    let runs = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|worker| {
            let (sandbox, operations, runs) = (Arc::clone(&sandbox), Arc::clone(&operations), Arc::clone(&runs));
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(worker);
                for _ in 0..2_000 {
                    let claim = rival(random.choice(operations.iter()).unwrap());
                    let own = format!("{:010}", u32::from_be_bytes(claim.key.as_bytes()[..4].try_into().unwrap()));
                    match sandbox.claim(&claim).await {
                        Claimed::Granted(_) => {
                            runs.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(
                                sandbox.settle(&claim, complete(&own)).await.unwrap(),
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
    let entries = sandbox.store.lock();
    assert_eq!(entries.bytes, entries.list.iter().map(|(_, entry)| entry.bytes()).sum::<usize>());
    assert!(entries.bytes <= max_bytes && !entries.list.is_empty());
}

#[tokio::test]
async fn an_amendment_that_is_not_answered_leaves_nothing_in_the_cache() {
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
