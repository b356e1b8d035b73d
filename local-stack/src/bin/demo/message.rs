//! A message of a queue, and its expected outcome, determined from its record and the records before it alone.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::body::{Body, Function, Simulation, Trouble};

/// The queues' `maxReceiveCount`: a message received that often and not deleted is dead-lettered.
pub(crate) const MAX_RECEIVES: u32 = 5;

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Deleted by SQS after it was handled.
    Deleted,
    /// In the dead-letter queue.
    DeadLettered,
}

/// One record of an SQS event.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Its `messageId`.
    pub(crate) id: String,
    /// The record in the file.
    pub(crate) record: Value,
    /// Its description in a few words.
    pub(crate) what: String,
    /// The id of the order or the payout, if the body is one.
    pub(crate) key: Option<String>,
    /// Its message group, if the queue is FIFO.
    pub(crate) group: Option<String>,
    /// Its expected end.
    pub(crate) expected: Fate,
    /// Whether an earlier message has the same key.
    pub(crate) follows: bool,
}

/// The messages of a function so far.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// The first body under each key, and the fate of its message.
    bodies: HashMap<String, (Body, Fate)>,
    /// The groups that a message blocks while it is being delivered.
    held_up: HashSet<String>,
}

impl Message {
    /// Reads a record for `function`.
    pub(crate) fn parse(record: &Value, function: Function, earlier: &mut Earlier) -> Result<Self> {
        let text = |pointer| record.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let id = text("/messageId").context("a record has no `messageId`")?.to_owned();
        let group = match function.is_fifo() {
            true => Some(text("/attributes/MessageGroupId").context("a record has no `MessageGroupId`")?.to_owned()),
            false => None,
        };
        let body = function.read(text("/body").unwrap_or_default());
        let (what, mut expected) = earlier.judge(function.operation(), body.as_ref());
        // It is delivered as often as the message before it that is never deleted.
        if group.as_ref().is_some_and(|group| earlier.held_up.contains(group)) {
            expected = Fate::DeadLettered;
        }
        if expected == Fate::DeadLettered {
            earlier.held_up.extend(group.clone());
        }
        let key = body.as_ref().map(|body| body.key.clone());
        let follows = key.as_ref().is_some_and(|key| earlier.bodies.contains_key(key));
        if let Some(body) = body.filter(|_| !follows) {
            earlier.bodies.insert(body.key.clone(), (body, expected));
        }
        Ok(Self { id, record: record.clone(), what, key, group, expected, follows })
    }
}

impl Earlier {
    /// Returns the description of a message with this body, and its expected end if no message before it is in its way.
    fn judge(&self, operation: &str, body: Option<&Body>) -> (String, Fate) {
        let Some(body) = body else {
            let article = if operation.starts_with('o') { "an" } else { "a" };
            return (format!("not {article} {operation}"), Fate::DeadLettered);
        };
        match self.bodies.get(&body.key) {
            Some((first, fate)) if first == body => (format!("the same {operation} again"), *fate),
            Some(_) => ("same key, other body".to_owned(), Fate::DeadLettered),
            None => alone(operation, body.simulate.as_ref()),
        }
    }
}

