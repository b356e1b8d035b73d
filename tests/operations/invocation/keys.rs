//! The key of an event's operation.

use std::collections::{HashMap, HashSet};

use lambda_once::{
    BoxError, Classify, ErrorKind, Idempotency, Key, MemoryStore, MissingKey, Payload, Verdict,
    invocation::InvocationLayer,
    store::{ResultData, fault::FaultStore},
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};
use tower::{Layer, ServiceExt};

use crate::invocation::setup::{Function, numbered, order, refusal};

#[tokio::test]
async fn an_event_without_a_key_is_refused_and_makes_no_call() {
    let function = Function::new();
    for event in [json!({}), json!({"id": null}), json!({"id": ""}), json!({"id": [1, {}]}), json!("text")] {
        assert_eq!(refusal(function.invoke(event).await), ("key_missing", false));
    }
    assert_eq!((function.runs(), function.calls().len()), (0, 0));
}

#[tokio::test]
async fn an_event_without_a_key_runs_unprotected_if_that_is_chosen() {
    let choose = |engine: lambda_once::Builder| engine.missing_key(MissingKey::RunUnprotected);
    let function = Function::with(choose, |layer| layer, numbered);
    assert_eq!(function.invoke(json!({})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({})).await.unwrap(), 2);
    assert!(function.calls().is_empty());
    assert_eq!(function.invoke(order()).await.unwrap(), 3);
    assert_eq!(function.invoke(order()).await.unwrap(), 3, "one with a key is protected");
}

#[tokio::test]
async fn the_order_of_members_does_not_matter() {
    let function = Function::new();
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(function.invoke(parse(r#"{"id":{"a":1,"b":2}}"#)).await.unwrap(), 1);
    assert_eq!(function.invoke(parse(r#"{"id":{"b":2,"a":1}}"#)).await.unwrap(), 1);
}

#[tokio::test]
async fn the_whole_event_may_be_the_key() {
    let function = Function::with(
        |engine| engine,
        |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer("")),
        numbered,
    );
    assert_eq!(function.invoke(json!({"n": 1})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({"n": 2})).await.unwrap(), 2);
    assert_eq!(function.invoke(json!({"n": 1})).await.unwrap(), 1);
}

#[tokio::test]
async fn a_refusal_of_another_payload_names_the_difference() {
    let function = Function::with(|engine| engine, |layer| layer, numbered);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5})).await.unwrap(), 1);
    let refused = function.invoke(json!({"id": 1, "cents": 6})).await.unwrap_err();
    assert_eq!(refused.to_string(), "mismatch: the key was used with another payload: the body differs");
}

#[tokio::test]
async fn a_part_may_stand_for_the_payload_or_nothing() {
    let part = |layer: InvocationLayer<Value>| layer.payload(Payload::Part(Key::pointer("/cents")));
    let function = Function::with(|engine| engine, part, numbered);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5, "sent": "monday"})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5, "sent": "friday"})).await.unwrap(), 1);
    assert_eq!(refusal(function.invoke(json!({"id": 1, "cents": 6})).await).0, "mismatch");
    assert_eq!(refusal(function.invoke(json!({"id": 2})).await), ("invalid_payload", false));

    let function = Function::with(|engine| engine, |layer| layer.payload(Payload::Ignored), numbered);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 6})).await.unwrap(), 1);
}

#[tokio::test]
async fn an_expression_can_select_the_key_and_the_payload() {
    let key = Key::jmespath("[detail.shop, detail.id]");
    let part = Payload::Part(Key::jmespath("detail.{cents: cents, items: items[*].sku}"));
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key).payload(part).validate().unwrap();
    let function = Function::with(|engine| engine, layer, numbered);
    let event = |id: u32, cents: u32, n: u32| {
        let items = json!([{"sku": "x", "n": n}]);
        json!({"detail": {"shop": "s", "id": id, "cents": cents, "items": items}})
    };
    assert_eq!(function.invoke(event(1, 5, 1)).await.unwrap(), 1);
    assert_eq!(function.invoke(event(1, 5, 2)).await.unwrap(), 1);
    assert_eq!(function.invoke(event(2, 5, 1)).await.unwrap(), 2);
    assert_eq!(refusal(function.invoke(event(1, 6, 1)).await).0, "mismatch");
    assert_eq!(refusal(function.invoke(json!({"detail": {"id": 1}})).await).0, "key_missing");
}

