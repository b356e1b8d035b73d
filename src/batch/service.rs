//! The service for one source: its settings, and an invocation from event to answer.

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use lambda_runtime::LambdaEvent;
use tower_service::Service;

use super::{
    DeadLetters, Decode, Handler, OnFailure, Options, Payload, PermanentFailures, Probing, RecordInfo, RecordReport,
    Redelivery, Source, TotalFailure, ignore::Ignore, observer::Observer, processor::Processor, redelivery, report,
};
use crate::{
    batch::{
        context::RecordContext,
        spans::{add_origin, batch_span},
    },
    clock::{Deadline, Timestamp},
    error::{BoxError, Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    idempotency::{
        handle::Idempotency, names::Registration, operation_settings::OperationSettings, outcome::OutcomeKind,
        probe::Probed, verdict::Failure, window::Window,
    },
    key::{place::Place, selector::Key},
    telemetry::EntryPoint,
};

/// Handles the batches of a [`Source`]. Made by [`Idempotency::batch`] and its siblings for each source; given to
/// [`lambda_runtime::run`] or `run_concurrent`.
///
/// It keeps nothing between invocations, and clones are independent.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`concurrency`](Self::concurrency) | 10 |
/// | [`permanent_failures`](Self::permanent_failures) | [`PermanentFailures::Report`] |
/// | [`dead_letters`](Self::dead_letters) | none: the queue's own |
/// | [`max_receive_count`](Self::max_receive_count) | not known |
/// | [`longest_run`](Self::longest_run) | half of the time left |
/// | [`dead_letter_abandoned`](Self::dead_letter_abandoned) | no |
/// | [`wait_up_to`](Self::wait_up_to) | 20 s |
/// | [`redelivery`](Self::redelivery) | none: as the source is set |
/// | [`expected_duration`](Self::expected_duration) | the longest run of the invocation so far |
/// | [`payload`](Self::payload) | [`Payload::Body`] |
/// | [`on_failure`](Self::on_failure) | [`OnFailure::StopGroup`] |
/// | [`total_failure`](Self::total_failure) | [`TotalFailure::Report`] |
/// | [`all_or_error`](Self::all_or_error) | off: the answer names what failed, where Lambda takes that |
/// | [`with_settings`](Self::with_settings) | as the engine's |
///
/// # Errors
///
/// The service fails as a whole, and Lambda delivers the whole batch again, if any of the following hold:
///
/// 1. The event is malformed, or a record has no id by which the answer could name it ([`ErrorKind::Event`]).
/// 2. [`checked`](Self::checked) would have failed ([`ErrorKind::Config`]).
/// 3. No record could begin: the time left is not longer than the engine's reserve, or
///    [`expected_duration`](Self::expected_duration) does not fit into what is left before it ([`ErrorKind::Config`]).
/// 4. Every record failed and [`total_failure`](Self::total_failure) says so, or any did where Lambda takes no partial answer
///    ([`ErrorKind::Batch`]).
///
/// In the first three cases nothing has been claimed.
#[must_use = "a service handles nothing until it is run"]
pub struct BatchService<S: Source, H, T, Args> {
    source: S,
    engine: Idempotency,
    registration: Registration,
    key: Key,
    handler: H,
    decode: Decode<S, T>,
    options: Options,
    args: PhantomData<fn(Args)>,
}

impl Idempotency {
    /// A service for any [`Source`]: `handler` for each record, once for each `key`. [`Source`] has an example.
    ///
    /// `decode` makes the handler's type of a record's body. Its error is permanent, unless it is marked as transient or
    /// unknown ([`Classify`](crate::Classify)): then, and after a panic, the record is reported under every policy
    /// ([`ErrorKind::Decode`]).
    ///
    /// The handler takes the decoded body, and a [`RecordContext`] if it wants one. It returns any serialisable value, which
    /// is stored, or an error, which is transient unless [classified](crate::Classify).
    pub fn batch<S, H, T, Args>(
        &self,
        source: S,
        key: Key,
        decode: impl Fn(&S::Body) -> Result<T, BoxError> + Send + Sync + 'static,
        handler: H,
    ) -> BatchService<S, H, T, Args>
    where
        S: Source,
        H: Handler<T, Args>,
        T: Send + 'static,
    {
        self.batch_of(source, key, move |_: &RecordInfo, body: &S::Body| decode(body), handler)
    }

    /// The same with a decoder that looks at the outside of a record too.
    pub(super) fn batch_of<S, H, T, Args>(
        &self,
        source: S,
        key: Key,
        decode: impl Fn(&RecordInfo, &S::Body) -> Result<T, BoxError> + Send + Sync + 'static,
        handler: H,
    ) -> BatchService<S, H, T, Args>
    where
        S: Source,
        H: Handler<T, Args>,
        T: Send + 'static,
    {
        BatchService {
            source,
            engine: self.clone(),
            registration: self.register(S::OPERATION),
            key,
            handler,
            decode: Arc::new(decode),
            options: Options::default(),
            args: PhantomData,
        }
    }
}

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// How many handlers run at once; at least one.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.options.concurrency = handlers;
        self
    }

    /// What happens to records that no retry can help.
    pub fn permanent_failures(mut self, policy: PermanentFailures) -> Self {
        self.options.permanent_failures = policy;
        self
    }

    /// Dead-letters records that no retry can help. They are acknowledged then, whatever
    /// [`permanent_failures`](Self::permanent_failures) says, and block nothing. One with another payload for a key that occurs
    /// earlier in the same batch is reported at first, and dead-lettered in its next delivery. Those with the same key and
    /// payload in the batch are acknowledged with them. The bodies of a batch are kept until its records are decided.
    pub fn dead_letters(mut self, letters: impl DeadLetters) -> Self {
        self.options.dead_letters = Some(Arc::new(letters));
        self
    }

    /// The queue's `maxReceiveCount`. A record in an order that fails, panics, is cut off or is abandoned on its last receive
    /// would take healthy ones behind it along to the dead-letter queue, since they have been received as often. With
    /// [`dead_letters`](Self::dead_letters) it is dead-lettered instead, and they run; without, a warning is logged.
    ///
    /// Effective only if the source says how often a record has been delivered, as SQS does. Streams do not.
    pub fn max_receive_count(mut self, count: u32) -> Self {
        self.options.max_receive_count = Some(count);
        self
    }

    /// How long a handler may run on the last delivery of a record that others stand behind in its order: with
    /// [`dead_letters`](Self::dead_letters) and [`max_receive_count`](Self::max_receive_count), so that one that hangs does not
    /// take them along to the dead-letter queue. It is cut off then, its claim is kept until its lease ends, the record is
    /// dead-lettered with an unknown outcome, and the others run. A handler that blocks its thread cannot be cut off.
    ///
    /// Default: half of the time left when it begins.
    pub fn longest_run(mut self, duration: Duration) -> Self {
        self.options.longest_run = Some(duration);
        self
    }

    /// Whether [`dead_letters`](Self::dead_letters) also takes records that are abandoned: an earlier run left no outcome, and
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) forbids another. Such a record may or may not have taken effect, and
    /// dead-lettering does not decide it: the operation stays abandoned in the store, and whoever reads the dead-letter queue
    /// has to find out. Otherwise it is reported, and stops a shard or a partition until its retries end. On its last receive an abandoned record in an order is dead-lettered in any case, where
    /// [`max_receive_count`](Self::max_receive_count) is known.
    ///
    /// Default: no.
    pub fn dead_letter_abandoned(mut self, dead_letter: bool) -> Self {
        self.options.dead_letter_abandoned = dead_letter;
        self
    }

    /// How long a record waits, at most, for a claim that is held elsewhere, before it is reported as in progress: in an
    /// order, and where the source [waits](Source::WAITS_FOR_LEASE). It does not wait if that lease ends too late to run it, nor
    /// once the answer no longer depends on it. The answer, and with it the acknowledgement of finished records, waits as long.
    ///
    /// Default: 20 seconds.
    pub fn wait_up_to(mut self, duration: Duration) -> Self {
        self.options.wait_up_to = duration;
        self
    }

    /// Puts the operations in order: each belongs to the entity that `entity` selects, and stands at the number that `sequence`
    /// selects, 1 to 64 digits as a JSON number or as text. See [`Operation::ordered_by`](crate::Operation::ordered_by) for what
    /// that promises, and for which operations it is meant.
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// # use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// # async fn set_status(_: serde_json::Value) -> Result<(), Failure> { Ok(()) }
    /// let service = once
    ///     .sqs(Key::pointer("/event_id"), set_status)
    ///     .ordered_by(Key::pointer("/order_id"), Key::pointer("/version"));
    /// # assert!(service.checked().is_ok());
    /// # }
    /// ```
    ///
    /// * A superseded record is acknowledged. One without an entity or a sequence fails for good
    ///   ([`Order`](crate::ErrorKind::Order)).
    /// * Records of one entity run one after another. Each is claimed when it is about to start, by a call of its own on
    ///   DynamoDB, and waits for its entity for up to [`wait_up_to`](Self::wait_up_to).
    /// * An order of the source, as in FIFO queues and streams, stays as it is.
    /// * A record whose outcome could not be recorded is reported, and delivered again: older ones wait for that. A record in
    ///   doubt that goes to a dead-letter queue blocks older ones until it is redriven, or the entity's mark expires.
    pub fn ordered_by(mut self, entity: Key, sequence: Key) -> Self {
        self.options.place = Some(Place { entity, sequence });
        self
    }

    /// Says when what failed is delivered again; for SQS `VisibilityBackoff` does. Without it the source's own settings decide.
    pub fn redelivery(mut self, redelivery: impl Redelivery) -> Self {
        self.options.redelivery = Some(Arc::new(redelivery));
        self
    }

    /// Finds out whether a record took effect in an earlier run that left no outcome, for an engine with
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). It is called under the claim, as for an
    /// [`Operation`](crate::Operation::probe), before the handler, and only if the claim took over.
    ///
    /// ```
    /// # fn main() -> Result<(), lambda_once::Error> {
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{AfterUnknown, Failure, Idempotency, Key, MemoryStore, Probed, RecordContext};
    ///
    /// #[derive(Clone, serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// async fn book(order: Order) -> Result<String, Failure> {
    ///     Ok(order.order_id)
    /// }
    ///
    /// async fn find(order: Order, _: RecordContext) -> Result<Probed<String>, Failure> {
    ///     Ok(Probed::NotDone)
    /// }
    ///
    /// let once = Idempotency::builder(MemoryStore::new()).after_unknown(AfterUnknown::Probe).build()?;
    /// let service = once.sqs(Key::pointer("/order_id"), book).probe(find).checked()?;
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn probe<P, Fut, E>(self, probe: P) -> BatchService<S, Probing<H, P>, T, Args>
    where
        H: Handler<T, Args>,
        P: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Probed<H::Output>, E>> + Send,
        T: Clone + Send,
        E: Into<Failure>,
    {
        let Self { source, engine, registration, key, handler, decode, options, args } = self;
        let handler = Probing { handler, probe };
        BatchService { source, engine, registration, key, handler, decode, options, args }
    }

    /// How long a handler may be expected to run. A record is not started when less than that is left before the stop point.
    /// Below 5 ms, claims run four chunks ahead of the work from the beginning. An invocation with less time than this fails
    /// ([`ErrorKind::Config`]).
    ///
    /// Default: the longest run of the invocation so far.
    pub fn expected_duration(mut self, duration: Duration) -> Self {
        self.options.expected_duration = Some(duration);
        self
    }

    /// What a failure blocks where records have an order.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.options.on_failure = on_failure;
        self
    }

    /// What the answer is when every record of a batch failed.
    pub fn total_failure(mut self, policy: TotalFailure) -> Self {
        self.options.total_failure = policy;
        self
    }

    /// Fails the invocation if any record failed: where Lambda ignores an answer that names some, as from an SQS queue without
    /// `ReportBatchItemFailures`, or from Kafka without provisioned mode. The whole batch is delivered again then, and what was
    /// done is replayed. A record that is in progress elsewhere is [waited for](Self::wait_up_to).
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// # use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// # async fn book(_: serde_json::Value) -> Result<(), Failure> { Ok(()) }
    /// let service = once.sqs(Key::pointer("/order_id"), book).all_or_error();
    /// # assert!(service.checked().is_ok());
    /// # }
    /// ```
    ///
    /// So the deliveries of a message count together: one that fails for good takes its batch along to the dead-letter queue, or
    /// stops its partition, unless it is [acknowledged](super::PermanentFailures::Acknowledge) or [dead-lettered](Self::dead_letters).
    /// Sources of which Lambda takes no such answer, Amazon MQ, SNS and EventBridge, are so by themselves.
    pub fn all_or_error(mut self) -> Self {
        self.options.all_or_error = true;
        self
    }

    /// Settings of this service where they differ from the engine's: its retention, say. Later ones replace earlier ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.engine = self.engine.with(settings);
        self
    }

    /// What tells a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.options.payload = payload;
        self
    }

    /// Calls `observe` with the report of each record, when its outcome counts: for metrics, or custom logs. It changes
    /// nothing, even if it panics; it should not block. The last one set is called.
    ///
    /// ```
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// # #[cfg(feature = "sqs")]
    /// let service = once
    ///     .sqs(Key::message_id(), |_: serde_json::Value| async { Ok::<_, Failure>(()) })
    ///     .on_record(|report| println!("{} {:?}", report.record.id(), report.outcome));
    /// ```
    pub fn on_record(mut self, observe: impl Fn(&RecordReport) + Send + Sync + 'static) -> Self {
        self.options.observer = Some(Observer::new(observe));
        self
    }

    /// The same service, if its key and its payload can be looked up at all. Called in init, it shows a misspelt pointer at
    /// the deployment and not by records that fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if [settings](Self::with_settings) contradict each other, if a selector is malformed, if a combination of keys is empty, if there is a probe where the
    /// engine's policy wants none, or none where it wants one, if the handler writes in [transactions](super::in_transaction) of
    /// another store than the engine's, or if another service of the same source is alive on the same
    /// [unnamed engine](Idempotency#names).
    pub fn checked(self) -> Result<Self, Error>
    where
        H: Handler<T, Args>,
    {
        self.check()?;
        self.engine.check_keys(S::OPERATION, None)?;
        Ok(self)
    }

    /// The same service of a source that wraps the present one, whose bodies `decode` takes.
    pub(super) fn wrapped<W: Source>(
        self,
        wrap: impl FnOnce(S) -> W,
        decode: impl FnOnce(Decode<S, T>) -> Decode<W, T>,
    ) -> BatchService<W, H, T, Args> {
        let Self { source, engine, registration, key, handler, decode: inner, options, args } = self;
        BatchService { source: wrap(source), engine, registration, key, handler, decode: decode(inner), options, args }
    }

    /// Sets what is no work.
    pub(super) fn ignoring(mut self, ignore: Ignore) -> Self {
        self.options.ignore = Some(ignore);
        self
    }

    /// The same service with its source changed: for the settings that a source has of its own.
    #[cfg(any(feature = "kinesis", feature = "dynamodb-streams"))]
    pub(super) fn map_source(mut self, change: impl FnOnce(&mut S)) -> Self {
        change(&mut self.source);
        self
    }

    fn check(&self) -> Result<(), Error>
    where
        H: Handler<T, Args>,
    {
        self.registration.check()?;
        self.engine.check_settings()?;
        self.engine.check_probe(H::PROBES)?;
        if let Some(store) = self.handler.store() {
            self.engine.check_store(store)?;
        }
        if self.options.longest_run.is_some_and(|longest| longest.is_zero()) {
            return Err(Error::config(
                "the longest run must not be zero, or a message would never run on its last delivery",
            ));
        }
        self.key.check()?;
        if let Some(place) = &self.options.place {
            self.engine.check_order()?;
            place.check()?;
        }
        self.options.payload.check()
    }
}

