//! A message for `orders`, and what has to become of it, told from its body alone.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// The queue's `maxReceiveCount`: a message received that often and not deleted is dead-lettered.
pub(crate) const MAX_RECEIVES: u32 = 5;

/// The body that `orders` accepts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    order_id: String,
    customer_id: String,
    amount_cents: u64,
    currency: String,
    simulate: Option<Simulation>,
}

/// The trouble that a body asks the handler for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulation {
    /// What happens instead of the effect.
    pub(crate) outcome: Option<Trouble>,
    /// The last receive it happens on; absent means that it always happens.
    until_receive: Option<u32>,
    /// How long the handler takes.
    #[serde(rename = "delay_ms")]
    _delay: Option<u64>,
}

/// How a handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trouble {
    /// An error that may pass.
    Transient,
    /// An error that is remembered.
    Permanent,
    /// A panic.
    Panic,
    /// A handler that never returns.
    Hang,
}

/// Where a message ends.
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
    /// The record as it is in the file.
    pub(crate) record: Value,
    /// What it stands for, in a few words.
    pub(crate) what: &'static str,
    /// The order's id, if the body is an order.
    pub(crate) key: Option<String>,
    /// Where it has to end.
    pub(crate) expected: Fate,
    /// Whether an earlier message has the same key.
    pub(crate) follows: bool,
}

impl Message {
    /// Reads a record. `orders` holds the first order seen under each id, and its fate.
    pub(crate) fn parse(record: &Value, orders: &mut HashMap<String, (Order, Fate)>) -> Result<Self> {
        let text = |name| record.get(name).and_then(Value::as_str);
        let id = text("messageId").filter(|id| !id.is_empty());
        let mut message = Self {
            id: id.context("a record has no `messageId`")?.to_owned(),
            record: record.clone(),
            what: "not an order",
            key: None,
            expected: Fate::DeadLettered,
            follows: false,
        };
        let body = text("body").unwrap_or_default();
        let Ok(order) = serde_json::from_str::<Order>(body) else {
            return Ok(message);
        };
        message.key = Some(order.order_id.clone());
        (message.what, message.expected) = match orders.get(&order.order_id) {
            Some((first, fate)) if *first == order => ("the same order again", *fate),
            Some(_) => ("same key, other body", Fate::DeadLettered),
            None => order.alone(),
        };
        message.follows = orders.contains_key(&order.order_id);
        if !message.follows {
            orders.insert(order.order_id.clone(), (order, message.expected));
        }
        Ok(message)
    }
}

impl Order {
    /// What the order stands for and where its message has to end, if it is the first of its key.
    fn alone(&self) -> (&'static str, Fate) {
        let Some(Simulation { outcome: Some(trouble), until_receive, .. }) = self.simulate else {
            return ("new order", Fate::Deleted);
        };
        // A permanent failure is remembered, so that it does not matter how long it would last.
        let passes = until_receive.is_some_and(|last| last < MAX_RECEIVES) && trouble != Trouble::Permanent;
        let what = match (trouble, passes) {
            (Trouble::Permanent, _) => "fails permanently",
            (Trouble::Transient, true) => "fails at first",
            (Trouble::Transient, false) => "fails every time",
            (Trouble::Panic, true) => "panics at first",
            (Trouble::Panic, false) => "panics every time",
            (Trouble::Hang, true) => "hangs at first",
            (Trouble::Hang, false) => "hangs every time",
        };
        (what, if passes { Fate::Deleted } else { Fate::DeadLettered })
    }
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
            (order("2", 5, &json!({ "delay_ms": 9 })), "new order", Fate::Deleted),
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
        let mut orders = HashMap::new();
        for (body, what, expected) in cases {
            let record = json!({ "messageId": "m", "body": body });
            let message = Message::parse(&record, &mut orders).unwrap();
            assert_eq!((message.what, message.expected), (what, expected), "{body}");
        }
        assert!(Message::parse(&json!({ "messageId": "", "body": "" }), &mut orders).is_err());
    }
}
