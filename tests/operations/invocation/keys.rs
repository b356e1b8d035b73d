//! What identifies an event's operation.

use lambda_once::{
    BoxError, ErrorKind, Idempotency, Key, MemoryStore, MissingKey,
    invocation::{InvocationLayer, Payload},
    store::ResultData,
};
use lambda_runtime::{Context, LambdaEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use tower::{Layer, ServiceExt};

use crate::invocation::setup::{Function, numbered, order, refusal};

#[tokio::test]
async fn an_event_without_a_key_is_refused_and_makes_no_call() {
    let function = Function::new();
    for event in [json!({}), json!({"id": null}), json!({"id": ""}), json!({"id": [1, {}]}), json!("text")] {
        assert_eq!(refusal(function.invoke(event).await), (ErrorKind::KeyMissing, false));
    }
    assert_eq!((function.runs(), function.calls().len()), (0, 0));
}

#[tokio::test]
async fn an_event_without_a_key_runs_unprotected_if_that_is_chosen() {
    let choose = |engine: lambda_once::idempotency::Builder| engine.missing_key(MissingKey::RunUnprotected);
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
async fn a_part_may_stand_for_the_payload_or_nothing() {
    let part = |layer: InvocationLayer| layer.payload(Payload::Part(Key::pointer("/cents")));
    let function = Function::with(|engine| engine, part, numbered);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5, "sent": "monday"})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5, "sent": "friday"})).await.unwrap(), 1);
    assert_eq!(refusal(function.invoke(json!({"id": 1, "cents": 6})).await).0, ErrorKind::Mismatch);
    assert_eq!(refusal(function.invoke(json!({"id": 2})).await), (ErrorKind::Payload, false));

    let function = Function::with(|engine| engine, |layer| layer.payload(Payload::Ignored), numbered);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 5})).await.unwrap(), 1);
    assert_eq!(function.invoke(json!({"id": 1, "cents": 6})).await.unwrap(), 1);
}

#[tokio::test]
async fn a_key_and_a_payload_may_be_what_an_expression_finds() {
    let key = Key::jmespath("[detail.shop, detail.id]");
    let part = Payload::Part(Key::jmespath("detail.{cents: cents, items: items[*].sku}"));
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key).payload(part).checked().unwrap();
    let function = Function::with(|engine| engine, layer, numbered);
    let event = |id: u32, cents: u32, n: u32| {
        let items = json!([{"sku": "x", "n": n}]);
        json!({"detail": {"shop": "s", "id": id, "cents": cents, "items": items}})
    };
    assert_eq!(function.invoke(event(1, 5, 1)).await.unwrap(), 1);
    assert_eq!(function.invoke(event(1, 5, 2)).await.unwrap(), 1);
    assert_eq!(function.invoke(event(2, 5, 1)).await.unwrap(), 2);
    assert_eq!(refusal(function.invoke(event(1, 6, 1)).await).0, ErrorKind::Mismatch);
    assert_eq!(refusal(function.invoke(json!({"detail": {"id": 1}})).await).0, ErrorKind::KeyMissing);
}

#[tokio::test]
async fn a_key_may_be_what_a_function_finds_in_the_event() {
    let key = Key::from_fn(|event| {
        assert_eq!((event.message_id(), event.attribute("x"), event.header("x")), (None, None, None));
        let event: Value = serde_json::from_slice(event.body())?;
        Ok(event["detail"]["id"].as_str().map(str::to_owned))
    });
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key);
    let function = Function::with(|engine| engine, layer, numbered);
    assert_eq!(function.invoke(json!({"detail": {"id": "A"}})).await.unwrap(), 1);
    assert_eq!(refusal(function.invoke(json!({"detail": {}})).await).0, ErrorKind::KeyMissing);
}

#[tokio::test]
async fn a_key_function_that_panics_is_an_error_of_that_event() {
    let layer = |_| InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::from_fn(|_| panic!("in the key")));
    let function = Function::with(|engine| engine, layer, numbered);
    assert_eq!(function.refusal().await, (ErrorKind::Payload, false));
    assert_eq!(function.runs(), 0);
}

