//! Compares the results with the expected results.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{Answer, Exchange},
    charge::{Expected, Request},
    events::{Batch, Effect},
    ledger::Ledger,
    message::Fate,
    scenario::Run,
    sqs::{Delivery, Queued},
};

/// Returns the errors in the handling of a message, if any.
pub(crate) fn message(queued: &Queued) -> Vec<String> {
    let mut wrong = Vec::new();
    match (queued.message.expected, queued.fate()) {
        (Fate::Deleted, Fate::DeadLettered) => {
            wrong.push("it is in the dead-letter queue and had to be handled".to_owned());
        }
        (Fate::DeadLettered, Fate::Deleted) => {
            wrong.push("it is lost: deleted, and had to end in the dead-letter queue".to_owned());
        }
        _ => {}
    }
    for delivery in &queued.deliveries {
        if let Some(reason) = delivery_fault(queued, delivery) {
            wrong.push(format!("receive {}: {reason}", delivery.receive));
        }
    }
    wrong
}

fn delivery_fault(queued: &Queued, delivery: &Delivery) -> Option<String> {
    if let Some(reason) = &delivery.batch_failure {
        return Some(format!("the whole batch failed: {reason}"));
    }
    let Some(logged) = &delivery.logged else {
        return Some("the function logged no outcome".to_owned());
    };
    if logged.reported == delivery.acknowledged {
        return Some(format!(
            "logged as reported: {}, but {} in `batchItemFailures`",
            logged.reported,
            if delivery.acknowledged { "not" } else { "is" }
        ));
    }
    if delivery.late {
        let ran = ["executed", "took_over"].contains(&logged.outcome.as_str());
        // Behind another message of its key a duplicate may go by another name.
        let replayed = logged.outcome.starts_with("replayed") || queued.message.follows;
        if ran || !replayed || !delivery.acknowledged {
            return Some(format!("a late duplicate was {:?}, not replayed", logged.outcome));
        }
    }
    None
}

/// Returns the errors in the responses to a request, if any.
pub(crate) fn request(request: &Request, exchange: &Exchange) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut executed = 0;
    let mut bodies = Vec::new();
    for answers in &exchange.clients {
        let Some(Answer::Response { status, replayed, content_type, body }) = answers.last() else {
            wrong.extend(answers.iter().filter_map(failure));
            continue;
        };
        let as_expected = request.expected.statuses().contains(status)
            && match request.expected {
                Expected::Charged => true,
                Expected::Read => !replayed,
                _ => !replayed && content_type.starts_with("application/problem+json"),
            };
        if !as_expected {
            wrong.push(format!("answered {status} {content_type} (replayed: {replayed})"));
        }
        executed += usize::from(!replayed);
        bodies.push(body);
    }
    if request.expected == Expected::Charged {
        if executed != 1 {
            wrong.push(format!("{executed} of its answers were not replayed, and 1 had to be"));
        }
        if bodies.windows(2).any(|pair| pair[0] != pair[1]) {
            wrong.push("its answers differ".to_owned());
        }
    }
    wrong
}

fn failure(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Failed(reason) => Some(format!("the function failed: {reason}")),
        Answer::Response { .. } => None,
    }
}

/// An effect with its expected and actual counts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// The effect.
    pub(crate) effect: Effect,
    /// The expected number of effects.
    pub(crate) expected: usize,
    /// The number of effects with protection.
    pub(crate) protected: usize,
    /// The number of effects without protection.
    pub(crate) unprotected: usize,
}

impl Count {
    /// Whether it happened as often as it had to.
    pub(crate) fn is_right(&self) -> bool {
        self.protected == self.expected
    }
}

