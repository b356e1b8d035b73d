//! Functions of the application that panic.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    Idempotency, Key, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::FaultStore,
};
use tower::{Layer, ServiceExt};

use crate::setup::{Got, in_lambda, post};

/// Panics at a request with the header `x-panic`.
fn may_panic(request: &Parts) {
    assert!(!request.headers.contains_key("x-panic"), "as the test wants it");
}

fn scope() -> Caller {
    Caller::from_fn(|request| {
        may_panic(request);
        Some("alice".to_owned())
    })
}

type Store = FaultStore<MemoryStore>;

async fn send(layer: &IdempotencyKeyLayer, request: Request<Full<Bytes>>) -> Got {
    let handler = tower::service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, Infallible>(Response::builder().status(201).body(Full::<Bytes>::from("charged")).unwrap())
    });
    let (parts, body) = layer.layer(handler).oneshot(request).await.unwrap().into_parts();
    Got { status: parts.status.as_u16(), headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

fn panicking(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request.headers_mut().insert("x-panic", "1".parse().unwrap());
    request
}

#[tokio::test]
async fn an_application_function_that_panics_refuses_the_request_unclaimed() {
    type SetUp = fn(Idempotency) -> IdempotencyKeyLayer;
    let set_ups: [(&str, SetUp); 6] = [
        ("scope", |once| IdempotencyKeyLayer::new(once, scope())),
        ("covers", |once| {
            IdempotencyKeyLayer::new(once, Caller::shared()).applies_to(|request| {
                may_panic(request);
                true
            })
        }),
        ("check_key", |once| {
            IdempotencyKeyLayer::new(once, Caller::shared()).check_key(|key| {
                assert_ne!(key, "panic");
                Ok(())
            })
        }),
        ("fingerprint", |once| {
            IdempotencyKeyLayer::new(once, Caller::shared()).fingerprint(|request, body| {
                may_panic(request);
                Ok(body.to_vec())
            })
        }),
        ("key", |once| {
            let key = Key::from_fn(|delivery| {
                assert_ne!(delivery.body(), b"panic");
                Ok(Some("k".to_owned()))
            });
            IdempotencyKeyLayer::new(once, Caller::shared()).key(key)
        }),
        ("key_optional_for", |once| {
            IdempotencyKeyLayer::new(once, Caller::shared()).key_optional_for(|request| {
                may_panic(request);
                false
            })
        }),
    ];
    for (name, set_up) in set_ups {
        for is_in_lambda in [false, true] {
            let store: Store = FaultStore::new(MemoryStore::new(), 1);
            let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
            let layer = set_up(once);
            let request = match name {
                "check_key" => post("panic", "{}"),
                "key" => post("k", "panic"),
                "key_optional_for" => {
                    let mut request = panicking(post("k", "{}"));
                    request.headers_mut().remove("idempotency-key");
                    request
                }
                _ => panicking(post("k", "{}")),
            };
            let got = send(&layer, if is_in_lambda { in_lambda(request) } else { request }).await;
            assert_eq!((got.status, got.code()), (500, "hook_failed".to_owned()), "{name}");
            assert!(store.calls().is_empty(), "{name}");
            assert_eq!(send(&layer, post("k", "{}")).await.status, 201, "{name}");
        }
    }
}

#[tokio::test]
async fn a_refusal_that_cannot_be_decorated_is_an_error_of_the_service() {
    let store: Store = FaultStore::new(MemoryStore::new(), 1);
    let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
    let layer = IdempotencyKeyLayer::new(once, Caller::shared()).on_rejection(|request, refusal| {
        refusal.headers_mut().insert("x-half", "1".parse().unwrap());
        may_panic(request);
    });
    assert_eq!(send(&layer, post("k", "{}")).await.status, 201);
    // A mismatch, which no retry helps.
    let got = send(&layer, panicking(post("k", "other"))).await;
    assert_eq!((got.status, got.code(), got.header("x-half")), (500, "hook_failed".to_owned(), None));
    let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(problem["retryable"], false);
    assert_eq!(send(&layer, post("k", "other")).await.status, 422);
    assert_eq!(
        send(&layer, post("k", "{}")).await.header("idempotency-replayed"),
        Some("true"),
        "the key is free to use"
    );
}