/// The same for the first message of its key.
fn alone(operation: &str, simulate: Option<&Simulation>) -> (String, Fate) {
    let Some(Simulation { outcome: Some(trouble), until_receive, .. }) = simulate else {
        let slow = simulate.and_then(|simulate| simulate.delay).is_some_and(|delay| delay > 0);
        return (format!("{} {operation}", if slow { "slow" } else { "new" }), Fate::Deleted);
    };
    // A permanent failure is remembered, so that it does not matter how long it would last.
    let passes = until_receive.is_some_and(|last| last < MAX_RECEIVES) && *trouble != Trouble::Permanent;
    let what = match (trouble, passes) {
        (Trouble::Permanent, _) => "fails permanently",
        (Trouble::Transient, true) => "fails at first",
        (Trouble::Transient, false) => "fails every time",
        (Trouble::Panic, true) => "panics at first",
        (Trouble::Panic, false) => "panics every time",
        (Trouble::Hang, true) => "hangs at first",
        (Trouble::Hang, false) => "hangs every time",
    };
    (what.to_owned(), if passes { Fate::Deleted } else { Fate::DeadLettered })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(id: &str, amount: u64, simulate: &Value) -> String {
        let mut body = json!({ "order_id": id, "customer_id": "c", "amount_cents": amount, "currency": "EUR" });
        if !simulate.is_null() {
            body["simulate"] = simulate.clone();
        }
        body.to_string()
    }

    #[test]
    fn the_fate_follows_from_the_body_and_from_earlier_orders() {
        let none = Value::Null;
        let cases = [
            (order("1", 5, &none), "new order", Fate::Deleted),
            (order("1", 5, &none), "the same order again", Fate::Deleted),
            (order("1", 6, &none), "same key, other body", Fate::DeadLettered),
            ("no order".to_owned(), "not an order", Fate::DeadLettered),
            (order("2", 5, &json!({ "outcome": "odd" })), "not an order", Fate::DeadLettered),
            (order("2", 5, &json!({ "delay_ms": 9 })), "slow order", Fate::Deleted),
            (order("3", 5, &json!({ "outcome": "transient", "until_receive": 1 })), "fails at first", Fate::Deleted),
            (order("4", 5, &json!({ "outcome": "transient" })), "fails every time", Fate::DeadLettered),
            (
                order("5", 5, &json!({ "outcome": "permanent", "until_receive": 1 })),
                "fails permanently",
                Fate::DeadLettered,
            ),
            (
                order("5", 5, &json!({ "outcome": "permanent", "until_receive": 1 })),
                "the same order again",
                Fate::DeadLettered,
            ),
            (order("6", 5, &json!({ "outcome": "panic", "until_receive": 1 })), "panics at first", Fate::Deleted),
            (order("7", 5, &json!({ "outcome": "hang", "until_receive": 5 })), "hangs every time", Fate::DeadLettered),
        ];
        let mut earlier = Earlier::default();
        for (body, what, expected) in cases {
            let record = json!({ "messageId": "m", "body": body });
            let message = Message::parse(&record, Function::Orders, &mut earlier).unwrap();
            assert_eq!((message.what.as_str(), message.expected), (what, expected), "{body}");
        }
        assert!(Message::parse(&json!({ "messageId": "", "body": "" }), Function::Orders, &mut earlier).is_err());
    }

    #[test]
    fn messages_behind_a_dead_lettered_one_of_their_group_follow_it() {
        let payout = |id: &str, group: &str, simulate: Value| {
            let mut body = json!({ "payout_id": id, "seller_id": "s", "amount_cents": 1, "currency": "EUR" });
            body["simulate"] = simulate;
            json!({ "messageId": "m", "body": body.to_string(), "attributes": { "MessageGroupId": group } })
        };
        let passing = json!({ "outcome": "transient", "until_receive": 1 });
        let cases = [
            (payout("1", "a", passing), "fails at first", Fate::Deleted),
            (payout("2", "a", json!({ "outcome": "permanent" })), "fails permanently", Fate::DeadLettered),
            (payout("3", "a", Value::Null), "new payout", Fate::DeadLettered),
            (payout("4", "b", Value::Null), "new payout", Fate::Deleted),
        ];
        let mut earlier = Earlier::default();
        for (record, what, expected) in cases {
            let message = Message::parse(&record, Function::Payouts, &mut earlier).unwrap();
            assert_eq!((message.what.as_str(), message.expected), (what, expected), "{record}");
        }
        let no_group = json!({ "messageId": "m", "body": "" });
        assert!(Message::parse(&no_group, Function::Payouts, &mut earlier).is_err());
    }
}
