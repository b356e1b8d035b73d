//! Metrics in CloudWatch's embedded metric format: JSON lines on standard output, which CloudWatch makes metrics of.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Map, Value, json};

use super::observer::{EndEvent, Observer, OperationEvent};
use crate::{
    error::ErrorKind,
    idempotency::{
        outcome::{Interruption, OutcomeKind},
        verdict::Verdict,
    },
};

/// An array in a metric holds this many values at most.
const MAX_VALUES: usize = 100;

/// An [`Observer`] that writes metrics in CloudWatch's
/// [embedded metric format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html):
/// one line for each invocation and operation, and more only if a metric has over 100 values.
///
/// ```
/// use lambda_once::{Idempotency, MemoryStore, telemetry::Emf};
///
/// # fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::builder(MemoryStore::new()).observer(Emf::new("Payments")).build()?;
/// # drop(once); Ok(()) }
/// ```
///
/// Dimensions: `Function`, which is `AWS_LAMBDA_FUNCTION_NAME` (else `local`), and `Operation`, the operation's name in logs.
///
/// | metric | unit | what |
/// |---|---|---|
/// | `Operations` | count | operations that were told, duplicates included |
/// | `DuplicatesSaved` | count | of them, those that were recognized as done before |
/// | `Executed`, `TookOver`, `Replayed`, … | count | outcomes: the names of [`OutcomeKind`], with `FailedTransient`, `FailedPermanent` and `FailedUnknown` for failures, `Panicked` and `Cancelled` for interruptions |
/// | `Takeovers` | count | claims that took over another one, however they ended |
/// | `Errors` | count | operations whose outcome could not be decided: trouble with the store, a missing key and so on |
/// | `StoreErrors` | count | of `Errors`, those of the store: it refused, failed or did not answer. Alarm on any |
/// | `ClaimTime`, `HandlerTime`, `SettleTime` | milliseconds | a value for each operation that has it |
/// | `LeaseRemaining` | milliseconds | how much of the lease was left when the handler ended |
/// | `StoreCalls` | count | calls to the store |
///
/// `Operations` and `DuplicatesSaved` are in the first line of each invocation and operation, so that an alarm has data. Of the others
/// there is only what occurred. A line holds no payload, and no key.
///
/// A line is written when a batch, a request, an invocation or a single operation is over. Operations within a handler of another
/// of this engine's services are written with that.
pub struct Emf {
    namespace: Cow<'static, str>,
    function: Cow<'static, str>,
    write: Box<dyn Fn(&str) + Send + Sync>,
    /// By operation: what has not been written yet.
    metrics: Mutex<BTreeMap<String, Metrics>>,
}

impl Emf {
    /// Metrics in this namespace, of the function that `AWS_LAMBDA_FUNCTION_NAME` names, on standard output.
    pub fn new(namespace: impl Into<Cow<'static, str>>) -> Self {
        let function = std::env::var("AWS_LAMBDA_FUNCTION_NAME").ok().filter(|name| !name.is_empty());
        Self {
            namespace: namespace.into(),
            function: function.map_or(Cow::Borrowed("local"), Cow::Owned),
            write: Box::new(|line| println!("{line}")),
            metrics: Mutex::default(),
        }
    }

    /// The value of the dimension `Function`.
    #[must_use]
    pub fn function(mut self, function: impl Into<Cow<'static, str>>) -> Self {
        self.function = function.into();
        self
    }

    /// Writes each line by this function instead, without a line break: to an agent, say, or in a test.
    #[must_use]
    pub fn writer(mut self, write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.write = Box::new(write);
        self
    }

    fn with_metrics(&self, operation: &str, change: impl FnOnce(&mut Metrics)) {
        let mut all = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(operation) {
            Some(metrics) => change(metrics),
            None => change(all.entry(operation.to_owned()).or_default()),
        }
    }

    fn flush(&self) {
        let all = std::mem::take(&mut *self.metrics.lock().unwrap_or_else(PoisonError::into_inner));
        for (operation, mut metrics) in all {
            let mut lines = vec![self.line(&operation, metrics.counts(), metrics.next_values())];
            while metrics.has_values() {
                lines.push(self.line(&operation, Vec::new(), metrics.next_values()));
            }
            lines.iter().for_each(|line| (self.write)(line));
        }
    }

    fn line(&self, operation: &str, counts: Vec<(&str, u64)>, values: Vec<(&str, Vec<f64>)>) -> String {
        let mut definitions = Vec::new();
        let mut line = Map::new();
        for (name, count) in counts {
            definitions.push(json!({ "Name": name, "Unit": "Count" }));
            line.insert(name.to_owned(), count.into());
        }
        for (name, values) in values {
            definitions.push(json!({ "Name": name, "Unit": "Milliseconds" }));
            line.insert(name.to_owned(), values.into());
        }
        line.insert("Function".to_owned(), Value::from(&*self.function));
        line.insert("Operation".to_owned(), operation.into());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let metadata = json!({
            "Timestamp": u64::try_from(now).unwrap_or(u64::MAX),
            "CloudWatchMetrics": [{
                "Namespace": self.namespace,
                "Dimensions": [["Function", "Operation"]],
                "Metrics": definitions,
            }],
        });
        line.insert("_aws".to_owned(), metadata);
        Value::Object(line).to_string()
    }
}

