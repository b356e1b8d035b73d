//! The state of one invocation: its records, from event to outcome.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use lambda_runtime::Context;

use super::{context::RecordInfo, report::RecordOutcome, schedule::Schedule};
use crate::{
    Claim,
    clock::Timestamp,
    idempotency::{engine::Due, guard::contain, window::Window},
    key::hash::KeyHasher,
    record::{Fingerprint, KeyHash},
};

/// A record as its source delivers it.
pub(super) struct Incoming {
    pub(super) info: RecordInfo,
    pub(super) body: String,
}

/// A record that can run.
pub(super) struct Ready<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) info: Arc<RecordInfo>,
    pub(super) claim: Option<Claim>,
}

impl<T> Ready<T> {
    /// The claim that is to be released. Dropping the payload runs code of the user's.
    pub(super) fn give_up(self) -> Option<Claim> {
        let Self { payload, claim, .. } = self;
        let _ = contain(|| drop(payload));
        claim
    }
}

/// A record whose handler has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) index: usize,
    pub(super) at: Timestamp,
}

/// A record's place behind an earlier one with the same key.
#[derive(Clone, Copy)]
pub(super) struct Follows {
    pub(super) leader: usize,
    /// Whether its payload is the leader's too.
    pub(super) same_payload: bool,
}

/// The state of one invocation.
pub(super) struct Invocation<T> {
    pub(super) lambda: Arc<Context>,
    /// Whose keys these are.
    pub(super) scope: KeyHasher,
    pub(super) window: Window,
    pub(super) schedule: Schedule,
    pub(super) incoming: VecDeque<Incoming>,
    /// The index of the next record that is incoming.
    pub(super) next: usize,
    pub(super) infos: Vec<Arc<RecordInfo>>,
    pub(super) ready: VecDeque<Ready<T>>,
    pub(super) running: usize,
    pub(super) claiming: bool,
    /// Claims whose handlers have ended, to be settled by the next call.
    pub(super) due: Vec<(Begun, Due<()>)>,
    /// How many claims are due or being settled.
    pub(super) unsettled: usize,
    /// Whether a first call to settle is under way.
    pub(super) settling: bool,
    pub(super) stopped: bool,
    pub(super) outcomes: Vec<Option<RecordOutcome>>,
    pub(super) keys: Vec<Option<KeyHash>>,
    /// For a key: the earliest record with it.
    pub(super) leaders: HashMap<KeyHash, (usize, Option<Fingerprint>)>,
    /// For a record: the earlier one with its key.
    pub(super) follows: Vec<Option<Follows>>,
}

impl<T> Invocation<T> {
    pub(super) fn new(
        incoming: Vec<Incoming>,
        lambda: Context,
        scope: KeyHasher,
        window: Window,
        schedule: Schedule,
    ) -> Self {
        let count = incoming.len();
        Self {
            lambda: Arc::new(lambda),
            scope,
            window,
            schedule,
            incoming: incoming.into(),
            next: 0,
            infos: Vec::with_capacity(count),
            ready: VecDeque::new(),
            running: 0,
            claiming: false,
            due: Vec::new(),
            unsettled: 0,
            settling: false,
            stopped: false,
            outcomes: (0..count).map(|_| None).collect(),
            keys: vec![None; count],
            leaders: HashMap::new(),
            follows: vec![None; count],
        }
    }

    /// A handler has ended.
    pub(super) fn ended(&mut self, begun: Begun, now: Timestamp) {
        self.running -= 1;
        self.schedule.ran(now.since(begun.at));
    }

    /// Whether there is something to settle, and no call under way that it has to wait for. After the stop point there
    /// is no time to wait.
    pub(super) fn may_settle(&self) -> bool {
        !self.due.is_empty() && (!self.settling || self.stopped)
    }
}
