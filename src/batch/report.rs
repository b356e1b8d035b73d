//! Maps the outcome of a record to a report for its source.

use std::{collections::HashSet, convert::Infallible, error::Error as StdError, fmt, sync::Arc};

use super::{options::PermanentFailures, record::RecordInfo};
use crate::{
    clock::Timestamp,
    error::{Error, ErrorKind},
    idempotency::{
        engine::{Engine, Subject},
        guard::catch_panic,
        outcome::{Outcome, OutcomeKind, StoredFailure},
    },
    record::{Difference, KeyHash, StoredResult},
    store::{Mismatch, MismatchState, Refusal},
    telemetry::{self, EntryPoint},
};

/// The outcome of a record, without its result, which no queue takes.
pub(super) type RecordOutcome = Result<Outcome<()>, Error>;

/// The outcome of a record, for [observers](super::BatchService::on_record) and tests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordReport {
    /// The position of the record in the order of processing, from 0. This is the order of the event, except that
    /// Kafka's partitions take turns.
    pub index: usize,
    /// The record's metadata from its source.
    pub record: Arc<RecordInfo>,
    /// The record's key as stored. `None` if it ran unprotected, or if no key was found.
    pub key: Option<KeyHash>,
    /// The outcome of the operation, or the error that prevented one.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The known differences between its payload and the stored one, or an earlier payload of the batch, if the
    /// outcome is [`Mismatch`](OutcomeKind::Mismatch).
    pub difference: Difference,
    /// Whether it is reported as failed, so that it is delivered again.
    pub reported: bool,
    /// Whether it was sent to [`dead_letters`](super::BatchService::dead_letters), or has the key and payload of an
    /// earlier record of the batch that was.
    pub dead_lettered: bool,
    /// The error's text. For a handler's error it includes the texts of the error's sources. A record with the outcome
    /// of an earlier record of the batch has that one's error.
    pub error: Option<String>,
    /// The end of the time for which its key is held, including the margin for clocks. A redelivery before that only
    /// finds it in progress. `None` if the key is free, or if the time is unknown.
    pub held_until: Option<Timestamp>,
}

/// The report to the source about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Whether the record is in the list of failures.
    pub(super) reported: bool,
    pub(super) outcome: Result<OutcomeKind, ErrorKind>,
    /// The differences of a mismatch's payload.
    pub(super) difference: Difference,
    /// Whether no retry can help.
    pub(super) is_permanent: bool,
    /// Whether the user's code panicked before the record could run.
    pub(super) is_panic: bool,
    /// Whether a claim still holds the key.
    pub(super) is_held: bool,
    /// Whether the key's record is that of a superseded operation.
    pub(super) is_superseded: bool,
}

/// A panic of user code, such as a decoder, before the record could run. It is the source of the record's error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a panic")
    }
}

impl StdError for Panicked {}

/// The decision about a record's outcome.
pub(super) struct Decision {
    pub(super) report: Report,
    /// The error's text, for the log.
    pub(super) error: Option<String>,
    pub(super) dead_lettered: bool,
    pub(super) held_until: Option<Timestamp>,
}

impl Decision {
    pub(super) fn new(outcome: &RecordOutcome, policy: PermanentFailures) -> Self {
        let error = match outcome {
            // The text comes from user code, which may panic.
            Ok(Outcome::Failed(failure)) => catch_panic(|| failure.words()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        let report = Report::new(outcome.as_ref().map(Outcome::kind).map_err(Error::kind), policy);
        let is_panic =
            outcome.as_ref().is_err_and(|error| error.source().is_some_and(|source| source.is::<Panicked>()));
        let difference = outcome.as_ref().map_or(Difference::UNKNOWN, Outcome::difference);
        let is_superseded = matches!(outcome, Ok(Outcome::Superseded { newest: None }));
        let report = Report { is_panic, difference, is_superseded, ..report };
        let may_change = matches!(outcome, Ok(Outcome::Mismatch(mismatch)) if !mismatch.is_final());
        Self {
            report: if may_change { report.for_now() } else { report },
            error,
            dead_lettered: false,
            held_until: None,
        }
    }
}

impl Report {
    pub(super) fn new(outcome: Result<OutcomeKind, ErrorKind>, policy: PermanentFailures) -> Self {
        let is_permanent = match outcome {
            Ok(outcome) => outcome.is_permanent_failure() || outcome == OutcomeKind::Mismatch,
            Err(kind) => matches!(kind, ErrorKind::KeyMissing | ErrorKind::Payload | ErrorKind::Order),
        };
        let needs_redelivery = !outcome.is_ok_and(OutcomeKind::can_acknowledge);
        let reported = needs_redelivery && !(is_permanent && policy == PermanentFailures::Acknowledge);
        let (is_panic, is_held, is_superseded) = (false, false, false);
        Self { reported, outcome, difference: Difference::UNKNOWN, is_permanent, is_panic, is_held, is_superseded }
    }

    /// Makes the report one that a retry may help, so that it is reported under every policy.
    fn for_now(self) -> Self {
        Self { reported: true, is_permanent: false, ..self }
    }

    /// Returns whether the record's handler ran and failed, panicked or was cancelled, or the record had a transient
    /// decoding error (B11).
    pub(super) fn is_failure(self) -> bool {
        match self.outcome {
            Ok(outcome) => matches!(outcome, OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_)),
            Err(kind) => kind == ErrorKind::Decode,
        }
    }

    /// Returns the report of a duplicate with a different payload. It misuses the key only if the leader has a final
    /// outcome, and is not reported because that is undecided (B3). A permanent failure is final if the store records
    /// it (`records_failures`), and otherwise frees the key. So does an operation that an order has superseded.
    pub(super) fn of_misuse(self, leader: Self, records_failures: bool) -> Self {
        // An outcome that could not be recorded leaves the key to its claim.
        let is_recorded = |outcome: OutcomeKind| {
            !leader.is_held && (outcome.is_permanent_failure() && records_failures || leader.is_superseded)
        };
        let is_final = |outcome: OutcomeKind| outcome.is_done() || is_recorded(outcome);
        if !leader.reported && leader.outcome.is_ok_and(is_final) { self } else { self.for_now() }
    }

    /// Returns the report of a duplicate with the same payload: the leader's, or *replayed* if that is done (B3).
    pub(super) fn of_duplicate(self) -> Self {
        match self.outcome {
            Ok(outcome) if outcome.is_done() => Self { outcome: Ok(OutcomeKind::Replayed), ..self },
            _ => self,
        }
    }
}

/// Returns the name of a record's outcome.
pub(super) const fn name(outcome: Result<OutcomeKind, ErrorKind>) -> &'static str {
    match outcome {
        Ok(outcome) => outcome.as_str(),
        Err(kind) => kind.as_str(),
    }
}

