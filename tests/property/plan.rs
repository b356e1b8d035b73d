//! A plan: everything that is random in a case, so that a case can be saved and performed again.
//!
//! Names and values are a file format: fields that were added later have defaults, which mean what plans saved before
//! them meant.

use std::time::Duration;

use lambda_once::{
    AfterUnknown,
    store::fault::{Call, Fault},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Seed of the faults, and of the pauses between retries.
    pub(crate) seed: u64,
    #[serde(rename = "origin")]
    pub(crate) source: SourceKind,
    pub(crate) settings: Settings,
    /// The store's contents before the first delivery, by key.
    #[serde(rename = "kept")]
    pub(crate) stored: Vec<(usize, StoredRecord)>,
    pub(crate) records: Vec<Record>,
    pub(crate) deliveries: Vec<Delivery>,
    #[serde(rename = "trouble")]
    pub(crate) faults: Faults,
}

/// Where the records come from, which decides what their order is kept within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceKind {
    /// An SQS queue: no order.
    Queue,
    /// A FIFO queue of SQS: one order for each message group.
    Fifo,
    /// A shard: one order.
    Shard,
    /// Partitions with an order each, and records that are in none.
    Partitions,
}

impl SourceKind {
    pub(crate) const fn is_sqs(self) -> bool {
        matches!(self, Self::Queue | Self::Fifo)
    }
}

/// Whether records without an order wait for a claim that is held elsewhere, and what the answer tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waiting {
    /// They are reported at once. The answer names each record that failed.
    #[default]
    OrderedOnly,
    /// They wait. The answer names each record that failed.
    All,
    /// They wait. The answer is success or an error.
    AllOrNothing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    /// The largest number of records in one call of the handler.
    pub(crate) together: usize,
    /// The largest number of requests in one call of the store.
    pub(crate) chunk: usize,
    pub(crate) after_unknown: Policy,
    pub(crate) releases_panics: bool,
    pub(crate) stops_batch: bool,
    pub(crate) acknowledges_failures: bool,
    pub(crate) runs_without_key: bool,
    pub(crate) total_failure_is_error: bool,
    pub(crate) expected_ms: Option<u64>,
    pub(crate) dead_letters: Option<DeadLetterBehaviour>,
    pub(crate) max_receive_count: Option<u32>,
    #[serde(default)]
    pub(crate) payload: PayloadChoice,
    #[serde(default)]
    pub(crate) waiting: Waiting,
    #[serde(default)]
    pub(crate) wait_up_to_ms: Option<u64>,
    #[serde(default)]
    pub(crate) longest_run_ms: Option<u64>,
    #[serde(default)]
    pub(crate) dead_letter_abandoned: bool,
    #[serde(default)]
    pub(crate) redelivery: Option<RedeliveryBehaviour>,
    /// Whether the service is told what is no work.
    #[serde(default)]
    pub(crate) ignores: bool,
    /// Whether any failure fails the invocation.
    #[serde(default)]
    pub(crate) all_or_error: bool,
    /// Whether a call of the handler takes several records of one order.
    #[serde(default)]
    pub(crate) consecutive: bool,
    /// Whether each record is a notification of SNS, another one in each delivery, with the body in it.
    #[serde(default)]
    pub(crate) envelopes: bool,
}

impl Settings {
    /// Whether the answer is success or an error.
    pub(crate) fn is_all_or_nothing(&self) -> bool {
        self.waiting == Waiting::AllOrNothing || self.all_or_error
    }

    /// Whether records without an order wait for a claim that is held elsewhere.
    pub(crate) fn waits_without_order(&self) -> bool {
        self.waiting != Waiting::OrderedOnly || self.all_or_error
    }
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

/// The payload by which the use of a key for something else is recognized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PayloadChoice {
    #[default]
    Body,
    /// The note in the body.
    Part,
    Ignored,
}

/// What the dead-letter destination does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeadLetterBehaviour {
    Takes,
    TakesAfter(u64),
    Fails,
    Panics,
    Hangs,
}

/// What the redelivery hook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RedeliveryBehaviour {
    Returns,
    ReturnsAfter(u64),
    Panics,
    Hangs,
}

/// A record that an earlier delivery has left in the store.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct StoredRecord {
    pub(crate) state: StoredState,
    /// Whether its payload differs from all that are delivered.
    pub(crate) other_payload: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredState {
    Completed,
    Failed,
    /// Its lease lasts for so many milliseconds.
    InProgress(u64),
    /// Its lease has ended; whether its handler took effect.
    Lapsed(bool),
    Expired,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `None` makes the event one that no source sends.
    pub(crate) id: Option<usize>,
    pub(crate) body: Body,
    pub(crate) group: usize,
    #[serde(rename = "act")]
    pub(crate) behaviour: Behaviour,
    /// How long the handler takes.
    pub(crate) ms: u64,
    pub(crate) probe: ProbeBehaviour,
    pub(crate) receive_count: u32,
    /// How long the handler blocks its thread before it awaits anything.
    #[serde(default)]
    pub(crate) blocks_ms: u64,
    /// A member of the body beside the note; absent if 0.
    #[serde(default)]
    pub(crate) trace: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Order {
        key: usize,
        /// Makes it another payload.
        note: u8,
    },
    NoKey,
    /// The decoder refuses it.
    Poison,
    /// The decoder refuses it for now.
    PoisonForNow,
    /// The decoder panics.
    PoisonPanics,
    /// No work, as the service is told.
    Ping,
    /// Whoever is asked whether it is work panics.
    PingPanics,
}

