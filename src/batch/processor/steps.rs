//! The machine's steps and the events that it is told: its interface to the loop.

use std::sync::Arc;

use crate::{
    batch::{options::Options, record::RecordInfo, report::Decision, source::Source},
    clock::Timestamp,
    error::Error,
    idempotency::{
        claim::Claim,
        engine::{Candidate, ClaimAnswer, End, Engine, Polled, SettleResult, Unsettled, Withdrawal},
        guard::Bounds,
    },
    record::KeyHash,
};

/// Something for each of several records, by their places.
pub(super) type OfEach<A> = Vec<(usize, A)>;

/// What the machine needs to know of its service.
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

/// A record that runs.
pub(super) struct Run<T> {
    pub(super) index: usize,
    pub(super) payload: T,
    pub(super) claim: Option<Claim>,
    pub(super) info: Arc<RecordInfo>,
}

/// What to do next.
pub(super) enum Step<S: Source, T> {
    /// Decode the record, and find its key.
    Decode(usize, Arc<RecordInfo>, S::Body),
    /// Begin a call.
    Call(Action),
    /// Poll the record's handler for the first time, now.
    Begin(Run<T>, Bounds),
    /// The same for a handler of several records.
    BeginTogether(Vec<Run<T>>, Bounds),
    /// Poll what is under way: something may have ended.
    Poll,
    /// Give the runtime a turn.
    Yield,
    /// Wait until something ends, at most until then.
    Wait(Option<Timestamp>),
    /// Every record is decided, or cannot be.
    Done,
}

/// A call, other than a handler's.
pub(super) enum Action {
    /// Claims these, from then on.
    Claim(OfEach<Candidate>, Timestamp),
    /// Settles all that is due by one call.
    Settle(OfEach<End<()>>),
    /// Settles what takes more than one call.
    SettleAgain(OfEach<Unsettled<()>>),
    Release(Vec<Claim>),
    /// Releases claims that may stand although nobody acts on them.
    Withdraw(Withdrawal),
    /// Reads the records of keys that are waited for.
    Poll(OfEach<Candidate>),
    /// Reads the records of keys that are not claimed yet, and may be done.
    LookUp(OfEach<Candidate>),
    DeadLetter {
        index: usize,
        decision: Decision,
        info: Arc<RecordInfo>,
        body: Vec<u8>,
        key: Option<KeyHash>,
    },
}

/// Something has ended.
pub(super) enum Event {
    /// Claims that began then were answered.
    Claimed(OfEach<Result<ClaimAnswer, Error>>, Withdrawal, Timestamp),
    /// A handler that began then.
    Ran(usize, End<()>, Timestamp),
    /// A handler of several records.
    RanTogether(OfEach<End<()>>, Timestamp),
    /// The first call for ends that were settled together.
    Settled(OfEach<SettleResult<()>>),
    /// Those of them that took more than one call.
    SettledAgain(OfEach<End<()>>),
    /// Claims that nobody acts on.
    Released,
    Polled(OfEach<Result<Polled, Error>>),
    LookedUp(OfEach<Result<Polled, Error>>),
    /// A record was dead-lettered, or could not be, for this reason.
    DeadLettered(usize, Decision, Result<(), Option<String>>),
}
