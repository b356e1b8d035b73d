//! Visibility timeouts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lambda_once::{
    Failure, Key, OutcomeKind,
    batch::{OnFailure, envelope::S3, sqs::VisibilityBackoff},
    store::fault::{Call, Fault},
    testing::{self, s3, sqs},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tracing::Level;

use crate::sqs_client::{
    collector::Collector,
    function::{ARN, Function, Grouped, URL, event, message, reported},
    server::Server,
};

const OPERATION: &str = "ChangeMessageVisibilityBatch";

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the new visibility timeouts of all messages by receipt handle, after a check of the requests' form.
fn changes(server: &Server) -> BTreeMap<String, u64> {
    let mut changes = BTreeMap::new();
    for body in server.bodies(OPERATION) {
        let entries = body["Entries"].as_array().unwrap();
        assert!((1..=10).contains(&entries.len()), "{} entries", entries.len());
        for (i, entry) in entries.iter().enumerate() {
            let receipt = entry["ReceiptHandle"].as_str().unwrap().to_owned();
            let time = entry["VisibilityTimeout"].as_u64().unwrap();
            let form = json!({ "Id": i.to_string(), "ReceiptHandle": receipt, "VisibilityTimeout": time });
            assert_eq!(*entry, form);
            assert_eq!(changes.insert(receipt, time), None, "once for each message");
        }
    }
    changes
}

fn change(id: &str, seconds: u64) -> (String, u64) {
    (format!("receipt of {id}"), seconds)
}

/// Returns the changes after these messages, with a base of one second.
async fn changes_after(function: &Function, messages: impl IntoIterator<Item = Value>) -> BTreeMap<String, u64> {
    let server = Server::start().await;
    let backoff = VisibilityBackoff::new(server.client().await).base(seconds(1));
    function.process(&function.service().redelivery(backoff), messages).await.response.unwrap();
    changes(&server)
}

fn delivered(times: u32, mut message: Value) -> Value {
    message["attributes"]["ApproximateReceiveCount"] = json!(times.to_string());
    message
}

fn in_group(group: &str, mut message: Value) -> Value {
    message["eventSourceARN"] = json!("arn:aws:sqs:us-east-1:123456789012:orders.fifo");
    message["attributes"]["MessageGroupId"] = json!(group);
    message
}

#[tokio::test]
async fn the_clients_endpoint_receives_the_queue_and_each_failed_message() {
    let (function, server) = (Function::new(), Server::start().await);
    function.hold("m1", seconds(10));
    let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
    let messages = [("m0", "succeed"), ("m1", "succeed"), ("m2", "succeed")];
    let processed = function.process(&service, messages.map(|(id, act)| message(ARN, id, act))).await;
    assert_eq!(reported(&processed), ["m1"]);
    let call = server.calls().pop().unwrap();
    assert_eq!((&*call.operation, &*call.path, &*call.host), (OPERATION, "/", server.address()));
    // Ten seconds, the margin of one, the millisecond after that, and one more second, rounded up.
    let entry = json!({ "Id": "0", "ReceiptHandle": "receipt of m1", "VisibilityTimeout": 13 });
    assert_eq!(call.body, json!({ "QueueUrl": URL, "Entries": [entry] }));
}

/// Delivers notifications of these S3 objects, whose records fail by their keys, and returns the changes.
async fn changes_of_objects<const N: usize>(
    failure: fn(&str) -> Failure,
    messages: [(&str, [&str; N]); N],
) -> BTreeMap<String, u64> {
    let server = Server::start().await;
    let fail = move |event: Value| async move {
        let key = event["s3"]["object"]["key"].as_str().unwrap();
        Err::<(), _>(failure(key))
    };
    let service = testing::engine()
        .sqs(Key::message_id(), fail)
        .envelope(S3)
        .redelivery(VisibilityBackoff::new(server.client().await).base(seconds(1)));
    let of = |(id, keys): (&str, [&str; N])| s3::notification(keys.map(|key| s3::created("photos", key))).id(id);
    testing::deliver(&service, &sqs::batch(messages.map(of))).await.response.unwrap();
    changes(&server)
}

