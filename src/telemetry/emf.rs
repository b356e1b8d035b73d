//! Metrics in CloudWatch's embedded metric format, as JSON lines on standard output.

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

/// The maximum number of values of a metric in one line.
const MAX_VALUES: usize = 100;

/// The maximum length of a dimension's value.
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html>
const MAX_DIMENSION: usize = 1024;

/// The maximum length of a namespace.
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricData.html>
const MAX_NAMESPACE: usize = 255;

/// An [`Observer`] that writes metrics in CloudWatch's [embedded metric
/// format](https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
/// It writes one line for each invocation and operation, or more if a metric has over 100 values.
///
/// ```
/// use lambda_once::{Idempotency, MemoryStore, telemetry::Emf};
///
/// # fn main() -> Result<(), lambda_once::Error> {
/// let once = Idempotency::builder(MemoryStore::new()).observer(Emf::new("Payments")).build()?;
/// # drop(once); Ok(()) }
/// ```
///
/// The dimensions are `Function`, which is `AWS_LAMBDA_FUNCTION_NAME` (default: `local`), and `Operation`, the
/// operation's name in logs. CloudWatch drops a line whose dimensions are not 1 to 1,024 printable ASCII characters, so
/// longer values are cut, other characters become `_`, and a value without any is `_`. A namespace is treated
/// alike: 1 to 255 letters, digits, spaces and `.-_/#:`, not beginning with a colon.
///
/// | metric | unit | description |
/// |---|---|---|
/// | `Operations` | count | observed operations, including duplicates |
/// | `DuplicatesSaved` | count | operations that were recognized as done before |
/// | `Executed`, `TookOver`, `Replayed`, … | count | outcomes: the names of [`OutcomeKind`], with `FailedTransient`, `FailedPermanent` and `FailedUnknown` for failures, `Panicked` and `Cancelled` for interruptions |
/// | `Takeovers` | count | claims that took over another claim, regardless of their outcome |
/// | `Errors` | count | operations without an outcome because of an error, such as a store error or a missing key |
/// | `StoreErrors` | count | the part of `Errors` for which the store refused, failed or did not respond. Set an alarm on any |
/// | `ClaimTime`, `HandlerTime`, `SettleTime` | milliseconds | one value per operation that has it |
/// | `LeaseRemaining` | milliseconds | the time left of the lease when the handler ended |
/// | `StoreCalls` | count | calls to the store |
///
/// `Operations` and `DuplicatesSaved` are in the first line of each invocation and operation, so that alarms have data.
/// Other metrics are written only if they have values. A line contains no payload and no key.
///
/// A line is written at the end of a batch, a request, an invocation or a single operation. Operations within a handler
/// of another service of this engine are written with that service.
pub struct Emf {
    namespace: Cow<'static, str>,
    function: Cow<'static, str>,
    write: Box<dyn Fn(&str) + Send + Sync>,
    /// The unwritten metrics, by operation.
    metrics: Mutex<BTreeMap<String, Metrics>>,
}

impl Emf {
    /// Creates metrics in this namespace on standard output, for the function named by `AWS_LAMBDA_FUNCTION_NAME`.
    pub fn new(namespace: impl Into<Cow<'static, str>>) -> Self {
        let function = std::env::var("AWS_LAMBDA_FUNCTION_NAME").ok().filter(|name| !name.is_empty());
        Self {
            namespace: namespace.into(),
            function: function.map_or(Cow::Borrowed("local"), Cow::Owned),
            write: Box::new(|line| println!("{line}")),
            metrics: Mutex::default(),
        }
    }

    /// Sets the value of the dimension `Function`.
    #[must_use]
    pub fn function(mut self, function: impl Into<Cow<'static, str>>) -> Self {
        self.function = function.into();
        self
    }

    /// Sets a function that writes each line, without a line break, instead of standard output. For agents and tests.
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
        let dimension = |value| accepted(value, MAX_DIMENSION, |character| matches!(character, ' '..='~'));
        line.insert("Function".to_owned(), dimension(&self.function).into());
        line.insert("Operation".to_owned(), dimension(operation).into());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let metadata = json!({
            "Timestamp": u64::try_from(now).unwrap_or(u64::MAX),
            "CloudWatchMetrics": [{
                "Namespace": namespace(&self.namespace),
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

    /// Returns the values that fit in the next line.
    fn next_values(&mut self) -> Vec<(&'static str, Vec<f64>)> {
        let times = self.times.iter_mut().filter(|(_, values)| !values.is_empty());
        times.map(|(name, values)| (*name, values.drain(..values.len().min(MAX_VALUES)).collect())).collect()
    }
}

/// Returns a name that CloudWatch accepts, which has between 1 and `most` accepted characters, and not only spaces.
fn accepted(name: &str, most: usize, is_accepted: impl Fn(char) -> bool) -> String {
    let characters = name.chars().take(most);
    let accepted: String = characters.map(|character| if is_accepted(character) { character } else { '_' }).collect();
    if accepted.trim().is_empty() { "_".to_owned() } else { accepted }
}

/// Returns a namespace that CloudWatch accepts.
fn namespace(name: &str) -> String {
    let namespace = accepted(name, MAX_NAMESPACE, is_of_namespace);
    namespace.strip_prefix(':').map(|rest| format!("_{rest}")).unwrap_or(namespace)
}

const fn is_of_namespace(character: char) -> bool {
    matches!(character, 'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' | '/' | '#' | ':' | ' ')
}

/// Returns milliseconds with a resolution of a microsecond.
fn milliseconds(time: &Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Returns the name of the metric that counts an outcome.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_reported_in_full_and_a_short_one_by_the_microsecond() {
        for (time, reported) in [
            (Duration::from_secs(5_400), 5_400_000.0),
            (Duration::from_nanos(1_234_567_800), 1_234.568),
            (Duration::from_micros(1), 0.001),
            (Duration::ZERO, 0.0),
        ] {
            assert_eq!(milliseconds(&time), reported, "{time:?}");
        }
    }
}
