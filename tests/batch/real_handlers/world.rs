//! A queue, a store that takes time, and a handler that may block its thread.

use std::time::Duration;

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use lambda_once::{
    Failure, Idempotency, Key, MemoryStore, RecordContext, Store,
    batch::{Handler, Processed, RecordReport, sqs::SqsService},
    clock::Clock,
    idempotency::Builder,
    record::{KeyHash, Record},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::Deserialize;
use serde_json::Value;

pub(crate) use crate::real_handlers::clock::{FUTURE as START, block};
use crate::real_handlers::{
    clock::TokioClock,
    recorder::{Event, Events, Latency, Recorder},
};
use crate::sqs::world::work;
pub(crate) use crate::sqs::world::{batch, fifo, ids, millis, orders, seconds};

/// What the handler is told to do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) order_id: String,
    pub(crate) act: String,
    pub(crate) ms: u64,
}

async fn perform(events: Events, block: fn(Duration), job: Job, key: KeyHash) -> Result<String, Failure> {
    if events.is_dead() {
        std::future::pending::<()>().await;
    }
    events.note(Event::Began(key));
    match job.act.as_str() {
        "succeed" => {}
        "sleep" => tokio::time::sleep(millis(job.ms)).await,
        "block" => {
            block(millis(job.ms));
            events.note(Event::Blocked(key));
            events.middle_of_a_run();
            if events.is_dead() {
                std::future::pending::<()>().await;
            }
        }
        "sleep, then block" => {
            tokio::time::sleep(millis(50)).await;
            block(millis(job.ms));
            events.note(Event::Blocked(key));
        }
        other => panic!("no such act: {other}"),
    }
    events.note(Event::Returned(key));
    Ok(job.order_id)
}

pub(crate) struct World {
    pub(crate) clock: TokioClock,
    pub(crate) memory: MemoryStore,
    pub(crate) events: Events,
    pub(crate) once: Idempotency,
    block: fn(Duration),
}

impl World {
    /// On a store that answers at once, 25 requests in a call.
    pub(crate) fn new() -> Self {
        Self::with(Latency::default(), |builder| builder)
    }

    pub(crate) fn with(latency: Latency, settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = TokioClock::new();
        let memory = MemoryStore::with_clock(clock.clone());
        let events = Events::new(clock.clone());
        let store = Recorder::new(memory.clone(), events.clone(), 25, latency);
        let builder = Idempotency::builder(store).clock(clock.clone()).scope("tests").named("real").disabled(false);
        Self { clock, memory, events, once: settings(builder).build().unwrap(), block }
    }

    /// The same in real time: handlers put their thread to sleep.
    pub(crate) fn in_real_time(self) -> Self {
        Self { block: std::thread::sleep, ..self }
    }

    /// The service that does what the messages say.
    pub(crate) fn service(
        &self,
    ) -> SqsService<impl Handler<Job, (Job, RecordContext), Output = String> + use<>, Job, (Job, RecordContext)> {
        let (events, block) = (self.events.clone(), self.block);
        self.once.sqs(Key::pointer("/order_id"), move |job: Job, context: RecordContext| {
            perform(events.clone(), block, job, context.claim().unwrap().key())
        })
    }

    /// Delivers an event, with this much time left.
    pub(crate) async fn process<H, T, Args>(
        &self,
        service: &SqsService<H, T, Args>,
        event: SqsEvent,
        left: Duration,
    ) -> Processed<SqsBatchResponse>
    where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        service.process(LambdaEvent::new(event, self.left(left))).await
    }

    /// Delivers an event, with a minute left, to a sandbox that dies in the middle of this run. Another takes its place, when
    /// the claims that stand have ended.
    pub(crate) async fn process_and_die<H, T, Args>(
        &self,
        service: &SqsService<H, T, Args>,
        event: SqsEvent,
        run: usize,
    ) where
        H: Handler<T, Args>,
        T: Send + 'static,
        Args: 'static,
    {
        let lapsed = START.after(millis(62_001));
        self.events.die_in(run);
        tokio::select! {
            biased;
            () = self.events.died() => {}
            processed = self.process(service, event, seconds(60)) => panic!("it answered: {processed:?}"),
        }
        self.events.revive();
        // The minute, the second after it, the margin, and the millisecond after that.
        tokio::time::advance(lapsed.since(self.clock.now())).await;
    }

    /// The context of an invocation that has this much time left.
    pub(crate) fn left(&self, left: Duration) -> Context {
        let mut context = Context::default();
        context.deadline = self.clock.now().after(left).as_millis();
        context
    }

    pub(crate) async fn record_of(&self, report: &RecordReport) -> Option<Record> {
        self.memory.read(&[report.key.unwrap()], lambda_once::store::ResultData::Include).await.pop().unwrap().unwrap()
    }
}

/// The ids that the answer names.
pub(crate) fn reported(processed: &Processed<SqsBatchResponse>) -> Vec<String> {
    let response = processed.response.as_ref().unwrap();
    response.batch_item_failures.iter().map(|failure| failure.item_identifier.clone()).collect()
}

/// A message body for each, with keys of their own.
pub(crate) fn jobs(acts: &[(&str, u64)]) -> Vec<Value> {
    acts.iter().enumerate().map(|(i, (act, ms))| work(&format!("order-{i}"), act, *ms)).collect()
}
