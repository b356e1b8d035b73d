//! Retries that encode the same operation differently, from real clients and in events of API Gateway.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    routing::post,
};
use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use flate2::{Compression, write::GzEncoder};
use http::Request;
use http_body_util::Full;
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use serde_json::Value;
use tower::ServiceExt;
use tower_http::decompression::RequestDecompressionLayer;

use crate::{
    callers::Shape,
    server::{Server, created},
    setup::{Got, engine},
};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(engine(), Caller::shared())
}

/// Routes whose handler responds with the number of its run.
fn routes() -> Router {
    let runs = Arc::<AtomicUsize>::default();
    let charge = move || async move { created(runs.fetch_add(1, Ordering::SeqCst) + 1) };
    Router::new().route("/{*path}", post(charge))
}

async fn send(server: &Server, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Got {
    let request = Request::post(path).header("idempotency-key", "k");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    server.send(request.body(Full::from(body.into())).unwrap()).await
}

fn is_first(got: &Got) -> bool {
    (got.status, got.is_replay()) == (201, false)
}

/// A form, as a browser sends it.
fn multipart(boundary: &str, amount: &str) -> String {
    let field = |name: &str, rest: &str, value: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{rest}\r\n\r\n{value}\r\n")
    };
    let amount = field("amount", "", amount);
    let receipt = field("receipt", "; filename=\"a.txt\"\r\nContent-Type: text/plain", "--\r\n--x\r\n");
    format!("{amount}{receipt}--{boundary}--\r\n")
}

fn multipart_type(boundary: &str) -> String {
    format!("multipart/form-data; boundary={boundary}")
}

#[tokio::test]
async fn a_multipart_form_with_a_new_boundary_is_a_retry() {
    const FIRST: &str = "----WebKitFormBoundary7MA4YWxkTrZu0gW";
    let server = Server::start(routes().route_layer(layer())).await;
    let to = |boundary: &'static str, body: String| {
        let server = &server;
        async move { send(server, "/charges", &[("content-type", &multipart_type(boundary))], body).await }
    };
    assert!(is_first(&to(FIRST, multipart(FIRST, "1")).await));
    for boundary in ["----WebKitFormBoundaryAbCdEfGhIjKlMnOp", "----geckoformboundary8b1d2c", "\"a b=c\""] {
        let got = to(boundary, multipart(boundary.trim_matches('"'), "1")).await;
        assert!(got.is_replay(), "{boundary}: {got:?}");
        let other = to(boundary, multipart(boundary.trim_matches('"'), "2")).await;
        assert_eq!((other.status, other.code()), (422, "key_reused".to_owned()), "{boundary}");
    }
    server.shut_down().await;
}

#[tokio::test]
async fn a_torn_multipart_form_is_compared_byte_by_byte() {
    let server = Server::start(routes().route_layer(layer())).await;
    let torn = |boundary: &str| multipart(boundary, "1").replace(&format!("--{boundary}--\r\n"), "");
    let first = send(&server, "/charges", &[("content-type", &multipart_type("one"))], torn("one")).await;
    assert!(is_first(&first));
    assert!(send(&server, "/charges", &[("content-type", &multipart_type("one"))], torn("one")).await.is_replay());
    let other = send(&server, "/charges", &[("content-type", &multipart_type("two"))], torn("two")).await;
    assert_eq!(other.code(), "key_reused");
    server.shut_down().await;
}

#[tokio::test]
async fn in_events_a_multipart_form_with_a_new_boundary_is_a_retry() {
    for shape in [Shape::RestNone, Shape::HttpNone] {
        let app = routes().route_layer(layer());
        let mut got = Vec::new();
        for (boundary, amount) in [("one", "1"), ("two", "1"), ("two", "2")] {
            let mut event = shape.event("", "k", &BASE64.encode(multipart(boundary, amount)));
            event["isBase64Encoded"] = true.into();
            let content_type = Value::from(multipart_type(boundary));
            for headers in ["headers", "multiValueHeaders"] {
                if let Some(headers) = event[headers].as_object_mut() {
                    headers.retain(|name, _| !name.eq_ignore_ascii_case("content-type"));
                }
            }
            event["headers"]["content-type"] = content_type.clone();
            if event["multiValueHeaders"].is_object() {
                event["multiValueHeaders"]["content-type"] = vec![content_type].into();
            }
            let (parts, body) = lambda_http::request::from_str(&event.to_string()).unwrap().into_parts();
            let request = Request::from_parts(parts, Body::from(body.to_vec()));
            let answer = app.clone().oneshot(request).await.unwrap();
            got.push((answer.status().as_u16(), answer.headers().contains_key("idempotency-replayed")));
        }
        assert_eq!(got, [(201, false), (201, true), (422, false)], "{shape:?}");
    }
}

