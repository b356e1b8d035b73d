//! Takes the records of one invocation through decoding, claiming, running and settling.
//!
//! It knows nothing of where they come from: a [`Source`] has taken them apart, and is told which of them failed.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use lambda_runtime::Context;
use tracing::{Instrument, Span};

use super::{
    DeadLetter, DeadLetters, Decode, Handler, Options, RecordContext, RecordInfo,
    bulk::miscounted,
    invocation::{Begun, Invocation, Patient, Ready},
    report::{Decision, Report, replayed},
    source::Source,
};
use crate::{
    BoxError, Claim, Error, Idempotency, Key, Outcome, Probed,
    clock::Timestamp,
    idempotency::{
        engine::{Backoff, Candidate, Conclusion, Due, Finished, Open, Ran, Seen, Settling, Standing, Success, probed},
        guard::{Unfinished, bounded, contain},
        window::Window,
    },
    record::KeyHash,
    store::{Refusal, rules::lapses},
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

/// Something to be begun that takes time.
pub(super) enum Task<T> {
    Claim(Vec<Ready<T>>),
    /// Runs one record to its end.
    Run(Begun, Ready<T>),
    /// Runs several records to their end by one call of the handler.
    RunTogether(Timestamp, Vec<Ready<T>>),
    /// Settles all that is due with one call.
    Settle(Vec<(usize, Claim, Due<()>)>),
    /// Settles what takes more than one call.
    SettleAgain(Vec<Open<usize, ()>>),
    Release(Vec<Claim>),
    /// Looks at what is waited for.
    Look(Vec<usize>, Vec<Candidate>),
    /// Puts a record aside.
    Bury(usize, Decision, Arc<RecordInfo>, Vec<u8>, Option<KeyHash>),
}

/// A task has come to its end.
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
        let mut steps = FuturesUnordered::new();
        loop {
            self.start::<Args>(&mut invocation);
            if invocation.schedule.fills_a_call(invocation.due.len()) {
                invocation.settle();
            }
            steps.extend(invocation.tasks.drain(..).map(|task| self.perform(task, &lambda, window)));
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
        while invocation.burying < MOST_BURIED_AT_ONCE
            && let Some((index, decision)) = invocation.take_dead()
        {
            invocation.bury(index, decision);
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

    /// Does what takes time. Most tasks are runs, so what others need is put into boxes: each run would have to have room
    /// for it.
    async fn perform<Args>(&self, task: Task<T>, lambda: &Arc<Context>, window: Window) -> Step<T>
    where
        H: Handler<T, Args>,
    {
        match task {
            Task::Run(begun, ready) => self.run(begun, ready, Arc::clone(lambda), window).await,
            Task::RunTogether(at, records) => Box::pin(self.run_together(at, records, lambda, window)).await,
            Task::Claim(waiting) => {
                let mut candidates = Vec::with_capacity(waiting.len());
                candidates.extend(waiting.iter().filter_map(|ready| ready.candidate));
                let standings = Box::pin(self.engine.claim(&candidates, window)).await;
                Step::Claimed(waiting, standings)
            }
            Task::Settle(due) => Step::Settled(Box::pin(self.engine.settle_together(due)).await),
            Task::SettleAgain(open) => Step::SettledAgain(Box::pin(self.engine.settle_again(open)).await),
            Task::Release(claims) => {
                Box::pin(self.engine.release(claims)).await;
                Step::Released
            }
            Task::Look(indices, candidates) => {
                let seen = Box::pin(self.engine.watch(&candidates, window.stop)).await;
                Step::Looked(indices, seen)
            }
            Task::Bury(index, decision, record, body, key) => {
                let left = window.settle_by.since(self.engine.clock.now());
                let letters = self.options.dead_letters.as_deref();
                let sent = Box::pin(send_letter(letters, left, &decision, &record, &body, key)).await;
                Step::Buried(index, decision, sent)
            }
        }
    }

    fn run<Args>(
        &self,
        begun: Begun,
        ready: Ready<T>,
        lambda: Arc<Context>,
        window: Window,
    ) -> impl Future<Output = Step<T>> + Send
    where
        H: Handler<T, Args>,
    {
        let Ready { payload, info, claim, .. } = ready;
        let span = span(&info, claim.as_ref());
        let context = RecordContext {
            record: info,
            lambda,
            claim: claim.clone(),
            stop: window.stop,
            clock: Arc::clone(&self.engine.clock),
        };
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
        let ran = self.engine.run_record(claim, window, work.instrument(span));
        ran.map(move |ran| Step::Ran(begun, ran))
    }

    async fn run_together<Args>(
        &self,
        at: Timestamp,
        records: Vec<Ready<T>>,
        lambda: &Arc<Context>,
        window: Window,
    ) -> Step<T>
    where
        H: Handler<T, Args>,
    {
        let count = records.len();
        let (mut begun, mut claims, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for Ready { index, payload, info, claim, .. } in records {
            begun.push(Begun { index, at });
            claims.push(claim.clone());
            let (lambda, clock) = (Arc::clone(lambda), Arc::clone(&self.engine.clock));
            given.push((payload, RecordContext { record: info, lambda, claim, stop: window.stop, clock }));
        }
        let span = tracing::info_span!(target: "lambda_once", "records", count);
        let work = async move { self.handler.call_all(given).await }.instrument(span);
        let ran = self.engine.run_together(claims, window, work, |verdicts| miscounted(verdicts, count)).await;
        Step::RanTogether(begun, ran)
    }

    fn finish(&self, invocation: &mut Invocation<S, T>, step: Step<T>) {
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
                self.conclude(invocation, index, &claim, conclusion);
            }
            Ran::Protected(claim, Finished::Due(due)) => {
                if due.is_release() && !invocation.may_be_buried(index) {
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

/// Puts a record aside; or why that failed.
async fn send_letter(
    letters: Option<&dyn DeadLetters>,
    left: Duration,
    decision: &Decision,
    record: &RecordInfo,
    body: &[u8],
    key: Option<KeyHash>,
) -> Result<(), Option<String>> {
    let letters = letters.ok_or(None)?;
    let Report { outcome, .. } = decision.report;
    let (reason, error) = (decision.report.name(), decision.error.as_deref());
    let letter = DeadLetter { record, body, key, outcome, reason, error };
    // The call is made inside, so that a panic in making it is caught too.
    match bounded(async { letters.send(letter).await }, left).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(text_of(error)),
        Err(Unfinished::Panicked) => Err(Some("putting it aside panicked".to_owned())),
        Err(Unfinished::OutOfTime) => Err(Some("there was no time left".to_owned())),
    }
}
