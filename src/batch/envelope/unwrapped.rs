//! A source whose records arrive in envelopes.

use std::{borrow::Cow, collections::HashMap, error::Error, fmt, sync::Arc};

use super::{Content, Envelope, EnvelopeError, Message};
use crate::{
    batch::{
        messaging::Messaging,
        record::RecordInfo,
        report::Panicked,
        service::BatchService,
        source::{FailureReporting, Source},
    },
    error::{BoxError, Error as OnceError},
    idempotency::guard::catch_panic,
    key::canonical::canonical,
};

/// The records of a source, taken out of their envelopes. Made by
/// [`BatchService::envelope`](crate::batch::BatchService::envelope).
#[derive(Clone, Debug)]
pub struct Unwrapped<S, E> {
    source: S,
    envelope: E,
}

/// A record taken out of its envelope.
pub struct UnwrappedRecord<B> {
    lane: Option<Arc<str>>,
    info: RecordInfo,
    body: Opened<B>,
}

/// Shows no body.
impl<B> fmt::Debug for UnwrappedRecord<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnwrappedRecord").field("info", &self.info).finish_non_exhaustive()
    }
}

/// The body of a record taken out of its envelope.
pub struct Opened<B> {
    /// The message's body, or the record's if there is no message.
    body: B,
    content: Inside<B>,
}

enum Inside<B> {
    Message {
        compared: Option<String>,
        dead_letter: DeadLetter<B>,
    },
    Nothing,
    Malformed(EnvelopeError),
    /// The envelope panicked.
    Unknown,
}

/// The content of a dead letter.
enum DeadLetter<B> {
    Body,
    Record(B),
    Rewrapped(fn(&str) -> String),
}

/// The envelope contains no message.
#[derive(Debug)]
pub(in crate::batch) struct NothingInside;

impl fmt::Display for NothingInside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the envelope contains no message")
    }
}

impl Error for NothingInside {}

/// Shows no body.
impl<B> fmt::Debug for Opened<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Opened<B> {
    fn as_ref(&self) -> &[u8] {
        match &self.content {
            Inside::Message { compared: Some(compared), .. } => compared.as_bytes(),
            _ => self.body.as_ref(),
        }
    }
}

impl<B> Opened<B> {
    /// Returns the message's body.
    ///
    /// # Errors
    ///
    /// If there is none.
    fn message(&self) -> Result<&B, BoxError> {
        match &self.content {
            Inside::Message { .. } => Ok(&self.body),
            Inside::Nothing => Err(NothingInside.into()),
            Inside::Malformed(error) => Err(error.clone().into()),
            Inside::Unknown => Err(Panicked.into()),
        }
    }
}

impl<S, E> Source for Unwrapped<S, E>
where
    S: Source,
    S::Body: From<String>,
    E: Envelope,
{
    type Event = S::Event;
    type Record = UnwrappedRecord<S::Body>;
    type Rest = S::Rest;
    type Body = Opened<S::Body>;
    type Response = S::Response;

    const OPERATION: &'static str = S::OPERATION;
    const WAITS_FOR_LEASE: bool = S::WAITS_FOR_LEASE;
    const REPORTING: FailureReporting = S::REPORTING;

    fn split(&self, event: S::Event) -> Result<(Vec<Self::Record>, S::Rest), OnceError> {
        let (records, rest) = self.source.split(event)?;
        let mut messages = Vec::with_capacity(records.len());
        for record in records {
            let lane = self.source.lane(&record).map(Arc::from);
            let (info, body) = self.source.open(record);
            // This may be user code.
            let content = catch_panic(|| self.envelope.open(body.as_ref()));
            take_out(lane, info, body, content, &mut messages);
        }
        Ok((messages, rest))
    }

    fn lane<'a>(&self, record: &'a Self::Record) -> Option<Cow<'a, str>> {
        record.lane.as_deref().map(Cow::Borrowed)
    }

    fn open(&self, record: Self::Record) -> (RecordInfo, Self::Body) {
        (record.info, record.body)
    }

    fn messaging<'a>(&self, record: &'a RecordInfo) -> Messaging<'a> {
        self.source.messaging(record)
    }

    fn received(opened: &Self::Body) -> &[u8] {
        opened.body.as_ref()
    }

    fn dead_letter(opened: Self::Body) -> Vec<u8> {
        match opened.content {
            Inside::Message { dead_letter: DeadLetter::Record(record), .. } => S::dead_letter(record),
            Inside::Message { dead_letter: DeadLetter::Rewrapped(rewrap), .. } => {
                rewrap(&String::from_utf8_lossy(opened.body.as_ref())).into_bytes()
            }
            _ => S::dead_letter(opened.body),
        }
    }

    fn respond(&self, rest: S::Rest, failed: &[Arc<RecordInfo>]) -> Result<S::Response, OnceError> {
        self.source.respond(rest, failed)
    }
}

