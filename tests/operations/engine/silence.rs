//! A call without a response takes only its own timeout, not the operation's, and is repeated.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lambda_once::{
    BoxFuture, Deadline, Error, ErrorKind, ErrorStatus, Failure, Idempotency, MemoryStore, Outcome, Store,
    clock::{Clock, Timestamp},
    record::{Record, Status, StoredData},
    store::{
        Answers, ClaimRequest, Claimed, ResultData, SettleRequest, Settled,
        fault::{Call, Fault},
    },
};
use tokio::time::Instant;

use super::{
    CHARGE, KEY, World, assert_outcome,
    support::{FUTURE, clock::TokioClock, delegate::delegate},
};

const SECOND: Duration = Duration::from_secs(1);
/// The maximum duration of a call, with the longest pauses before the next two.
const ONE_CALL: Duration = Duration::from_millis(3_200);

/// The fault of the first calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// No response. The call is not applied.
    Silence,
    /// A refusal after this time.
    Refusal(Duration),
    /// A response without results. The call is applied.
    NoResults,
}

/// A store whose first calls have a fault, which records the leases of all claims.
#[derive(Clone, Debug)]
struct Unheard {
    inner: MemoryStore,
    clock: TokioClock,
    meets: Meets,
    claims_left: Arc<Mutex<u32>>,
    settles_left: Arc<Mutex<u32>>,
    leases: Arc<Mutex<Vec<(Timestamp, Duration)>>>,
}

impl Unheard {
    fn new(claims: u32, settles: u32, meets: Meets) -> Self {
        let clock = TokioClock::new();
        Self {
            inner: MemoryStore::with_clock(clock.clone()),
            clock,
            meets,
            claims_left: Arc::new(Mutex::new(claims)),
            settles_left: Arc::new(Mutex::new(settles)),
            leases: Arc::default(),
        }
    }

    fn engine(&self) -> Idempotency {
        Idempotency::builder(self.clone()).clock(self.clock.clone()).build().unwrap()
    }

    /// Applies the fault to this call, if it is one of those that fail.
    async fn meet<T>(&self, left: &Mutex<u32>, requests: usize) -> Option<Answers<T>> {
        {
            let mut left = left.lock().unwrap();
            *left = left.checked_sub(1)?;
        }
        match self.meets {
            Meets::Silence => std::future::pending::<()>().await,
            Meets::Refusal(time) => tokio::time::sleep(time).await,
            Meets::NoResults => return Some(Vec::new()),
        }
        let throttled = |_| Err(Error::new(ErrorKind::Throttled, ErrorStatus::Temporary, "claim", "too fast"));
        Some((0..requests).map(throttled).collect())
    }
}

