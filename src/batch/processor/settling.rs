//! Decides which due outcomes share a call, and how long they may wait for it.

use std::time::Duration;

use super::{
    pace::Pace,
    steps::{Action, OfEach},
};
use crate::{
    clock::Timestamp,
    idempotency::engine::{End, Unsettled},
};

/// The maximum delay of a due outcome when another handler, which may block its thread, is about to begin.
const MAX_DELAY: Duration = Duration::from_millis(2);

pub(super) struct Settling {
    /// The outcomes that the next call records.
    due: OfEach<End<()>>,
    /// The time since which the first of them is due.
    since: Timestamp,
    /// Whether the runtime has had a turn since that time.
    had_turn: bool,
    /// Outcomes whose first call failed in the store.
    again: OfEach<Unsettled<()>>,
    /// The number of pending first calls.
    calls: usize,
    /// The number of records that have run and are not recorded.
    unrecorded: usize,
}

impl Settling {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { due: Vec::new(), since: now, had_turn: false, again: Vec::new(), calls: 0, unrecorded: 0 }
    }

    /// Adds the end of a run that is to be recorded.
    pub(super) fn add(&mut self, index: usize, end: End<()>, now: Timestamp) {
        if self.due.is_empty() {
            self.since = now;
        }
        self.unrecorded += 1;
        self.due.push((index, end));
    }

    /// Returns the number of records that have run and are not recorded.
    pub(super) fn unrecorded(&self) -> usize {
        self.unrecorded
    }

    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the next call that waits for nothing: outcomes that need another call, or as many as fill one.
    pub(super) fn next_call(&mut self, pace: &Pace) -> Option<Action> {
        if !self.again.is_empty() {
            return Some(Action::SettleAgain(std::mem::take(&mut self.again)));
        }
        pace.fills_a_call(self.due.len()).then(|| self.call())
    }

    /// Returns the call that must precede a handler that is about to begin.
    pub(super) fn call_before_a_handler(&mut self, now: Timestamp) -> Option<Action> {
        (self.is_due() && now.since(self.since) > MAX_DELAY).then(|| self.call())
    }

    /// Returns whether due outcomes have a pending call to wait for, so that they share the next one.
    pub(super) fn waits_for_a_call(&self) -> bool {
        self.calls > 0
    }

    /// Returns the call for all due outcomes, if the runtime had a turn in which more could become due.
    pub(super) fn call_after_a_turn(&mut self) -> Option<Action> {
        std::mem::replace(&mut self.had_turn, true).then(|| self.call())
    }

    fn call(&mut self) -> Action {
        self.calls += 1;
        self.had_turn = false;
        let next = Vec::with_capacity(self.due.len());
        Action::Settle(std::mem::replace(&mut self.due, next))
    }

    /// Notes the result of a first call.
    pub(super) fn answered(&mut self) {
        self.calls -= 1;
    }

    /// Adds an outcome that needs another call.
    pub(super) fn unsettled(&mut self, index: usize, unsettled: Unsettled<()>) {
        self.again.push((index, unsettled));
    }

    /// Notes that an outcome is recorded or cannot be.
    pub(super) fn recorded(&mut self) {
        self.unrecorded -= 1;
    }
}
