//! Sets the visibility timeout of failed SQS messages.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use aws_sdk_sqs::{Client, types::ChangeMessageVisibilityBatchRequestEntry as Entry};
use futures_util::{StreamExt, stream};

use super::{MAX_CALL_TIME, queue_url};
use crate::{
    backoff::Backoff,
    batch::{redelivery::Redelivery, report::RecordReport},
    clock::Timestamp,
    error::ErrorKind,
    future::BoxFuture,
    idempotency::{outcome::OutcomeKind, verdict::Verdict},
};

/// The maximum number of entries in one call.
/// <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibilityBatch.html>
const ENTRIES: usize = 10;

/// The maximum number of concurrent calls.
const CALLS: usize = 10;

/// The maximum delay. SQS hides a message for at most twelve hours from its receipt, of which an invocation has taken
/// at most a quarter of an hour.
const MAX_DELAY: Duration = Duration::from_secs(12 * 3_600 - 15 * 60);

/// A [`Redelivery`] that sets the time at which SQS delivers failed messages again, by their visibility timeout:
///
/// * Transient failures, and store errors that may pass soon (throttling, timeouts, outages): after a random part of
///   `base` × 2^(receive count), at most [`longest`](Self::longest), so that messages that failed together are not
///   redelivered together.
/// * Messages that may have taken effect (unknown failures, panics, cancellations) and keep their claims: not before
///   the claim has ended.
/// * Messages whose key is held otherwise, by another delivery or by a claim that could not be settled: one second
///   after the end of that lease and the margin.
/// * A message whose envelope contains several records: with the record that is delayed longest. It keeps the queue's
///   timeout if one of them does and none waits for the end of a claim.
/// * Messages blocked by a failure in a FIFO queue: with the message that failed. With
///   [`OnFailure::StopBatch`](crate::batch::OnFailure::StopBatch) that may be any failed message, so the messages of
///   other groups are redelivered with the last of them. They keep the queue's timeout if one of the failed messages
///   does.
///
/// All other messages keep the queue's timeout, such as those that did not start, and those that failed permanently.
///
/// It needs the permission `sqs:ChangeMessageVisibility` on the queue, and makes one call per ten messages. If a call
/// fails, that is logged, and its messages keep the queue's timeout.
///
/// ```no_run
/// # async fn example(config: &aws_config::SdkConfig) {
/// use std::time::Duration;
/// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::sqs::VisibilityBackoff};
///
/// let backoff = VisibilityBackoff::new(aws_sdk_sqs::Client::new(config)).base(Duration::from_secs(2));
/// let once = Idempotency::new(MemoryStore::new());
/// let service = once.sqs(Key::message_id(), |_: String| async { Ok::<_, Failure>(()) }).redelivery(backoff);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VisibilityBackoff {
    client: Client,
    base: Duration,
    longest: Duration,
}

/// A new visibility timeout of a message.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    receipt: String,
    seconds: i32,
}

impl VisibilityBackoff {
    /// Creates a backoff with a base of 5 s and a maximum of 15 minutes.
    pub fn new(client: Client) -> Self {
        Self { client, base: Duration::from_secs(5), longest: Duration::from_secs(900) }
    }

