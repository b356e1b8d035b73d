//! Settings that Powertools' records cannot represent, and that are refused without a request to a server.

use http_body_util::Full;
use lambda_once::{
    Classify, DynamoDbStore, Error, ErrorKind, Failure, Idempotency, Key, OperationSettings, Outcome, Store,
    Transactional, Verdict,
    http::{Caller, IdempotencyKeyLayer},
    invocation::{InvocationError, InvocationLayer},
    record::{KeyHash, Owner, StoredResult},
    store::{
        SettleRequest, Settlement,
        dynamodb::{Config, Powertools},
    },
    testing::{self, Redeliver, sqs},
};
use lambda_runtime::{Context, LambdaEvent};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    support::{self, assert_outcome},
    world::{PLACE, World},
};

/// Returns a store whose endpoint has no listener.
async fn store() -> DynamoDbStore {
    let client = support::client("http://127.0.0.1:9").await;
    Config::new("table").powertools(Powertools::python("orders.app.handler")).build(client).unwrap()
}

fn assert_config<T: std::fmt::Debug>(result: Result<T, Error>, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

async fn handle(_: Value) -> Result<(), Failure> {
    Ok(())
}

#[tokio::test]
async fn a_prefix_that_is_empty() {
    let client = support::client("http://127.0.0.1:9").await;
    for function in [Powertools::python(""), Powertools::typescript(" ")] {
        assert_config(Config::new("table").powertools(function).build(client.clone()), "prefix");
    }
}

#[tokio::test]
async fn an_order_of_operations() {
    let once = Idempotency::new(store().await);
    let operation = once.operation(PLACE, &1).ordered_by("order 7", 1_u64);
    assert_config(operation.run(async || Ok::<_, Failure>(())).await, "order");
}

#[tokio::test]
async fn a_version_of_the_payload() {
    let once = Idempotency::new(store().await);
    let raised = OperationSettings::new().payload_version(2);
    let operation = once.operation(PLACE, &1).payload(&1).with_settings(raised);
    assert_config(operation.run(async || Ok::<_, Failure>(())).await, "`payload_version`");
}

#[tokio::test]
async fn a_second_operation() {
    let once = Idempotency::new(store().await);
    let service = once.sqs(Key::pointer("/id"), handle).validate().unwrap();
    assert!(once.sqs(Key::pointer("/id"), handle).validate().is_err(), "it is the second one of its kind");
    assert_config(once.operation(PLACE, &1).run(async || Ok::<_, Failure>(())).await, "`sqs`");
    assert_config(once.named("other").sqs(Key::pointer("/id"), handle).validate().map(drop), "`other.sqs`");
    assert_config(
        InvocationLayer::<Value>::new(once.clone(), Key::pointer("/id")).validate().map(drop),
        "`invocation`",
    );
    assert!(service.validate().is_ok());
}

#[tokio::test]
async fn a_tenant() {
    let mut context = Context::default();
    context.tenant_id = Some("blue".to_owned());
    let queue = Idempotency::new(store().await).sqs(Key::pointer("/id"), handle);
    let batch = sqs::batch([testing::record(&json!({ "id": 1 }))]);
    let answer = queue.oneshot(LambdaEvent::new(batch.delivery(1), context.clone())).await;
    assert_config(answer, "tenants");

    let layer = InvocationLayer::new(Idempotency::new(store().await), Key::pointer("/id"));
    let handler = service_fn(|_: LambdaEvent<Value>| async { Ok::<_, lambda_once::BoxError>(()) });
    let event = LambdaEvent::new(testing::event(&json!({ "id": 1 })).payload, context);
    match layer.layer(handler).oneshot(event).await {
        Err(InvocationError::Library(error)) => assert_config(Err::<(), _>(error), "tenants"),
        other => panic!("expected an error of the library, got {other:?}"),
    }
}

#[tokio::test]
async fn the_http_layer() {
    let once = Idempotency::builder(store().await).scope("orders").build().unwrap();
    let layer = IdempotencyKeyLayer::new(once, Caller::shared());
    assert_config(layer.validate().map(drop), "HTTP");
    let once = Idempotency::builder(store().await).scope("orders").build().unwrap();
    let service = IdempotencyKeyLayer::new(once, Caller::shared()).layer(service_fn(
        |_: http::Request<Full<bytes::Bytes>>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::<bytes::Bytes>::default()))
        },
    ));
    let request = http::Request::post("/").header("idempotency-key", "\"k\"").body(Full::default()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 500);
}

#[tokio::test]
async fn settles_that_only_another_store_can_make() {
    let store = store().await;
    let key = Idempotency::new(store.clone()).key_hash(PLACE, &1).unwrap();
    let settle = |key, settlement| {
        let (owner, store) = (Owner::from_bytes([7; 16]), store.clone());
        let request = SettleRequest { key, owner, fingerprint: None, settlement, order: None };
        async move { store.settle(&[request]).await.remove(0) }
    };
    let retention = std::time::Duration::from_secs(1);
    assert_config(settle(key, Settlement::fail(StoredResult::DROPPED, retention)).await, "failures");
    let superseded = Settlement::complete(StoredResult::SUPERSEDED, retention);
    assert_config(settle(key, superseded).await, "superseded");
    let of_another_store = KeyHash::from_bytes([7; 32]);
    assert_config(settle(of_another_store, Settlement::Release).await, "format");

    let writes = store.open();
    let settlement = Settlement::fail(StoredResult::DROPPED, retention);
    let owner = Owner::from_bytes([7; 16]);
    let request = SettleRequest { key, owner, fingerprint: None, settlement, order: None };
    assert_config(store.commit(&writes, Some(&request)).await, "failures");
}

crate::world::with_each!(that_an_operation_is_superseded);

async fn that_an_operation_is_superseded(world: World) {
    let work = || async { Err::<Value, _>(std::io::Error::other("version 3 is there")).superseded() };
    match world.once.operation(PLACE, &1).run(work).await.unwrap() {
        Outcome::Failed(failure) => {
            assert_eq!(failure.verdict(), Verdict::Permanent);
            assert!(failure.to_string().contains("superseded"), "{failure}");
        }
        other => panic!("expected a failure, got {other:?}"),
    }
    assert_eq!(world.item().await, None);
    assert_outcome!(world.once.operation(PLACE, &1).run(async || Ok::<_, Failure>(7)).await, Ok(Outcome::Executed(7)));
}
