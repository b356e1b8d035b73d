//! The settings of a service, one method each.

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

    /// The queue's `maxReceiveCount`. A record in an order that fails, panics, is cancelled or is abandoned on its last receive
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
    /// take them along to the dead-letter queue. It is cancelled then, its claim is kept until its lease ends, the record is
    /// dead-lettered with an unknown outcome, and the others run. A handler that blocks its thread cannot be cancelled.
    ///
    /// Default: half of the time left when it begins. Less than a millisecond is refused
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)).
    pub fn last_attempt_timeout(mut self, duration: Duration) -> Self {
        self.options.last_attempt_timeout = Some(duration);
        self
    }

    /// Whether [`dead_letters`](Self::dead_letters) also takes records that are abandoned: an earlier run left no outcome, and
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) forbids another, or it was one of another payload. Such a record may or may not have taken effect, and
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
    /// # assert!(service.validate().is_ok());
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
    ///
    /// Needs the feature `order`.
    #[cfg(feature = "order")]
    pub fn ordered_by(mut self, entity: Key, sequence: Key) -> Self {
        self.options.order = Some(OrderSelector { entity, sequence });
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

    /// How long a handler may be expected to run. A record is not started when less than that is left before the stop point.
    /// Below 5 ms, claims run four chunks ahead of the work from the beginning. An invocation with less time than this fails
    /// ([`ErrorKind::Config`](crate::ErrorKind::Config)).
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
    pub fn on_full_batch_failure(mut self, policy: FullBatchFailure) -> Self {
        self.options.on_full_batch_failure = policy;
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
    /// # assert!(service.validate().is_ok());
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

    /// Sets what the records in the store are labelled with, so that people find them: `Key::pointer("/order_id")`. By default
    /// they have no label. It stands there as **plain text**: see [`Operation::label`](crate::Operation::label). A delivery from
    /// which nothing can be selected has no label, and is handled as others are.
    pub fn label(mut self, label: Key) -> Self {
        self.options.label = Some(label);
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

    /// Sets what is no work.
    pub(super) fn ignoring(mut self, ignore: Ignore) -> Self {
        self.options.ignore = Some(ignore);
        self
    }
}