impl Record {
    pub(crate) fn key(&self) -> Option<usize> {
        if let Body::Order { key, .. } = self.body { Some(key) } else { None }
    }
}

/// What the handler does when its time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Behaviour {
    Succeed,
    Transient,
    /// The first run of the key fails, and no later one.
    TransientOnce,
    Permanent,
    /// It takes effect, and says that its outcome is unknown.
    Unknown,
    /// It takes effect, and panics.
    Panic,
    /// It panics before it is awaited.
    PanicAtOnce,
    Hang,
    /// The process is frozen for its time: timers do not notice. Then it succeeds.
    #[serde(rename = "Block")]
    Freeze,
}

/// What a probe of the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProbeBehaviour {
    Truth,
    Fails,
    Panics,
    Hangs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Whether all records are delivered again, or only those that were reported.
    pub(crate) all: bool,
    /// Time since the last answer.
    pub(crate) after_ms: u64,
    /// Time that each invocation has; 0 if its deadline is unknown.
    pub(crate) left_ms: u64,
    /// When each invocation with these records begins.
    pub(crate) starts_ms: Vec<u64>,
    /// Where each invocation is killed, if it is.
    #[serde(default)]
    pub(crate) kills: Vec<Option<Kill>>,
}

/// When the service's future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kill {
    /// After so many polls.
    AtPoll(u64),
    /// After so many milliseconds.
    AtMs(u64),
}

/// Faults between the engine and the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// How many of a thousand requests meet each fault.
    pub(crate) rates: Vec<(StoreFault, u32)>,
    /// What every request of a kind meets during the first delivery.
    pub(crate) always: Vec<(CallKind, StoreFault)>,
    /// The longest time a call takes to the store.
    pub(crate) latency_ms: u64,
    /// How many of a thousand requests are lost on their way, and arrive later.
    pub(crate) late: u32,
    pub(crate) late_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallKind {
    Claim,
    Settle,
    Read,
}

impl From<CallKind> for Call {
    fn from(kind: CallKind) -> Self {
        match kind {
            CallKind::Claim => Self::Claim,
            CallKind::Settle => Self::Settle,
            CallKind::Read => Self::Read,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoreFault {
    ErrorBefore,
    ErrorAfter,
    Throttled,
    AccessDenied,
    Delay(u64),
    Silence,
}

impl From<StoreFault> for Fault {
    fn from(fault: StoreFault) -> Self {
        match fault {
            StoreFault::ErrorBefore => Self::ErrorBefore,
            StoreFault::ErrorAfter => Self::ErrorAfter,
            StoreFault::Throttled => Self::Throttled,
            StoreFault::AccessDenied => Self::AccessDenied,
            StoreFault::Delay(ms) => Self::Delay(Duration::from_millis(ms)),
            StoreFault::Silence => Self::Silence,
        }
    }
}

impl Plan {
    /// The lane that the record's order is kept within.
    pub(crate) fn lane(&self, record: &Record) -> Option<usize> {
        match self.source {
            SourceKind::Queue => None,
            SourceKind::Fifo => Some(record.group),
            SourceKind::Shard => Some(0),
            SourceKind::Partitions => record.group.checked_sub(1),
        }
    }

    /// Every key of a delivered or stored record.
    pub(crate) fn keys(&self) -> Vec<usize> {
        let stored = self.stored.iter().map(|(key, _)| *key);
        let mut keys: Vec<usize> = self.records.iter().filter_map(Record::key).chain(stored).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    pub(crate) fn stored(&self, key: usize) -> Option<StoredRecord> {
        self.stored.iter().find(|(stored, _)| *stored == key).map(|(_, record)| *record)
    }

    /// Whether two records with one key have the same payload.
    pub(crate) fn same_payload(&self, one: &Record, other: &Record) -> bool {
        match self.settings.payload {
            PayloadChoice::Body => one.body == other.body && one.trace == other.trace,
            PayloadChoice::Part => one.body == other.body,
            PayloadChoice::Ignored => true,
        }
    }

    /// How long a call of the store takes at the most, in milliseconds; `None` if one may never be answered.
    pub(crate) fn longest_call_ms(&self) -> Option<u64> {
        let faults = self.faults.rates.iter().map(|(fault, _)| *fault);
        let mut delay = 0;
        for fault in faults.chain(self.faults.always.iter().map(|(_, fault)| *fault)) {
            match fault {
                StoreFault::Silence => return None,
                // Those of one call come one after the other.
                StoreFault::Delay(ms) => delay = ms * u64::try_from(self.settings.chunk.max(25)).unwrap_or(u64::MAX),
                _ => {}
            }
        }
        Some(self.faults.latency_ms + delay)
    }

    pub(crate) fn kills(&self) -> bool {
        self.deliveries.iter().any(|delivery| delivery.kills.iter().any(Option::is_some))
    }
}
