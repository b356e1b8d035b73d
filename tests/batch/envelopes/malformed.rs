//! Invalid envelopes. Each fails only its own message, with an error that names the remedy.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use lambda_once::{
    BoxFuture, ErrorKind, Failure, Key, OutcomeKind, PermanentFailures, Verdict,
    batch::{
        DeadLetter, DeadLetters, Processed,
        envelope::{Content, Envelope, EnvelopeError, EventBridge, Message, S3, Sns},
    },
    testing::{self, Redeliver, s3, sns, sqs},
};
use serde_json::{Value, json};

use super::{answer, batch, deliver};
use crate::{support::collector::Collector, testing::journal::Journal};

const BAD: Result<OutcomeKind, ErrorKind> = Err(ErrorKind::Payload);
const DONE: Result<OutcomeKind, ErrorKind> = Ok(OutcomeKind::Executed);

#[tokio::test]
async fn a_subscription_confirmation_is_an_error_that_names_the_action() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Sns);
    let confirmation = include_str!("events/sns-subscription-confirmation.json");
    let delivered = deliver(&service, batch(&["1", confirmation, "2"])).await;
    assert_eq!(delivered.outcomes(), [DONE, BAD, DONE]);
    assert_eq!(answer(&delivered), ["m-2"]);
    let error = delivered.records[1].error.as_deref().unwrap();
    assert!(error.contains("ConfirmSubscription"), "{error}");
    assert!(!error.contains("2336412f37fb687f5d51e6e2425dacbbffff"), "the token is the payload's");
}

#[tokio::test]
async fn a_notification_that_was_changed_on_its_way_fails_alone() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Sns);
    let notification = |message: Value, attributes: Value| {
        json!({
            "Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:us-east-1:123456789012:t",
            "Message": message, "Timestamp": "2026-11-21T10:00:00.111Z", "MessageAttributes": attributes,
        })
        .to_string()
    };
    let bodies = [
        notification(json!({}), json!({})),
        notification(Value::Null, json!({})),
        notification(json!("1"), json!({ "a": "b" })),
        notification(json!("1"), Value::Null),
    ];
    let delivered = deliver(&service, batch(&bodies.each_ref().map(|body| &**body))).await;
    assert_eq!(delivered.outcomes(), [BAD, BAD, BAD, DONE]);
}

#[tokio::test]
async fn a_body_not_from_s3_or_eventbridge_fails_with_the_remedy() {
    let journal = Journal::<Value>::new();
    let once = testing::engine();
    let put = s3::notification([s3::created("photos", "a")]);
    let strangers = [
        "{}".to_owned(),
        r#"{"Records":{}}"#.to_owned(),
        json!({ "Records": [{
            "eventSource": "aws:ses", "eventName": "ObjectCreated:Put", "eventTime": "2026-11-21T10:00:00.111Z",
            "s3": { "bucket": { "name": "photos" }, "object": { "key": "a" } },
        }]})
        .to_string(),
        r#"{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put"}]}"#.to_owned(),
        r#"{"Event":"s3:OtherEvent"}"#.to_owned(),
        "[]".to_owned(),
        "secret".to_owned(),
        String::new(),
    ];
    let texts = strangers.each_ref().map(|text| &**text);
    let service = once.sqs(Key::message_id(), journal.handler()).envelope(S3);
    let delivered = deliver(&service, batch(&texts)).await;
    assert_eq!(delivered.outcomes(), [BAD; 8]);
    assert_eq!(answer(&delivered).len(), 8);
    let wrapped = testing::deliver(&service, &sqs::batch([sns::in_sqs(&put), put])).await;
    assert_eq!(wrapped.outcomes(), [BAD, DONE]);
    assert!(wrapped.records[0].error.as_deref().unwrap().contains("envelope((Sns, S3))"));
    drop(service);

    let service = once.sqs(Key::message_id(), journal.handler()).envelope(EventBridge);
    let delivered = deliver(&service, batch(&texts)).await;
    assert_eq!(delivered.outcomes(), [BAD; 8]);
    let error = delivered.records[6].error.as_deref().unwrap();
    assert!(error.contains("input transformer") && !error.contains("secret"), "{error}");
}

/// An envelope that panics on request.
#[derive(Clone, Debug)]
struct Fragile;

impl Envelope for Fragile {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        match body {
            b"panic" => panic!("the envelope"),
            b"error" => Err(EnvelopeError::new("not today")),
            _ => Ok(Content::Messages(vec![Message::new("1").with_id("a"), Message::new("2").with_id("b")])),
        }
    }
}

