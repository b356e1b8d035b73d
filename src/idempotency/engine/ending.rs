//! The end of a run, with its claim, its settlement, and the outcome for the caller.

#[cfg(feature = "batch")]
use crate::idempotency::{outcome::OutcomeKind, verdict::Verdict};
use crate::{
    clock::Timestamp,
    idempotency::{
        claim::Claim,
        guard::drop_contained,
        outcome::{Interruption, Outcome, StoredFailure},
        verdict::Failure,
    },
    record::{Record, StoredResult},
    store::{Refusal, Settlement},
};

/// A successful run, by the way in which its claim ends.
#[derive(Debug)]
pub(crate) enum Success<T> {
    /// The value is recorded, and replayed to duplicates.
    Complete(T),
    /// The value is recorded as above, but it is an earlier run's, found by a probe.
    Recover(T),
    /// The operation may run again, as after a transient failure.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer has answers that are not stored"))]
    Release(T),
    /// The claim is kept until its lease ends, as after an unknown failure.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "the HTTP layer passes on errors as they are"))]
    Keep(T),
}

/// The conclusion of a run.
#[derive(Debug)]
pub(crate) enum Conclusion<T> {
    Completed(T),
    Recovered(T),
    Released(T),
    Kept(T),
    /// It succeeded, but its success could not be recorded.
    Unrecorded(T),
    /// The work reported that a newer operation supersedes it.
    Superseded,
    Failed(Failure),
    /// It succeeded, but its transaction was not committed, or may not have been.
    NotCommitted(Failure),
    Interrupted(Interruption),
    /// The handler deadline passed before the first poll.
    NotStarted,
    /// The lease was lost, and the successor decided the outcome.
    Overtaken(Box<Refusal>),
    LeaseLost,
}

/// The end of a run.
#[derive(Debug)]
pub(crate) struct End<T> {
    pub(super) claim: Option<Claim>,
    /// The settlement to write. `None` once it is written, and if the claim is kept until its lease ends.
    pub(super) settlement: Option<Settlement>,
    pub(super) conclusion: Conclusion<T>,
    /// The end of the lease that holds the key although the run is over: the run's own, or a successor's.
    pub(super) held_until: Option<Timestamp>,
}

impl<T> Conclusion<T> {
    pub(super) const PANICKED: Self = Self::Interrupted(Interruption::Panicked);
}

impl<T> End<T> {
    /// Returns the name of its outcome, if the handler failed, panicked or was cancelled.
    #[cfg(feature = "batch")]
    pub(crate) fn failure_name(&self) -> Option<&'static str> {
        match &self.conclusion {
            Conclusion::Failed(failure) | Conclusion::NotCommitted(failure) => {
                Some(OutcomeKind::Failed(failure.verdict()).as_str())
            }
            Conclusion::Interrupted(interruption) => Some(OutcomeKind::Interrupted(*interruption).as_str()),
            Conclusion::LeaseLost => Some(OutcomeKind::LeaseLost.as_str()),
            _ => None,
        }
    }

    /// Creates an end whose claim is settled like this. Without a claim there is nothing to settle.
    pub(crate) fn settled_with(
        claim: Option<Claim>,
        settlement: Option<Settlement>,
        conclusion: Conclusion<T>,
    ) -> Self {
        Self { claim, settlement, conclusion, held_until: None }
    }

    /// Creates an end whose claim is released.
    pub(crate) fn released(claim: Option<Claim>, conclusion: Conclusion<T>) -> Self {
        let settlement = claim.as_ref().map(Claim::release);
        Self::settled_with(claim, settlement, conclusion)
    }

    /// Creates an end whose claim is kept until its lease ends, because the operation may have taken effect.
    pub(crate) fn kept(claim: Option<Claim>, conclusion: Conclusion<T>) -> Self {
        let held_until = claim.as_ref().map(Claim::lease_until);
        Self { claim, settlement: None, conclusion, held_until }
    }

    /// Creates the end of a run that panicked and of which nothing else is known.
    pub(crate) fn panicked(claim: Claim) -> Self {
        Self::kept(Some(claim), Conclusion::PANICKED)
    }

    /// Replaces the conclusion of the run.
    pub(super) fn conclude(&mut self, conclusion: Conclusion<T>) {
        drop_contained(std::mem::replace(&mut self.conclusion, conclusion));
    }

    /// Returns whether a settlement is still to be written.
    #[cfg(feature = "batch")]
    pub(crate) fn is_due(&self) -> bool {
        self.settlement.is_some()
    }

    /// Returns whether the settlement lets the operation run again, and the run intends that. A permanent failure may
    /// be released as well, if the store's records cannot represent it.
    #[cfg(feature = "batch")]
    pub(crate) fn is_release(&self) -> bool {
        self.settlement.as_ref().is_some_and(Settlement::is_release)
            && !matches!(&self.conclusion, Conclusion::Failed(failure) if failure.verdict() == Verdict::Permanent)
    }

    /// Returns whether the run was cancelled.
    #[cfg(feature = "batch")]
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self.conclusion, Conclusion::Interrupted(Interruption::Cancelled))
    }

    /// Returns the end of the lease that holds the key although the run is over.
    #[cfg(feature = "batch")]
    pub(crate) fn held_until(&self) -> Option<Timestamp> {
        self.held_until
    }

    /// Returns the conclusion of the run.
    #[cfg(feature = "http")]
    pub(crate) fn into_conclusion(self) -> Conclusion<T> {
        self.conclusion
    }

    /// Returns the outcome for the caller. `replay` converts a successor's record to an outcome.
    pub(crate) fn into_outcome<E>(
        self,
        replay: impl FnOnce(Refusal) -> Result<Outcome<T>, E>,
    ) -> Result<Outcome<T>, E> {
        let took_over = self.claim.as_ref().is_some_and(Claim::took_over);
        self.conclusion.into_outcome(took_over, replay)
    }
}

