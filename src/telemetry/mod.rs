//! Names of logged fields, spans, events and metrics.
//!
//! ```no_run
//! use lambda_once::{Idempotency, MemoryStore, telemetry::Emf};
//!
//! # fn main() -> Result<(), lambda_once::Error> {
//! tracing_subscriber::fmt().json().init(); // events
//! let once = Idempotency::builder(MemoryStore::new()).observer(Emf::new("Payments")).build()?; // and metrics
//! # Ok(()) }
//! ```
//!
//! All events have the target `lambda_once` and are written through `tracing`. The library installs no subscriber.
//! Names of fields and values of `outcome` are stable. No event contains a payload or a plain key. The texts of a
//! handler's errors and panics are logged unchanged, so they should not contain them either.
//!
//! | field | content |
//! |---|---|
//! | `outcome` | the outcome of the operation: [`Outcome::as_str`](crate::Outcome::as_str), or [`ErrorKind::as_str`](crate::ErrorKind::as_str); `unprotected` if an HTTP request ran without a claim because the store was unavailable |
//! | `code` | of an HTTP request that was refused before anything was claimed: the [code](crate::http#refusals) of the refusal, unless it is `misconfigured` or `hook_failed` |
//! | `suppressed` | of such a refusal at *warn*: the number of further refusals with this code since the last warning |
//! | `verdict` | of `failed`: `transient`, `permanent` or `unknown` |
//! | `operation` | the operation's name, or the kind of the service; on a [named engine](crate::Idempotency#names) `name.` precedes it |
//! | `key` | the hash of the key, as stored |
//! | `differs` | of a mismatch: the parts in which the payload differs from the recorded one, if they are known, separated by commas: `method_and_path`, `query`, `headers`, `body` |
//! | `attempt` | the number of grants of the key, 0 if nothing was granted. Not for records of a batch |
//! | `message_id`, `receive_count` | of a record of a batch: the message, and the number of the delivery |
//! | `reported` | of a record of a batch: whether it is in the list of failures |
//! | `dead_lettered` | of a record of a batch: `true` if it was dead-lettered, or has the key and the payload of one that was |
//! | `error` | the text of the error, if there is one. For `replayed_failure` it is the text of the recorded failure, except in batches, which do not read it |
//!
//! # Spans
//!
//! The handler of a record runs in a span `record` at *info*, with `message_id`, `key`, `attempt` and `aws_trace_header` (of an
//! SQS message that has one: the trace that its sender has begun). The handler's own events then name their record.
//! A handler of several records at once runs in a span `records` with their `count`.
//!
//! The other spans are at *debug*, with the names of OpenTelemetry's
//! [semantic conventions](https://opentelemetry.io/docs/specs/semconv/):
//!
//! | span | name and kind in a trace | attributes |
//! |---|---|---|
//! | `batch` | `process sqs` (the operation's name), consumer | `messaging.system`, `messaging.destination.name` (if all records have the same), `messaging.operation.name`, `messaging.operation.type`, `messaging.batch.message_count`, `faas.trigger`, `faas.invocation_id` |
//! | `process`, around `record` or `records` | `process orders` (the name of the queue, topic or stream), consumer | the same without the count and `faas.*`; `messaging.message.id`, `messaging.destination.partition.id`. Around `records` with the count |
//! | `operation`, `request`, `invocation` | the operation's name, internal | `key` (its hash), `attempt`, `outcome`; `faas.invocation_id` of an invocation |
//! | `call`, to the store | `claim idempotency` (the table's name), `BATCH complete idempotency`; client | `db.system.name`, `db.collection.name`, `db.operation.name`, `db.operation.batch.size` |
//!
//! The status is *error*, with `error.type` (an [`ErrorKind`](crate::ErrorKind) or an outcome), of a `call` of which a request failed,
//! of a `process` whose handler failed, of a `batch` that returns an error, and of an operation that ends in an error or whose outcome
//! is lost or left open. A `call` may take several requests, or none if a `CachedStore` has every result. EventBridge's events do not
//! name their bus.
//!
//! # Events
//!
//! Each batch ends with one event `batch` at *info*. It counts the batch's `records`, and of them those that were `executed`, that
//! were duplicates of finished operations (`duplicates_saved`), that `failed`, that ended in `errors`, such as an error of the
//! store, that had any `other` outcome, and that were `reported`. [`Emf`] counts the same under `Operations`, `Executed` and
//! `TookOver`, `DuplicatesSaved`, the names of failures, and `Errors`.
//!
//! | level | outcomes |
//! |---|---|
//! | *debug* | executed, replayed, ignored |
//! | *info* | retries (in progress, not started, skipped, a transient failure), superseded, replayed failures, replays of another payload version, recovered by a probe |
//! | *warn* | took over, mismatch, abandoned, a permanent or unknown failure, a failed probe |
//! | *error* | outcomes that are lost or unresolved (panicked, cancelled, unrecorded, lease lost), errors of the store |
//!
//! An HTTP request that is refused before anything is claimed is logged at *info*, or at *error* if the code is
//! `misconfigured` or `hook_failed`. Three codes are logged at *warn*, each at most once a minute by each layer:
//! `caller_unknown` and `key_missing`, because an authorizer or a client may be misconfigured, and `overloaded`. Observers are notified of every refusal. A replay that
//! [`before_replay`](crate::http::IdempotencyKeyLayer::before_replay) refuses has the outcome `replay_refused`, at
//! *info*, or at *warn* if the hook panics or takes too long.

mod emf;
mod observer;
pub(crate) mod spans;
mod tally;

pub use emf::Emf;
pub(crate) use observer::Observers;
pub use observer::{EndEvent, EntryPoint, Observer, OperationEvent};
pub(crate) use tally::{KeyTally, Tallied, TalliedStore, Tally, handled};

use crate::idempotency::{outcome::OutcomeKind, verdict::Verdict};

/// The level at which an outcome is logged.
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
pub(crate) use event_at;