#[tokio::test]
async fn a_function_can_extract_the_key_from_the_event() {
    let key = Key::from_fn(|event| {
        assert_eq!((event.message_id(), event.attribute("x"), event.header("x")), (None, None, None));
        let event: Value = serde_json::from_slice(event.body())?;
        Ok(event["detail"]["id"].as_str().map(str::to_owned))
    });
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key);
    let function = Function::with(|engine| engine, layer, numbered);
    assert_eq!(function.invoke(json!({"detail": {"id": "A"}})).await.unwrap(), 1);
    assert_eq!(refusal(function.invoke(json!({"detail": {}})).await).0, "key_missing");
}

#[tokio::test]
async fn a_key_function_that_panics_is_an_error_of_that_event() {
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::from_fn(|_| panic!("in the key")));
    let function = Function::with(|engine| engine, layer, numbered);
    assert_eq!(function.refusal().await, ("invalid_payload", false));
    assert_eq!(function.runs(), 0);
}

#[tokio::test]
async fn a_selector_that_can_find_nothing_is_a_configuration_error() {
    let layer = |key| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key);
    for key in [
        Key::pointer("id"),
        Key::composite([]),
        Key::message_id(),
        Key::deduplication_id(),
        Key::message_attribute("id"),
        Key::composite([Key::pointer("/id"), Key::message_id()]),
    ] {
        let unprotected = |engine: lambda_once::Builder| engine.missing_key(MissingKey::RunUnprotected);
        assert_eq!(layer(key.clone()).validate().unwrap_err().kind(), ErrorKind::Config, "{key:?}");
        let part = layer(Key::pointer("/id")).payload(Payload::Part(key.clone()));
        assert_eq!(part.validate().unwrap_err().kind(), ErrorKind::Config, "{key:?}");
        let function = Function::with(unprotected, |_| layer(key), numbered);
        assert_eq!(function.refusal().await, ("config", false));
        assert_eq!(function.runs(), 0);
    }
    assert!(layer(Key::pointer("/id")).validate().is_ok());
}

#[tokio::test]
async fn the_keys_of_differently_named_engines_do_not_meet() {
    let once = Idempotency::new(MemoryStore::new());
    let function = |once| {
        Function::with(
            |engine| engine,
            |_| InvocationLayer::new(once, Key::pointer("/id")),
            |_, _| async { Ok::<_, BoxError>(7) },
        )
    };
    let functions = [function(once.clone()), function(once.named("refund"))];
    for function in &functions {
        function.invoke(order()).await.unwrap();
        assert_eq!(function.runs(), 1);
    }
    for engine in [&once, &once.named("refund")] {
        let key = engine.key_hash("invocation", "A").unwrap();
        assert!(once.store().read(&[key], ResultData::Include).await.remove(0).unwrap().is_some(), "{engine:?}");
    }
}

/// Returns the run that responds to each of these events, given as text, for a handler of this type.
async fn runs<T>(key: &str, payload: Payload, events: &[&str]) -> Vec<Result<usize, &'static str>>
where
    T: DeserializeOwned + Send + 'static,
{
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let layer = InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer(key)).payload(payload);
    let service = layer.layer(tower::service_fn(move |_: LambdaEvent<T>| {
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { Ok::<_, BoxError>(run) }
    }));
    let mut results = Vec::new();
    for event in events {
        let event = LambdaEvent::new(serde_json::from_str(event).unwrap(), Context::default());
        results.push(match service.clone().oneshot(event).await {
            Ok(run) => Ok(run),
            error => Err(refusal(error).0),
        });
    }
    results
}

#[tokio::test]
async fn numbers_that_differ_are_never_one_key() {
    let events = [
        r#"{"id":1e5}"#,
        r#"{"id":100000}"#,
        r#" { "id" : 1e5 } "#,
        r#"{"id":9007199254740992}"#,
        r#"{"id":9007199254740993}"#,
        r#"{"id":123456789012345678901234567890}"#,
        r#"{"id":123456789012345678901234567891}"#,
        r#"{"id":1.00000000000000000001}"#,
        r#"{"id":1.00000000000000000002}"#,
        r#"{"id":1e-999999999999}"#,
        r#"{"id":1.00000000000000000001}"#,
    ];
    let expected = [0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 6].map(Ok);
    for key in ["", "/id"] {
        assert_eq!(runs::<Value>(key, Payload::Ignored, &events).await, expected);
        assert_eq!(runs::<Box<RawValue>>(key, Payload::Ignored, &events).await, expected);
    }
}

