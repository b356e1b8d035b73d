//! A store, and a handler that does what its payloads say.

use std::{
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use lambda_once::{
    Classify, Error, ErrorKind, Failure, Idempotency, MemoryStore, Store,
    clock::{Clock, Timestamp},
    idempotency::Builder,
    record::{Record, Status},
    store::{
        BoxFuture, ResultData,
        fault::{Call, FaultStore},
    },
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tower_service::Service;

use crate::sources::clock::TokioClock;

/// The answer that says that nothing failed.
pub(crate) const ALL_DONE: &str = r#"{"batchItemFailures":[]}"#;

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// What the handler is told to do.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Job {
    pub(crate) name: String,
    act: String,
    ms: u64,
}

/// A payload: work for `ms`, then do `act`.
pub(crate) fn job(name: &str, act: &str, ms: u64) -> Value {
    json!({ "name": name, "act": act, "ms": ms })
}

/// A payload whose handler succeeds at once.
pub(crate) fn good(name: &str) -> Value {
    job(name, "succeed", 0)
}

/// What the handler did.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) began: Timestamp,
    /// When it returned, panicked or was dropped.
    pub(crate) ended: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub(crate) struct Journal {
    clock: TokioClock,
    runs: Arc<Mutex<Vec<Run>>>,
}

/// A run under way; its end is noted however it ends.
struct Entry(Journal, usize);

impl Drop for Entry {
    fn drop(&mut self) {
        self.0.runs.lock().unwrap()[self.1].ended = Some(self.0.clock.now());
    }
}

impl Journal {
    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// What was started, in that order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.name).collect()
    }

    /// Something that takes no time was run.
    pub(crate) fn note(&self, name: impl AsRef<str>) {
        self.begin(name.as_ref());
    }

    fn begin(&self, name: &str) -> Entry {
        let mut runs = self.runs.lock().unwrap();
        runs.push(Run { name: name.to_owned(), began: self.clock.now(), ended: None });
        Entry(self.clone(), runs.len() - 1)
    }

    /// The handler.
    pub(crate) async fn perform(self, job: Job) -> Result<String, Failure> {
        let _entry = self.begin(&job.name);
        let is_first = self.names().iter().filter(|name| **name == job.name).count() == 1;
        if job.ms > 0 {
            tokio::time::sleep(millis(job.ms)).await;
        }
        let closed = || Err(std::io::Error::other("the shop is closed"));
        match job.act.as_str() {
            "transient once" | "hang once" if !is_first => {}
            "succeed" => {}
            "transient" | "transient once" => closed()?,
            "permanent" => closed().permanent()?,
            "unknown" => closed().unknown()?,
            "panic" => std::panic::resume_unwind(Box::new("the shop is on fire")),
            "hang" | "hang once" => std::future::pending().await,
            other => panic!("no such act: {other}"),
        }
        Ok(job.name)
    }
}

