//! Plans: everything that is random in a case, so that the case can be saved and performed again.
//!
//! Names and values are a file format. Fields that were added later have defaults that keep the meaning of earlier
//! plans.

use std::time::Duration;

use lambda_once::{
    AfterUnknown,
    store::fault::{Call, Fault},
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The seed of the faults, and of the pauses between retries.
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

/// The source of the records, which determines their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SourceKind {
    /// An SQS queue, without an order.
    Queue,
    /// An SQS FIFO queue, with one order per message group.
    Fifo,
    /// A shard, with one order.
    Shard,
    /// Partitions with one order each, and records that belong to none.
    Partitions,
}

impl SourceKind {
    pub(crate) const fn is_sqs(self) -> bool {
        matches!(self, Self::Queue | Self::Fifo)
    }
}

/// Whether records without an order wait for a claim that is held elsewhere, and how detailed the response is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Waiting {
    /// They are reported without waiting. The response names each failed record.
    #[default]
    OrderedOnly,
    /// They wait. The response names each failed record.
    All,
    /// They wait. The response is success or an error.
    AllOrNothing,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    /// The maximum number of records in one handler call.
    pub(crate) together: usize,
    /// The maximum number of requests in one call of the store.
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
    #[serde(default, alias = "longest_run_ms")]
    pub(crate) last_attempt_timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) dead_letter_abandoned: bool,
    #[serde(default)]
    pub(crate) redelivery: Option<RedeliveryBehaviour>,
    /// Whether the service ignores some bodies.
    #[serde(default)]
    pub(crate) ignores: bool,
    /// Whether any failure fails the invocation.
    #[serde(default)]
    pub(crate) all_or_error: bool,
    /// Whether a handler call takes several records of one order.
    #[serde(default)]
    pub(crate) consecutive: bool,
    /// Whether each body is in an SNS notification, which is different in each delivery.
    #[serde(default)]
    pub(crate) envelopes: bool,
}

impl Settings {
    /// Whether the response is success or an error.
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

/// The payload that detects the reuse of a key for a different operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PayloadChoice {
    #[default]
    Body,
    /// The note in the body.
    Part,
    Ignored,
}

/// The behavior of the dead-letter destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DeadLetterBehaviour {
    Takes,
    TakesAfter(u64),
    Fails,
    Panics,
    Hangs,
}

/// The behavior of the redelivery hook.
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
    /// Whether its payload differs from all delivered ones.
    pub(crate) other_payload: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StoredState {
    Completed,
    Failed,
    /// Its lease lasts this many milliseconds.
    InProgress(u64),
    /// Its lease has ended. The value is whether its handler took effect.
    Lapsed(bool),
    Expired,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The index of the id, or `None` for an event that no source sends.
    pub(crate) id: Option<usize>,
    pub(crate) body: Body,
    pub(crate) group: usize,
    #[serde(rename = "act")]
    pub(crate) behaviour: Behaviour,
    /// The duration of the handler.
    pub(crate) ms: u64,
    pub(crate) probe: ProbeBehaviour,
    pub(crate) receive_count: u32,
    /// The time that the handler blocks its thread before it awaits anything.
    #[serde(default)]
    pub(crate) blocks_ms: u64,
    /// A member of the body in addition to the note, absent if 0.
    #[serde(default)]
    pub(crate) trace: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Body {
    Order {
        key: usize,
        /// The note that distinguishes payloads.
        note: u8,
    },
    NoKey,
    /// The decoder rejects it permanently.
    Poison,
    /// The decoder rejects it temporarily.
    PoisonForNow,
    /// The decoder panics.
    PoisonPanics,
    /// The service ignores it.
    Ping,
    /// The predicate that ignores messages panics.
    PingPanics,
}

impl Record {
    pub(crate) fn key(&self) -> Option<usize> {
        if let Body::Order { key, .. } = self.body { Some(key) } else { None }
    }
}

/// The behavior of the handler at the end of its duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Behaviour {
    Succeed,
    Transient,
    /// Only the first run of the key fails.
    TransientOnce,
    Permanent,
    /// It takes effect, and returns an unknown outcome.
    Unknown,
    /// It takes effect, and panics.
    Panic,
    /// It panics before its future is awaited.
    PanicAtOnce,
    Hang,
    /// The process is frozen for the duration, without effect on timers. Then the handler succeeds.
    #[serde(rename = "Block")]
    Freeze,
}

/// The result of a probe of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProbeBehaviour {
    Truth,
    Fails,
    Panics,
    Hangs,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// Whether all records are redelivered, instead of only the reported ones.
    pub(crate) all: bool,
    /// The time since the last response.
    pub(crate) after_ms: u64,
    /// The time that each invocation has, or 0 if its deadline is unknown.
    pub(crate) left_ms: u64,
    /// The starts of the invocations with these records.
    pub(crate) starts_ms: Vec<u64>,
    /// The point at which each invocation is killed, if it is.
    #[serde(default)]
    pub(crate) kills: Vec<Option<Kill>>,
}

/// The point at which the service's future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kill {
    /// After this many polls.
    AtPoll(u64),
    /// After this many milliseconds.
    AtMs(u64),
}

/// Faults between the engine and the store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Faults {
    /// The rate of each fault per thousand requests.
    pub(crate) rates: Vec<(StoreFault, u32)>,
    /// The faults of all requests of a kind during the first delivery.
    pub(crate) always: Vec<(CallKind, StoreFault)>,
    /// The maximum latency of a call to the store.
    pub(crate) latency_ms: u64,
    /// The number of requests per thousand that are delayed on their way.
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
    /// Returns the lane of the record, within which its order is kept.
    pub(crate) fn lane(&self, record: &Record) -> Option<usize> {
        match self.source {
            SourceKind::Queue => None,
            SourceKind::Fifo => Some(record.group),
            SourceKind::Shard => Some(0),
            SourceKind::Partitions => record.group.checked_sub(1),
        }
    }

    /// Returns the keys of all delivered and stored records.
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

    /// Returns whether two records with the same key have the same payload.
    pub(crate) fn same_payload(&self, one: &Record, other: &Record) -> bool {
        match self.settings.payload {
            PayloadChoice::Body => one.body == other.body && one.trace == other.trace,
            PayloadChoice::Part => one.body == other.body,
            PayloadChoice::Ignored => true,
        }
    }

    /// Returns the maximum duration of a call of the store in milliseconds, or `None` if a call may never return.
    pub(crate) fn longest_call_ms(&self) -> Option<u64> {
        let faults = self.faults.rates.iter().map(|(fault, _)| *fault);
        let mut delay = 0;
        for fault in faults.chain(self.faults.always.iter().map(|(_, fault)| *fault)) {
            match fault {
                StoreFault::Silence => return None,
                // The delays of one call are consecutive.
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
