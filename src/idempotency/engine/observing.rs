//! Logs operations, and notifies observers.

use std::{future::Future, sync::Arc};

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::{Instrument, Level, Span};

use super::Engine;
use crate::{
    error::{Error, ErrorKind},
    idempotency::outcome::{Outcome, OutcomeKind},
    record::{Difference, KeyHash},
    telemetry::{self, EndEvent, EntryPoint, KeyTally, OperationEvent, Tallied, Tally, event_at, spans},
};

/// The time of a handler that is running.
pub(crate) struct HandlerTimer {
    key: KeyHash,
    begun: Instant,
}

/// The identity of an operation: its entry point, its name in logs, and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) entry_point: EntryPoint,
    pub(crate) operation: &'a str,
    /// `None` if it runs unprotected, or if its key could not be determined.
    pub(crate) key: Option<KeyHash>,
    /// The parts in which its payload differs from that on record, if its outcome is a mismatch and they are known.
    pub(crate) difference: Difference,
    /// Whether a Lambda function was invoked for it. If so, its outcome is logged at *info* or higher.
    pub(crate) is_invocation: bool,
    /// Whether it has the key of another record of its batch, whose measurements are not its own.
    pub(crate) is_duplicate: bool,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(entry_point: EntryPoint, operation: &'a str, key: Option<KeyHash>) -> Self {
        let is_invocation = entry_point == EntryPoint::Invocation;
        Self { entry_point, operation, key, difference: Difference::UNKNOWN, is_invocation, is_duplicate: false }
    }

    /// Returns the log level of an outcome.
    fn level(self, outcome: OutcomeKind) -> tracing::Level {
        match telemetry::level(outcome) {
            tracing::Level::DEBUG if self.is_invocation => tracing::Level::INFO,
            level => level,
        }
    }
}

