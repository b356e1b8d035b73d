//! S3 in SQS, in SNS, and in SNS in SQS. Each record is a separate operation.

use std::sync::Arc;

use lambda_once::{
    BoxError, BoxFuture, ErrorKind, Failure, Key, OutcomeKind, Payload, RecordContext, Verdict,
    batch::{
        RecordInfo,
        envelope::{S3, S3Record, Sns},
        sqs::Sqs,
    },
    store::{fault::Call, fault::FaultStore},
    testing::{self, s3, sns, sqs},
};

use serde_json::Value;

use super::{answer, batch, deliver, events};
use crate::testing::journal::Journal;

#[tokio::test]
async fn a_record_is_decoded_with_its_key() {
    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let event = events!("s3-in-sqs");
    let delivered = deliver(&service, event.clone()).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Ignored), Ok(OutcomeKind::Executed)], "s3:TestEvent is first");
    assert!(answer(&delivered).is_empty());
    assert_eq!(deliver(&service, event).await.outcomes(), [Ok(OutcomeKind::Ignored), Ok(OutcomeKind::Replayed)]);
    let (record, context) = journal.runs().remove(0);
    assert_eq!((&*record.bucket, &*record.key), ("photos", "2026/Happy Face+ü.jpg"));
    assert_eq!((record.size, record.etag.as_deref()), (Some(10), Some("336311a016184326ddbdd61edd4eeb52")));
    assert_eq!((record.version_id, record.sequencer, &*record.region), (None, None, "us-east-1"));
    assert_eq!(context.record().attribute("key"), Some("2026/Happy Face+ü.jpg"));
    assert_eq!(
        (context.record().attribute("eventName"), context.record().attribute("bucket")),
        (Some("ObjectCreated:Put"), Some("photos"))
    );
}

#[tokio::test]
async fn a_topic_in_between_changes_nothing() {
    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope((Sns, S3));
    let expected = [Ok(OutcomeKind::Ignored), Ok(OutcomeKind::Executed)];
    assert_eq!(deliver(&service, events!("s3-in-sns-in-sqs")).await.outcomes(), expected);
    assert_eq!(journal.payloads()[0].key, "b.jpg");
    let notification = s3::notification([s3::created("photos", "c.jpg")]);
    let [wrapped, raw, direct] = [sns::in_sqs(&notification), sns::in_sqs_raw(&notification), notification];
    testing::deliver_twice(&service, &sqs::batch([wrapped.header("around", "1"), raw, direct])).await.assert_once();
    let runs = journal.runs();
    assert_eq!(runs.len(), 2);
    let context = &runs[1].1;
    assert_eq!(context.record().attribute("Subject"), Some("Amazon S3 Notification"), "of the envelope around it");
    assert_eq!((context.record().attribute("bucket"), context.record().header("around")), (Some("photos"), Some("1")));

    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sns(Key::message_id(), journal.handler()).envelope(S3);
    testing::deliver_twice(&service, &sns::event(s3::test_event("photos"))).await.assert_once();
    let both = s3::notification([s3::created("photos", "a.jpg"), s3::created("photos", "b.jpg")]);
    testing::deliver_twice(&service, &sns::event(both)).await.assert_once();
    assert_eq!(journal.runs().len(), 2);
}

#[tokio::test]
async fn a_custom_type_sees_the_record_as_s3_sends_it() {
    let journal = Journal::<Value>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let body = include_str!("events/s3-notification.json");
    assert_eq!(deliver(&service, batch(&[body])).await.outcomes(), [Ok(OutcomeKind::Executed)]);
    let (record, context) = journal.runs().remove(0);
    assert_eq!(record["s3"]["object"]["key"], "Happy%20Face.jpg");
    assert_eq!(record["responseElements"]["x-amz-request-id"], "C3D13FE58DE4C810");
    let id = r#"["sourcebucket","Happy%20Face.jpg","version","ObjectCreated:Put","Happy Sequencer",null]"#;
    assert_eq!(context.record().message_id(), id);
    assert_eq!(context.record().id(), "m-1");
}