impl<S: Source, H: Clone, T, Args> Clone for BatchService<S, H, T, Args> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            engine: self.engine.clone(),
            registration: self.registration.clone(),
            key: self.key.clone(),
            handler: self.handler.clone(),
            decode: Arc::clone(&self.decode),
            options: self.options.clone(),
            args: PhantomData,
        }
    }
}

impl<S: Source, H, T, Args> fmt::Debug for BatchService<S, H, T, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchService")
            .field("source", &S::OPERATION)
            .field("engine", &self.engine)
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The answer to a batch, and a report of each of its records.
#[derive(Debug)]
#[non_exhaustive]
pub struct Processed<R> {
    /// What Lambda is told.
    pub response: Result<R, Error>,
    /// One report for each record, in the order of the event; of Kafka in the order in which they are handled
    /// ([`RecordReport::index`]). Empty if the service failed before anything was claimed.
    pub records: Vec<RecordReport>,
}

impl<R> Processed<R> {
    /// The outcome of each record, in the order of [`records`](Self::records).
    pub fn outcomes(&self) -> Vec<Result<OutcomeKind, ErrorKind>> {
        self.records.iter().map(|report| report.outcome).collect()
    }

    /// The ids of the reported records, in the order of [`records`](Self::records). That of a RabbitMQ message without one is
    /// empty.
    pub fn reported(&self) -> Vec<&str> {
        self.records.iter().filter(|report| report.reported).map(|report| report.record.id()).collect()
    }
}

