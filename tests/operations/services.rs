//! Several services on one engine, which share their records only on request.

#![allow(clippy::unwrap_used, reason = "a test panics")]

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    BoxError, BoxFuture, ErrorKind, Failure, Idempotency, Key, OutcomeKind,
    batch::{BatchService, Handler, RecordReport, Redelivery, Source, sqs::Sqs},
    clock::Timestamp,
    http::{Caller, IdempotencyKeyLayer},
    invocation::InvocationLayer,
    store::fault::FaultStore,
    testing::{self, sqs},
};
use lambda_runtime::LambdaEvent;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

async fn succeed(_: Value) -> Result<(), Failure> {
    Ok(())
}

/// Delivers a message to the service, and returns the outcome of its record, or the error of the batch.
async fn deliver<S, H, Args>(service: &BatchService<S, H, Value, Args>) -> Result<OutcomeKind, ErrorKind>
where
    S: Source<Event = aws_lambda_events::sqs::SqsEvent>,
    S::Response: fmt::Debug,
    H: Handler<Value, Args>,
    Args: 'static,
{
    let batch = sqs::batch([testing::record(&json!({ "id": "7" })).id("m-7")]);
    let processed = testing::deliver(service, &batch).await;
    match processed.response {
        Ok(_) => processed.outcomes()[0],
        Err(error) => {
            assert!(processed.records.is_empty() && !error.is_retryable(), "{error}");
            Err(error.kind())
        }
    }
}

#[tokio::test]
async fn two_unnamed_services_of_one_source_are_refused_before_any_claim() {
    let store = FaultStore::new(testing::store(), 1);
    let once = testing::builder(store.clone()).build().unwrap();
    let orders = once.sqs(Key::pointer("/id"), succeed).validate().unwrap();
    let refunds = once.clone().sqs(Key::pointer("/id"), succeed);
    assert_eq!(refunds.clone().validate().unwrap_err().kind(), ErrorKind::Config);
    for service in [&orders, &refunds] {
        assert_eq!(deliver(service).await, Err(ErrorKind::Config));
    }
    assert!(store.calls().is_empty());
}

#[tokio::test]
async fn two_engines_on_one_store_do_not_hide_two_services_from_each_other() {
    let store = FaultStore::new(testing::store(), 1);
    let engine = || testing::builder(store.clone()).build().unwrap();
    let orders = engine().sqs(Key::pointer("/id"), succeed);
    let line = line!() - 1;
    assert!(orders.clone().validate().is_ok());
    let error = engine().sqs(Key::pointer("/id"), succeed).validate().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    for place in [line, line + 3] {
        assert!(error.to_string().contains(&format!("services.rs:{place}:")), "{error}");
    }
    for other in [
        engine().named("mails").sqs(Key::pointer("/id"), succeed).validate(),
        testing::builder(store.clone()).scope("mails").build().unwrap().sqs(Key::pointer("/id"), succeed).validate(),
        testing::engine().sqs(Key::pointer("/id"), succeed).validate(),
    ] {
        assert!(other.is_ok());
    }
    drop(orders);
    assert!(engine().sqs(Key::pointer("/id"), succeed).validate().is_ok());
}

#[tokio::test]
async fn a_service_that_is_made_for_each_event_is_one_service() {
    let once = testing::engine();
    let made = || once.sqs(Key::composite([Key::pointer("/id"), Key::from_fn(|_| Ok(Some("id".into())))]), succeed);
    let (first, second) = (made(), made());
    assert_eq!(deliver(&first).await, Ok(OutcomeKind::Executed));
    assert_eq!(deliver(&second).await, Ok(OutcomeKind::Replayed));
}

#[tokio::test]
async fn a_layer_that_is_made_for_each_event_is_one_layer() {
    let once = testing::engine();
    let made = || InvocationLayer::<Value>::new(once.clone(), Key::pointer("/id"));
    let (first, second) = (made(), made());
    assert!(first.clone().validate().is_ok() && second.clone().validate().is_ok());
    let _ = once.operation("other", "7").run(|| async { Ok::<_, Failure>(()) }).await.unwrap();
    assert!(first.validate().is_ok() && second.validate().is_ok(), "a record in the store changes nothing");
}

