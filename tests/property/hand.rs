//! The user's code: a handler, a probe and a place for dead letters that do what the plan says.

use std::{fmt, sync::Arc};

use lambda_once::{
    BoxError, Failure, Probed, RecordContext,
    batch::{DeadLetter, DeadLetters, RecordInfo},
    store::BoxFuture,
};

use crate::{
    journal::{End, Entry, Handed, Journal},
    plan::{Act, Body, Letterbox, Look, Plan, Record, State},
    plants::Plant,
    watch::millis,
};

/// What a body is decoded to: the plan knows the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job;

/// Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Hand {
    pub(crate) plan: Arc<Plan>,
    pub(crate) journal: Journal,
    pub(crate) plant: Option<Plant>,
}

/// Where the record is in its event, and where in the plan.
fn places(info: &RecordInfo) -> (usize, usize) {
    let (place, at) = info.attribute("Place").unwrap().split_once(' ').unwrap();
    (place.parse().unwrap(), at.parse().unwrap())
}

/// A panic, without its lines on standard error.
fn burn() -> ! {
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

impl Hand {
    pub(crate) fn decode(&self, body: &str) -> Result<Job, BoxError> {
        self.journal.decoded();
        if body.starts_with('{') { Ok(Job) } else { Err("no order".into()) }
    }

    fn record(&self, context: &RecordContext) -> (Record, Handed) {
        let (place, at) = places(context.record());
        let record = self.plan.records[at];
        let claim = context.claim().map(|claim| (claim.took_over(), claim.lease_until()));
        (record, Handed { place, key: record.key(), claim })
    }

    /// Whether this is the first run of its key.
    fn is_first(&self, record: &Record) -> bool {
        self.journal.counts(record.key()).0 <= 1
    }

    pub(crate) fn handle(self, context: RecordContext) -> impl Future<Output = Result<String, Failure>> + Send {
        let (record, handed) = self.record(&context);
        let entry = self.journal.begin([handed], true);
        if record.act == Act::PanicAtOnce {
            burn();
        }
        let is_detached = self.plant == Some(Plant::Detached);
        let work = async move { self.perform(&[record], &entry).await.pop().unwrap() };
        async move {
            // A task of its own goes on when what waits for it is dropped.
            if is_detached { tokio::spawn(work).await.unwrap_or_else(|_| burn()) } else { work.await }
        }
    }

    pub(crate) fn handle_all(
        self,
        contexts: Vec<RecordContext>,
    ) -> impl Future<Output = Vec<Result<String, Failure>>> + Send {
        let (records, handed): (Vec<_>, Vec<_>) = contexts.iter().map(|context| self.record(context)).unzip();
        let entry = self.journal.begin(handed, true);
        if records.iter().any(|record| record.act == Act::PanicAtOnce) {
            burn();
        }
        async move { self.perform(&records, &entry).await }
    }

    async fn perform(&self, records: &[Record], entry: &Entry) -> Vec<Result<String, Failure>> {
        let is_any = |act| records.iter().any(|record: &Record| record.act == act);
        let ms = records.iter().map(|record| record.ms).max().unwrap_or(0);
        if is_any(Act::Block) {
            self.journal.blocked();
            self.journal.watch.clock.jump(millis(ms));
        } else if ms > 0 {
            tokio::time::sleep(millis(ms)).await;
        }
        if is_any(Act::Hang) {
            std::future::pending::<()>().await;
        }
        let ends = records.iter().map(|record| match record.act {
            Act::TransientOnce if !self.is_first(record) => End::Succeeded,
            Act::Succeed | Act::Block => End::Succeeded,
            Act::Transient | Act::TransientOnce => End::Transient,
            Act::Permanent => End::Permanent,
            Act::Unknown | Act::Panic | Act::PanicAtOnce | Act::Hang => End::Unknown,
        });
        let ends: Vec<End> = ends.collect();
        for (nth, end) in ends.iter().enumerate() {
            if matches!(end, End::Succeeded | End::Unknown) {
                entry.effect(nth);
            }
        }
        if is_any(Act::Panic) {
            burn();
        }
        let verdict = |(nth, end)| {
            entry.end(nth, end);
            if end == End::Succeeded { Ok("done".to_owned()) } else { Err(failure(end)) }
        };
        ends.into_iter().enumerate().map(verdict).collect()
    }

    /// Whether the key took effect before: in an earlier run here, or in one that was before the first delivery.
    fn took_effect(&self, key: usize) -> bool {
        let state = self.plan.kept(key).map(|kept| kept.state);
        state == Some(State::Lapsed(true)) || self.journal.counts(Some(key)).1 > 0
    }

    pub(crate) async fn probe(self, context: RecordContext) -> Result<Probed<String>, Failure> {
        let (record, handed) = self.record(&context);
        let Body::Order { key, .. } = record.body else { panic!("what has no key has no claim that took over") };
        let entry = self.journal.begin([handed], false);
        match record.probe {
            Look::Fails => {
                entry.end(0, End::Transient);
                Err(failure(End::Permanent))
            }
            Look::Panics => burn(),
            Look::Hangs => std::future::pending().await,
            Look::Truth if self.took_effect(key) => {
                entry.end(0, End::Recovered);
                Ok(Probed::Done("done".to_owned()))
            }
            Look::Truth => {
                entry.end(0, End::NotDone);
                Ok(Probed::NotDone)
            }
        }
    }
}

/// Where dead letters go.
pub(crate) struct Letters {
    pub(crate) letterbox: Letterbox,
    pub(crate) journal: Journal,
}

impl fmt::Debug for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Letters")
    }
}

impl DeadLetters for Letters {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), BoxError>> {
        let number = self.journal.letter(places(letter.record).0);
        Box::pin(async move {
            match self.letterbox {
                Letterbox::Takes => {}
                Letterbox::TakesAfter(ms) => tokio::time::sleep(millis(ms)).await,
                Letterbox::Fails => return Err("the letterbox is full".into()),
                Letterbox::Panics => burn(),
                Letterbox::Hangs => std::future::pending().await,
            }
            self.journal.sent(number);
            Ok(())
        })
    }
}
