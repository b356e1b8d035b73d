//! The history of a run, as observers outside the library see it: the ledger of effects, the queue, the clients, and the
//! program that injects the faults.
//!
//! It contains only plain types of this module. The [judge](crate::judge) reads nothing else.

use std::fmt;

/// Milliseconds since the run began, by the coordinator's monotonic clock.
pub type Ms = u64;

/// The index of a key in [`History::keys`].
pub type KeyId = u32;

/// The number of a run of a handler. It is also the result of the run, so no two runs have the same result.
pub type RunId = u32;

/// The number of a worker process. A restarted worker has another.
pub type WorkerId = u32;

/// The number of a message.
pub type MessageId = u32;

/// The number of an invocation of the function, or of a consumer's receipt of a message.
pub type InvocationId = u32;

/// The number of an HTTP request.
pub type CallId = u32;

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
    /// Messages of a queue, in invocations with a deadline, or at consumers without one.
    Queue,
    /// HTTP requests, without one.
    Http,
}

/// An operation's key, and its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The entry point.
    pub entry: Entry,
    /// The policy after a loss.
    pub policy: Policy,
    /// Entity and sequence of an ordered operation.
    pub order: Option<(u32, u64)>,
    /// Whether its effect is a row that a transaction commits together with the outcome.
    pub is_transaction: bool,
    /// Whether its handler always fails permanently, without an effect.
    pub is_poison: bool,
}

/// The end of a run, as its handler reports it before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It returns its result.
    Returned,
    /// It fails, and nothing happened.
    Transient,
    /// It fails permanently, and nothing happened.
    Permanent,
    /// It fails or panics, and something may have happened.
    Unknown,
}

/// The response to an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Success, with the result of a run.
    Result {
        /// The run in the body.
        run: RunId,
        /// Whether the response is marked as a replay.
        is_replay: bool,
    },
    /// An earlier request left no outcome, and the policy refuses another run.
    Abandoned,
    /// A refusal or a failure that a retry may resolve, or no response.
    Retry,
}

/// The outcome of an operator's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// The record was changed.
    Applied,
    /// Nothing was changed.
    Refused,
    /// The record may have been changed.
    Unknown,
}

/// A fact of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A message was sent to a queue.
    Sent {
        /// The message.
        message: MessageId,
        /// Its key.
        key: KeyId,
    },
    /// A function received an event, or a consumer a message.
    Invoked {
        /// The invocation.
        invocation: InvocationId,
        /// The worker.
        worker: WorkerId,
        /// Its deadline, or `None` for a consumer's receipt.
        deadline: Option<Ms>,
    },
    /// The event contained this message, or the receipt is of it.
    Delivered {
        /// The message.
        message: MessageId,
        /// The invocation.
        invocation: InvocationId,
    },
    /// The function responded to an invocation, or the consumer acknowledged its message or left it.
    Responded {
        /// The invocation.
        invocation: InvocationId,
    },
    /// The queue deleted a message, because the response of this invocation did not report it.
    Acknowledged {
        /// The message.
        message: MessageId,
        /// The invocation.
        invocation: InvocationId,
    },
    /// The queue moved a message to its dead-letter queue.
    DeadLettered {
        /// The message.
        message: MessageId,
    },
    /// A client sent a request.
    Asked {
        /// The request.
        call: CallId,
        /// Its key.
        key: KeyId,
        /// The worker that it was sent to.
        worker: WorkerId,
    },
    /// The client has the response, or has given up.
    Told {
        /// The request.
        call: CallId,
        /// The response.
        answer: Answer,
    },
    /// A handler began to run.
    Began {
        /// The run, numbered from 0 in the order of the history.
        run: RunId,
        /// Its key.
        key: KeyId,
        /// Its worker.
        worker: WorkerId,
        /// The invocation or the receipt that the worker handles.
        invocation: Option<InvocationId>,
        /// Whether it was notified that an earlier run may have taken effect.
        took_over: bool,
    },
    /// The run took effect.
    Effect {
        /// The run.
        run: RunId,
    },
    /// A row of the run was in the database at the end.
    Row {
        /// The run.
        run: RunId,
    },
    /// The handler is about to return.
    Ended {
        /// The run.
        run: RunId,
        /// The kind of its end.
        end: End,
    },
    /// A probe asked for the effects of a key.
    Probed {
        /// The key.
        key: KeyId,
    },
    /// An operator is about to let the key run once more, having found no effect, or else to record that it is done.
    Amending {
        /// The key.
        key: KeyId,
        /// Whether it is to run once more.
        is_release: bool,
    },
    /// The operator's tool has ended.
    Amended {
        /// The key.
        key: KeyId,
        /// Whether it was to run once more.
        is_release: bool,
        /// The outcome.
        outcome: Amendment,
    },
    /// A request of this worker to the store, or its response, was lost, late, slow or replaced.
    Struck {
        /// The worker.
        worker: WorkerId,
        /// Whether the connection stays open without a response, so that later requests on it wait too.
        is_silent: bool,
    },
    /// A worker was killed.
    Killed {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker was stopped (`SIGSTOP`).
    Frozen {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker was continued (`SIGCONT`).
    Thawed {
        /// The worker.
        worker: WorkerId,
    },
    /// The store's server was killed.
    ServerKilled,
    /// The store's server accepts connections again.
    ServerStarted,
    /// The server refused log-ins or writes from then on.
    ServerRefuses,
    /// It accepted them again.
    ServerAccepts,
    /// This machine was stalled since that time, for everybody.
    Stalled {
        /// The begin.
        since: Ms,
    },
    /// The server's response to a request of the worker took long.
    Slow {
        /// The worker.
        worker: WorkerId,
        /// The time of the request.
        since: Ms,
    },
    /// All faults have stopped.
    Calm,
}

/// An event and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time at which it was recorded.
    pub at: Ms,
    /// The event.
    pub fact: Fact,
}