impl<S, H, T, Args> BatchService<S, H, T, Args>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    /// Handles one event as under [`lambda_runtime::run`], and returns the answer with one report for each record, in the
    /// order of the event: for tests, and for functions that use the reports before they answer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, OutcomeKind};
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service = once.sqs(Key::message_id(), |_: serde_json::Value| async { Ok::<_, Failure>(()) });
    /// # let text = r#"{"Records": [{"messageId": "m", "body": "{}"}]}"#;
    /// let event: aws_lambda_events::sqs::SqsEvent = serde_json::from_str(text).unwrap();
    /// let processed = service.process(lambda_runtime::LambdaEvent::new(event, lambda_runtime::Context::default())).await;
    /// assert_eq!(processed.outcomes(), [Ok(OutcomeKind::Executed)]);
    /// # }}
    /// ```
    pub async fn process(&self, event: LambdaEvent<S::Event>) -> Processed<S::Response> {
        match self.clone().handle(event).await {
            Ok(processed) => processed,
            Err(error) => Processed { response: Err(error), records: Vec::new() },
        }
    }

    /// # Errors
    ///
    /// Those by which nothing was claimed.
    async fn handle(self, event: LambdaEvent<S::Event>) -> Result<Processed<S::Response>, Error> {
        self.check()?;
        let Self { source, engine, key, handler, decode, options, .. } = self;
        let (records, envelope) = source.split(event.payload)?;
        let now = engine.clock.now();
        let window = Window::new(now, Deadline::from(&event.context), &engine.settings);
        if !records.is_empty() {
            check_time(now, window, options.expected_duration)?;
        }
        engine.check_keys(S::OPERATION, event.context.tenant_id.as_deref())?;
        let operation = engine.log_name(S::OPERATION);
        let span = batch_span(&operation, records.len(), &event.context);
        let traced = !span.is_disabled();
        let processor = Processor { source, engine, key, handler, decode, options, traced };
        let served = async {
            let records = processor.process(records, event.context, window).await;
            report::tell(&processor.engine, &operation, &records);
            add_origin(&span, &processor.source, &records);
            records
        };
        let records = processor.engine.observed(EntryPoint::Batch, &operation, span.clone(), served).await;
        if let Some(redelivery) = &processor.options.redelivery {
            let failed: Vec<_> = records.iter().filter(|report| report.reported).cloned().collect();
            redelivery::delay(redelivery, &failed, &*processor.engine.clock, window.settle_by).await;
        }
        let response = respond(&processor.source, envelope, &records, &processor.options);
        Ok(Processed { response, records })
    }
}

