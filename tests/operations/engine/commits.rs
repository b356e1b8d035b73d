//! Transactions of runs without a claim. Those of databases are tested in `tests/stores/transactions/`.

use std::{
    future::{pending, ready},
    slice,
    time::Duration,
};

use futures_util::FutureExt;
use lambda_once::{
    AfterUnknown, BoxFuture, Builder, Deadline, Error, ErrorKind, ErrorStatus, Failure, Idempotency, Key, MemoryStore,
    Outcome, Store, Transactional, Verdict,
    batch::in_transaction,
    store::{
        ClaimRequest, Claimed, SettleRequest, Settled,
        fault::{Call, Fault, FaultStore},
    },
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use tokio::time::{Instant, sleep};

use super::{
    CHARGE, KEY, assert_outcome,
    support::{
        FUTURE,
        clock::{TokioClock, block},
        delegate::delegate,
    },
};

/// The store's response to the end of a transaction.
#[derive(Clone, Copy, Debug)]
enum Response {
    /// The work's writes refuse the commit, and a rollback succeeds.
    Refusal,
    Success(Duration),
    Never,
}

/// A store whose transactions end with this response, and without an effect on its records.
#[derive(Clone, Debug)]
struct Uncommitted {
    records: FaultStore<MemoryStore>,
    response: Response,
}

impl Uncommitted {
    /// Returns it with an unprotected engine.
    fn with_engine(response: Response) -> (Self, Idempotency) {
        Self::with(response, |builder| builder.disabled(true))
    }

    /// Returns it with an engine of these settings.
    fn with(response: Response, settings: impl FnOnce(Builder) -> Builder) -> (Self, Idempotency) {
        let clock = TokioClock::new();
        let store = Self { records: FaultStore::new(MemoryStore::with_clock(clock.clone()), 1), response };
        let once = settings(Idempotency::builder(store.clone()).clock(clock)).build().unwrap();
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
        let refusal = || Error::new(ErrorKind::Transaction, ErrorStatus::Temporary, "commit", "a newer row exists");
        match self.response {
            Response::Refusal => Box::pin(ready(Err(refusal()))),
            Response::Success(time) => Box::pin(sleep(time).map(|()| Ok(Settled::Done { found: None }))),
            Response::Never => Box::pin(pending()),
        }
    }

    fn abandon(&self, _: &()) -> BoxFuture<'static, Result<(), Error>> {
        match self.response {
            Response::Refusal => Box::pin(ready(Ok(()))),
            Response::Success(time) => Box::pin(sleep(time).map(Ok)),
            Response::Never => Box::pin(pending()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_protection_a_refused_commit_may_be_superseded_too() {
    let (store, once) = Uncommitted::with_engine(Response::Refusal);
    let operation = once.operation(CHARGE, KEY).in_transaction(&store).classify(|_| Verdict::Superseded);
    assert_outcome!(operation.run(|()| async { Ok::<_, Failure>(7) }).await, Ok(Outcome::Superseded { newest: None }));
}

/// The default reserve is a second, half of which is for settles.
#[tokio::test(start_paused = true)]
async fn an_unprotected_commit_ends_before_the_deadline() {
    for end in [Ok(7), Err(Failure::transient("busy"))] {
        let (store, once) = Uncommitted::with_engine(Response::Never);
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

/// The half of the reserve for settles is over, and 200 milliseconds are left.
#[tokio::test(start_paused = true)]
async fn an_unprotected_commit_may_use_the_time_until_the_deadline() {
    let (store, once) = Uncommitted::with_engine(Response::Success(Duration::from_millis(100)));
    let work = |()| async {
        sleep(Duration::from_millis(18_900)).await;
        block(Duration::from_millis(900));
        Ok::<_, Failure>(7)
    };
    let operation = once.operation(CHARGE, KEY).deadline(Deadline::at(FUTURE.after(Duration::from_secs(20))));
    assert_outcome!(operation.in_transaction(&store).run(work).await, Ok(Outcome::Executed(7)));
}

/// Nothing renews a lease that does not exist.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_without_a_claim_is_not_limited_by_a_lease() {
    for end in [Ok(7), Err(Failure::transient("busy"))] {
        let (store, once) = Uncommitted::with(Response::Success(Duration::from_secs(2)), |builder| builder);
        let succeeds = end.is_ok();
        let work = |()| async {
            sleep(Duration::from_secs(60)).await;
            end
        };
        match once.operation(CHARGE, KEY).in_transaction(&store).without_claim().run(work).await {
            Ok(Outcome::Executed(7)) => assert!(succeeds),
            Ok(Outcome::Failed(failure)) => assert_eq!((failure.verdict(), succeeds), (Verdict::Transient, false)),
            other => panic!("{other:?}"),
        }
    }
}

/// The claim ends with its lease, but under `Refuse` it would block its key.
// Tests S4.
#[tokio::test(start_paused = true)]
async fn a_release_after_a_refused_commit_is_optional_only_under_rerun() {
    for (policy, fault, times) in [
        (AfterUnknown::Rerun, Fault::Throttled, 5..=7),
        (AfterUnknown::Rerun, Fault::AccessDenied, 0..=1),
        (AfterUnknown::Refuse, Fault::Throttled, 890..=900),
        (AfterUnknown::Refuse, Fault::AccessDenied, 890..=900),
    ] {
        let (store, once) = Uncommitted::with(Response::Refusal, |builder| builder.after_unknown(policy));
        store.records.always(Call::Settle, fault);
        let operation = once.operation(CHARGE, KEY).deadline(Deadline::at(FUTURE.after(Duration::from_secs(900))));
        let begun = Instant::now();
        let outcome = operation.in_transaction(&store).run(|()| async { Ok::<_, Failure>(7) }).await;
        assert_outcome!(outcome, Ok(Outcome::Failed(failure)) if failure.verdict() == Verdict::Unknown);
        assert!(times.contains(&begun.elapsed().as_secs()), "{policy:?}, {fault:?}: {:?}", begun.elapsed());
    }
}

/// The response of its batch must be sent.
#[tokio::test(start_paused = true)]
async fn an_unprotected_record_is_reported_before_the_deadline() {
    let (store, once) = Uncommitted::with_engine(Response::Never);
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