/// A history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The keys.
    pub keys: Vec<Key>,
    /// The events, in the order in which they were recorded.
    pub events: Vec<Event>,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>6}.{:03} s  {:?}", self.at / 1_000, self.at % 1_000, self.fact)
    }
}

impl History {
    /// Returns the events that concern a key, and the troubles of its workers, one a line.
    pub fn of_key(&self, key: KeyId) -> String {
        let (mut runs, mut calls, mut messages, mut invocations, mut workers) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for event in &self.events {
            match event.fact {
                Fact::Sent { message, key: of } if of == key => messages.push(message),
                Fact::Delivered { message, invocation } if messages.contains(&message) => invocations.push(invocation),
                Fact::Asked { call, key: of, worker } if of == key => {
                    calls.push(call);
                    workers.push(worker);
                }
                Fact::Began { run, key: of, worker, .. } if of == key => {
                    runs.push(run);
                    workers.push(worker);
                }
                _ => {}
            }
        }
        for event in &self.events {
            if let Fact::Invoked { invocation, worker, .. } = event.fact
                && invocations.contains(&invocation)
            {
                workers.push(worker);
            }
        }
        let is_of_key = |fact: Fact| match fact {
            Fact::Sent { key: of, .. }
            | Fact::Probed { key: of }
            | Fact::Amending { key: of, .. }
            | Fact::Amended { key: of, .. } => of == key,
            Fact::Acknowledged { message, .. } | Fact::DeadLettered { message } | Fact::Delivered { message, .. } => {
                messages.contains(&message)
            }
            Fact::Invoked { invocation, .. } | Fact::Responded { invocation } => invocations.contains(&invocation),
            Fact::Asked { call, .. } | Fact::Told { call, .. } => calls.contains(&call),
            Fact::Began { run, .. } | Fact::Effect { run } | Fact::Row { run } | Fact::Ended { run, .. } => {
                runs.contains(&run)
            }
            Fact::Struck { worker, .. }
            | Fact::Slow { worker, .. }
            | Fact::Killed { worker }
            | Fact::Frozen { worker }
            | Fact::Thawed { worker } => workers.contains(&worker),
            Fact::ServerKilled
            | Fact::ServerStarted
            | Fact::ServerRefuses
            | Fact::ServerAccepts
            | Fact::Stalled { .. }
            | Fact::Calm => true,
        };
        let events = self.events.iter().filter(|event| is_of_key(event.fact));
        events.map(|event| format!("{event}\n")).collect()
    }
}
