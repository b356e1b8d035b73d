//! Claims that may be held although nobody will act on them are released.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lambda_once::{
    AfterUnknown, BoxFuture, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Key, MemoryStore, Outcome, Store,
    clock::Clock,
    record::{KeyHash, Record, Status},
    store::{
        Answers, ClaimRequest, Claimed, Refusal, ResultData,
        fault::{Call, Fault},
    },
    testing::{self, sqs},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    CHARGE, KEY, World, assert_outcome,
    support::{clock::TokioClock, delegate::delegate},
};

/// Creates a world whose claims are applied without a response until it is healed.
fn without_responses(policy: AfterUnknown) -> World {
    let world = World::with(|builder| builder.after_unknown(policy));
    world.store.always(Call::Claim, Fault::ErrorAfter);
    world
}

/// The faults after which a withdrawal still succeeds.
const TROUBLE: [&[(Call, Fault)]; 8] = [
    &[],
    &[(Call::Read, Fault::Throttled)],
    &[(Call::Read, Fault::ErrorBefore), (Call::Read, Fault::Throttled)],
    &[(Call::Read, Fault::Silence)],
    &[(Call::Settle, Fault::Throttled)],
    &[(Call::Settle, Fault::Silence)],
    &[(Call::Settle, Fault::ErrorAfter)],
    &[(Call::Read, Fault::Throttled), (Call::Settle, Fault::Throttled), (Call::Settle, Fault::ErrorBefore)],
];

#[tokio::test(start_paused = true)]
async fn a_claim_whose_responses_were_lost_is_withdrawn_despite_errors() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for trouble in TROUBLE {
            let world = without_responses(policy);
            trouble.iter().for_each(|(call, fault)| world.store.next(*call, *fault));
            assert_outcome!(world.run().await, Err(error) if error.kind() == ErrorKind::Unavailable);
            assert_eq!(world.record().await, None, "{policy:?}, {trouble:?}: nothing ran, and the key is free");
            world.store.heal();
            assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        }
    }
}