/// Returns the level at which a record's outcome is logged.
pub(super) const fn level(outcome: Result<OutcomeKind, ErrorKind>) -> tracing::Level {
    match outcome {
        Ok(outcome) => telemetry::level(outcome),
        Err(ErrorKind::KeyMissing | ErrorKind::Payload | ErrorKind::Order) => tracing::Level::WARN,
        Err(_) => tracing::Level::ERROR,
    }
}

/// Returns the outcome of a record that did not run. A queue acknowledges a completed operation without decoding its
/// result. If the lease of a claim for a different payload has lapsed, the key's outcome is unknown, as for a claim
/// that may not be taken over.
pub(super) fn outcome_of(refusal: Refusal, payload_version: u32) -> Outcome<()> {
    if let Refusal::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt }, .. }) = refusal {
        return Outcome::Abandoned { attempt };
    }
    let failure = |_: &StoredResult| Ok(StoredFailure { message: None });
    let Ok(outcome) = Outcome::of_refusal::<Infallible>(refusal, payload_version, |_| Ok(Some(())), failure);
    outcome
}

/// Logs a summary of a batch, and passes its records to the engine's observers.
pub(super) fn tell(engine: &Engine, operation: &str, reports: &[RecordReport]) {
    let count = |is: fn(&RecordReport) -> bool| reports.iter().filter(|report| is(report)).count();
    let executed = || count(|report| matches!(report.outcome, Ok(OutcomeKind::Executed | OutcomeKind::TookOver)));
    let duplicates = || count(|report| report.outcome.is_ok_and(OutcomeKind::is_replay));
    let failed = || count(|report| matches!(report.outcome, Ok(OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_))));
    let errors = || count(|report| report.outcome.is_err());
    // Evaluated only if there is a subscriber. `enabled!` is not used, because a layer of `tracing-subscriber` whose
    // own filter rejects that check would then lose the next event.
    tracing::info!(
        target: "lambda_once",
        operation,
        records = reports.len(),
        executed = executed(),
        duplicates_saved = duplicates(),
        failed = failed(),
        errors = errors(),
        other = reports.len() - executed() - duplicates() - failed() - errors(),
        reported = count(|report| report.reported),
        "batch",
    );
    if engine.settings.observers.is_empty() {
        return;
    }
    let mut measured = HashSet::new();
    for report in reports {
        let subject = Subject::new(EntryPoint::Batch, operation, report.key);
        // The measurements of a key are those of the first record with it.
        let is_duplicate = report.key.is_some_and(|key| !measured.insert(key));
        engine.observe(Subject { difference: report.difference, is_duplicate, ..subject }, report.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorStatus, Failure, Interruption};

    fn mismatch(state: MismatchState) -> Mismatch {
        Mismatch::new(state, Difference::UNKNOWN)
    }

    fn reported(outcome: RecordOutcome) -> [bool; 2] {
        [PermanentFailures::Report, PermanentFailures::Acknowledge]
            .map(|policy| Decision::new(&outcome, policy).report.reported)
    }

    #[test]
    fn done_records_are_acknowledged() {
        for outcome in [
            Outcome::Executed(()),
            Outcome::TookOver(()),
            Outcome::Recovered(()),
            Outcome::Unrecorded(()),
            Outcome::Replayed(()),
            Outcome::ReplayedOtherVersion(()),
            Outcome::ReplayedWithoutResult,
        ] {
            assert_eq!(reported(Ok(outcome)), [false, false]);
        }
    }

    // Tests B7.
    #[test]
    fn undecided_records_are_reported_under_every_policy() {
        for outcome in [
            Outcome::Failed(Failure::transient("t")),
            Outcome::Failed(Failure::unknown("u")),
            Outcome::Interrupted(Interruption::Panicked),
            Outcome::Interrupted(Interruption::Cancelled),
            Outcome::InProgress { lease_until: None, attempt: 1 },
            Outcome::Abandoned { attempt: 1 },
            Outcome::Mismatch(mismatch(MismatchState::InProgress { lease_until: None, attempt: 1 })),
            outcome_of(Refusal::Mismatch(mismatch(MismatchState::Abandoned { attempt: 1 })), 1),
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

    // Tests B7.
    #[test]
    fn unretryable_records_follow_the_policy() {
        for outcome in [
            Ok(Outcome::Failed(Failure::permanent("p"))),
            Ok(Outcome::ReplayedFailure(StoredFailure { message: None })),
            Ok(Outcome::Mismatch(mismatch(MismatchState::Final))),
            Err(Error::key_missing("")),
            Err(Error::payload("")),
        ] {
            assert_eq!(reported(outcome), [true, false]);
        }
    }
}