#[tokio::test]
async fn an_event_is_the_same_one_however_the_handlers_type_orders_it() {
    #[derive(Deserialize)]
    struct Order {
        #[serde(rename = "id")]
        _id: u32,
        #[serde(rename = "tags")]
        _tags: HashSet<String>,
        #[serde(rename = "counts")]
        _counts: HashMap<String, u32>,
    }
    let event = r#"{"id":7,"tags":["a","b","c","d","e","f","g","h"],"counts":{"x":1,"y":2,"z":3}}"#;
    let spelt_otherwise = r#"{ "counts":{"z":3,"x":1,"y":2}, "tags":["a","b","c","d","e","f","g","h"], "id":7 }"#;
    for key in ["/id", "/tags", ""] {
        let again = runs::<Order>(key, Payload::Body, &[event, spelt_otherwise, event, event]).await;
        assert_eq!(again, [0; 4].map(Ok), "{key}");
        let part = runs::<Order>(key, Payload::Part(Key::pointer("/tags")), &[event, spelt_otherwise]).await;
        assert_eq!(part, [0; 2].map(Ok), "{key}");
    }
}

#[tokio::test]
async fn members_that_the_handlers_type_omits_count() {
    #[derive(Deserialize)]
    struct Order {
        #[serde(rename = "id")]
        _id: u32,
    }
    let events = [r#"{"id":7,"cents":5}"#, r#"{"id":7,"cents":6}"#];
    assert_eq!(runs::<Order>("/id", Payload::Body, &events).await, [Ok(0), Err("mismatch")]);
    assert_eq!(runs::<Order>("", Payload::Body, &events).await, [Ok(0), Ok(1)]);
}

/// A type whose decoder panics.
#[derive(Debug)]
struct Panics;

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("in deserialize");
    }
}

#[tokio::test]
async fn an_event_the_handler_does_not_take_is_refused_before_any_claim() {
    #[derive(Deserialize)]
    struct Order {
        #[serde(rename = "id")]
        _id: u32,
    }
    async fn refused<T: DeserializeOwned + Send + 'static>(missing_key: MissingKey, event: &str) -> String {
        let store = FaultStore::new(MemoryStore::new(), 1);
        let once = Idempotency::builder(store.clone()).missing_key(missing_key).build().unwrap();
        let never = tower::service_fn(|_: LambdaEvent<T>| async { panic!("it ran") as Result<(), BoxError> });
        let service = InvocationLayer::new(once, Key::pointer("/id")).layer(never);
        let event = LambdaEvent::new(serde_json::from_str(event).unwrap(), Context::default());
        let error = service.oneshot(event).await.unwrap_err();
        assert!(store.calls().is_empty());
        let text = format!("{error} {error:?}");
        assert_eq!(refusal::<(), _>(Err(error)), ("invalid_payload", false));
        text
    }
    let text = refused::<Order>(MissingKey::Reject, r#"{"id":"secret"}"#).await;
    assert!(
        text.contains(
            "the event does not match the handler's type: in the field `id`, expected u32 at line 1 column 14"
        ) && !text.contains("secret"),
        "{text}"
    );
    let text = refused::<Order>(MissingKey::RunUnprotected, r#"{"number":7}"#).await;
    assert!(text.contains("the event has a missing field `id` at line 1 column 12"), "{text}");
    let text = refused::<HashMap<u8, Value>>(MissingKey::Reject, r#"{"300":7,"id":"k"}"#).await;
    assert!(text.contains("the event does not match the handler's type: expected u8 at line 1 column 5"), "{text}");
    let text = refused::<Panics>(MissingKey::Reject, r#"{"id":7}"#).await;
    assert!(text.contains("decoding the event panicked"), "{text}");
}

#[tokio::test]
async fn a_key_functions_error_keeps_its_verdict() {
    for (verdict, kind) in
        [(Verdict::Transient, "decode"), (Verdict::Unknown, "decode"), (Verdict::Permanent, "invalid_payload")]
    {
        let fails =
            move || Key::from_fn(move |_| Ok(Err::<Option<String>, _>("the directory is away").classify(|_| verdict)?));
        let engine = || Idempotency::new(MemoryStore::new());
        let layers: [fn(Idempotency, Key) -> InvocationLayer<Value>; 2] = [InvocationLayer::new, |engine, key| {
            InvocationLayer::new(engine, Key::pointer("/id")).payload(Payload::Part(key))
        }];
        for layer in layers {
            let function = Function::with(|engine| engine, |_| layer(engine(), fails()), numbered);
            assert_eq!(refusal(function.invoke(order()).await), (kind, kind == "decode"), "{verdict:?}");
            assert_eq!(function.runs(), 0);
        }
    }
}
