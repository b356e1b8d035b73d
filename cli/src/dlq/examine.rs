//! Messages with their records, and the effect of a redrive on each.

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use lambda_once::{
    clock::{Clock, SystemClock, Timestamp},
    record::{KeyHash, Record},
    store::ResultData,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    message::Message,
    selector::{self, Selector},
};
use crate::{
    args::Dlq,
    result,
    settings::Settings,
    state::State,
    store::{self, Records},
    time::{instant, span},
};

/// A message and its operation.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) message: Message,
    /// The plain key, as JSON.
    pub(crate) key: Option<String>,
    pub(crate) operation: Result<Found, String>,
    /// Whether a copy of the message is recognized as a duplicate: its key is known, and is not the message's id.
    pub(crate) is_protected: bool,
}

/// The record of a message's operation.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) hash: KeyHash,
    pub(crate) state: State,
    pub(crate) record: Option<Record>,
}

/// Reads keys from messages, and their records from the store.
pub(crate) struct Examiner<'a> {
    settings: &'a Settings,
    /// `None` if no store is known. States are then unknown.
    store: Option<&'a dyn Records>,
    selectors: &'a [Selector],
    operation: &'a str,
}

impl<'a> Examiner<'a> {
    pub(crate) fn new(dlq: &'a Dlq, settings: &'a Settings, store: Option<&'a dyn Records>) -> Self {
        Self { settings, store, selectors: &dlq.selectors, operation: &dlq.operation }
    }

    /// Examines messages.
    ///
    /// # Errors
    ///
    /// Returns the errors of the store, or an error if no scope is set.
    pub(crate) async fn examine(&self, messages: Vec<Message>) -> Result<Vec<Examined>> {
        let mut keys = Vec::with_capacity(messages.len());
        for message in &messages {
            keys.push(self.key(message).await?);
        }
        let hashes: Vec<_> = keys.iter().filter_map(|(_, hash)| hash.as_ref().ok().copied()).collect();
        let mut records = match self.store {
            Some(store) => store::read(store, &hashes, ResultData::Include).await?,
            None => Vec::new(),
        }
        .into_iter();
        let by_message_id = self.keyed_by_message_id(&messages).await?;
        let now = SystemClock.now();
        let examined = messages.into_iter().zip(keys).map(|(message, (key, hash))| {
            let operation = hash.and_then(|hash| {
                self.settings.store().map_err(|why| why.to_string())?;
                let record = records.next().flatten();
                if by_message_id.contains(&message.id) {
                    return Err("its message id has a record, and seems to be the key: check --selector".to_owned());
                }
                Ok(Found { hash, state: State::of(record.as_ref(), self.settings.margin, now), record })
            });
            let is_protected = operation.is_ok() && !self.is_by_message_id();
            Examined { message, key, operation, is_protected }
        });
        Ok(examined.collect())
    }

    /// Returns the ids of the messages whose ids have records, which the selectors contradict. A message that names its record needs
    /// no such look.
    async fn keyed_by_message_id(&self, messages: &[Message]) -> Result<HashSet<String>> {
        let Some(store) = self.store.filter(|_| !self.is_by_message_id()) else { return Ok(HashSet::new()) };
        let messages: Vec<_> = messages.iter().filter(|message| message.hash().is_none()).collect();
        let mut hashes = Vec::with_capacity(messages.len());
        for message in &messages {
            hashes.push(store::hash(self.settings, self.operation, message.original_id()).await?);
        }
        let records = store::read(store, &hashes, ResultData::Omit).await?;
        let found = messages.iter().zip(records).filter(|(_, record)| record.is_some());
        Ok(found.map(|(message, _)| message.id.clone()).collect())
    }

    /// Returns whether the key may be the message's id. Without a selector only the hash of the key is known.
    fn is_by_message_id(&self) -> bool {
        self.selectors.is_empty() || self.selectors.contains(&Selector::MessageId)
    }

