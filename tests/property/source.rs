//! The source of a plan's records: SQS, and a custom source with shards and partitions.

use std::{borrow::Cow, sync::Arc};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::{
    Error, ErrorKind, ErrorStatus,
    batch::{
        FailureReporting, RecordInfo, Source,
        envelope::{Content, Envelope, EnvelopeError, Message, Sns},
        sqs::Sqs,
    },
};
use serde_json::{Value, json};

use crate::{
    plan::{Body, Plan, Record, SourceKind, Waiting},
    planted_bugs::PlantedBug,
};

/// A record of the custom source.
#[derive(Debug)]
pub(crate) struct PlainRecord {
    id: String,
    lane: Option<String>,
    place: String,
    receive_count: u32,
    body: String,
}

pub(crate) enum TestEvent {
    Sqs(SqsEvent),
    Plain(Vec<PlainRecord>),
}

pub(crate) enum TestRecord {
    Sqs(Box<SqsMessage>),
    Plain(PlainRecord),
}

/// The source of a plan's records. `WAITING` is the number of a [`Waiting`].
#[derive(Clone, Debug)]
pub(crate) struct TestSource<const WAITING: u8> {
    is_sqs: bool,
    bug: Option<PlantedBug>,
}

impl<const WAITING: u8> TestSource<WAITING> {
    pub(crate) fn new(plan: &Plan, bug: Option<PlantedBug>) -> Self {
        Self { is_sqs: plan.source.is_sqs(), bug }
    }

    /// Returns the failures for the response.
    fn answered(&self, failed: &[Arc<RecordInfo>]) -> Vec<Arc<RecordInfo>> {
        let mut failed = failed.to_vec();
        match self.bug {
            Some(PlantedBug::WrongIdentifier) => {
                failed.iter_mut().take(1).for_each(|info| *info = Arc::new(RecordInfo::new(next_id(info.id()))));
            }
            Some(PlantedBug::EmptyIdentifier) => {
                failed.iter_mut().take(1).for_each(|info| *info = Arc::new(RecordInfo::new("")));
            }
            Some(PlantedBug::FailureForgotten) => drop(failed.pop()),
            Some(PlantedBug::FailuresReversed) => failed.reverse(),
            _ => {}
        }
        failed
    }
}

/// Returns the id of the next record.
fn next_id(id: &str) -> String {
    id_of(id[1..].parse::<usize>().unwrap() + 1)
}

pub(crate) fn id_of(id: usize) -> String {
    format!("m{id}")
}

pub(crate) fn key_name(key: usize) -> String {
    format!("order-{key}")
}