#[tokio::test]
async fn a_form_whose_fields_come_in_another_order_is_a_retry() {
    const FORM: &[(&str, &str)] = &[("content-type", "application/x-www-form-urlencoded")];
    let server = Server::start(routes().route_layer(layer())).await;
    assert!(is_first(&send(&server, "/charges", FORM, "amount=1&items[]=a&items[]=b&to=caf%C3%A9").await));
    assert!(send(&server, "/charges", FORM, "to=caf%c3%a9&items%5B%5D=a&amount=1&items%5b%5d=b").await.is_replay());
    for other in ["amount=1&items[]=b&items[]=a&to=caf%C3%A9", "amount=2&items[]=a&items[]=b&to=caf%C3%A9"] {
        assert_eq!(send(&server, "/charges", FORM, other).await.code(), "key_reused", "{other}");
    }
    server.shut_down().await;
}

#[tokio::test]
async fn an_escape_that_is_spelled_otherwise_is_the_same_path() {
    let server = Server::start(routes().route_layer(layer())).await;
    assert!(is_first(&send(&server, "/~alice/caf%C3%A9/a%2Fb?q=%7E", &[], "").await));
    assert!(send(&server, "/%7Ealice/caf%c3%a9/a%2fb?q=~", &[], "").await.is_replay());
    for other in ["/~alice/caf%C3%A9/a/b?q=~", "/~alice/cafe/a%2Fb?q=~", "/~alice/caf%C3%A9/a%252Fb?q=~"] {
        assert_eq!(send(&server, other, &[], "").await.code(), "key_reused", "{other}");
    }
    server.shut_down().await;
}

fn gzipped(body: &str, level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(body.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn outside_the_layer_decompression_makes_one_request_of_all_encodings() {
    let body = format!("{{\"note\":\"{}\"}}", "abc".repeat(500));
    let app = routes().route_layer(layer()).layer(RequestDecompressionLayer::new());
    let server = Server::start(app).await;
    let json = ("content-type", "application/json");
    let gzip = [json, ("content-encoding", "gzip")];
    let (fast, best) = (gzipped(&body, 1), gzipped(&body, 9));
    assert_ne!(fast, best);
    assert!(is_first(&send(&server, "/charges", &gzip, fast).await));
    assert!(send(&server, "/charges", &gzip, best).await.is_replay());
    assert!(send(&server, "/charges", &[json], body.clone()).await.is_replay());
    assert_eq!(send(&server, "/charges", &gzip, gzipped("{}", 9)).await.code(), "key_reused");
    server.shut_down().await;
}

#[tokio::test]
async fn outside_the_layer_decompression_leaves_the_limit_to_the_layer() {
    let app = routes().route_layer(layer().max_body(1_000)).layer(RequestDecompressionLayer::new());
    let server = Server::start(app).await;
    let zeros = gzipped(&"0".repeat(1_000_000), 9);
    assert!(zeros.len() < 1_000 * 2);
    let got = send(&server, "/charges", &[("content-encoding", "gzip")], zeros).await;
    assert_eq!((got.status, got.code()), (413, "body_too_large".to_owned()));
    server.shut_down().await;
}

/// The wrong order, against which docs/http.md warns.
#[tokio::test]
async fn within_the_layer_decompression_comes_too_late_for_a_retry() {
    let server = Server::start(routes().route_layer(RequestDecompressionLayer::new()).route_layer(layer())).await;
    let gzip = [("content-encoding", "gzip")];
    assert!(is_first(&send(&server, "/charges", &gzip, gzipped("{}", 9)).await));
    assert_eq!(send(&server, "/charges", &[], "{}").await.code(), "key_reused");
    server.shut_down().await;
}
