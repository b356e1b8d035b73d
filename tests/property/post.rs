//! Where records come from: SQS as it is, and shards and partitions of a source of the test's own.

use std::{borrow::Cow, sync::Arc};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use lambda_once::{
    Error, ErrorKind, ErrorStatus,
    batch::{RecordInfo, Source, sqs::Sqs},
};

use crate::{
    plan::{Body, Origin, Plan, Record},
    plants::Plant,
};

/// A record that is in no event of SQS.
#[derive(Debug)]
pub(crate) struct Parcel {
    id: String,
    lane: Option<String>,
    place: String,
    receive_count: u32,
    body: String,
}

pub(crate) enum Event {
    Sqs(SqsEvent),
    Parcels(Vec<Parcel>),
}

pub(crate) enum Item {
    Sqs(Box<SqsMessage>),
    Parcel(Parcel),
}

/// Delivers what a plan says. It tells the truth, unless a lie is planted.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    is_sqs: bool,
    plant: Option<Plant>,
}

impl Post {
    pub(crate) fn new(plan: &Plan, plant: Option<Plant>) -> Self {
        Self { is_sqs: plan.origin.is_sqs(), plant }
    }

    /// What is answered by one that lies.
    fn lie(&self, failed: &[Arc<RecordInfo>]) -> Vec<Arc<RecordInfo>> {
        let mut failed = failed.to_vec();
        match self.plant {
            Some(Plant::WrongIdentifier) => {
                failed.iter_mut().take(1).for_each(|info| *info = Arc::new(RecordInfo::new(next(info.id()))));
            }
            Some(Plant::EmptyIdentifier) => {
                failed.iter_mut().take(1).for_each(|info| *info = Arc::new(RecordInfo::new("")));
            }
            Some(Plant::FailureForgotten) => drop(failed.pop()),
            _ => {}
        }
        failed
    }
}

/// The id of another record.
fn next(id: &str) -> String {
    name(id[1..].parse::<usize>().unwrap() + 1)
}

pub(crate) fn name(id: usize) -> String {
    format!("m{id}")
}

pub(crate) fn key_name(key: usize) -> String {
    format!("order-{key}")
}

/// What the record's body is. One that cannot be decoded is told by its first letter.
fn body(record: &Record) -> String {
    match record.body {
        Body::Order { key, note } => format!(r#"{{"order_id":"{}","note":{note}}}"#, key_name(key)),
        Body::NoKey => r#"{"note":0}"#.to_owned(),
        Body::Poison => "poison".to_owned(),
    }
}

/// The records at these places of the plan, as one event; each says where in the event and in the plan it is.
pub(crate) fn event(plan: &Plan, places: &[usize], again: u32) -> Event {
    let records = places.iter().enumerate().map(|(place, &at)| {
        let record = &plan.records[at];
        (record, format!("{place} {at}"), record.receive_count + again)
    });
    if !plan.origin.is_sqs() {
        return Event::Parcels(
            records
                .map(|(record, place, receive_count)| Parcel {
                    id: record.id.map_or_else(String::new, name),
                    lane: plan.lane(record).map(|lane| lane.to_string()),
                    place,
                    receive_count,
                    body: body(record),
                })
                .collect(),
        );
    }
    let suffix = if plan.origin == Origin::Fifo { ".fifo" } else { "" };
    let messages = records.map(|(record, place, receive_count)| {
        let mut message = SqsMessage::default();
        message.message_id = record.id.map(name);
        message.body = Some(body(record));
        message.event_source_arn = Some(format!("arn:aws:sqs:us-east-1:123456789012:orders{suffix}"));
        // A fair queue has groups too, and no order.
        message.attributes.insert("MessageGroupId".to_owned(), record.group.to_string());
        message.attributes.insert("ApproximateReceiveCount".to_owned(), receive_count.to_string());
        message.attributes.insert("Place".to_owned(), place);
        message
    });
    let mut event = SqsEvent::default();
    event.records = messages.collect();
    Event::Sqs(event)
}

impl Source for Post {
    type Event = Event;
    type Record = Item;
    type Envelope = ();
    type Body = String;
    type Response = Vec<String>;

    const OPERATION: &'static str = "property";

    fn split(&self, event: Event) -> Result<(Vec<Item>, ()), Error> {
        match event {
            Event::Sqs(event) => {
                let (messages, ()) = Sqs::default().split(event)?;
                Ok((messages.into_iter().map(|message| Item::Sqs(Box::new(message))).collect(), ()))
            }
            Event::Parcels(parcels) if parcels.iter().any(|parcel| parcel.id.is_empty()) => {
                Err(Error::new(ErrorKind::Event, ErrorStatus::Temporary, "receive", "a parcel has no number"))
            }
            Event::Parcels(parcels) => Ok((parcels.into_iter().map(Item::Parcel).collect(), ())),
        }
    }

    fn lane<'a>(&self, item: &'a Item) -> Option<Cow<'a, str>> {
        if self.plant == Some(Plant::OrderIgnored) {
            return None;
        }
        match item {
            Item::Sqs(message) => Sqs::default().lane(message),
            Item::Parcel(parcel) => parcel.lane.as_deref().map(Cow::Borrowed),
        }
    }

    fn open(&self, item: Item) -> (RecordInfo, String) {
        match item {
            Item::Sqs(message) => Sqs::default().open(*message),
            Item::Parcel(Parcel { id, place, receive_count, body, .. }) => {
                (RecordInfo::new(id).with_receive_count(receive_count).with_attribute("Place", place), body)
            }
        }
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<Vec<String>, Error> {
        let failed = self.lie(failed);
        if self.is_sqs {
            let response = Sqs::default().respond((), &failed)?;
            return Ok(response.batch_item_failures.into_iter().map(|failure| failure.item_identifier).collect());
        }
        Ok(failed.iter().map(|info| info.id().to_owned()).collect())
    }
}
