//! Rules for a queue, its dead-letter queue, and the function that it invokes.

use std::time::Duration;

use super::{
    super::facts::{DeadLetters, Function, Mapping, Queue, Redrive},
    Report,
    Severity::{Error, Warning},
    Stated,
};
use crate::time::span;

/// The factor that AWS recommends.
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>
const VISIBILITY_FACTOR: u32 = 6;
/// Throttled polls count as receives, so AWS recommends no less. From the same page.
const MIN_RECEIVES: u32 = 5;
/// In Lambda a lease ends this much after the deadline.
const LEASE_AFTER_DEADLINE: Duration = Duration::from_secs(1);
/// The default reserve is this share of the time, within these limits.
const RESERVE_SHARE: u32 = 20;
const RESERVE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

pub(super) fn queue(function: &Function, mapping: &Mapping, queue: &Queue, stated: &Stated, report: &mut Report) {
    visibility(function, mapping, queue, report);
    batch(function, mapping, stated, report);
    match &queue.redrive {
        Some(redrive) => {
            receives(function, queue, redrive, stated, report);
            dead_letters(queue, redrive, report);
        }
        None => report.find(
            Warning,
            "dead-letter-queue-missing",
            &resource(queue),
            format!(
                "There is no dead-letter queue: a message that cannot succeed is redelivered until it expires, after {}.",
                span(queue.retention)
            ),
            format!(
                "RedrivePolicy: {{ deadLetterTargetArn: ARN, maxReceiveCount: {MIN_RECEIVES} }}, with a separate queue that \
                 keeps messages for 14 days (MessageRetentionPeriod: 1209600)"
            ),
        ),
    }
    retention(queue, stated, report);
}

fn resource(queue: &Queue) -> String {
    format!("queue {}", queue.name)
}

fn set(queue: &Queue, attribute: &str, value: u64) -> String {
    format!(
        "{attribute}: {value}, or aws sqs set-queue-attributes --queue-url {} --attributes {attribute}={value}",
        queue.url
    )
}

/// Rounds up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

fn visibility(function: &Function, mapping: &Mapping, queue: &Queue, report: &mut Report) {
    let wanted = VISIBILITY_FACTOR * function.timeout + mapping.window;
    if queue.visibility >= wanted {
        return;
    }
    // Such a message is delivered again while it is running, and spends its receives.
    let severity = if queue.visibility <= function.timeout { Error } else { Warning };
    report.find(
        severity,
        "visibility-timeout-short",
        &resource(queue),
        format!(
            "The visibility timeout of {} s is below 6 × the timeout of {} ({} s) + the batching window ({} s): throttled \
             invocations have no time for retries, and messages are redelivered while they run.",
            queue.visibility.as_secs(),
            function.name,
            function.timeout.as_secs(),
            mapping.window.as_secs()
        ),
        set(queue, "VisibilityTimeout", seconds(wanted)),
    );
}

fn batch(function: &Function, mapping: &Mapping, stated: &Stated, report: &mut Report) {
    let resource = function.resource();
    let reserve = stated.reserve.unwrap_or_else(|| (function.timeout / RESERVE_SHARE).clamp(RESERVE.0, RESERVE.1));
    let time = function.timeout.saturating_sub(reserve);
    let Some(p99) = stated.p99 else {
        report.skip(
            &resource,
            "batch size × p99 ÷ concurrency < timeout − reserve",
            "the duration of a handler is not known: give --p99",
        );
        return;
    };
    let needed = p99 * mapping.batch_size / stated.concurrency;
    if needed < time {
        return;
    }
    let fits = (time.as_millis().saturating_sub(1) * u128::from(stated.concurrency)) / p99.as_millis().max(1);
    report.find(
        Warning,
        "batch-exceeds-timeout",
        &resource,
        format!(
            "A batch of {} takes {} ms ({} ms each, {} at a time), and {} ms remain before the reserve: messages that do not \
             start are reported, and spend a receive.",
            mapping.batch_size,
            needed.as_millis(),
            p99.as_millis(),
            stated.concurrency,
            time.as_millis()
        ),
        match fits {
            0 => format!("Timeout: {} or more, with 6 times as long a visibility timeout", seconds(needed + reserve) + 1),
            _ => format!(
                "BatchSize: {fits}, or aws lambda update-event-source-mapping --uuid {} --batch-size {fits}",
                mapping.uuid
            ),
        },
    );
}