#[tokio::test]
async fn layers_made_by_one_line_for_different_handlers_are_two() {
    fn protect<T>(once: &Idempotency) -> Result<InvocationLayer<T>, lambda_once::Error> {
        InvocationLayer::new(once.clone(), Key::pointer("/id")).validate()
    }
    async fn charge(_: LambdaEvent<Value>) -> Result<String, BoxError> {
        Ok("charged".to_owned())
    }
    async fn mail(_: LambdaEvent<Value>) -> Result<String, BoxError> {
        Ok("mailed".to_owned())
    }
    let (once, event) = (testing::engine(), || testing::event(&json!({ "id": "7" })));
    let first = protect::<Value>(&once).unwrap().layer(service_fn(charge));
    let made_again = protect::<Value>(&once).unwrap().layer(service_fn(charge));
    for charges in [first.clone(), made_again] {
        assert_eq!(charges.oneshot(event()).await.unwrap(), "charged");
    }
    let mails = protect::<Value>(&once).unwrap().layer(service_fn(mail));
    let refused = mails.oneshot(event()).await.unwrap_err().to_string();
    assert!(refused.contains("unnamed `invocation` services"), "{refused}");
    drop(first);

    let _of_any_events = protect::<Value>(&once).unwrap();
    assert_eq!(protect::<Vec<Value>>(&once).unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn one_layer_around_two_handlers_is_refused_by_the_second() {
    async fn charge(_: LambdaEvent<Value>) -> Result<String, BoxError> {
        Ok("charged".to_owned())
    }
    async fn mail(_: LambdaEvent<Value>) -> Result<String, BoxError> {
        Ok("mailed".to_owned())
    }
    let event = || testing::event(&json!({ "id": "7" }));
    let layer = InvocationLayer::new(testing::engine(), Key::pointer("/id")).validate().unwrap();
    let (charges, mails) = (layer.clone().layer(service_fn(charge)), layer.layer(service_fn(mail)));
    assert_eq!(charges.clone().oneshot(event()).await.unwrap(), "charged");
    let refused = mails.oneshot(event()).await.unwrap_err().to_string();
    assert!(refused.contains("unnamed `invocation` services"), "{refused}");
    assert_eq!(charges.oneshot(event()).await.unwrap(), "charged");
}

#[tokio::test]
async fn a_second_service_with_another_key_is_refused_by_its_own_validate() {
    let once = testing::engine();
    let made = |key: &'static str| once.sqs(Key::pointer(key), succeed);
    let orders = made("/id").validate().unwrap();
    assert_eq!(deliver(&orders).await, Ok(OutcomeKind::Executed));
    assert_eq!(made("/refund").validate().unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn capturing_handlers_are_two_although_one_line_makes_their_services() {
    let once = testing::engine();
    let made = |to: &'static str| {
        let handler = move |_: Value| async move { Ok::<_, Failure>(to) };
        once.sqs(Key::pointer("/id"), handler)
    };
    let (charges, mails) = (made("charge"), made("mail"));
    for service in [&charges, &mails] {
        assert_eq!(service.clone().validate().err().unwrap().kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn services_made_by_one_line_with_other_keys_settings_or_handlers_are_two() {
    async fn refund(_: Value) -> Result<(), Failure> {
        Ok(())
    }
    fn made<H, Args>(once: &Idempotency, key: Key, handler: H) -> BatchService<Sqs, H, Value, Args>
    where
        H: Handler<Value, Args>,
    {
        once.sqs(key, handler)
    }
    let once = testing::engine();
    let first = made(&once, Key::pointer("/id"), succeed);
    assert!(made(&once, Key::pointer("/id"), succeed).validate().is_ok());
    assert_eq!(made(&once, Key::pointer("/id"), refund).validate().unwrap_err().kind(), ErrorKind::Config);
    // Only validated services can be distinguished by their keys and settings.
    assert_eq!(deliver(&first).await, Ok(OutcomeKind::Executed));
    let others = [made(&once, Key::message_id(), succeed), made(&once, Key::pointer("/id"), succeed).concurrency(1)];
    for other in others {
        let twin = first.clone();
        assert_eq!(other.clone().validate().err().or(twin.validate().err()).unwrap().kind(), ErrorKind::Config);
    }
}

/// A policy that counts how often the settings of its service are formatted.
struct Formatted(Arc<AtomicUsize>);

impl fmt::Debug for Formatted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fetch_add(1, Ordering::SeqCst);
        f.write_str("Formatted")
    }
}

impl Redelivery for Formatted {
    fn delay<'a>(&'a self, _: &'a [RecordReport], _: Timestamp) -> BoxFuture<'a, ()> {
        unreachable!("no record fails")
    }
}

/// Settings are compared by their text.
#[tokio::test]
async fn a_service_is_compared_only_with_those_that_share_its_records() {
    let (once, formatted) = (testing::engine(), Arc::new(AtomicUsize::new(0)));
    let service = once.sqs(Key::pointer("/id"), succeed).redelivery(Formatted(Arc::clone(&formatted)));
    let _on_another_store = testing::engine().sqs(Key::pointer("/id"), succeed);
    for expected in [OutcomeKind::Executed, OutcomeKind::Replayed] {
        assert_eq!(deliver(&service).await, Ok(expected));
        assert_eq!(formatted.load(Ordering::SeqCst), 0);
    }
    let _with_the_same_records = once.sqs(Key::pointer("/id"), succeed);
    assert_eq!(deliver(&service).await, Err(ErrorKind::Config));
    assert_ne!(formatted.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_key_that_captures_something_equals_no_other() {
    let once = testing::engine();
    let made = |suffix: &str| {
        let suffix = suffix.to_owned();
        once.sqs(Key::from_fn(move |_| Ok(Some(suffix.clone()))), succeed)
    };
    let (first, second) = (made("a"), made("b"));
    let checked = [first.clone().validate().err(), second.clone().validate().err()];
    assert_eq!(checked.into_iter().flatten().map(|error| error.kind()).collect::<Vec<_>>(), [ErrorKind::Config]);
}

#[tokio::test]
async fn keys_are_equal_only_if_all_their_parts_are() {
    let are_equal = |one: Key, other: Key| {
        let once = testing::engine();
        let made = |key: Key| once.sqs(key, succeed);
        let (first, second) = (made(one), made(other));
        let checked = [first.clone().validate().err(), second.clone().validate().err()];
        let kinds: Vec<_> = checked.into_iter().flatten().map(|error| error.kind()).collect();
        assert!(matches!(kinds[..], [] | [ErrorKind::Config]), "{kinds:?}");
        kinds.is_empty()
    };
    let id = || Key::pointer("/id");
    let both = |one, other| Key::composite([one, other]);
    let captures = || {
        let suffix = "a".to_owned();
        Key::from_fn(move |_| Ok(Some(suffix.clone())))
    };
    for key in [
        || Key::pointer("/id"),
        || Key::jmespath("id"),
        || Key::pointer("/id").parse_json("/a"),
        || Key::composite([Key::pointer("/id"), Key::message_id()]),
    ] {
        assert!(are_equal(key(), key()), "{:?}", key());
    }
    for (one, other) in [
        (Key::jmespath("id"), Key::jmespath("name")),
        (id().parse_json("/a"), id().parse_json("/b")),
        (id().parse_json("/a"), Key::pointer("/name").parse_json("/a")),
        (captures().parse_json("/a"), captures().parse_json("/a")),
        (both(id(), Key::message_id()), both(id(), Key::header("id"))),
        (both(id(), Key::message_id()), Key::composite([id()])),
        (both(id(), captures()), both(id(), captures())),
    ] {
        assert!(!are_equal(one.clone(), other.clone()), "{one:?} and {other:?}");
    }
}

#[tokio::test]
async fn a_service_may_follow_one_that_is_gone() {
    let once = testing::engine();
    let earlier = once.sqs(Key::pointer("/id"), succeed);
    let clone = earlier.clone();
    drop(earlier);
    let later = once.sqs(Key::pointer("/id"), succeed);
    assert_eq!(deliver(&later).await, Err(ErrorKind::Config), "a clone of the earlier one is alive");
    drop(clone);
    assert_eq!(deliver(&later).await, Ok(OutcomeKind::Executed));
}

#[tokio::test]
async fn clones_of_a_service_are_one_service() {
    let service = testing::engine().sqs(Key::pointer("/id"), succeed).concurrency(2);
    let clone = service.clone().concurrency(1).validate().unwrap();
    assert_eq!(deliver(&service).await, Ok(OutcomeKind::Executed));
    assert_eq!(deliver(&clone).await, Ok(OutcomeKind::Replayed));
}

#[tokio::test]
async fn services_of_different_kinds_share_an_engine_and_a_key_without_meeting() {
    let once = testing::engine();
    let queue = once.sqs(Key::pointer("/id"), succeed).validate().unwrap();
    let topic = once.sns(Key::pointer("/id"), succeed).validate().unwrap();
    let layer = InvocationLayer::new(once.clone(), Key::pointer("/id")).validate().unwrap();
    let runs = once.operation("invocation", "other").run(|| async { Ok::<_, Failure>(()) }).await.unwrap();
    assert_eq!(runs.kind(), OutcomeKind::Executed);
    assert_eq!(deliver(&queue).await, Ok(OutcomeKind::Executed));
    let message = testing::record(&json!({ "id": "7" }));
    assert_eq!(testing::deliver(&topic, &testing::sns::event(message)).await.outcomes(), [Ok(OutcomeKind::Executed)]);
    let function = layer.layer(service_fn(|_: LambdaEvent<Value>| async { Ok::<_, BoxError>(7) }));
    assert_eq!(function.oneshot(testing::event(&json!({ "id": "7" }))).await.unwrap(), 7);
}

#[tokio::test]
async fn services_share_their_records_if_and_only_if_they_share_their_name() {
    let once = testing::engine();
    let service = |name: &'static str| once.named(name).sqs(Key::pointer("/id"), succeed).validate().unwrap();
    let (orders, refunds, orders_again) = (service("orders"), service("refunds"), service("orders"));
    let unnamed = once.sqs(Key::pointer("/id"), succeed).validate().unwrap();
    for new in [&orders, &refunds, &unnamed] {
        assert_eq!(deliver(new).await, Ok(OutcomeKind::Executed));
    }
    assert_eq!(deliver(&orders_again).await, Ok(OutcomeKind::Replayed));
}

#[tokio::test]
async fn two_unnamed_invocation_layers_are_refused() {
    let once = testing::engine();
    let layer = |once: &Idempotency| InvocationLayer::new(once.clone(), Key::pointer("/id"));
    let function = |layer: &InvocationLayer<Value>| {
        layer.layer(service_fn(|_: LambdaEvent<Value>| async { Ok::<_, BoxError>(7) }))
    };
    let event = || testing::event(&json!({ "id": "7" }));
    let charge = layer(&once);
    let charges = [function(&charge), function(&charge)];
    assert!(charge.clone().validate().is_ok(), "one layer may wrap several services");
    let refund = InvocationLayer::new(once.clone(), Key::pointer("/id"));
    assert_eq!(refund.clone().validate().unwrap_err().kind(), ErrorKind::Config);
    assert!(layer(&once.named("refund")).validate().is_ok());
    assert!(
        function(&refund).oneshot(event()).await.unwrap_err().to_string().contains("unnamed `invocation` services")
    );
    drop((charge, charges));
    assert_eq!(function(&refund).oneshot(event()).await.unwrap(), 7);
}

#[tokio::test]
async fn two_unnamed_http_layers_are_refused() {
    let once = testing::engine();
    let layer = |once: &Idempotency| IdempotencyKeyLayer::new(once.clone(), Caller::authorizer().or_anonymous());
    let answer = async |layer: &IdempotencyKeyLayer| {
        let inner =
            service_fn(|_: Request<Full<Bytes>>| async { Ok::<_, BoxError>(Response::new(Full::<Bytes>::default())) });
        let request = Request::post("/").header("Idempotency-Key", "k").body(Full::default()).unwrap();
        let (parts, body) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
        (parts.status.as_u16(), String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    let charges = layer(&once);
    assert_eq!(answer(&charges).await.0, 200);
    let refunds = IdempotencyKeyLayer::new(once.clone(), Caller::authorizer().or_anonymous());
    let (status, problem) = answer(&refunds).await;
    assert!(status == 500 && problem.contains("misconfigured"), "{problem}");
    assert_eq!(answer(&layer(&once.named("refunds"))).await.0, 200);
    drop(charges);
    assert_eq!(answer(&refunds).await.0, 200);
}