#[tokio::test]
async fn a_message_with_several_records_that_failed_is_delayed_once() {
    let changes = changes_of_objects(|_| Failure::transient("not now"), [("m-1", ["a", "b"]), ("m-2", ["a", "b"])]);
    let changes = changes.await;
    assert_eq!(changes.keys().collect::<Vec<_>>(), ["m-1/1", "m-2/1"]);
    assert!(changes.values().all(|time| *time <= 2), "{changes:?}");
}

#[tokio::test]
async fn a_message_with_a_permanent_failure_keeps_the_queues_own_time() {
    let fails = |key: &str| if key == "a" { Failure::permanent("no image") } else { Failure::transient("not now") };
    let messages = [("m-1", ["a", "b", "c"]), ("m-2", ["b", "c", "a"]), ("m-3", ["b", "c", "d"])];
    let changes = changes_of_objects(fails, messages).await;
    assert_eq!(changes.into_keys().collect::<Vec<_>>(), ["m-3/1"]);
}

/// Otherwise its deliveries would be used up before the claim of the other record ends.
#[tokio::test]
async fn a_message_with_a_claim_and_a_permanent_failure_waits_for_the_claim() {
    let fails = |key: &str| if key == "a" { Failure::permanent("no image") } else { Failure::unknown("timed out") };
    let changes = changes_of_objects(fails, [("m-1", ["a", "b"]), ("m-2", ["c", "a"])]).await;
    assert_eq!(changes.keys().collect::<Vec<_>>(), ["m-1/1", "m-2/1"]);
    assert!(changes.values().all(|time| *time > 10), "{changes:?}");
}

#[tokio::test]
async fn a_record_in_progress_elsewhere_is_redelivered_after_its_lease() {
    for (left, time) in [(Duration::ZERO, 3), (Duration::from_millis(999), 3), (seconds(1), 4), (seconds(900), 903)] {
        let function = Function::new();
        function.hold("m0", left);
        assert_eq!(changes_after(&function, [message(ARN, "m0", "")]).await, [change("m0", time)].into(), "{left:?}");
    }
    let function = Function::new();
    function.hold("m0", seconds(24 * 3_600));
    let longest = changes_after(&function, [message(ARN, "m0", "")]).await["receipt of m0"];
    assert_eq!(longest, 12 * 3_600 - 15 * 60, "what SQS takes");
}

#[tokio::test]
async fn a_transient_failure_comes_back_after_a_random_part_of_a_doubling_time() {
    let (function, server) = (Function::new(), Server::start().await);
    let backoff = VisibilityBackoff::new(server.client().await).base(seconds(5)).longest(seconds(100));
    let service = function.service().redelivery(backoff);
    for (times, ceiling) in [(1, 10), (2, 20), (3, 40), (5, 100), (4_000_000_000, 100)] {
        let messages = (0..100).map(|i| delivered(times, message(ARN, &format!("{times}-{i}"), "transient")));
        function.process(&service, messages).await.response.unwrap();
        let changes = changes(&server);
        assert_eq!(changes.len(), 100);
        let times: Vec<u64> = changes.into_values().collect();
        assert!(times.iter().all(|time| *time <= ceiling), "{times:?} of {ceiling}");
        // The probability that all of a hundred miss one half is 2^-99.
        assert!(times.iter().any(|time| *time > ceiling / 2), "{times:?} of {ceiling}");
        assert!(times.iter().any(|time| *time <= ceiling / 2), "{times:?} of {ceiling}");
    }
}

#[tokio::test]
async fn the_defaults_are_five_seconds_and_a_quarter_of_an_hour() {
    for (times, ceiling) in [(1, 10), (30, 900)] {
        let (function, server) = (Function::new(), Server::start().await);
        let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
        let messages = (0..100).map(|i| delivered(times, message(ARN, &i.to_string(), "transient")));
        function.process(&service, messages).await.response.unwrap();
        let longest = changes(&server).into_values().max().unwrap();
        assert!((ceiling / 2..=ceiling).contains(&longest), "{longest} of {ceiling}");
    }
}

