//! What the functions log, one JSON object a line, and `cargo lambda watch`.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use serde::Deserialize;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// How many of the last lines are kept for an error message.
const TAIL: usize = 40;

/// What a function logged about one delivery of one message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Logged {
    /// The outcome's name, such as `executed`.
    pub(crate) outcome: String,
    /// Whether the message was put into `batchItemFailures`.
    pub(crate) reported: bool,
}

/// A log line of the functions, as far as it concerns a delivery. The default subscriber of
/// `lambda_runtime` writes no target, so the event is recognized by its fields.
#[derive(Deserialize)]
struct Line {
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message_id: String,
    receive_count: u32,
    #[serde(flatten)]
    logged: Logged,
}

/// Collects the output of the functions while they run. All of it is also written to a file.
#[derive(Debug)]
pub(crate) struct LogBook {
    inner: Mutex<Inner>,
    grown: Notify,
}

#[derive(Debug)]
struct Inner {
    file: File,
    tail: VecDeque<String>,
    deliveries: HashMap<(String, u32), Logged>,
}

impl LogBook {
    /// An empty log, written to `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            inner: Mutex::new(Inner { file: File::create(path)?, tail: VecDeque::new(), deliveries: HashMap::new() }),
            grown: Notify::new(),
        }))
    }

    /// Reads `output` on a thread of its own, until its last writer has gone.
    pub(crate) fn follow(self: &Arc<Self>, output: impl Read + Send + 'static) {
        let book = Arc::clone(self);
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                book.add(String::from_utf8_lossy(&line).trim_end());
                line.clear();
            }
        });
    }

    fn add(&self, line: &str) {
        {
            let mut inner = self.lock();
            // The file is a convenience; a full disk must not end the demo.
            let _ = writeln!(inner.file, "{line}");
            inner.deliveries.extend(delivery(line));
            if inner.tail.len() == TAIL {
                inner.tail.pop_front();
            }
            inner.tail.push_back(line.to_owned());
        }
        self.grown.notify_waiters();
    }

    /// What was logged about the delivery, or `None` if that does not appear in time: the answer
    /// to an invocation may overtake the log.
    pub(crate) async fn delivery(&self, message_id: &str, receive: u32, until: Instant) -> Option<Logged> {
        let delivery = (message_id.to_owned(), receive);
        timeout_at(until, async {
            loop {
                let grown = self.grown.notified();
                if let Some(logged) = self.lock().deliveries.get(&delivery) {
                    return logged.clone();
                }
                grown.await;
            }
        })
        .await
        .ok()
    }

    /// The last lines, for an error message.
    pub(crate) fn tail(&self) -> String {
        Vec::from_iter(self.lock().tail.iter().cloned()).join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The delivery that a line is about, if it is about one.
fn delivery(line: &str) -> Option<((String, u32), Logged)> {
    let Line { fields } = serde_json::from_str(line).ok()?;
    Some(((fields.message_id, fields.receive_count), fields.logged))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"level":"INFO","fields":{"message":"record","message_id":"m-1","receive_count":2,"outcome":"in_progress","reported":true,"key":"ab"},"span":{"name":"x"}}"#;

    #[test]
    fn the_outcome_of_a_delivery_is_read() {
        let logged = Logged { outcome: "in_progress".into(), reported: true };
        assert_eq!(delivery(EVENT), Some((("m-1".into(), 2), logged)));
    }

    #[test]
    fn other_lines_are_no_deliveries() {
        for line in [
            "",
            " INFO starting Runtime server",
            r#"{"level":"INFO","fields":{"message":"hello","message_id":"m-1"}}"#,
            r#"{"fields":{"message_id":"m-1","receive_count":"2","outcome":"executed","reported":true}}"#,
        ] {
            assert_eq!(delivery(line), None, "{line}");
        }
    }
}
