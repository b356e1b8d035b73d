//! Outcomes of operations.

use std::borrow::Cow;

use super::{
    guard::catch_panic,
    verdict::{Failure, Verdict},
};
use crate::{clock::Timestamp, order::Sequence, record::Difference, store::Mismatch};

/// The outcome of an operation, as far as this call can determine.
///
/// An `Outcome` is a decision of the protocol. If no decision could be reached, the call returns an
/// [`Error`](crate::Error).
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "an operation may not have run: look at the outcome"]
pub enum Outcome<T> {
    /// The operation ran now, and its result is recorded. No earlier run can have taken effect, unless its record has
    /// expired or was deleted, or this run, on DynamoDB and [without a claim](crate::InTransaction::without_claim), has
    /// replaced a lapsed claim. An unprotected run ends in the same way, without a record.
    Executed(T),
    /// The operation ran now, and its result is recorded. An earlier run ended without an outcome, so it may have taken
    /// effect twice, unless a probe has reported that it had not.
    TookOver(T),
    /// An earlier run had taken effect without leaving an outcome. Its [probe](crate::Operation::probe) has found this
    /// result, which is recorded now. Nothing ran.
    Recovered(T),
    /// The operation ran now and succeeded, or a probe found it done, but that could not be recorded. It will not run
    /// again while the lease lasts. After that it may run or be probed again.
    Unrecorded(T),
    /// The operation was completed before, with this recorded result.
    Replayed(T),
    /// The operation was completed before, with this recorded result and a payload of a different
    /// [version](crate::OperationSettings::payload_version). The payloads were not compared.
    ReplayedOtherVersion(T),
    /// The operation was completed before. Its result is not stored because it was too large, not serializable, or
    /// [discarded](crate::Results::Discard).
    ReplayedWithoutResult,
    /// The operation failed permanently before, with this recorded failure.
    ReplayedFailure(StoredFailure),
    /// The operation ran now and failed, or its probe did. The verdict shows how the claim was settled.
    Failed(Failure),
    /// The operation or its probe ran now and panicked, or was cancelled at the handler deadline. It may have taken
    /// effect, and the claim is kept until its lease ends (after a panic, unless
    /// [`OnPanic::Transient`](crate::OnPanic::Transient) is set).
    Interrupted(Interruption),
    /// The operation is running elsewhere, or was until now.
    InProgress {
        /// End of that claim's lease, or `None` if unknown.
        lease_until: Option<Timestamp>,
        /// Number of grants of the key.
        attempt: u64,
    },
    /// The key belongs to a different payload. Nothing ran, and nothing was waited for. The other operation may still
    /// be running. Its state shows whether a retry can help. The parts in which the payloads differ are named if they
    /// are known.
    Mismatch(Mismatch),
    /// The operation does not run, and never will. A newer operation on its [entity](crate::Operation::ordered_by) has
    /// taken effect, or the work itself [reported that](Verdict::Superseded), now or before. A lost run of it may have
    /// taken effect before the newer one.
    Superseded {
        /// The greatest completed sequence, or `None` if the work reported the supersession.
        newest: Option<Sequence>,
    },
    /// An earlier claim ended without an outcome, and [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) forbids
    /// another run. In a batch also if that claim was for a different payload.
    Abandoned {
        /// Number of grants of the key.
        attempt: u64,
    },
    /// The operation ran now, but its claim was lost before the outcome was recorded: another run has claimed it
    /// meanwhile and has not finished, the record was deleted, or a renewal came after the lease and the margin. The
    /// result of this run is not recorded.
    LeaseLost,
    /// The operation did not run, because no time was left before the handler deadline. The claim, if any, was
    /// released.
    NotStarted,
    /// The operation did not run, because a preceding operation in its order failed, or any operation in an order, if
    /// that stops the batch. The claim, if any, was released. If several consecutive records share a call of the
    /// handler, it may have run behind the one that failed.
    Skipped,
    /// A predicate of the service, or its envelope, ignores the record. Nothing was claimed.
    Ignored,
}

impl<T> Outcome<T> {
    /// Returns the result, if the operation is known to be done and its result is available.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::Executed(value)
            | Self::TookOver(value)
            | Self::Recovered(value)
            | Self::Unrecorded(value)
            | Self::Replayed(value)
            | Self::ReplayedOtherVersion(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the same outcome, with its result changed if it is [replayed](Self::Replayed), for example to mark it as
    /// replayed, or to renew an expired part, such as a signed URL.
    ///
    /// ```
    /// # use lambda_once::{Failure, Idempotency, MemoryStore, Outcome};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_once::Error> {
    /// # let once = Idempotency::new(MemoryStore::new());
    /// # async fn invoice() -> Result<String, Failure> { Ok("invoice 7".to_owned()) }
    /// # let _ = once.operation("invoice", "order 7").run(invoice).await?;
    /// let outcome = once.operation("invoice", "order 7").run(invoice).await?;
    /// let outcome = outcome.map_replayed(|invoice| format!("copy of {invoice}"));
    /// assert!(matches!(outcome, Outcome::Replayed(text) if text == "copy of invoice 7"));
    /// # Ok(()) }
    /// ```
    pub fn map_replayed(self, change: impl FnOnce(T) -> T) -> Self {
        match self {
            Self::Replayed(value) => Self::Replayed(change(value)),
            Self::ReplayedOtherVersion(value) => Self::ReplayedOtherVersion(change(value)),
            other => other,
        }
    }

    /// Returns whether the operation is known to be done, now or before.
    pub const fn is_done(&self) -> bool {
        self.kind().is_done()
    }

    /// Returns a stable name in snake case, as in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        self.kind().as_str()
    }

