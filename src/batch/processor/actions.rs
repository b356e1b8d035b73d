//! Async actions: store calls, handlers and dead letters. The machine selects them and gets their results.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::Either};
use lambda_runtime::Context;
use tracing::Instrument;

use super::{
    drive::Processor,
    steps::{Action, Event, OfEach, Run},
};
use crate::{
    batch::{
        bulk::miscounted,
        context::{RecordContext, TransactionSlot},
        dead_letters::{DeadLetter, DeadLetters},
        handler::Handler,
        record::RecordInfo,
        report::{self, Decision},
        source::Source,
        spans::{self, HandlerSpans},
    },
    clock::Timestamp,
    error::{BoxError, Error},
    future::BoxFuture,
    idempotency::{
        claim::Claim,
        engine::{Candidate, Engine, Polled, Success, earlier_result},
        guard::{Bounds, Unfinished, bounded, catch_panic, drop_contained},
        verdict::Failure,
        window::Window,
    },
    record::KeyHash,
    store::ResultData,
};

impl<S, H, T> Processor<S, H, T>
where
    S: Source,
    T: Send + 'static,
{
    /// Starts a call.
    pub(super) fn call(&self, action: Action, window: Window) -> BoxFuture<'_, Event> {
        let (engine, options) = (&self.engine, &self.options);
        match action {
            Action::Claim(claims, begun) => Box::pin(async move {
                let (indices, candidates) = split(claims);
                let (answers, withdrawal) = engine.claim_once(&candidates, window, ResultData::Omit).await;
                Event::Claimed(indices.into_iter().zip(answers).collect(), withdrawal, begun)
            }),
            Action::ClaimAgain(open, until) => Box::pin(async move {
                let (indices, open) = split(open);
                let (answers, withdrawal) = engine.claim_again(open, window, until).await;
                Event::ClaimedAgain(indices.into_iter().zip(answers).collect(), withdrawal)
            }),
            Action::Settle(due) => Box::pin(async move {
                let (indices, ends) = split(due);
                Event::Settled(indices.into_iter().zip(engine.settle_once(ends).await).collect())
            }),
            Action::SettleAgain(open) => Box::pin(async move {
                let (indices, unsettled) = split(open);
                Event::SettledAgain(indices.into_iter().zip(engine.settle_once_more(unsettled).await).collect())
            }),
            Action::Release(claims) => Box::pin(async move {
                engine.release(claims).await;
                Event::Released
            }),
            Action::Withdraw(withdrawal) => Box::pin(async move {
                engine.withdraw(withdrawal, window).await;
                Event::Released
            }),
            Action::Poll(waiting) => Box::pin(read(engine, waiting, window, Event::Polled)),
            Action::LookUp(unclaimed) => Box::pin(read(engine, unclaimed, window, Event::LookedUp)),
            Action::DeadLetter { index, decision, info, body, key } => Box::pin(async move {
                let left = window.settle_by.since(engine.clock.now());
                let letters = options.dead_letters.as_deref();
                let sent = dead_letter(letters, left, &decision, &info, body.as_deref(), key).await;
                Event::DeadLettered(index, decision, sent)
            }),
        }
    }

    /// Runs one record, from `begun`.
    pub(super) fn run<'a, Args>(
        &'a self,
        run: Run<T>,
        lambda: &Arc<Context>,
        begun: Timestamp,
        bounds: Bounds,
        window: Window,
    ) -> impl Future<Output = Event> + Send + use<'a, S, H, T, Args>
    where
        H: Handler<T, Args>,
    {
        let Run { index, payload, claim, info } = run;
        let claim = claim.map(|claim| claim.cancelled_at(bounds.stop));
        let HandlerSpans { log, process } = spans::of_record(&self.source, self.traced, &info, claim.as_ref());
        let transaction = H::FORM.in_transaction.then(TransactionSlot::default);
        let context = self.context(info, claim.clone(), lambda, bounds.stop);
        let given = transaction.clone();
        // The handler's future is created inside, so that a panic in creating it is also caught.
        let work = async move {
            if H::FORM.probes
                && let Some(claim) = context.claim.as_ref().filter(|claim| claim.took_over())
            {
                let look = self.handler.probe(&payload, context.clone());
                if let Some(found) = earlier_result(claim, |_| look).await? {
                    return Ok(Success::Recover(found));
                }
            }
            let key = context.claim.as_ref().map(Claim::key);
            // Equivalent of `timed`, which would move the handler's future twice more for each record.
            let timer = self.engine.handler_begins(key);
            let handled = self.handler.call(payload, RecordContext { transaction: given, ..context }).await;
            self.engine.handler_returned(timer);
            handled.map(Success::Complete)
        };
        let run = self.engine.run(claim, bounds, work.instrument(log), drop_contained);
        let Some(slot) = transaction.filter(|_| H::FORM.in_transaction) else {
            return Either::Left(run.map(move |end| {
                spans::add_end(process.as_deref(), &end);
                Event::Ran(index, end, begun)
            }));
        };
        // Committed immediately, because the outcomes of transactions share no calls.
        let engine = &self.engine;
        let committed = async move {
            let end = run.await;
            spans::add_end(process.as_deref(), &end);
            let end = match slot.take() {
                Some(transaction) => engine.commit(end, window, transaction).await,
                None => end,
            };
            Event::Ran(index, end, begun)
        };
        let committed: BoxFuture<'a, Event> = Box::pin(committed);
        Either::Right(committed)
    }

    /// Runs several records in one call of the handler.
    pub(super) fn run_together<'a, Args>(
        &'a self,
        runs: Vec<Run<T>>,
        lambda: &Arc<Context>,
        begun: Timestamp,
        bounds: Bounds,
    ) -> BoxFuture<'a, Event>
    where
        H: Handler<T, Args>,
    {
        let count = runs.len();
        let (mut indices, mut claims, mut given) = (Vec::new(), Vec::new(), Vec::new());
        for Run { index, payload, info, claim } in runs {
            let claim = claim.map(|claim| claim.cancelled_at(bounds.stop));
            indices.push(index);
            claims.push(claim.clone());
            given.push((payload, self.context(info, claim, lambda, bounds.stop)));
        }
        let first = given.first().map(|(_, context)| &*context.record);
        let HandlerSpans { log, process } = spans::of_records(&self.source, self.traced, count, first);
        let keys: Vec<_> = claims.iter().map(|claim| claim.as_ref().map(Claim::key)).collect();
        let work = async move {
            let verdicts = self.engine.timed_together(keys.into_iter(), || self.handler.call_all(given)).await;
            let found = verdicts.len();
            if found == count {
                return verdicts;
            }
            // The verdicts cannot be assigned to the records.
            drop_contained(verdicts);
            (0..count).map(|_| Err::<H::Output, Failure>(miscounted(found, count))).collect()
        };
        Box::pin(async move {
            let ends = self.engine.run_all(claims, bounds, work.instrument(log)).await;
            ends.iter().for_each(|end| spans::add_end(process.as_deref(), end));
            Event::RanTogether(indices.into_iter().zip(ends).collect(), begun)
        })
    }

    /// Returns the context of a record, without a place for a transaction.
    fn context(
        &self,
        record: Arc<RecordInfo>,
        claim: Option<Claim>,
        lambda: &Arc<Context>,
        stop: Timestamp,
    ) -> RecordContext {
        let (lambda, clock) = (Arc::clone(lambda), Arc::clone(&self.engine.clock));
        RecordContext { record, lambda, claim, stop, clock, transaction: None }
    }
}

