//! What is logged, under which names.
//!
//! All events have the target `lambda_once` and are written through `tracing`; the library installs no subscriber.
//! Names of fields and values of `outcome` are stable. No event of ours holds a payload or a plain key; texts of a
//! handler's own errors and panics are logged as they are, so keep those out of them too.
//!
//! | field | what |
//! |---|---|
//! | `outcome` | the outcome of the operation: [`Outcome::as_str`](crate::Outcome::as_str), or [`ErrorKind::as_str`](crate::ErrorKind::as_str); `unprotected` if an HTTP request ran without its claim since the store was unavailable |
//! | `operation` | the operation's name, or the kind of the service; on a [named engine](crate::Idempotency#names) `name.` stands before it |
//! | `key` | the hash of the key, as the store has it |
//! | `attempt` | how often the key has been granted; 0 where nothing was. Not for records of a batch |
//! | `message_id`, `receive_count` | of a record of a batch: which message, and which delivery of it |
//! | `reported` | of a record of a batch: whether it is in the list of failures |
//! | `dead_lettered` | of a record of a batch: `true` if it was dead-lettered, or has the key and the payload of one that was |
//! | `error` | what went wrong, if something did |
//!
//! The handler of a record runs in a span `record` at *info*, with `message_id`, `key`, `attempt` and `aws_trace_header` (of an
//! SQS message that has one: the trace that its sender has begun), so that what the handler logs says which record it is about.
//! A handler of several records at once runs in a span `records` with their `count`.
//!
//! At the end of each batch one event `batch` at *info* says how many `records` it had, how many were `executed`, `replayed`,
//! `failed` and `reported`, and how many were in any `other` state.
//!
//! Levels: *debug* for what is expected (executed, replayed, ignored), *info* for what will be tried again (in progress, not
//! started, skipped, a transient failure), for what is superseded, for replayed failures and for what a probe has recovered, *warn* for what needs
//! a look (took over, mismatch, abandoned, a permanent or unknown failure, a probe that failed), *error* for what was lost
//! or left open (panicked, cut off, unrecorded, lease lost, trouble with the store).

mod emf;
mod observer;
mod tally;

use std::{future::Future, sync::Arc};

pub use emf::Emf;
use futures_util::FutureExt;
pub(crate) use observer::Observers;
pub use observer::{EndEvent, EntryPoint, Observer, OperationEvent};
use tally::KeyTally;
pub(crate) use tally::{Tallied, TalliedStore, Tally};
use tokio::time::Instant;

use crate::{
    error::{Error, ErrorKind},
    idempotency::{claim::Claim, handle::Idempotency, outcome::OutcomeKind, verdict::Verdict},
    record::KeyHash,
};

/// How loudly an outcome is logged.
pub(crate) const fn level(outcome: OutcomeKind) -> tracing::Level {
    match outcome {
        OutcomeKind::Executed | OutcomeKind::Replayed | OutcomeKind::ReplayedWithoutResult | OutcomeKind::Ignored => {
            tracing::Level::DEBUG
        }
        OutcomeKind::InProgress
        | OutcomeKind::NotStarted
        | OutcomeKind::Skipped
        | OutcomeKind::ReplayedFailure
        | OutcomeKind::Recovered
        | OutcomeKind::Superseded
        | OutcomeKind::Failed(Verdict::Transient) => tracing::Level::INFO,
        OutcomeKind::TookOver | OutcomeKind::Mismatch | OutcomeKind::Abandoned | OutcomeKind::Failed(_) => {
            tracing::Level::WARN
        }
        OutcomeKind::Interrupted(_) | OutcomeKind::Unrecorded | OutcomeKind::LeaseLost => tracing::Level::ERROR,
    }
}

/// `tracing::event!` wants its level at compile time.
macro_rules! event_at {
    ($level:expr, $($fields:tt)+) => {
        match $level {
            tracing::Level::ERROR => tracing::error!(target: "lambda_once", $($fields)+),
            tracing::Level::WARN => tracing::warn!(target: "lambda_once", $($fields)+),
            tracing::Level::INFO => tracing::info!(target: "lambda_once", $($fields)+),
            _ => tracing::debug!(target: "lambda_once", $($fields)+),
        }
    };
}
#[cfg(feature = "batch")]
pub(crate) use event_at;

