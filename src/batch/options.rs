//! The options of a service: failures, waits, time.

use std::{sync::Arc, time::Duration};

use super::{
    dead_letters::DeadLetters,
    ignore::Ignore,
    observer::Observer,
    redelivery::Redelivery,
    source::{FailureReporting, Source},
};
use crate::key::{order_selector::OrderSelector, payload::Payload, selector::Key};

/// What happens to a record that no retry can help: its handler failed for good, now or in an earlier delivery; its key
/// belongs to another payload, or is missing; its body cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PermanentFailures {
    /// It is reported as failed. SQS delivers it again until its `maxReceiveCount` is reached, and then moves it to the
    /// dead-letter queue; a stream tries until its retries are used up, and what is behind it waits.
    #[default]
    Report,
    /// It is acknowledged, and not delivered again. What went wrong is in the log only.
    Acknowledge,
}

/// What a failure blocks where records have an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFailure {
    /// The records behind it in its group: a FIFO queue's message group, a shard, a partition. Other groups go on.
    #[default]
    StopGroup,
    /// Every record that has not been started.
    StopBatch,
}

/// What the answer is when every record of a batch failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullBatchFailure {
    /// All of them are listed, as when some failed. Lambda counts the invocation as a success.
    #[default]
    Report,
    /// The invocation fails with [`ErrorKind::Batch`](crate::ErrorKind::Batch), so that it shows in Lambda's error metric. The
    /// queue delivers the whole batch again either way; after errors Lambda may poll more slowly.
    Error,
    /// The same, but only if the store kept each record from being decided: it refused, failed or did not answer. A dead store then
    /// shows in Lambda's error metric, and messages that fail by themselves do not.
    StoreError,
}

/// How long a record waits for a claim that is held elsewhere, unless a setting says otherwise.
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
    /// Where the records stand in the order of their entities, if they have one.
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
    /// What of a batch the answer tells apart.
    pub(super) fn answer<S: Source>(&self) -> FailureReporting {
        if self.all_or_error { FailureReporting::AllOrNothing } else { S::REPORTING }
    }

    /// Whether a record that is in progress elsewhere is waited for although it has no order.
    pub(super) fn waits_for_lease<S: Source>(&self) -> bool {
        S::WAITS_FOR_LEASE || self.all_or_error
    }
}
