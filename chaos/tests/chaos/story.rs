//! Histories in short form.

use lambda_once_chaos::{
    history::{Answer, End, Entry, Event, Fact, History, Key, Policy},
    judge::{Terms, judge},
};

pub(super) const TERMS: Terms = Terms { shortest_hold: 400, late_end: 600, long_run: 700, grace: 250, slow_start: 0 };

pub(super) const fn key(entry: Entry, policy: Policy) -> Key {
    Key { entry, policy, order: None, is_transaction: false, is_poison: false }
}

/// A history of the key 0, to which each method adds an event at a time.
pub(super) struct Story(pub(super) History);

impl Story {
    pub(super) fn of(key: Key) -> Self {
        Self(History { keys: vec![key], events: Vec::new() })
    }

    pub(super) fn queue(policy: Policy) -> Self {
        Self::of(key(Entry::Queue, policy)).at(0, Fact::Sent { message: 0, key: 0 })
    }

    pub(super) fn http(policy: Policy) -> Self {
        Self::of(key(Entry::Http, policy))
    }

    pub(super) fn at(mut self, at: u64, fact: Fact) -> Self {
        self.0.events.push(Event { at, fact });
        self
    }

    /// Delivers the message 0 to a worker of the same number.
    pub(super) fn invoked(self, at: u64, invocation: u32) -> Self {
        let invoked = Fact::Invoked { invocation, worker: invocation, deadline: Some(at + 1_500) };
        self.at(at, invoked).at(at, Fact::Delivered { message: 0, invocation })
    }

    /// A consumer receives the message 0, without a deadline.
    pub(super) fn received(self, at: u64, receipt: u32, worker: u32) -> Self {
        let received = Fact::Invoked { invocation: receipt, worker, deadline: None };
        self.at(at, received).at(at, Fact::Delivered { message: 0, invocation: receipt })
    }

    pub(super) fn acknowledged(self, at: u64, invocation: u32) -> Self {
        self.at(at, Fact::Responded { invocation }).at(at, Fact::Acknowledged { message: 0, invocation })
    }

    pub(super) fn reported(self, at: u64, invocation: u32) -> Self {
        self.at(at, Fact::Responded { invocation })
    }

    /// Begins the run in the invocation, or in the request, that the worker of this number handles.
    pub(super) fn began(self, at: u64, run: u32, worker: u32, took_over: bool) -> Self {
        let invocation = (self.0.keys[0].entry == Entry::Queue).then_some(worker);
        self.at(at, Fact::Began { run, key: 0, worker, invocation, took_over })
    }

    /// Begins the run for a consumer's receipt.
    pub(super) fn began_for(self, at: u64, run: u32, receipt: u32, worker: u32, took_over: bool) -> Self {
        self.at(at, Fact::Began { run, key: 0, worker, invocation: Some(receipt), took_over })
    }

    pub(super) fn effect(self, at: u64, run: u32) -> Self {
        self.at(at, Fact::Effect { run })
    }

    pub(super) fn ended(self, at: u64, run: u32, end: End) -> Self {
        self.at(at, Fact::Ended { run, end })
    }

    /// Begins the run, and lets it take effect and return.
    pub(super) fn ran(self, at: u64, run: u32, worker: u32, took_over: bool) -> Self {
        self.began(at, run, worker, took_over).effect(at + 10, run).ended(at + 20, run, End::Returned)
    }

    /// The same for a consumer's receipt.
    pub(super) fn ran_for(self, at: u64, run: u32, receipt: u32, worker: u32, took_over: bool) -> Self {
        let begun = self.began_for(at, run, receipt, worker, took_over);
        begun.effect(at + 10, run).ended(at + 20, run, End::Returned)
    }

    pub(super) fn answered(self, at: u64, call: u32, answer: Answer) -> Self {
        self.at(at, Fact::Asked { call, key: 0, worker: call }).at(at + 1, Fact::Told { call, answer })
    }

    pub(super) fn breaks(self, property: &str) {
        let found = judge(&self.0, TERMS);
        assert!(found.iter().any(|violation| violation.property == property), "{property}: {found:?}");
    }

    pub(super) fn keeps(self) {
        assert_eq!(judge(&self.0, TERMS), []);
    }
}

pub(super) const fn result(run: u32) -> Answer {
    Answer::Result { run, is_replay: false }
}

pub(super) const fn replay(run: u32) -> Answer {
    Answer::Result { run, is_replay: true }
}

/// A worker takes effect and is killed before it responds.
pub(super) fn lost(policy: Policy) -> Story {
    Story::queue(policy).invoked(0, 0).began(10, 0, 0, false).effect(20, 0).at(30, Fact::Killed { worker: 0 })
}

/// A worker is killed before it takes effect.
pub(super) fn lost_before() -> Story {
    Story::queue(Policy::Refuse).invoked(0, 0).began(10, 0, 0, false).at(30, Fact::Killed { worker: 0 })
}
