//! SQS queues, standard and FIFO.

use std::{
    collections::HashSet,
    fmt,
    marker::PhantomData,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent, SqsMessage, SqsMessageAttribute};
use lambda_runtime::LambdaEvent;
use tower_service::Service;

use super::{
    Decode, Handler, OnFailure, Options, Payload, PermanentFailures, TotalFailure, context::RecordInfo,
    processor::Processor, source::Source,
};
use crate::{Error, ErrorKind, ErrorStatus, Idempotency, Key, store::BoxFuture};

const OPERATION: &str = "sqs";

/// Handles the batches of an SQS queue. Made by [`Idempotency::sqs`]; given to [`lambda_runtime::run`] or
/// `run_concurrent`.
///
/// It keeps nothing between invocations, and clones are independent.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`concurrency`](Self::concurrency) | 10 |
/// | [`permanent_failures`](Self::permanent_failures) | [`PermanentFailures::Report`] |
/// | [`expected_duration`](Self::expected_duration) | the longest run of the invocation so far |
/// | [`payload`](Self::payload) | [`Payload::Body`] |
/// | [`on_failure`](Self::on_failure) | [`OnFailure::StopGroup`] |
/// | [`total_failure`](Self::total_failure) | [`TotalFailure::Report`] |
///
/// # Errors
///
/// The service fails as a whole, before anything is claimed, only if it cannot name the messages that failed: if a
/// record has no message id ([`ErrorKind::Event`]), or if the key's pointer is not one ([`ErrorKind::Config`]). It also
/// fails, if [`total_failure`](Self::total_failure) says so, when every message failed ([`ErrorKind::Batch`]). SQS then
/// delivers the whole batch again.
pub struct SqsService<H, T, Args> {
    engine: Idempotency,
    key: Key,
    handler: H,
    decode: Decode<T>,
    options: Options,
    args: PhantomData<fn(Args)>,
}

impl<H, T, Args> SqsService<H, T, Args> {
    pub(super) fn new(engine: Idempotency, key: Key, decode: Decode<T>, handler: H) -> Self {
        Self { engine, key, handler, decode, options: Options::default(), args: PhantomData }
    }

    /// How many handlers run at once; at least one.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.options.concurrency = handlers;
        self
    }

    /// What happens to records that no retry can help.
    #[must_use]
    pub fn permanent_failures(mut self, policy: PermanentFailures) -> Self {
        self.options.permanent_failures = policy;
        self
    }

    /// How long a handler may be expected to run. A record is not started when less than that is left.
    #[must_use]
    pub fn expected_duration(mut self, duration: Duration) -> Self {
        self.options.expected_duration = Some(duration);
        self
    }

    /// What a failure holds up in a FIFO queue.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.options.on_failure = on_failure;
        self
    }

    /// What the answer is when every message of a batch failed.
    #[must_use]
    pub fn total_failure(mut self, policy: TotalFailure) -> Self {
        self.options.total_failure = policy;
        self
    }

    /// What tells a repeated operation from a misused key.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.options.payload = payload;
        self
    }

    /// The same service, if its key and its payload can be looked up at all. Called in init, it shows a misspelt pointer at
    /// the deployment and not by messages that fail.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if a JSON Pointer is not one, or if a combination of keys is empty.
    pub fn checked(self) -> Result<Self, Error> {
        self.check()?;
        Ok(self)
    }

    fn check(&self) -> Result<(), Error> {
        self.key.check()?;
        match &self.options.payload {
            Payload::Part(part) => part.check(),
            Payload::Body | Payload::Ignored => Ok(()),
        }
    }
}

impl<H: Clone, T, Args> Clone for SqsService<H, T, Args> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            key: self.key.clone(),
            handler: self.handler.clone(),
            decode: Arc::clone(&self.decode),
            options: self.options.clone(),
            args: PhantomData,
        }
    }
}

impl<H, T, Args> fmt::Debug for SqsService<H, T, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsService")
            .field("engine", &self.engine)
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<H, T, Args> Service<LambdaEvent<SqsEvent>> for SqsService<H, T, Args>
where
    H: Handler<T, Args>,
    T: Send + 'static,
    Args: 'static,
{
    type Response = SqsBatchResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<SqsBatchResponse, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, event: LambdaEvent<SqsEvent>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            service.check()?;
            let records = event.payload.records;
            if records.iter().any(|record| Sqs::identifier(record).is_empty()) {
                // An empty identifier in the answer would fail the whole batch anyway, after the work was done.
                let message = "a record of the event has no messageId: this is not an event from SQS";
                return Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", message));
            }
            let Self { engine, key, handler, decode, options, .. } = service;
            let processor = Processor { engine, operation: OPERATION, key, handler, decode, options };
            let (count, policy) = (records.len(), processor.options.total_failure);
            let failures = processor.process::<Sqs, Args>(records, event.context).await;
            if policy == TotalFailure::Error && count > 0 && failures.len() == count {
                let message = format!("every one of the batch's {count} messages failed");
                return Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", message));
            }
            Ok(response(failures))
        })
    }
}

/// Messages of an SQS queue, in order within their groups if the queue is FIFO.
struct Sqs;

impl Source for Sqs {
    type Record = SqsMessage;

    fn identifier(message: &SqsMessage) -> &str {
        message.message_id.as_deref().unwrap_or_default()
    }

    fn lane(message: &SqsMessage) -> Option<&str> {
        // Messages of a standard queue may have a group too: fair queues do. They have no order.
        let is_fifo = message.event_source_arn.as_deref().is_some_and(|arn| arn.ends_with(".fifo"));
        is_fifo.then(|| message.attributes.get("MessageGroupId").map_or("", String::as_str))
    }

    fn open(message: SqsMessage) -> (RecordInfo, String) {
        let receive_count = message.attributes.get("ApproximateReceiveCount").and_then(|count| count.parse().ok());
        let info = RecordInfo {
            message_id: message.message_id.unwrap_or_default(),
            receive_count: receive_count.unwrap_or(1),
            attributes: message.attributes,
            message_attributes: message.message_attributes.into_iter().filter_map(text).collect(),
            source_arn: message.event_source_arn,
        };
        (info, message.body.unwrap_or_default())
    }
}

/// The attribute's name and text, if it has one.
fn text((name, attribute): (String, SqsMessageAttribute)) -> Option<(String, String)> {
    Some((name, attribute.string_value?))
}

/// The answer that Lambda understands, each identifier once.
/// <https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-batchfailurereporting>
fn response(failures: Vec<String>) -> SqsBatchResponse {
    let mut seen = HashSet::new();
    let mut response = SqsBatchResponse::default();
    response.set_failures(failures.into_iter().filter(|id| seen.insert(id.clone())));
    response
}