#[tokio::test]
async fn an_event_is_a_change_of_an_object_not_its_request_or_notification() {
    let journal = Journal::<S3Record>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let event = s3::created("photos", "a.jpg").sequencer(Some("0055AED6DCD90281E5")).request_id("C3D13FE58DE4C810");
    let run = async |record: &s3::Record| {
        testing::deliver(&service, &sqs::batch([s3::notification([record.clone()])])).await.outcomes()
    };
    assert_eq!(run(&event).await, [Ok(OutcomeKind::Executed)]);
    for same in [
        event.clone(),
        event.clone().request_id("AAAAAAAAAAAAAAAA"),
        event.clone().event_time("2027-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(run(&same).await, [Ok(OutcomeKind::Replayed)]);
    }
    for other in [
        event.clone().sequencer(Some("0055AED6DCD90281E6")),
        event.clone().version_id("v2"),
        s3::record("ObjectRemoved:Delete", "photos", "a.jpg").sequencer(Some("0055AED6DCD90281E5")),
        s3::created("photos", "b.jpg").sequencer(Some("0055AED6DCD90281E5")),
        s3::created("videos", "a.jpg").sequencer(Some("0055AED6DCD90281E5")),
    ] {
        assert_eq!(run(&other).await, [Ok(OutcomeKind::Executed)], "{other:?}");
    }
    assert_eq!(run(&event.clone().etag("another")).await, [Ok(OutcomeKind::Mismatch)]);
    // Events without a sequencer are distinguished by their time.
    let tagged = |time: &str| s3::record("ObjectTagging:Put", "photos", "a.jpg").sequencer(None).event_time(time);
    assert_eq!(run(&tagged("2026-11-21T10:00:00.111Z")).await, [Ok(OutcomeKind::Executed)]);
    assert_eq!(run(&tagged("2026-11-21T10:00:00.112Z")).await, [Ok(OutcomeKind::Executed)]);
    assert_eq!(run(&tagged("2026-11-21T10:00:00.111Z").request_id("B")).await, [Ok(OutcomeKind::Replayed)]);
}

#[tokio::test]
async fn the_content_of_an_object_can_be_the_operation() {
    let journal = Journal::<S3Record>::new();
    let key = Key::composite([Key::attribute("bucket"), Key::attribute("key"), Key::pointer("/s3/object/eTag")]);
    let service = testing::engine().sqs(key, journal.handler()).envelope(S3).payload(Payload::Ignored);
    let put = || s3::notification([s3::created("photos", "a b.jpg").etag("e-1")]);
    testing::deliver_twice(&service, &sqs::batch([put(), put()])).await.assert_once();
    assert_eq!(journal.runs().len(), 1);
}

/// Returns a handler that fails temporarily for objects with this name.
fn handler(
    journal: &Journal<String>,
) -> impl Fn(S3Record, RecordContext) -> BoxFuture<'static, Result<(), Failure>> + Clone + use<> {
    let journal = Arc::new(journal.clone());
    move |record, context| {
        let first_try = context.record().receive_count() == 1;
        let journal = Arc::clone(&journal);
        Box::pin(async move {
            journal.note(record.key.clone(), context);
            if first_try && record.key.starts_with("flaky") { Err(Failure::transient("not now")) } else { Ok(()) }
        })
    }
}

#[tokio::test]
async fn a_message_with_failed_records_is_reported_once_and_replays_the_others() {
    let journal = Journal::<String>::new();
    let store = FaultStore::new(testing::store(), 1);
    let service =
        testing::builder(store.clone()).build().unwrap().sqs(Key::message_id(), handler(&journal)).envelope(S3);
    let created = |key: &str| s3::created("photos", key);
    let batch = sqs::batch([
        s3::notification([created("a"), created("flaky 1"), created("b"), created("flaky 2")]).id("m-1"),
        s3::notification([created("c")]).id("m-2"),
    ]);
    let deliveries = testing::deliver_twice(&service, &batch).await;
    let failed = Ok(OutcomeKind::Failed(Verdict::Transient));
    let [done, again] = [Ok(OutcomeKind::Executed), Ok(OutcomeKind::Replayed)];
    assert_eq!(deliveries.first.outcomes(), [done, failed, done, failed, done]);
    assert_eq!(answer(&deliveries.first), ["m-1"]);
    let claims: usize = store.calls().iter().filter(|(call, _)| *call == Call::Claim).map(|(_, count)| count).sum();
    assert_eq!(claims, 10, "five records, twice: each has a claim of its own");
    assert_eq!(deliveries.second.outcomes(), [again, done, again, done, again]);
    assert!(answer(&deliveries.second).is_empty());
    assert_eq!(journal.payloads(), ["a", "flaky 1", "b", "flaky 2", "c", "flaky 1", "flaky 2"]);
}

#[tokio::test]
async fn a_record_that_cannot_be_decoded_fails_alone() {
    #[derive(Clone, Debug, serde::Deserialize)]
    struct Sized {
        s3: SizedEntity,
    }
    #[derive(Clone, Debug, serde::Deserialize)]
    struct SizedEntity {
        object: SizedObject,
    }
    #[derive(Clone, Debug, serde::Deserialize)]
    struct SizedObject {
        size: u64,
    }
    let journal = Journal::<Sized>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let both = [s3::created("photos", "a").size(7), s3::record("ObjectRemoved:Delete", "photos", "b")];
    let delivered = testing::deliver(&service, &sqs::batch([s3::notification(both)])).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed), Err(ErrorKind::Payload)]);
    assert_eq!(journal.payloads()[0].s3.object.size, 7);
}

/// Its error is redacted by the record that the decoder got, of which keys and payloads omit the request.
#[tokio::test]
async fn a_decoders_error_contains_nothing_of_the_request() {
    let decode = |_: &RecordInfo, record: &String| -> Result<Value, BoxError> {
        let record: Value = serde_json::from_str(record)?;
        Err(format!("no such user: {}", record["userIdentity"]["principalId"]).into())
    };
    let journal = Journal::<Value>::new();
    let service = testing::engine().batch(Sqs, Key::message_id(), decode, journal.handler()).envelope(S3);
    let body = include_str!("events/s3-notification.json").replacen("EXAMPLE", "secret-7", 1);
    let delivered = deliver(&service, batch(&[&body])).await;
    let expected = "decode (invalid_payload): the body does not match the handler's type: no such user: \"…\"";
    assert_eq!(delivered.records[0].error.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_decode_error_names_the_field_in_the_record_as_s3_sends_it() {
    #[derive(Clone, Debug, serde::Deserialize)]
    struct Regional {
        #[serde(rename = "awsRegion")]
        _region: u64,
    }
    let journal = Journal::<Regional>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(S3);
    let delivered = deliver(&service, batch(&[include_str!("events/s3-notification.json")])).await;
    let wrong = "decode (invalid_payload): the body does not match the handler's type";
    let expected = format!("{wrong}: in the field `awsRegion`, expected u64 at line 4 column 30");
    assert_eq!(delivered.records[0].error.as_deref(), Some(&*expected));
}
