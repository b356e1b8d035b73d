//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`] takes them apart, and gets the identifiers of those that failed.

use std::{collections::BTreeMap, convert::Infallible, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lambda_runtime::Context;

use super::{
    Decode, Handler, Options, RecordContext,
    invocation::{Begun, Invocation, Ready},
    schedule::Schedule,
    source::Source,
};
use crate::{
    Claim, Error, Idempotency, Key, Outcome,
    clock::{Deadline, Timestamp},
    idempotency::{
        engine::{Candidate, Conclusion, Finished, Settling, Standing, Success},
        guard::contain,
        window::Window,
    },
    store::{BoxFuture, Refusal},
};

/// What all records of a service share.
pub(super) struct Processor<H, T> {
    pub(super) engine: Idempotency,
    pub(super) operation: &'static str,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<T>,
    pub(super) options: Options,
}

/// Something under way has come to its end.
#[expect(clippy::large_enum_variant, reason = "most steps are of the large kind; a box would cost each record one")]
enum Step<T> {
    Claimed(Vec<Ready<T>>, Vec<Result<Standing, Error>>),
    /// Records that waited for the lease in their way to end have been claimed once more.
    ClaimedAgain(Vec<Ready<T>>, Vec<Result<Standing, Error>>),
    /// A handler without a claim.
    Ran(Begun, Outcome<()>),
    /// A handler with a claim, which may be due to be settled.
    Finished(Begun, Claim, Finished<()>),
    /// The first call for claims that were settled together.
    Settled(Settling<usize, ()>),
    /// Those of them that took more than one call.
    SettledAgain(Vec<(usize, Claim, Conclusion<()>)>),
    Released,
}

type Steps<'a, T> = FuturesUnordered<BoxFuture<'a, Step<T>>>;

impl<H, T> Processor<H, T>
where
    T: Send + 'static,
{
    /// The identifiers of the records that failed, in order.
    pub(super) async fn process<S: Source, Args>(&self, records: Vec<S::Record>, lambda: Context) -> Vec<String>
    where
        H: Handler<T, Args>,
    {
        let mut invocation = self.begin::<S>(records, lambda);
        let mut steps = Steps::new();
        let mut yielded = false;
        loop {
            self.start(&mut invocation, &steps);
            if invocation.schedule.fills_a_call(invocation.due.len()) {
                self.settle(&mut invocation, &steps);
            }
            match poll_fn(|context| Poll::Ready(steps.poll_next_unpin(context))).await {
                Poll::Ready(Some(step)) => self.finish(&mut invocation, &steps, step),
                // Whatever ends at the same time shares one call: nothing is waited for but one turn of the runtime.
                _ if invocation.may_settle() && !yielded => {
                    tokio::task::yield_now().await;
                    yielded = true;
                }
                _ if invocation.may_settle() => {
                    self.settle(&mut invocation, &steps);
                    yielded = false;
                }
                Poll::Ready(None) if invocation.stopped || invocation.is_over() => break,
                Poll::Ready(None) => {}
                Poll::Pending => {
                    if let Some(step) = steps.next().await {
                        self.finish(&mut invocation, &steps, step);
                    }
                }
            }
        }
        invocation.into_failures()
    }

    fn begin<S: Source>(&self, records: Vec<S::Record>, lambda: Context) -> Invocation<S, T> {
        let window = Window::new(self.engine.clock.now(), Deadline::from(&lambda), &self.engine.settings);
        let schedule = Schedule::new(
            window.stop,
            self.options.expected_duration,
            self.options.concurrency,
            self.engine.store.limits().batch,
            self.engine.settings.after_unknown,
        );
        let operation = self.engine.operation_name(self.operation);
        let scope = self.engine.scope(operation, lambda.tenant_id.as_deref().map(str::as_bytes)).hasher();
        Invocation::new(records, lambda, operation, scope, window, schedule, &self.options)
    }

    /// Starts whatever may be started now.
    fn start<'a, S: Source, Args>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>)
    where
        H: Handler<T, Args>,
    {
        loop {
            if !invocation.stopped && !invocation.schedule.in_time(self.engine.clock.now()) {
                invocation.stopped = true;
            }
            let given_up: Vec<Ready<T>> =
                if invocation.stopped { invocation.ready.drain(..).collect() } else { invocation.take_held_up() };
            self.release(given_up, steps);
            if invocation.stopped {
                return;
            }
            if invocation.schedule.has_free_slot(invocation.running)
                && let Some(ready) = invocation.next_ready()
            {
                invocation.running += 1;
                steps.push(self.run(ready, Arc::clone(&invocation.lambda), invocation.window));
                continue;
            }
            let room = invocation.claimable();
            if invocation.claiming || room == 0 {
                return;
            }
            let seen = invocation.seen();
            let (waiting, candidates) = self.prepare_chunk(invocation, room);
            if !candidates.is_empty() {
                invocation.claiming = true;
                let window = invocation.window;
                steps.push(Box::pin(async move {
                    let standings = self.engine.claim(&candidates, window).await;
                    Step::Claimed(waiting, standings)
                }));
            } else if invocation.seen() == seen {
                return;
            }
        }
    }

    /// Runs one record to its end.
    fn run<'a, Args>(&'a self, ready: Ready<T>, lambda: Arc<Context>, window: Window) -> BoxFuture<'a, Step<T>>
    where
        H: Handler<T, Args>,
    {
        let Ready { index, payload, info, claim, .. } = ready;
        let begun = Begun { index, at: self.engine.clock.now() };
        let context = RecordContext { record: info, lambda, claim: claim.clone(), stop: window.stop };
        // The handler's own future is made inside, so that a panic in making it is caught too.
        let work = async move { self.handler.call(payload, context).await };
        Box::pin(async move {
            let Some(claim) = claim else {
                let work = async move { work.await.map(drop) };
                return Step::Ran(begun, self.engine.run_unprotected(window, work).await);
            };
            let work = async move { work.await.map(Success::Remember) };
            // Only the stored form of the value is needed from here on. Dropping it runs code of the user's.
            let keep = |value| {
                let _ = contain(|| drop(value));
            };
            Step::Finished(begun, claim.clone(), self.engine.run(claim, work, keep).await)
        })
    }

    /// Gives records up that will not run, and their claims.
    fn release<'a>(&'a self, given_up: Vec<Ready<T>>, steps: &Steps<'a, T>) {
        let claims: Vec<Claim> = given_up.into_iter().filter_map(Ready::give_up).collect();
        if !claims.is_empty() {
            let engine = &self.engine;
            steps.push(Box::pin(async move {
                engine.release(claims).await;
                Step::Released
            }));
        }
    }

    /// Settles all that is due with one call.
    fn settle<'a, S: Source>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>) {
        invocation.settling = true;
        let due = std::mem::take(&mut invocation.due);
        let engine = &self.engine;
        steps.push(Box::pin(async move { Step::Settled(engine.settle_together(due).await) }));
    }

    fn finish<'a, S: Source>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>, step: Step<T>) {
        match step {
            Step::Released => {}
            Step::Ran(begun, outcome) => {
                invocation.ended(begun, self.engine.clock.now());
                invocation.decide(begun.index, &Ok(outcome));
            }
            Step::Finished(begun, claim, finished) => {
                invocation.ended(begun, self.engine.clock.now());
                match finished {
                    Finished::Due(due) => {
                        if due.is_release() {
                            invocation.lanes.fail(begun.index);
                        }
                        invocation.unsettled += 1;
                        invocation.due.push((begun.index, due));
                    }
                    Finished::Concluded(conclusion) => self.conclude(invocation, begun.index, &claim, conclusion),
                }
            }
            Step::Settled(Settling { concluded, open }) => {
                invocation.settling = false;
                self.conclude_settled(invocation, concluded);
                // They hold nobody else up.
                if !open.is_empty() {
                    let engine = &self.engine;
                    steps.push(Box::pin(async move { Step::SettledAgain(engine.settle_again(open).await) }));
                }
            }
            Step::SettledAgain(concluded) => self.conclude_settled(invocation, concluded),
            Step::Claimed(waiting, standings) => {
                invocation.claiming = false;
                self.claimed(invocation, steps, waiting, standings);
            }
            Step::ClaimedAgain(waiting, standings) => self.claimed(invocation, steps, waiting, standings),
        }
    }

    fn claimed<'a, S: Source>(
        &'a self,
        invocation: &mut Invocation<S, T>,
        steps: &Steps<'a, T>,
        waiting: Vec<Ready<T>>,
        standings: Vec<Result<Standing, Error>>,
    ) {
        let mut patient: BTreeMap<Timestamp, Vec<(Ready<T>, Candidate)>> = BTreeMap::new();
        for (mut ready, standing) in waiting.into_iter().zip(standings) {
            let outcome = match standing {
                Ok(Standing::Claimed(claim)) => {
                    ready.claim = Some(claim);
                    invocation.ready.push_back(ready);
                    continue;
                }
                Ok(Standing::Refused(refusal)) => {
                    if let Some(until) = self.lapses_in_time(invocation, &refusal)
                        && let Some(candidate) = ready.again.take()
                    {
                        patient.entry(until).or_default().push((ready, candidate));
                        continue;
                    }
                    Ok(replayed(refusal))
                }
                Ok(Standing::NotStarted) => Ok(Outcome::NotStarted),
                Err(error) => Err(error),
            };
            let index = ready.index;
            ready.give_up();
            invocation.decide(index, &outcome);
        }
        for (until, records) in patient {
            steps.push(self.claim_after(until, records, invocation.window));
        }
    }

    /// When the lease in the way will be over for others, if there is still time to run something then. To fail at once
    /// would fail everything behind the record too, and spend a delivery of each.
    fn lapses_in_time<S: Source>(&self, invocation: &Invocation<S, T>, refusal: &Refusal) -> Option<Timestamp> {
        let Refusal::InProgress { lease_until: Some(lease_until), .. } = refusal else { return None };
        let until = lease_until.after(self.engine.settings.skew_margin).after(Duration::from_millis(1));
        invocation.schedule.in_time(until).then_some(until)
    }

    fn claim_after<'a>(
        &'a self,
        until: Timestamp,
        records: Vec<(Ready<T>, Candidate)>,
        window: Window,
    ) -> BoxFuture<'a, Step<T>> {
        let engine = &self.engine;
        let (waiting, candidates): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        Box::pin(async move {
            tokio::time::sleep(until.since(engine.clock.now())).await;
            let standings = engine.claim(&candidates, window).await;
            Step::ClaimedAgain(waiting, standings)
        })
    }

    fn conclude_settled<S: Source>(
        &self,
        invocation: &mut Invocation<S, T>,
        concluded: Vec<(usize, Claim, Conclusion<()>)>,
    ) {
        for (index, claim, conclusion) in concluded {
            invocation.unsettled -= 1;
            self.conclude(invocation, index, &claim, conclusion);
        }
    }

    fn conclude<S: Source>(
        &self,
        invocation: &mut Invocation<S, T>,
        index: usize,
        claim: &Claim,
        conclusion: Conclusion<()>,
    ) {
        let replay = |refusal| Ok::<_, Infallible>(replayed(refusal));
        let Ok(outcome) = conclusion.into_outcome(claim, |()| (), replay);
        invocation.decide(index, &Ok(outcome));
    }
}

/// A record that did not run. A queue acknowledges what is done without decoding its result.
fn replayed(refusal: Refusal) -> Outcome<()> {
    match refusal {
        Refusal::Completed(_) => Outcome::Replayed(()),
        Refusal::Failed(_) => Outcome::ReplayedFailure(crate::StoredFailure { message: None }),
        Refusal::InProgress { lease_until, attempt } => Outcome::InProgress { lease_until, attempt },
        Refusal::Abandoned { attempt } => Outcome::Abandoned { attempt },
        Refusal::Mismatch => Outcome::Mismatch,
    }
}
