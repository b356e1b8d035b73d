//! Events of every source as Lambda sends them, with changes in any place.
//!
//! Nothing panics, and no record is lost: one that the response acknowledges has run with its payload, as an independent
//! decoder reads it, and every reported position belongs to a record of the event.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{Arc, Mutex},
};

use lambda_once::{
    ErrorKind, Failure, Idempotency, Key,
    batch::{BatchService, Handler, Processed, Source, dynamodb::Change},
    testing::{self, TIME_LEFT},
};
use lambda_once_fuzz::{input::Input, mutate, oracle::base64::decoded, target};
use lambda_runtime::LambdaEvent;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::run;

/// Returns the text of a file in `events/`.
macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../events/", $name, ".json"))
    };
}

/// The payloads that handlers have got and taken.
#[derive(Clone, Default)]
pub(crate) struct Taken(Arc<Mutex<Vec<Value>>>);

impl Taken {
    /// Returns a handler that refuses some payloads temporarily and some permanently, by a hash of each.
    pub(crate) fn handler(
        &self,
    ) -> impl Fn(Value) -> std::future::Ready<Result<(), Failure>> + Clone + Send + Sync + use<> {
        let taken = self.clone();
        move |payload| std::future::ready(taken.take(payload))
    }

    fn take(&self, payload: Value) -> Result<(), Failure> {
        match verdict(&payload) {
            Ok(()) => {
                self.0.lock().unwrap().push(payload);
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn has(&self, payload: &Value) -> bool {
        self.0.lock().unwrap().contains(payload)
    }

    /// Asserts that every message ran. Messages with the same identity share one run.
    fn assert_has_each(&self, messages: impl IntoIterator<Item = (Value, Option<Value>)>) {
        let mut seen = HashSet::new();
        let mut runs = self.0.lock().unwrap().clone();
        for (identity, payload) in messages {
            if seen.insert(identity.to_string()) {
                let run = runs.iter().position(|run| Some(run) == payload.as_ref());
                runs.swap_remove(run.unwrap_or_else(|| panic!("lost: {identity} {payload:?}")));
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[test]
#[should_panic(expected = "lost: 2")]
fn messages_with_the_same_payload_need_a_run_each() {
    let (taken, payload) = (Taken::default(), json!({ "order_id": 9 }));
    taken.take(payload.clone()).unwrap();
    // The duplicate of the first one shares its run, and the third one has none.
    taken.assert_has_each([1, 1, 2].map(|id| (json!(id), Some(payload.clone()))));
}

fn verdict(payload: &Value) -> Result<(), Failure> {
    match payload.to_string().bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 8 {
        0 => Err(Failure::transient("not now")),
        1 => Err(Failure::permanent("never")),
        _ => Ok(()),
    }
}

/// The result of an event.
pub(crate) struct Served {
    /// The response as JSON, or `None` for an error, after which everything is delivered again.
    pub(crate) response: Option<Value>,
    pub(crate) kind: String,
    /// The number of reports.
    pub(crate) records: usize,
    /// The ids of the reports, and whether each was reported.
    pub(crate) reports: Vec<(String, bool)>,
}

/// Serves an event twice, as Lambda would after the first response was lost, which runs nothing again that was taken.
/// An event without changes is not refused.
pub(crate) fn served<S, H, T, A>(service: &BatchService<S, H, T, A>, event: &Event, taken: &Taken) -> Option<Served>
where
    S: Source,
    S::Event: DeserializeOwned,
    S::Response: Serialize,
    H: Handler<T, A>,
    T: Send + 'static,
    A: 'static,
{
    let parsed = || serde_json::from_slice::<S::Event>(&event.text).ok();
    assert!(event.is_changed || parsed().is_some(), "the event is refused");
    run(async {
        let first = service.process(LambdaEvent::new(parsed()?, testing::context(TIME_LEFT))).await;
        let runs = taken.count();
        let second = service.process(LambdaEvent::new(parsed()?, testing::context(TIME_LEFT))).await;
        assert_eq!(taken.count(), runs, "the second delivery runs a message again");
        // Some files have a record that is refused.
        let is_served = first.records.iter().any(|report| report.outcome.is_ok());
        assert!(event.is_changed || is_served, "every record is refused: {:?}", first.records);
        assert_eq!(first.records.len(), second.records.len());
        assert!(first.response.is_err() || second.response.is_ok(), "only the repetition fails as a whole");
        let [first, _] = [first, second].map(seen);
        Some(first)
    })
}

fn seen<R: Serialize>(processed: Processed<R>) -> Served {
    for report in &processed.records {
        // The handler does not panic, so that only the library could.
        assert_ne!(report.outcome, Err(ErrorKind::Decode), "{report:?}");
        assert!(!matches!(report.outcome, Ok(lambda_once::OutcomeKind::Interrupted(_))), "{report:?}");
    }
    let mut kinds: Vec<String> = processed.records.iter().map(|report| format!("{:?}", report.outcome)).collect();
    kinds.dedup();
    let kind = format!("{:?} {}", processed.response.as_ref().err().map(lambda_once::Error::kind), kinds.join(" "));
    Served {
        response: processed.response.ok().map(|response| serde_json::to_value(response).unwrap()),
        kind,
        records: processed.records.len(),
        reports: processed.records.iter().map(|report| (report.record.id().to_owned(), report.reported)).collect(),
    }
}

/// Returns the reported positions of a response.
pub(crate) fn failures(response: &Value) -> Vec<Value> {
    let failures = response["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|failure| failure["itemIdentifier"].clone()).collect()
}

fn parsed(text: &Value) -> Option<Value> {
    serde_json::from_str(text.as_str()?).ok()
}

fn parsed_base64(text: &Value) -> Option<Value> {
    serde_json::from_slice(&decoded(text.as_str()?)?).ok()
}

/// An event of `events/`, perhaps with changes.
pub(crate) struct Event {
    text: Vec<u8>,
    pub(crate) value: Value,
    is_changed: bool,
}

/// Returns a mutated event, or `None` if it is not JSON. The sources skip unused fields, and do not check that
/// its texts are UTF-8.
pub(crate) fn mutated(input: &mut Input<'_>, files: &[&str]) -> Option<Event> {
    let file = *input.pick(files);
    let text = mutate::event(file, input);
    let value: Value = serde_json::from_str(&String::from_utf8_lossy(&text)).ok()?;
    let is_changed = serde_json::from_str::<Value>(file).is_ok_and(|value| value.to_string().as_bytes() != text);
    Some(Event { text, value, is_changed })
}

/// Returns the kind of a case whose mutated event is not JSON.
pub(crate) fn none() -> String {
    "no event".to_owned()
}

fn records(event: &Value) -> Vec<Value> {
    event["Records"].as_array().cloned().unwrap_or_default()
}

fn engine() -> Idempotency {
    testing::engine()
}

target!(
    /// Standard and FIFO queues.
    sqs,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("sqs-batch"), sample!("sqs-fifo")]) else { return none() };
        let taken = Taken::default();
        let by_id = input.one_in(2);
        let key = if by_id { Key::message_id() } else { Key::pointer("/order_id") };
        let Some(served) = served(&engine().sqs(key, taken.handler()), &event, &taken) else { return none() };
        let records = records(&event.value);
        let Some(response) = served.response else { return served.kind };
        assert_eq!(served.records, records.len());
        let failed = failures(&response);
        for id in &failed {
            assert!(records.iter().any(|record| record["messageId"] == *id), "{id} is not in the event");
        }
        let acknowledged = records.iter().filter(|record| !failed.contains(&record["messageId"]));
        taken.assert_has_each(acknowledged.map(|record| {
            let payload = parsed(&record["body"]);
            let order = payload.as_ref().map(|payload| payload["order_id"].clone()).unwrap_or_default();
            (if by_id { record["messageId"].clone() } else { order }, payload)
        }));
        served.kind
    }
);

/// Checks the response of a stream, and returns the number of records that Lambda does not deliver again: those before
/// the checkpoint. It is `None` if there is no response, or if the positions have lost their order.
fn acknowledged(served: &Served, positions: &[Value]) -> Option<usize> {
    let response = served.response.as_ref()?;
    assert_eq!(served.records, positions.len());
    let failed = failures(response);
    for id in &failed {
        assert!(positions.contains(id), "{id} is not in the event");
    }
    let numbers: Vec<u128> = positions.iter().map(|position| position.as_str()?.parse().ok()).collect::<Option<_>>()?;
    numbers.is_sorted().then(|| positions.iter().take_while(|position| !failed.contains(position)).count())
}

target!(
    /// Kinesis, with and without a window.
    kinesis,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("kinesis-batch"), sample!("kinesis-window")]) else { return none() };
        let taken = Taken::default();
        let service = engine().kinesis(Key::message_id(), taken.handler());
        let Some(served) = served(&service, &event, &taken) else { return none() };
        let records = records(&event.value);
        let positions: Vec<_> = records.iter().map(|record| record["kinesis"]["sequenceNumber"].clone()).collect();
        for record in &records[..acknowledged(&served, &positions).unwrap_or_default()] {
            let payload = parsed_base64(&record["kinesis"]["data"]);
            assert!(payload.is_some_and(|payload| taken.has(&payload)), "lost: {record}");
        }
        served.kind
    }
);

target!(
    /// Streams of DynamoDB. Of the contents only the number of runs is checked.
    dynamodb_stream,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("dynamodb-stream")]) else { return none() };
        let taken = Taken::default();
        let handler = taken.handler();
        let handler = move |change: Change<Value>| {
            let old = change.old().ok().flatten();
            handler(json!({ "new": change.new, "old": old, "keys": format!("{:?}", change.kind) }))
        };
        let service = engine().dynamodb_stream(Key::message_id(), handler);
        let Some(served) = served(&service, &event, &taken) else { return none() };
        let records = records(&event.value);
        let positions: Vec<_> = records.iter().map(|record| record["dynamodb"]["SequenceNumber"].clone()).collect();
        let done = &records[..acknowledged(&served, &positions).unwrap_or_default()];
        let ids: BTreeSet<_> = done.iter().map(|record| record["eventID"].to_string()).collect();
        assert!(ids.len() <= taken.count(), "lost: {ids:?}");
        served.kind
    }
);

