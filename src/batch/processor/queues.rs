//! Queues of decoded records that have not begun, one for each next step.

use std::{collections::VecDeque, sync::Arc};

use super::{
    entities::Entities,
    lanes::Lanes,
    pace::{Budget, Pace},
    records::Records,
};
use crate::batch::{record::RecordInfo, source::Source};

/// The maximum number of decoded records that wait to be claimed, to run or to be dead-lettered.
const LOOK_AHEAD: usize = 100;

#[derive(Default)]
pub(super) struct Queues {
    /// Records that need a claim.
    decoded: Vec<usize>,
    /// Records that were looked up, have no outcome, and need a claim, in the order of the event.
    looked_up: Vec<usize>,
    /// Records that have waited, and whose keys may be free.
    free: Vec<usize>,
    /// Records that run when their turn comes.
    ready: VecDeque<usize>,
    /// The claim call that records are being decoded for.
    filling: Option<Filling>,
}

#[derive(Clone, Copy)]
struct Filling {
    budget: Budget,
    /// The number of records decoded for it that can begin without a claim.
    unprotected: usize,
}

/// The next store call.
pub(super) enum Next<B> {
    /// A record to decode first.
    Decode(usize, Arc<RecordInfo>, B),
    /// The records of the call, which may be empty for lack of records or of budget.
    Call(Vec<usize>),
}

impl Queues {
    /// Adds a decoded record that needs a claim.
    pub(super) fn decoded(&mut self, index: usize) {
        self.decoded.push(index);
    }

    /// Adds a record that was looked up, has no outcome, and needs a claim.
    pub(super) fn looked_up(&mut self, index: usize) {
        let place = self.looked_up.partition_point(|other| *other < index);
        self.looked_up.insert(place, index);
    }

    /// Adds a record that has waited, and whose key may be free.
    pub(super) fn free(&mut self, index: usize) {
        self.free.push(index);
    }

    /// Adds a record that runs when its turn comes.
    pub(super) fn ready(&mut self, index: usize) {
        self.ready.push_back(index);
    }

    /// Adds a decoded record that runs without a claim when its turn comes.
    pub(super) fn unprotected(&mut self, index: usize, lanes: &Lanes) {
        self.ready.push_back(index);
        if let Some(filling) = &mut self.filling {
            filling.unprotected += usize::from(lanes.may_start(index));
        }
    }

    pub(super) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn waiting_for_claims(&self) -> impl Iterator<Item = usize> {
        self.free.iter().copied()
    }

    /// Removes a record that is no longer to be claimed.
    pub(super) fn remove_free(&mut self, index: usize) {
        self.free.retain(|free| *free != index);
    }

    /// Returns the number of claimed records that can begin, and the number of those that wait for others before them.
    pub(super) fn claimed<S: Source, T>(&self, lanes: &Lanes, records: &Records<S, T>) -> (usize, usize) {
        if !lanes.any_order() {
            return (self.ready.len(), 0);
        }
        let (can_begin, cannot): (Vec<usize>, Vec<usize>) =
            self.ready.iter().partition(|index| lanes.may_start(**index));
        (can_begin.len(), cannot.iter().filter(|index| records.claim_of(**index).is_some()).count())
    }

    /// Returns the records for the next claim call: those that have waited, or else decoded records, once enough are
    /// decoded for the budget. `budget` is called when such a call begins. `held` is the number of records elsewhere in
    /// the processor.
    pub(super) fn next_claim<S: Source, T>(
        &mut self,
        lanes: &Lanes,
        entities: &mut Entities,
        records: &mut Records<S, T>,
        pace: &Pace,
        held: usize,
        budget: impl FnOnce(&Self, &Records<S, T>) -> Budget,
    ) -> Next<S::Body> {
        let filling = self.filling.take();
        let filling = filling.unwrap_or_else(|| Filling { budget: budget(self, records), unprotected: 0 });
        if filling.budget.total == 0 {
            return Next::Call(Vec::new());
        }
        let taken = take_for_claims(&mut self.free, lanes, entities, filling.budget);
        if !taken.is_empty() {
            return Next::Call(taken);
        }
        if !self.looked_up.is_empty() {
            // They precede records that were decoded after them.
            self.decoded.append(&mut self.looked_up);
            self.decoded.sort_unstable();
        }
        let held = self.held() + held;
        if (held < LOOK_AHEAD || held < pace.most_ahead())
            && self.wants_more(lanes, entities, filling)
            && let Some((index, info, body)) = records.open_next()
        {
            self.filling = Some(filling);
            return Next::Decode(index, info, body);
        }
        Next::Call(take_for_claims(&mut self.decoded, lanes, entities, filling.budget))
    }

