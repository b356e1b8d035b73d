//! The user's code: a decoder, handler, probe, dead-letter destination and redelivery hook that follow the plan.

use std::{collections::HashSet, fmt, future::poll_fn, pin::pin, sync::Arc};

use lambda_once::{
    BoxError, BoxFuture, Classify, Failure, ProbeResult, RecordContext,
    batch::{DeadLetter, DeadLetters, RecordInfo, RecordReport, Redelivery},
    clock::{Clock, Timestamp},
};

use crate::{
    journal::{End, Journal, OpenRun, Started},
    plan::{Behaviour, Body, DeadLetterBehaviour, Plan, ProbeBehaviour, Record, RedeliveryBehaviour, StoredState},
    planted_bugs::PlantedBug,
    timeline::{block_thread, millis},
};

/// The type of a decoded body. The plan contains everything else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order;

/// The handler of a plan. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct TestHandler {
    pub(crate) plan: Arc<Plan>,
    pub(crate) journal: Journal,
    pub(crate) bug: Option<PlantedBug>,
}

/// Returns the index of the record in its event, and in the plan.
fn places(info: &RecordInfo) -> (usize, usize) {
    let (place, at) = info.attribute("Place").unwrap().split_once(' ').unwrap();
    (place.parse().unwrap(), at.parse().unwrap())
}

/// Panics without output on standard error.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("the shop is on fire"))
}

fn failure(end: End) -> Failure {
    let text = "the shop is closed";
    match end {
        End::Permanent => Failure::permanent(text),
        End::Unknown => Failure::unknown(text),
        _ => Failure::transient(text),
    }
}

impl TestHandler {
    /// Returns whether a body is ignored. Other bodies are counted by the decoder.
    pub(crate) fn is_no_work(&self, body: &[u8]) -> bool {
        if !body.starts_with(b"ping") || self.bug == Some(PlantedBug::PingsAreWork) {
            return false;
        }
        self.journal.decoded();
        if body != b"ping" {
            panic_quietly();
        }
        true
    }

    pub(crate) fn decode(&self, body: &str) -> Result<Order, BoxError> {
        self.journal.decoded();
        match body.as_bytes().first() {
            Some(b'{') => Ok(Order),
            Some(b'f') if self.bug == Some(PlantedBug::DecoderMarkIgnored) => Err("not now".into()),
            Some(b'f') => Ok(Err(std::io::Error::other("not now")).unknown()?),
            Some(b'p') if body == "panic" && self.bug != Some(PlantedBug::DecoderPanicIgnored) => panic_quietly(),
            _ => Err("no order".into()),
        }
    }

    fn record(&self, context: &RecordContext) -> (Record, Started) {
        let (place, at) = places(context.record());
        let record = self.plan.records[at];
        let claim = context.claim().map(|claim| (claim.took_over(), claim.lease_until()));
        (record, Started { place, key: record.key(), claim })
    }

    /// Returns whether this is the first run of its key.
    fn is_first(&self, record: &Record) -> bool {
        self.journal.counts(record.key()).0 <= 1
    }

    pub(crate) fn handle(self, context: RecordContext) -> impl Future<Output = Result<String, Failure>> + Send {
        let (record, started) = self.record(&context);
        if self.bug == Some(PlantedBug::BeginsLate) {
            block_thread(millis(700));
        }
        let open_run = self.journal.begin([started], true);
        if record.behaviour == Behaviour::PanicAtOnce {
            panic_quietly();
        }
        let is_detached = self.bug == Some(PlantedBug::Detached);
        let work = async move { self.perform(&[record], &open_run).await.pop().unwrap() };
        async move {
            // A separate task continues when the future that waits for it is dropped.
            if is_detached { tokio::spawn(work).await.unwrap_or_else(|_| panic_quietly()) } else { work.await }
        }
    }

    pub(crate) fn handle_all(
        self,
        contexts: Vec<RecordContext>,
    ) -> impl Future<Output = Vec<Result<String, Failure>>> + Send {
        let (records, started): (Vec<_>, Vec<_>) = contexts.iter().map(|context| self.record(context)).unzip();
        let open_run = self.journal.begin(started, true);
        if records.iter().any(|record| record.behaviour == Behaviour::PanicAtOnce) {
            panic_quietly();
        }
        async move { self.perform(&records, &open_run).await }
    }

    async fn perform(&self, records: &[Record], open_run: &OpenRun) -> Vec<Result<String, Failure>> {
        self.note_polls(open_run, self.work(records, open_run)).await
    }

