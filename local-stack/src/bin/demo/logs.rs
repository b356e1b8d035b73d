//! The logs of the functions, one JSON object a line, and `cargo lambda watch`.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Write as _},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread, time,
};

use serde::Deserialize;
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// The number of last lines that are kept for an error message.
const TAIL: usize = 40;

/// A function's log of one delivery of one message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Logged {
    /// The outcome's name, such as `executed`.
    pub(crate) outcome: String,
    /// Whether the message was put into `batchItemFailures`.
    pub(crate) reported: bool,
}

/// A run of a handler, as the function logged it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandlerRun {
    /// `order`, `payout` or `charge`, as in the ledger.
    pub(crate) operation: String,
    /// The effect's key: an id, or the customer of a charge.
    pub(crate) key: String,
    /// The message's id and receive count, if the event is of a queue.
    pub(crate) delivery: Option<(String, u32)>,
    /// The hash of the claim's key and the attempt, if the run is protected.
    pub(crate) claim: Option<(String, u64)>,
    /// Time at which its start was logged.
    pub(crate) started: time::Instant,
    /// Time at which its end was logged, and `true` after a panic.
    pub(crate) ended: Option<(time::Instant, bool)>,
}

/// Durations of an operation's store calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// `true` if its claim took over a lapsed one.
    pub(crate) took_over: bool,
    /// Microseconds of the calls that claimed it.
    pub(crate) claim_micros: u64,
    /// Microseconds of the calls that settled it; `None` if no outcome was recorded.
    pub(crate) settle_micros: Option<u64>,
}

/// Handlers' runs in the order in which they started, and the times of each granted claim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity {
    ids: Vec<String>,
    /// The runs.
    pub(crate) runs: Vec<HandlerRun>,
    /// The times, by the key's hash and the attempt.
    pub(crate) times: HashMap<(String, u64), Times>,
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
    activity: Activity,
}

impl LogBook {
    /// An empty log, written to `path`.
    pub(crate) fn create(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            inner: Mutex::new(Inner {
                file: File::create(path)?,
                tail: VecDeque::new(),
                deliveries: HashMap::new(),
                activity: Activity::default(),
            }),
            grown: Notify::new(),
        }))
    }

    /// Reads `output` on a separate thread, until its last writer has gone.
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
        let now = time::Instant::now();
        {
            let mut inner = self.lock();
            // The file is a convenience; a full disk must not end the demo.
            let _ = writeln!(inner.file, "{line}");
            inner.deliveries.extend(delivery(line));
            inner.activity.add(line, now);
            if inner.tail.len() == TAIL {
                inner.tail.pop_front();
            }
            inner.tail.push_back(line.to_owned());
        }
        self.grown.notify_waiters();
    }

    /// Returns the log of the delivery, or `None` if it does not appear in time, because the response
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

    /// Returns the logged runs and claims as soon as every run has ended, and at `until` those logged so far.
    pub(crate) async fn activity(&self, until: Instant) -> Activity {
        let _ = timeout_at(until, async {
            loop {
                let grown = self.grown.notified();
                if self.lock().activity.is_complete() {
                    return;
                }
                grown.await;
            }
        })
        .await;
        self.lock().activity.clone()
    }

    /// The last lines, for an error message.
    pub(crate) fn tail(&self) -> String {
        Vec::from_iter(self.lock().tail.iter().cloned()).join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    fn is_complete(&self) -> bool {
        self.runs.iter().all(|run| run.ended.is_some())
    }

    /// Notes the contents of a line about a run or a claim, if any.
    fn add(&mut self, line: &str, now: time::Instant) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            return;
        };
        let fields = &line["fields"];
        let text = |name: &str| fields[name].as_str().map(str::to_owned);
        let claim = || text("claim").zip(fields["attempt"].as_u64());
        match fields["message"].as_str() {
            Some("run started") => {
                let (Some(id), Some(operation), Some(key)) = (text("run"), text("of"), text("effect")) else {
                    return;
                };
                let receive = fields["receive_count"].as_u64().and_then(|receive| receive.try_into().ok());
                let delivery = text("message_id").zip(receive);
                self.ids.push(id);
                self.runs.push(HandlerRun { operation, key, delivery, claim: claim(), started: now, ended: None });
            }
            Some("run ended") => {
                let place = text("run").and_then(|id| self.ids.iter().position(|other| *other == id));
                if let Some(run) = place.and_then(|place| self.runs.get_mut(place)) {
                    run.ended = Some((now, fields["panicked"].as_bool().unwrap_or_default()));
                }
            }
            Some("times") => {
                if let Some(claim) = claim() {
                    let times = Times {
                        took_over: fields["took_over"].as_bool().unwrap_or_default(),
                        claim_micros: fields["claim_micros"].as_u64().unwrap_or_default(),
                        settle_micros: fields["settle_micros"].as_u64(),
                    };
                    // A replay bears the attempt of the run that it replays.
                    self.times.entry(claim).or_insert(times);
                }
            }
            _ => {}
        }
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
    #[test]
    fn a_run_has_its_start_its_end_and_the_times_of_its_claim() {
        let lines = [
            r#"{"fields":{"message":"run started","run":"1","of":"order","effect":"o","message_id":"m","receive_count":2,"claim":"ab","attempt":3}}"#,
            r#"{"fields":{"message":"run started","run":"2","of":"charge","effect":"c"}}"#,
            r#"{"fields":{"message":"run ended","run":"1","panicked":true}}"#,
            r#"{"fields":{"message":"times","claim":"ab","attempt":3,"took_over":true,"claim_micros":5}}"#,
            r#"{"fields":{"message":"times","claim":"ab","attempt":3,"took_over":false,"claim_micros":1}}"#,
            "no JSON",
        ];
        let mut activity = Activity::default();
        let now = time::Instant::now();
        for line in lines {
            activity.add(line, now);
        }
        let [order, charge] = &activity.runs[..] else { panic!("{activity:?}") };
        assert_eq!(order.delivery, Some(("m".to_owned(), 2)));
        assert_eq!(order.claim, Some(("ab".to_owned(), 3)));
        assert_eq!(order.ended, Some((now, true)));
        assert_eq!((&*charge.operation, &*charge.key, charge.ended), ("charge", "c", None));
        let times = Times { took_over: true, claim_micros: 5, settle_micros: None };
        assert_eq!(activity.times[&("ab".to_owned(), 3)], times);
        assert!(!activity.is_complete());
    }
}