    /// Takes the records for the next claim call while lookups are on, first those that have waited, then those that
    /// were looked up.
    pub(super) fn next_looked_up<S: Source, T>(
        &mut self,
        lanes: &Lanes,
        entities: &mut Entities,
        records: &Records<S, T>,
        budget: impl FnOnce(&Self, &Records<S, T>) -> Budget,
    ) -> Vec<usize> {
        self.filling = None;
        if self.free.is_empty() && self.looked_up.is_empty() {
            return Vec::new();
        }
        let budget = budget(self, records);
        if budget.total == 0 {
            return Vec::new();
        }
        let taken = take_for_claims(&mut self.free, lanes, entities, budget);
        if taken.is_empty() { take_for_claims(&mut self.looked_up, lanes, entities, budget) } else { taken }
    }

    /// Takes up to `chunk` decoded records for the next lookup, or requests another record to be decoded. `held` counts
    /// the records that other parts of the processor hold.
    pub(super) fn next_lookup<S: Source, T>(
        &mut self,
        lanes: &Lanes,
        records: &mut Records<S, T>,
        chunk: usize,
        held: usize,
    ) -> Next<S::Body> {
        if self.decoded.len() < chunk
            && self.held() + held < LOOK_AHEAD.max(chunk)
            && let Some((index, info, body)) = records.open_next()
        {
            return Next::Decode(index, info, body);
        }
        Next::Call(self.decoded.extract_if(.., |index| !lanes.is_blocked(*index)).take(chunk).collect())
    }

    /// Returns the number of decoded records whose handlers have not started.
    fn held(&self) -> usize {
        self.decoded.len() + self.looked_up.len() + self.ready.len()
    }

    /// Returns whether to decode another record before claiming. Records are decoded in the order of the event, because
    /// the first one with a key counts. The turn of a later one in another lane may still come first. Records that a
    /// failure blocks are decoded too, because others may have their keys, unless only blocked ones are left.
    fn wants_more(&self, lanes: &Lanes, entities: &Entities, Filling { budget, unprotected }: Filling) -> bool {
        let can_begin = match lanes {
            lanes if lanes.are_halted() => return false,
            lanes if entities.are_any() => {
                entities.turns_of(self.decoded.iter().copied().filter(|index| lanes.may_start(*index)))
            }
            lanes if lanes.are_several() => self.decoded.iter().filter(|index| lanes.may_start(**index)).count(),
            _ => self.decoded.len(),
        };
        can_begin + unprotected < budget.total
    }

    /// Returns the next `wanted` record whose turn it is.
    pub(super) fn find_ready(&self, lanes: &Lanes, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        self.find(|index| lanes.may_start(index) && wanted(index))
    }

    /// Returns the next `wanted` record that runs when its turn comes.
    pub(super) fn find(&self, wanted: impl Fn(usize) -> bool) -> Option<usize> {
        self.ready.iter().copied().find(|index| wanted(*index))
    }

    /// Removes a record that begins.
    pub(super) fn take_ready(&mut self, index: usize) {
        if let Some(at) = self.ready.iter().position(|ready| *ready == index) {
            self.ready.remove(at);
        }
    }

    /// Returns whether any record may begin.
    pub(super) fn can_begin(&self, lanes: &Lanes) -> bool {
        self.ready.iter().any(|index| lanes.may_start(*index))
    }

    /// Removes and returns the records that a failure blocks.
    pub(super) fn take_blocked(&mut self, lanes: &Lanes) -> Vec<usize> {
        let mut blocked: Vec<usize> = self.decoded.extract_if(.., |index| lanes.is_blocked(*index)).collect();
        blocked.extend(self.looked_up.extract_if(.., |index| lanes.is_blocked(*index)));
        blocked.extend(self.free.extract_if(.., |index| lanes.is_blocked(*index)));
        self.ready.retain(|index| {
            let is_blocked = lanes.is_blocked(*index);
            blocked.extend(is_blocked.then_some(*index));
            !is_blocked
        });
        blocked
    }

    /// Removes and returns all records that are decoded or claimed and have not begun.
    pub(super) fn take_unbegun(&mut self) -> impl Iterator<Item = usize> {
        self.decoded.drain(..).chain(self.looked_up.drain(..)).chain(self.ready.drain(..))
    }
}

/// Removes and returns records that may be claimed: first those that can begin immediately, then the next ones of each
/// order. Records of entities are claimed only when they can begin.
fn take_for_claims(records: &mut Vec<usize>, lanes: &Lanes, entities: &mut Entities, budget: Budget) -> Vec<usize> {
    if records.is_empty() {
        return Vec::new();
    }
    let mut taken = Vec::with_capacity(budget.total.min(records.len()));
    if entities.are_any() {
        let may_begin = |index: &mut usize| lanes.may_start(*index) && entities.take_turn(*index);
        taken.extend(records.extract_if(.., may_begin).take(budget.total));
        return taken;
    }
    taken.extend(records.extract_if(.., |index| lanes.may_start(*index)).take(budget.total));
    let ahead = budget.ahead.min(budget.total - taken.len());
    taken.extend(records.extract_if(.., |index| !lanes.is_blocked(*index)).take(ahead));
    taken
}
