//! The trait of event sources.

use std::{borrow::Cow, sync::Arc};

use super::{messaging::Messaging, record::RecordInfo};
use crate::error::{BoxError, Error};

/// What an answer can say about the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureReporting {
    /// It names each record that failed (SQS), or the first one of each lane (Kafka).
    EachRecord,
    /// It names the first record that failed, and what comes after it is delivered again with it (Kinesis, DynamoDB streams).
    FirstFailure,
    /// It is success or an error: one failure, and everything is delivered again (Amazon MQ, SNS, EventBridge).
    AllOrNothing,
}

/// A kind of event: how it is taken apart, in which order its records run, and what Lambda is told of those that failed.
///
/// Everything else is the same for all sources: keys, claims, concurrency, the deadline, panics and verdicts. The sources of
/// this crate are implementations of this trait; a custom one is given to [`Idempotency::batch`](crate::Idempotency::batch).
///
/// The events of this crate's sources are read, and not built: a test deserializes one, or has `testing` make it. Where code has to
/// name the type of an event, it is `<Kinesis as Source>::Event`.
///
/// Its methods run outside of the protection that handlers have. A panic in one of them fails the invocation, and the whole
/// batch is delivered again.
///
/// ```
/// use std::{borrow::Cow, sync::Arc};
/// use lambda_once::{Error, Failure, Idempotency, Key, MemoryStore, batch::{RecordInfo, Source}};
///
/// #[derive(serde::Deserialize)]
/// struct Ticket { number: u64, customer: String, text: String }
///
/// /// Tickets that an importer sends, in order for each customer. It is answered with the number of each that failed.
/// #[derive(Clone, Debug)]
/// struct Tickets;
///
/// impl Source for Tickets {
///     type Event = Vec<Ticket>;
///     type Record = Ticket;
///     type Rest = ();
///     type Body = String;
///     type Response = Vec<String>;
///     const OPERATION: &'static str = "tickets";
///
///     fn split(&self, event: Vec<Ticket>) -> Result<(Vec<Ticket>, ()), Error> {
///         Ok((event, ()))
///     }
///
///     fn lane<'a>(&self, ticket: &'a Ticket) -> Option<Cow<'a, str>> {
///         Some(Cow::Borrowed(&ticket.customer))
///     }
///
///     fn open(&self, ticket: Ticket) -> (RecordInfo, String) {
///         (RecordInfo::new(ticket.number.to_string()), ticket.text)
///     }
///
///     fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<Vec<String>, Error> {
///         Ok(failed.iter().map(|record| record.id().to_owned()).collect())
///     }
/// }
///
/// let once = Idempotency::new(MemoryStore::new());
/// let decode = |_: &RecordInfo, text: &String| Ok(text.clone());
/// let file = |text: String| async move { Ok::<_, Failure>(text.len()) };
/// let service = once.batch(Tickets, Key::message_id(), decode, file).concurrency(4);
/// ```
pub trait Source: Clone + Send + Sync + 'static {
    /// The event, as Lambda sends it.
    type Event: Send;

    /// A record as the event has it.
    type Record: Send;

    /// The rest of the event, as far as the answer needs it; `()` if it does not.
    type Rest: Send;

    /// A record's body. As bytes it is what keys are selected from and what payloads are compared by.
    type Body: AsRef<[u8]> + Send;

    /// The answer that Lambda understands.
    type Response: Send;

    /// Part of what keys are hashed with, unless the engine has a [name](crate::Idempotency::named). Lambda functions that
    /// handle several sources have one each.
    const OPERATION: &'static str;

    /// Whether a record that is in progress elsewhere is waited for although it has no order, for up to
    /// [`wait_up_to`](super::BatchService::wait_up_to): where to fail at once would spend one of few tries, or fail the batch.
    const WAITS_FOR_LEASE: bool = false;

    /// What of a batch the answer tells apart. It decides when waiting for a record no longer changes the answer.
    const REPORTING: FailureReporting = FailureReporting::EachRecord;

    /// Takes an event apart. The order of the records is the order in which they are looked at.
    ///
    /// # Errors
    ///
    /// If a record could not be named in the answer, or something else is wrong with the event as a whole
    /// ([`ErrorKind::Event`](crate::ErrorKind::Event)). Nothing has been claimed by then, and the invocation fails.
    fn split(&self, event: Self::Event) -> Result<(Vec<Self::Record>, Self::Rest), Error>;

    /// The lane of the record: records of one lane run one after the other, and a failure blocks those
    /// behind it. `None` if the record has no order; then no record of the event should have one.
    fn lane<'a>(&self, record: &'a Self::Record) -> Option<Cow<'a, str>>;

    /// What is known of the record, and its body. Called once, shortly before the record is claimed, so that a large
    /// batch is not copied as a whole.
    fn open(&self, record: Self::Record) -> (RecordInfo, Self::Body);

    /// What traces say of where a record comes from. Called only where the library's spans at *debug* are wanted.
    ///
    /// Default: [`OPERATION`](Self::OPERATION) as the system, and the record's [source](RecordInfo::source) as the destination.
    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        Messaging::of(Self::OPERATION, record.source())
    }

    /// What a dead-letter queue is sent of a record with this body: what the source could deliver again.
    ///
    /// Default: the body.
    fn dead_letter(body: Self::Body) -> Vec<u8> {
        body.as_ref().to_vec()
    }

    /// The answer, if these records failed. They are in the order of the event; two of them may have the same id, if the
    /// event did.
    ///
    /// # Errors
    ///
    /// If the invocation has to fail: where Lambda takes no partial answer
    /// ([`ErrorKind::Batch`](crate::ErrorKind::Batch)).
    fn respond(&self, rest: Self::Rest, failed: &[Arc<RecordInfo>]) -> Result<Self::Response, Error>;
}

/// Makes the handler's type of a record.
pub(super) type Decode<S, T> = Arc<dyn Fn(&RecordInfo, &<S as Source>::Body) -> Result<T, BoxError> + Send + Sync>;
