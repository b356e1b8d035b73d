//! S3 events that arrive through EventBridge: directly, in SQS, and in SNS.
//!
//! The expectations are from the S3 user guide: <https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html>.

use lambda_once::{
    ErrorKind, Key, OutcomeKind, Payload,
    batch::{
        envelope::{EventBridge, S3, S3Detail, S3Record, Sns},
        eventbridge::EventBridgeEvent,
    },
    testing::{self, eventbridge, s3, sns, sqs},
};
use serde_json::Value;

use super::{deliver, events};
use crate::testing::journal::Journal;

/// Returns the examples of the user guide.
fn examples() -> Vec<Value> {
    serde_json::from_str(include_str!("events/s3-by-eventbridge.json")).unwrap()
}

fn event(event: &Value) -> EventBridgeEvent {
    serde_json::from_value(event.clone()).unwrap()
}

/// Returns a key with the object as the entity.
fn object() -> Key {
    Key::composite([Key::pointer("/bucket/name"), Key::pointer("/object/key")])
}

/// Returns a key for one operation per event, however often S3 sends it.
fn one_an_event() -> Key {
    Key::composite([Key::attribute("detail-type"), object(), Key::pointer("/object/sequencer")])
}

#[tokio::test]
async fn a_handler_gets_every_field_of_the_s3_detail() {
    let journal = Journal::<S3Detail>::new();
    let service = testing::engine().eventbridge(Key::message_id(), journal.handler());
    for example in examples() {
        assert_eq!(deliver(&service, event(&example)).await.outcomes(), [Ok(OutcomeKind::Executed)]);
        assert_eq!(deliver(&service, event(&example)).await.outcomes(), [Ok(OutcomeKind::Replayed)]);
    }
    let runs = journal.runs();
    let [created, deleted, expired, restored] = &runs[..] else { panic!("{runs:?}") };
    let types = runs.iter().map(|(_, context)| context.record().attribute("detail-type").unwrap());
    assert!(types.eq(["Object Created", "Object Deleted", "Object Deleted", "Object Restore Completed"]));
    let [created, deleted, expired, restored] = [created, deleted, expired, restored].map(|(detail, _)| detail);

    assert_eq!((&*created.bucket, &*created.key), ("amzn-s3-demo-bucket1", "example-key"));
    assert_eq!((created.size, created.etag.as_deref()), (Some(5), Some("b1946ac92492d2347c6235b4d2611184")));
    assert_eq!(created.version_id.as_deref(), Some("IYV3p45BT0ac8hjHg1houSdS1a.Mro8e"));
    assert_eq!(created.sequencer.as_deref(), Some("617f08299329d189"));
    assert_eq!(created.request_id.as_deref(), Some("N4N7GDK58NMKJ12R"));
    assert_eq!(created.requester.as_deref(), Some("123456789012"));
    assert_eq!(created.source_ip_address.as_deref(), Some("1.2.3.4"));
    assert_eq!((created.reason.as_deref(), &created.deletion_type), (Some("PutObject"), &None));

    assert_eq!((deleted.size, deleted.reason.as_deref()), (None, Some("DeleteObject")));
    assert_eq!(deleted.deletion_type.as_deref(), Some("Delete Marker Created"));
    assert!(expired.source_ip_address.is_none());
    assert_eq!(expired.reason.as_deref(), Some("Lifecycle Expiration"));
    assert_eq!(restored.restore_expiry_time.as_deref(), Some("2021-11-13T00:00:00Z"));
    assert_eq!((restored.source_storage_class.as_deref(), &restored.sequencer), (Some("GLACIER"), &None));

    assert!(expired.sequence() < created.sequence() && created.sequence() < deleted.sequence());
    assert_eq!(restored.sequence(), None);
}

#[tokio::test]
async fn a_key_is_as_the_object_has_it_and_not_encoded() {
    let journal = Journal::<S3Detail>::new();
    let service = testing::engine().sqs(Key::message_id(), journal.handler()).envelope(EventBridge);
    let delivered = deliver(&service, events!("s3-by-eventbridge-in-sqs")).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed)]);
    let detail = journal.payloads().remove(0);
    assert_eq!((&*detail.bucket, &*detail.key), ("photos", "2026/Happy Face+ü.jpg"));
    assert_eq!((detail.size, detail.sequencer.as_deref()), (Some(10), Some("617f08299329d189")));

    let keys = ["100%25.txt", "a+b c%2B.jpg"];
    let batch = keys.map(|key| eventbridge::message(&s3::created("photos", key).in_eventbridge()));
    testing::deliver_twice(&service, &sqs::batch(batch)).await.assert_once();
    assert!(journal.payloads()[1..].iter().map(|detail| &*detail.key).eq(keys));
}