/// Every effect that had to happen, must not happen, or happened.
pub(crate) fn counts(expected: &BTreeMap<Effect, usize>, protected: &Run, unprotected: &Run) -> Vec<Count> {
    let [protected, unprotected] = [protected, unprotected].map(|run| run.ledger.counts());
    let effects: BTreeSet<_> =
        expected.keys().chain(protected.keys().copied()).chain(unprotected.keys().copied()).collect();
    let times = |counted: &BTreeMap<&Effect, usize>, effect| counted.get(effect).copied().unwrap_or(0);
    effects
        .into_iter()
        .map(|effect| Count {
            effect: effect.clone(),
            expected: expected.get(effect).copied().unwrap_or(0),
            protected: times(&protected, effect),
            unprotected: times(&unprotected, effect),
        })
        .collect()
}

/// The effects of a message group, by the numbers of the messages that were the first of their keys.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// The group.
    pub(crate) group: String,
    /// The expected effects, in the order of the queue.
    pub(crate) expected: Vec<usize>,
    /// The effects with protection, in the order of the ledger.
    pub(crate) protected: Vec<usize>,
    /// The effects without protection.
    pub(crate) unprotected: Vec<usize>,
}

impl Sequence {
    /// Whether everything happened once and in order.
    pub(crate) fn is_right(&self) -> bool {
        self.protected == self.expected
    }
}

