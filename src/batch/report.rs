//! From what became of a record to what the queue is told.

use super::PermanentFailures;
use crate::{
    Error, ErrorKind, Outcome, StoredFailure, Verdict, idempotency::guard::contain, store::Refusal, telemetry,
};

/// What became of a record. Its result is not needed: a queue takes none.
pub(super) type RecordOutcome = Result<Outcome<()>, Error>;

/// What the queue is told about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Whether the record is in the list of failures.
    pub(super) reported: bool,
    /// The name of what became of it.
    pub(super) outcome: &'static str,
    /// Whether the outcome is final for its key: done, or failed for good.
    pub(super) is_final: bool,
    /// How loudly that is logged.
    pub(super) level: tracing::Level,
}

/// What is known of a record's outcome.
pub(super) struct Decision {
    pub(super) report: Report,
    /// What went wrong, for the log.
    pub(super) error: Option<String>,
}

impl Decision {
    pub(super) fn new(outcome: &RecordOutcome, policy: PermanentFailures) -> Self {
        let error = match outcome {
            // The text is the user's, and printing it may panic.
            Ok(Outcome::Failed(failure)) => contain(|| failure.to_string()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        Self { report: Report::new(outcome, policy), error }
    }
}

impl Report {
    pub(super) fn new(outcome: &RecordOutcome, policy: PermanentFailures) -> Self {
        let name = match outcome {
            Ok(outcome) => outcome.as_str(),
            Err(error) => error.kind().as_str(),
        };
        let reported = if is_permanent(outcome) {
            policy == PermanentFailures::Report
        } else {
            !matches!(outcome, Ok(outcome) if outcome.is_done())
        };
        Self { reported, outcome: name, is_final: is_final(outcome), level: level(outcome) }
    }

    /// What the queue is told about a record that has the key of an earlier one for another payload. Only a record that
    /// stands makes that a misuse of its key.
    pub(super) fn of_misuse(self, leader: Self) -> Self {
        Self { reported: self.reported || !leader.is_final, ..self }
    }

    /// What the queue is told about a record with the same key as an earlier one of the batch.
    pub(super) fn of_follower(self) -> Self {
        match self.outcome {
            "executed" | "took_over" | "unrecorded" => {
                Self { outcome: "replayed", level: telemetry::level(&Outcome::Replayed(())), ..self }
            }
            _ => self,
        }
    }
}

fn is_permanent(outcome: &RecordOutcome) -> bool {
    match outcome {
        Ok(Outcome::Failed(failure)) => failure.verdict() == Verdict::Permanent,
        Ok(outcome) => matches!(outcome, Outcome::ReplayedFailure(_) | Outcome::Mismatch),
        Err(error) => matches!(error.kind(), ErrorKind::KeyMissing | ErrorKind::Payload),
    }
}

/// Whether a record's outcome is final for its key: done, or failed for good.
fn is_final(outcome: &RecordOutcome) -> bool {
    match outcome {
        Ok(Outcome::Failed(failure)) => failure.verdict() == Verdict::Permanent,
        Ok(outcome) => outcome.is_done() || matches!(outcome, Outcome::ReplayedFailure(_)),
        Err(_) => false,
    }
}

const fn level(outcome: &RecordOutcome) -> tracing::Level {
    match outcome {
        Ok(outcome) => telemetry::level(outcome),
        Err(error) => match error.kind() {
            ErrorKind::KeyMissing | ErrorKind::Payload => tracing::Level::WARN,
            _ => tracing::Level::ERROR,
        },
    }
}

/// A record that did not run. A queue acknowledges what is done without decoding its result.
pub(super) fn replayed(refusal: Refusal) -> Outcome<()> {
    match refusal {
        Refusal::Completed(_) => Outcome::Replayed(()),
        Refusal::Failed(_) => Outcome::ReplayedFailure(StoredFailure { message: None }),
        Refusal::InProgress { lease_until, attempt } => Outcome::InProgress { lease_until, attempt },
        Refusal::Abandoned { attempt } => Outcome::Abandoned { attempt },
        Refusal::Mismatch => Outcome::Mismatch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorStatus, Failure, Interruption};

    fn reported(outcome: RecordOutcome) -> [bool; 2] {
        [PermanentFailures::Report, PermanentFailures::Acknowledge].map(|policy| Report::new(&outcome, policy).reported)
    }

    #[test]
    fn what_is_done_is_acknowledged() {
        for outcome in [
            Outcome::Executed(()),
            Outcome::TookOver(()),
            Outcome::Unrecorded(()),
            Outcome::Replayed(()),
            Outcome::ReplayedWithoutResult,
        ] {
            assert_eq!(reported(Ok(outcome)), [false, false]);
        }
    }

    #[test]
    fn what_is_not_decided_is_reported_under_every_policy() {
        for outcome in [
            Outcome::Failed(Failure::transient("t")),
            Outcome::Failed(Failure::unknown("u")),
            Outcome::Interrupted(Interruption::Panicked),
            Outcome::Interrupted(Interruption::CutOff),
            Outcome::InProgress { lease_until: None, attempt: 1 },
            Outcome::Abandoned { attempt: 1 },
            Outcome::LeaseLost,
            Outcome::NotStarted,
            Outcome::Skipped,
        ] {
            assert_eq!(reported(Ok(outcome)), [true, true]);
        }
        for kind in [ErrorKind::Timeout, ErrorKind::AccessDenied, ErrorKind::Format, ErrorKind::Request] {
            assert_eq!(reported(Err(Error::new(kind, ErrorStatus::Permanent, "claim", ""))), [true, true]);
        }
    }

    #[test]
    fn what_no_retry_can_help_follows_the_policy() {
        for outcome in [
            Ok(Outcome::Failed(Failure::permanent("p"))),
            Ok(Outcome::ReplayedFailure(StoredFailure { message: None })),
            Ok(Outcome::Mismatch),
            Err(Error::key_missing("")),
            Err(Error::payload("")),
        ] {
            assert_eq!(reported(outcome), [true, false]);
        }
    }
}
