//! Responses that are too large for the layer, the store or Lambda.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{Router, routing::post};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use lambda_http::{Body, IntoResponse};
use lambda_once::{
    Claim, Idempotency, MemoryStore, Results, Store,
    http::{Caller, IdempotencyKeyLayer},
    record::{StoredData, StoredResult},
    store::ResultData,
};
use tower::{Layer, ServiceExt};

use crate::{
    setup::{App, Got, in_lambda, post as request},
    stores::Limited,
};

/// Lambda's documented limit for a response.
const LAMBDA_TAKES: usize = 6_291_556;

fn problem(got: &Got) -> serde_json::Value {
    serde_json::from_slice(&got.body).unwrap()
}

async fn made(body: &'static str) -> Response<Full<Bytes>> {
    let made = Response::builder().status(201).header("location", "/charges/7").header("x-run", "1");
    made.body(Full::from(body)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_status_and_location_of_a_response_over_the_cap() {
    let app = App::with(|engine| engine, |layer| layer.max_response(4), |_, _| made("12345"));
    assert_eq!(app.post("k", "1").await.body, "12345");
    let again = app.post("k", "1").await;
    assert_eq!((again.status, again.code(), again.is_replay()), (410, "response_not_stored".to_owned(), true));
    assert_eq!((&problem(&again)["response_status"], again.header("location")), (&201.into(), Some("/charges/7")));
    assert_eq!((again.header("x-run"), app.runs()), (None, 1));
}

/// The responses to a request and to its retry, whose body is this text, on a store with this limit.
async fn with_limit(max_result_bytes: usize, text: &str) -> Vec<Got> {
    let store = Limited { store: MemoryStore::new(), max_result_bytes };
    let once = Idempotency::builder(store).scope("tests").build().unwrap();
    let text = text.to_owned();
    let handler = move || {
        let text = text.clone();
        async move { (http::StatusCode::CREATED, [(header::LOCATION, "/charges/7")], text) }
    };
    let layer = IdempotencyKeyLayer::new(once, Caller::shared());
    let app = Router::new().route("/charges", post(handler)).route_layer(layer);
    let mut got = Vec::new();
    for _ in 0..2 {
        let request = Request::post("/charges").header("idempotency-key", "k").body(axum::body::Body::empty());
        let (parts, body) = app.clone().oneshot(request.unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        got.push(Got { status: parts.status.as_u16(), headers: parts.headers, body });
    }
    got
}

// Tests S5, P3.
#[tokio::test(start_paused = true)]
async fn a_retry_gets_status_and_location_of_a_response_too_large_to_store() {
    // Letters that compress to at least 1,000 bytes.
    let mut random = fastrand::Rng::with_seed(1);
    let text: String = std::iter::repeat_with(|| random.alphanumeric()).take(4_000).collect();
    let run = |max_result_bytes| with_limit(max_result_bytes, &text);
    let kept = run(8_000).await;
    assert_eq!((kept[0].status, kept[1].status, kept[1].is_replay()), (201, 201, true));
    let dropped = run(1_000).await;
    assert_eq!((dropped[0].status, dropped[0].body.len()), (201, 4_000));
    assert_eq!(
        (dropped[1].status, dropped[1].code(), dropped[1].is_replay()),
        (410, "response_not_stored".into(), true)
    );
    assert_eq!(
        (&problem(&dropped[1])["response_status"], dropped[1].header("location")),
        (&201.into(), Some("/charges/7"))
    );
    // This does not fit either.
    let nothing = run(10).await;
    assert_eq!((nothing[1].status, nothing[1].header("location")), (410, None));
}

/// The limit is DynamoDB's. Compressed, each of these would be a few kilobytes.
#[tokio::test(start_paused = true)]
async fn a_response_over_one_mebibyte_is_not_compressed_to_fit_the_store() {
    let kept = with_limit(399_000, &"a".repeat(1_000_000)).await;
    assert_eq!((kept[1].status, kept[1].body.len(), kept[1].is_replay()), (201, 1_000_000, true));
    let dropped = with_limit(399_000, &"a".repeat(2_000_000)).await;
    assert_eq!((dropped[0].status, dropped[0].body.len()), (201, 2_000_000));
    assert_eq!((dropped[1].status, dropped[1].code()), (410, "response_not_stored".to_owned()));
    assert_eq!(problem(&dropped[1])["response_status"], 201);
}

// Tests S5, P3.
#[tokio::test(start_paused = true)]
async fn of_a_response_that_is_discarded_the_status_alone_is_stored() {
    let key = Arc::new(Mutex::new(None));
    let note = Arc::clone(&key);
    let handler = move |_, request: Request<Full<Bytes>>| {
        *note.lock().unwrap() = request.extensions().get::<Claim>().map(Claim::key);
        made("12345")
    };
    let app = App::with(|engine| engine.results(Results::Discard), |layer| layer, handler);
    assert_eq!(app.post("k", "1").await.status, 201);
    let again = app.post("k", "1").await;
    assert_eq!((again.status, again.header("location"), again.is_replay()), (410, None, true));
    let problem = problem(&again);
    assert_eq!((&problem["response_status"], &problem["retryable"]), (&201.into(), &false.into()));
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("is done") && detail.contains("do not repeat"), "{detail}");
    let key = key.lock().unwrap().take().unwrap();
    let record = app.records.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap();
    let status = r#"{"status":410,"answered":201,"headers":[]}"#;
    assert_eq!(record.result, StoredResult::of(StoredData::Json(status.into())));
}

#[tokio::test(start_paused = true)]
async fn a_check_before_a_replay_can_also_withhold_the_location() {
    let check = |layer: IdempotencyKeyLayer| {
        layer.max_response(4).before_replay(|request, stored| {
            let is_suspended = request.headers.contains_key("x-suspended");
            assert_eq!(stored.status(), 201);
            assert_eq!(stored.headers()["location"], "/charges/7");
            let refusal = Response::builder().status(403).body("suspended".into()).unwrap();
            Box::pin(async move { if is_suspended { Err(refusal) } else { Ok(()) } })
        })
    };
    let app = App::with(|engine| engine, check, |_, _| made("12345"));
    assert_eq!(app.post("k", "1").await.status, 201);
    let mut suspended = request("k", "1");
    suspended.headers_mut().insert("x-suspended", "1".parse().unwrap());
    let refused = app.send(suspended).await;
    assert_eq!((refused.status, refused.header("location"), &refused.body[..]), (403, None, &b"suspended"[..]));
    let admitted = app.post("k", "1").await;
    assert_eq!((admitted.status, admitted.header("location"), admitted.is_replay()), (410, Some("/charges/7"), true));
}

#[tokio::test(start_paused = true)]
async fn a_check_before_a_replay_sees_whether_the_body_was_stored() {
    for (max, is_kept) in [(4, false), (5, true)] {
        let told = Arc::new(Mutex::new(None));
        let note = Arc::clone(&told);
        let check = move |layer: IdempotencyKeyLayer| {
            layer.max_response(max).before_replay(move |_, stored| {
                *note.lock().unwrap() = Some(stored.body().map(Bytes::len));
                Box::pin(async { Ok(()) })
            })
        };
        let app = App::with(|engine| engine, check, |_, _| made("12345"));
        app.post("k", "1").await;
        assert_eq!(app.post("k", "1").await.status, if is_kept { 201 } else { 410 });
        assert_eq!(*told.lock().unwrap(), Some(is_kept.then_some(5)));
    }
}

/// The length of the event that `lambda_http` makes of a response for an HTTP API.
async fn event_length(
    answer: Response<impl http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + Unpin + 'static>,
) -> usize {
    let answer = answer.into_response().await;
    let headers: Vec<_> =
        answer.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    let body = match answer.body() {
        Body::Text(text) => serde_json::to_string(text).unwrap().len(),
        Body::Binary(bytes) => bytes.len().div_ceil(3) * 4,
        _ => 0,
    };
    body + serde_json::to_string(&headers).unwrap().len()
}

type Headers = &'static [(&'static str, &'static str)];

/// The statuses of a first request and its retry, the lengths of their events, and whether the retry is a replay. The
/// response has these headers.
async fn twice(headers: Headers, body: &Bytes, is_in_lambda: bool) -> ([(u16, usize); 2], bool) {
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap();
    let body = body.clone();
    let handler = tower::service_fn(move |_: Request<Full<Bytes>>| {
        let answer = Response::builder().status(201);
        let answer = headers.iter().fold(answer, |answer, (name, value)| answer.header(*name, *value));
        let answer = answer.body(Full::new(body.clone())).unwrap();
        async move { Ok::<_, Infallible>(answer) }
    });
    let service = IdempotencyKeyLayer::new(once, Caller::shared()).layer(handler);
    let mut ends = [(0, 0); 2];
    let mut is_replay = false;
    for end in &mut ends {
        let request = request("k", "{}");
        let request = if is_in_lambda { in_lambda(request) } else { request };
        let answer = service.clone().oneshot(request).await.unwrap();
        is_replay = answer.headers().contains_key("idempotency-replayed") && answer.status() == 201;
        *end = (answer.status().as_u16(), event_length(answer).await);
    }
    (ends, is_replay)
}

#[tokio::test]
async fn in_lambda_a_response_too_large_once_encoded_is_not_replayed() {
    const BINARY: (&str, &str) = ("content-type", "application/octet-stream");
    const TEXT: (&str, &str) = ("content-type", "text/plain");
    let ascii = Bytes::from(vec![b'a'; 5 << 20]);
    let cases: [(Headers, Bytes, bool); 10] = [
        // 6,990,508 bytes in Base64.
        (&[BINARY], Bytes::from(vec![0xff; 5 << 20]), false),
        (&[BINARY], ascii.clone(), false),
        (&[BINARY], Bytes::from(vec![0xff; 4 << 20]), true),
        // Each quote is two characters in JSON, a control character six.
        (&[("content-type", "application/json")], Bytes::from(vec![b'"'; 4 << 20]), false),
        (&[TEXT], Bytes::from(vec![0x01; 2 << 20]), false),
        (&[("content-type", "application/problem+json; charset=utf-8")], ascii.clone(), true),
        (&[TEXT], Bytes::from("é".repeat(2_500_000)), true),
        // Without a type it is text, and in a content coding it is not.
        (&[], ascii.clone(), true),
        (&[TEXT, ("content-encoding", "br")], ascii.clone(), false),
        (&[BINARY, ("x-lambda-http-content-encoding", "text")], ascii, true),
    ];
    for (headers, body, fits) in cases {
        let ([first, retry], is_replay) = twice(headers, &body, true).await;
        assert_eq!((first.0, first.1 <= LAMBDA_TAKES), (201, fits), "the first client gets it: {headers:?}");
        assert!(retry.1 <= LAMBDA_TAKES, "{headers:?}: {} bytes", retry.1);
        assert_eq!((retry.0, is_replay), (if fits { 201 } else { 410 }, fits), "{headers:?}");
    }
    // Outside Lambda there is no such limit.
    let ([_, retry], is_replay) = twice(&[BINARY], &Bytes::from(vec![0xff; 5 << 20]), false).await;
    assert_eq!((retry.0, is_replay), (201, true));
}

/// A load balancer gets them as `headers` and as `multiValueHeaders`.
#[tokio::test]
async fn in_lambda_a_response_is_kept_only_if_its_headers_fit_twice() {
    const TEXT: (&str, &str) = ("content-type", "text/plain");
    let long: Headers = vec![TEXT, ("x-long", &*"a".repeat(150_000).leak())].leak();
    let many = (0..3_000).map(|number| (&*format!("x-{number:06}").leak(), "12345"));
    let many: Headers = many.chain([TEXT]).collect::<Vec<_>>().leak();
    // In JSON a control character takes six bytes, and each of the many headers 19 as text and 21 as an array.
    for (headers, controls, fits) in [(long, 990_000, true), (long, 1_000_000, false), (many, 1_030_000, false)] {
        let ([first, retry], is_replay) = twice(headers, &Bytes::from(vec![0x01; controls]), true).await;
        let expected = (201, if fits { 201 } else { 410 }, fits);
        assert_eq!((first.0, retry.0, is_replay), expected, "{} headers, {controls}", headers.len());
    }
}

#[tokio::test(start_paused = true)]
async fn where_large_responses_are_refused_small_ones_are_returned() {
    let app = App::with(|engine| engine, IdempotencyKeyLayer::reject_large_responses, |_, _| made("12345"));
    let got = app.post("k", "1").await;
    assert_eq!((got.status, &got.body[..]), (201, &b"12345"[..]));
}

#[tokio::test]
async fn in_lambda_a_response_too_large_once_encoded_can_be_refused() {
    let handler = |_, _| async { Response::new(Full::from(vec![0xff; 5 << 20])) };
    let app = App::with(|engine| engine, IdempotencyKeyLayer::reject_large_responses, handler);
    let got = app.send(in_lambda(request("k", "{}"))).await;
    assert_eq!((got.status, got.code()), (500, "response_too_large".to_owned()));
    let again = app.send(in_lambda(request("k", "{}"))).await;
    assert_eq!((again.status, &problem(&again)["response_status"], app.runs()), (410, &200.into(), 1));
}
