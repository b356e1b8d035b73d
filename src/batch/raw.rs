//! Keeps a copy of each raw record.

use std::{borrow::Cow, sync::Arc};

use super::{
    messaging::Messaging,
    record::RecordInfo,
    service::BatchService,
    source::{FailureReporting, Source},
};
use crate::error::Error;

/// A source whose records can be kept as received in the event, by [`BatchService::with_raw`]. It is implemented by
/// every source of this crate, and by custom ones whose records are `Clone`. It cannot be named or implemented outside
/// the crate.
pub trait KeepsRaw: Source {
    /// The same source, with its raw records kept.
    type Raw: Source<Body = Self::Body>;

    /// Returns the source with its raw records kept.
    fn keeping_raw(self) -> Self::Raw;
}

impl<S> KeepsRaw for S
where
    S: Source,
    S::Record: Clone + Sync + 'static,
{
    type Raw = KeepRaw<S>;

    fn keeping_raw(self) -> KeepRaw<S> {
        KeepRaw(self)
    }
}

/// A source that keeps a copy of each record as received in the event. Made by
/// [`BatchService::with_raw`](super::BatchService::with_raw).
#[derive(Clone, Debug)]
pub struct KeepRaw<S>(S);

impl<S> Source for KeepRaw<S>
where
    S: Source,
    S::Record: Clone + Sync + 'static,
{
    type Event = S::Event;
    type Record = S::Record;
    type Rest = S::Rest;
    type Body = S::Body;
    type Response = S::Response;

    const OPERATION: &'static str = S::OPERATION;
    const WAITS_FOR_LEASE: bool = S::WAITS_FOR_LEASE;
    const REPORTING: FailureReporting = S::REPORTING;

    fn split(&self, event: S::Event) -> Result<(Vec<S::Record>, S::Rest), Error> {
        self.0.split(event)
    }

    fn lane<'a>(&self, record: &'a S::Record) -> Option<Cow<'a, str>> {
        self.0.lane(record)
    }

    fn open(&self, record: S::Record) -> (RecordInfo, S::Body) {
        let (info, body) = self.0.open(record.clone());
        (info.with_raw(record), body)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        self.0.messaging(record)
    }

    fn dead_letter(body: S::Body) -> Vec<u8> {
        S::dead_letter(body)
    }

    fn respond(&self, rest: S::Rest, failed: &[Arc<RecordInfo>]) -> Result<S::Response, Error> {
        self.0.respond(rest, failed)
    }
}

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// Keeps each record as received in the event, for [`RecordInfo::raw`](super::RecordInfo::raw), to access fields
    /// that the types of this crate omit. Each record is copied, including its body. Call it after source-specific
    /// settings, such as `order`, and before [`envelope`](Self::envelope).
    ///
    /// | source | type of the raw record |
    /// |---|---|
    /// | SQS | `aws_lambda_events::sqs::SqsMessage` |
    /// | Kinesis, DynamoDB streams, Kafka, Amazon MQ, SNS, EventBridge | [`RawRecord`](super::RawRecord) (its JSON) |
    /// | a custom source whose records are `Clone` | [`Source::Record`] |
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// use aws_lambda_events::sqs::SqsMessage;
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, RecordContext};
    ///
    /// async fn book(order: serde_json::Value, context: RecordContext) -> Result<Option<String>, Failure> {
    ///     Ok(context.record().raw::<SqsMessage>().and_then(|message| message.aws_region.clone()))
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// let service = once.sqs(Key::pointer("/order_id"), book).with_raw();
    /// # assert!(service.validate().is_ok());
    /// # }
    /// ```
    pub fn with_raw(self) -> BatchService<S::Raw, H, T, Args>
    where
        S: KeepsRaw,
    {
        self.wrapped(S::keeping_raw, |decode| decode)
    }
}
