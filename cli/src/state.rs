//! The states of an operation, as an operator distinguishes them.

use std::time::Duration;

use lambda_once::{
    clock::Timestamp,
    record::{Record, Status},
    store::listing::{ListRequest, ListedState},
};

/// The state of an operation at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no record, or it has expired.
    Absent,
    /// A claim is held.
    Running,
    /// A claim of another library, which has no lease.
    Foreign,
    /// The lease of the last claim has ended without an outcome.
    Abandoned,
    /// A claim took over an abandoned operation, and was released.
    HandedBack,
    /// Abandoned, and an operator has released it.
    Released,
    Failed,
    Done,
    /// The handler found that a newer operation of the entity had taken effect.
    Superseded,
}

impl State {
    pub(crate) fn of(record: Option<&Record>, margin: Duration, now: Timestamp) -> Self {
        let Some(record) = record.filter(|record| !is_expired(record, now)) else { return Self::Absent };
        let lapsed = ListRequest { skew_margin: margin, ..ListRequest::new(ListedState::Lapsed) };
        match record.status {
            Status::Failed => Self::Failed,
            Status::Completed if record.result.superseded => Self::Superseded,
            Status::Completed => Self::Done,
            Status::InProgress if record.lease_until.is_none() => Self::Foreign,
            Status::InProgress if !lapsed.includes(record, now) => Self::Running,
            Status::InProgress if record.released.is_some_and(|released| released >= record.attempt) => Self::Released,
            Status::InProgress if record.owner.is_none() => Self::HandedBack,
            Status::InProgress => Self::Abandoned,
        }
    }

    /// Returns the name of the state.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Running => "running",
            Self::Foreign => "foreign",
            Self::Abandoned | Self::HandedBack => "abandoned",
            Self::Released => "released",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Superseded => "superseded",
        }
    }
}

fn is_expired(record: &Record, now: Timestamp) -> bool {
    record.expiration.is_some_and(|expiration| expiration <= now.seconds_rounded_down())
}

#[cfg(test)]
mod tests {
    use lambda_once::record::{Owner, StoredResult};

    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(1_000_000);
    const MARGIN: Duration = Duration::from_secs(1);

    fn of(record: &Record) -> State {
        State::of(Some(record), MARGIN, NOW)
    }

    fn claimed(lease_until: Timestamp) -> Record {
        Record {
            owner: Some(Owner::from_bytes([1; 16])),
            attempt: 2,
            lease_until: Some(lease_until),
            expiration: Some(1_000_001),
            ..Record::new(Status::InProgress)
        }
    }

    #[test]
    fn a_claim_is_running_until_its_lease_and_the_margin_have_passed() {
        assert_eq!(of(&claimed(NOW)), State::Running);
        assert_eq!(of(&claimed(NOW.before(MARGIN))), State::Running);
        assert_eq!(of(&claimed(NOW.before(Duration::from_millis(1_001)))), State::Abandoned);
    }

    #[test]
    fn an_expired_record_is_absent() {
        for status in [Status::InProgress, Status::Completed, Status::Failed] {
            let record = Record { expiration: Some(1_000_000), ..Record::new(status) };
            assert_eq!(of(&record), State::Absent, "{status:?}");
        }
        assert_eq!(State::of(None, MARGIN, NOW), State::Absent);
    }

    #[test]
    fn a_release_counts_for_the_attempt_that_it_names() {
        let record = Record { released: Some(2), ..claimed(Timestamp::EPOCH) };
        assert_eq!(of(&record), State::Released);
        assert_eq!(of(&Record { released: Some(1), ..record }), State::Abandoned);
    }

    #[test]
    fn other_states_follow_from_the_record() {
        assert_eq!(of(&Record { owner: None, ..claimed(Timestamp::EPOCH) }), State::HandedBack);
        assert_eq!(of(&Record::new(Status::InProgress)), State::Foreign);
        assert_eq!(of(&Record::new(Status::Failed)), State::Failed);
        assert_eq!(of(&Record::new(Status::Completed)), State::Done);
        let superseded = Record { result: StoredResult::SUPERSEDED, ..Record::new(Status::Completed) };
        assert_eq!(of(&superseded), State::Superseded);
    }
}