    /// Records the return of each poll.
    async fn note_polls<T>(&self, open_run: &OpenRun, work: impl Future<Output = T> + Send) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let began = self.journal.timeline.clock.now();
            let polled = work.as_mut().poll(context);
            open_run.polled(began);
            polled
        })
        .await
    }

    /// Returns the end of the handler for a record that it reaches.
    fn end_of(&self, record: &Record) -> End {
        match record.behaviour {
            Behaviour::TransientOnce if !self.is_first(record) => End::Succeeded,
            Behaviour::Succeed | Behaviour::Freeze => End::Succeeded,
            Behaviour::Transient | Behaviour::TransientOnce => End::Transient,
            Behaviour::Permanent => End::Permanent,
            Behaviour::Unknown | Behaviour::Panic | Behaviour::PanicAtOnce | Behaviour::Hang => End::Unknown,
        }
    }

    async fn work(&self, records: &[Record], open_run: &OpenRun) -> Vec<Result<String, Failure>> {
        let is_any = |behaviour| records.iter().any(|record: &Record| record.behaviour == behaviour);
        let blocks_ms = records.iter().map(|record| record.blocks_ms).max().unwrap_or(0);
        if blocks_ms > 0 {
            self.journal.block(millis(blocks_ms));
        }
        let ms = records.iter().map(|record| record.ms).max().unwrap_or(0);
        if is_any(Behaviour::Freeze) {
            self.journal.freeze(millis(ms));
        } else if ms > 0 {
            tokio::time::sleep(millis(ms)).await;
        }
        if is_any(Behaviour::Hang) {
            std::future::pending::<()>().await;
        }
        let mut failed = HashSet::new();
        let ends = records.iter().map(|record| {
            let lane = self.plan.lane(record);
            if lane.is_some_and(|lane| failed.contains(&lane)) {
                return End::NotReached;
            }
            let end = self.end_of(record);
            if end != End::Succeeded {
                failed.extend(lane);
            }
            end
        });
        let ends: Vec<End> = ends.collect();
        for (nth, end) in ends.iter().enumerate() {
            if matches!(end, End::Succeeded | End::Unknown) {
                open_run.effect(nth);
            }
        }
        if is_any(Behaviour::Panic) {
            panic_quietly();
        }
        let fails_all = self.bug == Some(PlantedBug::FailureSpreads) && ends.iter().any(|end| *end != End::Succeeded);
        let verdict = |(nth, end)| {
            open_run.end(nth, end);
            if end == End::Succeeded && !fails_all { Ok("done".to_owned()) } else { Err(failure(end)) }
        };
        ends.into_iter().enumerate().map(verdict).collect()
    }

    /// Returns whether the key took effect before, in a run of this case or before the first delivery.
    fn took_effect(&self, key: usize) -> bool {
        let state = self.plan.stored(key).map(|stored| stored.state);
        state == Some(StoredState::Lapsed(true)) || self.journal.counts(Some(key)).1 > 0
    }

    pub(crate) async fn probe(self, context: RecordContext) -> Result<ProbeResult<String>, Failure> {
        let (record, started) = self.record(&context);
        let Body::Order { key, .. } = record.body else { panic!("what has no key has no claim that took over") };
        let open_run = self.journal.begin([started], false);
        self.note_polls(&open_run, self.look_for_effect(&record, key, &open_run)).await
    }

    async fn look_for_effect(
        &self,
        record: &Record,
        key: usize,
        open_run: &OpenRun,
    ) -> Result<ProbeResult<String>, Failure> {
        match record.probe {
            ProbeBehaviour::Fails => {
                open_run.end(0, End::Transient);
                Err(failure(End::Permanent))
            }
            ProbeBehaviour::Panics => panic_quietly(),
            ProbeBehaviour::Hangs => std::future::pending().await,
            ProbeBehaviour::Truth if self.took_effect(key) => {
                open_run.end(0, End::Recovered);
                Ok(ProbeResult::Done("done".to_owned()))
            }
            ProbeBehaviour::Truth => {
                open_run.end(0, End::NotDone);
                Ok(ProbeResult::NotDone)
            }
        }
    }
}

/// The dead-letter destination of a plan.
pub(crate) struct TestDeadLetters {
    pub(crate) behaviour: DeadLetterBehaviour,
    pub(crate) journal: Journal,
}

impl fmt::Debug for TestDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestDeadLetters")
    }
}

impl DeadLetters for TestDeadLetters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        let number = self.journal.dead_lettered(places(letter.record).0);
        Box::pin(async move {
            match self.behaviour {
                DeadLetterBehaviour::Takes => {}
                DeadLetterBehaviour::TakesAfter(ms) => tokio::time::sleep(millis(ms)).await,
                DeadLetterBehaviour::Fails => return Err("the queue is full".into()),
                DeadLetterBehaviour::Panics => panic_quietly(),
                DeadLetterBehaviour::Hangs => std::future::pending().await,
            }
            self.journal.sent(number);
            Ok(())
        })
    }
}

/// The redelivery hook of a plan.
pub(crate) struct TestRedelivery {
    pub(crate) behaviour: RedeliveryBehaviour,
    pub(crate) journal: Journal,
    pub(crate) bug: Option<PlantedBug>,
}

impl fmt::Debug for TestRedelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestRedelivery")
    }
}

impl Redelivery for TestRedelivery {
    fn delay<'a>(&'a self, failed: &'a [RecordReport], _: Timestamp) -> BoxFuture<'a, ()> {
        let mut reports = failed.to_vec();
        if self.bug == Some(PlantedBug::HeldUntilForgotten) {
            reports.iter_mut().for_each(|report| report.held_until = None);
        }
        self.journal.redelivered(reports);
        Box::pin(async move {
            match self.behaviour {
                RedeliveryBehaviour::Returns => {}
                RedeliveryBehaviour::ReturnsAfter(ms) => tokio::time::sleep(millis(ms)).await,
                RedeliveryBehaviour::Panics => panic_quietly(),
                RedeliveryBehaviour::Hangs => std::future::pending().await,
            }
        })
    }
}
