//! Spans of operations and store calls, named by OpenTelemetry's [semantic
//! conventions](https://opentelemetry.io/docs/specs/semconv/).
//!
//! They are at *debug*. The macros evaluate their fields only if a subscriber needs them. `enabled!` is never used,
//! because a layer of `tracing-subscriber` whose filter rejects that check would then lose the next event.

use tracing::{Level, Span, field::Empty, level_filters::LevelFilter};

use crate::{
    error::Error,
    record::KeyHash,
    store::{Database, Store},
};

/// Returns whether a subscriber may be interested in this level. A disabled span of the macros still reaches the `log`
/// crate at each poll, unlike [`Span::none`].
pub(crate) fn are_wanted(level: Level) -> bool {
    level <= LevelFilter::current()
}

macro_rules! operation_span {
    ($name:literal, $operation:expr $(, $($fields:tt)+)?) => {
        if !are_wanted(Level::DEBUG) {
            Span::none()
        } else { tracing::debug_span!(
            target: "lambda_once",
            $name,
            otel.name = $operation,
            otel.kind = "internal",
            otel.status_code = Empty,
            operation = $operation,
            $($($fields)+,)?
            key = Empty,
            attempt = Empty,
            outcome = Empty,
            error.type = Empty,
        ) }
    };
}

/// Creates the span of an operation of [`Idempotency::operation`](crate::Idempotency::operation).
pub(crate) fn operation(operation: &str) -> Span {
    operation_span!("operation", operation)
}

/// Creates the span of a request with an `Idempotency-Key`, inside the server's span.
#[cfg(feature = "http")]
pub(crate) fn request(operation: &str) -> Span {
    operation_span!("request", operation)
}

/// Creates the span of an invocation with a stored result, inside the runtime's span.
#[cfg(feature = "invocation")]
pub(crate) fn invocation(operation: &str, context: &lambda_runtime::Context) -> Span {
    let id = &context.request_id;
    operation_span!("invocation", operation, faas.invocation_id = id)
}

/// Returns the current span, if it belongs to an operation.
fn current() -> Option<Span> {
    let span = are_wanted(Level::DEBUG).then(Span::current)?;
    let is_ours = span.metadata()?.target() == "lambda_once" && span.has_field("outcome");
    is_ours.then_some(span)
}

/// Adds the outcome to the current span, if it belongs to an operation.
pub(crate) fn conclude(key: Option<KeyHash>, attempt: u64, outcome: &'static str, level: Level) {
    let Some(span) = current() else { return };
    span.record("outcome", outcome);
    if attempt > 0 {
        span.record("attempt", attempt.cast_signed());
    }
    if let Some(key) = key {
        span.record("key", tracing::field::display(key));
    }
    if level == Level::ERROR {
        fail(&span, outcome);
    }
}

/// Notes in the current span that a request runs without its claim. This sets the status, because exporters otherwise
/// mark spans with *error* events, such as the event for a store error, as failed.
#[cfg(feature = "http")]
pub(crate) fn conclude_unprotected(key: KeyHash) {
    conclude(Some(key), 0, "unprotected", Level::WARN);
    if let Some(span) = current() {
        span.record("otel.status_code", "OK");
    }
}

/// Converts a number for OpenTelemetry, because exporters write unsigned numbers as text.
pub(crate) fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Creates the span of a store call with this number of requests.
pub(crate) fn call(store: &dyn Store, operation: &'static str, requests: usize) -> Span {
    if !are_wanted(Level::DEBUG) {
        return Span::none();
    }
    let batch = if requests > 1 { "BATCH " } else { "" };
    tracing::debug_span!(
        target: "lambda_once",
        "call",
        otel.name = format_args!("{batch}{operation} {}", target_of(store.database())),
        otel.kind = "client",
        otel.status_code = Empty,
        db.system.name = store.database().system,
        db.collection.name = store.database().collection,
        db.operation.name = format_args!("{batch}{operation}"),
        db.operation.batch.size = (requests > 1).then(|| integer(requests)),
        error.type = Empty,
    )
}

fn target_of(database: Database<'_>) -> &str {
    database.collection.unwrap_or(database.system)
}

/// Adds the first error of a call's results to its span.
pub(crate) fn answered<'a>(span: &Span, error: impl FnOnce() -> Option<&'a Error>) {
    if !span.is_disabled()
        && let Some(error) = error()
    {
        fail(span, error.kind().as_str());
    }
}

/// Marks a span as failed.
pub(crate) fn fail(span: &Span, error: &'static str) {
    span.record("otel.status_code", "ERROR").record("error.type", error);
}
