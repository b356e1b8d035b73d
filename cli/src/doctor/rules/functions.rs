//! Rules for a function and its event source mappings.

use super::{
    super::facts::{Function, Mapping, Source},
    Report,
    Severity::{Error, Warning},
    Stated, queues,
};

/// The variables that name a store.
const STORES: [&str; 3] = ["IDEMPOTENCY_TABLE", "REDIS_URL", "POSTGRES_URL"];

/// The parts of the ARN of a function without an alias or a version.
const UNQUALIFIED_PARTS: usize = 7;

/// Checks a function, its mappings and their queues.
pub(crate) fn function(function: &Function, stated: &Stated, report: &mut Report) {
    let resource = format!("function {}", function.name);
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
    if !STORES.iter().any(|name| function.variables.get(*name).is_some_and(|value| !value.is_empty())) {
        report.skip(
            &resource,
            "its store",
            format!("none of the variables {} names it: give --store", STORES.join(", ")),
        );
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
    // arn:aws:lambda:REGION:ACCOUNT:function:NAME
    let is_qualified = function.arn.split(':').count() > UNQUALIFIED_PARTS;
    for unread in &function.unread {
        report.skip(&resource, &unread.what, &unread.why);
    }
    if function.mappings.is_empty() && function.unread.is_empty() && !is_qualified {
        report.skip(
            &resource,
            "event source mappings",
            "the function has none; those of an alias or a version belong to --function NAME:ALIAS",
        );
    }
    for mapping in &function.mappings {
        check_mapping(function, mapping, stated, report);
    }
}

fn check_mapping(function: &Function, mapping: &Mapping, stated: &Stated, report: &mut Report) {
    let resource = format!("function {}, event source mapping {}", function.name, mapping.uuid);
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
        report.find(
            Error,
            "report-batch-item-failures-missing",
            &resource,
            "Lambda ignores the list of failed messages, and deletes them with the rest of the batch (unless the service is \
             built with `all_or_error()`).",
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