impl Observer for Emf {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        self.with_metrics(event.operation, |metrics| metrics.add(event));
    }

    fn on_end(&self, event: &EndEvent<'_>) {
        if event.operations > 0 || event.store_calls > 0 {
            self.with_metrics(event.operation, |metrics| metrics.store_calls += u64::from(event.store_calls));
        }
        if !event.is_nested {
            self.flush();
        }
    }
}

impl fmt::Debug for Emf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emf")
            .field("namespace", &self.namespace)
            .field("function", &self.function)
            .finish_non_exhaustive()
    }
}

/// The metrics of one operation.
#[derive(Debug, Default)]
struct Metrics {
    operations: u64,
    duplicates: u64,
    takeovers: u64,
    store_errors: u64,
    store_calls: u64,
    outcomes: BTreeMap<&'static str, u64>,
    times: [(&'static str, Vec<f64>); 4],
}

const TIMES: [&str; 4] = ["ClaimTime", "HandlerTime", "SettleTime", "LeaseRemaining"];

impl Metrics {
    fn add(&mut self, event: &OperationEvent<'_>) {
        self.operations += 1;
        self.duplicates += u64::from(event.is_duplicate());
        self.takeovers += u64::from(event.took_over);
        self.store_errors += u64::from(event.outcome.is_err_and(ErrorKind::is_of_store));
        *self.outcomes.entry(event.outcome.map_or("Errors", name)).or_default() += 1;
        let times = [event.claim_time, event.handler_time, event.settle_time, event.lease_remaining];
        for ((metric, values), (name, time)) in self.times.iter_mut().zip(TIMES.into_iter().zip(times)) {
            *metric = name;
            values.extend(time.as_ref().map(milliseconds));
        }
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = vec![("Operations", self.operations), ("DuplicatesSaved", self.duplicates)];
        counts.extend(self.outcomes.iter().map(|(name, count)| (*name, *count)));
        let others =
            [("Takeovers", self.takeovers), ("StoreErrors", self.store_errors), ("StoreCalls", self.store_calls)];
        counts.extend(others.into_iter().filter(|(_, count)| *count > 0));
        counts
    }

    fn has_values(&self) -> bool {
        self.times.iter().any(|(_, values)| !values.is_empty())
    }

    /// The values that the next line has room for.
    fn next_values(&mut self) -> Vec<(&'static str, Vec<f64>)> {
        let times = self.times.iter_mut().filter(|(_, values)| !values.is_empty());
        times.map(|(name, values)| (*name, values.drain(..values.len().min(MAX_VALUES)).collect())).collect()
    }
}

/// To the microsecond.
fn milliseconds(time: &Duration) -> f64 {
    u32::try_from(time.as_micros()).map_or(f64::from(u32::MAX), f64::from) / 1_000.0
}

/// The name of the metric that counts an outcome.
const fn name(outcome: OutcomeKind) -> &'static str {
    match outcome {
        OutcomeKind::Executed => "Executed",
        OutcomeKind::TookOver => "TookOver",
        OutcomeKind::Recovered => "Recovered",
        OutcomeKind::Unrecorded => "Unrecorded",
        OutcomeKind::Replayed => "Replayed",
        OutcomeKind::ReplayedOtherVersion => "ReplayedOtherVersion",
        OutcomeKind::ReplayedWithoutResult => "ReplayedWithoutResult",
        OutcomeKind::ReplayedFailure => "ReplayedFailure",
        OutcomeKind::Failed(Verdict::Transient) => "FailedTransient",
        OutcomeKind::Failed(Verdict::Permanent) => "FailedPermanent",
        OutcomeKind::Failed(Verdict::Unknown) => "FailedUnknown",
        OutcomeKind::Failed(Verdict::Superseded) | OutcomeKind::Superseded => "Superseded",
        OutcomeKind::Interrupted(Interruption::Panicked) => "Panicked",
        OutcomeKind::Interrupted(Interruption::Cancelled) => "Cancelled",
        OutcomeKind::InProgress => "InProgress",
        OutcomeKind::Mismatch => "Mismatch",
        OutcomeKind::Abandoned => "Abandoned",
        OutcomeKind::LeaseLost => "LeaseLost",
        OutcomeKind::NotStarted => "NotStarted",
        OutcomeKind::Skipped => "Skipped",
        OutcomeKind::Ignored => "Ignored",
    }
}
