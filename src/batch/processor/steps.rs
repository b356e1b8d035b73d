//! The machine's steps and events: its interface to the loop.

use std::sync::Arc;

use crate::{
    batch::{options::Options, record::RecordInfo, report::Decision, source::Source},
    clock::Timestamp,
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Candidate, ClaimResult, End, Engine, Polled, SettleResult, Unclaimed, Unsettled, Withdrawal},
        guard::Bounds,
    },
    record::KeyHash,
};

/// A value for each of several records, with their indices.
pub(super) type OfEach<A> = Vec<(usize, A)>;

/// The machine's view of its service.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) options: &'a Options,
    pub(super) engine: &'a Engine,
    /// The operation's name in logs.
    pub(super) operation: &'a str,
    /// Whether records whose claim took over are probed, each by itself.
    pub(super) probes: bool,
    /// The maximum number of records in one call of the handler.
    pub(super) bulk_size: usize,
    /// Whether these may be several of one lane.
    pub(super) takes_consecutive: bool,
}

impl Terms<'_> {
    /// Returns whether the store records permanent failures. If not, it releases their keys.
    pub(super) fn records_failures(&self) -> bool {
        self.engine.store.format().keeps_every_outcome()
    }
}

/// A record to run.
pub(super) struct Run<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) claim: Option<Claim>,
    pub(super) info: Arc<RecordInfo>,
}

/// The next step.
pub(super) enum Step<S: Source, T> {
    /// Decode the record, and find its key.
    Decode(usize, Arc<RecordInfo>, S::Body),
    /// Begin a call.
    Call(Action),
    /// Poll the record's handler for the first time, now.
    Begin(Run<T>, Bounds),
    /// The equivalent for several records in one call.
    BeginTogether(Vec<Run<T>>, Bounds),
    /// Poll the pending calls, because some may have ended.
    Poll,
    /// Give the runtime a turn.
    Yield,
    /// Wait until a call ends, at most until this time.
    Wait(Option<Timestamp>),
    /// Every record is decided or cannot be.
    Done,
}

/// A call other than a handler's.
pub(super) enum Action {
    /// Claims these candidates. The timestamp is the start of the call.
    Claim(OfEach<Candidate>, Timestamp),
    /// Sends claims again that the store did not decide, until this time.
    ClaimAgain(OfEach<Unclaimed>, Timestamp),
    /// Settles all due outcomes in one call.
    Settle(OfEach<End<()>>),
    /// Settles outcomes that need more than one call, by one more.
    SettleAgain(OfEach<Unsettled<()>>),
    Release(Vec<Claim>),
    /// Releases claims that may be held although no record uses them.
    Withdraw(Withdrawal),
    /// Reads the records of keys that are waited for.
    Poll(OfEach<Candidate>),
    /// Reads the records of unclaimed keys that may be done.
    LookUp(OfEach<Candidate>),
    DeadLetter {
        index: usize,
        decision: Decision,
        info: Arc<RecordInfo>,
        /// `None` if making it panicked.
        body: Option<Vec<u8>>,
        key: Option<KeyHash>,
    },
}

/// The result of a call or handler.
pub(super) enum Event {
    /// Claims, with the start of their call.
    Claimed(OfEach<ClaimResult>, Withdrawal, Timestamp),
    /// Claims that were sent again.
    ClaimedAgain(OfEach<ClaimResult>, Withdrawal),
    /// A handler, with its start.
    Ran(usize, End<()>, Timestamp),
    /// A handler of several records, with its start.
    RanTogether(OfEach<End<()>>, Timestamp),
    /// The first call for ends that were settled together.
    Settled(OfEach<SettleResult<()>>),
    /// One more call for ends that needed it.
    SettledAgain(OfEach<SettleResult<()>>),
    /// Claims that no record uses.
    Released,
    Polled(OfEach<Result<Polled, Error>>),
    LookedUp(OfEach<Result<Polled, Error>>),
    /// A dead-lettered record, or the reason for the failure.
    DeadLettered(usize, Decision, Result<(), Option<String>>),
}
