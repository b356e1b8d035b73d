//! The state of a world: a store, requests in flight, workers, an operator, and the history so far.

use lambda_once::record::Status as LibraryStatus;

use crate::statement::Inquiry;

/// A time, in units of which the skew margin is one. The model begins at [`BEGIN`].
pub(crate) type Time = u8;

/// The start of each world. Skewed clocks show an earlier or a later time.
pub(crate) const BEGIN: Time = 2;

/// The number of a claim's token. Each delivery has its own.
pub(crate) type Owner = u8;

/// The number of a key, and with an order the position of its operation before the first.
pub(crate) type Key = u8;

/// Returns the position of a key's operation in the order.
pub(crate) fn position(key: Key) -> u8 {
    key + 1
}

/// The token of no claim.
pub(crate) const NOBODY: Owner = 0;

/// The result that an operator records.
pub(crate) const BY_OPERATOR: u8 = 99;

/// The most keys and workers of a world.
pub(crate) const MOST: usize = 3;

/// The record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) status: Status,
    pub(crate) owner: Owner,
    pub(crate) attempt: u8,
    pub(crate) prior: Option<Status>,
    pub(crate) lease: Time,
    pub(crate) expiration: Time,
    pub(crate) payload: u8,
    /// The number of the run that made the result, or 0 for none.
    pub(crate) value: u8,
    pub(crate) released: u8,
}

/// The status of a record, like the library's, but with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Status {
    InProgress,
    Completed,
    Failed,
}

impl From<LibraryStatus> for Status {
    fn from(status: LibraryStatus) -> Self {
        match status {
            LibraryStatus::InProgress => Self::InProgress,
            LibraryStatus::Completed => Self::Completed,
            LibraryStatus::Failed => Self::Failed,
        }
    }
}

impl From<Status> for LibraryStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::InProgress => Self::InProgress,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
        }
    }
}

/// The mark of the entity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    pub(crate) newest: Option<u8>,
    pub(crate) holder: Option<Holder>,
    /// Each with its key, or `None` for several, and its position.
    pub(crate) doubt: Vec<(Option<Key>, u8)>,
    pub(crate) expiration: Time,
}

/// The claim that holds the entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) owner: Owner,
    pub(crate) key: Key,
    pub(crate) sequence: u8,
    pub(crate) lease: Time,
}

/// A request in flight to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) request: Request,
    pub(crate) owner: Owner,
    pub(crate) key: Key,
    pub(crate) payload: u8,
    /// The time at which it was sent, by the sender's clock.
    pub(crate) sent: Time,
    /// The lease that it requests, by the sender's clock.
    pub(crate) lease: Time,
}

/// The contents of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Request {
    Claim,
    Insert,
    Select,
    Update { read: Record },
    Read,
    Settle(Settle),
    Commit { claims: bool },
    Amend { change: Change, read: Record },
}

/// The settle of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Settle {
    Complete { value: u8 },
    Fail,
    Release,
    HandBack,
    Renew,
}

/// The change that an operator makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Change {
    Forget,
    /// Whether it took effect.
    Settle(bool),
    Release,
    Redact,
}

/// The store's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Granted {
        lease: Time,
        took_over: bool,
    },
    Completed(Record),
    Failed(Record),
    InProgress,
    Abandoned,
    Mismatch,
    Superseded,
    /// The record of a `Select` or a `Read`.
    Found(Option<Record>),
    /// A definite error: this request was not applied.
    Error,
    /// An `Insert` found a record, or an `Update` found its record changed.
    Refused,
    Done {
        found: Option<Record>,
    },
    Renewed,
    Lost {
        current: Option<Record>,
    },
}

/// A worker, which takes one delivery after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Worker {
    pub(crate) phase: Phase,
    pub(crate) owner: Owner,
    /// The end of its lease, by its own clock. It acts until that time.
    pub(crate) lease: Time,
    pub(crate) took_over: bool,
    pub(crate) has_effect: bool,
    /// Whether its claim was sent more than once, or a late copy of it came after the release that decides.
    pub(crate) in_doubt: bool,
    /// The protections of its key that had ended when it claimed.
    pub(crate) ended: u8,
    /// Whether its claim has tried to replace a record. It tries once.
    pub(crate) has_tried: bool,
    pub(crate) deliveries: u8,
    pub(crate) renewals: u8,
    pub(crate) awaits: Option<Message>,
    pub(crate) answer: Option<Answer>,
}

