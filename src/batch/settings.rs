//! The settings of a service.

use std::{future::Future, sync::Arc, time::Duration};

use super::{
    context::RecordContext,
    dead_letters::DeadLetters,
    handler::{Handler, Probing},
    ignore::Ignore,
    observer::Observer,
    options::{FullBatchFailure, OnFailure, PermanentFailures},
    redelivery::Redelivery,
    report::RecordReport,
    service::BatchService,
    source::Source,
};
#[cfg(feature = "order")]
use crate::key::order_selector::OrderSelector;
use crate::{
    idempotency::{operation_settings::OperationSettings, probe::ProbeResult, verdict::Failure},
    key::{payload::Payload, selector::Key},
};

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// Sets the maximum number of concurrent handlers. Zero counts as one.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.options.concurrency = handlers;
        self
    }

    /// Sets the response to records that no retry can help.
    pub fn permanent_failures(mut self, policy: PermanentFailures) -> Self {
        self.options.permanent_failures = policy;
        self
    }

    /// Dead-letters records that no retry can help. They are then acknowledged, regardless of
    /// [`permanent_failures`](Self::permanent_failures), and block no other records. A record with a different payload
    /// for a key that occurs earlier in the same batch is first reported, and dead-lettered in its next delivery. It is
    /// dead-lettered at once if the source reports all records or none, and on its [last](Self::max_receive_count)
    /// delivery in an order.
    /// Records with the same key and payload in the batch are acknowledged together. The bodies of a batch are kept
    /// until its records are decided.
    pub fn dead_letters(mut self, letters: impl DeadLetters) -> Self {
        self.options.dead_letters = Some(Arc::new(letters));
        self
    }

    /// Sets the queue's `maxReceiveCount`. An ordered record that fails, panics, is cancelled or is abandoned on its
    /// last receive would take the healthy records behind it to the dead-letter queue, because they have been received
    /// as often. With [`dead_letters`](Self::dead_letters) it is dead-lettered instead, and the others run. Without it,
    /// a warning is logged.
    ///
    /// Effective only if the source counts deliveries, as SQS does. Streams do not.
    pub fn max_receive_count(mut self, count: u32) -> Self {
        self.options.max_receive_count = Some(count);
        self
    }

    /// Sets the timeout of the handler on the last delivery of a record with others behind it in its order. With
    /// [`dead_letters`](Self::dead_letters) and [`max_receive_count`](Self::max_receive_count), it prevents a handler
    /// that hangs from taking them to the dead-letter queue. The handler is cancelled, its claim is kept until its
    /// lease ends, the record is dead-lettered with an unknown outcome, and the others run. A handler that blocks its
    /// thread cannot be cancelled.
    ///
    /// Default: half of the time left when it begins. Less than a millisecond is an error
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)).
    pub fn last_attempt_timeout(mut self, duration: Duration) -> Self {
        self.options.last_attempt_timeout = Some(duration);
        self
    }

    /// Sets whether [`dead_letters`](Self::dead_letters) also takes abandoned records. A record is abandoned if an
    /// earlier run left no outcome, and [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) forbids another run or
    /// the earlier one had a different payload. It may or may not have taken effect. Dead-lettering does not change
    /// that: the operation stays abandoned in the store, and the consumer of the dead-letter queue must resolve it.
    /// Otherwise the record is reported, and stops a shard or partition until its retries end. On its last receive, an
    /// abandoned record in an order is always dead-lettered if [`max_receive_count`](Self::max_receive_count) is set.
    ///
    /// Default: no.
    pub fn dead_letter_abandoned(mut self, dead_letter: bool) -> Self {
        self.options.dead_letter_abandoned = dead_letter;
        self
    }

    /// Sets the maximum time that a record waits for a claim that is held elsewhere before it is reported as in
    /// progress. Records wait if they are ordered or the source [waits](Source::WAITS_FOR_LEASE). A record does not
    /// wait if that lease ends too late to run it, or once the response no longer depends on it. The response, which
    /// acknowledges finished records, waits as long.
    ///
    /// Default: 20 seconds.
    pub fn wait_up_to(mut self, duration: Duration) -> Self {
        self.options.wait_up_to = duration;
        self
    }

    /// Orders the operations of each entity. `entity` selects the entity, and `sequence` the position, a number of 1 to
    /// 64 digits as a JSON number or text. See [`Operation::ordered_by`](crate::Operation::ordered_by) for the
    /// guarantees and the intended operations.
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// # use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// # async fn set_status(_: serde_json::Value) -> Result<(), Failure> { Ok(()) }
    /// let service = once
    ///     .sqs(Key::pointer("/event_id"), set_status)
    ///     .ordered_by(Key::pointer("/order_id"), Key::pointer("/version"));
    /// # assert!(service.validate().is_ok());
    /// # }
    /// ```
    ///
    /// * A superseded record is acknowledged. A record without an entity or a sequence fails permanently
    ///   ([`Order`](crate::ErrorKind::Order)).
    /// * Records of one entity run one after another. Each is claimed when it is about to start, on DynamoDB in a
    ///   separate call, and waits for its entity for up to [`wait_up_to`](Self::wait_up_to).
    /// * An order of the source, as in FIFO queues and streams, is kept.
    /// * A record whose outcome could not be recorded is reported and delivered again. Older records wait for that. An
    ///   in-doubt record that goes to a dead-letter queue blocks older ones until it is redriven or the entity's order
    ///   marker expires.
    ///
    /// Needs the feature `order`.
    #[cfg(feature = "order")]
    pub fn ordered_by(mut self, entity: Key, sequence: Key) -> Self {
        self.options.order = Some(OrderSelector { entity, sequence });
        self
    }

    /// Sets the time of redelivery of failed records, for SQS by `VisibilityBackoff`. By default the source's settings
    /// decide.
    pub fn redelivery(mut self, redelivery: impl Redelivery) -> Self {
        self.options.redelivery = Some(Arc::new(redelivery));
        self
    }

    /// Sets a function that finds out whether an earlier run of a record that left no outcome took effect, for an
    /// engine with [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). As for an
    /// [`Operation`](crate::Operation::probe), it is called under the claim and before the handler, only if the claim
    /// took over.
    ///
    /// ```
    /// # fn main() -> Result<(), lambda_once::Error> {
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{AfterUnknown, Failure, Idempotency, Key, MemoryStore, ProbeResult, RecordContext};
    ///
    /// #[derive(Clone, serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// async fn book(order: Order) -> Result<String, Failure> {
    ///     Ok(order.order_id)
    /// }
    ///
    /// async fn find(order: Order, _: RecordContext) -> Result<ProbeResult<String>, Failure> {
    ///     Ok(ProbeResult::NotDone)
    /// }
    ///
    /// let once = Idempotency::builder(MemoryStore::new()).after_unknown(AfterUnknown::Probe).build()?;
    /// let service = once.sqs(Key::pointer("/order_id"), book).probe(find).validate()?;
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn probe<P, Fut, E>(self, probe: P) -> BatchService<S, Probing<H, P>, T, Args>
    where
        H: Handler<T, Args>,
        P: Fn(T, RecordContext) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<ProbeResult<H::Output>, E>> + Send,
        T: Clone + Send,
        E: Into<Failure>,
    {
        let Self { source, engine, registration, key, handler, decode, options, args } = self;
        let handler = Probing { handler, probe };
        BatchService { source, engine, registration, key, handler, decode, options, args }
    }

    /// Sets the expected duration of a handler. A record does not start if less time is left before the handler
    /// deadline. Below 5 ms, claims run four chunks ahead of the work from the beginning. An invocation with less time
    /// than this fails ([`ErrorKind::Config`](crate::ErrorKind::Config)).
    ///
    /// Default: the longest run of the invocation so far.
    pub fn expected_duration(mut self, duration: Duration) -> Self {
        self.options.expected_duration = Some(duration);
        self
    }

    /// Sets the records that a failure blocks if they are ordered.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.options.on_failure = on_failure;
        self
    }

    /// Sets the response when every record of a batch fails.
    pub fn on_full_batch_failure(mut self, policy: FullBatchFailure) -> Self {
        self.options.on_full_batch_failure = policy;
        self
    }

    /// Fails the invocation if any record failed, for event source mappings that ignore partial responses: an SQS queue
    /// without `ReportBatchItemFailures`, or Kafka without provisioned mode. The whole batch is then delivered again,
    /// and finished records are replayed. A record that is in progress elsewhere is [waited for](Self::wait_up_to).
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// # use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    /// # let once = Idempotency::new(MemoryStore::new());
    /// # async fn book(_: serde_json::Value) -> Result<(), Failure> { Ok(()) }
    /// let service = once.sqs(Key::pointer("/order_id"), book).all_or_error();
    /// # assert!(service.validate().is_ok());
    /// # }
    /// ```
    ///
    /// The deliveries of a batch's messages therefore count together. A message that fails permanently takes its batch
    /// to the dead-letter queue, or stops its partition, unless it is
    /// [acknowledged](super::PermanentFailures::Acknowledge) or [dead-lettered](Self::dead_letters). This mode is
    /// implicit for Amazon MQ, SNS and EventBridge, for which Lambda supports no partial response.
    pub fn all_or_error(mut self) -> Self {
        self.options.all_or_error = true;
        self
    }

    /// Overrides settings of the engine for this service, such as its retention. Later calls replace earlier ones.
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.engine = self.engine.with(settings);
        self
    }

    /// Sets the payload that distinguishes a repeated operation from a misused key.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.options.payload = payload;
        self
    }

    /// Sets the selector of the label with which people find the records in the store, such as
    /// `Key::pointer("/order_id")`. By default they have no label. A label is stored as **plain text**: see
    /// [`Operation::label`](crate::Operation::label). A delivery from which nothing can be selected has no label, and
    /// is otherwise processed normally.
    pub fn label(mut self, label: Key) -> Self {
        self.options.label = Some(label);
        self
    }

    /// Calls `observe` with the report of each record when its outcome is final, for metrics or custom logs. The
    /// function affects no outcome, even if it panics, and should not block. Only the last function set is called.
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

    /// Sets the predicate of ignored deliveries.
    pub(super) fn ignoring(mut self, ignore: Ignore) -> Self {
        self.options.ignore = Some(ignore);
        self
    }
}