/// Returns the text of a body. Its first letter marks one that the decoder rejects.
fn body(record: &Record) -> String {
    let trace = if record.trace == 0 { String::new() } else { format!(r#","trace":{}"#, record.trace) };
    match record.body {
        Body::Order { key, note } => format!(r#"{{"order_id":"{}","note":{note}{trace}}}"#, key_name(key)),
        Body::NoKey => format!(r#"{{"note":0{trace}}}"#),
        Body::Poison => "poison".to_owned(),
        Body::PoisonForNow => "for now".to_owned(),
        Body::PoisonPanics => "panic".to_owned(),
        Body::Ping => "ping".to_owned(),
        Body::PingPanics => "ping, and panic".to_owned(),
    }
}

/// Returns the body of a record, in a notification that is unique to this delivery if the plan has envelopes.
fn wrapped(plan: &Plan, record: &Record, place: &str, delivery: u32) -> String {
    let body = body(record);
    if !plan.settings.envelopes {
        return body;
    }
    let notification = json!({
        "Type": "Notification",
        "MessageId": format!("{delivery} {place}"),
        "TopicArn": "arn:aws:sns:us-east-1:123456789012:orders",
        "Timestamp": "2026-11-23T10:00:00.000Z",
        "Message": body,
    });
    notification.to_string()
}

/// The SNS envelope.
#[derive(Clone, Debug)]
pub(crate) struct TestEnvelope {
    pub(crate) bug: Option<PlantedBug>,
}

impl Envelope for TestEnvelope {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        if self.bug != Some(PlantedBug::EnvelopeCompared) {
            return Sns.open(body);
        }
        let around: Value = serde_json::from_slice(body).unwrap();
        let [id, inner] = ["MessageId", "Message"].map(|name| around[name].as_str().unwrap());
        let compared = inner.replace('}', &format!(r#","around":"{id}"}}"#));
        Ok(Content::Messages(vec![Message::new(inner).with_id(id).compared_by(compared)]))
    }
}

/// Builds one event of the records at these places of the plan. Each contains its place in the event and in the plan.
pub(crate) fn event(plan: &Plan, places: &[usize], delivery: u32) -> TestEvent {
    let records = places.iter().enumerate().map(|(place, &at)| {
        let record = &plan.records[at];
        let place = format!("{place} {at}");
        let body = wrapped(plan, record, &place, delivery);
        (record, place, record.receive_count + delivery, body)
    });
    if !plan.source.is_sqs() {
        return TestEvent::Plain(
            records
                .map(|(record, place, receive_count, body)| PlainRecord {
                    id: record.id.map_or_else(String::new, id_of),
                    lane: plan.lane(record).map(|lane| lane.to_string()),
                    place,
                    receive_count,
                    body,
                })
                .collect(),
        );
    }
    let suffix = if plan.source == SourceKind::Fifo { ".fifo" } else { "" };
    let messages = records.map(|(record, place, receive_count, body)| {
        let mut message = SqsMessage::default();
        message.message_id = record.id.map(id_of);
        message.body = Some(body);
        message.event_source_arn = Some(format!("arn:aws:sqs:us-east-1:123456789012:orders{suffix}"));
        // A fair queue has groups too, but no order.
        message.attributes.insert("MessageGroupId".to_owned(), record.group.to_string());
        message.attributes.insert("ApproximateReceiveCount".to_owned(), receive_count.to_string());
        message.attributes.insert("Place".to_owned(), place);
        message
    });
    let mut event = SqsEvent::default();
    event.records = messages.collect();
    TestEvent::Sqs(event)
}

impl<const WAITING: u8> Source for TestSource<WAITING> {
    type Event = TestEvent;
    type Record = TestRecord;
    type Rest = ();
    type Body = String;
    type Response = Vec<String>;

    const OPERATION: &'static str = "property";
    const WAITS_FOR_LEASE: bool = WAITING != Waiting::OrderedOnly as u8;
    const REPORTING: FailureReporting = if WAITING == Waiting::AllOrNothing as u8 {
        FailureReporting::AllOrNothing
    } else {
        FailureReporting::EachRecord
    };

    fn split(&self, event: TestEvent) -> Result<(Vec<TestRecord>, ()), Error> {
        let accepts_nameless = self.bug == Some(PlantedBug::NamelessAccepted);
        match event {
            TestEvent::Sqs(mut event) => {
                for message in event.records.iter_mut().filter(|_| accepts_nameless) {
                    message.message_id.get_or_insert_with(|| "invented".to_owned());
                }
                let (messages, ()) = Sqs.split(event)?;
                Ok((messages.into_iter().map(|message| TestRecord::Sqs(Box::new(message))).collect(), ()))
            }
            TestEvent::Plain(records) if !accepts_nameless && records.iter().any(|record| record.id.is_empty()) => {
                Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", "a record has no id"))
            }
            TestEvent::Plain(records) => Ok((records.into_iter().map(TestRecord::Plain).collect(), ())),
        }
    }

    fn lane<'a>(&self, record: &'a TestRecord) -> Option<Cow<'a, str>> {
        if self.bug == Some(PlantedBug::OrderIgnored) {
            return None;
        }
        match record {
            TestRecord::Sqs(message) => Sqs.lane(message),
            TestRecord::Plain(record) => record.lane.as_deref().map(Cow::Borrowed),
        }
    }

    fn open(&self, record: TestRecord) -> (RecordInfo, String) {
        let (info, body) = match record {
            TestRecord::Sqs(message) => Sqs.open(*message),
            TestRecord::Plain(PlainRecord { id, place, receive_count, body, .. }) => {
                (RecordInfo::new(id).with_receive_count(receive_count).with_attribute("Place", place), body)
            }
        };
        match self.bug {
            Some(PlantedBug::LastReceiveHidden) => (info.with_receive_count(1), body),
            // Records at an odd place in the event get distinct keys.
            Some(PlantedBug::DuplicatesHidden)
                if info.attribute("Place").is_some_and(|place| {
                    place.split(' ').next().is_some_and(|place| place.ends_with(['1', '3', '5', '7', '9']))
                }) =>
            {
                (info, body.replace("order-", "other-"))
            }
            _ => (info, body),
        }
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<Vec<String>, Error> {
        let failed = self.answered(failed);
        if Self::REPORTING == FailureReporting::AllOrNothing && !failed.is_empty() {
            return Err(Error::new(ErrorKind::Batch, ErrorStatus::Temporary, "answer", "a record failed"));
        }
        if self.is_sqs {
            let response = Sqs.respond((), &failed)?;
            return Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect());
        }
        Ok(failed.iter().map(|info| info.id().to_owned()).collect())
    }
}
