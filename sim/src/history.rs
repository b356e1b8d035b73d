//! The history of a simulation, as an observer outside the engine sees it.
//!
//! It contains only plain types of this module. The [judge](crate::judge) reads nothing else.

use std::fmt;

/// Milliseconds of true time since the history began. No worker's clock shows it.
pub type Ms = u64;

/// The index of a key in [`History::keys`].
pub type KeyId = u32;

/// The number of a run of a handler. It is also the result of the run, so no two runs have the same result.
pub type RunId = u32;

/// The number of a call: one delivery of a message, one HTTP request, or one call of an operation.
pub type CallId = u32;

/// The number of a message of a queue.
pub type MessageId = u32;

/// The policy of a key after a run without a recorded outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It runs again.
    Rerun,
    /// It is refused.
    Refuse,
    /// A probe decides.
    Probe,
}

/// The entry point through which a key is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Messages of a queue.
    Queue,
    /// HTTP requests.
    Http,
    /// Calls of an operation.
    Call,
}

/// An operation's key, and its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The entry point.
    pub entry: Entry,
    /// The policy after a loss.
    pub policy: Policy,
    /// Entity and sequence of an ordered operation.
    pub order: Option<(u32, u64)>,
    /// Whether its handler always fails permanently, without an effect.
    pub is_poison: bool,
}

/// The conditions of a history, on which parts of the promise depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether the clocks that decide leases differ by less than the skew margin.
    pub clocks_hold: bool,
    /// The shortest retention of a record, or `None` if each outlasts the history.
    pub retention: Option<Ms>,
    /// The precision of the retention: the margin, and the rounding to seconds.
    pub slack: Ms,
    /// Whether no fault was injected at all.
    pub is_calm: bool,
}

impl Terms {
    /// Returns whether a record or a mark of this time is within its retention, as everybody must see it.
    pub fn remember(&self, from: Ms, at: Ms) -> bool {
        self.retention.is_none_or(|retention| at < from + retention.saturating_sub(self.slack))
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The handler returned its result.
    Returned,
    /// It failed, and nothing happened.
    Transient,
    /// It failed permanently, and nothing happened.
    Permanent,
    /// It failed, and something may have happened.
    Unknown,
    /// It panicked.
    Panicked,
    /// It was cancelled at the handler deadline, or its worker was killed.
    Dropped,
}

impl End {
    /// Returns whether the run left open whether it took effect.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Unknown | Self::Panicked | Self::Dropped)
    }
}

/// A recorded outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completed with the result of this run.
    Completed(RunId),
    /// Failed permanently, in this run.
    Failed(RunId),
}

impl Outcome {
    /// Returns the run that it is of.
    pub fn run(self) -> RunId {
        match self {
            Self::Completed(run) | Self::Failed(run) => run,
        }
    }
}

/// The response to a call. The result is `None` if the caller does not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It ran and is recorded.
    Executed(Option<RunId>),
    /// It ran after a loss and is recorded.
    TookOver(Option<RunId>),
    /// A probe found its result, which is recorded.
    Recovered(Option<RunId>),
    /// It ran, and may or may not be recorded.
    Ran(Option<RunId>),
    /// It was completed before.
    Replayed(Option<RunId>),
    /// It failed permanently before.
    ReplayedFailure,
    /// It ran and failed permanently.
    FailedPermanently,
    /// It failed otherwise, or was interrupted.
    Failed,
    /// It is in progress elsewhere.
    InProgress,
    /// The key belongs to another payload.
    Mismatch,
    /// A newer operation of its entity took effect.
    Superseded,
    /// An earlier run left no outcome, and the policy refuses another.
    Abandoned,
    /// Its lease was lost.
    LeaseLost,
    /// It did not start.
    NotStarted,
    /// The store failed.
    Error,
    /// The worker died, or responded too late.
    Lost,
}

impl Answer {
    /// Returns the result that the caller was given.
    pub fn result(self) -> Option<RunId> {
        match self {
            Self::Executed(run) | Self::TookOver(run) | Self::Recovered(run) | Self::Ran(run) | Self::Replayed(run) => {
                run
            }
            _ => None,
        }
    }
}

/// A fact of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A handler began to run.
    Began {
        /// The run, numbered from 0 in the order of the history.
        run: RunId,
        /// Its key.
        key: KeyId,
        /// Its payload.
        payload: u8,
        /// The call that it serves.
        call: CallId,
        /// Whether it was notified that an earlier run may have taken effect.
        took_over: bool,
        /// The time until which its lease lasts at least, by true time: the deadline of its invocation, or where that has
        /// none, a lease from its begin.
        holds_until: Ms,
    },
    /// The run took effect.
    Effect {
        /// The run.
        run: RunId,
    },
    /// The run ended.
    Ended {
        /// The run.
        run: RunId,
        /// The kind of its end.
        end: End,
        /// The last time at which it could act. A frozen worker ends its run after it thaws.
        active_until: Ms,
    },
    /// A call was made.
    Asked {
        /// The call.
        call: CallId,
        /// Its key.
        key: KeyId,
        /// Its payload.
        payload: u8,
        /// Whether it was made after all faults had stopped, to find out whether the key is stuck.
        is_audit: bool,
    },
    /// A call got its response.
    Told {
        /// The call.
        call: CallId,
        /// The response.
        answer: Answer,
    },
    /// The store shows a new outcome for the key.
    Recorded {
        /// The key.
        key: KeyId,
        /// The outcome.
        outcome: Outcome,
    },
    /// The store shows no outcome any more.
    Erased {
        /// The key.
        key: KeyId,
    },
    /// A message was sent to a queue.
    Sent {
        /// The message.
        message: MessageId,
        /// Its key.
        key: KeyId,
        /// Its payload.
        payload: u8,
    },
    /// The queue deleted a message, because its delivery was acknowledged.
    Acknowledged {
        /// The message.
        message: MessageId,
    },
    /// The queue moved a message to its dead-letter queue, after this many deliveries.
    DeadLettered {
        /// The message.
        message: MessageId,
        /// Whether the message was sent after all faults had stopped.
        is_audit: bool,
    },
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The true time.
    pub at: Ms,
    /// The event.
    pub fact: Fact,
}

/// A history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The conditions.
    pub terms: Terms,
    /// The keys.
    pub keys: Vec<Key>,
    /// The events, in order.
    pub events: Vec<Event>,
}

impl History {
    /// Returns the events that concern a key, as text, one a line.
    pub fn of_key(&self, key: KeyId) -> String {
        let (mut runs, mut calls, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = String::new();
        for event in &self.events {
            let is_of_key = match event.fact {
                Fact::Began { run, key: of, .. } => note(&mut runs, run, of == key),
                Fact::Asked { call, key: of, .. } => note(&mut calls, call, of == key),
                Fact::Sent { message, key: of, .. } => note(&mut messages, message, of == key),
                Fact::Effect { run } | Fact::Ended { run, .. } => runs.contains(&run),
                Fact::Told { call, .. } => calls.contains(&call),
                Fact::Acknowledged { message } | Fact::DeadLettered { message, .. } => messages.contains(&message),
                Fact::Recorded { key: of, .. } | Fact::Erased { key: of } => of == key,
            };
            if is_of_key {
                lines.push_str(&format!("{event}\n"));
            }
        }
        lines
    }
}

fn note(noted: &mut Vec<u32>, id: u32, is_of_key: bool) -> bool {
    if is_of_key {
        noted.push(id);
    }
    is_of_key
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9}.{:03} s  {:?}", self.at / 1_000, self.at % 1_000, self.fact)
    }
}