/// The step of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Claiming,
    /// The same, of a request whose client has gone.
    Dropped,
    /// Looks for a claim that may have been granted, to release it.
    Withdrawing,
    Probing,
    Running,
    Settling(Settle),
    Committing,
    /// Sends the release that decides about a commit.
    Deciding,
}

impl Phase {
    /// Returns whether the worker runs under its claim.
    pub(crate) fn is_live(self) -> bool {
        matches!(self, Self::Probing | Self::Running)
    }
}

/// The history of a key since its protection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct History {
    pub(crate) effects: u8,
    /// The run of the first effect.
    pub(crate) first: Owner,
    pub(crate) payload: u8,
    /// The effects that an operator has allowed beyond the first.
    pub(crate) permits: u8,
    /// The outcome that was reported to a caller.
    pub(crate) told: Option<(Status, u8)>,
    /// The run whose commit was reported as not done.
    pub(crate) undone: Owner,
    /// The number of protections that have ended.
    pub(crate) ended: u8,
}

impl History {
    /// The protection ends, because the record has expired or an operator forgets it.
    pub(crate) fn end(&mut self) {
        *self = Self { ended: self.ended + 1, ..Self::default() };
    }
}

/// The history of an entity's operations, kept from their claims and settles, independently of the mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Runs {
    /// The claim of each key that was granted last and has not been settled, and its lease.
    pub(crate) open: [Option<(Owner, Time)>; MOST],
    /// Whether an earlier claim of the key was never settled, so that it may have taken effect.
    pub(crate) lost: [bool; MOST],
    /// The greatest position that was completed.
    pub(crate) completed: u8,
}

impl Runs {
    /// A claim is granted. It ends all others of the entity.
    pub(crate) fn granted(&mut self, key: Key, owner: Owner, lease: Time) {
        for (open, lost) in self.open.iter_mut().zip(&mut self.lost) {
            *lost |= open.take().is_some();
        }
        self.open[usize::from(key)] = Some((owner, lease));
    }

    /// A claim is renewed.
    pub(crate) fn renewed(&mut self, key: Key, owner: Owner, until: Time) {
        if let Some((_, lease)) = self.open[usize::from(key)].as_mut().filter(|(open, _)| *open == owner) {
            *lease = until.max(*lease);
        }
    }

    /// A claim has ended with this outcome, or was released without one.
    pub(crate) fn settled(&mut self, key: Key, owner: Owner, outcome: Option<Status>) {
        let key = usize::from(key);
        self.open[key] = self.open[key].filter(|(open, _)| *open != owner);
        match outcome {
            Some(Status::Completed) => {
                self.lost[..=key].fill(false);
                self.completed = self.completed.max(position(key as Key));
            }
            Some(Status::Failed) => self.lost[key] = false,
            _ => {}
        }
    }

    /// An operator has stated whether the operation at this position took effect.
    pub(crate) fn stated(&mut self, position: u8, took_effect: bool) {
        let (last, first) = (usize::from(position), if took_effect { 0 } else { usize::from(position - 1) });
        self.open[first..last].fill(None);
        self.lost[first..last].fill(false);
        if took_effect {
            self.completed = self.completed.max(position);
        }
    }
}

/// A state of a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) now: Time,
    pub(crate) records: [Option<Record>; MOST],
    pub(crate) mark: Option<Mark>,
    pub(crate) workers: Vec<Worker>,
    /// Sorted.
    pub(crate) network: Vec<Message>,
    pub(crate) histories: [History; MOST],
    /// The greatest position of an effect on the entity.
    pub(crate) newest_effect: u8,
    /// The time until which the mark keeps it.
    pub(crate) newest_until: Time,
    pub(crate) crashes: u8,
    pub(crate) timeouts: u8,
    pub(crate) late_answers: u8,
    pub(crate) copies: u8,
    pub(crate) amendments: u8,
    pub(crate) statements: u8,
    /// The record that the operator has read.
    pub(crate) read: Option<(Key, Record)>,
    /// The operator's last look at the entity.
    pub(crate) inquiry: Option<Inquiry>,
    /// The operations of the entity, with an order.
    pub(crate) runs: Runs,
    pub(crate) breach: Option<&'static str>,
}

impl State {
    pub(crate) fn send(&mut self, message: Message) {
        let place = self.network.partition_point(|other| *other <= message);
        self.network.insert(place, message);
    }

    /// Notes the first promise that a step breaks.
    pub(crate) fn broken(&mut self, promise: &'static str) {
        self.breach.get_or_insert(promise);
    }
}
