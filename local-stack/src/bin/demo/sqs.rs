//! The part of SQS and its event source mapping: receive counts, deletion, redelivery, dead letters.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{
    invoke::{Invocation, Span, Timed},
    logs::Logged,
    message::{Fate, MAX_RECEIVES, Message},
};

/// A queue with the messages of one event.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The messages, in the order of the event.
    pub(crate) messages: Vec<Queued>,
    is_fifo: bool,
}

/// A message in the queue.
#[derive(Debug)]
pub(crate) struct Queued {
    /// The message.
    pub(crate) message: Message,
    /// Its deliveries so far, in the order of their receives.
    pub(crate) deliveries: Vec<Delivery>,
    receives: u32,
    deleted: bool,
}

/// One delivery of one message.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Its `ApproximateReceiveCount`.
    pub(crate) receive: u32,
    /// Whether SQS had deleted the message before.
    pub(crate) late: bool,
    /// The function's log of it.
    pub(crate) logged: Option<Logged>,
    /// Whether Lambda has SQS delete the message: it was not reported as failed.
    pub(crate) acknowledged: bool,
    /// Whether SQS refuses to: the message has been received again since, and the queue is FIFO.
    pub(crate) expired: bool,
    /// Why the whole batch counts as failed, if it does.
    pub(crate) batch_failure: Option<String>,
    /// Start and end of the invocation with its batch.
    pub(crate) span: Span,
}

/// One copy of some of the queue's messages, on its way to the function.
#[derive(Debug)]
pub(crate) struct Received {
    /// The event.
    pub(crate) event: Value,
    /// For each record the message's place in the queue and the receive.
    pub(crate) records: Vec<(usize, u32)>,
    late: bool,
}

impl Queue {
    /// A queue that holds these messages, none of them received yet.
    pub(crate) fn new(messages: &[Message], is_fifo: bool) -> Self {
        let queued = |message: &Message| Queued {
            message: message.clone(),
            deliveries: Vec::new(),
            receives: 0,
            deleted: false,
        };
        Self { messages: messages.iter().map(queued).collect(), is_fifo }
    }

    /// Receives every message that is neither deleted nor used up, in order. Returns `None` if no message is left. A
    /// standard queue may do that at any time. A FIFO queue does it when the visibility timeout of the last receive has
    /// ended: until then it delivers nothing of a group, and from then on it deletes nothing by that receive's handles.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        self.receive_where(false, Queued::comes_back)
    }

    /// Whether every message is deleted or used up.
    pub(crate) fn is_done(&self) -> bool {
        !self.messages.iter().any(Queued::comes_back)
    }

    /// Receives every deleted message once more. A standard queue may do that, a FIFO queue does not.
    pub(crate) fn receive_deleted(&mut self) -> Option<Received> {
        let is_standard = !self.is_fifo;
        self.receive_where(true, |queued| queued.deleted && is_standard)
    }

    fn receive_where(&mut self, late: bool, wanted: impl Fn(&Queued) -> bool) -> Option<Received> {
        let mut received = Received { event: Value::Null, records: Vec::new(), late };
        let mut records = Vec::new();
        for (place, queued) in self.messages.iter_mut().enumerate().filter(|(_, queued)| wanted(queued)) {
            queued.receives += 1;
            received.records.push((place, queued.receives));
            records.push(queued.record());
        }
        received.event = json!({ "Records": records });
        (!records.is_empty()).then_some(received)
    }

    /// Notes the response to a delivery. A message is deleted as soon as one delivery of it succeeds; in a FIFO queue,
    /// if it has not been received again before.
    pub(crate) fn settle(&mut self, received: Received, answer: &Timed, logged: Vec<Option<Logged>>) {
        let ids = received.records.iter().map(|(place, _)| self.messages[*place].message.id.as_str());
        let reported = reported(&answer.invocation, &ids.collect());
        for ((place, receive), logged) in received.records.into_iter().zip(logged) {
            let queued = &mut self.messages[place];
            let acknowledged = reported.as_ref().is_ok_and(|ids| !ids.contains(&queued.message.id));
            let expired = self.is_fifo && receive < queued.receives;
            queued.deleted |= acknowledged && !expired;
            queued.deliveries.push(Delivery {
                receive,
                late: received.late,
                logged,
                acknowledged,
                expired,
                batch_failure: reported.as_ref().err().cloned(),
                span: answer.span,
            });
            queued.deliveries.sort_by_key(|delivery| delivery.receive);
        }
    }
}

impl Queued {
    /// Returns the end of the message, once nothing is received any more.
    pub(crate) fn fate(&self) -> Fate {
        if self.deleted { Fate::Deleted } else { Fate::DeadLettered }
    }

    fn comes_back(&self) -> bool {
        !self.deleted && self.receives < MAX_RECEIVES
    }

    /// Returns the record of this receive, with its count and a new receipt handle.
    fn record(&self) -> Value {
        let mut record = self.message.record.clone();
        record["attributes"]["ApproximateReceiveCount"] = json!(self.receives.to_string());
        record["receiptHandle"] = json!(format!("{}-receive-{}", self.message.id, self.receives));
        record
    }
}

