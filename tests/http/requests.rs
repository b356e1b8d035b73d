//! Covered requests, their methods and keys, and the compared parts.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use lambda_once::{
    Key,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::Value;

use crate::setup::{App, Got, numbered, post};

fn app(set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> App {
    App::with(|engine| engine, set_up, numbered)
}

fn to(path: &str, headers: &[(&str, &str)], body: &'static str) -> Request<Full<Bytes>> {
    let request = headers.iter().fold(Request::post(path), |request, (name, value)| request.header(*name, *value));
    request.body(body.into()).unwrap()
}

fn json(key: &str, content_type: &str, body: &'static str) -> Request<Full<Bytes>> {
    to("/charges", &[("idempotency-key", key), ("content-type", content_type)], body)
}

#[tokio::test(start_paused = true)]
async fn a_predicate_selects_the_covered_requests() {
    let app = app(|layer| layer.applies_to(|parts| parts.uri.path().starts_with("/charges")));
    let search = || to("/search", &[("idempotency-key", "k")], "{}");
    app.send(search()).await;
    let again = app.send(search()).await;
    assert_eq!((again.header("x-run"), again.is_replay()), (Some("2"), false));
    assert_eq!(app.send(to("/search", &[], "{}")).await.status, 201);
    assert!(app.store.calls().is_empty());

    assert_eq!(app.send(to("/charges", &[], "{}")).await.code(), "key_missing");
    app.post("k", "{}").await;
    assert!(app.post("k", "{}").await.is_replay());
    let get = Request::builder().method(Method::GET).uri("/charges").header("idempotency-key", "k");
    assert!(!app.send(get.body(Full::default()).unwrap()).await.is_replay(), "its method is not covered");
}

#[tokio::test(start_paused = true)]
async fn a_predicate_selects_the_requests_that_need_no_key() {
    let app = app(|layer| layer.key_optional_for(|parts| parts.uri.path() == "/notes"));
    assert_eq!(app.send(to("/notes", &[], "{}")).await.status, 201);
    assert_eq!(app.send(to("/charges", &[], "{}")).await.code(), "key_missing");
    let note = || to("/notes", &[("idempotency-key", "k")], "{}");
    app.send(note()).await;
    assert!(app.send(note()).await.is_replay(), "with a key it is protected");
}

// Tests IKH-5-1, IKH-5-2.
#[tokio::test(start_paused = true)]
async fn the_form_of_a_key_can_be_checked() {
    let check = |key: &str| match key.len() {
        36 => Ok(()),
        length => Err(format!("a key is a UUID, and this one has {length} characters").into()),
    };
    let app = app(|layer| layer.check_key(check));
    let got = app.post("\"short\"", "{}").await;
    assert_eq!((got.status, got.code(), app.runs()), (400, "key_malformed".to_owned(), 0));
    let problem: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(problem["detail"], "a key is a UUID, and this one has 5 characters");
    assert!(app.store.calls().is_empty());
    assert_eq!(app.post("\"8e03978e-40d5-43e8-bc93-6894a57f9324\"", "{}").await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_webhook_is_in_its_body() {
    let app = app(|layer| layer.key(Key::pointer("/id")));
    let event = |body| to("/webhooks", &[("content-type", "application/json")], body);
    assert!(!app.send(event(r#"{"id":"evt_1","type":"charge.succeeded"}"#)).await.is_replay());
    assert!(app.send(event(r#"{"type":"charge.succeeded","id":"evt_1"}"#)).await.is_replay());
    assert!(!app.send(event(r#"{"id":"evt_2","type":"charge.succeeded"}"#)).await.is_replay());
    assert_eq!(app.send(event(r#"{"id":"evt_1","type":"charge.failed"}"#)).await.code(), "key_reused");
    let calls = app.store.calls().len();
    for (body, code) in
        [(r#"{"type":"ping"}"#, "key_missing"), (r#"{"id":null}"#, "key_missing"), ("{", "body_rejected")]
    {
        let got = app.send(event(body)).await;
        assert_eq!((got.status, got.code()), (400, code.to_owned()), "{body}");
    }
    assert_eq!((app.runs(), app.store.calls().len()), (2, calls));
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_webhook_is_in_a_header_of_its_senders() {
    let app =
        app(|layer| layer.key(Key::header("x-github-delivery")).key_optional_for(|parts| parts.uri.path() == "/ping"));
    let delivery = |id: &str| to("/webhooks", &[("X-GitHub-Delivery", id), ("idempotency-key", "k")], "{}");
    assert!(!app.send(delivery("72d3162e-cc78-11e3-81ab-4c9367dc0958")).await.is_replay());
    assert!(app.send(delivery("72d3162e-cc78-11e3-81ab-4c9367dc0958")).await.is_replay());
    assert!(!app.send(delivery("72d3162e-cc78-11e3-81ab-4c9367dc0959")).await.is_replay());
    assert_eq!(app.send(to("/webhooks", &[], "{}")).await.code(), "key_missing");
    assert_eq!(app.send(to("/ping", &[], "{}")).await.header("x-run"), Some("3"));
}

#[test]
fn a_malformed_pointer_is_refused_in_init() {
    let layer = || IdempotencyKeyLayer::new(crate::setup::engine(), Caller::shared());
    let error = layer().key(Key::pointer("id")).validate().unwrap_err();
    assert_eq!(error.kind(), lambda_once::ErrorKind::Config);
    assert!(layer().key(Key::pointer("/id")).validate().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_media_type_without_parameters_determines_how_bodies_are_compared() {
    const ONE: &str = r#"{"a":1,"b":2}"#;
    const SPELLED_OTHERWISE: &str = "{ \"b\": 2, \"a\": 1 }";
    let app = app(|layer| layer);
    for (key, first, again) in [
        ("json", "application/json", "application/json; charset=utf-8"),
        ("suffix", "application/vnd.api+json", "Application/Vnd.Api+Json;v=1"),
    ] {
        app.send(json(key, first, ONE)).await;
        assert!(app.send(json(key, again, SPELLED_OTHERWISE)).await.is_replay(), "{key}");
        assert_eq!(app.send(json(key, "text/plain", ONE)).await.code(), "key_reused");
    }
    for (key, text) in
        [("plain", "text/plain"), ("lines", "application/jsonl"), ("form", "application/x-www-form-urlencoded")]
    {
        app.send(json(key, text, ONE)).await;
        assert_eq!(app.send(json(key, text, SPELLED_OTHERWISE)).await.code(), "key_reused", "{key}");
        assert!(app.send(json(key, &format!("{text}; charset=utf-8"), ONE)).await.is_replay(), "{key}");
    }
}

// Tests IKH-2.4-2.
#[tokio::test(start_paused = true)]
async fn a_fingerprint_hook_selects_the_parts_that_distinguish_requests() {
    let app = app(|layer| {
        layer.fingerprint(|parts, body| {
            let mut body: Value = serde_json::from_slice(body)?;
            body.as_object_mut().ok_or("an object is expected")?.remove("sent_at");
            let version = parts.headers.get("x-version").map(http::HeaderValue::as_bytes).unwrap_or_default();
            Ok([body.to_string().as_bytes(), version].concat())
        })
    });
    let of = |version: &str, body| {
        let mut request = post("k", body);
        request.headers_mut().insert("x-version", version.parse().unwrap());
        request
    };
    app.send(of("1", r#"{"amount":1,"sent_at":1}"#)).await;
    assert!(app.send(of("1", r#"{"sent_at":2,"amount":1}"#)).await.is_replay());
    let refused = |got: Got| (got.status, got.code());
    assert_eq!(refused(app.send(of("1", r#"{"amount":2,"sent_at":1}"#)).await), (422, "key_reused".to_owned()));
    assert_eq!(refused(app.send(of("2", r#"{"amount":1,"sent_at":1}"#)).await), (422, "key_reused".to_owned()));
    let mut elsewhere = of("1", r#"{"amount":1}"#);
    *elsewhere.uri_mut() = "/refunds".parse().unwrap();
    assert_eq!(refused(app.send(elsewhere).await), (422, "key_reused".to_owned()), "the path counts as ever");

    let calls = app.store.calls().len();
    for body in ["[]", "{"] {
        assert_eq!(refused(app.send(of("1", body)).await), (400, "body_rejected".to_owned()));
    }
    assert_eq!((app.runs(), app.store.calls().len()), (1, calls));
}
