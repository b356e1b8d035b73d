//! Rules for a function and its event source mappings.

use super::{
    super::facts::{Function, Mapping, Source},
    Report,
    Severity::{Error, Warning},
    Stated, queues,
};

/// The variables that name a store.
const STORES: [&str; 3] = ["IDEMPOTENCY_TABLE", "REDIS_URL", "POSTGRES_URL"];

/// Checks a function, its mappings and their queues.
pub(crate) fn function(function: &Function, stated: &Stated, report: &mut Report) {
    let resource = function.resource();
    let is_disabled = function.variables.get("LAMBDA_ONCE_DISABLED");
    if is_disabled.is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true")) {
        report.find(
            Error,
            "protection-disabled",
            &resource,
            "LAMBDA_ONCE_DISABLED is set: each delivery runs without a claim.",
            "remove LAMBDA_ONCE_DISABLED from the function's Environment",
        );
    }
    // A stack may have functions that do not use the library.
    let is_store_named = STORES.iter().any(|name| function.variables.get(*name).is_some_and(|value| !value.is_empty()));
    if !is_store_named && !stated.is_store_given {
        report.skip(
            &resource,
            "its store, event source mappings and queues",
            format!("none of the variables {} names a store: give --store if the function has one", STORES.join(", ")),
        );
        return;
    }
    if let Some(lease) = stated.lease.filter(|lease| *lease > function.timeout) {
        report.find(
            Warning,
            "lease-exceeds-timeout",
            &resource,
            format!(
                "The lease of work without a deadline is {} s, and an invocation ends after {} s: a crash blocks its key for \
                 longer than the work could run.",
                lease.as_secs(),
                function.timeout.as_secs()
            ),
            format!("`.deadline(&context)` on such operations, or `.lease(Duration::from_secs({}))`", function.timeout.as_secs()),
        );
    }
    for unread in &function.unread {
        report.skip(&resource, &unread.what, &unread.why);
    }
    if function.mappings.is_empty()
        && function.unread.is_empty()
        && function.aliases.is_empty()
        && function.qualifier.is_none()
    {
        report.skip(
            &resource,
            "event source mappings",
            "neither the function nor an alias has one; those of a version belong to --function NAME:VERSION",
        );
    }
    for mapping in &function.mappings {
        check_mapping(function, mapping, stated, report);
    }
}

fn check_mapping(function: &Function, mapping: &Mapping, stated: &Stated, report: &mut Report) {
    let resource = format!("{}, event source mapping {}", function.resource(), mapping.uuid);
    if !mapping.is_enabled {
        report.skip(
            &resource,
            "the event source mapping",
            "it is disabled, so that its source does not invoke the function",
        );
        return;
    }
    if matches!(mapping.source, Source::Other) {
        report.skip(&resource, "the event source mapping", "only SQS, Kinesis and DynamoDB Streams have rules");
        return;
    }
    if !mapping.reports_failures {
        let lost = match mapping.source {
            Source::Stream(_) => "records, and advances past them",
            _ => "messages, and deletes them",
        };
        report.find(
            Error,
            "report-batch-item-failures-missing",
            &resource,
            format!(
                "Lambda ignores the list of failed {lost} with the rest of the batch (unless the service is built with \
                 `all_or_error()`)."
            ),
            format!(
                "FunctionResponseTypes: [ReportBatchItemFailures], or aws lambda update-event-source-mapping --uuid {} \
                 --function-response-types ReportBatchItemFailures",
                mapping.uuid
            ),
        );
    }
    match &mapping.source {
        Source::Queue(queue) => queues::queue(function, mapping, queue, stated, report),
        Source::MissingQueue(arn) => report.find(
            Error,
            "queue-missing",
            &resource,
            format!("Its queue {arn} does not exist: the mapping delivers nothing."),
            format!("create the queue, or aws lambda delete-event-source-mapping --uuid {}", mapping.uuid),
        ),
        Source::UnreadQueue { arn, why } => report.skip(&format!("queue {arn}"), "the queue", why),
        Source::Stream(arn) => report.skip(
            &format!("stream {arn}"),
            "its retention, retries and destination for failures",
            "only `ReportBatchItemFailures` is checked for streams",
        ),
        Source::Other => {}
    }
}
