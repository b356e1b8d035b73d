//! A slow store that records its requests.

use std::time::Duration;

use lambda_once::{
    BoxFuture, Error, MemoryStore, Store,
    record::{KeyHash, Record},
    store::{
        Answers, ClaimRequest, Claimed, Limits, RecordFormat, ResultData, SettleRequest, Settled, Settlement, StoreId,
    },
};

use super::journal::{Event, Journal};

/// The latency of the store's responses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    pub(crate) claim: Duration,
    pub(crate) settle: Duration,
    pub(crate) read: Duration,
    /// The time that a settle takes to reach the store.
    pub(crate) settle_arrives: Duration,
}

/// The store. Over a network, the first poll of a call sends its request, as over an open connection, and a separate
/// task applies it, so it does not arrive without a turn of the runtime. The response takes as long as the latency.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    inner: MemoryStore,
    journal: Journal,
    batch: usize,
    format: RecordFormat,
    /// The latency, or `None` without a network, when a request is applied and completed in the first poll of its call.
    latency: Option<Latency>,
}

impl Recorder {
    /// Creates a store whose maximum number of requests per call is `batch`.
    pub(super) fn new(inner: MemoryStore, journal: Journal, batch: usize, latency: Option<Latency>) -> Self {
        Self { inner, journal, batch, format: RecordFormat::Native, latency }
    }

    pub(super) fn with_format(self, format: RecordFormat) -> Self {
        Self { format, ..self }
    }

    /// Applies the request, unless the execution environment is dead.
    async fn send<A, F>(&self, latency: impl FnOnce(Latency) -> Duration, apply: F) -> A
    where
        A: Send + 'static,
        F: Future<Output = A> + Send + 'static,
    {
        let Some(times) = self.latency else { return apply.await };
        let answer = if self.journal.is_dead() { None } else { tokio::spawn(apply).await.ok() };
        if answer.is_none() || self.journal.is_dead() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(latency(times)).await;
        answer.unwrap()
    }
}

impl Store for Recorder {
    fn claim<'a>(&'a self, requests: &'a [ClaimRequest]) -> BoxFuture<'a, Answers<Claimed>> {
        let (inner, journal, requests) = (self.inner.clone(), self.journal.clone(), requests.to_vec());
        Box::pin(async move {
            self.journal.note(Event::ClaimsSent(requests.len()));
            requests.iter().for_each(|request| self.journal.note(Event::Claiming(request.key)));
            let applied = async move {
                let answers = inner.claim(&requests).await;
                for (request, answer) in requests.iter().zip(&answers) {
                    if let Ok(Claimed::Granted(_)) = answer {
                        journal.note(Event::Granted(request.key));
                    }
                }
                answers
            };
            self.send(|times| times.claim, applied).await
        })
    }

    fn settle<'a>(&'a self, requests: &'a [SettleRequest]) -> BoxFuture<'a, Answers<Settled>> {
        let (inner, journal, requests) = (self.inner.clone(), self.journal.clone(), requests.to_vec());
        let arrives = self.latency.unwrap_or_default().settle_arrives;
        Box::pin(self.send(|times| times.settle, async move {
            if !arrives.is_zero() {
                tokio::time::sleep(arrives).await;
            }
            journal.note(Event::SettlesArrived);
            let answers = inner.settle(&requests).await;
            for (request, answer) in requests.iter().zip(&answers) {
                match request.settlement {
                    Settlement::Record { .. } => {
                        if let Ok(Settled::Done { .. }) = answer {
                            journal.note(Event::Recorded(request.key));
                        }
                    }
                    Settlement::Release | Settlement::HandBack => journal.note(Event::Released(request.key)),
                    Settlement::Renew { .. } => {}
                }
            }
            answers
        }))
    }

    fn read<'a>(&'a self, keys: &'a [KeyHash], result_data: ResultData) -> BoxFuture<'a, Answers<Option<Record>>> {
        let (inner, journal, keys) = (self.inner.clone(), self.journal.clone(), keys.to_vec());
        Box::pin(async move {
            let answer = self.send(|times| times.read, async move {
                journal.note(Event::ReadArrived(keys.len()));
                inner.read(&keys, result_data).await
            });
            let answer = answer.await;
            self.journal.note(Event::ReadAnswered);
            answer
        })
    }

    fn id(&self) -> StoreId {
        self.inner.id()
    }

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: usize::MAX, batch: self.batch, orders: true }
    }

    fn format(&self) -> RecordFormat {
        self.format
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.inner.warm_up()
    }
}