/// Whether any record could begin at all. If not, none could in another invocation either, and each would spend the
/// deliveries of the batch.
fn check_time(now: Timestamp, window: Window, expected: Option<Duration>) -> Result<(), Error> {
    let expected = expected.unwrap_or_default();
    if now < window.stop && now.after(expected) <= window.stop {
        return Ok(());
    }
    let time = window.stop.since(now);
    let message = format!(
        "no record could begin: an invocation has {time:?} before its reserve, and a handler is expected to take {expected:?}; \
         set a longer time-out of the function, a shorter reserve or a shorter expected duration"
    );
    Err(Error::new(ErrorKind::Config, ErrorStatus::Temporary, "receive", message))
}

/// What Lambda is told.
fn respond<S: Source>(
    source: &S,
    envelope: S::Envelope,
    records: &[RecordReport],
    options: &Options,
) -> Result<S::Response, Error> {
    let failed: Vec<_> =
        records.iter().filter(|report| report.reported).map(|report| Arc::clone(&report.record)).collect();
    let count = records.len();
    let message = if options.all_or_error && !failed.is_empty() {
        Some(format!("{} of the batch's {count} records failed", failed.len()))
    } else if options.total_failure == TotalFailure::Error && count > 0 && failed.len() == count {
        Some(format!("every one of the batch's {count} records failed"))
    } else {
        None
    };
    if let Some(message) = message {
        return Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", message));
    }
    source.respond(envelope, &failed)
}

impl<S, H, T, Args> Service<LambdaEvent<S::Event>> for BatchService<S, H, T, Args>
where
    S: Source,
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    type Response = S::Response;
    type Error = Error;
    type Future = BoxFuture<'static, Result<S::Response, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<S::Event>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.handle(event).await?.response })
    }
}
