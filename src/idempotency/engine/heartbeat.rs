//! The heartbeat, which renews the lease of a run while it lasts (L5).
//!
//! It is part of the run's own future. There is no task that could outlive the run or renew the lease of work that
//! blocks its thread.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_util::FutureExt;
use pin_project_lite::pin_project;
use tokio::time::{Instant, sleep};

use super::{
    Engine,
    ending::{Conclusion, End, Success},
    running::contained,
    settling::request_of,
};
use crate::{
    backoff::Backoff,
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    idempotency::{
        claim::Claim,
        guard::{Bounds, Guarded, Unfinished},
        result::Recorded,
        verdict::Failure,
        window::{MIN_CALL_TIME, Window},
    },
    record::Record,
    store::{Settled, Settlement},
};

impl Engine {
    /// Runs work under a claim that nothing else settles or renews, until its handler deadline, which a heartbeat may
    /// move. `keep` extracts the caller's part of the value, besides the stored result.
    ///
    /// Not an `async fn`, which would hold the work twice: as an argument and as an awaited future.
    pub(crate) fn run_with_heartbeat<T, U, F>(
        &self,
        claim: Claim,
        work: F,
        keep: impl FnOnce(T) -> U + Send,
    ) -> impl Future<Output = End<U>> + Send
    where
        T: Recorded + Send,
        F: Future<Output = Result<Success<T>, Failure>> + Send,
    {
        let claim_of_panic = claim.clone();
        // The work, and a renewal in progress, are dropped before the end is made, so a settle does not race a renewal.
        let run = Renewing::new(self, claim, work).map(move |(claim, ended)| match ended {
            Ok(ended) => self.end(Some(claim), ended, keep),
            Err(LeaseLost { current }) => self.lost(claim, current),
        });
        contained(run, Some(claim_of_panic))
    }

    /// Returns the time at which a run without a claim that begins now is cancelled, which is the same as for a run
    /// with a claim.
    pub(crate) fn stop_without_claim(&self, window: Window) -> Timestamp {
        let now = self.clock.now();
        window.max_duration().map_or(window.stop_of_run(now), |max_duration| now.after(max_duration))
    }

    /// Renews the lease of a claim at `renew_at`, with retries until the handler deadline. After that it never
    /// completes.
    async fn renew(&self, claim: Claim, renew_at: Timestamp) -> Result<Renewal, LeaseLost> {
        sleep(renew_at.since(self.clock.now())).await;
        let request = request_of(&claim, self.renewal());
        let (mut first_sent, mut backoff, mut is_warned) = (None, Backoff::default(), false);
        loop {
            let now = self.clock.now();
            if now >= claim.handler_deadline() {
                // The work is cancelled, so its lease should end.
                return pending().await;
            }
            let sent = *first_sent.get_or_insert(now);
            // A call without a response leaves time for a second call.
            let time = (claim.handler_deadline().since(now) / 2).max(MIN_CALL_TIME);
            let call = self.store.settle(std::slice::from_ref(&request));
            let error = match self.within(time, request.settlement.as_str(), 1, call).await.pop() {
                Some(Ok(Settled::Renewed { lease_until })) => return Ok(Renewal { sent, lease_until }),
                Some(Ok(Settled::LeaseLost { current })) => return Err(LeaseLost { current }),
                Some(Err(error)) => error,
                Some(Ok(Settled::Done { .. })) | None => no_renewal(),
            };
            if !std::mem::replace(&mut is_warned, true) {
                tracing::warn!(target: "lambda_once", key = %claim.key(), %error, "the lease could not be renewed; it is tried again until the handler deadline");
            }
            sleep(if error.retry_helps() { backoff.next() } else { self.settings.lease / 3 }).await;
        }
    }

    /// Returns the end of a run whose lease was lost. A successor's outcome counts (S8).
    fn lost<T>(&self, claim: Claim, current: Option<Box<Record>>) -> End<T> {
        let mut end = End::settled_with(None, None, Conclusion::LeaseLost);
        self.lose(&claim, current, &mut end);
        End { claim: Some(claim), ..end }
    }

    fn renewal(&self) -> Settlement {
        Settlement::Renew {
            lease: self.settings.lease,
            skew_margin: self.settings.skew_margin,
            retention: self.settings.in_progress_retention(),
        }
    }
}