#[tokio::test]
async fn a_record_that_may_have_taken_effect_is_redelivered_after_its_claim() {
    for act in ["unknown", "panic"] {
        let function = Function::new();
        let changes = changes_after(&function, [message(ARN, "m0", act), message(ARN, "m1", "transient")]).await;
        // The minute of the invocation, the second after it, the margin, the millisecond after that, and one more
        // second.
        assert_eq!(changes["receipt of m0"], 64, "{act}");
        assert!(changes["receipt of m1"] <= 2);
    }
}

#[tokio::test]
async fn a_record_that_lost_its_lease_is_redelivered_after_the_other_lease() {
    let (function, server) = (Arc::new(Function::new()), Server::start().await);
    let stolen = Arc::clone(&function);
    let service = function.once.sqs(Key::pointer("/id"), move |_: Value| {
        stolen.hold("m0", seconds(600));
        async { Ok::<_, Failure>(()) }
    });
    let service = service.redelivery(VisibilityBackoff::new(server.client().await));
    let processed = function.process(&service, [message(ARN, "m0", "")]).await;
    assert_eq!((reported(&processed), processed.outcomes()), (vec!["m0".to_owned()], vec![Ok(OutcomeKind::LeaseLost)]));
    assert_eq!(changes(&server), [change("m0", 603)].into());
}

#[tokio::test]
async fn an_unrecorded_permanent_failure_comes_back_when_its_claim_has_ended() {
    let function = Function::new();
    function.store.always(Call::Settle, Fault::TableMissing);
    assert_eq!(changes_after(&function, [message(ARN, "m0", "permanent")]).await, [change("m0", 64)].into());
}

#[tokio::test]
async fn a_duplicate_comes_back_with_the_one_whose_outcome_it_has() {
    let function = Function::new();
    function.hold("m0", seconds(10));
    let twice = |id: &str, act: &str| {
        let mut again = message(ARN, id, act);
        again["receiptHandle"] = json!(format!("another receipt of {id}"));
        [message(ARN, id, act), again]
    };
    let messages = twice("m0", "").into_iter().chain(twice("m1", "unknown"));
    let changes = changes_after(&function, messages).await;
    assert_eq!(changes.into_values().collect::<Vec<_>>(), [13, 64, 13, 64]);
}

