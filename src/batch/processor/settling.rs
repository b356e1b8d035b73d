//! Outcomes that are due: which of them share a call, and how long they may wait for it.

use std::time::Duration;

use super::{
    pace::Pace,
    steps::{Action, OfEach},
};
use crate::{
    clock::Timestamp,
    idempotency::engine::{End, Unsettled},
};

/// For how long an outcome may wait to be recorded when another handler is about to begin: that one may block its thread.
const MAX_DELAY: Duration = Duration::from_millis(2);

pub(super) struct Settling {
    /// What the next call records.
    due: OfEach<End<()>>,
    /// Since when the first of them is due.
    since: Timestamp,
    /// Whether the runtime had a turn since then.
    had_turn: bool,
    /// What the store had trouble with.
    again: OfEach<Unsettled<()>>,
    /// First calls that are under way.
    calls: usize,
    /// Records that have run and are not recorded.
    unrecorded: usize,
}

impl Settling {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { due: Vec::new(), since: now, had_turn: false, again: Vec::new(), calls: 0, unrecorded: 0 }
    }

    /// A run has ended, and that is to be recorded.
    pub(super) fn add(&mut self, index: usize, end: End<()>, now: Timestamp) {
        if self.due.is_empty() {
            self.since = now;
        }
        self.unrecorded += 1;
        self.due.push((index, end));
    }

    /// How many records have run and are not recorded.
    pub(super) fn unrecorded(&self) -> usize {
        self.unrecorded
    }

    pub(super) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// The next call that does not wait for anything: what takes more than one, and as many as fill a call.
    pub(super) fn next_call(&mut self, pace: &Pace) -> Option<Action> {
        if !self.again.is_empty() {
            return Some(Action::SettleAgain(std::mem::take(&mut self.again)));
        }
        pace.fills_a_call(self.due.len()).then(|| self.call())
    }

    /// The call that a handler must not delay which is about to begin.
    pub(super) fn call_before_a_handler(&mut self, now: Timestamp) -> Option<Action> {
        (self.is_due() && now.since(self.since) > MAX_DELAY).then(|| self.call())
    }

    /// Whether what is due has a call of its own to wait for, so that it shares the next one.
    pub(super) fn waits_for_a_call(&self) -> bool {
        self.calls > 0
    }

    /// The call for all that is due, if the runtime had a turn in which more could become due.
    pub(super) fn call_after_a_turn(&mut self) -> Option<Action> {
        std::mem::replace(&mut self.had_turn, true).then(|| self.call())
    }

    fn call(&mut self) -> Action {
        self.calls += 1;
        self.had_turn = false;
        let next = Vec::with_capacity(self.due.len());
        Action::Settle(std::mem::replace(&mut self.due, next))
    }

    /// A first call was answered.
    pub(super) fn answered(&mut self) {
        self.calls -= 1;
    }

    /// It takes another call.
    pub(super) fn unsettled(&mut self, index: usize, unsettled: Unsettled<()>) {
        self.again.push((index, unsettled));
    }

    /// It is recorded, or cannot be.
    pub(super) fn recorded(&mut self) {
        self.unrecorded -= 1;
    }
}
