//! EventBridge: success or an error as the response, and the detail unchanged.

use lambda_once::{
    BoxError, ErrorKind, Failure, Key, PermanentFailures, RecordContext,
    batch::{
        BatchService, Handler,
        eventbridge::{EventBridge, EventBridgeEvent},
    },
    record::Status,
};
use serde_json::{Value, json};

use crate::{
    sqs::dead_letters::Letters,
    world::{Job, World, order, unreadable, work},
};

/// Returns an event as Lambda delivers it.
fn event(id: &str, detail: &str) -> String {
    let event = json!({
        "version": "0",
        "id": id,
        "detail-type": "Order placed",
        "source": "com.example.checkout",
        "account": "123456789012",
        "time": "2026-11-21T10:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": "DETAIL",
    });
    event.to_string().replace(r#""DETAIL""#, detail)
}

fn service(world: &World, key: Key) -> BatchService<EventBridge, impl Handler<Job, (Job,)> + use<>, Job, (Job,)> {
    world.once.eventbridge(key, world.handler())
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_done_is_a_success_and_is_replayed_by_its_id() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    for id in ["e-1", "e-1", "e-2"] {
        assert_eq!(world.answer(&service, &event(id, &order(id).to_string())).await, "null");
    }
    assert_eq!(world.journal.keys(), ["e-1", "e-2"]);
    assert_eq!(world.status_in("eventbridge", "e-1").await, Some(Status::Completed));
}

// Tests B9.
#[tokio::test(start_paused = true)]
async fn a_failed_event_fails_the_invocation_and_lambdas_retry_runs_it_again() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = event("e-1", &work("1", "transient once", 0).to_string());
    assert_eq!(world.fail(&service, &event).await.kind(), ErrorKind::Batch);
    for _ in 0..2 {
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    assert_eq!(world.journal.keys(), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_fails_every_delivery_unless_it_is_acknowledged() {
    for detail in [work("1", "permanent", 0).to_string(), "[]".to_owned(), "null".to_owned(), r#"{"a":1}"#.to_owned()] {
        let world = World::new();
        let event = event("e-1", &detail);
        let service = service(&world, Key::message_id());
        for _ in 0..2 {
            assert_eq!(world.fail(&service, &event).await.kind(), ErrorKind::Batch, "{detail}");
        }
        let acknowledging = service.permanent_failures(PermanentFailures::Acknowledge);
        assert_eq!(world.answer(&acknowledging, &event).await, "null", "{detail}");
        assert!(world.journal.keys().len() <= 1);
    }
}

/// A record of a stream would be dead-lettered, because it blocks those behind it.
#[tokio::test(start_paused = true)]
async fn an_event_whose_decoder_panics_is_not_dead_lettered() {
    let (world, letters) = (World::new(), Letters::new());
    let service = world.once.batch(
        EventBridge,
        Key::message_id(),
        |_, _| -> Result<Job, BoxError> { std::panic::resume_unwind(Box::new("the decoder is on fire")) },
        world.handler(),
    );
    let service = service.dead_letters(letters.clone());
    assert_eq!(world.fail(&service, &event("e-1", &order("1").to_string())).await.kind(), ErrorKind::Batch);
    assert!(letters.ids().is_empty() && world.journal.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_detail_is_compared_and_looked_into_with_all_its_digits() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.eventbridge(Key::pointer("/ledger"), move |_: Value| {
        journal.ran("ran");
        async { Ok::<_, Failure>(()) }
    });
    let numbers =
        ["9007199254740992", "9007199254740993", "123456789012345678901234567890", "123456789012345678901234567891"];
    for number in numbers {
        assert_eq!(world.answer(&service, &event("e-1", &format!(r#"{{"ledger":{number}}}"#))).await, "null");
    }
    assert_eq!(world.journal.keys().len(), 4);
    let spaced = event("e-2", "{ \"ledger\" :\n9007199254740993 }");
    assert_eq!(world.answer(&service, &spaced).await, "null");
    assert_eq!(world.journal.keys().len(), 4, "white space is no part of a payload");
    let other = event("e-2", r#"{"ledger":9007199254740993,"paid":1}"#);
    assert_eq!(world.fail(&service, &other).await.kind(), ErrorKind::Batch, "a mismatch");
}

#[tokio::test(start_paused = true)]
async fn a_handler_gets_the_source_and_attributes_of_its_event() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.eventbridge(Key::message_id(), move |_: Value, context: RecordContext| {
        let names = ["source", "detail-type", "account", "time", "region"];
        journal.ran(format!(
            "{:?} {:?}",
            context.record().source(),
            names.map(|name| context.record().attribute(name).unwrap().to_owned())
        ));
        async { Ok::<_, Failure>(()) }
    });
    assert_eq!(world.answer(&service, &event("e-1", "{}")).await, "null");
    let attributes = r#"["com.example.checkout", "Order placed", "123456789012", "2026-11-21T10:00:00Z", "us-east-1"]"#;
    assert_eq!(world.journal.keys(), [format!(r#"Some("com.example.checkout") {attributes}"#)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_an_id_fails_the_invocation_before_anything_is_claimed() {
    let world = World::new();
    let service = service(&world, Key::pointer("/order_id"));
    // The last one is from a custom bus in RAW form, which contains only the data.
    for event in [
        event("", &order("1").to_string()),
        json!({ "detail": order("1") }).to_string(),
        "[]".to_owned(),
        order("1").to_string(),
    ] {
        let message = world.refuse(&service, &event).await;
        assert!(message.contains("the event has no id") && message.contains("WITH_METADATA"), "{message}");
    }
    let message = world.refuse(&service, &json!({ "id": "e-1" })).await;
    assert!(message.contains("neither a `detail` nor `Data`"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_custom_bus_is_replayed_by_its_system_metadatas_id() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.eventbridge(Key::message_id(), move |data: Value, context: RecordContext| {
        let kind = context.record().attribute("ContentType").map(str::to_owned);
        let tenant = context.record().header("tenant").map(str::to_owned);
        // A publisher cannot impersonate EventBridge.
        assert_eq!(context.record().attribute("account"), None);
        journal.ran(format!("{} {data} {tenant:?} {kind:?}", context.record().id()));
        async { Ok::<_, Failure>(()) }
    });
    for id in ["a1", "a1", "b2"] {
        let event = json!({
            "Data": { "order_id": "7" },
            "Metadata": { "tenant": "acme", "account": "111122223333" },
            "SystemMetadata": { "ContentType": "application/json", "aws:EventId": id },
        });
        assert_eq!(world.answer(&service, &event).await, "null");
    }
    let ran = |id: &str| format!(r#"{id} {{"order_id":"7"}} Some("acme") Some("application/json")"#);
    assert_eq!(world.journal.keys(), [ran("a1"), ran("b2")]);
}

#[test]
fn an_event_of_something_else_is_not_read() {
    unreadable::<EventBridgeEvent>(&r#"{"id":"e-1","detail":{"#);
    unreadable::<EventBridgeEvent>(&"7");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_another_invocation_left_unknown_is_waited_for() {
    let world = World::new();
    let service = service(&world, Key::message_id());
    let event = event("e-1", &work("1", "hang once", 0).to_string());
    world.response_after_cancellation(&service, &event).await;
    assert_eq!(world.journal.keys(), ["1", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedules_detail_is_the_json_in_its_text_and_the_event_names_it() {
    let world = World::new();
    let journal = world.journal.clone();
    let service = world.once.eventbridge(Key::message_id(), move |detail: Value, context: RecordContext| {
        let [schedule, replay] =
            ["resources", "replay-name"].map(|name| context.record().attribute(name).map(str::to_owned));
        journal.ran(format!("{detail} {schedule:?} {replay:?}"));
        async { Ok::<_, Failure>(()) }
    });
    let arn = "arn:aws:scheduler:us-east-1:123456789012:schedule/default/nightly";
    for (id, detail, seen) in
        [("1", r#""{}""#, "{}"), ("2", r#""{\"n\":1}""#, r#"{"n":1}"#), ("3", r#""text""#, r#""text""#)]
    {
        let event =
            event(id, detail).replace(r#""resources":[]"#, &format!(r#""resources":["{arn}"],"replay-name":"r""#));
        assert_eq!(world.answer(&service, &event).await, "null");
        assert_eq!(world.journal.keys().pop().unwrap(), format!("{seen} Some({arn:?}) Some(\"r\")"));
    }
}
