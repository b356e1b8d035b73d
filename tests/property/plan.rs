//! A case: all that is random in it, so that it can be saved and run again.

use std::time::Duration;

use lambda_once::{
    AfterUnknown,
    store::fault::{Call, Fault},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Of the faults, and of the pauses between retries.
    pub(crate) seed: u64,
    pub(crate) origin: Origin,
    pub(crate) settings: Settings,
    /// What the store has before the first delivery, by key.
    pub(crate) kept: Vec<(usize, Kept)>,
    pub(crate) records: Vec<Record>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) trouble: Trouble,
}

/// Where the records come from, and with it what their order is kept within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Origin {
    /// An SQS queue: no order.
    Queue,
    /// A FIFO queue of SQS: groups.
    Fifo,
    /// A shard: one order.
    Shard,
    /// Partitions, and records that are in none.
    Partitions,
}

impl Origin {
    pub(crate) const fn is_sqs(self) -> bool {
        matches!(self, Self::Queue | Self::Fifo)
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    /// How many records the handler takes at once.
    pub(crate) together: usize,
    /// How many requests the store takes in a call.
    pub(crate) chunk: usize,
    pub(crate) after_unknown: Policy,
    pub(crate) releases_panics: bool,
    pub(crate) stops_batch: bool,
    pub(crate) acknowledges_failures: bool,
    pub(crate) runs_without_key: bool,
    pub(crate) total_failure_is_error: bool,
    pub(crate) expected_ms: Option<u64>,
    pub(crate) dead_letters: Option<Letterbox>,
    pub(crate) max_receive_count: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Policy {
    Rerun,
    Refuse,
    Probe,
}

impl From<Policy> for AfterUnknown {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Rerun => Self::Rerun,
            Policy::Refuse => Self::Refuse,
            Policy::Probe => Self::Probe,
        }
    }
}

/// How a record is put aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Letterbox {
    Takes,
    TakesAfter(u64),
    Fails,
    Panics,
    Hangs,
}

/// A record that an earlier delivery has left.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) state: State,
    /// Whether it is of another payload than all that are delivered.
    pub(crate) other_payload: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Completed,
    Failed,
    /// Its lease lasts for so many milliseconds.
    InProgress(u64),
    /// Its lease is over, and this is whether it took effect.
    Lapsed(bool),
    Expired,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `None` makes it an event that no source sends.
    pub(crate) id: Option<usize>,
    pub(crate) body: Body,
    pub(crate) group: usize,
    pub(crate) act: Act,
    pub(crate) ms: u64,
    pub(crate) probe: Look,
    pub(crate) receive_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Order {
        key: usize,
        /// Makes it another payload.
        note: u8,
    },
    NoKey,
    Poison,
}

impl Record {
    pub(crate) fn key(&self) -> Option<usize> {
        if let Body::Order { key, .. } = self.body { Some(key) } else { None }
    }
}

/// What the handler does after its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Succeed,
    Transient,
    /// The first run of the key fails, and no later one.
    TransientOnce,
    Permanent,
    /// It takes effect, and says that it does not know.
    Unknown,
    /// It takes effect, and panics.
    Panic,
    /// It panics before it is awaited.
    PanicAtOnce,
    Hang,
    /// It blocks its thread for its time, and succeeds.
    Block,
}

/// What a probe of the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Look {
    Truth,
    Fails,
    Panics,
    Hangs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Whether all records are delivered again, or only those that were reported.
    pub(crate) all: bool,
    /// How long after the last answer.
    pub(crate) after_ms: u64,
    /// How much time the invocation has; 0 if its deadline is not known.
    pub(crate) left_ms: u64,
    /// When each invocation with these records begins.
    pub(crate) starts_ms: Vec<u64>,
}

/// What goes wrong between the engine and the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// How many of a thousand requests meet each fault.
    pub(crate) rates: Vec<(Mishap, u32)>,
    /// What every request of a kind meets during the first delivery.
    pub(crate) always: Vec<(Kind, Mishap)>,
    /// How long a call takes to the store, at the most.
    pub(crate) latency_ms: u64,
    /// How many of a thousand requests are lost on their way, and arrive later.
    pub(crate) late: u32,
    pub(crate) late_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    Claim,
    Settle,
    Read,
}

impl From<Kind> for Call {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Claim => Self::Claim,
            Kind::Settle => Self::Settle,
            Kind::Read => Self::Read,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mishap {
    ErrorBefore,
    ErrorAfter,
    Throttled,
    AccessDenied,
    Delay(u64),
    Silence,
}

impl From<Mishap> for Fault {
    fn from(mishap: Mishap) -> Self {
        match mishap {
            Mishap::ErrorBefore => Self::ErrorBefore,
            Mishap::ErrorAfter => Self::ErrorAfter,
            Mishap::Throttled => Self::Throttled,
            Mishap::AccessDenied => Self::AccessDenied,
            Mishap::Delay(ms) => Self::Delay(Duration::from_millis(ms)),
            Mishap::Silence => Self::Silence,
        }
    }
}

impl Plan {
    /// What the record's order is kept within.
    pub(crate) fn lane(&self, record: &Record) -> Option<usize> {
        match self.origin {
            Origin::Queue => None,
            Origin::Fifo => Some(record.group),
            Origin::Shard => Some(0),
            Origin::Partitions => record.group.checked_sub(1),
        }
    }

    /// Every key that a record or the store has.
    pub(crate) fn keys(&self) -> Vec<usize> {
        let kept = self.kept.iter().map(|(key, _)| *key);
        let mut keys: Vec<usize> = self.records.iter().filter_map(Record::key).chain(kept).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(crate) fn kept(&self, key: usize) -> Option<Kept> {
        self.kept.iter().find(|(kept, _)| *kept == key).map(|(_, kept)| *kept)
    }
}