#[tokio::test]
async fn an_envelope_that_panics_fails_its_message_under_every_policy() {
    let journal = Journal::<Value>::new();
    let service = testing::engine()
        .sqs(Key::message_id(), journal.handler())
        .envelope(Fragile)
        .permanent_failures(PermanentFailures::Acknowledge);
    let delivered = deliver(&service, batch(&["panic", "error", "ok"])).await;
    assert_eq!(delivered.outcomes(), [Err(ErrorKind::Decode), BAD, DONE, DONE]);
    assert_eq!(answer(&delivered), ["m-1"]);
}

#[derive(Clone, Debug, Default)]
struct Sent(Arc<Mutex<Vec<Vec<u8>>>>);

impl DeadLetters for Sent {
    fn send<'a>(&'a self, letter: DeadLetter<'a>) -> BoxFuture<'a, Result<(), lambda_once::BoxError>> {
        self.0.lock().unwrap().push(letter.body.to_vec());
        Box::pin(async { Ok(()) })
    }
}

async fn refuse(_: Value) -> Result<(), Failure> {
    Err(Failure::permanent("no"))
}

/// A message that is redriven to the queue must be one that the service can unwrap.
#[tokio::test]
async fn a_dlq_message_has_its_envelope() {
    let sent = Sent::default();
    let service = testing::engine().sqs(Key::message_id(), refuse).envelope((Sns, S3)).dead_letters(sent.clone());
    let alone = s3::notification([s3::created("photos", "a")]);
    let two = s3::notification([s3::created("photos", "b"), s3::created("photos", "c")]);
    let bad = testing::bytes("no notification of S3");
    let batch = sqs::batch([sns::in_sqs(&alone), sns::in_sqs_raw(&alone).id("again"), two, sns::in_sqs(&bad)]);
    let delivered = testing::deliver(&service, &batch).await;
    assert!(delivered.reported().is_empty(), "{:?}", delivered.outcomes());
    let letters = std::mem::take(&mut *sent.0.lock().unwrap());
    assert_eq!(letters.len(), 4, "the raw one is the first one again");
    let received = batch.delivery(1).records.into_iter().map(|message| message.body.unwrap());
    let as_received: Vec<_> = received.map(|body| letters.contains(&body.into_bytes())).collect();
    let expected = [true, false, false, true];
    assert_eq!(as_received, expected, "those of a message with one record are its body as received");
    let keys = |processed: &Processed<_>| -> HashSet<_> { processed.records.iter().map(|report| report.key).collect() };
    // Each is redriven separately, with its original key.
    let bodies: Vec<_> = letters.iter().map(|body| std::str::from_utf8(body).unwrap()).collect();
    let redriven = deliver(&service, super::batch(&bodies)).await;
    assert_eq!((redriven.records.len(), keys(&redriven)), (4, keys(&delivered)));
    let again = [Ok(OutcomeKind::ReplayedFailure), BAD];
    assert!(redriven.outcomes().iter().all(|outcome| again.contains(outcome)), "{:?}", redriven.outcomes());
}

/// An envelope of two messages that cannot be wrapped again.
#[derive(Clone, Debug)]
struct Torn;

impl Envelope for Torn {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        if body != b"torn" {
            return Ok(Content::Bare);
        }
        let message = |id: &str| Message::new("7").with_id(id).rewrapped_by(|_| panic!("the envelope"));
        Ok(Content::Messages(vec![message("a"), message("b")]))
    }
}

#[tokio::test]
async fn a_rewrap_that_panics_leaves_its_message_to_the_queue() {
    let sent = Sent::default();
    let refuse_seven =
        |order: Value| async move { if order == json!(7) { Err(Failure::permanent("no")) } else { Ok(()) } };
    let service = testing::engine().sqs(Key::message_id(), refuse_seven).envelope(Torn).dead_letters(sent.clone());
    let (collector, guard) = Collector::install();
    let delivered = deliver(&service, batch(&["torn", "1"])).await;
    drop(guard);
    let failed = Ok(OutcomeKind::Failed(Verdict::Permanent));
    assert_eq!(delivered.outcomes(), [failed, failed, DONE]);
    assert_eq!((answer(&delivered), sent.0.lock().unwrap().len()), (vec!["m-1"], 0));
    let errors = collector.lines().into_iter().filter(|line| line.level == tracing::Level::ERROR);
    let errors: Vec<_> = errors.map(|line| line.get("error").to_owned()).collect();
    assert_eq!(errors, ["making its dead letter panicked"; 2]);
}