/// A handler that is under way.
#[derive(Debug)]
pub(crate) struct HandlerTimer {
    key: KeyHash,
    begun: Instant,
}

/// What an operation is: how it came, its name in logs, and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) entry_point: EntryPoint,
    pub(crate) operation: &'a str,
    /// `None` for one that runs unprotected, or could not be looked for.
    pub(crate) key: Option<KeyHash>,
}

impl Subject<'_> {
    /// How loudly an outcome is logged: that of an invocation is its summary.
    fn level(self, outcome: OutcomeKind) -> tracing::Level {
        match level(outcome) {
            tracing::Level::DEBUG if self.entry_point == EntryPoint::Invocation => tracing::Level::INFO,
            level => level,
        }
    }
}

impl Idempotency {
    /// Awaits what serves one batch, request, invocation or operation, which observers are told the end of.
    ///
    /// No `async fn`: that would hold the future twice.
    pub(crate) fn observed<'a, F: Future>(
        &'a self,
        entry_point: EntryPoint,
        operation: &'a str,
        future: F,
    ) -> impl Future<Output = F::Output> + use<'a, F> {
        let observers = &self.settings.observers;
        let tally = (!observers.is_empty()).then(Arc::<Tally>::default);
        let is_nested = tally.is_some() && Tally::current().is_some();
        Tallied::new(tally.clone(), future).map(move |output| {
            if let Some(tally) = tally {
                let (operations, store_calls) = tally.totals();
                observers.end(&EndEvent { entry_point, operation, operations, store_calls, is_nested });
            }
            output
        })
    }

    /// A handler begins: times it, if anybody wants to know how long it takes. In a box, since few do: every run has room for it.
    pub(crate) fn handler_begins(&self, claim: Option<&Claim>) -> Option<Box<HandlerTimer>> {
        if self.settings.observers.is_empty() {
            return None;
        }
        claim.map(|claim| Box::new(HandlerTimer { key: claim.key(), begun: Instant::now() }))
    }

    /// The handler has returned.
    pub(crate) fn handler_returned(&self, timer: Option<Box<HandlerTimer>>) {
        if let Some(timer) = timer {
            tally::handled(timer.key, timer.begun.elapsed(), self.clock.now());
        }
    }

    /// Tells observers of an operation, by the current tally.
    pub(crate) fn observe(&self, subject: Subject<'_>, outcome: Result<OutcomeKind, ErrorKind>) {
        if self.settings.observers.is_empty() {
            return;
        }
        let tally = Tally::current();
        if let Some(tally) = &tally {
            tally.count_operation();
        }
        let Subject { entry_point, operation, key } = subject;
        let of_key = tally.zip(key).map(|(tally, key)| tally.of_key(&key)).unwrap_or_default();
        let KeyTally {
            store_calls, attempt, took_over, claim_time, handler_time, settle_time, lease_remaining, ..
        } = of_key;
        self.settings.observers.operation(&OperationEvent {
            entry_point,
            operation,
            outcome,
            key,
            attempt,
            took_over,
            claim_time,
            handler_time,
            settle_time,
            lease_remaining,
            store_calls,
        });
    }

    /// Logs an operation whose outcome could not be decided, and tells observers.
    pub(crate) fn tell_error(&self, subject: Subject<'_>, error: &Error) {
        let Subject { operation, key, .. } = subject;
        let outcome = error.kind().as_str();
        match key {
            Some(key) => tracing::error!(target: "lambda_once", outcome, operation, %key, %error, "operation"),
            // It could not be looked for: it has no hash.
            None => tracing::warn!(target: "lambda_once", outcome, operation, %error, "operation"),
        }
        self.observe(subject, Err(error.kind()));
    }

    /// Logs an outcome and the attempt it took, and tells observers.
    pub(crate) fn tell_outcome(&self, subject: Subject<'_>, outcome: OutcomeKind, attempt: u64) {
        let Subject { operation, key, .. } = subject;
        let (level, name) = (subject.level(outcome), outcome.as_str());
        match key {
            Some(key) => event_at!(level, outcome = name, operation, %key, attempt, "operation"),
            None => event_at!(level, outcome = name, operation, "operation"),
        }
        self.observe(subject, Ok(outcome));
    }
}