/// A thousand nested reads would overflow the stack.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_may_be_repeated_for_a_quarter_of_an_hour() {
    let world = without_responses(AfterUnknown::Refuse);
    world.store.always(Call::Read, Fault::Throttled);
    let deadline = world.clock.now().after(Duration::from_secs(900));
    let outcome = world.once.operation(CHARGE, KEY).deadline(deadline).run(|| async { Ok::<_, Failure>(1) }).await;
    assert_outcome!(outcome, Err(error) if error.kind() == ErrorKind::Unavailable);
    let reads = world.store.calls().into_iter().filter(|(call, _)| *call == Call::Read).count();
    assert!(reads > 500, "{reads}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_responses_were_lost_is_handed_back() {
    for trouble in TROUBLE {
        let world = World::new();
        world.abandon().await;
        world.lapse().await;
        world.store.always(Call::Claim, Fault::ErrorAfter);
        trouble.iter().for_each(|(call, fault)| world.store.next(*call, *fault));
        assert_outcome!(world.run().await, Err(_));
        let record = world.record().await.unwrap();
        assert_eq!((record.status, record.owner), (Status::InProgress, None), "{trouble:?}: what ran is still unknown");
        world.store.heal();
        assert_outcome!(world.run().await, Ok(Outcome::TookOver(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_leaves_the_claim_of_another_alone() {
    let world = World::new();
    world.abandon().await;
    let before = world.record().await;
    world.store.always(Call::Claim, Fault::ErrorAfter);
    world.store.next(Call::Read, Fault::Throttled);
    assert_outcome!(world.run().await, Err(_));
    assert_eq!(world.record().await, before);
    assert_eq!(world.count(Call::Settle), 0);
}

/// Responds to the first claim with an error, and applies it when the second one has arrived, which finds the key busy.
/// A database in which the first request still holds a lock does the same.
#[derive(Clone, Debug)]
struct Busy {
    records: MemoryStore,
    claims: Arc<AtomicU32>,
}

impl Store for Busy {
    delegate!(records: settle, read, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            match self.claims.fetch_add(1, Ordering::SeqCst) {
                0 => vec![Err(Error::new(ErrorKind::Timeout, ErrorStatus::Ambiguous, "claim", "no answer"))],
                1 => {
                    assert!(matches!(self.records.claim(requests).await[..], [Ok(Claimed::Granted(_))]));
                    vec![Ok(Claimed::Refused(Refusal::InProgress { lease_until: None, attempt: 0 }))]
                }
                _ => self.records.claim(requests).await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_result_is_withdrawn_if_its_retry_finds_the_key_busy() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let store = Busy { records: MemoryStore::new(), claims: Arc::default() };
        let once = Idempotency::builder(store.clone()).after_unknown(policy).build().unwrap();
        let run = || once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(1) });
        assert_outcome!(run().await, Ok(Outcome::InProgress { .. }));
        let key = once.key_hash(CHARGE, KEY).unwrap();
        assert_eq!(store.records.remove(&key), None, "{policy:?}");
        assert_outcome!(run().await, Ok(Outcome::Executed(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_doubt_is_withdrawn_though_its_repetition_fails_for_certain() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for certain in [Fault::AccessDenied, Fault::Throttled] {
            let world = World::with(|builder| builder.after_unknown(policy));
            world.store.next(Call::Claim, Fault::ErrorAfter);
            world.store.always(Call::Claim, certain);
            assert_outcome!(world.run().await, Err(error) if error.kind() != ErrorKind::Unavailable);
            assert_eq!(world.record().await, None, "{policy:?}, {certain:?}: the first request was applied");
            assert_eq!(world.count(Call::Settle), 1);
            world.store.heal();
            assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        }
    }
}

/// No retry brings back a table that is missing.
#[tokio::test(start_paused = true)]
async fn a_read_that_no_retry_helps_ends_a_withdrawal() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        let world = without_responses(policy);
        world.store.always(Call::Read, Fault::TableMissing);
        assert_outcome!(world.run().await, Err(error) if error.kind() == ErrorKind::Unavailable);
        assert_eq!((world.count(Call::Read), world.count(Call::Settle)), (1, 0), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_certainly_failed_each_time_is_not_looked_for() {
    let world = World::new();
    world.store.always(Call::Claim, Fault::AccessDenied);
    assert_outcome!(world.run().await, Err(error) if error.kind() == ErrorKind::AccessDenied);
    assert_eq!((world.count(Call::Claim), world.count(Call::Read)), (1, 0));
}

/// Applies claims and loses their responses. Refuses to read one of the keys, and throttles reads of the others for a
/// while.
#[derive(Clone, Debug)]
struct RefusesOneRead {
    records: MemoryStore,
    keys: Arc<Mutex<BTreeSet<KeyHash>>>,
    throttled_until: Instant,
}

impl RefusesOneRead {
    fn keys(&self) -> Vec<KeyHash> {
        self.keys.lock().unwrap().iter().copied().collect()
    }
}

impl Store for RefusesOneRead {
    delegate!(records: settle, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            self.keys.lock().unwrap().extend(requests.iter().map(|request| request.key));
            self.records.claim(requests).await;
            let lost = |_| Err(Error::new(ErrorKind::Timeout, ErrorStatus::Ambiguous, "claim", "no answer"));
            requests.iter().map(lost).collect()
        })
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        Box::pin(async move {
            let (refused, is_throttled) = (self.keys()[0], Instant::now() < self.throttled_until);
            let records = self.records.read(keys, data).await;
            let answer = |(key, record): (&KeyHash, Result<Option<Record>, Error>)| match *key == refused {
                true => Err(Error::new(ErrorKind::AccessDenied, ErrorStatus::Temporary, "read", "no permission")),
                false if is_throttled => {
                    Err(Error::new(ErrorKind::Throttled, ErrorStatus::Temporary, "read", "too many requests"))
                }
                false => record,
            };
            keys.iter().zip(records).map(answer).collect()
        })
    }
}

/// The throttling lasts longer than a refused read is repeated.
#[tokio::test(start_paused = true)]
async fn a_refused_read_does_not_end_the_withdrawal_of_other_claims() {
    let clock = TokioClock::new();
    let records = MemoryStore::with_clock(clock.clone());
    let throttled_until = Instant::now() + Duration::from_millis(2_500);
    let store = RefusesOneRead { records: records.clone(), keys: Arc::default(), throttled_until };
    let once = Idempotency::builder(store.clone()).clock(clock).disabled(false).build().unwrap();
    let service = once.sqs(Key::pointer("/id"), |_: Value| async { Ok::<_, Failure>(()) });
    let batch = sqs::batch((0..3).map(|id| testing::record(&json!({ "id": id }))));
    testing::deliver(&service, &batch).await;
    let left = records.read(&store.keys(), ResultData::Omit).await;
    let left: Vec<bool> = left.into_iter().map(|record| record.unwrap().is_some()).collect();
    assert_eq!(left, [true, false, false], "only the refused one ends with its lease");
}