/// An envelope that contains the messages listed in the body, with these ids.
#[derive(Clone, Debug)]
struct Listed(&'static [Option<&'static str>]);

impl Envelope for Listed {
    fn open(&self, body: &[u8]) -> Result<Content, EnvelopeError> {
        let orders: Vec<Value> = serde_json::from_slice(body).map_err(|_| EnvelopeError::new("it is no list"))?;
        let message = |(order, id): (Value, &Option<&str>)| match id {
            Some(id) => Message::new(order.to_string()).with_id(*id),
            None => Message::new(order.to_string()),
        };
        Ok(Content::Messages(orders.into_iter().zip(self.0).map(message).collect()))
    }
}

#[tokio::test]
async fn an_envelope_of_several_messages_runs_none_if_one_has_no_id() {
    const LISTS: [&[Option<&str>]; 4] =
        [&[None; 3], &[Some("a"), None, Some("c")], &[Some("a"), Some("b"), Some("")], &[Some("a"), None]];
    let list = json!([1, 2, 3]).to_string();
    for ids in LISTS {
        for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
            let journal = Journal::<Value>::new();
            let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Listed(ids));
            let delivered = deliver(&service.permanent_failures(policy), batch(&[&list])).await;
            assert_eq!(delivered.outcomes(), [BAD], "{ids:?}");
            assert!(journal.payloads().is_empty());
            let error = delivered.records[0].error.as_deref().unwrap();
            assert!(error.contains("no id"), "{error}");
        }
    }
    let journal = Journal::<Value>::new();
    let named = testing::engine().sqs(Key::message_id(), journal.handler());
    let named = named.envelope(Listed(&[Some("a"), Some("b"), Some("c")]));
    assert_eq!(deliver(&named, batch(&[&list])).await.outcomes(), [DONE; 3]);
    let one = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Listed(&[None]));
    assert_eq!(deliver(&one, batch(&["[4]"])).await.outcomes(), [DONE], "one has the id of the record around it");
}

#[tokio::test]
async fn two_different_messages_with_one_id_are_malformed_and_neither_runs() {
    const IDS: &[Option<&str>] = &[Some("a"), Some("b"), Some("a")];
    for key in [Key::message_id(), Key::pointer("")] {
        for policy in [PermanentFailures::Report, PermanentFailures::Acknowledge] {
            let journal = Journal::<Value>::new();
            let service = testing::engine().sqs(key.clone(), journal.handler()).envelope(Listed(IDS));
            let delivered = deliver(&service.permanent_failures(policy), batch(&["[1, 2, 3]"])).await;
            assert_eq!(delivered.outcomes(), [BAD]);
            assert!(journal.payloads().is_empty());
            let error = delivered.records[0].error.as_deref().unwrap();
            assert!(error.contains("the same id"), "{error}");
        }
    }
}

#[tokio::test]
async fn two_equal_messages_with_one_id_are_duplicates_and_run_once() {
    const IDS: &[Option<&str>] = &[Some("a"), Some("b"), Some("a")];
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Listed(IDS));
    let delivered = deliver(&service, batch(&["[1, 2, 1]"])).await;
    assert_eq!(delivered.outcomes(), [DONE, DONE, Ok(OutcomeKind::Replayed)]);
    assert_eq!(journal.payloads(), [json!(1), json!(2)]);
    assert!(delivered.reported().is_empty());
}

/// An envelope that contains one order twice, with the same id, in two spellings.
#[derive(Clone, Debug)]
struct Respelled;

impl Envelope for Respelled {
    fn open(&self, _: &[u8]) -> Result<Content, EnvelopeError> {
        let spellings = [r#"{"id": 7, "total": 1}"#, r#"{"total":1,"id":7}"#];
        Ok(Content::Messages(spellings.map(|text| Message::new(text).with_id("a")).into()))
    }
}

#[tokio::test]
async fn two_spellings_of_one_payload_are_equal_messages() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(Respelled);
    let delivered = deliver(&service, batch(&["[]"])).await;
    assert_eq!(delivered.outcomes(), [DONE, Ok(OutcomeKind::Replayed)]);
    assert_eq!(journal.payloads().len(), 1);
}
