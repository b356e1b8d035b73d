//! Whether what happened is what had to happen.

use std::collections::BTreeMap;

use crate::{
    api::{Answer, Exchange},
    charge::{Expected, Request},
    events::Effect,
    order::Fate,
    scenario::Run,
    sqs::{Delivery, Queued},
};

/// What is wrong with the way a message was handled; empty if nothing is.
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
    if logged.reported == delivery.deletes {
        return Some(format!(
            "logged as reported: {}, but {} in `batchItemFailures`",
            logged.reported,
            if delivery.deletes { "not" } else { "is" }
        ));
    }
    if delivery.late {
        let ran = ["executed", "took_over"].contains(&logged.outcome.as_str());
        // Behind another message of its key a duplicate may go by another name.
        let replayed = logged.outcome.starts_with("replayed") || queued.message.follows;
        if ran || !replayed || !delivery.deletes {
            return Some(format!("a late duplicate was {:?}, not replayed", logged.outcome));
        }
    }
    None
}

/// What is wrong with the answers to a request; empty if nothing is.
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

/// An effect with how often it had to happen and how often it did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// The effect.
    pub(crate) effect: Effect,
    /// How often it had to happen.
    pub(crate) expected: usize,
    /// How often it happened with protection.
    pub(crate) protected: usize,
    /// How often it happened without.
    pub(crate) unprotected: usize,
}

impl Count {
    /// Whether it happened as often as it had to.
    pub(crate) fn is_right(&self) -> bool {
        self.protected == self.expected
    }

    /// How many of its repetitions the protection prevented.
    pub(crate) fn doubles(&self) -> usize {
        self.unprotected.saturating_sub(1)
    }
}

/// Every effect that had to happen, must not happen, or happened.
pub(crate) fn counts(expected: &BTreeMap<Effect, usize>, protected: &Run, unprotected: &Run) -> Vec<Count> {
    let mut effects: Vec<_> =
        expected.keys().chain(protected.effects.keys()).chain(unprotected.effects.keys()).collect();
    effects.sort();
    effects.dedup();
    let times = |counted: &BTreeMap<Effect, usize>, effect| counted.get(effect).copied().unwrap_or(0);
    effects
        .into_iter()
        .map(|effect| Count {
            effect: effect.clone(),
            expected: times(expected, effect),
            protected: times(&protected.effects, effect),
            unprotected: times(&unprotected.effects, effect),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use serde_json::json;

    use crate::{charge::Charge, invoke::Invocation, logs::Logged, order::Message, sqs::Queue};

    /// A queue whose only message was answered like this, receive by receive; after the first
    /// answer that does not report it, it is delivered late.
    fn queue(body: &str, answers: &[(&str, bool)]) -> Queue {
        let record = json!({ "messageId": "m", "body": body });
        let message = Message::parse(&record, &mut HashMap::new()).unwrap();
        let mut queue = Queue::new(&[message]);
        for (outcome, reported) in answers {
            let received = queue.receive().or_else(|| queue.receive_deleted()).unwrap();
            let failures = if *reported { json!([{ "itemIdentifier": "m" }]) } else { json!([]) };
            let answer = json!({ "batchItemFailures": failures }).to_string();
            let logged = Logged { outcome: (*outcome).to_owned(), reported: *reported };
            queue.settle(received, &Invocation::Returned(answer.into()), vec![Some(logged)]);
        }
        queue
    }

    const ORDER: &str = r#"{"order_id":"o","customer_id":"c","amount_cents":1,"currency":"EUR"}"#;

    #[test]
    fn a_message_is_right_if_it_ends_where_it_has_to_and_late_duplicates_are_replayed() {
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
    fn a_log_that_contradicts_the_answer_or_is_missing_is_wrong() {
        let mut queue = queue(ORDER, &[("executed", false)]);
        queue.messages[0].deliveries[0].deletes = false;
        assert_ne!(message(&queue.messages[0]), [""; 0]);
        queue.messages[0].deliveries[0].logged = None;
        assert_ne!(message(&queue.messages[0]), [""; 0]);
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
        let faults = |clients| request(&charge, &Exchange { clients });

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
