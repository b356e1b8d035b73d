//! Spans of operations and of calls to a store, named by OpenTelemetry's
//! [semantic conventions](https://opentelemetry.io/docs/specs/semconv/).
//!
//! They are at *debug*. The macros evaluate their fields only where a subscriber wants them. Nothing asks `enabled!`: where one
//! layer of `tracing-subscriber` has a filter of its own that says no, that layer then loses the next event.

use tracing::{Level, Span, field::Empty, level_filters::LevelFilter};

use crate::{
    error::Error,
    record::KeyHash,
    store::{Database, Store},
};

/// Whether a subscriber may want this level. A disabled span of the macros still reaches the `log` crate at each poll, unlike
/// [`Span::none`].
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

/// An operation of [`Idempotency::operation`](crate::Idempotency::operation).
pub(crate) fn operation(operation: &str) -> Span {
    operation_span!("operation", operation)
}

/// A request with an `Idempotency-Key`, inside the span that its server has for it.
#[cfg(feature = "http")]
pub(crate) fn request(operation: &str) -> Span {
    operation_span!("request", operation)
}

/// An invocation with a result that is stored, inside the span that the runtime has for it.
#[cfg(feature = "invocation")]
pub(crate) fn invocation(operation: &str, context: &lambda_runtime::Context) -> Span {
    let id = &context.request_id;
    operation_span!("invocation", operation, faas.invocation_id = id)
}

/// The current span, if it is that of an operation.
fn current() -> Option<Span> {
    let span = are_wanted(Level::DEBUG).then(Span::current)?;
    let is_ours = span.metadata()?.target() == "lambda_once" && span.has_field("outcome");
    is_ours.then_some(span)
}

/// Adds the outcome to the current span, if it is that of an operation.
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

/// Adds to the current span that a request runs without its claim. Exporters make errors of spans with events at *error*, such
/// as that of the store's trouble.
#[cfg(feature = "http")]
pub(crate) fn conclude_unprotected(key: KeyHash) {
    conclude(Some(key), 0, "unprotected", Level::WARN);
    if let Some(span) = current() {
        span.record("otel.status_code", "OK");
    }
}

/// A number as OpenTelemetry has them: exporters make texts of unsigned ones.
pub(crate) fn integer(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A call to a store, for so many requests.
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

/// Adds to the span of a call the first error among its answers.
pub(crate) fn answered<'a>(span: &Span, error: impl FnOnce() -> Option<&'a Error>) {
    if !span.is_disabled()
        && let Some(error) = error()
    {
        fail(span, error.kind().as_str());
    }
}

/// Marks a span as that of something that failed.
pub(crate) fn fail(span: &Span, error: &'static str) {
    span.record("otel.status_code", "ERROR").record("error.type", error);
}