    /// Returns the plain key of a message, and its hash or the reason that it has none.
    async fn key(&self, message: &Message) -> Result<(Option<String>, Result<KeyHash, String>)> {
        if self.selectors.is_empty() {
            let hash = message.hash().ok_or_else(|| "the key is not known: give --selector".to_owned());
            return Ok((None, hash));
        }
        let key = match selector::key(self.selectors, message) {
            Ok(key) => key,
            Err(error) => return Ok((None, Err(format!("{error:#}")))),
        };
        self.settings.scope()?;
        let hash = store::hash(self.settings, self.operation, &key).await.map_err(|error| format!("{error:#}"));
        let hash = hash.and_then(|hash| match message.hash() {
            Some(used) if used != hash => {
                Err("the function used another key: check --selector, --operation, --scope and --tenant".to_owned())
            }
            _ => Ok(hash),
        });
        Ok((Some(key.get().to_owned()), hash))
    }
}

/// A message as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct View<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    /// The ARN of the queue that it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    receives: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    state: &'a str,
    /// The effect of a redrive.
    redrive: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Examined {
    /// Returns the state of the operation, or `unknown`.
    pub(crate) fn state(&self) -> &'static str {
        self.operation.as_ref().map_or("unknown", |found| found.state.as_str())
    }

    pub(crate) fn age(&self, now: Timestamp) -> Duration {
        self.message.sent_at().map_or(Duration::ZERO, |at| now.since(at))
    }

    /// Returns the effect of a redrive.
    pub(crate) fn effect(&self) -> &str {
        match &self.operation {
            Err(why) => why,
            Ok(found) => match found.state {
                State::Absent => "runs, as the first delivery does",
                State::Running | State::Foreign => "is reported as in progress, and redelivered",
                State::Abandoned | State::HandedBack => "runs under `Rerun`, is refused as abandoned under `Refuse`",
                State::Released => "runs, and the handler sees a takeover (`took_over()`)",
                State::Failed => "is refused, because its failure is replayed: forget its record first",
                State::Done => "is acknowledged without running",
                State::Superseded => "is acknowledged without running: a newer one took effect",
            },
        }
    }

    /// Returns the name of the operation, as the record has it.
    pub(crate) fn operation_name(&self) -> Option<&str> {
        self.record().and_then(|record| record.operation.as_deref())
    }

    fn record(&self) -> Option<&Record> {
        self.operation.as_ref().ok().and_then(|found| found.record.as_ref())
    }

    /// Returns the text of a recorded failure.
    fn failure(&self) -> Option<String> {
        let found = self.operation.as_ref().ok().filter(|found| found.state == State::Failed)?;
        let text = result::text(&found.record.as_ref()?.result).ok()?.ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        value["error"].as_str().map(str::to_owned)
    }

    /// Returns the message for a list. `with_failure` includes the text of a failure.
    pub(crate) fn view(&self, with_failure: bool) -> View<'_> {
        View {
            id: &self.message.id,
            group: self.message.group(),
            source: self.message.source(),
            receives: self.message.receives(),
            sent_at: self.message.sent_at().map(instant),
            key: self.key.as_deref(),
            record: self.operation.as_ref().ok().map(|found| found.hash.to_hex()),
            operation: self.operation_name(),
            state: self.state(),
            redrive: self.effect(),
            reason: self.message.reason(),
            failure: if with_failure { self.failure() } else { None },
        }
    }

    /// Returns the message as a row of a table.
    pub(crate) fn row(&self, with_failure: bool, now: Timestamp) -> [String; 7] {
        let view = self.view(with_failure);
        let reason = [view.reason.map(str::to_owned), view.failure].into_iter().flatten().collect::<Vec<_>>();
        [
            view.state.to_owned(),
            view.operation.unwrap_or("-").to_owned(),
            view.key.unwrap_or("-").to_owned(),
            span(self.age(now)),
            view.receives.to_string(),
            view.id.to_owned(),
            format!("{}{}", view.redrive, reason.iter().map(|text| format!("; {text}")).collect::<String>()),
        ]
    }
}