#[tokio::test]
async fn a_selector_that_can_find_nothing_is_a_configuration_error() {
    let layer = |key| InvocationLayer::new(Idempotency::new(MemoryStore::new()), key);
    for key in [
        Key::pointer("id"),
        Key::all([]),
        Key::message_id(),
        Key::deduplication_id(),
        Key::message_attribute("id"),
        Key::all([Key::pointer("/id"), Key::message_id()]),
    ] {
        let unprotected = |engine: lambda_once::idempotency::Builder| engine.missing_key(MissingKey::RunUnprotected);
        assert_eq!(layer(key.clone()).checked().unwrap_err().kind(), ErrorKind::Config, "{key:?}");
        let part = layer(Key::pointer("/id")).payload(Payload::Part(key.clone()));
        assert_eq!(part.checked().unwrap_err().kind(), ErrorKind::Config, "{key:?}");
        let function = Function::with(unprotected, |_| layer(key), numbered);
        assert_eq!(function.refusal().await, (ErrorKind::Config, false));
        assert_eq!(function.runs(), 0);
    }
    assert!(layer(Key::pointer("/id")).checked().is_ok());
}

#[tokio::test]
async fn the_keys_of_two_tenants_do_not_meet() {
    let function = Function::new();
    for (tenant, run) in [(None, 1), (Some(""), 2), (Some("blue"), 3), (Some("green"), 4), (Some("blue"), 3)] {
        let mut context = Context::default();
        context.tenant_id = tenant.map(str::to_owned);
        assert_eq!(function.send(LambdaEvent::new(order(), context)).await.unwrap(), run);
    }
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
    let names = ["invocation", "refund"].map(|name| once.named(name).key_hash("A").unwrap());
    for (name, key) in ["invocation", "refund"].into_iter().zip(names) {
        assert!(once.store().read(&[key], ResultData::Include).await.remove(0).unwrap().is_some(), "{name}");
    }
}

/// How often events of this type run behind the layer.
async fn runs<T>(key: &str, events: &[&str]) -> Result<Vec<usize>, ErrorKind>
where
    T: Serialize + for<'de> Deserialize<'de> + Send + 'static,
{
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let layer = InvocationLayer::new(Idempotency::new(MemoryStore::new()), Key::pointer(key)).payload(Payload::Ignored);
    let service = layer.layer(tower::service_fn(move |_: LambdaEvent<T>| {
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move { Ok::<_, BoxError>(run) }
    }));
    let mut results = Vec::new();
    for event in events {
        let event = LambdaEvent::new(serde_json::from_str(event).unwrap(), Context::default());
        match service.clone().oneshot(event).await {
            Ok(run) => results.push(run),
            error => return Err(refusal(error).0),
        }
    }
    Ok(results)
}

#[tokio::test]
async fn numbers_that_differ_are_never_one_key() {
    #[derive(Serialize, Deserialize)]
    struct Wide {
        id: u128,
    }
    let small = [r#"{"id":9007199254740992}"#, r#"{"id":9007199254740993}"#, r#"{"id":9007199254740992}"#];
    let large = [r#"{"id":123456789012345678901234567890}"#, r#"{"id":123456789012345678901234567891}"#];
    assert_eq!(runs::<Value>("/id", &small).await, Ok(vec![0, 1, 0]));
    assert_eq!(runs::<Wide>("/id", &large).await, Ok(vec![0, 1]));
    assert_eq!(runs::<Box<RawValue>>("/id", &large).await, Ok(vec![0, 1]));
    let raw = [
        r#"{"id":1e5}"#,
        r#"{"id":100000}"#,
        r#" { "id" : 1e5 } "#,
        r#"{"id":1.00000000000000000001}"#,
        r#"{"id":1.00000000000000000002}"#,
        r#"{"id":1e-999999999999}"#,
        r#"{"id":1.00000000000000000001}"#,
    ];
    for key in ["", "/id"] {
        assert_eq!(runs::<Box<RawValue>>(key, &raw).await, Ok(vec![0, 1, 0, 2, 3, 4, 2]));
    }
    // A float has lost the digits that tell them apart.
    assert_eq!(runs::<Value>("/id", &large).await, Err(ErrorKind::Payload));
    assert_eq!(runs::<Value>("", &[r#"{"a":["1e5",{"b":-1e300}]}"#]).await, Err(ErrorKind::Payload));
    assert_eq!(runs::<Value>("", &[r#"{"1e5":["1e5","\"1e5",true,1.5,[false]]}"#]).await, Ok(vec![0]));
}

#[tokio::test]
async fn an_event_that_cannot_be_written_as_json_is_refused() {
    #[derive(Deserialize)]
    struct Odd(#[expect(dead_code, reason = "read from the event")] Value);
    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    #[derive(Deserialize)]
    struct Panics(#[expect(dead_code, reason = "read from the event")] Value);
    impl Serialize for Panics {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            panic!("in serialize");
        }
    }
    assert_eq!(runs::<Odd>("/id", &[r#"{"id":1}"#]).await, Err(ErrorKind::Payload));
    assert_eq!(runs::<Panics>("/id", &[r#"{"id":1}"#]).await, Err(ErrorKind::Payload));
}
