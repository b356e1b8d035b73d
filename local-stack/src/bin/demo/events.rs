//! The files in `events/`, and the outcome that each must have.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, fs,
    path::Path,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{
    body::Function,
    charge::{Charge, Request},
    message::{Earlier, Fate, Message},
};

/// An effect that may happen once: one key of one operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Effect {
    /// `order`, `payout` or `charge`, as in the ledger.
    pub(crate) operation: String,
    /// The order's or the payout's id, or the customer of a charge.
    pub(crate) key: String,
}

impl Effect {
    /// The effect of `operation` on `key`.
    pub(crate) fn new(operation: &str, key: &str) -> Self {
        Self { operation: operation.to_owned(), key: key.to_owned() }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.key)
    }
}

/// An SQS event: the messages of one batch.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The file's name.
    pub(crate) file: String,
    /// The function behind the queue.
    pub(crate) function: Function,
    /// Its records, in order.
    pub(crate) messages: Vec<Message>,
}

/// The prefixes of files with events of sources for which the demo has no function.
const OTHER_SOURCES: [&str; 7] = ["dynamodb-", "eventbridge", "http-", "kafka-", "kinesis-", "mq-", "sns"];

/// Everything the demo sends.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The files `sqs-batch*.json`, for `orders`, and `sqs-fifo*.json`, for `payouts`.
    pub(crate) batches: Vec<Batch>,
    /// The files `charge-*.json`, for `charges`.
    pub(crate) requests: Vec<Request>,
}

impl Events {
    /// Reads every file of the directory, in the order of their names.
    pub(crate) fn load(directory: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, text));
        }
        files.sort();
        Self::parse(files)
    }

    fn parse(files: Vec<(String, String)>) -> Result<Self> {
        let mut events = Self::default();
        let mut earlier: HashMap<Function, Earlier> = HashMap::new();
        let mut charges = HashMap::new();
        let mut ids = HashSet::new();
        for (file, text) in files {
            if OTHER_SOURCES.iter().any(|source| file.starts_with(source)) {
                continue;
            }
            let event: Value = serde_json::from_str(&text).with_context(|| file.clone())?;
            if let Some(function) = behind_queue(&file) {
                let earlier = earlier.entry(function).or_default();
                let messages = messages(&event, function, earlier).with_context(|| file.clone())?;
                for message in &messages {
                    ensure!(ids.insert(message.id.clone()), "{file}: messageId {} occurs twice", message.id);
                }
                events.batches.push(Batch { file, function, messages });
            } else if file.starts_with("charge-") {
                let charge = Charge::parse(&event).with_context(|| file.clone())?;
                let expected = charge.expect(&mut charges);
                events.requests.push(Request { file, event, charge, expected });
            } else {
                bail!("{file}: its name contains neither the function nor another source");
            }
        }
        for (function, files) in [(Function::Orders, "sqs-batch*.json"), (Function::Payouts, "sqs-fifo*.json")] {
            ensure!(events.batches.iter().any(|batch| batch.function == function), "there is no file {files}");
        }
        ensure!(!events.requests.is_empty(), "there is no file charge-*.json");
        Ok(events)
    }

    /// Counts the expected occurrences of each effect.
    pub(crate) fn effects(&self) -> BTreeMap<Effect, usize> {
        let mut effects = BTreeMap::new();
        let messages = self.batches.iter().flat_map(|batch| {
            batch.messages.iter().filter_map(|message| {
                let effect = Effect::new(batch.function.operation(), message.key.as_ref()?);
                Some((effect, usize::from(message.expected == Fate::Deleted)))
            })
        });
        let charges = self.requests.iter().filter_map(|request| {
            let effect = Effect::new("charge", request.charge.customer.as_ref()?);
            Some((effect, usize::from(request.expected.has_effect())))
        });
        for (effect, times) in messages.chain(charges) {
            let expected = effects.entry(effect).or_default();
            *expected = times.max(*expected);
        }
        effects
    }
}

impl Events {
    /// Returns the first message that requests an effect, with its number.
    pub(crate) fn first_message(&self, effect: &Effect) -> Option<(usize, &Message)> {
        let batches = self.batches.iter().filter(|batch| batch.function.operation() == effect.operation);
        let mut messages = batches.flat_map(|batch| (1..).zip(&batch.messages));
        messages.find(|(_, message)| message.key.as_deref() == Some(&effect.key))
    }

    /// Names an effect after the first message or request for it.
    pub(crate) fn name(&self, effect: &Effect) -> String {
        if let Some((number, message)) = self.first_message(effect) {
            let to = message.group.as_ref().map(|group| format!(", to {group}")).unwrap_or_default();
            return format!("{} {number}: {}{to}", effect.operation, message.what);
        }
        match self.requests.iter().find(|request| request.charge.customer.as_deref() == Some(&effect.key)) {
            Some(request) => format!("{effect}: {}", request.expected.what()),
            None => effect.to_string(),
        }
    }
}

/// The function that takes the event of a queue, by its file's name.
fn behind_queue(file: &str) -> Option<Function> {
    if file.starts_with("sqs-batch") {
        Some(Function::Orders)
    } else if file.starts_with("sqs-fifo") {
        Some(Function::Payouts)
    } else {
        None
    }
}

fn messages(event: &Value, function: Function, earlier: &mut Earlier) -> Result<Vec<Message>> {
    let records = event.get("Records").and_then(Value::as_array);
    let records = records.context("the event has no `Records`")?;
    records.iter().map(|record| Message::parse(record, function, earlier)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(name: &str, event: &Value) -> (String, String) {
        (name.to_owned(), event.to_string())
    }

    fn charge() -> Value {
        json!({ "httpMethod": "POST", "path": "/charges", "headers": { "idempotency-key": "k" },
                "body": r#"{"customer_id":"c","amount_cents":1,"currency":"EUR"}"# })
    }

    fn order(id: &str) -> Value {
        let body = r#"{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR"}"#;
        json!({ "messageId": id, "body": body })
    }

    fn payout(id: &str) -> Value {
        let body = r#"{"payout_id":"p","seller_id":"s","amount_cents":1,"currency":"EUR"}"#;
        json!({ "messageId": id, "attributes": { "MessageGroupId": "s" }, "body": body })
    }

    #[test]
    fn the_files_of_the_repository_are_taken() {
        let events = Events::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../events")).unwrap();
        assert_eq!((events.batches.len(), events.requests.len()), (2, 5));
    }

    #[test]
    fn every_file_is_taken_or_refused() {
        let batch = json!({ "Records": [order("a"), order("b")] });
        let fifo = json!({ "Records": [payout("c")] });
        let all = [file("charge-a.json", &charge()), file("sqs-batch-a.json", &batch), file("sqs-fifo-a.json", &fifo)];
        let with = |more: &[(String, String)]| Events::parse([&all[..], more].concat());
        let effects = [("charge", "c"), ("order", "o"), ("payout", "p")];
        let effects = effects.map(|(operation, key)| (Effect::new(operation, key), 1));
        assert_eq!(Vec::from_iter(with(&[]).unwrap().effects()), effects);
        assert!(with(&[file("kinesis-a.json", &json!({}))]).is_ok());
        assert!(with(&[file("other.json", &batch)]).is_err());
        assert!(with(&[file("sqs-batch-b.json", &json!({ "Records": [order("a")] }))]).is_err(), "an id occurs twice");
        for missing in 0..all.len() {
            let rest = all.iter().enumerate().filter(|(place, _)| *place != missing).map(|(_, file)| file.clone());
            assert!(Events::parse(rest.collect()).is_err(), "{}", all[missing].0);
        }
    }
}
