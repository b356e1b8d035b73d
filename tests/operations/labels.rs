//! The readable parts of records: the operation's name, and a label that the application sets.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use lambda_once::{
    Claim, ErrorKind, Failure, Idempotency, Key, MemoryStore, Outcome, Store,
    http::{Caller, IdempotencyKeyLayer},
    invocation::InvocationLayer,
    record::KeyHash,
    store::ResultData,
    testing,
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

struct World {
    store: MemoryStore,
    once: Idempotency,
}

impl World {
    fn new() -> Self {
        let store = testing::store();
        let once = testing::builder(store.clone()).disabled(false).build().unwrap().named("orders");
        Self { store, once }
    }

    /// Returns the recorded operation and label.
    async fn on_record(&self, key: KeyHash) -> (Option<String>, Option<String>) {
        let record = self.store.read(&[key], ResultData::Omit).await.remove(0).unwrap().unwrap();
        (record.operation.map(|name| name.to_string()), record.label.map(|label| label.to_string()))
    }

    async fn labelled(&self, label: &str) -> Option<String> {
        let key = label.len() + 10_000 * label.chars().count();
        let run = self.once.operation("charge", &key).label(label).run(async || Ok::<_, Failure>(()));
        assert!(matches!(run.await.unwrap(), Outcome::Executed(())));
        let (operation, label) = self.on_record(self.once.key_hash("charge", &key).unwrap()).await;
        assert_eq!(operation.as_deref(), Some("orders.charge"));
        label
    }
}

#[tokio::test]
async fn an_operations_record_contains_its_name_and_label() {
    let world = World::new();
    assert_eq!(world.labelled("order 7").await.as_deref(), Some("order 7"));
    assert_eq!(world.labelled("").await, None);
    assert_eq!(world.labelled("a\0b").await.as_deref(), Some("ab"), "PostgreSQL stores no NUL");
    assert_eq!(world.labelled(&"x".repeat(1_000)).await.unwrap(), "x".repeat(256));
    assert_eq!(world.labelled(&"€".repeat(100)).await.unwrap(), "€".repeat(85), "no character is cut in two");
    let run = world.once.operation("charge", "no label").run(async || Ok::<_, Failure>(()));
    assert!(matches!(run.await.unwrap(), Outcome::Executed(())));
    let on_record = world.on_record(world.once.key_hash("charge", "no label").unwrap()).await;
    assert_eq!(on_record, (Some("orders.charge".to_owned()), None));
}

#[tokio::test]
async fn a_key_selects_the_label_of_a_queues_records() {
    for (label, expected) in [
        (Key::pointer("/order"), Some("number 7")),
        (Key::pointer("/count"), Some("3")),
        (Key::composite([Key::pointer("/order"), Key::pointer("/count")]), Some(r#"["number 7",3]"#)),
        (Key::pointer("/missing"), None),
        (Key::from_fn(|_| Err("no label".into())), None),
        (Key::from_fn(|_| panic!("no label")), None),
    ] {
        let world = World::new();
        let handler = |_: Value| async { Ok::<_, Failure>(()) };
        let service = world.once.sqs(Key::pointer("/id"), handler).label(label);
        let message = testing::record(&json!({ "id": "k", "order": "number 7", "count": 3 }));
        testing::deliver_twice(&service, &testing::sqs::batch([message])).await.assert_once();
        let on_record = world.on_record(world.once.key_hash("sqs", "k").unwrap()).await;
        assert_eq!(on_record, (Some("orders.sqs".to_owned()), expected.map(str::to_owned)));
    }
}

#[tokio::test]
async fn an_ordered_record_of_a_queue_has_its_label_too() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let service = world.once.sqs(Key::pointer("/id"), handler).label(Key::pointer("/id"));
    let service = service.ordered_by(Key::pointer("/entity"), Key::pointer("/version"));
    let message = testing::record(&json!({ "id": "k", "entity": "e", "version": 7 }));
    testing::deliver_twice(&service, &testing::sqs::batch([message])).await.assert_once();
    let [entity, key] = ["e", "k"].map(|key| world.once.key_hash("sqs", key).unwrap());
    let key = KeyHash::ordered(&entity, &key);
    assert_eq!(world.on_record(key).await, (Some("orders.sqs".to_owned()), Some("k".to_owned())));
    let record = world.store.read(&[key], ResultData::Omit).await.remove(0).unwrap().unwrap();
    assert_eq!(record.sequence, Some(7_u64.into()));
}

#[tokio::test]
async fn a_key_selects_the_label_of_an_invocations_record() {
    let world = World::new();
    let layer = InvocationLayer::new(world.once.clone(), Key::pointer("/id")).label(Key::pointer("/order"));
    let service =
        layer.layer(service_fn(|_: lambda_runtime::LambdaEvent<Value>| async { Ok::<_, lambda_once::BoxError>(()) }));
    service.oneshot(testing::event(&json!({ "id": "k", "order": "number 7" }))).await.unwrap();
    let on_record = world.on_record(world.once.key_hash("invocation", "k").unwrap()).await;
    assert_eq!(on_record, (Some("orders.invocation".to_owned()), Some("number 7".to_owned())));
}

#[tokio::test]
async fn a_requests_record_is_labelled_by_its_body_or_a_header() {
    for (label, expected) in [(Key::pointer("/order"), "number 7"), (Key::header("x-order"), "number 8")] {
        let world = World::new();
        let hash = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&hash);
        let handler = service_fn(move |request: http::Request<Full<Bytes>>| {
            *seen.lock().unwrap() = Some(request.extensions().get::<Claim>().unwrap().key());
            async { Ok::<_, std::convert::Infallible>(http::Response::new(Full::<Bytes>::from("done"))) }
        });
        let scope = Caller::from_fn(|_| Some("alice".to_owned()));
        let layer = IdempotencyKeyLayer::new(world.once.clone(), scope).label(label);
        let request = http::Request::post("/").header("idempotency-key", "\"k\"").header("x-order", "number 8");
        let request = request.header("content-type", "application/json");
        let request = request.body(Full::<Bytes>::from(r#"{"order":"number 7"}"#)).unwrap();
        assert_eq!(layer.layer(handler).oneshot(request).await.unwrap().status(), 200);
        let key = hash.lock().unwrap().take().unwrap();
        assert_eq!(world.on_record(key).await, (Some("orders.http".to_owned()), Some(expected.to_owned())));
    }
}

#[tokio::test]
async fn a_label_that_selects_nothing_in_any_delivery_is_refused_in_init() {
    let world = World::new();
    let handler = |_: Value| async { Ok::<_, Failure>(()) };
    let service = world.once.sqs(Key::pointer("/id"), handler).label(Key::pointer("id"));
    assert_eq!(service.validate().unwrap_err().kind(), ErrorKind::Config);
    let layer = InvocationLayer::<Value>::new(world.once.clone(), Key::pointer("/id"));
    assert_eq!(layer.label(Key::message_id()).validate().unwrap_err().kind(), ErrorKind::Config);
    let scope = Caller::from_fn(|_| Some("alice".to_owned()));
    let layer = IdempotencyKeyLayer::new(world.once.clone(), scope).label(Key::pointer("id"));
    assert_eq!(layer.validate().unwrap_err().kind(), ErrorKind::Config);
}
