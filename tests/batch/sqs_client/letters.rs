//! Dead letters that are sent to a queue.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lambda_once::{
    BoxError, Error, Failure, Key,
    batch::{RecordInfo, Source, sqs::SqsDeadLetters},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};

use crate::sqs_client::{
    function::{ARN, Function, Grouped, event, message, reported},
    server::Server,
};

const DEAD: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/dead";
const DEAD_FIFO: &str = "https://sqs.us-east-1.amazonaws.com/123456789012/dead.fifo";

/// Returns the requests to the queue at this URL for this message, and whether the message is reported.
async fn sent_to(url: &str, server: &Server, message: Value) -> (Vec<Value>, bool) {
    let function = Function::new();
    let service = function.service().dead_letters(SqsDeadLetters::new(server.client().await, url));
    let is_reported = !reported(&function.process(&service, [message]).await).is_empty();
    (server.bodies("SendMessage"), is_reported)
}

/// Returns the request for this message, which is acknowledged.
async fn sent(message: Value) -> Value {
    let (mut sent, is_reported) = sent_to(DEAD, &Server::start().await, message).await;
    assert_eq!((sent.len(), is_reported), (1, false));
    sent.remove(0)
}

fn string(text: &str) -> Value {
    json!({ "DataType": "String", "StringValue": text })
}

/// Returns the values of the attributes, all of type String.
fn attributes(sent: &Value) -> BTreeMap<String, String> {
    let attributes = sent["MessageAttributes"].as_object().unwrap().iter();
    let text = |(name, value): (&String, &Value)| {
        let text = value["StringValue"].as_str().unwrap();
        assert_eq!(*value, string(text));
        (name.clone(), text.to_owned())
    };
    attributes.map(text).collect()
}

fn with_body(body: &str) -> Value {
    let mut message = message(ARN, "m0", "");
    message["body"] = json!(body);
    message
}

#[tokio::test]
async fn a_dlq_message_is_the_message_with_its_failure_as_attributes() {
    let key = Function::new().once.key_hash("sqs", "m0").unwrap().to_hex();
    let expected = json!({
        "QueueUrl": DEAD,
        "MessageBody": json!({ "id": "m0", "act": "permanent" }).to_string(),
        "MessageAttributes": {
            "lambda-once.error": string("the shop is closed"),
            "lambda-once.key": string(&key),
            "lambda-once.message-id": string("m0"),
            "lambda-once.reason": string("failed"),
            "lambda-once.source": string(ARN),
        },
    });
    assert_eq!(sent(message(ARN, "m0", "permanent")).await, expected);
}

#[tokio::test]
async fn a_letter_goes_to_the_clients_own_endpoint() {
    let (function, server) = (Function::new(), Server::start().await);
    let service = function.service().dead_letters(SqsDeadLetters::new(server.client().await, DEAD));
    function.process(&service, [message(ARN, "m0", "permanent")]).await.response.unwrap();
    let call = server.calls().pop().unwrap();
    assert_eq!((&*call.host, &*call.path), (server.address(), "/"));
}

#[tokio::test]
async fn a_letter_that_cannot_be_sent_leaves_its_message_to_the_queue() {
    let server = Server::start().await;
    server.deny();
    assert!(sent_to(DEAD, &server, message(ARN, "m0", "permanent")).await.1);
    server.answer(503, json!({}));
    assert!(sent_to(DEAD, &server, message(ARN, "m0", "permanent")).await.1);
    assert!(!sent_to(DEAD, &server, message(ARN, "m0", "permanent")).await.1);
}

#[tokio::test]
async fn the_senders_attributes_go_along_as_far_as_there_is_room() {
    let mut crowded = message(ARN, "m0", "permanent");
    let text = |text: &str| json!({ "dataType": "String", "stringValue": text });
    for i in 0..10 {
        crowded["messageAttributes"][format!("sender.{i}")] = text("theirs");
    }
    crowded["messageAttributes"]["binary"] = json!({ "dataType": "Binary", "binaryValue": "AAEC" });
    let names = attributes(&sent(crowded).await);
    assert_eq!(names.len(), 10, "{names:?}");
    assert_eq!(names.keys().filter(|name| name.starts_with("lambda-once.")).count(), 5, "ours are all there");
    assert!(names.iter().filter(|(name, _)| name.starts_with("sender.")).all(|(_, text)| text == "theirs"));

    let mut odd = message(ARN, "m0", "permanent");
    for name in
        ["AWS.one", "amazon.two", "lambda-once.reason", "Lambda-Once.x", ".three", "four.", "fi..ve", "s ix", "ü"]
    {
        odd["messageAttributes"][name] = text("theirs");
    }
    odd["messageAttributes"]["number"] = json!({ "dataType": "Number", "stringValue": "7" });
    odd["messageAttributes"]["binary"] = json!({ "dataType": "Binary", "binaryValue": "AAEC" });
    let mut letter = sent(odd).await;
    let binary = letter["MessageAttributes"].as_object_mut().unwrap().remove("binary");
    assert_eq!(binary, Some(json!({ "DataType": "Binary", "BinaryValue": "AAEC" })));
    let names = attributes(&letter);
    assert_eq!((names.len(), &*names["number"], &*names["lambda-once.reason"]), (6, "7", "failed"));
}

