//! What takes time: calls to the store, handlers, dead letters. Each is a task while it is under way, and a step when it has
//! come to its end.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use lambda_runtime::Context;
use tracing::{Instrument, Span};

use super::{
    Processor,
    stages::{Begun, Ready},
};
use crate::{
    BoxError, Claim, Error, Probed,
    batch::{
        DeadLetter, DeadLetters, Handler, RecordContext, RecordInfo,
        bulk::miscounted,
        report::{Decision, Report},
        source::Source,
    },
    clock::Timestamp,
    idempotency::{
        engine::{Candidate, Concluded, Due, Open, Ran, Seen, Settling, Standing, Success, probed},
        guard::{Unfinished, bounded, contain},
        window::Window,
    },
    record::KeyHash,
};

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
    PutAside(usize, Decision, Arc<RecordInfo>, Vec<u8>, Option<KeyHash>),
}

/// A task has come to its end.
pub(super) enum Step<T> {
    Claimed(Vec<Ready<T>>, Vec<Result<Standing, Error>>),
    /// The batch was stopped before the first poll of a run of these.
    NotBegun(Vec<Ready<T>>),
    /// A handler has ended.
    Ran(Begun, Ran<()>),
    /// A handler of several records has ended.
    RanTogether(Vec<Begun>, Vec<Ran<()>>),
    /// The first call for claims that were settled together.
    Settled(Settling<usize, ()>),
    /// Those of them that took more than one call.
    SettledAgain(Vec<Concluded<usize, ()>>),
    Released,
    /// A look at what is waited for.
    Looked(Vec<usize>, Vec<Result<Seen, Error>>),
    /// A record was put aside, or could not be, for this reason.
    PutAside(usize, Decision, Result<(), Option<String>>),
}

impl<S, H, T> Processor<S, H, T>
where
    S: Source,
    T: Send + 'static,
{
    /// Does what takes time. Most tasks are runs, so what others need is put into boxes: each run would have to have room
    /// for it.
    pub(super) async fn perform<Args>(
        &self,
        task: Task<T>,
        lambda: &Arc<Context>,
        window: Window,
        halted: &AtomicBool,
    ) -> Step<T>
    where
        H: Handler<T, Args>,
    {
        let is_halted = halted.load(Ordering::Relaxed);
        match task {
            Task::Run(_, ready) if is_halted => Step::NotBegun(vec![ready]),
            Task::RunTogether(_, records) if is_halted => Step::NotBegun(records),
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
            Task::PutAside(index, decision, record, body, key) => {
                let left = window.settle_by.since(self.engine.clock.now());
                let letters = self.options.dead_letters.as_deref();
                let sent = Box::pin(send_letter(letters, left, &decision, &record, &body, key)).await;
                Step::PutAside(index, decision, sent)
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