impl<T> Conclusion<T> {
    /// Returns the outcome for the caller, for a run under a claim that took over or did not.
    pub(crate) fn into_outcome<E>(
        self,
        took_over: bool,
        replay: impl FnOnce(Refusal) -> Result<Outcome<T>, E>,
    ) -> Result<Outcome<T>, E> {
        Ok(match self {
            Self::Completed(value) if took_over => Outcome::TookOver(value),
            Self::Completed(value) => Outcome::Executed(value),
            Self::Recovered(value) => Outcome::Recovered(value),
            Self::Unrecorded(value) => Outcome::Unrecorded(value),
            Self::Released(_) => Outcome::Failed(Failure::transient("the result is not to be recorded")),
            Self::Kept(_) => Outcome::Failed(Failure::unknown("whether the operation took effect is not known")),
            Self::Superseded => Outcome::Superseded { newest: None },
            Self::Failed(failure) | Self::NotCommitted(failure) => Outcome::Failed(failure),
            Self::Interrupted(interruption) => Outcome::Interrupted(interruption),
            Self::NotStarted => Outcome::NotStarted,
            Self::Overtaken(refusal) => replay(*refusal)?,
            Self::LeaseLost => Outcome::LeaseLost,
        })
    }
}

impl<T> Outcome<T> {
    /// Returns the outcome of an operation that did not run, whose payload has this version. `value` and `failure` read
    /// a recorded result. `value` returns `None` if none is stored.
    pub(crate) fn of_refusal<E>(
        refusal: Refusal,
        payload_version: u32,
        value: impl FnOnce(&StoredResult) -> Result<Option<T>, E>,
        failure: impl FnOnce(&StoredResult) -> Result<StoredFailure, E>,
    ) -> Result<Self, E> {
        Ok(match refusal {
            Refusal::Completed(record) if record.result.superseded => Self::Superseded { newest: None },
            Refusal::Completed(record) => match value(&record.result)? {
                Some(value) if is_of_other_version(&record, payload_version) => Self::ReplayedOtherVersion(value),
                Some(value) => Self::Replayed(value),
                None => Self::ReplayedWithoutResult,
            },
            Refusal::Failed(record) => Self::ReplayedFailure(failure(&record.result)?),
            Refusal::InProgress { lease_until, attempt } => Self::InProgress { lease_until, attempt },
            Refusal::Abandoned { attempt } => Self::Abandoned { attempt },
            Refusal::Mismatch(mismatch) => Self::Mismatch(mismatch),
            Refusal::Superseded { newest } => Self::Superseded { newest: Some(newest) },
        })
    }
}

/// Returns `true` if the record's payload has a different version and was not compared.
fn is_of_other_version(record: &Record, payload_version: u32) -> bool {
    record.fingerprint.is_some_and(|fingerprint| fingerprint.payload_version() != payload_version)
}