#[tokio::test]
async fn a_senders_trace_goes_along() {
    let trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1";
    let mut traced = message(ARN, "m0", "permanent");
    traced["attributes"]["AWSTraceHeader"] = json!(trace);
    assert_eq!(sent(traced).await["MessageSystemAttributes"], json!({ "AWSTraceHeader": string(trace) }));
}

#[tokio::test]
async fn in_a_fifo_queue_a_letter_keeps_its_group_and_is_sent_once() {
    let server = Server::start().await;
    let of = async |id: &str, arn: &str, group: Option<&str>| {
        let mut message = message(arn, id, "permanent");
        if let Some(group) = group {
            message["attributes"]["MessageGroupId"] = json!(group);
        }
        let letter = sent_to(DEAD_FIFO, &server, message).await.0.remove(0);
        let text = |name: &str| letter[name].as_str().unwrap().to_owned();
        (text("MessageGroupId"), text("MessageDeduplicationId"))
    };
    let fifo = "arn:aws:sqs:us-east-1:123456789012:orders.fifo";
    let first = of("m0", fifo, Some("customer 7")).await;
    assert_eq!(first.0, "customer 7");
    assert!(first.1.len() == 64 && first.1.chars().all(|c| c.is_ascii_hexdigit()), "{}", first.1);
    assert_eq!(of("m0", fifo, Some("customer 7")).await, first, "the next try is the same letter");
    assert_ne!(of("m1", fifo, Some("customer 7")).await.1, first.1);
    assert_ne!(of("m0", ARN, Some("customer 7")).await.1, first.1);
    assert_eq!(of("m0", ARN, None).await.0, "lambda-once");
    let to_standard = sent(message(fifo, "m0", "permanent")).await;
    assert!(to_standard.get("MessageGroupId").is_none() && to_standard.get("MessageDeduplicationId").is_none());
}

#[tokio::test]
async fn a_letter_keeps_its_group_whatever_its_envelope_names_so() {
    let (function, server) = (Function::new(), Server::start().await);
    let letters = SqsDeadLetters::new(server.client().await, DEAD_FIFO);
    let service = function.service().envelope(Grouped).dead_letters(letters);
    let mut ordered = message("arn:aws:sqs:us-east-1:123456789012:orders.fifo", "m0", "permanent");
    ordered["attributes"]["MessageGroupId"] = json!("customer 7");
    service.process(LambdaEvent::new(event([ordered]), function.context())).await.response.unwrap();
    assert_eq!(server.bodies("SendMessage")[0]["MessageGroupId"], "customer 7");
}

#[tokio::test]
async fn a_body_that_a_message_cannot_hold_is_sent_in_base64() {
    for (body, encoded) in [("\u{1}x", "AXg="), ("a\u{fffe}", "Ye+/vg=="), ("\u{0}", "AA=="), ("", " ")] {
        let letter = sent(with_body(body)).await;
        assert_eq!(letter["MessageBody"], encoded, "{body:?}");
        assert_eq!(attributes(&letter)["lambda-once.encoding"], "base64");
    }
    for body in ["not JSON", " ", "a\tb\r\nc", "ü \u{1f980} \u{d7ff}\u{e000}\u{fffd}\u{10000}"] {
        let letter = sent(with_body(body)).await;
        assert_eq!(letter["MessageBody"], body);
        assert!(!attributes(&letter).contains_key("lambda-once.encoding"));
    }
}

/// A custom source of byte records. All have this id, and are numbered.
#[derive(Clone, Debug)]
struct Elsewhere(&'static str, Arc<AtomicUsize>);

impl Source for Elsewhere {
    type Event = Vec<Vec<u8>>;
    type Record = Vec<u8>;
    type Rest = ();
    type Body = Vec<u8>;
    type Response = usize;
    const OPERATION: &'static str = "elsewhere";

    fn split(&self, event: Vec<Vec<u8>>) -> Result<(Vec<Vec<u8>>, ()), Error> {
        Ok((event, ()))
    }

    fn lane<'a>(&self, _: &'a Vec<u8>) -> Option<Cow<'a, str>> {
        None
    }

    fn open(&self, record: Vec<u8>) -> (RecordInfo, Vec<u8>) {
        let mut info = RecordInfo::new(self.0).with_header("empty", "").with_header("control", "a\u{1}b");
        for tenant in 0..20 {
            info = info.with_header("tenant", tenant.to_string());
        }
        let number = self.1.fetch_add(1, Ordering::Relaxed);
        (info.with_header("trace", "t-1").with_header("number", number.to_string()), record)
    }

    fn respond(&self, (): (), failed: &[Arc<RecordInfo>]) -> Result<usize, Error> {
        Ok(failed.len())
    }
}