#[tokio::test]
async fn an_event_that_s3_sends_twice_is_one_operation() {
    let once = testing::engine();
    let journal = Journal::<S3Detail>::new();
    let put = s3::created("photos", "a b.jpg");
    // EventBridge gives each event an id.
    let service = once.eventbridge(one_an_event(), journal.handler());
    testing::deliver_twice(&service, &eventbridge::event(put.in_eventbridge())).await.assert_once();
    testing::deliver_twice(&service, &eventbridge::event(put.in_eventbridge())).await.assert_once();
    assert_eq!(journal.runs().len(), 1);
    let again = s3::created("photos", "a b.jpg");
    testing::deliver_twice(&service, &eventbridge::event(again.in_eventbridge())).await.assert_once();
    let tags = s3::record("ObjectTagging:Put", "photos", "a b.jpg").sequencer(None);
    let refused = testing::deliver(&service, &eventbridge::event(tags.in_eventbridge())).await;
    assert_eq!(refused.outcomes(), [Err(ErrorKind::KeyMissing)], "it has no sequencer");
    assert_eq!(journal.runs().len(), 2);

    let service = once.sqs(one_an_event(), journal.handler()).envelope(EventBridge);
    testing::deliver_twice(&service, &sqs::batch([eventbridge::message(&put.in_eventbridge())])).await.assert_once();
    drop(service);
    let service = once.sqs(one_an_event(), journal.handler()).envelope((Sns, EventBridge));
    let [first, second] = [(); 2].map(|()| eventbridge::message(&put.in_eventbridge()));
    testing::deliver_twice(&service, &sqs::batch([sns::in_sqs(&first), sns::in_sqs_raw(&second)])).await.assert_once();
    assert_eq!(journal.runs().len(), 3, "a queue is another operation than a bus");
    let service = once.sns(one_an_event(), journal.handler()).envelope(EventBridge);
    testing::deliver_twice(&service, &sns::event(eventbridge::message(&put.in_eventbridge()))).await.assert_once();
    testing::deliver_twice(&service, &sns::event(eventbridge::message(&put.in_eventbridge()))).await.assert_once();
    assert_eq!(journal.runs().len(), 4);
}

#[tokio::test]
async fn the_content_of_an_object_can_be_the_operation() {
    let journal = Journal::<S3Detail>::new();
    let key = Key::composite([object(), Key::pointer("/object/etag")]);
    let service = testing::engine().eventbridge(key, journal.handler()).payload(Payload::Ignored);
    for etag in ["e-1", "e-1", "e-2"] {
        let put = eventbridge::event(s3::created("photos", "a b.jpg").etag(etag).in_eventbridge());
        testing::deliver_twice(&service, &put).await.assert_once();
    }
    assert_eq!(journal.runs().len(), 2);
}

/// The newest event of an object counts, in whatever order they arrive.
#[tokio::test]
async fn a_sequencer_puts_the_events_of_an_object_in_order() {
    let journal = Journal::<S3Detail>::new();
    let service =
        testing::engine().eventbridge(Key::message_id(), journal.handler()).ordered_by(object(), Key::s3_sequencer());
    let all = examples();
    let outcome = async |nth: usize| deliver(&service, event(&all[nth])).await.outcomes().remove(0);
    assert_eq!(outcome(0).await, Ok(OutcomeKind::Executed));
    assert_eq!(outcome(2).await, Ok(OutcomeKind::Superseded), "it is the oldest");
    assert_eq!(outcome(1).await, Ok(OutcomeKind::Executed));
    assert_eq!(outcome(3).await, Err(ErrorKind::Order), "it has no sequencer");
    // A shorter sequencer is padded on the right, and case is ignored.
    for (sequencer, expected) in [
        ("617F0837B476E463", OutcomeKind::Superseded),
        ("617f08", OutcomeKind::Superseded),
        ("617f09", OutcomeKind::Executed),
        ("617f0837b476e46400", OutcomeKind::Superseded),
        ("7", OutcomeKind::Executed),
    ] {
        let put = s3::created("amzn-s3-demo-bucket1", "example-key").sequencer(Some(sequencer)).in_eventbridge();
        assert_eq!(
            testing::deliver(&service, &eventbridge::event(put)).await.outcomes(),
            [Ok(expected)],
            "{sequencer}"
        );
    }
    let other = s3::created("amzn-s3-demo-bucket1", "another").sequencer(Some("01")).in_eventbridge();
    assert_eq!(
        testing::deliver(&service, &eventbridge::event(other)).await.outcomes(),
        [Ok(OutcomeKind::Executed)],
        "of another object"
    );
    let odd = s3::created("amzn-s3-demo-bucket1", "odd").sequencer(Some("Happy Sequencer")).in_eventbridge();
    assert_eq!(testing::deliver(&service, &eventbridge::event(odd)).await.outcomes(), [Err(ErrorKind::Order)]);
}

#[tokio::test]
async fn notifications_are_put_in_order_by_the_same_selector() {
    let journal = Journal::<S3Record>::new();
    let object = Key::composite([Key::attribute("bucket"), Key::attribute("key")]);
    let service = testing::engine()
        .sqs(Key::message_id(), journal.handler())
        .envelope(S3)
        .ordered_by(object, Key::s3_sequencer());
    let put = |sequencer: &str| s3::created("photos", "a b.jpg").sequencer(Some(sequencer));
    let both = s3::notification([put("0055AED6DCD90281E6"), put("0055AED6DCD90281E5")]);
    let delivered = testing::deliver(&service, &sqs::batch([both])).await;
    assert_eq!(delivered.outcomes(), [Ok(OutcomeKind::Executed), Ok(OutcomeKind::Superseded)]);
    let record = journal.payloads().remove(0);
    assert!(record.sequence() > Some(0_u32.into()));
}

#[test]
#[should_panic(expected = "S3 does not send Replication:OperationFailedReplication to EventBridge")]
fn building_an_event_that_s3_does_not_send_to_eventbridge_panics() {
    let _ = s3::record("Replication:OperationFailedReplication", "photos", "a.jpg").in_eventbridge();
}
