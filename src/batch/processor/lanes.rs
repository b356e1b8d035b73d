//! Lanes, which order records (B4). The records of one lane run one after the other, in the order of the event, and a
//! failure blocks those behind it. Lanes run concurrently.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
};

use crate::batch::options::OnFailure;

/// The position of each record of a batch in its lane.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The lane of each record. Empty if the source has no order.
    of: Vec<Option<usize>>,
    lanes: Vec<Lane>,
    /// The lanes in which a duplicate of this unordered record waits for it.
    duplicates: HashMap<usize, Vec<usize>>,
    on_failure: OnFailure,
    /// The number of lanes that have not failed.
    standing: usize,
    any_unordered: bool,
    halted: bool,
    is_changed: bool,
}

#[derive(Debug, Default)]
struct Lane {
    /// The records whose turn is not over, in order. Only the first may run.
    waiting: VecDeque<usize>,
    failed: bool,
    /// The lanes in which a duplicate waits for a record of this lane.
    duplicates: Vec<usize>,
}

impl Lanes {
    /// Creates the lanes. `names` are the lanes of the records in the order of the event, with `None` for an unordered
    /// record.
    pub(super) fn new<'a>(names: impl Iterator<Item = Option<Cow<'a, str>>>, on_failure: OnFailure) -> Self {
        let mut by_name = HashMap::new();
        let mut lanes: Vec<Lane> = Vec::new();
        let mut of: Vec<Option<usize>> = Vec::new();
        for (index, name) in names.enumerate() {
            of.push(name.map(|name| {
                let lane = *by_name.entry(name).or_insert_with(|| {
                    lanes.push(Lane::default());
                    lanes.len() - 1
                });
                lanes[lane].waiting.push_back(index);
                lane
            }));
        }
        let any_unordered = of.iter().any(Option::is_none);
        if lanes.is_empty() {
            of = Vec::new();
        }
        let standing = lanes.len();
        Self {
            of,
            lanes,
            duplicates: HashMap::new(),
            on_failure,
            standing,
            any_unordered,
            halted: false,
            is_changed: false,
        }
    }

    fn lane(&self, index: usize) -> Option<usize> {
        self.of.get(index).copied().flatten()
    }

    /// Returns whether the record is ordered.
    pub(super) fn is_ordered(&self, index: usize) -> bool {
        self.lane(index).is_some()
    }

    /// Returns whether every record before this one in its lane is decided and none failed.
    pub(super) fn may_start(&self, index: usize) -> bool {
        !self.halted && self.has_its_turn(index)
    }

    /// Returns whether the record may start together with these, because the record before it in its lane does.
    pub(super) fn may_start_with(&self, index: usize, together: impl Fn(usize) -> bool) -> bool {
        if self.is_blocked(index) {
            return false;
        }
        self.lane(index).is_some_and(|lane| {
            let waiting = &self.lanes[lane].waiting;
            // `waiting` is in the order of the event.
            let at = waiting.binary_search(&index).ok();
            at.and_then(|at| at.checked_sub(1)).is_some_and(|before| together(waiting[before]))
        })
    }

    /// Returns whether this record, or one before it in its lane, has failed.
    pub(super) fn has_failed(&self, index: usize) -> bool {
        self.lane(index).is_some_and(|lane| self.lanes[lane].failed)
    }

    /// Returns whether a failure blocks this record: one before it in its lane, or one that stopped the batch.
    pub(super) fn is_blocked(&self, index: usize) -> bool {
        self.halted || self.has_failed(index)
    }

    /// Returns whether the record's outcome is final now, because all records before it in its lane are decided and
    /// none failed.
    pub(super) fn has_its_turn(&self, index: usize) -> bool {
        self.lane(index).is_none_or(|lane| {
            let lane = &self.lanes[lane];
            !lane.failed && lane.waiting.front() == Some(&index)
        })
    }

    /// Returns whether a failure has blocked records since the last call.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Returns whether any record is ordered.
    pub(super) fn any_order(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Makes a duplicate wait for the outcome of its leader.
    pub(super) fn wait_for(&mut self, duplicate: usize, leader: usize) {
        let Some(behind) = self.lane(duplicate) else { return };
        let duplicates = match self.lane(leader) {
            Some(ahead) if ahead == behind => return,
            Some(ahead) => &mut self.lanes[ahead].duplicates,
            None => self.duplicates.entry(leader).or_default(),
        };
        if !duplicates.contains(&behind) {
            duplicates.push(behind);
        }
    }

    /// Returns whether the record's turn in its lane has not come or is not over.
    pub(super) fn is_waiting(&self, index: usize) -> bool {
        self.lane(index).is_some_and(|lane| self.lanes[lane].waiting.front().is_some_and(|first| *first <= index))
    }

    /// Marks a record that has run and failed, possibly before that is recorded, so that the records behind it need not
    /// wait. Records that ran before it in the same call still count. Whatever their outcomes, the lane fails, and a
    /// failure that stops the batch does so immediately.
    pub(super) fn fail(&mut self, index: usize) {
        let Some(lane) = self.lane(index) else { return };
        if self.has_its_turn(index) {
            self.lanes[lane].waiting.pop_front();
            self.lanes[lane].failed = true;
            self.lane_failed();
        } else if self.on_failure == OnFailure::StopBatch {
            self.is_changed |= !std::mem::replace(&mut self.halted, true);
        }
    }

    /// Returns the records whose turn it is: the first of each lane that has not failed.
    pub(super) fn fronts(&self) -> impl Iterator<Item = usize> {
        self.lanes.iter().filter(|lane| !lane.failed).filter_map(|lane| lane.waiting.front().copied())
    }

    /// Returns whether a failure blocks all records that have not started.
    pub(super) fn are_halted(&self) -> bool {
        self.halted
    }

    /// Returns whether another record waits behind this one in its lane.
    pub(super) fn has_followers(&self, index: usize) -> bool {
        self.lane(index).is_some_and(|lane| self.lanes[lane].waiting.iter().any(|waiting| *waiting > index))
    }

    /// Returns whether records of one lane may run while records of another wait.
    pub(super) fn are_several(&self) -> bool {
        self.lanes.len() > 1 || self.any_order() && self.any_unordered
    }

    /// Returns whether all records are in one lane, so that only one may start.
    pub(super) fn is_single_lane(&self) -> bool {
        self.lanes.len() == 1 && !self.any_unordered
    }

    /// Advances lanes after `index` was decided or found to be a duplicate. `verdict` returns whether a record
    /// failed, or `None` while it is undecided. Returns the records whose turn is over.
    pub(super) fn advance(&mut self, index: usize, verdict: impl Fn(usize) -> Option<bool>) -> Vec<usize> {
        let mut over = Vec::new();
        // The lanes of its duplicates may now advance, even if its own cannot. The lanes of other duplicates may if
        // their leader's lane has advanced.
        let mut open = match self.lane(index) {
            Some(lane) => [&[lane], &*self.lanes[lane].duplicates].concat(),
            None if self.duplicates.is_empty() => Vec::new(),
            None => self.duplicates.remove(&index).unwrap_or_default(),
        };
        while let Some(lane) = open.pop() {
            let (before, had_failed) = (over.len(), self.lanes[lane].failed);
            self.lanes[lane].advance(&verdict, &mut over);
            if over.len() > before {
                open.extend(&self.lanes[lane].duplicates);
            }
            if self.lanes[lane].failed && !had_failed {
                self.lane_failed();
            }
        }
        over
    }

    /// Marks a lane as failed. If it was the last one, the batch is stopped, so that the rest need not be decoded.
    fn lane_failed(&mut self) {
        self.is_changed = true;
        self.standing -= 1;
        self.halted |= self.on_failure == OnFailure::StopBatch || self.standing == 0 && !self.any_unordered;
    }
}

