//! The process that is killed, which finds its work in an environment variable.

use std::env;

use lambda_once::{OutcomeKind, clock::Timestamp, store::dynamodb::Calls};
use serde::{Deserialize, Serialize};

use super::delivery::Delivery;
use crate::support::{
    clock::TokioClock,
    process::Process,
    stores::{Backend, Records},
};

const ORDER: &str = "LAMBDA_ONCE_TEST_DELIVERY";
const TEST: &str = "crashes::the_process_of_these_tests";
/// Begins a line with an outcome.
pub(super) const OUTCOME: &str = "outcome: ";

const BACKENDS: [Backend; 4] =
    [Backend::DynamoDb(Calls::Single), Backend::DynamoDb(Calls::Batched), Backend::Redis, Backend::Postgres];

/// Everything that the process has to know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    /// The place in [`BACKENDS`].
    backend: usize,
    records: String,
    url: String,
    /// The time at the start, in milliseconds.
    now: u64,
    delivery: Delivery,
}

/// Returns the work of this process, if it is a worker.
pub(super) fn given() -> Option<Order> {
    let text = env::var(ORDER).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

impl Order {
    pub(super) async fn perform(self) -> Vec<OutcomeKind> {
        let Self { backend, records, url, now, delivery } = self;
        let clock = TokioClock::at(Timestamp::from_millis(now));
        let records = Records::of_another_process_with(BACKENDS[backend], records, clock.clone());
        delivery.perform(&records, &url, clock).await
    }
}

/// Starts the worker. Its clock starts at `now`.
pub(super) fn start(backend: Backend, records: &str, url: &str, now: Timestamp, delivery: &Delivery) -> Process {
    let backend = BACKENDS.iter().position(|one| *one == backend).expect("a store with a proxy");
    let delivery = delivery.clone();
    let order = Order { backend, records: records.into(), url: url.into(), now: now.as_millis(), delivery };
    Process::start(TEST, &[(ORDER, &serde_json::to_string(&order).unwrap())])
}

/// Kills the worker when this happens, or else returns its outcomes.
pub(super) async fn killed_when(mut worker: Process, time: impl Future) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    let ended = async {
        while let Some(line) = worker.line().await {
            lines.push(line);
        }
    };
    tokio::select! {
        _ = time => {
            worker.kill();
            None
        }
        () = ended => {
            assert!(worker.succeeds(), "{lines:?}");
            Some(lines.iter().filter_map(|line| line.strip_prefix(OUTCOME)).map(str::to_owned).collect())
        }
    }
}
