//! Outcomes of operations.

use std::borrow::Cow;

use super::{
    guard::catch_panic,
    verdict::{Failure, Verdict},
};
use crate::{clock::Timestamp, order::Sequence, record::Difference, store::Mismatch};

/// The outcome of an operation, as far as this call knows.
///
/// An outcome is what the protocol decided; trouble that kept it from deciding is an [`Error`](crate::Error).
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "an operation may not have run: look at the outcome"]
pub enum Outcome<T> {
    /// It ran now, and its result is recorded. No earlier run may have taken effect.
    Executed(T),
    /// It ran now, and its result is recorded. An earlier run ended without an outcome, so it may have taken effect
    /// twice, unless a probe has said that it had not.
    TookOver(T),
    /// An earlier run had taken effect without leaving an outcome: its [probe](crate::Operation::probe) has found this
    /// result, which is recorded now. Nothing ran.
    Recovered(T),
    /// It ran now and succeeded, or a probe found it done, but that could not be recorded. It will not run again while the
    /// lease lasts; then it may, or is probed once more.
    Unrecorded(T),
    /// It was done before; this is the recorded result.
    Replayed(T),
    /// It was done before, with a payload of another [version](crate::OperationSettings::payload_version); this is the recorded
    /// result. The payloads were not compared.
    ReplayedOtherVersion(T),
    /// It was done before; its result is not stored: too large, not serializable, or [discarded](crate::Results::Discard).
    ReplayedWithoutResult,
    /// It failed for good before; this is the recorded failure.
    ReplayedFailure(StoredFailure),
    /// It ran now and failed, or its probe did. The verdict says what was made of the claim.
    Failed(Failure),
    /// It, or its probe, ran now and panicked, or was cancelled at the stop point. It may have taken effect; the claim is
    /// kept until its lease ends (after a panic, unless [`OnPanic::Transient`](crate::OnPanic::Transient) says
    /// otherwise).
    Interrupted(Interruption),
    /// Somebody else is running it, or was until now.
    InProgress {
        /// When that claim's lease ends; `None` if it has none that is known.
        lease_until: Option<Timestamp>,
        /// How often the key has been granted.
        attempt: u64,
    },
    /// The key belongs to another payload. Nothing ran, and nothing was waited for. The other operation may still be
    /// running: its state says whether a retry can help. The parts in which the payloads differ are named if they are known.
    Mismatch(Mismatch),
    /// It does not run, and never will: a newer operation on its [entity](crate::Operation::ordered_by) has taken effect, or the work
    /// itself [said so](Verdict::Superseded), now or before. A run of it that was lost may have taken effect before the newer one.
    Superseded {
        /// The greatest sequence that was completed; `None` where the work said so.
        newest: Option<Sequence>,
    },
    /// An earlier claim ended without an outcome, and [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) forbids
    /// another run. Of a record of a batch also: that claim was another payload's.
    Abandoned {
        /// How often the key has been granted.
        attempt: u64,
    },
    /// It ran now, but longer than its lease, and somebody else claimed it meanwhile and has not finished. What this run
    /// did is not recorded.
    LeaseLost,
    /// It did not run: there was no time left before the stop point. The claim, if any, was released.
    NotStarted,
    /// It did not run: an operation that comes before it in their order failed, or any operation in an order, where that
    /// stops the batch. The claim, if any, was released.
    Skipped,
    /// It is no work: a predicate of the service, or its envelope, says so. Nothing was claimed.
    Ignored,
}

impl<T> Outcome<T> {
    /// The result, if the operation is known to be done and its result is here.
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

    /// The same outcome, with its result changed if it is [replayed](Self::Replayed): to mark it as one, or to renew what has
    /// expired in it, such as a signed URL.
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

    /// Whether the operation is known to be done, now or before.
    pub const fn is_done(&self) -> bool {
        self.kind().is_done()
    }

    /// A stable name in snake case, as in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        self.kind().as_str()
    }

    /// Returns what went wrong, in words: those of a failure, now or before.
    pub(crate) fn reason(&self) -> Option<Cow<'_, str>> {
        match self {
            // The text is the user's, and printing it may panic.
            Self::Failed(failure) => catch_panic(|| failure.words()).map(Cow::Owned),
            Self::ReplayedFailure(stored) => stored.message.as_deref().map(Cow::Borrowed),
            _ => None,
        }
    }

    /// The parts in which the payload differs from that on record, as far as they are known.
    pub(crate) const fn difference(&self) -> Difference {
        match self {
            Self::Mismatch(mismatch) => mismatch.difference,
            _ => Difference::UNKNOWN,
        }
    }

    /// The kind of the outcome, without its value.
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

/// An [`Outcome`] without what comes with it, for logs, metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they mean what the variants of `Outcome` mean")]
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
    /// Whether the operation is known to be done, now or before.
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

    /// Whether it was done, or had failed for good, before: its effect was not repeated.
    pub const fn is_replay(self) -> bool {
        matches!(
            self,
            Self::Replayed | Self::ReplayedOtherVersion | Self::ReplayedWithoutResult | Self::ReplayedFailure
        )
    }

    /// Whether a queue may acknowledge the operation as it is: it is done, superseded, or no work. An [ordered](crate::Operation::ordered_by)
    /// one that is [unrecorded](Outcome::Unrecorded) should be delivered again all the same, as older ones wait for that.
    pub const fn can_acknowledge(self) -> bool {
        self.is_done() || matches!(self, Self::Superseded | Self::Ignored)
    }

    /// Whether the operation is known to have failed for good, now or before.
    pub const fn is_permanent_failure(self) -> bool {
        matches!(self, Self::Failed(Verdict::Permanent) | Self::ReplayedFailure)
    }

    /// Returns what the error of a failed run says of its operation, as logs have it.
    pub(crate) const fn verdict(self) -> Option<&'static str> {
        match self {
            Self::Failed(verdict) => Some(verdict.as_str()),
            _ => None,
        }
    }

    /// A stable name in snake case, as in logs and metrics.
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

/// How a handler ended without returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interruption {
    /// It panicked.
    Panicked,
    /// It was still running at the stop point, and its future was dropped.
    Cancelled,
}

/// A failure that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredFailure {
    /// What the error said; `None` if it is not kept.
    pub message: Option<String>,
}
