//! The state after a killed process, and the promised outcomes of the next deliveries.

use std::time::Duration;

use lambda_once::{
    OutcomeKind,
    clock::{Clock, Timestamp},
    record::Status,
    store::ResultData,
};

use super::{Policy, World};

/// The default margin, which is added to every lease.
const MARGIN: Duration = Duration::from_secs(1);

/// The record that a killed process left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Left {
    Nothing,
    /// A live claim.
    Claim,
    /// A claim that others may take over, or none on a record that was handed back.
    LapsedClaim,
    Result,
    Failure,
}

/// An operation after the death of its process.
///
/// | left | at once | at the end of lease and margin | after the lease | later |
/// |---|---|---|---|---|
/// | nothing | executed | | | replayed |
/// | a live claim | in progress | in progress | the policy decides | replayed |
/// | a claim that others may take over | the policy decides | | | replayed |
/// | a result, a failure | replayed | | | replayed |
///
/// The policy decides: `Rerun` takes over, and the effect may be the second. `Refuse` abandons, then and later. `Probe`
/// recovers an effect that is there, and takes over otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remains {
    pub(super) left: Left,
    /// The effects up to its death.
    pub(super) effects: usize,
    lease_until: Option<Timestamp>,
}

impl Remains {
    /// Returns the last moment at which nobody else may claim the operation.
    pub(super) fn last_moment(&self) -> Option<Timestamp> {
        self.lease_until.filter(|_| self.left == Left::Claim).map(|lease| lease.after(MARGIN))
    }

    /// Returns the outcome of the next delivery, and the number of its effects.
    pub(super) fn at_once(&self, policy: Policy) -> (OutcomeKind, usize) {
        match self.left {
            Left::Nothing => (OutcomeKind::Executed, 1),
            Left::Claim => (OutcomeKind::InProgress, 0),
            Left::LapsedClaim => self.by_policy(policy),
            Left::Result => (OutcomeKind::Replayed, 0),
            Left::Failure => (OutcomeKind::ReplayedFailure, 0),
        }
    }

    /// Returns the same for a second delivery, at the last moment of a claim of this work.
    pub(super) fn at_its_last_moment(&self, moment: Timestamp, policy: Policy) -> (OutcomeKind, usize) {
        match self.last_moment() {
            Some(last) if last == moment => (OutcomeKind::InProgress, 0),
            Some(_) => self.by_policy(policy),
            None => self.finally(policy),
        }
    }

    /// Returns the same for a third delivery, after that moment.
    pub(super) fn after_its_lease(&self, moment: Timestamp, policy: Policy) -> (OutcomeKind, usize) {
        match self.last_moment() {
            Some(last) if last == moment => self.by_policy(policy),
            _ => self.finally(policy),
        }
    }

    /// Returns the same for all later deliveries.
    pub(super) fn finally(&self, policy: Policy) -> (OutcomeKind, usize) {
        let outcome = match (self.left, policy) {
            (Left::Failure, _) => OutcomeKind::ReplayedFailure,
            (Left::Claim | Left::LapsedClaim, Policy::Refuse) => OutcomeKind::Abandoned,
            _ => OutcomeKind::Replayed,
        };
        (outcome, 0)
    }

    fn by_policy(&self, policy: Policy) -> (OutcomeKind, usize) {
        match policy {
            Policy::Refuse => (OutcomeKind::Abandoned, 0),
            Policy::Probe if self.effects > 0 => (OutcomeKind::Recovered, 0),
            Policy::Rerun | Policy::Probe => (OutcomeKind::TookOver, 1),
        }
    }
}

/// Observes an operation. An effect that no record guards fails the test.
pub(super) async fn remains(world: &World, key: &str) -> Remains {
    let hash = world.delivery.work.key_hash(&world.once, key);
    let record = world.records.store().await.read(&[hash], ResultData::Omit).await.remove(0).unwrap();
    let effects = world.effects.count(key).await;
    let lease_until = record.as_ref().and_then(|record| record.lease_until);
    let left = match record.as_ref().map(|record| record.status) {
        None => Left::Nothing,
        Some(Status::Completed) => Left::Result,
        Some(Status::Failed) => Left::Failure,
        Some(Status::InProgress) if lease_until.unwrap().after(MARGIN) < world.clock.now() => Left::LapsedClaim,
        Some(Status::InProgress) => Left::Claim,
    };
    assert!(effects <= usize::from(matches!(left, Left::Claim | Left::Result)), "{key}: {effects} effects, {left:?}");
    Remains { left, effects, lease_until }
}