    /// Sets the base, which is doubled with each delivery. Default: 5 s.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// Sets the maximum delay of a failure. Default: 15 minutes. A longer lease is still waited for.
    #[must_use]
    pub fn longest(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// Returns a random part of a time that doubles with each delivery.
    fn jittered(&self, receive_count: u32) -> Duration {
        Backoff::new(self.base, self.longest).after(receive_count).next()
    }

    /// Returns the new visibility timeout of a message, or `None` to keep the queue's timeout.
    fn delay(&self, report: &RecordReport, now: Timestamp) -> Option<Duration> {
        let held = report.held_until.map(|until| until.since(now) + Duration::from_secs(1));
        let backoff = || self.jittered(report.record.receive_count());
        let delay = match report.outcome {
            Ok(OutcomeKind::Failed(Verdict::Transient | Verdict::Unknown) | OutcomeKind::Interrupted(_)) => {
                Some(held.unwrap_or_default().max(backoff()))
            }
            Err(ErrorKind::Throttled | ErrorKind::Timeout | ErrorKind::Unavailable) => Some(backoff()),
            // An earlier delivery would only find its key in progress.
            _ => held,
        };
        delay.map(|delay| delay.min(MAX_DELAY))
    }

    /// Returns the changes to make, by queue.
    fn changes(&self, failed: &[RecordReport], now: Timestamp) -> HashMap<String, Vec<Change>> {
        let group = |report: &RecordReport| report.record.source_attribute("MessageGroupId").map(str::to_owned);
        let is_skipped = |report: &RecordReport| report.outcome == Ok(OutcomeKind::Skipped);
        let delays: Vec<_> = failed.iter().map(|report| self.delay(report, now)).collect();
        let failures = || failed.iter().zip(&delays).filter(|(report, _)| !is_skipped(report));
        let mut of_groups: HashMap<_, _> = failures().map(|(report, delay)| (group(report), *delay)).collect();
        let mut of_keys = HashMap::new();
        // Neither the message that stopped the batch nor the queue's timeout is known.
        let of_all: Option<Vec<_>> = failures().map(|(_, delay)| *delay).collect();
        let longest = of_all.and_then(|delays| delays.into_iter().max());
        let mut changes: HashMap<String, Vec<Change>> = HashMap::new();
        let (mut unchanged, mut held) = (HashSet::new(), HashSet::new());
        for (report, delay) in failed.iter().zip(&delays) {
            // If nothing in its group failed, it waited for the outcome of a record with its key, or the batch was
            // stopped.
            let elsewhere = || report.key.and_then(|key| of_keys.get(&key).copied()).unwrap_or(longest);
            let delay =
                if is_skipped(report) { *of_groups.entry(group(report)).or_insert_with(elsewhere) } else { *delay };
            if let Some(key) = report.key {
                of_keys.entry(key).or_insert(delay);
            }
            let queue = report.record.source().and_then(queue_url);
            let (Some(queue), Some(receipt)) = (queue, report.record.receipt()) else { continue };
            if report.held_until.is_some() {
                held.insert(receipt);
            }
            let Some(delay) = delay else {
                unchanged.insert(receipt);
                continue;
            };
            let (changes, seconds) = (changes.entry(queue).or_default(), seconds(delay));
            match changes.last_mut().filter(|last| last.receipt == receipt) {
                // Another record of the same message.
                Some(last) => last.seconds = last.seconds.max(seconds),
                None => changes.push(Change { receipt: receipt.to_owned(), seconds }),
            }
        }
        for changes in changes.values_mut() {
            changes.retain(|Change { receipt, .. }| !unchanged.contains(&**receipt) || held.contains(&**receipt));
        }
        changes
    }

    async fn change(&self, queue: String, changes: Vec<Change>) {
        let messages = changes.len();
        let entry = |(i, Change { receipt, seconds }): (usize, Change)| {
            Entry::builder().id(i.to_string()).receipt_handle(receipt).visibility_timeout(seconds).build()
        };
        let Ok(entries) = changes.into_iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>() else { return };
        let call = self.client.change_message_visibility_batch().queue_url(queue).set_entries(Some(entries)).send();
        let Ok(answer) = tokio::time::timeout(MAX_CALL_TIME, call).await else {
            tracing::warn!(target: "lambda_once", messages, "SQS did not respond in time when visibility timeouts were to be changed");
            return;
        };
        match answer {
            Ok(answer) => {
                for failed in answer.failed() {
                    tracing::warn!(target: "lambda_once", code = failed.code(), "SQS did not change a message's visibility timeout");
                }
            }
            Err(error) => {
                let error = aws_sdk_sqs::error::DisplayErrorContext(&error);
                tracing::warn!(target: "lambda_once", %error, messages, "the visibility timeouts of messages could not be changed");
            }
        }
    }
}

impl Redelivery for VisibilityBackoff {
    fn delay<'a>(&'a self, failed: &'a [RecordReport], now: Timestamp) -> BoxFuture<'a, ()> {
        let calls = stream::iter(calls(self.changes(failed, now)));
        Box::pin(calls.for_each_concurrent(CALLS, |(queue, changes)| self.change(queue, changes)))
    }
}

/// Splits the changes of each queue into calls.
fn calls(changes: HashMap<String, Vec<Change>>) -> Vec<(String, Vec<Change>)> {
    let mut calls = Vec::new();
    for (queue, mut changes) in changes {
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(ENTRIES));
            calls.push((queue.clone(), std::mem::replace(&mut changes, rest)));
        }
    }
    calls
}

/// Returns the delay in whole seconds, rounded up.
fn seconds(delay: Duration) -> i32 {
    let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{batch::record::RecordInfo, documented::assert_states, record::Difference};

    fn backoff() -> VisibilityBackoff {
        let config = aws_sdk_sqs::Config::builder().behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest());
        VisibilityBackoff::new(Client::from_conf(config.build()))
    }

    #[test]
    fn only_a_store_error_that_may_pass_delays_its_message() {
        for (error, delays) in [
            (ErrorKind::Throttled, true),
            (ErrorKind::Timeout, true),
            (ErrorKind::Unavailable, true),
            (ErrorKind::AccessDenied, false),
            (ErrorKind::Payload, false),
        ] {
            let report = RecordReport {
                index: 0,
                record: Arc::new(RecordInfo::new("m0")),
                key: None,
                outcome: Err(error),
                difference: Difference::default(),
                reported: true,
                dead_lettered: false,
                error: None,
                held_until: None,
            };
            let delay = backoff().delay(&report, Timestamp::EPOCH);
            assert_eq!(delay.is_some(), delays, "{error:?}");
            assert!(delay.is_none_or(|delay| delay <= Duration::from_secs(10)), "{delay:?}");
        }
    }

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let backoff = backoff();
        let (base, minutes) = (backoff.base.as_secs(), backoff.longest.as_secs() / 60);
        assert_states("docs/sqs.md", [format!("`base` is {base} s by default, `longest` {minutes} minutes")]);
        let texts =
            [format!("each delivery. Default: {base} s."), format!("of a failure. Default: {minutes} minutes.")];
        assert_states("src/batch/sources/sqs/backoff.rs", texts);
    }
}
