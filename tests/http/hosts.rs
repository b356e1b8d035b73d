//! The host of a request, which is never compared, and is part of the scope if hosts are tenants.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, routing::post};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    callers::{Shape, answered},
    server::{Server, created},
    setup::engine,
};

/// A server whose handler responds 201.
async fn start(scope: Caller) -> Server {
    let runs = Arc::<AtomicUsize>::default();
    let charge = move || async move { created(runs.fetch_add(1, Ordering::SeqCst) + 1) };
    // Nested, so that the handler's URI is not the client's.
    let routes = Router::new().route("/charges", post(charge)).route_layer(IdempotencyKeyLayer::new(engine(), scope));
    Server::start(Router::new().nest("/v1", routes)).await
}

/// The status of a response, and whether it is a replay.
type Told = (u16, bool);

const FIRST: Told = (201, false);
const REPLAY: Told = (201, true);
const REFUSED: Told = (403, false);

/// Sends a request over HTTP/1.1 with this target and these header lines.
async fn http_1(server: &Server, target: &str, headers: &str) -> Told {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "POST {target} HTTP/1.1\r\n{headers}idempotency-key: k\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    (status, response.contains("idempotency-replayed: true"))
}

async fn to_host(server: &Server, host: &str) -> Told {
    http_1(server, "/v1/charges", &format!("host: {host}\r\n")).await
}

/// Sends a request over HTTP/2 with this authority.
async fn http_2(server: &Server, authority: &str, host: Option<&str>) -> Told {
    let stream = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://{authority}/v1/charges")).header("idempotency-key", "k");
    let request = host.into_iter().fold(request, |request, host| request.header("host", host));
    let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    let told = (response.status().as_u16(), response.headers().contains_key("idempotency-replayed"));
    drop((sender, response));
    connection.await.unwrap().unwrap();
    told
}

#[tokio::test]
async fn a_retry_by_another_domain_is_a_retry() {
    let server = start(Caller::shared()).await;
    assert_eq!(to_host(&server, "blue.example.com").await, FIRST);
    assert_eq!(to_host(&server, "green.example.com:8443").await, REPLAY);
    assert_eq!(http_1(&server, "http://red.example.com/v1/charges", "host: x\r\n").await, REPLAY);
    assert_eq!(http_2(&server, "green.example.com", None).await, REPLAY);
    server.shut_down().await;
}

#[tokio::test]
async fn where_hosts_are_tenants_one_key_is_an_operation_of_each() {
    let server = start(Caller::shared().per_host()).await;
    for host in [
        "acme.example.com",
        "globex.example.com",
        "acme.example.com:8080",
        "acme.example.com..",
        "[::1]",
        "[::1]:8080",
        "8",
        "8:88",
    ] {
        assert_eq!(to_host(&server, host).await, FIRST, "{host}");
        assert_eq!(to_host(&server, host).await, REPLAY, "{host}");
    }
    server.shut_down().await;
}

#[tokio::test]
async fn a_host_is_one_in_every_spelling_and_every_version_of_http() {
    let server = start(Caller::shared().per_host()).await;
    assert_eq!(to_host(&server, "acme.example.com").await, FIRST);
    for same in [
        "ACME.Example.com",
        "acme.example.com:443",
        "acme.example.com:80",
        "acme.example.com:",
        "acme.example.com.",
        "Acme.example.com.:443",
    ] {
        assert_eq!(to_host(&server, same).await, REPLAY, "{same}");
    }
    assert_eq!(http_2(&server, "acme.example.com", None).await, REPLAY);
    assert_eq!(http_2(&server, "acme.example.com.", None).await, REPLAY);
    assert_eq!(http_2(&server, "ACME.example.com:80", None).await, REPLAY);
    assert_eq!(http_2(&server, "globex.example.com", None).await, FIRST);
    assert_eq!(to_host(&server, "globex.example.com").await, REPLAY);
    server.shut_down().await;
}

#[tokio::test]
async fn the_authority_of_a_request_wins_over_its_host_header() {
    let server = start(Caller::shared().per_host()).await;
    assert_eq!(to_host(&server, "acme.example.com").await, FIRST);
    let absolute = "http://acme.example.com/v1/charges";
    assert_eq!(http_1(&server, absolute, "host: globex.example.com\r\n").await, REPLAY);
    assert_eq!(http_2(&server, "acme.example.com", Some("globex.example.com")).await, REPLAY);
    assert_eq!(to_host(&server, "globex.example.com").await, FIRST);
    server.shut_down().await;
}

#[tokio::test]
async fn where_hosts_are_tenants_a_request_without_one_is_refused() {
    let server = start(Caller::shared().per_host()).await;
    assert_eq!(to_host(&server, "acme.example.com").await, FIRST);
    for headers in [
        "",
        "host:\r\n",
        "host: acme.example.com\r\nhost: globex.example.com\r\n",
        "host: globex.example.com@acme.example.com\r\n",
        "host: acme.example.com:port\r\n",
        "host: acme.example.com:acme.example.com\r\n",
        "host: acme.example.com:99999\r\n",
        "host: acme example com\r\n",
        "host: :80\r\n",
        "host: .\r\n",
        "host: .:80\r\n",
    ] {
        assert_eq!(http_1(&server, "/v1/charges", headers).await, REFUSED, "{headers:?}");
    }
    server.shut_down().await;
}

#[tokio::test]
async fn callers_are_kept_apart_on_each_host() {
    let caller = http::HeaderName::from_static("x-caller");
    let server = start(Caller::header(caller).or_anonymous().per_host()).await;
    let headers = |host: &str, caller: &str| format!("host: {host}\r\n{caller}");
    for host in ["a.example.com", "b.example.com"] {
        for caller in ["x-caller: alice\r\n", "x-caller: bob\r\n", ""] {
            let headers = headers(host, caller);
            assert_eq!(http_1(&server, "/v1/charges", &headers).await, FIRST, "{headers}");
            assert_eq!(http_1(&server, "/v1/charges", &headers).await, REPLAY, "{headers}");
        }
    }
    server.shut_down().await;
}

#[tokio::test]
async fn in_events_where_hosts_are_tenants_one_key_is_an_operation_of_each() {
    for shape in [Shape::RestNone, Shape::HttpNone, Shape::UrlNone] {
        let once = engine();
        let mut got = Vec::new();
        for host in ["acme.example.com", "globex.example.com", "ACME.example.com"] {
            let mut event = shape.event("", "k", "{}");
            for headers in ["headers", "multiValueHeaders"] {
                if let Some(headers) = event[headers].as_object_mut() {
                    headers.retain(|name, _| !name.eq_ignore_ascii_case("host"));
                }
            }
            event["headers"]["host"] = host.into();
            if event["multiValueHeaders"].is_object() {
                event["multiValueHeaders"]["host"] = vec![host].into();
            }
            let scope = Caller::authorizer().or_anonymous().per_host();
            let (status, _, is_replay) = answered(&once, scope, &event, String::new()).await;
            got.push((status, is_replay));
        }
        assert_eq!(got, [(200, false), (200, false), (200, true)], "{shape:?}");
    }
}