    /// Returns the text of the error or failure, now or before.
    pub(crate) fn reason(&self) -> Option<Cow<'_, str>> {
        match self {
            // The text comes from user code, and printing it may panic.
            Self::Failed(failure) => catch_panic(|| failure.words()).map(Cow::Owned),
            Self::ReplayedFailure(stored) => stored.message.as_deref().map(Cow::Borrowed),
            _ => None,
        }
    }

    /// Returns the parts in which the payload differs from the recorded one, as far as they are known.
    pub(crate) const fn difference(&self) -> Difference {
        match self {
            Self::Mismatch(mismatch) => mismatch.difference,
            _ => Difference::UNKNOWN,
        }
    }

    /// Returns the kind of the outcome, without its value.
    pub const fn kind(&self) -> OutcomeKind {
        match self {
            Self::Executed(_) => OutcomeKind::Executed,
            Self::TookOver(_) => OutcomeKind::TookOver,
            Self::Recovered(_) => OutcomeKind::Recovered,
            Self::Unrecorded(_) => OutcomeKind::Unrecorded,
            Self::Replayed(_) => OutcomeKind::Replayed,
            Self::ReplayedOtherVersion(_) => OutcomeKind::ReplayedOtherVersion,
            Self::ReplayedWithoutResult => OutcomeKind::ReplayedWithoutResult,
            Self::ReplayedFailure(_) => OutcomeKind::ReplayedFailure,
            Self::Failed(failure) => OutcomeKind::Failed(failure.verdict()),
            Self::Interrupted(interruption) => OutcomeKind::Interrupted(*interruption),
            Self::InProgress { .. } => OutcomeKind::InProgress,
            Self::Mismatch(_) => OutcomeKind::Mismatch,
            Self::Superseded { .. } => OutcomeKind::Superseded,
            Self::Abandoned { .. } => OutcomeKind::Abandoned,
            Self::LeaseLost => OutcomeKind::LeaseLost,
            Self::NotStarted => OutcomeKind::NotStarted,
            Self::Skipped => OutcomeKind::Skipped,
            Self::Ignored => OutcomeKind::Ignored,
        }
    }
}

/// An [`Outcome`] without its contents, for logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "as the variants of `Outcome`")]
pub enum OutcomeKind {
    Executed,
    TookOver,
    Recovered,
    Unrecorded,
    Replayed,
    ReplayedOtherVersion,
    ReplayedWithoutResult,
    ReplayedFailure,
    Failed(Verdict),
    Interrupted(Interruption),
    InProgress,
    Mismatch,
    Superseded,
    Abandoned,
    LeaseLost,
    NotStarted,
    Skipped,
    Ignored,
}

impl OutcomeKind {
    /// Returns whether the operation is known to be done, now or before.
    pub const fn is_done(self) -> bool {
        matches!(
            self,
            Self::Executed
                | Self::TookOver
                | Self::Recovered
                | Self::Unrecorded
                | Self::Replayed
                | Self::ReplayedOtherVersion
                | Self::ReplayedWithoutResult
        )
    }

    /// Returns whether the operation was completed or permanently failed before, so that its effect was not repeated.
    pub const fn is_replay(self) -> bool {
        matches!(
            self,
            Self::Replayed | Self::ReplayedOtherVersion | Self::ReplayedWithoutResult | Self::ReplayedFailure
        )
    }

    /// Returns whether a queue may acknowledge the operation without a redelivery, because it is done, superseded, or
    /// ignored. An [ordered](crate::Operation::ordered_by) operation that is [unrecorded](Outcome::Unrecorded) should
    /// be redelivered nevertheless, because older ones wait for that.
    pub const fn can_acknowledge(self) -> bool {
        self.is_done() || matches!(self, Self::Superseded | Self::Ignored)
    }

    /// Returns whether the operation is known to have failed permanently, now or before.
    pub const fn is_permanent_failure(self) -> bool {
        matches!(self, Self::Failed(Verdict::Permanent) | Self::ReplayedFailure)
    }

    /// Returns the verdict on the error of a failed run, as in logs.
    pub(crate) const fn verdict(self) -> Option<&'static str> {
        match self {
            Self::Failed(verdict) => Some(verdict.as_str()),
            _ => None,
        }
    }

    /// Returns a stable name in snake case, as in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::TookOver => "took_over",
            Self::Recovered => "recovered",
            Self::Unrecorded => "unrecorded",
            Self::Replayed => "replayed",
            Self::ReplayedOtherVersion => "replayed_other_version",
            Self::ReplayedWithoutResult => "replayed_without_result",
            Self::ReplayedFailure => "replayed_failure",
            Self::Failed(_) => "failed",
            Self::Interrupted(Interruption::Panicked) => "panicked",
            Self::Interrupted(Interruption::Cancelled) => "cancelled",
            Self::InProgress => "in_progress",
            Self::Mismatch => "mismatch",
            Self::Superseded => "superseded",
            Self::Abandoned => "abandoned",
            Self::LeaseLost => "lease_lost",
            Self::NotStarted => "not_started",
            Self::Skipped => "skipped",
            Self::Ignored => "ignored",
        }
    }
}

/// The reason why a handler ended without returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interruption {
    /// It panicked.
    Panicked,
    /// It was still running at the handler deadline, and its future was dropped.
    Cancelled,
}

/// A failure that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredFailure {
    /// The text of the error, or `None` if it is not stored.
    pub message: Option<String>,
}