target!(
    /// Kafka, in MSK and self-managed.
    kafka,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("kafka-msk"), sample!("kafka-self-managed")]) else { return none() };
        let taken = Taken::default();
        let handler = taken.handler();
        let service = engine().kafka(Key::message_id(), move |order: Option<Value>| handler(order.unwrap_or_default()));
        let Some(served) = served(&service, &event, &taken) else { return none() };
        let Some(response) = served.response else { return served.kind };
        let partitions: BTreeMap<String, Vec<Value>> =
            serde_json::from_value(event.value["records"].clone()).unwrap_or_default();
        assert_eq!(served.records, partitions.values().map(Vec::len).sum::<usize>());
        let mut failed = failures(&response);
        for (partition, records) in &partitions {
            let offsets: Vec<i64> = records.iter().filter_map(|record| record["offset"].as_i64()).collect();
            let position = |record: &Value| json!({ "partition": partition, "offset": record["offset"] });
            let acknowledged = records.iter().take_while(|record| !failed.contains(&position(record)));
            if offsets.is_sorted() {
                for record in acknowledged {
                    let value = &record["value"];
                    let payload = if value.is_null() { Some(Value::Null) } else { parsed_base64(value) };
                    assert!(payload.is_some_and(|payload| taken.has(&payload)), "lost: {record}");
                }
            }
            failed.retain(|id| !records.iter().any(|record| position(record) == *id));
        }
        assert_eq!(failed, Vec::<Value>::new(), "not in the event");
        served.kind
    }
);