/// The sequence of each group of a batch; none if its queue is no FIFO queue.
pub(crate) fn sequences(batch: &Batch, protected: &Ledger, unprotected: &Ledger) -> Vec<Sequence> {
    let groups: BTreeSet<_> = batch.messages.iter().filter_map(|message| message.group.as_ref()).collect();
    let sequence = |group: &String| {
        let numbered = (1..).zip(&batch.messages);
        let members: Vec<_> = numbered
            .filter(|(_, message)| message.group.as_ref() == Some(group) && !message.follows)
            .filter_map(|(number, message)| {
                let effect = Effect::new(batch.function.operation(), message.key.as_ref()?);
                Some((number, effect, message.expected))
            })
            .collect();
        let number =
            |effect: &Effect| members.iter().find(|(_, member, _)| member == effect).map(|(number, ..)| *number);
        let happened = |ledger: &Ledger| ledger.effects.iter().filter_map(number).collect();
        Sequence {
            group: group.clone(),
            expected: members.iter().filter(|(.., fate)| *fate == Fate::Deleted).map(|(number, ..)| *number).collect(),
            protected: happened(protected),
            unprotected: happened(unprotected),
        }
    };
    groups.into_iter().map(sequence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::HashMap, time::Instant};

    use serde_json::json;

    use crate::{
        body::Function,
        charge::Charge,
        invoke::{Invocation, Span, Timed},
        logs::Logged,
        message::{Earlier, Message},
        sqs::Queue,
    };

    /// A queue whose only message got these responses, receive by receive. After the first
    /// response that does not report it, it is delivered late.
    fn queue(body: &str, answers: &[(&str, bool)]) -> Queue {
        let record = json!({ "messageId": "m", "body": body });
        let message = Message::parse(&record, Function::Orders, &mut Earlier::default()).unwrap();
        let mut queue = Queue::new(&[message], false);
        for (outcome, reported) in answers {
            let received = queue.receive().or_else(|| queue.receive_deleted()).unwrap();
            let failures = if *reported { json!([{ "itemIdentifier": "m" }]) } else { json!([]) };
            let answer = json!({ "batchItemFailures": failures }).to_string();
            let logged = Logged { outcome: (*outcome).to_owned(), reported: *reported };
            let now = Instant::now();
            let span = Span { sent: now, answered: now };
            let answer = Timed { invocation: Invocation::Returned(answer.into()), span };
            queue.settle(received, &answer, vec![Some(logged)]);
        }
        queue
    }

    const ORDER: &str = r#"{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR"}"#;

    #[test]
    fn a_message_is_right_if_it_ends_as_it_must_and_duplicates_are_replayed() {
        let failed = [("failed", true); 5];
        let right = [
            queue(ORDER, &[("executed", false), ("replayed", false)]),
            queue(ORDER, &[("in_progress", true), ("took_over", false)]),
            queue("poison", &failed),
        ];
        for queue in &right {
            assert_eq!(message(&queue.messages[0]), [""; 0], "{queue:?}");
        }
        let wrong = [
            queue(ORDER, &failed),
            queue(ORDER, &[("executed", false), ("executed", false)]),
            queue(ORDER, &[("executed", false), ("replayed", true)]),
            queue("poison", &[("executed", false)]),
        ];
        for queue in &wrong {
            assert_ne!(message(&queue.messages[0]), [""; 0], "{queue:?}");
        }
    }

    #[test]
    fn a_log_that_is_missing_or_contradicts_the_response_is_wrong() {
        let mut queue = queue(ORDER, &[("executed", false)]);
        queue.messages[0].deliveries[0].acknowledged = false;
        assert_ne!(message(&queue.messages[0]), [""; 0]);
        queue.messages[0].deliveries[0].logged = None;
        assert_ne!(message(&queue.messages[0]), [""; 0]);
    }

    #[test]
    fn a_group_is_right_if_its_effects_happened_once_and_in_message_order() {
        let mut earlier = Earlier::default();
        let mut message = |id: &str, seller: &str, key: &str| {
            let body =
                json!({ "payout_id": key, "seller_id": seller, "amount_cents": 1, "currency": "EUR" }).to_string();
            let record = json!({ "messageId": id, "attributes": { "MessageGroupId": seller }, "body": body });
            Message::parse(&record, Function::Payouts, &mut earlier).unwrap()
        };
        let messages =
            vec![message("1", "a", "p"), message("2", "b", "q"), message("3", "a", "r"), message("4", "a", "p")];
        let batch = Batch { file: "sqs-fifo.json".to_owned(), function: Function::Payouts, messages };
        let ledger = |keys: &[&str]| Ledger {
            effects: keys.iter().map(|key| Effect::new("payout", key)).collect(),
            ..Ledger::default()
        };
        let right = sequences(&batch, &ledger(&["q", "p", "r"]), &ledger(&["p", "p", "r"]));
        assert_eq!(right.iter().map(|group| group.group.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(right.iter().all(Sequence::is_right), "{right:?}");
        assert_eq!(right[0].unprotected, [1, 1, 3]);
        for wrong in [&["q", "r", "p"][..], &["q", "p"], &["q", "p", "r", "p"], &["p", "r"]] {
            let found = sequences(&batch, &ledger(wrong), &ledger(&[]));
            assert!(!found.iter().all(Sequence::is_right), "{found:?}");
        }
    }

    fn answer(status: u16, replayed: bool, body: &str) -> Vec<Answer> {
        vec![Answer::Response {
            status,
            replayed,
            content_type: "application/problem+json".to_owned(),
            body: body.to_owned(),
        }]
    }

    #[test]
    fn a_charge_is_executed_once_and_replayed_byte_for_byte() {
        let event = json!({ "httpMethod": "POST", "headers": { "idempotency-key": "k" },
            "body": r#"{"customer_id":"c","amount_cents":1,"currency":"EUR"}"# });
        let charge = Charge::parse(&event).unwrap();
        let expected = charge.expect(&mut HashMap::new());
        let charge = Request { file: "charge.json".to_owned(), event, charge, expected };
        let faults = |clients| request(&charge, &Exchange { clients, spans: Default::default() });

        let (done, replayed) = (answer(201, false, "a"), answer(201, true, "a"));
        let right = [replayed.clone(), done.clone(), replayed.clone()];
        assert_eq!(faults(right), [""; 0]);
        let wrong = [
            [done.clone(), done.clone(), replayed.clone()],
            [replayed.clone(), replayed.clone(), replayed.clone()],
            [done.clone(), replayed.clone(), answer(201, true, "b")],
            [done.clone(), replayed.clone(), answer(409, false, "")],
            [done, replayed, vec![Answer::Failed("crash".to_owned())]],
        ];
        for clients in wrong {
            assert_ne!(faults(clients), [""; 0]);
        }
    }
}
