//! The spans of batches and of their records, named by OpenTelemetry's
//! [conventions for messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/).

use std::borrow::Cow;

use tracing::{Level, Span, field::Empty};

use super::{messaging::Messaging, record::RecordInfo, report::RecordReport, source::Source};
use crate::{
    idempotency::{claim::Claim, engine::End, guard::catch_panic},
    telemetry::spans,
};

/// `messaging.operation.name` and `messaging.operation.type` of a handler.
const PROCESS: &str = "process";

fn span_name(origin: Messaging<'_>) -> Cow<'static, str> {
    match origin.destination {
        Some(destination) => format!("{PROCESS} {destination}").into(),
        None => PROCESS.into(),
    }
}

/// Creates the span of an event's records. It is named by the operation, because exporters accept no later name and the
/// origin is known only when records have been opened. [`add_origin`] adds that.
pub(super) fn batch_span(operation: &str, records: usize, lambda: &lambda_runtime::Context) -> Span {
    if !spans::are_wanted(Level::DEBUG) {
        return Span::none();
    }
    tracing::debug_span!(
        target: "lambda_once",
        "batch",
        otel.name = format_args!("{PROCESS} {operation}"),
        otel.kind = "consumer",
        operation,
        messaging.system = Empty,
        messaging.destination.name = Empty,
        messaging.operation.name = PROCESS,
        messaging.operation.type = PROCESS,
        messaging.batch.message_count = spans::integer(records),
        faas.invocation_id = lambda.request_id,
        faas.trigger = Empty,
        otel.status_code = Empty,
        error.type = Empty,
    )
}

/// Adds the origin of the records to the span of a batch. The destination is added only if it is the same for all.
pub(super) fn add_origin<S: Source>(span: &Span, source: &S, reports: &[RecordReport]) {
    if span.is_disabled() {
        return;
    }
    let mut origins = reports.iter().map(|report| origin_of(source, &report.record));
    let Some(first) = origins.next() else { return };
    span.record("messaging.system", first.system).record("faas.trigger", first.trigger.as_str());
    if let Some(destination) = first.destination
        && origins.all(|origin| origin.destination == first.destination)
    {
        span.record("messaging.destination.name", destination);
    }
}

/// Returns a record's origin. A user's source may panic, which must not affect the processing.
fn origin_of<'a, S: Source>(source: &S, record: &'a RecordInfo) -> Messaging<'a> {
    catch_panic(|| source.messaging(record)).unwrap_or_else(|| Messaging::new(S::OPERATION))
}

/// The spans around one call of a handler.
pub(super) struct HandlerSpans {
    /// The span with the fields for the handler's logs, around the handler.
    pub(super) log: Span,
    /// The span for traces at *debug*, around [`log`](Self::log), which is separate because its field names would
    /// lengthen every line of the log. `None` if the batch has no span. Boxed, because every run reserves space for it.
    pub(super) process: Option<Box<Span>>,
}

impl HandlerSpans {
    const NONE: Self = Self { log: Span::none(), process: None };

    /// Creates the log span inside the trace span.
    #[cold]
    fn traced(process: Span, log: impl FnOnce() -> Span) -> Self {
        Self { log: process.in_scope(log), process: Some(Box::new(process)) }
    }
}

/// Creates the spans of a handler of one record. `traced` is `true` if the batch has a span.
pub(super) fn of_record<S: Source>(
    source: &S,
    traced: bool,
    record: &RecordInfo,
    claim: Option<&Claim>,
) -> HandlerSpans {
    if !spans::are_wanted(Level::INFO) {
        return HandlerSpans::NONE;
    }
    let log = || {
        tracing::info_span!(
            target: "lambda_once",
            "record",
            message_id = record.id(),
            key = claim.map(|claim| tracing::field::display(claim.key())),
            attempt = claim.map(|claim| claim.attempt().cast_signed()),
            aws_trace_header = record.source_attribute("AWSTraceHeader"),
        )
    };
    if traced {
        return HandlerSpans::traced(process_span(origin_of(source, record), Some(record), None), log);
    }
    HandlerSpans { log: log(), process: None }
}

/// Creates the spans of a handler of several records, starting with `first`.
pub(super) fn of_records<S: Source>(
    source: &S,
    traced: bool,
    count: usize,
    first: Option<&RecordInfo>,
) -> HandlerSpans {
    if !spans::are_wanted(Level::INFO) {
        return HandlerSpans::NONE;
    }
    let count = spans::integer(count);
    let log = || tracing::info_span!(target: "lambda_once", "records", count);
    match first.filter(|_| traced) {
        Some(first) => HandlerSpans::traced(process_span(origin_of(source, first), None, Some(count)), log),
        None => HandlerSpans { log: log(), process: None },
    }
}

#[cold]
fn process_span(origin: Messaging<'_>, record: Option<&RecordInfo>, count: Option<i64>) -> Span {
    tracing::debug_span!(
        target: "lambda_once",
        "process",
        otel.name = &*span_name(origin),
        otel.kind = "consumer",
        otel.status_code = Empty,
        messaging.system = origin.system,
        messaging.destination.name = origin.destination,
        messaging.destination.partition.id = record.and(origin.partition),
        messaging.operation.name = PROCESS,
        messaging.operation.type = PROCESS,
        messaging.message.id = record.map(RecordInfo::id),
        messaging.batch.message_count = count,
        error.type = Empty,
    )
}

/// Adds the end of a run to the span of its handler, if it failed.
pub(super) fn add_end<T>(process: Option<&Span>, end: &End<T>) {
    if let Some(process) = process
        && let Some(failure) = end.failure_name()
    {
        spans::fail(process, failure);
    }
}