/// Checks a source whose response is all or nothing.
fn whole(served: Served, payloads: Vec<Option<Value>>, taken: &Taken) -> String {
    if served.response.is_some() {
        assert_eq!(served.records, payloads.len());
        assert!(served.reports.iter().all(|(_, reported)| !reported));
        for payload in payloads {
            assert!(payload.is_some_and(|payload| taken.has(&payload)), "lost");
        }
    }
    served.kind
}

target!(
    /// ActiveMQ and RabbitMQ.
    mq,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("mq-active"), sample!("mq-rabbit")]) else { return none() };
        let taken = Taken::default();
        let key = if input.one_in(2) { Key::message_id() } else { Key::pointer("/order_id") };
        let Some(served) = served(&engine().mq(key, taken.handler()), &event, &taken) else { return none() };
        let messages = event.value["messages"].as_array().into_iter().flatten();
        let queues = event.value["rmqMessagesByQueue"].as_object().into_iter().flat_map(|queues| queues.values());
        let messages = messages.chain(queues.flat_map(|queue| queue.as_array().into_iter().flatten()));
        whole(served, messages.map(|message| parsed_base64(&message["data"])).collect(), &taken)
    }
);

target!(
    /// SNS.
    sns,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("sns")]) else { return none() };
        let taken = Taken::default();
        let Some(served) = served(&engine().sns(Key::message_id(), taken.handler()), &event, &taken) else {
            return none();
        };
        whole(served, records(&event.value).iter().map(|record| parsed(&record["Sns"]["Message"])).collect(), &taken)
    }
);

target!(
    /// EventBridge.
    eventbridge,
    |bytes| {
        let mut input = Input::new(bytes);
        let Some(event) = mutated(&mut input, &[sample!("eventbridge")]) else { return none() };
        let taken = Taken::default();
        let Some(served) = served(&engine().eventbridge(Key::message_id(), taken.handler()), &event, &taken) else {
            return none();
        };
        // EventBridge Scheduler sends JSON as a text.
        let detail = parsed(&event.value["detail"]).unwrap_or_else(|| event.value["detail"].clone());
        whole(served, vec![Some(detail)], &taken)
    }
);