impl Engine {
    /// Awaits the future that serves one batch, request, invocation or operation, in its span. Notifies observers of
    /// its end.
    ///
    /// Not an `async fn`, which would hold the future twice.
    pub(crate) fn observed<'a, F: Future>(
        &'a self,
        entry_point: EntryPoint,
        operation: &'a str,
        span: Span,
        future: F,
    ) -> impl Future<Output = F::Output> + use<'a, F> {
        let observers = &self.settings.observers;
        let tally = (!observers.is_empty()).then(|| Arc::new(Tally::new(observers.clone())));
        let is_nested = tally.is_some() && Tally::reports_to(observers);
        Tallied::new(tally.clone(), future)
            .map(move |output| {
                if let Some(tally) = tally {
                    let (operations, store_calls) = tally.totals();
                    observers.end(&EndEvent { entry_point, operation, operations, store_calls, is_nested });
                }
                output
            })
            .instrument(span)
    }

    /// Calls a handler and awaits it. Notifies observers of its duration, if it runs under the claim of `key`. Must be
    /// called when the handler begins.
    ///
    /// Not an `async fn`, which would hold the handler's future twice.
    #[inline]
    pub(crate) fn timed<F: Future>(
        &self,
        key: Option<KeyHash>,
        handler: impl FnOnce() -> F,
    ) -> impl Future<Output = F::Output> {
        let timer = self.handler_begins(key);
        handler().inspect(move |_| self.handler_returned(timer))
    }

    /// Calls a handler for several operations, and awaits it as [`timed`](Self::timed) does.
    #[cfg(feature = "batch")]
    pub(crate) fn timed_together<F: Future>(
        &self,
        keys: impl Iterator<Item = Option<KeyHash>>,
        handler: impl FnOnce() -> F,
    ) -> impl Future<Output = F::Output> {
        let timers: Vec<_> = keys.map(|key| self.handler_begins(key)).collect();
        handler().inspect(move |_| timers.into_iter().for_each(|timer| self.handler_returned(timer)))
    }

    /// Starts to time a handler, if there are observers. Boxed, because that is rare and every run reserves space for
    /// it.
    #[inline]
    pub(crate) fn handler_begins(&self, key: Option<KeyHash>) -> Option<Box<HandlerTimer>> {
        if self.settings.observers.is_empty() {
            return None;
        }
        key.map(|key| Box::new(HandlerTimer { key, begun: Instant::now() }))
    }

    /// Notifies observers of the duration of a handler that has returned.
    #[inline]
    pub(crate) fn handler_returned(&self, timer: Option<Box<HandlerTimer>>) {
        if let Some(timer) = timer {
            telemetry::handled(timer.key, timer.begun.elapsed(), self.clock.now());
        }
    }

    /// Notifies observers of an operation, by the current tally.
    pub(crate) fn observe(&self, subject: Subject<'_>, outcome: Result<OutcomeKind, ErrorKind>) {
        if self.settings.observers.is_empty() {
            return;
        }
        let tally = Tally::current();
        if let Some(tally) = &tally {
            tally.count_operation();
        }
        let Subject { entry_point, operation, key, difference, is_duplicate, .. } = subject;
        let of_key = tally.zip(key).map(|(tally, key)| tally.of_key(&key)).unwrap_or_default();
        let of_key =
            if is_duplicate { KeyTally { store_calls: of_key.store_calls, ..KeyTally::default() } } else { of_key };
        let KeyTally {
            store_calls, attempt, took_over, claim_time, handler_time, settle_time, lease_remaining, ..
        } = of_key;
        self.settings.observers.operation(&OperationEvent {
            entry_point,
            operation,
            outcome,
            difference,
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

    /// Logs an operation whose outcome could not be decided, and notifies observers.
    pub(crate) fn tell_error(&self, subject: Subject<'_>, error: &Error) {
        spans::conclude(subject.key, 0, error.kind().as_str(), Level::ERROR);
        self.log_and_observe_error(subject, error);
    }

    /// Logs the error of an operation that runs nevertheless, unprotected, and notifies observers.
    pub(crate) fn log_and_observe_error(&self, subject: Subject<'_>, error: &Error) {
        let Subject { operation, key, .. } = subject;
        let outcome = error.kind().as_str();
        match key {
            Some(key) => tracing::error!(target: "lambda_once", outcome, operation, %key, %error, "operation"),
            // It has no hash, because its key could not be determined.
            None => tracing::warn!(target: "lambda_once", outcome, operation, %error, "operation"),
        }
        self.observe(subject, Err(error.kind()));
    }

    /// Logs an outcome with its error and its attempt, and notifies observers.
    pub(crate) fn tell<T>(&self, subject: Subject<'_>, outcome: &Outcome<T>, attempt: u64) {
        // The text of an earlier failure was encoded in the store, perhaps to be secret.
        let is_encoded = self.settings.codec.is_some() && matches!(outcome, Outcome::ReplayedFailure(_));
        let reason = if is_encoded { None } else { outcome.reason() };
        let subject = Subject { difference: outcome.difference(), ..subject };
        self.tell_outcome(subject, outcome.kind(), reason.as_deref(), attempt);
    }

    /// Logs an outcome without its value, and notifies observers. `error` is the text of its error.
    pub(crate) fn tell_outcome(&self, subject: Subject<'_>, outcome: OutcomeKind, error: Option<&str>, attempt: u64) {
        let Subject { operation, key, difference, .. } = subject;
        let (level, name, verdict) = (subject.level(outcome), outcome.as_str(), outcome.verdict());
        let differs = difference.is_known().then(|| difference.names());
        match key {
            Some(key) => {
                event_at!(level, outcome = name, verdict, operation, %key, attempt, differs, error, "operation")
            }
            None => event_at!(level, outcome = name, verdict, operation, error, "operation"),
        }
        spans::conclude(key, attempt, name, level);
        self.observe(subject, Ok(outcome));
    }
}
