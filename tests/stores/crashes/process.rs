//! The process that is killed. It is this test binary: an environment variable makes it the worker, in the only test
//! that it runs.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use lambda_once::{OutcomeKind, clock::Timestamp, store::dynamodb::Calls};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::delivery::Delivery;
use crate::support::{
    clock::TokioClock,
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

/// A worker, which ends with the test.
pub(super) struct Process {
    child: Child,
    lines: UnboundedReceiver<String>,
}

impl Process {
    pub(super) fn start(backend: Backend, records: &str, url: &str, now: Timestamp, delivery: &Delivery) -> Self {
        let backend = BACKENDS.iter().position(|one| *one == backend).expect("a store with a proxy");
        let delivery = delivery.clone();
        let order = Order { backend, records: records.into(), url: url.into(), now: now.as_millis(), delivery };
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", TEST, "--nocapture"]).env(ORDER, serde_json::to_string(&order).unwrap());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = unbounded_channel();
        let output = BufReader::new(child.stderr.take().unwrap());
        // It ends with the process.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// Kills it when this happens, or else returns its outcomes.
    pub(super) async fn killed_when(mut self, time: impl Future) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        let ended = async {
            while let Some(line) = self.lines.recv().await {
                lines.push(line);
            }
        };
        let is_over = tokio::select! {
            _ = time => false,
            () = ended => true,
        };
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        if !is_over {
            return None;
        }
        assert!(status.success(), "{lines:?}");
        Some(lines.iter().filter_map(|line| line.strip_prefix(OUTCOME)).map(str::to_owned).collect())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
