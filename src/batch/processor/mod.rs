//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`] has taken them apart, and is told which of them failed.

use std::{
    convert::Infallible,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lambda_runtime::Context;

use super::{Decode, Handler, Options, RecordInfo, report::replayed, source::Source};
use crate::{
    Claim, Error, Idempotency, Key, Outcome,
    clock::Timestamp,
    idempotency::{
        engine::{Backoff, Concluded, Conclusion, Finished, Ran, Settling, Standing},
        window::Window,
    },
    store::{Refusal, rules::lapses},
};

mod lanes;
mod outcomes;
mod prepare;
mod schedule;
mod stages;
mod state;
mod tasks;
mod waiting;

use stages::{Begun, Patient, Ready};
use state::Invocation;
use tasks::{Step, Task};

/// How many records are put aside at once.
const MOST_PUT_ASIDE_AT_ONCE: usize = 10;

/// What all records of a service share.
pub(super) struct Processor<S: Source, H, T> {
    pub(super) source: S,
    pub(super) engine: Idempotency,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<S, T>,
    pub(super) options: Options,
}

impl<S, H, T> Processor<S, H, T>
where
    S: Source,
    T: Send + 'static,
{
    /// The records that failed, in order.
    pub(super) async fn process<Args>(
        &self,
        records: Vec<S::Record>,
        lambda: Context,
        window: Window,
    ) -> Vec<Arc<RecordInfo>>
    where
        H: Handler<T, Args>,
    {
        let tenant = lambda.tenant_id.as_deref();
        let mut invocation = Invocation::new(self.source.clone(), records, tenant, window, &self.engine, &self.options);
        invocation.schedule.hands_over(self.handler.most());
        let lambda = Arc::new(lambda);
        // What was to be run begins at its first poll, and before that another's end may have stopped the batch.
        let halted = AtomicBool::new(false);
        let mut steps = FuturesUnordered::new();
        loop {
            self.start::<Args>(&mut invocation);
            if invocation.schedule.fills_a_call(invocation.due.len()) {
                invocation.settle();
            }
            steps.extend(invocation.tasks.drain(..).map(|task| self.perform(task, &lambda, window, &halted)));
            halted.store(invocation.lanes.are_halted(), Ordering::Relaxed);
            match poll_fn(|context| Poll::Ready(steps.poll_next_unpin(context))).await {
                Poll::Ready(Some(step)) => self.finish(&mut invocation, step),
                // Whatever ends at the same time shares one call: nothing is waited for but one turn of the runtime.
                _ if invocation.may_settle() && !invocation.yielded => {
                    tokio::task::yield_now().await;
                    invocation.yielded = true;
                }
                _ if invocation.may_settle() => invocation.settle(),
                none => {
                    let is_under_way = none.is_pending();
                    match (is_under_way, invocation.wakes_after(self.engine.clock.now(), is_under_way)) {
                        (true, time) => {
                            let step = match time {
                                Some(time) => tokio::time::timeout(time, steps.next()).await.ok().flatten(),
                                None => steps.next().await,
                            };
                            if let Some(step) = step {
                                self.finish(&mut invocation, step);
                            }
                        }
                        (false, Some(time)) => tokio::time::sleep(time).await,
                        (false, None) if invocation.stopped => break,
                        // Nothing is under way, and nothing more could be started.
                        (false, None) => invocation.stopped = true,
                    }
                }
            }
        }
        invocation.into_failures()
    }

    /// Starts whatever may be started now.
    fn start<Args>(&self, invocation: &mut Invocation<S, T>)
    where
        H: Handler<T, Args>,
    {
        self.start_work::<Args>(invocation);
        while invocation.being_put_aside < MOST_PUT_ASIDE_AT_ONCE
            && let Some((index, decision)) = invocation.take_dead()
        {
            invocation.put_aside(index, decision);
        }
    }

    fn start_work<Args>(&self, invocation: &mut Invocation<S, T>)
    where
        H: Handler<T, Args>,
    {
        loop {
            invocation.now = self.engine.clock.now();
            if !invocation.stopped && !invocation.schedule.in_time(invocation.now) {
                invocation.stopped = true;
            }
            let given_up = invocation.give_up();
            if !given_up.is_empty() {
                invocation.tasks.push(Task::Release(given_up));
            }
            if invocation.stopped {
                return;
            }
            let most = self.handler.most();
            let is_alone = |ready: &Ready<T>| H::PROBES && ready.claim.as_ref().is_some_and(Claim::took_over);
            // Those that go together go first: a crash would leave the claims of many that never began. What took over has
            // lost its outcome before.
            let comes_later = |ready: &Ready<T>| most > 1 && is_alone(ready);
            if invocation.schedule.has_free_slot(invocation.running)
                && let Some(ready) = invocation.next_ready(comes_later)
            {
                invocation.running += 1;
                let at = invocation.now;
                if most > 1 && !is_alone(&ready) {
                    let together = invocation.take_together(ready, most, is_alone);
                    invocation.tasks.push(Task::RunTogether(at, together));
                } else {
                    invocation.tasks.push(Task::Run(Begun { index: ready.index, at }, ready));
                }
                continue;
            }
            let watched = invocation.watched();
            if !watched.is_empty() {
                invocation.looking = true;
                let (indices, candidates) = watched.into_iter().unzip();
                invocation.tasks.push(Task::Look(indices, candidates));
            }
            if invocation.claiming {
                return;
            }
            let seen = invocation.next;
            let room = invocation.room();
            let mut waiting = invocation.take_patient(room);
            if waiting.is_empty() {
                waiting = self.next_chunk(invocation, room);
            }
            if !waiting.is_empty() {
                invocation.claiming = true;
                invocation.tasks.push(Task::Claim(waiting));
            } else if invocation.next == seen {
                return;
            }
        }
    }

    fn finish(&self, invocation: &mut Invocation<S, T>, step: Step<T>) {
        match step {
            Step::Released => {}
            Step::NotBegun(records) => invocation.not_begun(records),
            Step::Looked(indices, seen) => {
                invocation.looking = false;
                invocation.now = self.engine.clock.now();
                for (index, seen) in indices.into_iter().zip(seen) {
                    invocation.seen(index, seen, self.engine.settings.skew_margin);
                }
            }
            Step::PutAside(index, mut decision, sent) => {
                invocation.being_put_aside -= 1;
                match sent {
                    Ok(()) => {
                        decision.dead_lettered = true;
                        decision.report.reported = false;
                    }
                    Err(error) => {
                        tracing::error!(target: "lambda_once", error, outcome = decision.report.name(), "the record could not be put aside, so it is reported");
                    }
                }
                invocation.decided(index, decision);
            }
            Step::Ran(begun, ran) => {
                invocation.ended(begun, self.engine.clock.now());
                self.ran(invocation, begun.index, ran);
            }
            Step::RanTogether(begun, ran) => {
                if let Some(first) = begun.first() {
                    invocation.ended(*first, self.engine.clock.now());
                }
                for (begun, ran) in begun.into_iter().zip(ran) {
                    self.ran(invocation, begun.index, ran);
                }
            }
            Step::Settled(Settling { concluded, open }) => {
                invocation.settling -= 1;
                self.conclude_settled(invocation, concluded);
                // They hold nobody else up.
                if !open.is_empty() {
                    invocation.tasks.push(Task::SettleAgain(open));
                }
            }
            Step::SettledAgain(concluded) => self.conclude_settled(invocation, concluded),
            Step::Claimed(waiting, standings) => {
                invocation.claiming = false;
                for (ready, standing) in waiting.into_iter().zip(standings) {
                    self.claimed(invocation, ready, standing);
                }
            }
        }
    }

    /// The handler of a record has ended, and its claim may be due to be settled.
    fn ran(&self, invocation: &mut Invocation<S, T>, index: usize, ran: Ran<()>) {
        match ran {
            Ran::Unprotected(outcome) => invocation.decide(index, Ok(outcome)),
            Ran::Protected(claim, Finished::Concluded(conclusion)) => {
                invocation.decide(index, Ok(outcome(&claim, conclusion)));
            }
            Ran::Protected(claim, Finished::Due(due)) => {
                if due.is_release() && !invocation.may_be_put_aside(index) {
                    invocation.lanes.fail(index);
                }
                invocation.unsettled += 1;
                invocation.due.push((index, claim, due));
            }
        }
    }

    fn claimed(&self, invocation: &mut Invocation<S, T>, mut ready: Ready<T>, standing: Result<Standing, Error>) {
        let outcome = match standing {
            Ok(Standing::Claimed(claim)) => {
                ready.claim = Some(claim);
                invocation.ready.push_back(ready);
                return;
            }
            Ok(Standing::Refused(refusal)) => {
                if let Some(until) = self.lapses_in_time(invocation, &refusal)
                    && std::mem::take(&mut ready.may_wait)
                {
                    let now = self.engine.clock.now();
                    let mut patient = Patient { ready, until, refusal, look_at: now, looks: Backoff::default() };
                    patient.look_later(now);
                    invocation.patient.push(patient);
                    return;
                }
                Ok(replayed(refusal))
            }
            Ok(Standing::NotStarted) => Ok(Outcome::NotStarted),
            Err(error) => Err(error),
        };
        let index = ready.index;
        ready.give_up();
        invocation.decide(index, outcome);
    }

    /// When the lease in the way will be over for others, if there is still time to run something then. To fail at once
    /// would fail everything behind the record too, and spend a delivery of each.
    fn lapses_in_time(&self, invocation: &Invocation<S, T>, refusal: &Refusal) -> Option<Timestamp> {
        let Refusal::InProgress { lease_until: Some(lease_until), .. } = refusal else { return None };
        let until = lapses(*lease_until, self.engine.settings.skew_margin);
        invocation.schedule.in_time(until).then_some(until)
    }

    fn conclude_settled(&self, invocation: &mut Invocation<S, T>, concluded: Vec<Concluded<usize, ()>>) {
        for Concluded { name: index, claim, conclusion, lease_until } in concluded {
            invocation.unsettled -= 1;
            invocation.decide_held(index, Ok(outcome(&claim, conclusion)), lease_until);
        }
    }
}

fn outcome(claim: &Claim, conclusion: Conclusion<()>) -> Outcome<()> {
    let replay = |refusal| Ok::<_, Infallible>(replayed(refusal));
    let Ok(outcome) = conclusion.into_outcome(claim, |()| (), replay);
    outcome
}
