//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`] has taken them apart, and is told which of them failed.

use std::{convert::Infallible, future::poll_fn, sync::Arc, task::Poll};

use futures_util::{StreamExt, stream::FuturesUnordered};
use lambda_runtime::Context;
use tracing::{Instrument, Span};

use super::{
    DeadLetter, Decode, Handler, Options, RecordContext, RecordInfo,
    bulk::miscounted,
    invocation::{Begun, Invocation, Patient, Ready},
    report::{Decision, Report, replayed},
    source::Source,
};
use crate::{
    BoxError, Claim, Error, Idempotency, Key, Outcome, Probed,
    clock::Timestamp,
    idempotency::{
        engine::{Backoff, Conclusion, Finished, Ran, Seen, Settling, Standing, Success, forget, probed},
        guard::{Unfinished, bounded, contain},
        window::Window,
    },
    store::{BoxFuture, Refusal, rules::lapses},
};

/// How many records are put aside at once.
const MOST_BURIED_AT_ONCE: usize = 10;

/// What all records of a service share.
pub(super) struct Processor<S: Source, H, T> {
    pub(super) source: S,
    pub(super) engine: Idempotency,
    pub(super) key: Key,
    pub(super) handler: H,
    pub(super) decode: Decode<S, T>,
    pub(super) options: Options,
}

/// Something under way has come to its end.
#[expect(clippy::large_enum_variant, reason = "most steps are of the large kind; a box would cost each record one")]
enum Step<T> {
    Claimed(Vec<Ready<T>>, Vec<Result<Standing, Error>>),
    /// A handler has ended.
    Ran(Begun, Ran<()>),
    /// A handler of several records has ended.
    RanTogether(Vec<Begun>, Vec<Ran<()>>),
    /// The first call for claims that were settled together.
    Settled(Settling<usize, ()>),
    /// Those of them that took more than one call.
    SettledAgain(Vec<(usize, Claim, Conclusion<()>)>),
    Released,
    /// A look at what is waited for.
    Looked(Vec<usize>, Vec<Result<Seen, Error>>),
    /// A record was put aside, or could not be, for this reason.
    Buried(usize, Decision, Result<(), Option<String>>),
}