impl Store for Unheard {
    delegate!(inner: read, limits, id, warm_up);

    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        Box::pin(async move {
            let now = self.clock.now();
            self.leases.lock().unwrap().extend(requests.iter().map(|request| (now, request.lease)));
            match self.meet(&self.claims_left, requests.len()).await {
                Some(answers) if self.meets != Meets::NoResults => answers,
                met => {
                    let applied = self.inner.claim(requests).await;
                    met.unwrap_or(applied)
                }
            }
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        Box::pin(async move {
            match self.meet(&self.settles_left, requests.len()).await {
                Some(answers) if self.meets != Meets::NoResults => answers,
                met => {
                    let applied = self.inner.settle(requests).await;
                    met.unwrap_or(applied)
                }
            }
        })
    }
}

/// Runs the operation on a store whose first calls get no response, and returns the duration.
async fn unheard(claims: u32, settles: u32) -> Duration {
    let once = Unheard::new(claims, settles, Meets::Silence).engine();
    let begun = Instant::now();
    let outcome = once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(7) }).await;
    assert_outcome!(outcome, Ok(Outcome::Executed(7)));
    let took = begun.elapsed();
    let again = once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(8) }).await;
    assert_outcome!(again, Ok(Outcome::Replayed(7)));
    took
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_response_is_retried_after_three_seconds() {
    for fault in [Fault::Silence, Fault::Delay(20 * SECOND)] {
        let world = World::new();
        world.store.next(Call::Claim, fault);
        let begun = Instant::now();
        // It was applied, and the second one finds its own claim.
        assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
        assert!(begun.elapsed() <= ONE_CALL, "{fault:?}: {:?}", begun.elapsed());
        assert_eq!(world.record().await.unwrap().attempt, 1);
    }
    let took = unheard(1, 0).await;
    assert!(took <= ONE_CALL, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn two_claims_without_a_result_do_not_keep_the_operation_from_running() {
    let took = unheard(2, 0).await;
    assert!(took <= 2 * ONE_CALL, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_without_a_response_is_retried_after_three_seconds() {
    let world = World::new();
    world.store.next(Call::Settle, Fault::Silence);
    let begun = Instant::now();
    assert_outcome!(world.run().await, Ok(Outcome::Executed(1)));
    assert!(begun.elapsed() <= ONE_CALL, "{:?}", begun.elapsed());
    assert_outcome!(world.run().await, Ok(Outcome::Replayed(1)));
    for settles in [1, 3] {
        let took = unheard(0, settles).await;
        // The pauses increase, to 0.4 s in total.
        assert!(took <= settles * ONE_CALL + SECOND, "{settles} times: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_and_a_release_without_a_response_are_retried() {
    for (failure, status) in [(Failure::permanent("no"), Some(Status::Failed)), (Failure::transient("no"), None)] {
        let world = World::new();
        let store = Unheard { inner: world.records.clone(), ..Unheard::new(0, 1, Meets::Silence) };
        let once = store.engine();
        let begun = Instant::now();
        let outcome = once.operation(CHARGE, KEY).run(|| async { Err::<u32, _>(failure) }).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(_)));
        assert!(begun.elapsed() <= ONE_CALL, "{:?}", begun.elapsed());
        let record =
            store.inner.read(&[once.key_hash(CHARGE, KEY).unwrap()], ResultData::Include).await.remove(0).unwrap();
        assert_eq!(record.map(|record| record.status), status);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_response_has_no_result_is_an_error_and_withdrawn() {
    let once = Unheard::new(1, 0, Meets::NoResults).engine();
    let run = || once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(7) });
    assert_outcome!(run().await, Err(error) if error.kind() == ErrorKind::Request);
    assert_outcome!(run().await, Ok(Outcome::Executed(7)));
}

#[tokio::test(start_paused = true)]
async fn a_completion_whose_response_has_no_result_is_retried() {
    let once = Unheard::new(0, 1, Meets::NoResults).engine();
    let run = || once.operation(CHARGE, KEY).run(|| async { Ok::<_, Failure>(7) });
    assert_outcome!(run().await, Ok(Outcome::Executed(7)));
    assert_outcome!(run().await, Ok(Outcome::Replayed(7)));
}

#[tokio::test(start_paused = true)]
async fn a_poll_without_a_response_does_not_end_the_polls() {
    let world = World::new();
    world.abandon().await;
    world.store.next(Call::Read, Fault::Silence);
    let begun = Instant::now();
    let completed_elsewhere = async {
        tokio::time::sleep(SECOND).await;
        let completed = |record: &mut Record| {
            record.status = Status::Completed;
            record.result.data = Some(StoredData::Json("7".to_owned()));
        };
        world.alter(completed).await;
    };
    let waiting = world.once.operation(CHARGE, KEY).deadline(FUTURE.after(100 * SECOND)).wait_up_to(25 * SECOND);
    let (outcome, ()) = tokio::join!(waiting.run(|| world.work()), completed_elsewhere);
    assert_outcome!(outcome, Ok(Outcome::Replayed(7)));
    assert!(begun.elapsed() <= 6 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_no_longer_than_there_is_time_left() {
    for call in [Call::Claim, Call::Settle] {
        let world = World::new();
        world.store.always(call, Fault::Silence);
        world.store.always(Call::Read, Fault::Silence);
        let begun = Instant::now();
        let deadline = Deadline::at(FUTURE.after(2 * SECOND));
        let _ = world.once.operation(CHARGE, KEY).deadline(deadline).run(|| world.work()).await;
        // Half of the reserve of half a second is before the deadline.
        assert!(begun.elapsed() <= Duration::from_millis(1_750), "{call:?}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_has_the_lease_end_of_the_first() {
    let store = Unheard::new(2, 0, Meets::Refusal(Duration::from_millis(700)));
    let deadline = FUTURE.after(20 * SECOND);
    let run = store.engine();
    let run = run.operation(CHARGE, KEY).deadline(deadline).run(|| async { Ok::<_, Failure>(7) });
    assert_outcome!(run.await, Ok(Outcome::Executed(7)));
    let leases = store.leases.lock().unwrap().clone();
    assert_eq!(leases.len(), 3);
    assert!(leases[2].0.since(leases[0].0) >= Duration::from_millis(1_400));
    for (sent, lease) in leases {
        assert_eq!(sent.after(lease), deadline.after(SECOND), "sent {:?} after the first", sent.since(FUTURE));
    }
}