pub(crate) struct World {
    pub(crate) clock: TokioClock,
    pub(crate) memory: MemoryStore,
    pub(crate) store: FaultStore<MemoryStore>,
    pub(crate) once: Idempotency,
    pub(crate) journal: Journal,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = TokioClock::new();
        let memory = MemoryStore::with_clock(clock.clone());
        let store = FaultStore::new(memory.clone(), 7);
        let builder =
            Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").named("tests").disabled(false);
        let once = settings(builder).build().unwrap();
        let journal = Journal { clock: clock.clone(), runs: Arc::default() };
        Self { clock, memory, store, once, journal }
    }

    /// The handler of jobs.
    pub(crate) fn handler(
        &self,
    ) -> impl Fn(Job) -> BoxFuture<'static, Result<String, Failure>> + Clone + Send + Sync + use<> {
        let journal = self.journal.clone();
        move |job: Job| Box::pin(journal.clone().perform(job))
    }

    /// One invocation that has this much time left, from the bytes that Lambda sends to those that it gets.
    pub(crate) async fn invoke<S, E>(&self, service: &S, event: &impl Display, left: Duration) -> Result<String, Error>
    where
        S: Service<LambdaEvent<E>, Error = Error> + Clone,
        S::Response: Serialize,
        E: DeserializeOwned,
    {
        let event = parse(&event.to_string()).unwrap();
        let mut context = Context::default();
        context.deadline = self.clock.now().after(left).as_millis();
        let answer = service.clone().call(LambdaEvent::new(event, context)).await?;
        Ok(serde_json::to_string(&answer).unwrap())
    }

    /// One invocation with a minute left that does not fail.
    pub(crate) async fn deliver<S, E>(&self, service: &S, event: &impl Display) -> String
    where
        S: Service<LambdaEvent<E>, Error = Error> + Clone,
        S::Response: Serialize,
        E: DeserializeOwned,
    {
        self.invoke(service, event, seconds(60)).await.unwrap()
    }

    /// One invocation with a minute left that fails: its error.
    pub(crate) async fn fail<S, E>(&self, service: &S, event: &impl Display) -> Error
    where
        S: Service<LambdaEvent<E>, Error = Error> + Clone,
        S::Response: Serialize,
        E: DeserializeOwned,
    {
        self.invoke(service, event, seconds(60)).await.unwrap_err()
    }

    /// Two invocations, the first of which is cut off and leaves a claim behind: the second one waits until that is over.
    pub(crate) async fn deliver_after_a_cut_off<S, E>(&self, service: &S, event: &impl Display)
    where
        S: Service<LambdaEvent<E>, Error = Error> + Clone,
        S::Response: Serialize,
        E: DeserializeOwned,
    {
        let began = tokio::time::Instant::now();
        assert!(self.invoke(service, event, seconds(10)).await.is_err());
        assert_eq!(self.deliver(service, event).await, "null");
        // The lease ends a second after the deadline, and the margin is a second.
        assert!(began.elapsed() >= seconds(12) && began.elapsed() < seconds(13), "{:?}", began.elapsed());
    }

    /// The message of an event that is refused: nothing of it was claimed, and nothing ran.
    pub(crate) async fn refuse<S, E>(&self, service: &S, event: &impl Display) -> String
    where
        S: Service<LambdaEvent<E>, Error = Error> + Clone,
        S::Response: Serialize,
        E: DeserializeOwned,
    {
        let error = self.fail(service, event).await;
        assert_eq!(error.kind(), ErrorKind::Event, "{error}");
        assert!(error.redelivery_helps());
        assert!(self.store.calls().is_empty() && self.journal.names().is_empty());
        error.to_string()
    }

    pub(crate) async fn record<K: Serialize + ?Sized>(&self, source: &str, key: &K) -> Option<Record> {
        let hash = self.once.key_hash(source, key).unwrap();
        self.memory.read(&[hash], ResultData::Include).await.pop().unwrap().unwrap()
    }

    pub(crate) async fn status<K: Serialize + ?Sized>(&self, source: &str, key: &K) -> Option<Status> {
        self.record(source, key).await.map(|record| record.status)
    }

    /// How many requests each call of this kind had.
    pub(crate) fn calls(&self, kind: Call) -> Vec<usize> {
        self.store.calls().into_iter().filter(|(call, _)| *call == kind).map(|(_, requests)| requests).collect()
    }
}

/// Reads an event as `lambda_runtime` does, or says why it cannot be read.
pub(crate) fn parse<E: DeserializeOwned>(event: &str) -> Result<E, String> {
    let reader = &mut serde_json::Deserializer::from_slice(event.as_bytes());
    serde_path_to_error::deserialize(reader).map_err(|error| error.to_string())
}

/// The error of an event that cannot be read.
pub(crate) fn unreadable<E: DeserializeOwned>(event: &impl Display) -> String {
    match parse::<E>(&event.to_string()) {
        Ok(_) => panic!("it can be read: {event}"),
        Err(error) => error,
    }
}
