//! The key and its caller.

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, request::Parts};
use http_body_util::Full;
use lambda_http::{Body, request::from_str};
use lambda_once::{
    Classify, Idempotency, Key,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};

use crate::setup::{App, numbered, post};

// Tests IKH-2.1-1, IKH-2.5.2-3.
#[tokio::test(start_paused = true)]
async fn a_key_is_the_same_with_and_without_quotes() {
    let app = App::new();
    app.post("8e03978e-40d5", "{}").await;
    assert!(app.post("\"8e03978e-40d5\"", "{}").await.is_replay());
}

// Tests IKH-2.7-1.
#[tokio::test(start_paused = true)]
async fn a_missing_key_is_refused_or_passes_through() {
    let keyless = || Request::post("/charges").body("{}".into()).unwrap();
    let app = App::new();
    let got = app.send(keyless()).await;
    assert_eq!((got.status, got.code(), app.runs()), (400, "key_missing".to_owned(), 0));

    let app = App::with(|engine| engine, |layer| layer.key_optional(), numbered);
    assert_eq!(app.send(keyless()).await.status, 201);
    assert_eq!(app.send(keyless()).await.header("x-run"), Some("2"));
    assert!(app.store.calls().is_empty());
}

// Tests IKH-5-1, IKH-5-2.
#[tokio::test(start_paused = true)]
async fn a_malformed_or_repeated_key_is_refused() {
    let app = App::with(|engine| engine, |layer| layer.key_optional(), numbered);
    let long = "k".repeat(256);
    for key in ["", "a b", "a,b", "\"a", "a\"b", &long] {
        let got = app.post(key, "{}").await;
        assert_eq!((got.status, got.code()), (400, "key_malformed".to_owned()), "{key:?}");
    }
    let mut twice = post("a", "{}");
    twice.headers_mut().append("idempotency-key", "a".parse().unwrap());
    assert_eq!(app.send(twice).await.code(), "key_malformed");
    assert_eq!(app.runs(), 0);
    assert!(app.store.calls().is_empty());
}

/// A webhook with these ids.
fn delivery(ids: &[&[u8]]) -> Request<Full<Bytes>> {
    let mut request = Request::post("/webhooks").body("{}".into()).unwrap();
    for id in ids {
        request.headers_mut().append("x-github-delivery", HeaderValue::from_bytes(id).unwrap());
    }
    request
}