/// The message ids reported as failed, or why the whole batch counts as failed. The rules are those
/// of `ReportBatchItemFailures`: no list or an empty list is complete success; anything that cannot
/// be read, and an identifier that is empty or not in the batch, is complete failure.
fn reported(answer: &Invocation, sent: &HashSet<&str>) -> Result<HashSet<String>, String> {
    let payload = match answer {
        Invocation::Returned(payload) if payload.is_empty() => return Ok(HashSet::new()),
        Invocation::Returned(payload) => payload,
        Invocation::Failed(reason) => return Err(reason.clone()),
    };
    let answer = serde_json::from_slice(payload).map_err(|_| "the answer is not JSON".to_owned())?;
    let failures = match &answer {
        Value::Null => &Value::Null,
        Value::Object(answer) => answer.get("batchItemFailures").unwrap_or(&Value::Null),
        _ => return Err("the answer is not an object".to_owned()),
    };
    let failures = match failures {
        Value::Null => return Ok(HashSet::new()),
        Value::Array(failures) => failures,
        _ => return Err("`batchItemFailures` is not a list".to_owned()),
    };
    let identifier = |failure: &Value| match failure.get("itemIdentifier").and_then(Value::as_str) {
        None | Some("") => Err("an entry of `batchItemFailures` has no `itemIdentifier`".to_owned()),
        Some(id) if !sent.contains(id) => Err(format!("{id:?} is reported, but was not in the batch")),
        Some(id) => Ok(id.to_owned()),
    };
    failures.iter().map(identifier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use crate::{body::Function, message::Earlier};

    fn queue(is_fifo: bool) -> Queue {
        let record = |id: &str| json!({ "messageId": id, "body": "" });
        let message = |id: &str| Message::parse(&record(id), Function::Orders, &mut Earlier::default()).unwrap();
        Queue::new(&[message("a"), message("b")], is_fifo)
    }

    fn returned(answer: &str) -> Invocation {
        Invocation::Returned(answer.to_owned().into())
    }

    fn timed(invocation: Invocation) -> Timed {
        let now = Instant::now();
        Timed { invocation, span: Span { sent: now, answered: now } }
    }

    fn failing(ids: &[&str]) -> Invocation {
        let failures: Vec<_> = ids.iter().map(|id| json!({ "itemIdentifier": id })).collect();
        returned(&json!({ "batchItemFailures": failures }).to_string())
    }

    #[test]
    fn responses_are_read_as_by_the_event_source_mapping() {
        let sent = HashSet::from(["a", "b"]);
        for success in
            ["", "null", "{}", r#"{"batchItemFailures":null}"#, r#"{"batchItemFailures":[]}"#, r#"{"other":1}"#]
        {
            assert_eq!(reported(&returned(success), &sent), Ok(HashSet::new()), "{success}");
        }
        assert_eq!(reported(&failing(&["b"]), &sent), Ok(HashSet::from(["b".to_owned()])));
        for failure in [
            "no JSON",
            "[]",
            r#"{"batchItemFailures":{}}"#,
            r#"{"batchItemFailures":["a"]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":null}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":""}]}"#,
            r#"{"batchItemFailures":[{"item_identifier":"a"}]}"#,
            r#"{"batchItemFailures":[{"itemIdentifier":"a"},{"itemIdentifier":"c"}]}"#,
        ] {
            assert!(reported(&returned(failure), &sent).is_err(), "{failure}");
        }
        assert!(reported(&Invocation::Failed("crash".into()), &sent).is_err());
    }

    #[test]
    fn every_receive_is_counted_and_has_its_own_handle() {
        let mut queue = queue(false);
        let first = queue.receive().unwrap();
        let second = queue.receive().unwrap();
        assert_eq!(first.records, [(0, 1), (1, 1)]);
        assert_eq!(second.records, [(0, 2), (1, 2)]);
        let record = &second.event["Records"][1];
        assert_eq!(record["attributes"]["ApproximateReceiveCount"], "2");
        assert_ne!(record["receiptHandle"], first.event["Records"][1]["receiptHandle"]);
    }

    #[test]
    fn any_delivery_deletes_a_message_and_the_last_receive_dead_letters_it() {
        let mut queue = queue(false);
        let first = queue.receive().unwrap();
        let second = queue.receive().unwrap();
        queue.settle(second, &timed(failing(&["a", "b"])), vec![None, None]);
        queue.settle(first, &timed(failing(&["b"])), vec![None, None]);
        for receive in 3..=MAX_RECEIVES {
            let again = queue.receive().unwrap();
            assert_eq!(again.records, [(1, receive)]);
            queue.settle(again, &timed(Invocation::Failed("crash".into())), vec![None]);
        }
        assert!(queue.is_done());
        assert!(queue.receive().is_none());
        assert_eq!(queue.messages[0].fate(), Fate::Deleted);
        assert_eq!(queue.messages[1].fate(), Fate::DeadLettered);
        assert_eq!(queue.receive_deleted().unwrap().records, [(0, 3)]);
    }

    #[test]
    fn a_fifo_queue_deletes_by_the_last_receive_only() {
        let mut queue = queue(true);
        let first = queue.receive().unwrap();
        let second = queue.receive().unwrap();
        queue.settle(first, &timed(failing(&[])), vec![None, None]);
        queue.settle(second, &timed(failing(&["a"])), vec![None, None]);
        assert!(queue.messages.iter().all(|queued| queued.deliveries[0].acknowledged && queued.deliveries[0].expired));
        assert_eq!(queue.receive().unwrap().records, [(0, 3)]);
        assert!(queue.receive_deleted().is_none());
    }
}
