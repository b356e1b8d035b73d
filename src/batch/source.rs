//! The trait of event sources.

use std::{borrow::Cow, sync::Arc};

use super::{messaging::Messaging, record::RecordInfo};
use crate::error::{BoxError, Error};

/// The failures that a response can report for the records of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias("partial batch response", "ReportBatchItemFailures", "batchItemFailures"))]
pub enum FailureReporting {
    /// Each failed record (SQS, Kafka).
    EachRecord,
    /// The first failed record. It and all records after it are delivered again (Kinesis, DynamoDB streams).
    FirstFailure,
    /// Success or an error. A single failure causes redelivery of the whole batch (Amazon MQ, SNS, EventBridge).
    AllOrNothing,
}

/// A kind of event. It splits events into records, defines their order, and responds to Lambda with the failed records.
///
/// Keys, claims, concurrency, deadline, panics and verdicts are the same for all sources. The sources of this crate
/// implement this trait. A custom source is passed to [`Idempotency::batch`](crate::Idempotency::batch).
///
/// The events of this crate's sources can be deserialized, but not constructed. Tests deserialize one or have `testing`
/// make it. Code that must name the type of an event can use `<Kinesis as Source>::Event`.
///
/// Its methods run outside the protection that handlers have. A panic in one of them, except
/// [`dead_letter`](Self::dead_letter), fails the invocation, and the whole batch is delivered again.
///
/// ```
/// use std::{borrow::Cow, sync::Arc};
/// use lambda_once::{Error, Failure, Idempotency, Key, MemoryStore, batch::{RecordInfo, Source}};
///
/// #[derive(serde::Deserialize)]
/// struct Ticket { number: u64, customer: String, text: String }
///
/// /// Tickets from an importer, ordered by customer. The response lists the numbers of failed tickets.
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
    /// The event as Lambda sends it.
    type Event: Send;

    /// A record as received in the event.
    type Record: Send;

    /// The rest of the event that the response needs, or `()`.
    type Rest: Send;

    /// A record's body. Keys are selected from it, and payloads compared by it, as bytes.
    type Body: AsRef<[u8]> + Send;

    /// The response that Lambda expects.
    type Response: Send;

    /// The source's part of the hashed keys, unless the engine has a [name](crate::Idempotency::named). It separates
    /// the keys of several sources in one Lambda function.
    const OPERATION: &'static str;

    /// Whether an unordered record that is in progress elsewhere is waited for, for up to
    /// [`wait_up_to`](super::BatchService::wait_up_to). Useful if failing immediately would use up one of few retries
    /// or fail the batch.
    const WAITS_FOR_LEASE: bool = false;

    /// The failures that the response can report. It determines when waiting for a record no longer changes the
    /// response.
    const REPORTING: FailureReporting = FailureReporting::EachRecord;

    /// Splits an event into records, in the order in which they are processed.
    ///
    /// # Errors
    ///
    /// If the response could not identify a record, or the event as a whole is invalid
    /// ([`ErrorKind::Event`](crate::ErrorKind::Event)). The invocation fails before anything is claimed.
    fn split(&self, event: Self::Event) -> Result<(Vec<Self::Record>, Self::Rest), Error>;

    /// Returns the lane of the record. Records of one lane run one after the other, and a failure blocks those behind
    /// it. Returns `None` if the record has no order, in which case no record of the event should have one.
    fn lane<'a>(&self, record: &'a Self::Record) -> Option<Cow<'a, str>>;

    /// Returns the record's metadata and body. Called once, shortly before the record is claimed, so that a large batch
    /// is not copied as a whole.
    fn open(&self, record: Self::Record) -> (RecordInfo, Self::Body);

    /// Describes the origin of a record for traces. Called only if the library's spans at level *debug* are enabled.
    ///
    /// Default: [`OPERATION`](Self::OPERATION) as the system, and the record's [source](RecordInfo::source) as the destination.
    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        Messaging::of(Self::OPERATION, record.source())
    }

    /// Returns the bytes of the body as the decoder gets it. Its errors are located in them, and may quote them. An
    /// envelope may select keys and compare payloads by other bytes.
    #[doc(hidden)]
    fn received(body: &Self::Body) -> &[u8] {
        body.as_ref()
    }

    /// Returns the content of a dead letter for a record with this body, in a form that the source could deliver again.
    /// If it panics, the record is reported.
    ///
    /// Default: the body.
    fn dead_letter(body: Self::Body) -> Vec<u8> {
        body.as_ref().to_vec()
    }

    /// Builds the response for these failed records. They are in the order of the event. Two of them have the same id
    /// if they do in the event.
    ///
    /// # Errors
    ///
    /// If the invocation must fail because Lambda supports no partial response
    /// ([`ErrorKind::Batch`](crate::ErrorKind::Batch)).
    fn respond(&self, rest: Self::Rest, failed: &[Arc<RecordInfo>]) -> Result<Self::Response, Error>;
}

/// The function that decodes a record into the handler's type.
pub(super) type Decode<S, T> = Arc<dyn Fn(&RecordInfo, &<S as Source>::Body) -> Result<T, BoxError> + Send + Sync>;
