//! From the outcome of a record to what its source is told.

use std::{convert::Infallible, error::Error as StdError, fmt, sync::Arc};

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

/// The outcome of a record. Its result is not needed: a queue takes none.
pub(super) type RecordOutcome = Result<Outcome<()>, Error>;

/// The outcome of a record, for [observers](super::BatchService::on_record) and tests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordReport {
    /// Its place among the records as they are handled, from 0: that in the event, but in Kafka the partitions are taken in
    /// turn.
    pub index: usize,
    /// What its source says of it.
    pub record: Arc<RecordInfo>,
    /// Its key, as the store has it; `None` if it ran unprotected, or if none was found.
    pub key: Option<KeyHash>,
    /// The outcome of its operation, or the error that kept it from being decided.
    pub outcome: Result<OutcomeKind, ErrorKind>,
    /// The parts in which its payload differs from that on record, or from that of an earlier record of the batch, if its outcome
    /// is [`Mismatch`](OutcomeKind::Mismatch) and they are known.
    pub difference: Difference,
    /// Whether it is among those that failed, so that it is delivered again.
    pub reported: bool,
    /// Whether it was sent to [`dead_letters`](super::BatchService::dead_letters), or has the key and the payload of an earlier
    /// record of the batch that was.
    pub dead_lettered: bool,
    /// What went wrong, in words; those of a handler's error are its own, and its sources'.
    pub error: Option<String>,
    /// Until when its key is held, with the margin for clocks: a redelivery before that only finds it in progress. `None` if
    /// it is free, or if that is not known.
    pub held_until: Option<Timestamp>,
}

/// What the source is told about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// Whether the record is in the list of failures.
    pub(super) reported: bool,
    pub(super) outcome: Result<OutcomeKind, ErrorKind>,
    /// The parts in which its payload differs, of a mismatch.
    pub(super) difference: Difference,
    /// Whether no retry can help.
    pub(super) is_permanent: bool,
    /// Whether the user's code panicked before the record could run.
    pub(super) is_panic: bool,
}

/// The user's code, such as a decoder, panicked before the record could run. The source of the record's error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a panic")
    }
}

impl StdError for Panicked {}

/// What is known of a record's outcome.
pub(super) struct Decision {
    pub(super) report: Report,
    /// What went wrong, for the log.
    pub(super) error: Option<String>,
    pub(super) dead_lettered: bool,
    pub(super) held_until: Option<Timestamp>,
}

impl Decision {
    pub(super) fn new(outcome: &RecordOutcome, policy: PermanentFailures) -> Self {
        let error = match outcome {
            // The text is the user's, and printing it may panic.
            Ok(Outcome::Failed(failure)) => catch_panic(|| failure.words()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        let report = Report::new(outcome.as_ref().map(Outcome::kind).map_err(Error::kind), policy);
        let is_panic =
            outcome.as_ref().is_err_and(|error| error.source().is_some_and(|source| source.is::<Panicked>()));
        let difference = outcome.as_ref().map_or(Difference::UNKNOWN, Outcome::difference);
        let report = Report { is_panic, difference, ..report };
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
        Self { reported, outcome, difference: Difference::UNKNOWN, is_permanent, is_panic: false }
    }

    /// The same for a record that a retry may help: it is reported under every policy.
    fn for_now(self) -> Self {
        Self { reported: true, is_permanent: false, ..self }
    }

    /// Whether the record's handler ran and failed, panicked or was cancelled; or it could not be decoded for now.
    pub(super) fn is_failure(self) -> bool {
        match self.outcome {
            Ok(outcome) => matches!(outcome, OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_)),
            Err(kind) => kind == ErrorKind::Decode,
        }
    }

    /// What the source is told about a record that has the key of an earlier one for another payload. Only a record that
    /// stands makes that a misuse of its key.
    pub(super) fn of_misuse(self, leader: Self) -> Self {
        let is_final = leader.outcome.is_ok_and(|outcome| outcome.is_done() || outcome.is_permanent_failure());
        if is_final { self } else { self.for_now() }
    }

    /// What the source is told about a record with the same key as an earlier one of the batch.
    pub(super) fn of_follower(self) -> Self {
        match self.outcome {
            Ok(outcome) if outcome.is_done() => Self { outcome: Ok(OutcomeKind::Replayed), ..self },
            _ => self,
        }
    }
}

/// The name of a record's outcome.
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

/// The outcome of a record that did not run. A queue acknowledges what is done without decoding its result. If another
/// payload's claim has lapsed, the outcome of the key is unknown, as if the record's own claim may not be taken over.
pub(super) fn outcome_of(refusal: Refusal, payload_version: u32) -> Outcome<()> {
    if let Refusal::Mismatch(Mismatch { state: MismatchState::Abandoned { attempt }, .. }) = refusal {
        return Outcome::Abandoned { attempt };
    }
    let failure = |_: &StoredResult| Ok(StoredFailure { message: None });
    let Ok(outcome) = Outcome::of_refusal::<Infallible>(refusal, payload_version, |_| Ok(Some(())), failure);
    outcome
}

/// Logs a summary of a batch, and tells the engine's observers of its records.
pub(super) fn tell(engine: &Engine, operation: &str, reports: &[RecordReport]) {
    let count = |is: fn(&RecordReport) -> bool| reports.iter().filter(|report| is(report)).count();
    let executed = || count(|report| matches!(report.outcome, Ok(OutcomeKind::Executed | OutcomeKind::TookOver)));
    let duplicates = || count(|report| report.outcome.is_ok_and(OutcomeKind::is_replay));
    let failed = || count(|report| matches!(report.outcome, Ok(OutcomeKind::Failed(_) | OutcomeKind::Interrupted(_))));
    let errors = || count(|report| report.outcome.is_err());
    // Evaluated only if somebody listens. Not by `enabled!`: asked in vain, it makes `tracing-subscriber` lose the next event
    // for a layer with a filter of its own.
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
    for report in reports {
        let subject = Subject::new(EntryPoint::Batch, operation, report.key);
        engine.observe(Subject { difference: report.difference, ..subject }, report.outcome);
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
    fn what_is_done_is_acknowledged() {
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

    #[test]
    fn what_is_not_decided_is_reported_under_every_policy() {
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

    #[test]
    fn what_no_retry_can_help_follows_the_policy() {
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