#[tokio::test]
async fn permanent_failures_and_unstarted_messages_keep_the_queues_own_time() {
    let function = Function::new();
    let undecodable = json!({
        "messageId": "m1", "receiptHandle": "receipt of m1", "body": "not JSON", "eventSourceARN": ARN, "attributes": {},
    });
    let mut keyless = message(ARN, "m2", "");
    keyless["body"] = json!("{}");
    let messages = [message(ARN, "m0", "permanent"), undecodable, keyless];
    assert!(changes_after(&function, messages).await.is_empty());

    let server = Server::start().await;
    let backoff = VisibilityBackoff::new(server.client().await);
    let service = function.service().redelivery(backoff).expected_duration(seconds(40)).concurrency(1);
    // It is polled when the first handler waits.
    let slow = async { function.clock.advance(seconds(30)) };
    let messages = [message(ARN, "m3", ""), message(ARN, "m4", "")];
    let (processed, ()) = tokio::join!(function.process(&service, messages), slow);
    assert_eq!(
        (reported(&processed), processed.records[1].outcome),
        (vec!["m4".to_owned()], Ok(OutcomeKind::NotStarted))
    );
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn ten_messages_share_a_call() {
    let (function, server) = (Function::new(), Server::start().await);
    let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
    let messages: Vec<_> = (0..25).map(|i| message(ARN, &format!("m{i}"), "transient")).collect();
    function.process(&service, messages).await.response.unwrap();
    let bodies = server.bodies(OPERATION);
    let mut receipts: Vec<_> = Vec::new();
    let mut sizes: Vec<_> = Vec::new();
    for body in &bodies {
        assert_eq!(body["QueueUrl"], URL);
        let entries = body["Entries"].as_array().unwrap();
        sizes.push(entries.len());
        receipts.extend(entries.iter().map(|entry| entry["ReceiptHandle"].as_str().unwrap().to_owned()));
    }
    sizes.sort_unstable();
    receipts.sort_unstable();
    let mut expected: Vec<_> = (0..25).map(|i| format!("receipt of m{i}")).collect();
    expected.sort_unstable();
    assert_eq!((sizes, receipts), (vec![5, 10, 10], expected));
}

#[tokio::test]
async fn each_queue_gets_its_own_calls() {
    let (function, server) = (Function::new(), Server::start().await);
    let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
    let china = "arn:aws-cn:sqs:cn-north-1:123456789012:orders";
    let messages = [(ARN, "m0"), (china, "m1"), (ARN, "m2"), ("a test", "m3")];
    let processed = function.process(&service, messages.map(|(arn, id)| message(arn, id, "transient"))).await;
    assert_eq!(reported(&processed), ["m0", "m1", "m2", "m3"]);
    let mut calls: Vec<_> = server
        .bodies(OPERATION)
        .iter()
        .map(|body| (body["QueueUrl"].as_str().unwrap().to_owned(), body["Entries"].as_array().unwrap().len()))
        .collect();
    calls.sort();
    let of_china = "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders".to_owned();
    assert_eq!(calls, [(of_china, 1), (URL.to_owned(), 2)], "what is not from a queue is left alone");
}

#[tokio::test]
async fn a_message_without_a_receipt_is_left_alone() {
    let mut bare = message(ARN, "m0", "transient");
    bare.as_object_mut().unwrap().remove("receiptHandle");
    assert!(changes_after(&Function::new(), [bare]).await.is_empty());
}

#[tokio::test]
async fn a_message_blocked_in_a_group_comes_back_with_the_one_before_it() {
    let function = Function::new();
    function.hold("b0", seconds(100));
    let messages = [
        in_group("a", message("", "a0", "transient")),
        in_group("b", message("", "b0", "")),
        in_group("a", message("", "a1", "")),
        in_group("c", message("", "c0", "permanent")),
        in_group("b", message("", "b1", "")),
        in_group("c", message("", "c1", "")),
        in_group("b", message("", "b2", "")),
        in_group("d", message("", "d0", "")),
        in_group("d", message("", "d1", "transient")),
        in_group("d", message("", "d2", "")),
    ];
    let changes = changes_after(&function, messages).await;
    assert_eq!(changes["receipt of a0"], changes["receipt of a1"]);
    assert_eq!(changes["receipt of d1"], changes["receipt of d2"]);
    let conflicts = ["b0", "b1", "b2"].map(|id| changes[&format!("receipt of {id}")]);
    assert_eq!(conflicts, [103; 3]);
    assert_eq!(changes.len(), 7, "what fails for good, and what is behind it, keep the queue's own time");
}

#[tokio::test]
async fn messages_keep_their_groups_whatever_an_envelope_names_so() {
    let (function, server) = (Function::new(), Server::start().await);
    function.hold("a0", seconds(600));
    let backoff = VisibilityBackoff::new(server.client().await);
    let service = function.service().envelope(Grouped).redelivery(backoff);
    let messages = [
        in_group("a", message("", "a0", "")),
        in_group("a", message("", "a1", "")),
        in_group("b", message("", "b0", "unknown")),
    ];
    service.process(LambdaEvent::new(event(messages), function.context())).await.response.unwrap();
    assert_eq!(changes(&server), [change("a0", 603), change("a1", 603), change("b0", 64)].into());
}

#[tokio::test]
async fn a_record_that_waited_for_a_duplicate_is_redelivered_with_it() {
    let function = Function::new();
    function.hold("c0", seconds(600));
    let mut twin = message("", "twin", "");
    twin["body"] = message("", "a1", "")["body"].clone();
    let messages = [
        in_group("a", message("", "a0", "unknown")),
        in_group("a", message("", "a1", "")),
        in_group("b", twin),
        in_group("b", message("", "b1", "")),
        in_group("c", message("", "c0", "")),
    ];
    let changes = changes_after(&function, messages).await;
    let expected = [("a0", 64), ("a1", 64), ("twin", 64), ("b1", 64), ("c0", 603)];
    assert_eq!(changes, expected.map(|(id, time)| change(id, time)).into());
}

/// Returns the changes after two messages with these acts in the groups `a` and `b`, one behind the first of them, and
/// one of another group. The last two are not started, because the batch is stopped.
async fn changes_after_a_stop(acts: [&str; 2], at_once: usize) -> BTreeMap<String, u64> {
    let (function, server) = (Function::new(), Server::start().await);
    let backoff = VisibilityBackoff::new(server.client().await).base(seconds(1));
    let service = function.service().redelivery(backoff).on_failure(OnFailure::StopBatch).concurrency(at_once);
    let messages = [("a", "a0", acts[0]), ("b", "b0", acts[1]), ("a", "a1", ""), ("c", "c0", "")];
    let messages = messages.map(|(group, id, act)| in_group(group, message("", id, act)));
    let outcomes = function.process(&service, messages).await.outcomes();
    assert_eq!(outcomes[2..], [Ok(OutcomeKind::Skipped); 2], "{outcomes:?}");
    assert!(!outcomes[..2].contains(&Ok(OutcomeKind::Skipped)), "{outcomes:?}");
    changes(&server)
}

#[tokio::test]
async fn messages_skipped_by_a_stop_do_not_come_back_before_its_cause() {
    let stopped = ["b0", "a1", "c0"].map(|id| change(id, 64)).into();
    assert_eq!(changes_after_a_stop(["", "unknown"], 1).await, stopped, "also what is behind one that did not fail");

    let changes = changes_after_a_stop(["transient", "unknown"], 2).await;
    assert!(changes["receipt of a0"] <= 2 && changes["receipt of a1"] == changes["receipt of a0"], "{changes:?}");
    assert_eq!(["b0", "c0"].map(|id| changes[&format!("receipt of {id}")]), [64, 64], "either may have stopped it");

    let changes = changes_after_a_stop(["unknown", "permanent"], 2).await;
    let expected = ["a0", "a1"].map(|id| change(id, 64)).into();
    assert_eq!(
        changes, expected,
        "one that may have stopped it keeps the queue's own time, and so do the messages it blocked"
    );
}

#[tokio::test]
async fn a_refusal_is_logged_and_changes_nothing() {
    let (function, server) = (Function::new(), Server::start().await);
    let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
    let failed = json!({ "Id": "0", "SenderFault": true, "Code": "ReceiptHandleIsInvalid", "Message": "too old" });
    server.answer(200, json!({ "Successful": [{ "Id": "1" }], "Failed": [failed] }));
    server.deny();
    server.answer(500, json!({ "__type": "com.amazonaws.sqs#InternalError", "message": "oh" }));
    for (said, field) in [("ReceiptHandleIsInvalid", "code"), ("AccessDenied", "error"), ("InternalError", "error")] {
        let (collector, guard) = Collector::install();
        let messages = ["m0", "m1"].map(|id| message(ARN, id, "transient"));
        assert_eq!(reported(&function.process(&service, messages).await), ["m0", "m1"]);
        drop(guard);
        let lines = collector.lines();
        let warnings: Vec<_> = lines.iter().filter(|line| line.level == Level::WARN).collect();
        assert_eq!(warnings.len(), 1, "{lines:?}");
        assert!(warnings[0].get(field).contains(said), "{lines:?}");
    }
}

#[tokio::test]
async fn a_call_that_fails_does_not_keep_the_others_from_being_made() {
    let (function, server) = (Function::new(), Server::start().await);
    let service = function.service().redelivery(VisibilityBackoff::new(server.client().await));
    server.deny();
    let messages: Vec<_> = (0..25).map(|i| message(ARN, &format!("m{i}"), "transient")).collect();
    function.process(&service, messages).await.response.unwrap();
    assert_eq!(server.calls().len(), 3);
}