type Steps<'a, T> = FuturesUnordered<BoxFuture<'a, Step<T>>>;

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
        let mut invocation = Invocation::new(self.source.clone(), records, lambda, window, &self.engine, &self.options);
        invocation.schedule.hands_over(self.handler.most());
        let mut steps = Steps::new();
        loop {
            self.start(&mut invocation, &steps);
            if invocation.schedule.fills_a_call(invocation.due.len()) {
                self.settle(&mut invocation, &steps);
            }
            match poll_fn(|context| Poll::Ready(steps.poll_next_unpin(context))).await {
                Poll::Ready(Some(step)) => self.finish(&mut invocation, &steps, step),
                // Whatever ends at the same time shares one call: nothing is waited for but one turn of the runtime.
                _ if invocation.may_settle() && !invocation.yielded => {
                    tokio::task::yield_now().await;
                    invocation.yielded = true;
                }
                _ if invocation.may_settle() => self.settle(&mut invocation, &steps),
                none => {
                    let is_under_way = none.is_pending();
                    match (is_under_way, invocation.wakes_after(self.engine.clock.now(), is_under_way)) {
                        (true, time) => {
                            let step = match time {
                                Some(time) => tokio::time::timeout(time, steps.next()).await.ok().flatten(),
                                None => steps.next().await,
                            };
                            if let Some(step) = step {
                                self.finish(&mut invocation, &steps, step);
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
    fn start<'a, Args>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>)
    where
        H: Handler<T, Args>,
    {
        self.start_work(invocation, steps);
        while invocation.burying < MOST_BURIED_AT_ONCE
            && let Some((index, decision)) = invocation.take_dead()
        {
            self.bury(invocation, steps, index, decision);
        }
    }

    fn start_work<'a, Args>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>)
    where
        H: Handler<T, Args>,
    {
        loop {
            invocation.now = self.engine.clock.now();
            if !invocation.stopped && !invocation.schedule.in_time(invocation.now) {
                invocation.stopped = true;
            }
            self.release(invocation.give_up(), steps);
            if invocation.stopped {
                return;
            }
            if invocation.schedule.has_free_slot(invocation.running)
                && let Some(ready) = invocation.next_ready()
            {
                invocation.running += 1;
                let (lambda, window) = (Arc::clone(&invocation.lambda), invocation.window);
                let most = self.handler.most();
                let is_alone = |ready: &Ready<T>| H::PROBES && ready.claim.as_ref().is_some_and(Claim::took_over);
                if most > 1 && !is_alone(&ready) {
                    let together = invocation.take_together(ready, most, is_alone);
                    steps.push(self.run_together(together, &lambda, window));
                } else {
                    steps.push(self.run(ready, lambda, window));
                }
                continue;
            }
            let watched = invocation.watched();
            if !watched.is_empty() {
                invocation.looking = true;
                let (indices, candidates): (Vec<_>, Vec<_>) = watched.into_iter().unzip();
                let stop = invocation.window.stop;
                steps.push(Box::pin(async move { Step::Looked(indices, self.engine.watch(&candidates, stop).await) }));
            }
            if invocation.claiming {
                return;
            }
            let seen = invocation.next;
            let (mut waiting, mut candidates) = invocation.take_patient();
            if candidates.is_empty() {
                (waiting, candidates) = self.next_chunk(invocation);
            }
            if !candidates.is_empty() {
                invocation.claiming = true;
                let window = invocation.window;
                steps.push(Box::pin(async move {
                    let standings = self.engine.claim(&candidates, window).await;
                    Step::Claimed(waiting, standings)
                }));
            } else if invocation.next == seen {
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
        let span = span(&info, claim.as_ref());
        let context = RecordContext { record: info, lambda, claim: claim.clone(), stop: window.stop };
        // The handler's own future is made inside, so that a panic in making it is caught too.
        let work = async move {
            if H::PROBES
                && let Some(claim) = context.claim.as_ref().filter(|claim| claim.took_over())
            {
                let look = self.handler.probe(&payload, context.clone());
                if let Probed::Done(found) = probed(claim, |_| look).await? {
                    return Ok(Success::Recover(found));
                }
            }
            self.handler.call(payload, context).await.map(Success::Remember)
        };
        let work = work.instrument(span);
        Box::pin(async move {
            let Some(claim) = claim else {
                let work = async move { work.await.map(drop) };
                return Step::Ran(begun, Ran::Unprotected(self.engine.run_unprotected(window, work).await));
            };
            let finished = self.engine.run(claim.clone(), work, forget).await;
            Step::Ran(begun, Ran::Protected(claim, finished))
        })
    }

    /// Runs several records to their end by one call of the handler.
    fn run_together<'a, Args>(
        &'a self,
        records: Vec<Ready<T>>,
        lambda: &Arc<Context>,
        window: Window,
    ) -> BoxFuture<'a, Step<T>>
    where
        H: Handler<T, Args>,
    {
        let at = self.engine.clock.now();
        let count = records.len();
        let (mut begun, mut claims, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for Ready { index, payload, info, claim, .. } in records {
            begun.push(Begun { index, at });
            claims.push(claim.clone());
            given.push((payload, RecordContext { record: info, lambda: Arc::clone(lambda), claim, stop: window.stop }));
        }
        let span = tracing::info_span!(target: "lambda_once", "records", count);
        let work = async move { self.handler.call_all(given).await }.instrument(span);
        Box::pin(async move {
            let ran = self.engine.run_together(claims, window, work, |verdicts| miscounted(verdicts, count)).await;
            Step::RanTogether(begun, ran)
        })
    }

    /// Puts a record aside that no retry can help.
    fn bury<'a>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>, index: usize, decision: Decision) {
        let letter = invocation.letter(index);
        let (Some((record, body)), Some(letters)) = (letter, &self.options.dead_letters) else {
            return invocation.decided(index, decision);
        };
        invocation.burying += 1;
        let left = invocation.window.settle_by.since(self.engine.clock.now());
        let key = invocation.keys[index];
        steps.push(Box::pin(async move {
            let Report { outcome, .. } = decision.report;
            let (reason, error) = (decision.report.name(), decision.error.as_deref());
            let letter = DeadLetter { record: &record, body: &body, key, outcome, reason, error };
            // The call is made inside, so that a panic in making it is caught too.
            let sent = match bounded(async { letters.send(letter).await }, left).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(text_of(error)),
                Err(Unfinished::Panicked) => Err(Some("putting it aside panicked".to_owned())),
                Err(Unfinished::OutOfTime) => Err(Some("there was no time left".to_owned())),
            };
            Step::Buried(index, decision, sent)
        }));
    }

    fn release<'a>(&'a self, claims: Vec<Claim>, steps: &Steps<'a, T>) {
        if !claims.is_empty() {
            let engine = &self.engine;
            steps.push(Box::pin(async move {
                engine.release(claims).await;
                Step::Released
            }));
        }
    }

    /// Settles all that is due with one call.
    fn settle<'a>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>) {
        invocation.settling += 1;
        invocation.yielded = false;
        let due = std::mem::take(&mut invocation.due);
        let engine = &self.engine;
        steps.push(Box::pin(async move { Step::Settled(engine.settle_together(due).await) }));
    }

    fn finish<'a>(&'a self, invocation: &mut Invocation<S, T>, steps: &Steps<'a, T>, step: Step<T>) {
        match step {
            Step::Released => {}
            Step::Looked(indices, seen) => {
                invocation.looking = false;
                invocation.now = self.engine.clock.now();
                for (index, seen) in indices.into_iter().zip(seen) {
                    invocation.seen(index, seen, self.engine.settings.skew_margin);
                }
            }
            Step::Buried(index, mut decision, sent) => {
                invocation.burying -= 1;
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
                    let engine = &self.engine;
                    steps.push(Box::pin(async move { Step::SettledAgain(engine.settle_again(open).await) }));
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
                self.conclude(invocation, index, &claim, conclusion);
            }
            Ran::Protected(_, Finished::Due(due)) => {
                if due.is_release() && !invocation.may_be_buried(index) {
                    invocation.lanes.fail(index);
                }
                invocation.unsettled += 1;
                invocation.due.push((index, due));
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
                    && let Some(candidate) = ready.again.take()
                {
                    let now = self.engine.clock.now();
                    let looks = Backoff::default();
                    let mut patient = Patient { ready, candidate, until, refusal, look_at: now, looks };
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

    fn conclude_settled(&self, invocation: &mut Invocation<S, T>, concluded: Vec<(usize, Claim, Conclusion<()>)>) {
        for (index, claim, conclusion) in concluded {
            invocation.unsettled -= 1;
            self.conclude(invocation, index, &claim, conclusion);
        }
    }

    fn conclude(&self, invocation: &mut Invocation<S, T>, index: usize, claim: &Claim, conclusion: Conclusion<()>) {
        let replay = |refusal| Ok::<_, Infallible>(replayed(refusal));
        let Ok(outcome) = conclusion.into_outcome(claim, |()| (), replay);
        invocation.decide(index, Ok(outcome));
    }
}

/// The text of an error of the user's, if it has one: to print or to drop it may panic.
fn text_of(error: BoxError) -> Option<String> {
    let text = contain(|| error.to_string());
    let _ = contain(|| drop(error));
    text
}

/// What a handler logs is about its record. The trace that the message's sender has begun is named, for whoever links traces.
fn span(record: &RecordInfo, claim: Option<&Claim>) -> Span {
    tracing::info_span!(
        target: "lambda_once",
        "record",
        message_id = record.id(),
        key = claim.map(|claim| tracing::field::display(claim.key())),
        attempt = claim.map(Claim::attempt),
        aws_trace_header = record.attribute("AWSTraceHeader"),
    )
}
