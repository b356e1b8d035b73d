//! A source of which the records are kept as the event has them.

use std::{borrow::Cow, sync::Arc};

use super::{Answer, RecordInfo, Source};
use crate::error::Error;

/// A source of which the records are kept as the event has them. Made by
/// [`BatchService::keep_raw`](super::BatchService::keep_raw).
#[derive(Clone, Debug)]
pub struct KeepRaw<S>(pub(super) S);

impl<S> Source for KeepRaw<S>
where
    S: Source,
    S::Record: Clone + Sync + 'static,
{
    type Event = S::Event;
    type Record = S::Record;
    type Envelope = S::Envelope;
    type Body = S::Body;
    type Response = S::Response;

    const OPERATION: &'static str = S::OPERATION;
    const WAITS_FOR_LEASE: bool = S::WAITS_FOR_LEASE;
    const ANSWER: Answer = S::ANSWER;

    fn split(&self, event: S::Event) -> Result<(Vec<S::Record>, S::Envelope), Error> {
        self.0.split(event)
    }

    fn lane<'a>(&self, record: &'a S::Record) -> Option<Cow<'a, str>> {
        self.0.lane(record)
    }

    fn open(&self, record: S::Record) -> (RecordInfo, S::Body) {
        let (info, body) = self.0.open(record.clone());
        (info.with_raw(record), body)
    }

    fn dead_letter(body: S::Body) -> Vec<u8> {
        S::dead_letter(body)
    }

    fn respond(&self, envelope: S::Envelope, failed: &[Arc<RecordInfo>]) -> Result<S::Response, Error> {
        self.0.respond(envelope, failed)
    }
}