#[tokio::test(start_paused = true)]
async fn a_malformed_or_repeated_senders_key_is_refused_even_if_optional() {
    let app = App::with(|engine| engine, |layer| layer.key(Key::header("x-github-delivery")).key_optional(), numbered);
    let malformed: [&[&[u8]]; 4] = [&[b"a", b"b"], &[b"a", b"a"], &["caf\u{e9}".as_bytes()], &[b"\xff"]];
    for ids in malformed {
        let got = app.send(delivery(ids)).await;
        assert_eq!((got.status, app.runs()), (400, 0), "{ids:?}");
        assert_eq!(got.code(), "key_malformed", "{ids:?}");
    }
    assert!(app.store.calls().is_empty());
    assert_eq!(app.send(delivery(&[b"a"])).await.status, 201);
    assert!(app.send(delivery(&[b"a"])).await.is_replay());
    assert_eq!(app.send(delivery(&[])).await.header("x-run"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_closure_selects_the_bytes_of_a_header_unless_it_is_repeated() {
    let key = Key::from_fn(|delivery| {
        let id = delivery.header_bytes("x-github-delivery");
        Ok(id.map(|id| format!("{id:?}")))
    });
    let app = App::with(|engine| engine, |layer| layer.key(key).key_optional(), numbered);
    for id in [b"a", b"\xff"] {
        assert_eq!(app.send(delivery(&[id])).await.status, 201);
        assert!(app.send(delivery(&[id])).await.is_replay(), "{id:?}");
    }
    let repeated = app.send(delivery(&[b"a", b"a"])).await;
    assert_eq!((repeated.status, repeated.code(), app.runs()), (400, "key_malformed".to_owned(), 2));
    assert_eq!(app.send(delivery(&[])).await.header("x-run"), Some("3"));
}

// Tests IKH-2.5.2-3.
#[tokio::test(start_paused = true)]
async fn the_names_of_the_headers_can_be_chosen() {
    let app = App::with(
        |engine| engine,
        |layer| layer.header("x-request-key".parse().unwrap()).replay_header("x-again".parse().unwrap()),
        numbered,
    );
    let request = || Request::post("/").header("X-Request-Key", "k").body("{}".into()).unwrap();
    app.send(request()).await;
    assert_eq!(app.send(request()).await.header("x-again"), Some("true"));
}

// Tests P27, IKH-5-3.
#[tokio::test(start_paused = true)]
async fn one_caller_never_gets_another_callers_response() {
    let app = App::new();
    let of = |caller: &str| {
        let mut request = post("k", "{}");
        if !caller.is_empty() {
            request.headers_mut().insert("x-caller", caller.parse().unwrap());
        }
        request
    };
    for caller in ["alice", "bob", "", "anonymous"] {
        assert!(!app.send(of(caller)).await.is_replay(), "{caller}");
    }
    for caller in ["alice", "bob", ""] {
        assert!(app.send(of(caller)).await.is_replay(), "{caller}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_an_empty_name_is_refused_and_not_anonymous() {
    let of = |caller: Option<&str>| {
        let mut request = post("k", "{}");
        if let Some(caller) = caller {
            request.headers_mut().insert("x-caller", caller.parse().unwrap());
        }
        request
    };
    let by_header = || Caller::header(HeaderName::from_static("x-caller")).or_anonymous();
    let by_function = || {
        let caller = |parts: &Parts| parts.headers.get("x-caller").map(|caller| caller.to_str().unwrap().to_owned());
        Caller::from_fn(caller).or_anonymous()
    };
    for scope in [by_header(), by_function()] {
        let handler = tower::service_fn(|_: Request<Full<Bytes>>| async {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        let service = IdempotencyKeyLayer::new(crate::setup::engine(), scope).layer(handler);
        for (caller, status) in [(None, 200), (Some(""), 403), (Some("alice"), 200)] {
            let answer = service.clone().oneshot(of(caller)).await.unwrap();
            assert_eq!(
                (answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")),
                (status, false),
                "{caller:?}"
            );
        }
    }
}

/// Sends an API Gateway event to a handler behind `Caller::authorizer`. Returns the status, and whether it is a replay.
async fn send(once: &Idempotency, event: &Value) -> (u16, bool) {
    let handler =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, lambda_http::Error>(http::Response::new(Body::Empty)) });
    let service = IdempotencyKeyLayer::new(once.clone(), Caller::authorizer()).layer(handler);
    let answer = service.oneshot(from_str(&event.to_string()).unwrap()).await.unwrap();
    (answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed"))
}

fn event(file: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("events/{file}")).unwrap()).unwrap()
}

fn with_authorizer(file: &str, authorizer: &Value) -> Value {
    let mut event = event(file);
    event["requestContext"]["authorizer"] = authorizer.clone();
    event
}

/// The ARN of all users of an identity pool.
const POOL_ROLE: &str = "arn:aws:sts::1:assumed-role/pool/CognitoIdentityCredentials";

fn of_identity_pool(id: &str) -> Value {
    let mut event = with_authorizer("charge-rest-v1.json", &Value::Null);
    event["requestContext"]["identity"]["userArn"] = POOL_ROLE.into();
    event["requestContext"]["identity"]["cognitoIdentityId"] = id.into();
    event
}

#[tokio::test]
async fn the_principal_of_each_kind_of_authorizer_is_a_scope() {
    const V1: &str = "charge-rest-v1.json";
    const V2: &str = "charge-http-v2.json";
    let jwt =
        |issuer: &str, subject: &str| json!({ "jwt": { "claims": { "iss": issuer, "sub": subject }, "scopes": null } });
    let callers = [
        with_authorizer(V1, &json!({ "principalId": "alice" })),
        with_authorizer(V1, &json!({ "principalId": "bob" })),
        with_authorizer(V1, &json!({ "claims": { "iss": "i", "sub": "alice" } })),
        with_authorizer(V1, &json!({ "claims": { "iss": "j", "sub": "alice" } })),
        with_authorizer(V2, &jwt("i", "bob")),
        with_authorizer(V2, &jwt("j", "bob")),
        with_authorizer(V2, &json!({ "iam": { "userArn": "arn:aws:iam::1:user/alice" } })),
        of_identity_pool("eu-west-1:alice"),
        of_identity_pool("eu-west-1:bob"),
        with_authorizer(
            V2,
            &json!({ "iam": { "userArn": POOL_ROLE, "cognitoIdentity": { "amr": ["a"], "identityId": "eu-west-1:carol", "identityPoolId": "p" } } }),
        ),
        with_authorizer(
            V2,
            &json!({ "iam": { "userArn": POOL_ROLE, "cognitoIdentity": { "amr": ["a"], "identityId": "eu-west-1:dave", "identityPoolId": "p" } } }),
        ),
    ];
    let once = crate::setup::engine();
    for caller in &callers {
        assert_eq!(send(&once, caller).await, (200, false), "{}", caller["requestContext"]["authorizer"]);
    }
    for caller in &callers {
        assert_eq!(send(&once, caller).await, (200, true), "{}", caller["requestContext"]["authorizer"]);
    }
}

#[tokio::test]
async fn a_request_without_a_principal_is_refused() {
    let once = crate::setup::engine();
    for file in ["charge-rest-v1.json", "charge-http-v2.json"] {
        for authorizer in
            [json!({}), json!({ "principalId": "" }), json!({ "jwt": { "claims": { "iss": "i" } } }), Value::Null]
        {
            assert_eq!(send(&once, &with_authorizer(file, &authorizer)).await.0, 403, "{file} {authorizer}");
        }
    }
}

#[tokio::test]
async fn tenants_of_one_function_do_not_meet() {
    let once = crate::setup::engine();
    let of = |tenant: &str| {
        let mut context = lambda_runtime::Context::default();
        context.tenant_id = Some(tenant.to_owned());
        let mut request = from_str(&event("charge-rest-v1.json").to_string()).unwrap();
        request.extensions_mut().insert(context);
        request
    };
    let handler =
        tower::service_fn(|_: Request<Body>| async { Ok::<_, lambda_http::Error>(http::Response::new(Body::Empty)) });
    let service = IdempotencyKeyLayer::new(once, Caller::authorizer()).layer(handler);
    for (tenant, replay) in [("a", false), ("b", false), ("a", true)] {
        let answer = service.clone().oneshot(of(tenant)).await.unwrap();
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replay, "{tenant}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_repeats_the_header_of_its_caller_is_refused() {
    let app = App::new();
    let mut request = post("k", "{}");
    for _ in 0..2 {
        request.headers_mut().append("x-caller", HeaderValue::from_static("alice"));
    }
    let got = app.send(request).await;
    assert_eq!((got.status, got.code(), app.runs()), (403, "caller_unknown".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_with_one_header_and_no_other_part_is_missing_not_malformed() {
    let key = Key::composite([Key::header("x-shop"), Key::pointer("/id")]);
    let app = App::with(|engine| engine, |layer| layer.key(key), numbered);
    let request = Request::post("/charges").header("x-shop", "a").body("{}".into()).unwrap();
    let got = app.send(request).await;
    assert_eq!((got.status, got.code(), app.runs()), (400, "key_missing".to_owned(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_found_at_the_moment_is_to_be_tried_again() {
    let cases = [
        (Key::from_fn(|_| Ok(Err("the directory is busy").transient()?)), (503, "unavailable", Some("1"))),
        (Key::from_fn(|_| Ok(Err("no such directory").permanent()?)), (400, "body_rejected", None)),
    ];
    for (key, (status, code, pause)) in cases {
        let app = App::with(|engine| engine, |layer| layer.key(key), numbered);
        let got = app.send(Request::post("/charges").body("{}".into()).unwrap()).await;
        assert_eq!((got.status, got.code(), got.header("retry-after")), (status, code.to_owned(), pause));
        assert_eq!(app.runs(), 0, "{code}");
    }
}

#[cfg(feature = "jmespath")]
#[tokio::test(start_paused = true)]
async fn a_key_that_fails_for_every_body_is_a_misconfiguration() {
    // The numbers of arguments are checked only when a function is called.
    for key in ["no_function(id)", "abs(id, id)", "contains(id)"] {
        let app = App::with(|engine| engine, |layer| layer.key(Key::jmespath(key)), numbered);
        let request = Request::post("/charges").body("{\"id\":1}".into()).unwrap();
        let got = app.send(request).await;
        assert_eq!((got.status, got.code(), app.runs()), (500, "misconfigured".to_owned(), 0), "{key}");
    }
}
