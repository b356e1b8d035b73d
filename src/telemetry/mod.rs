//! Logs, spans and metrics, with their names.
//!
//! All events have the target `lambda_once` and are written through `tracing`. The library installs no subscriber. The
//! names of fields and the values of `outcome` are stable. No event of the library contains a payload or a plain key.
//! The texts of a handler's errors and panics are logged unchanged, so they should contain neither.
//!
//! | field | description |
//! |---|---|
//! | `outcome` | the outcome of the operation: [`Outcome::as_str`](crate::Outcome::as_str), or [`ErrorKind::as_str`](crate::ErrorKind::as_str); `unprotected` if an HTTP request ran without its claim because the store was unavailable |
//! | `verdict` | for `failed`: `transient`, `permanent` or `unknown` |
//! | `operation` | the operation's name, or the kind of the service; on a [named engine](crate::Idempotency#names) with the prefix `name.` |
//! | `key` | the stored hash of the key |
//! | `differs` | for a mismatch, the known parts in which the payload differs from the stored one, separated by commas: `method_and_path`, `query`, `headers`, `body` |
//! | `attempt` | the number of grants of the key so far; 0 if nothing was granted. Not for records of a batch |
//! | `message_id`, `receive_count` | for a record of a batch: the message, and the number of its deliveries |
//! | `reported` | for a record of a batch: whether it is in the list of failures |
//! | `dead_lettered` | for a record of a batch: `true` if it was dead-lettered, or has the key and payload of one that was |
//! | `error` | the text of the error, if there is one. For `replayed_failure` it is that of the stored failure, except in batches, which do not read it |
//!
//! # Spans
//!
//! The handler of a record runs in a span `record` at *info*, with `message_id`, `key`, `attempt` and
//! `aws_trace_header` (the trace header that the sender of an SQS message has set), so that the handler's logs identify
//! the record. A handler of several records runs in a span `records` with their `count`.
//!
//! At *debug* there are the spans `batch`, `process` around `record` or `records`, `operation`, `request`,
//! `invocation`, and `call` for a call to the store, with the names of OpenTelemetry's [semantic
//! conventions](https://opentelemetry.io/docs/specs/semconv/). `docs/observability.md` lists them.
//!
//! # Events
//!
//! Each batch ends with one event `batch` at *info*. It counts the batch's `records`, and of these the records that
//! were `executed`, duplicates of finished operations (`duplicates_saved`), those that `failed`, that ended in `errors`
//! (such as store errors), that had any `other` outcome, and that were `reported`. [`Emf`] counts the same under
//! `Operations`, `Executed` and `TookOver`, `DuplicatesSaved`, the names of failures, and `Errors`.
//!
//! The levels are:
//!
//! * *debug* for expected outcomes: executed, replayed, ignored
//! * *info* for operations that will be retried (in progress, not started, skipped, a transient failure), for
//!   superseded operations, replayed failures, replays of a different payload version, and operations recovered by a
//!   probe
//! * *warn* for outcomes that may need attention: took over, mismatch, abandoned, a permanent or unknown failure, a
//!   failed probe
//! * *error* for lost or unresolved outcomes: panicked, cancelled, unrecorded, lease lost, store errors

mod emf;
mod observer;
pub(crate) mod spans;
mod tally;

pub use emf::Emf;
pub(crate) use observer::Observers;
pub use observer::{EndEvent, EntryPoint, Observer, OperationEvent};
pub(crate) use tally::{KeyTally, Tallied, TalliedStore, Tally, handled};

use crate::idempotency::{outcome::OutcomeKind, verdict::Verdict};

/// Returns the level at which an outcome is logged.
pub(crate) const fn level(outcome: OutcomeKind) -> tracing::Level {
    match outcome {
        OutcomeKind::Executed | OutcomeKind::Replayed | OutcomeKind::ReplayedWithoutResult | OutcomeKind::Ignored => {
            tracing::Level::DEBUG
        }
        OutcomeKind::InProgress
        | OutcomeKind::NotStarted
        | OutcomeKind::Skipped
        | OutcomeKind::ReplayedFailure
        | OutcomeKind::ReplayedOtherVersion
        | OutcomeKind::Recovered
        | OutcomeKind::Superseded
        | OutcomeKind::Failed(Verdict::Transient) => tracing::Level::INFO,
        OutcomeKind::TookOver | OutcomeKind::Mismatch | OutcomeKind::Abandoned | OutcomeKind::Failed(_) => {
            tracing::Level::WARN
        }
        OutcomeKind::Interrupted(_) | OutcomeKind::Unrecorded | OutcomeKind::LeaseLost => tracing::Level::ERROR,
    }
}

/// Logs at a level that is known only at run time, which `tracing::event!` does not support.
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
pub(crate) use event_at;