impl Lane {
    fn advance(&mut self, verdict: &impl Fn(usize) -> Option<bool>, over: &mut Vec<usize>) {
        while !self.failed
            && let Some(&first) = self.waiting.front()
            && let Some(failed) = verdict(first)
        {
            self.waiting.pop_front();
            self.failed = failed;
            over.push(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(names: &[&str], on_failure: OnFailure) -> Lanes {
        Lanes::new(names.iter().map(|name| (!name.is_empty()).then_some(Cow::Borrowed(*name))), on_failure)
    }

    #[test]
    fn in_a_lane_only_the_first_record_may_start() {
        let mut lanes = lanes(&["a", "b", "a", ""], OnFailure::StopGroup);
        let may_start = |lanes: &Lanes| [0, 1, 2, 3].map(|index| lanes.may_start(index));
        assert_eq!(may_start(&lanes), [true, true, false, true]);
        lanes.advance(2, |index| (index == 2).then_some(false));
        assert_eq!(may_start(&lanes), [true, true, false, true], "decided out of turn");
        lanes.advance(0, |index| (index == 0).then_some(false));
        assert_eq!(may_start(&lanes), [false, true, true, true]);
    }

    #[test]
    fn a_record_starts_with_the_one_before_it_unless_a_failure_blocks_it() {
        let mut lanes = lanes(&["a", "a", "a", "b"], OnFailure::StopBatch);
        let starts = |lanes: &Lanes| [0, 1, 2, 3].map(|index| lanes.may_start_with(index, |other| other == 0));
        assert_eq!(starts(&lanes), [false, true, false, false]);
        lanes.fail(3);
        assert_eq!(starts(&lanes), [false; 4]);
    }

    #[test]
    fn a_failure_blocks_later_records_of_its_lane_or_of_the_batch() {
        for (on_failure, others_run) in [(OnFailure::StopGroup, true), (OnFailure::StopBatch, false)] {
            let mut lanes = lanes(&["a", "a", "b"], on_failure);
            assert!(!lanes.take_change());
            lanes.advance(0, |index| (index == 0).then_some(true));
            assert!(lanes.take_change() && lanes.is_blocked(1) && !lanes.may_start(1));
            assert_eq!(lanes.may_start(2), others_run);
        }
    }

    #[test]
    fn a_failure_in_mid_call_stops_the_batch_although_its_turn_has_not_come() {
        for (on_failure, others_run) in [(OnFailure::StopGroup, true), (OnFailure::StopBatch, false)] {
            let mut lanes = lanes(&["a", "a", "a", "b"], on_failure);
            lanes.fail(1);
            assert_eq!((lanes.may_start(3), lanes.take_change()), (others_run, !others_run));
            let over = lanes.advance(0, |index| (index < 2).then_some(index == 1));
            assert_eq!((over, lanes.has_its_turn(3)), (vec![0, 1], true), "records before it count");
        }
    }

    #[test]
    fn when_every_lane_has_failed_only_records_without_an_order_are_left() {
        for (names, is_left) in [(["a", "b", "b"], false), (["a", "b", ""], true)] {
            let mut lanes = lanes(&names, OnFailure::StopGroup);
            lanes.fail(0);
            lanes.fail(0);
            assert!(!lanes.are_halted() && lanes.may_start(1), "{names:?}");
            lanes.advance(1, |index| (index == 1).then_some(true));
            assert_eq!((lanes.are_halted(), lanes.may_start(2)), (!is_left, is_left), "{names:?}");
        }
    }

    #[test]
    fn a_lane_waits_for_the_outcome_that_its_record_takes_over_from_another() {
        let mut lanes = lanes(&["a", "b", "b"], OnFailure::StopGroup);
        lanes.wait_for(1, 0);
        let verdict = |index| (index < 2).then_some(index == 1);
        lanes.advance(1, |_| None);
        assert!(lanes.may_start(1) && !lanes.may_start(2));
        lanes.advance(0, verdict);
        assert!(lanes.is_blocked(2), "it failed as its leader did");
    }

    #[test]
    fn a_lane_continues_when_the_leader_of_its_record_has_no_order() {
        let mut lanes = lanes(&["", "b", "b"], OnFailure::StopGroup);
        lanes.wait_for(1, 0);
        lanes.advance(1, |_| None);
        assert_eq!(lanes.advance(0, |index| (index < 2).then_some(false)), [1]);
        assert!(lanes.may_start(2));
    }
}