/// Makes records of the messages in a record's body.
fn take_out<B: From<String>>(
    lane: Option<Arc<str>>,
    info: RecordInfo,
    body: B,
    content: Option<Result<Content, EnvelopeError>>,
    records: &mut Vec<UnwrappedRecord<B>>,
) {
    let whole = |body, content| Opened { body, content };
    let body = match content {
        Some(Ok(Content::Messages(messages))) if !messages.is_empty() => match check_ids(&messages) {
            Ok(()) => return take_out_messages(&lane, info, body, messages, records),
            Err(error) => whole(body, Inside::Malformed(error)),
        },
        Some(Ok(Content::Bare)) => whole(body, Inside::Message { compared: None, dead_letter: DeadLetter::Body }),
        Some(Ok(Content::Nothing | Content::Messages(_))) => whole(body, Inside::Nothing),
        Some(Err(error)) => whole(body, Inside::Malformed(error)),
        None => whole(body, Inside::Unknown),
    };
    records.push(UnwrappedRecord { lane, info, body });
}

/// Checks that the messages of one envelope can be distinguished by their ids. Two with the same id are duplicates if
/// their payloads are equal (compared as JSON if they are JSON).
fn check_ids(messages: &[Message]) -> Result<(), EnvelopeError> {
    if messages.len() < 2 {
        return Ok(());
    }
    let mut payloads = HashMap::with_capacity(messages.len());
    for message in messages {
        let Some(id) = message.id.as_deref().filter(|id| !id.is_empty()) else {
            let text = "the envelope holds several messages, and one has no id: their keys could be equal";
            return Err(EnvelopeError::new(text));
        };
        let payload = message.compared.as_ref().unwrap_or(&message.body);
        let first: &str = payloads.entry(id).or_insert(payload);
        if !is_same(first, payload) {
            let text = "the envelope gives two messages with different payloads the same id: their keys could be equal";
            return Err(EnvelopeError::new(text));
        }
    }
    Ok(())
}

fn is_same(first: &str, second: &str) -> bool {
    let form = |text: &str| canonical(text.as_bytes()).ok();
    first == second || form(first).is_some_and(|first| form(second) == Some(first))
}

fn take_out_messages<B: From<String>>(
    lane: &Option<Arc<str>>,
    mut info: RecordInfo,
    body: B,
    messages: Vec<Message>,
    records: &mut Vec<UnwrappedRecord<B>>,
) {
    let last = messages.len() - 1;
    let mut record = Some(body).filter(|_| last == 0);
    for (i, message) in messages.into_iter().enumerate() {
        let Message { body, compared, id, attributes, headers, binary_headers, rewrap } = message;
        let mut info = if i == last { std::mem::replace(&mut info, RecordInfo::new("")) } else { info.clone() };
        if let Some(id) = id {
            info = info.with_message_id(id);
        }
        for (name, text) in attributes {
            info = info.with_inner_attribute(name, text);
        }
        for (name, text) in headers {
            info = info.with_header(name, text);
        }
        for (name, bytes) in binary_headers {
            info = info.with_header_bytes(name, bytes);
        }
        let dead_letter = match (record.take(), rewrap) {
            (Some(record), _) => DeadLetter::Record(record),
            (None, Some(rewrap)) => DeadLetter::Rewrapped(rewrap),
            (None, None) => DeadLetter::Body,
        };
        let content = Inside::Message { compared, dead_letter };
        records.push(UnwrappedRecord { lane: lane.clone(), info, body: Opened { body: B::from(body), content } });
    }
}

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// Takes each message out of its [envelope](super), outermost first. Key, payload, the handler's type, attributes
    /// and headers come from the message inside. The response and the log name the record around it.
    ///
    /// ```
    /// # #[cfg(feature = "sqs")] {
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore, batch::envelope::Sns};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Order { order_id: String }
    ///
    /// async fn book(order: Order) -> Result<(), Failure> {
    ///     Ok(())
    /// }
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// // A queue subscribed to a topic, with or without raw message delivery.
    /// let service = once.sqs(Key::pointer("/order_id"), book).envelope(Sns);
    /// # assert!(service.validate().is_ok());
    /// # }
    /// ```
    pub fn envelope<E>(self, envelope: E) -> BatchService<Unwrapped<S, E>, H, T, Args>
    where
        S::Body: From<String>,
        E: Envelope,
        T: 'static,
    {
        let wrap = |source| Unwrapped { source, envelope };
        self.wrapped(wrap, |decode| Arc::new(move |info, opened: &Opened<S::Body>| decode(info, opened.message()?)))
    }
}
