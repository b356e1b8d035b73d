//! The options of a service for failures, waits and time.

use std::{sync::Arc, time::Duration};

use super::{
    dead_letters::DeadLetters,
    ignore::Ignore,
    observer::Observer,
    redelivery::Redelivery,
    source::{FailureReporting, Source},
};
use crate::key::{order_selector::OrderSelector, payload::Payload, selector::Key};

/// The response to a record that no retry can help: its handler failed permanently, now or in an earlier delivery, its
/// key belongs to a different payload or is missing, or its body cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermanentFailures {
    /// Reports it as failed. SQS delivers it again until its `maxReceiveCount` is reached, and then moves it to the
    /// dead-letter queue. A stream retries until its retries are used up, and the records behind it wait.
    #[default]
    Report,
    /// Acknowledges it, so that it is not delivered again. The error is in the log only.
    Acknowledge,
}

/// The records that a failure blocks if they are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The records behind it in its FIFO message group, shard or partition. Other groups continue.
    #[default]
    StopGroup,
    /// All records that have not started.
    StopBatch,
}

/// The response when every record of a batch failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullBatchFailure {
    /// Lists all of them, as when only some failed. Lambda counts the invocation as a success.
    #[default]
    Report,
    /// Fails the invocation with [`ErrorKind::Batch`](crate::ErrorKind::Batch), so that it shows in Lambda's error
    /// metric. The queue delivers the whole batch again either way. After errors Lambda may poll more slowly.
    Error,
    /// Fails the invocation only if every record failed because of the store, which refused, failed or did not respond.
    /// An unavailable store then shows in Lambda's error metric, and messages that fail by themselves do not.
    StoreError,
}

/// The default limit of a record's wait for a claim that is held elsewhere.
const WAIT_UP_TO: Duration = Duration::from_secs(20);

/// The settings of a batch.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) concurrency: usize,
    pub(super) permanent_failures: PermanentFailures,
    pub(super) expected_duration: Option<Duration>,
    pub(super) payload: Payload,
    pub(super) on_failure: OnFailure,
    pub(super) on_full_batch_failure: FullBatchFailure,
    pub(super) all_or_error: bool,
    pub(super) observer: Option<Observer>,
    pub(super) ignore: Option<Ignore>,
    pub(super) dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(super) max_receive_count: Option<u32>,
    pub(super) last_attempt_timeout: Option<Duration>,
    pub(super) dead_letter_abandoned: bool,
    pub(super) wait_up_to: Duration,
    pub(super) redelivery: Option<Arc<dyn Redelivery>>,
    /// Selects the entity and the sequence of each record, if records are ordered.
    pub(super) order: Option<OrderSelector>,
    /// Selects the label of each record.
    pub(super) label: Option<Key>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 10,
            permanent_failures: PermanentFailures::default(),
            expected_duration: None,
            payload: Payload::default(),
            on_failure: OnFailure::default(),
            on_full_batch_failure: FullBatchFailure::default(),
            all_or_error: false,
            observer: None,
            ignore: None,
            dead_letters: None,
            max_receive_count: None,
            last_attempt_timeout: None,
            dead_letter_abandoned: false,
            wait_up_to: WAIT_UP_TO,
            redelivery: None,
            order: None,
            label: None,
        }
    }
}

impl Options {
    /// Returns the failures that the response can distinguish.
    pub(super) fn reporting<S: Source>(&self) -> FailureReporting {
        if self.all_or_error { FailureReporting::AllOrNothing } else { S::REPORTING }
    }

    /// Returns whether an unordered record that is in progress elsewhere is waited for.
    pub(super) fn waits_for_lease<S: Source>(&self) -> bool {
        S::WAITS_FOR_LEASE || self.all_or_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::assert_states;

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let Options { concurrency, permanent_failures, on_failure, on_full_batch_failure, wait_up_to, .. } =
            Options::default();
        let wait = wait_up_to.as_secs();
        assert_states(
            "src/batch/service.rs",
            [
                format!("| [`concurrency`](Self::concurrency) | {concurrency} |"),
                format!("(Self::permanent_failures) | [`PermanentFailures::{permanent_failures:?}`]"),
                format!("| [`wait_up_to`](Self::wait_up_to) | {wait} s |"),
                format!("| [`on_failure`](Self::on_failure) | [`OnFailure::{on_failure:?}`]"),
                format!("(Self::on_full_batch_failure) | [`FullBatchFailure::{on_full_batch_failure:?}`]"),
            ],
        );
        assert_states("src/batch/settings.rs", [format!("/// Default: {wait} seconds.")]);
        assert_states(
            "docs/settings.md",
            [
                format!("Up to `concurrency` ({concurrency}) handlers"),
                format!("all other sources wait for up to {wait} s"),
            ],
        );
        assert_states("docs/sqs.md", [format!("`wait_up_to` ({wait} s by default)")]);
        assert_states(
            "docs/streams.md",
            [format!("at most, {wait} s by default"), format!("`PermanentFailures::{permanent_failures:?}` (default)")],
        );
    }
}