/// Returns the requests to the queue at this URL for records with this id and these bodies, which cannot be decoded.
async fn sent_from_elsewhere(url: &str, id: &'static str, bodies: &[&[u8]]) -> Vec<Value> {
    let decode = |_: &Vec<u8>| Err::<(), _>("no".into());
    refused_elsewhere(url, Elsewhere(id, Arc::default()), decode, bodies).await
}

/// Returns the requests for records that are distinguished by a header, and fail permanently.
async fn failed_elsewhere(url: &str, id: &'static str, bodies: &[&[u8]]) -> Vec<Value> {
    refused_elsewhere(url, Elsewhere(id, Arc::default()), |_: &Vec<u8>| Ok(()), bodies).await
}

async fn refused_elsewhere(
    url: &str,
    source: Elsewhere,
    decode: impl Fn(&Vec<u8>) -> Result<(), BoxError> + Send + Sync + 'static,
    bodies: &[&[u8]],
) -> Vec<Value> {
    let (function, server) = (Function::new(), Server::start().await);
    let handler = |()| async { Err::<(), _>(Failure::permanent("the shop is closed")) };
    let service = function.once.batch(source, Key::header("number"), move |_, body| decode(body), handler);
    let service = service.dead_letters(SqsDeadLetters::new(server.client().await, url));
    let event = LambdaEvent::new(bodies.iter().map(|body| body.to_vec()).collect(), function.context());
    assert_eq!(service.process(event).await.response.unwrap(), 0, "all are acknowledged");
    server.bodies("SendMessage")
}

#[tokio::test]
async fn records_of_other_sources_are_sent_too() {
    let letter = sent_from_elsewhere(DEAD, "r", &[&[0xff, 0x00]]).await.remove(0);
    assert_eq!(letter["MessageBody"], "/wA=");
    let attributes = attributes(&letter);
    assert_eq!(attributes["control"], "a\u{fffd}b");
    // Of several headers with one name, only the last one counts and takes space.
    assert_eq!((&*attributes["tenant"], &*attributes["trace"]), ("19", "t-1"));
    assert!(!attributes.contains_key("empty") && !attributes.contains_key("lambda-once.source"));
}

#[tokio::test]
async fn in_a_fifo_queue_dlq_messages_of_other_records_are_no_duplicates() {
    // Ids are optional and may repeat, for example with publishers to RabbitMQ.
    for (id, bodies) in [("r", ["a", "b"]), ("", ["a", "b"]), ("", ["a", "a"])] {
        let letters = sent_from_elsewhere(DEAD_FIFO, id, &bodies.map(str::as_bytes)).await;
        let [first, second] = [0, 1].map(|i| letters[i]["MessageDeduplicationId"].as_str().unwrap());
        assert_ne!(first, second, "{id:?} {bodies:?}");
        for id in [first, second] {
            assert!(id.len() == 64 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
        }
    }
    for id in ["r", ""] {
        let twice = async || {
            let letters = failed_elsewhere(DEAD_FIFO, id, &[b"a", b"a"]).await;
            [0, 1].map(|i| letters[i]["MessageDeduplicationId"].as_str().unwrap().to_owned())
        };
        let [mut first, mut again] = [twice().await, twice().await];
        assert_ne!(first[0], first[1], "{id:?}: two operations");
        first.sort_unstable();
        again.sort_unstable();
        assert_eq!(first, again, "{id:?}: the next try is the same letter");
    }
}

#[tokio::test]
async fn of_a_long_error_the_beginning_is_sent() {
    for (text, sent) in [("é".repeat(3_000), "é".repeat(1_000)), ("a\u{1}b".to_owned(), "a\u{fffd}b".to_owned())] {
        let (function, server) = (Function::new(), Server::start().await);
        let service = function.once.sqs(Key::pointer("/id"), move |_: Value| {
            let text = text.clone();
            async move { Err::<(), _>(Failure::permanent(text)) }
        });
        let service = service.dead_letters(SqsDeadLetters::new(server.client().await, DEAD));
        function.process(&service, [message(ARN, "m0", "")]).await.response.unwrap();
        assert_eq!(attributes(&server.bodies("SendMessage")[0])["lambda-once.error"], sent);
    }
}
