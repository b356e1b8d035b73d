//! The spans of batches and of their records, named by OpenTelemetry's
//! [conventions for messaging](https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/).

use std::borrow::Cow;

use tracing::{Level, Span, field::Empty};

use super::{messaging::Messaging, record::RecordInfo, report::RecordReport, source::Source};
use crate::{idempotency::claim::Claim, telemetry::spans};

/// `messaging.operation.name` and `messaging.operation.type`: what a handler does with a record.
const PROCESS: &str = "process";

fn span_name(origin: Messaging<'_>) -> Cow<'static, str> {
    match origin.destination {
        Some(destination) => format!("{PROCESS} {destination}").into(),
        None => PROCESS.into(),
    }
}

/// The span of the records of an event. It is named by the operation, since exporters take no name later, and where the records
/// come from is known when they have been opened: [`add_origin`] adds that.
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
    )
}

/// Adds to the span of a batch where its records come from: the destination only if it is the same for all.
pub(super) fn add_origin<S: Source>(span: &Span, source: &S, reports: &[RecordReport]) {
    if span.is_disabled() {
        return;
    }
    let mut origins = reports.iter().map(|report| source.messaging(&report.record));
    let Some(first) = origins.next() else { return };
    span.record("messaging.system", first.system).record("faas.trigger", first.trigger);
    if let Some(destination) = first.destination
        && origins.all(|origin| origin.destination == first.destination)
    {
        span.record("messaging.destination.name", destination);
    }
}

/// The span of a handler, with what its logs need. It has a trace's names only where the batch has a span: they lengthen every
/// line of the log.
pub(super) fn record_span<S: Source>(source: &S, traced: bool, record: &RecordInfo, claim: Option<&Claim>) -> Span {
    if !spans::are_wanted(Level::INFO) {
        return Span::none();
    }
    if traced {
        return traced_record_span(source.messaging(record), record, claim);
    }
    tracing::info_span!(
        target: "lambda_once",
        "record",
        message_id = record.id(),
        key = claim.map(|claim| tracing::field::display(claim.key())),
        attempt = claim.map(Claim::attempt),
        aws_trace_header = record.attribute("AWSTraceHeader"),
    )
}

#[cold]
fn traced_record_span(origin: Messaging<'_>, record: &RecordInfo, claim: Option<&Claim>) -> Span {
    tracing::info_span!(
        target: "lambda_once",
        "record",
        otel.name = &*span_name(origin),
        otel.kind = "consumer",
        messaging.system = origin.system,
        messaging.destination.name = origin.destination,
        messaging.destination.partition.id = origin.partition,
        messaging.operation.name = PROCESS,
        messaging.operation.type = PROCESS,
        messaging.message.id = record.id(),
        message_id = record.id(),
        key = claim.map(|claim| tracing::field::display(claim.key())),
        attempt = claim.map(|claim| claim.attempt().cast_signed()),
        aws_trace_header = record.attribute("AWSTraceHeader"),
    )
}

/// The span of a handler of several records, of which this is the first.
pub(super) fn records_span<S: Source>(source: &S, traced: bool, count: usize, first: Option<&RecordInfo>) -> Span {
    if !spans::are_wanted(Level::INFO) {
        return Span::none();
    }
    let origin = first.filter(|_| traced).map(|record| source.messaging(record));
    let process = traced.then_some(PROCESS);
    tracing::info_span!(
        target: "lambda_once",
        "records",
        otel.name = origin.map(span_name).as_deref(),
        otel.kind = traced.then_some("consumer"),
        messaging.system = origin.map(|origin| origin.system),
        messaging.destination.name = origin.and_then(|origin| origin.destination),
        messaging.operation.name = process,
        messaging.operation.type = process,
        messaging.batch.message_count = traced.then(|| spans::integer(count)),
        count,
    )
}
