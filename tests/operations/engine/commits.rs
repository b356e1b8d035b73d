//! Transactions of runs without a claim. Those of databases are tested in `tests/stores/transactions/`.

use std::{
    future::{pending, ready},
    slice,
    time::Duration,
};

use lambda_once::{
    BoxFuture, Deadline, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Key, MemoryStore, Outcome, Store,
    Transactional, Verdict,
    batch::in_transaction,
    store::{ClaimRequest, Claimed, SettleRequest, Settled},
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use tokio::time::{Instant, sleep};

use super::{
    CHARGE, KEY, assert_outcome,
    support::{FUTURE, clock::TokioClock, delegate::delegate},
};

/// A store that refuses all commits because of the work's writes, or never responds to the end of a transaction.
#[derive(Clone, Debug)]
struct Uncommitted {
    records: MemoryStore,
    responds: bool,
}

impl Uncommitted {
    /// Returns it with an unprotected engine.
    fn with_engine(responds: bool) -> (Self, Idempotency) {
        let clock = TokioClock::new();
        let store = Self { records: MemoryStore::with_clock(clock.clone()), responds };
        let once = Idempotency::builder(store.clone()).clock(clock).disabled(true).build().unwrap();
        (store, once)
    }
}

impl Store for Uncommitted {
    delegate!(records: claim, settle, read, limits, id, warm_up);
}

impl Transactional for Uncommitted {
    type Transaction = ();

    fn open(&self) {}

    fn claim_within<'a>(&'a self, _: &'a (), request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claimed, Error>> {
        Box::pin(async move { self.records.claim(slice::from_ref(request)).await.remove(0) })
    }

    fn commit<'a>(&'a self, _: &'a (), _: Option<&'a SettleRequest>) -> BoxFuture<'a, Result<Settled, Error>> {
        if !self.responds {
            return Box::pin(pending());
        }
        let refusal = Error::new(ErrorKind::Transaction, ErrorStatus::Temporary, "commit", "a newer row exists");
        Box::pin(ready(Err(refusal)))
    }

    fn abandon(&self, _: &()) -> BoxFuture<'static, Result<(), Error>> {
        if self.responds { Box::pin(ready(Ok(()))) } else { Box::pin(pending()) }
    }
}

#[tokio::test(start_paused = true)]
async fn without_protection_a_refused_commit_may_be_superseded_too() {
    let (store, once) = Uncommitted::with_engine(true);
    let operation = once.operation(CHARGE, KEY).in_transaction(&store).classify(|_| Verdict::Superseded);
    assert_outcome!(operation.run(|()| async { Ok::<_, Failure>(7) }).await, Ok(Outcome::Superseded { newest: None }));
}

/// The default reserve is a second, half of which is for settles.
#[tokio::test(start_paused = true)]
async fn an_unprotected_commit_ends_before_the_deadline() {
    for end in [Ok(7), Err(Failure::transient("busy"))] {
        let (store, once) = Uncommitted::with_engine(false);
        let begun = Instant::now();
        let work = |()| async {
            sleep(Duration::from_millis(18_900)).await;
            end
        };
        let operation = once.operation(CHARGE, KEY).deadline(Deadline::at(FUTURE.after(Duration::from_secs(20))));
        let outcome = operation.in_transaction(&store).run(work).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
        assert_eq!(begun.elapsed(), Duration::from_millis(19_500));
    }
}

/// The response of its batch must be sent.
#[tokio::test(start_paused = true)]
async fn an_unprotected_record_is_reported_before_the_deadline() {
    let (store, once) = Uncommitted::with_engine(false);
    let work = |_: u32, _: ()| async {
        sleep(Duration::from_millis(18_900)).await;
        Ok::<_, Failure>(7)
    };
    let service = once.sqs(Key::message_id(), in_transaction(&store, work));
    let mut context = Context::default();
    context.deadline = FUTURE.after(Duration::from_secs(20)).as_millis();
    let event = sqs::batch([testing::record(&1)]).delivery(1);
    let begun = Instant::now();
    let processed = service.process(LambdaEvent::new(event, context)).await;
    assert_eq!(begun.elapsed(), Duration::from_millis(19_500));
    assert_eq!(processed.reported().len(), 1);
}