fn receives(function: &Function, queue: &Queue, redrive: &Redrive, stated: &Stated, report: &mut Report) {
    let count = redrive.max_receive_count;
    let policy = |count: u32| {
        format!(
            "maxReceiveCount: {count}, or aws sqs set-queue-attributes --queue-url {} --attributes \
             '{{\"RedrivePolicy\":\"{{\\\"deadLetterTargetArn\\\":\\\"{}\\\",\\\"maxReceiveCount\\\":\\\"{count}\\\"}}\"}}'; the same \
             number in `max_receive_count`",
            queue.url, redrive.target_arn
        )
    };
    if count < MIN_RECEIVES {
        report.find(
            Warning,
            "max-receive-count-low",
            &resource(queue),
            format!(
                "maxReceiveCount is {count}: throttled polls count as receives, so that messages reach the dead-letter queue \
                 which never reached the function."
            ),
            policy(MIN_RECEIVES),
        );
    }
    let blocked = function.timeout + LEASE_AFTER_DEADLINE + stated.margin;
    if blocked >= count.saturating_sub(1) * queue.visibility {
        let visibility = queue.visibility.max(Duration::from_secs(1));
        let needed = u32::try_from(blocked.as_millis() / visibility.as_millis()).unwrap_or(u32::MAX).saturating_add(2);
        report.find(
            Error,
            "lease-outlasts-receives",
            &resource(queue),
            format!(
                "After a crash the claim blocks its key for up to {} s (timeout + 1 s + margin), but {} redeliveries {} s apart end \
                 before: the message reaches the dead-letter queue without having run again.",
                seconds(blocked),
                count.saturating_sub(1),
                queue.visibility.as_secs()
            ),
            policy(needed.max(MIN_RECEIVES)),
        );
    }
}

fn dead_letters(queue: &Queue, redrive: &Redrive, report: &mut Report) {
    match &redrive.target {
        DeadLetters::Found { url, retention } => {
            // Its age counts from the first send in a standard queue, and from the move in a FIFO queue.
            let is_short = if queue.is_fifo { *retention < queue.retention } else { *retention <= queue.retention };
            if is_short {
                report.find(
                    Warning,
                    "dead-letter-retention-short",
                    &resource(queue),
                    format!(
                        "The dead-letter queue keeps messages for {}, and the queue for {}: messages can expire before anybody \
                         sees them.",
                        span(*retention),
                        span(queue.retention)
                    ),
                    format!(
                        "MessageRetentionPeriod: 1209600 of the dead-letter queue, or aws sqs set-queue-attributes --queue-url \
                         {url} --attributes MessageRetentionPeriod=1209600"
                    ),
                );
            }
        }
        DeadLetters::Missing => report.find(
            Error,
            "dead-letter-queue-absent",
            &resource(queue),
            format!("The redrive policy names {}, which does not exist.", redrive.target_arn),
            "create the queue, or change deadLetterTargetArn of the RedrivePolicy",
        ),
        DeadLetters::Unread { why } => {
            report.skip(&resource(queue), format!("the retention of the dead-letter queue {}", redrive.target_arn), why)
        }
    }
}

/// A duplicate that arrives after its record has expired runs again.
fn retention(queue: &Queue, stated: &Stated, report: &mut Report) {
    let resource = resource(queue);
    let days = |duration: Duration| duration.as_secs().div_ceil(24 * 60 * 60) + 1;
    let fix = |least: Duration| format!("`.retention(Duration::from_secs({} * 24 * 60 * 60))`", days(least));
    if stated.retention <= queue.retention {
        report.find(
            Error,
            "retention-below-queue",
            &resource,
            format!(
                "Records are kept for {}, and the queue redelivers for {}: a duplicate can run again.",
                span(stated.retention),
                span(queue.retention)
            ),
            fix(queue.retention),
        );
        return;
    }
    let Some(Redrive { target: DeadLetters::Found { retention: dead_letters, .. }, .. }) = &queue.redrive else {
        return;
    };
    // The dead-letter queue counts the age from the first send in a standard queue, and from the move in a FIFO queue. A redriven
    // message starts again.
    let last_redrive = match stated.redrive_within {
        Some(redrive_within) => redrive_within,
        None if queue.is_fifo => queue.retention + *dead_letters,
        None => *dead_letters,
    };
    let horizon = last_redrive + queue.retention;
    if stated.retention <= horizon {
        report.find(
            Warning,
            "retention-below-redrive",
            &resource,
            format!(
                "Records are kept for {}. A message can be redriven up to {} after its first send, and is then redelivered for {}: it \
                 can run again, although it took effect.",
                span(stated.retention),
                span(last_redrive),
                span(queue.retention)
            ),
            format!("{}, or redrive earlier, and state it by --redrive-within", fix(horizon)),
        );
    }
}
