//! Replays name the request that ran.

use std::future;

use bytes::Bytes;
use http::{HeaderName, Request, Response, header};
use http_body_util::Full;
use lambda_once::{Results, http::IdempotencyKeyLayer};

use crate::{
    refusals::of_api_gateway,
    setup::{App, in_lambda, numbered, post},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ORIGINAL_REQUEST: HeaderName = HeaderName::from_static("original-request");

fn app(set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> App {
    App::with(|engine| engine, set_up, numbered)
}

fn with(name: &HeaderName, id: &str) -> Request<Full<Bytes>> {
    let mut request = post("k", "{}");
    request.headers_mut().insert(name, id.parse().unwrap());
    request
}

/// The header of a first response and of its replay, which has another id.
async fn named(app: &App, name: &HeaderName, id: &str) -> [Option<String>; 2] {
    let mut named = [None, None];
    for (original, id) in named.iter_mut().zip([id, "another"]) {
        let got = app.send(with(name, id)).await;
        *original = got.header("original-request").map(str::to_owned);
    }
    assert_eq!(app.runs(), 1);
    named
}

#[tokio::test(start_paused = true)]
async fn a_replay_has_the_id_of_the_request_that_ran() {
    assert_eq!(named(&app(|layer| layer), &REQUEST_ID, "req-1").await, [None, Some("req-1".into())]);
    let correlation = HeaderName::from_static("x-correlation-id");
    let chosen = app(|layer| layer.request_id(HeaderName::from_static("x-correlation-id")));
    assert_eq!(named(&chosen, &correlation, "req-1").await, [None, Some("req-1".into())]);
    let dropped = app(|layer| layer.drop_headers([ORIGINAL_REQUEST]));
    assert_eq!(named(&dropped, &REQUEST_ID, "req-1").await, [None, None]);
    let listed = app(|layer| layer.store_only_headers([header::CONTENT_TYPE]));
    assert_eq!(named(&listed, &REQUEST_ID, "req-1").await, [None, Some("req-1".into())]);
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_too_long_or_empty_is_not_stored() {
    let longest = "a".repeat(255);
    for (id, original) in [("", None), (&*longest, Some(&*longest)), (&*"a".repeat(256), None)] {
        assert_eq!(named(&app(|layer| layer), &REQUEST_ID, id).await[1].as_deref(), original);
    }
}

/// From `events/`, as AWS documents them.
#[tokio::test(start_paused = true)]
async fn in_lambda_it_is_the_id_that_the_front_door_shows_its_client() {
    for (event, id) in [("rest-v1", "effddeea-a842-4c19-b96f-74adfaf55496"), ("api-v2", "JKJaXmPLvHcESHA=")] {
        let app = app(|layer| layer);
        app.send(of_api_gateway(&app, event)).await;
        let again = app.send(of_api_gateway(&app, event)).await;
        assert_eq!((again.is_replay(), again.header("original-request")), (true, Some(id)), "{event}");
    }
    let app = app(|layer| layer);
    for original in [None, Some("invocation-1")] {
        let mut request = in_lambda(post("k", "{}"));
        let id = if original.is_none() { "invocation-1" } else { "invocation-2" };
        request.extensions_mut().get_mut::<lambda_runtime::Context>().unwrap().request_id = id.to_owned();
        assert_eq!(app.send(request).await.header("original-request"), original);
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_body_a_response_names_it_too_unless_results_are_discarded() {
    let long = |_, _| {
        let made = Response::builder().status(201).header("location", "/charges/7");
        future::ready(made.body(Full::from("12345")).unwrap())
    };
    let app = App::with(|engine| engine, |layer| layer.max_response(4), long);
    app.send(with(&REQUEST_ID, "req-1")).await;
    let again = app.send(with(&REQUEST_ID, "req-2")).await;
    assert_eq!((again.status, again.header("original-request")), (410, Some("req-1")));
    assert_eq!(again.header("location"), Some("/charges/7"));

    let discarding = App::with(|engine| engine.results(Results::Discard), |layer| layer, numbered);
    assert_eq!(named(&discarding, &REQUEST_ID, "req-1").await, [None, None]);
}

#[tokio::test(start_paused = true)]
async fn the_header_of_a_service_behind_the_handler_is_not_replayed() {
    let proxied = |_, _| {
        let made = Response::builder().header(ORIGINAL_REQUEST, "of-another-service");
        future::ready(made.body(Full::from("charged")).unwrap())
    };
    let app = App::with(|engine| engine, |layer| layer, proxied);
    let first = app.send(with(&REQUEST_ID, "req-1")).await;
    assert_eq!(first.header("original-request"), Some("of-another-service"));
    let again = app.send(with(&REQUEST_ID, "req-2")).await;
    let originals: Vec<_> = again.headers.get_all(ORIGINAL_REQUEST).iter().collect();
    assert_eq!(originals, ["req-1"]);
}