/// Returns the time to renew a lease that is held from `from` on, which is after a third of it, and in time for a
/// response.
fn renew_at(from: Timestamp, window: &Window) -> Timestamp {
    from.after((window.lease_until.since(from) / 3).min(window.stop.since(from) / 2))
}

fn no_renewal() -> Error {
    let message = "the store did not return the end of the renewed lease";
    Error::new(ErrorKind::Request, ErrorStatus::Ambiguous, "renew", message)
}

/// A renewal that was applied.
struct Renewal {
    /// The time of its first request. The lease counts from then, no matter when the response arrives.
    sent: Timestamp,
    lease_until: Timestamp,
}

/// A renewal that was refused.
struct LeaseLost {
    current: Option<Box<Record>>,
}

pin_project! {
    /// Awaits work under a claim until its handler deadline, and renews the lease meanwhile.
    struct Renewing<'e, F> {
        #[pin]
        work: Guarded<F>,
        claim: Claim,
        heartbeat: Option<Heartbeat<'e>>,
    }
}

struct Heartbeat<'e> {
    engine: &'e Engine,
    /// The end of the maximum duration.
    ends: Timestamp,
    /// The same as a timer, which does not move if the clock is set back. `None` if it is too far off to be
    /// represented.
    timer_ends: Option<Instant>,
    /// `None` if the lease lasts as long as the work may.
    renewal: Option<BoxFuture<'e, Result<Renewal, LeaseLost>>>,
}

impl<'e, F> Renewing<'e, F> {
    fn new(engine: &'e Engine, claim: Claim, work: F) -> Self {
        let now = engine.clock.now();
        let mut stop = claim.handler_deadline();
        if claim.granted().window.bounds_runs() {
            stop = claim.granted().window.stop_of_run(now);
            claim.show_handler_deadline(stop);
        }
        let heartbeat = claim.granted().window.max_duration().map(|max_duration| {
            let mut heartbeat = Heartbeat {
                engine,
                ends: now.after(max_duration),
                timer_ends: Instant::now().checked_add(max_duration),
                renewal: None,
            };
            stop = heartbeat.next(&claim, now);
            heartbeat
        });
        let work = Guarded::new(work, Arc::clone(&engine.clock), Bounds::until(stop, &claim.granted().window));
        Self { work, claim, heartbeat }
    }
}

impl Heartbeat<'_> {
    /// Schedules the next renewal of a claim that was granted or renewed at `from`. Returns the handler deadline that
    /// applies until that renewal.
    fn next(&mut self, claim: &Claim, from: Timestamp) -> Timestamp {
        let stop = claim.granted().window.stop.min(self.ends);
        claim.show_handler_deadline(stop);
        let renew_at = renew_at(from, &claim.granted().window);
        self.renewal = (stop < self.ends).then(|| self.engine.renew(claim.clone(), renew_at).boxed());
        stop
    }

    /// Continues after a renewal. Returns the handler deadline until the next one.
    fn renewed(&mut self, claim: &mut Claim, renewal: &Renewal) -> Timestamp {
        let window = claim.granted().window.renewed(renewal.sent, &self.engine.settings);
        claim.renew(window, renewal.lease_until);
        self.next(claim, renewal.sent)
    }

    /// Returns the maximum duration of a timer until `stop`.
    fn time_until(&self, stop: Timestamp) -> Duration {
        let time = stop.since(self.engine.clock.now());
        self.timer_ends.map_or(time, |ends| time.min(ends.saturating_duration_since(Instant::now())))
    }
}

impl<F: Future> Future for Renewing<'_, F> {
    type Output = (Claim, Result<Result<F::Output, Unfinished>, LeaseLost>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        // First the renewal, because after a thaw its response may be available, which allows or forbids the work to
        // continue.
        while let Some(heartbeat) = this.heartbeat
            && let Some(renewal) = &mut heartbeat.renewal
            && let Poll::Ready(renewed) = renewal.poll_unpin(context)
        {
            match renewed {
                Ok(renewal) => {
                    let stop = heartbeat.renewed(this.claim, &renewal);
                    this.work.as_mut().stop_at(stop, heartbeat.time_until(stop));
                }
                Err(lost) => return Poll::Ready((this.claim.clone(), Err(lost))),
            }
        }
        let ended = ready!(this.work.poll(context));
        Poll::Ready((this.claim.clone(), Ok(ended)))
    }
}