/// Separates the indices of records from their values.
fn split<A>(records: OfEach<A>) -> (Vec<usize>, Vec<A>) {
    records.into_iter().unzip()
}

/// Reads records, and judges them as a claim would.
async fn read(
    engine: &Engine,
    candidates: OfEach<Candidate>,
    window: Window,
    event: fn(OfEach<Result<Polled, Error>>) -> Event,
) -> Event {
    let (indices, candidates) = split(candidates);
    let polled = engine.poll(&candidates, window.stop, ResultData::Omit).await;
    event(indices.into_iter().zip(polled).collect())
}

/// Returns the text of a user's error, unless formatting it panics. Dropping it may panic too.
fn text_of(error: BoxError) -> Option<String> {
    let text = catch_panic(|| error.to_string());
    drop_contained(error);
    text
}

/// Dead-letters a record, or returns the reason why that failed.
async fn dead_letter(
    letters: Option<&dyn DeadLetters>,
    left: Duration,
    decision: &Decision,
    record: &RecordInfo,
    body: Option<&[u8]>,
    key: Option<KeyHash>,
) -> Result<(), Option<String>> {
    let letters = letters.ok_or(None)?;
    let body = body.ok_or_else(|| Some("making its dead letter panicked".to_owned()))?;
    let outcome = decision.report.outcome;
    let (reason, error) = (report::name(outcome), decision.error.as_deref());
    let letter = DeadLetter { record, body, key, outcome, reason, error };
    // The call is made inside, so that a panic in making it is also caught.
    match bounded(async { letters.send(letter).await }, left).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(text_of(error)),
        Err(Unfinished::Panicked(_)) => Err(Some("dead-lettering it panicked".to_owned())),
        Err(Unfinished::Cancelled | Unfinished::NotStarted) => Err(Some("there was no time left".to_owned())),
    }
}
