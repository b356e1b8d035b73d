//! Counts of steps, operations and faults.

use serde_json::{Map, Value};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No copy of a request arrived.
    RequestLost,
    /// A request arrived twice.
    RequestDoubled,
    /// A request arrived up to two minutes late.
    RequestLate,
    /// Every request of an invocation arrived a second time, late and in order.
    Copied,
    /// The response that the sender waited for did not arrive.
    AnswerLost,
    /// A response arrived late.
    AnswerLate,
    /// A call was throttled.
    Throttled,
    /// A request of a call failed alone, applied or not.
    MemberFailed,
    /// An invocation was killed before it responded.
    Killed,
    /// An invocation was frozen when it would have been polled.
    Frozen,
    /// A queue delivered a message to a second worker.
    DeliveredTwice,
    /// A handler failed transiently.
    Transient,
    /// A handler failed, and whether it took effect is unknown.
    Unknown,
    /// A handler panicked.
    Panicked,
    /// A handler hung.
    Hung,
    /// A probe failed.
    ProbeFailed,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::RequestLost,
        Self::RequestDoubled,
        Self::RequestLate,
        Self::Copied,
        Self::AnswerLost,
        Self::AnswerLate,
        Self::Throttled,
        Self::MemberFailed,
        Self::Killed,
        Self::Frozen,
        Self::DeliveredTwice,
        Self::Transient,
        Self::Unknown,
        Self::Panicked,
        Self::Hung,
        Self::ProbeFailed,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestLost => "requests lost",
            Self::RequestDoubled => "requests doubled",
            Self::RequestLate => "requests late",
            Self::Copied => "invocations whose requests came twice",
            Self::AnswerLost => "answers lost",
            Self::AnswerLate => "answers late",
            Self::Throttled => "calls throttled",
            Self::MemberFailed => "requests of a call failed",
            Self::Killed => "invocations killed",
            Self::Frozen => "invocations frozen",
            Self::DeliveredTwice => "messages delivered twice",
            Self::Transient => "handlers failed",
            Self::Unknown => "handlers failed with an unknown outcome",
            Self::Panicked => "handlers panicked",
            Self::Hung => "handlers hung",
            Self::ProbeFailed => "probes failed",
        }
    }
}

macro_rules! counters {
    ($($name:ident: $doc:literal,)*) => {
        /// Counts of histories, or of one.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $doc] pub $name: u64,)*
            /// Faults by kind, in the order of [`Fault::ALL`].
            pub faults: [u64; Fault::ALL.len()],
        }

        impl Counters {
            /// Adds other counts to these.
            pub fn merge(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                for (count, added) in self.faults.iter_mut().zip(other.faults) {
                    *count += added;
                }
            }

            /// Returns the counts by name.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                let faults = Fault::ALL.iter().zip(self.faults).map(|(fault, count)| (fault.name(), count));
                [$(($doc, self.$name),)*].into_iter().chain(faults).collect()
            }
        }
    };
}

counters! {
    histories: "histories",
    steps: "steps",
    operations: "operations",
    runs: "runs of handlers",
    effects: "effects",
    repeated_effects: "effects repeated",
    takeovers: "runs that took over",
    probes: "probes",
    replays: "replays",
    lost: "calls without an answer",
    dead_letters: "messages dead-lettered",
}

impl Counters {
    /// Counts a fault.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Adds these counts to the counts of a JSON object.
    pub fn add_to(&self, total: &mut Map<String, Value>) {
        for (name, count) in self.rows() {
            let before = total.get(name).and_then(Value::as_u64).unwrap_or(0);
            total.insert(name.to_owned(), (before + count).into());
        }
    }
}
