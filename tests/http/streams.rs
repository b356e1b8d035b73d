//! Responses that are passed on as they arrive.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, BodyDataStream},
    response::IntoResponse,
    routing::any,
};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use lambda_once::{
    Idempotency, MemoryStore,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer, InFlight, ResponseAction, StreamResponse},
    store::fault::{Call, Fault, FaultStore},
    telemetry::{EndEvent, Observer, OperationEvent},
};
use lambda_runtime::Context;
use tokio::{
    io::AsyncReadExt,
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, timeout},
};
use tower::ServiceExt;

use crate::{server::Server, setup::LAPSE, support::clock::TokioClock};

const SECOND: Duration = Duration::from_secs(1);

/// The handler's end of a body, which ends when this is dropped.
type Feed = UnboundedSender<Result<&'static str, io::Error>>;

fn fed() -> (Feed, Body) {
    let (feed, mut received) = unbounded_channel();
    (feed, Body::from_stream(stream::poll_fn(move |context| received.poll_recv(context))))
}

/// A service that gives these responses, one per run.
struct Streams {
    app: Router,
    store: FaultStore<MemoryStore>,
    clock: TokioClock,
    in_flight: InFlight,
    responses: Arc<Mutex<VecDeque<Response<Body>>>>,
}

impl Streams {
    fn new(set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> Self {
        Self::observed(|_: &OperationEvent<'_>| {}, set_up)
    }

    fn observed(observer: impl Observer, set_up: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer) -> Self {
        let clock = TokioClock::new();
        let store = FaultStore::new(MemoryStore::with_clock(clock.clone()), 1);
        let builder = Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").observer(observer);
        let layer = set_up(IdempotencyKeyLayer::new(builder.build().unwrap(), Caller::shared()));
        let in_flight = layer.in_flight();
        let responses = Arc::<Mutex<VecDeque<_>>>::default();
        let next = Arc::clone(&responses);
        let handler = move || {
            let response = next.lock().unwrap().pop_front();
            async move { response.expect("a run that the test expects") }
        };
        let app = Router::new().route("/charges", any(handler)).route_layer(layer);
        Self { app, store, clock, in_flight, responses }
    }

    /// The next run gives this response.
    fn gives(&self, response: impl IntoResponse) {
        self.responses.lock().unwrap().push_back(response.into_response());
    }

    fn gives_events(&self) -> Feed {
        let (feed, body) = fed();
        self.gives(([(header::CONTENT_TYPE, "text/event-stream")], body));
        feed
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.app.clone().oneshot(request).await.unwrap().map(Body::new)
    }

    async fn post(&self) -> Response<Body> {
        self.send(request("k")).await
    }

    /// Returns the status and the code of a request without a stream.
    async fn retry(&self) -> (u16, String) {
        let response = self.post().await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        (status, problem["code"].as_str().unwrap_or_default().to_owned())
    }
}

fn request(key: &str) -> Request<Body> {
    Request::post("/charges").header("idempotency-key", key).body(Body::empty()).unwrap()
}

fn in_progress() -> (u16, String) {
    (409, "in_progress".to_owned())
}

fn not_stored() -> (u16, String) {
    (410, "response_not_stored".to_owned())
}

/// Returns the next frame of a body, which is available immediately.
async fn next(body: &mut BodyDataStream) -> Option<Result<Bytes, axum::Error>> {
    timeout(SECOND, body.next()).await.expect("it does not wait for the handler")
}

fn stays(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer
}

/// Both ways to run a stream: in its own task, as outside Lambda, and driven by the body, as in Lambda.
const MODES: [fn(IdempotencyKeyLayer) -> IdempotencyKeyLayer; 2] = [stays, |layer| layer.run_to_completion(false)];

#[tokio::test(start_paused = true)]
async fn events_reach_their_client_as_they_come_and_are_done_at_their_end() {
    for mode in MODES {
        let service = Streams::new(mode);
        let feed = service.gives_events();
        let response = timeout(SECOND, service.post()).await.expect("the head does not wait for the body");
        assert_eq!((response.status(), response.headers().get("idempotency-replayed")), (StatusCode::OK, None));
        let mut body = response.into_body().into_data_stream();
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            feed.send(Ok(event)).unwrap();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), event);
            assert_eq!(service.retry().await, in_progress());
        }
        // The client sees the end after the outcome is recorded.
        service.store.next(Call::Settle, Fault::Throttled);
        drop(feed);
        assert!(body.next().await.is_none());
        let again = service.post().await;
        assert_eq!(
            (again.status(), &again.headers()["idempotency-replayed"]),
            (StatusCode::GONE, &"true".parse().unwrap())
        );
        let problem: serde_json::Value =
            serde_json::from_slice(&again.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert_eq!((&problem["code"], &problem["response_status"]), (&"response_not_stored".into(), &200.into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_is_streamed_if_it_is_marked_and_buffered_otherwise() {
    for (content_type, is_marked, is_streamed) in [
        ("application/x-ndjson", true, true),
        ("application/x-ndjson", false, false),
        ("Text/Event-Stream; charset=utf-8", false, true),
        ("text/event-stream-of-another-kind", false, false),
    ] {
        let service = Streams::new(stays);
        let (feed, body) = fed();
        let mut response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
        if is_marked {
            response.extensions_mut().insert(StreamResponse);
        }
        service.gives(response);
        feed.send(Ok("1")).unwrap();
        let response = timeout(SECOND, service.post()).await;
        assert_eq!(response.is_ok(), is_streamed, "{content_type}");
        drop(feed);
        drop(response);
        service.in_flight.drain().await;
        let expected = if is_streamed { not_stored() } else { (200, String::new()) };
        assert_eq!(service.retry().await, expected, "{content_type}");
    }
    let service = Streams::new(stays);
    service.gives((Extension(StreamResponse), "complete"));
    assert_eq!(service.retry().await.0, 200);
    assert_eq!(service.retry().await, not_stored(), "also if it is complete at once");
}

#[tokio::test(start_paused = true)]
async fn a_released_response_is_not_waited_for_and_frees_its_key_at_its_end() {
    for mode in MODES {
        let service = Streams::new(mode);
        let (feed, body) = fed();
        service.gives((StatusCode::SERVICE_UNAVAILABLE, body));
        feed.send(Ok("try ")).unwrap();
        let response = timeout(SECOND, service.post()).await.expect("it is not buffered");
        let mut body = response.into_body().into_data_stream();
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "try ");
        assert_eq!(service.retry().await, in_progress());
        feed.send(Ok("again")).unwrap();
        drop(feed);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), "again");
        assert!(next(&mut body).await.is_none());
        service.gives(StatusCode::CREATED);
        assert_eq!(service.retry().await.0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_off_fails_at_its_client_after_its_key_is_settled() {
    for mode in MODES {
        for (status, is_free) in [(StatusCode::OK, false), (StatusCode::SERVICE_UNAVAILABLE, true)] {
            let service = Streams::new(mode);
            let (feed, body) = fed();
            service.gives((status, [(header::CONTENT_TYPE, "text/event-stream")], body));
            let mut body = service.post().await.into_body().into_data_stream();
            feed.send(Err(io::Error::other("no more of it"))).unwrap();
            let error = next(&mut body).await.unwrap().unwrap_err();
            assert!(format!("{error:?}").contains("no more of it"), "{error:?}");
            assert!(next(&mut body).await.is_none());
            if !is_free {
                assert_eq!(service.retry().await, in_progress());
                tokio::time::advance(LAPSE).await;
            }
            service.gives(StatusCode::CREATED);
            assert_eq!(service.retry().await.0, 201, "{status}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_whose_client_leaves_is_read_to_its_end_in_its_own_task() {
    let service = Streams::new(stays);
    let feed = service.gives_events();
    let mut body = service.post().await.into_body().into_data_stream();
    feed.send(Ok("data: 1\n\n")).unwrap();
    assert!(next(&mut body).await.is_some());
    drop(body);
    for _ in 0..9 {
        feed.send(Ok("data: 2\n\n")).unwrap();
    }
    assert_eq!(service.retry().await, in_progress());
    drop(feed);
    service.in_flight.drain().await;
    assert_eq!(service.retry().await, not_stored());

    let service = Streams::new(MODES[1]);
    let feed = service.gives_events();
    let response = service.post().await;
    drop(response);
    assert!(feed.is_closed(), "the handler's body is dropped");
    assert_eq!(service.retry().await, in_progress());
    tokio::time::advance(LAPSE).await;
    service.gives(StatusCode::CREATED);
    assert_eq!(service.retry().await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_stream_longer_than_its_lease_keeps_its_key() {
    for mode in MODES {
        let service = Streams::new(mode);
        let feed = service.gives_events();
        let mut body = service.post().await.into_body().into_data_stream();
        let later = async {
            tokio::time::sleep(100 * SECOND).await;
            assert_eq!(service.retry().await, in_progress());
            drop(feed);
        };
        let (end, ()) = tokio::join!(body.next(), later);
        assert!(end.is_none(), "{end:?}");
        assert_eq!(service.retry().await, not_stored());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_cancelled_at_its_maximum_duration_or_before_a_deadline() {
    for (heartbeat, deadline) in [(Some(100), None), (None, Some(100))] {
        let service = Streams::new(|layer| match heartbeat {
            Some(seconds) => layer.heartbeat(Duration::from_secs(seconds)),
            None => layer,
        });
        let feed = service.gives_events();
        let mut sent = request("k");
        if let Some(seconds) = deadline {
            let mut context = Context::default();
            context.deadline = service.clock.now().after(Duration::from_secs(seconds)).as_millis();
            sent.extensions_mut().insert(context);
        }
        let began = Instant::now();
        let mut body = service.send(sent).await.into_body().into_data_stream();
        let cut = body.next().await.unwrap();
        assert!(cut.is_err(), "it must not look complete");
        assert!((95..=100).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert!(body.next().await.is_none() && feed.is_closed());
        assert_eq!(service.retry().await, in_progress());
        tokio::time::advance(LAPSE).await;
        service.gives(StatusCode::CREATED);
        assert_eq!(service.retry().await.0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_as_a_handler_until_its_end() {
    let service = Streams::new(|layer| layer.max_in_flight(1));
    let feed = service.gives_events();
    let body = service.post().await.into_body();
    assert_eq!(service.send(request("other")).await.status(), 503);
    drop(feed);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "");
    service.gives(StatusCode::CREATED);
    assert_eq!(service.send(request("other")).await.status(), 201);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_grpc_in_the_trailers_of_a_stream_keeps_its_key() {
    for (status, expected) in [("0", not_stored()), ("13", in_progress())] {
        let service = Streams::new(stays);
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), status.parse().unwrap())]);
        let frames = [Frame::data(Bytes::from("message")), Frame::trailers(trailers.clone())];
        let body = Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, io::Error>))));
        service.gives(([(header::CONTENT_TYPE, "application/grpc")], Extension(StreamResponse), body));
        let body = service.post().await.into_body().collect().await.unwrap();
        assert_eq!(body.trailers(), Some(&trailers));
        assert_eq!(service.retry().await, expected);
    }
}

/// A server takes trailers for the end, and drops the body.
#[tokio::test(start_paused = true)]
async fn trailers_reach_their_client_after_the_outcome_is_recorded() {
    for mode in MODES {
        let service = Streams::new(mode);
        let trailers = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
        let frames = [Frame::data(Bytes::from("message")), Frame::trailers(trailers.clone())];
        let body = Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, io::Error>))));
        service.gives(([(header::CONTENT_TYPE, "application/grpc")], Extension(StreamResponse), body));
        service.store.next(Call::Settle, Fault::Throttled);
        let mut body = service.post().await.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "message");
        assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap(), trailers);
        drop(body);
        assert_eq!(service.retry().await, not_stored());
    }
}

/// A server to which the length is known drops the body after so many bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_known_length_is_recorded_before_its_client_sees_the_end() {
    for mode in MODES {
        let service = Streams::new(mode);
        service.gives((Extension(StreamResponse), [(header::CONTENT_LENGTH, "7")], "charged"));
        service.store.next(Call::Settle, Fault::Throttled);
        let server = Server::start(service.app.clone()).await;
        let mut client = server.begin("k", "connection: close\r\ncontent-length: 0\r\n", "").await;
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        let text = String::from_utf8(read).unwrap();
        assert!(!text.contains("content-length") && text.ends_with("charged\r\n0\r\n\r\n"), "{text}");
        assert_eq!(service.retry().await, not_stored());
    }
}

/// A server does not read their bodies, and drops them.
#[tokio::test(start_paused = true)]
async fn a_response_that_has_no_body_is_no_stream() {
    let head = (Method::HEAD, StatusCode::OK);
    for (method, status) in [head, (Method::POST, StatusCode::NO_CONTENT), (Method::POST, StatusCode::NOT_MODIFIED)] {
        for mode in MODES {
            let service = Streams::new(|layer| mode(layer.methods([Method::POST, Method::HEAD])));
            service.gives((status, [(header::CONTENT_TYPE, "text/event-stream")]));
            service.store.next(Call::Settle, Fault::Throttled);
            let request = || Request::builder().method(&method).uri("/charges").header("idempotency-key", "k");
            for is_replay in [false, true] {
                let response = service.send(request().body(Body::empty()).unwrap()).await;
                let (found, headers) = (response.status(), response.headers());
                assert_eq!((found, headers.contains_key("idempotency-replayed")), (status, is_replay), "{method}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_to_keep_holds_the_key_after_the_end() {
    let service = Streams::new(stays);
    service.gives((Extension(StreamResponse), Extension(ResponseAction::Keep), "partly"));
    assert_eq!(service.retry().await.0, 200);
    assert_eq!(service.retry().await, in_progress());
}

/// The events that observers get, in order.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Observer for Recorder {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        self.0.lock().unwrap().push(event.outcome_name().to_owned());
    }

    fn on_end(&self, event: &EndEvent<'_>) {
        self.0.lock().unwrap().push(format!("end of {}", event.operations));
    }
}

#[tokio::test(start_paused = true)]
async fn observers_are_called_when_a_stream_ends() {
    for mode in MODES {
        let recorder = Recorder::default();
        let service = Streams::observed(recorder.clone(), mode);
        let feed = service.gives_events();
        let body = service.post().await.into_body();
        assert!(recorder.0.lock().unwrap().is_empty());
        drop(feed);
        body.collect().await.unwrap();
        assert_eq!(*recorder.0.lock().unwrap(), ["executed", "end of 1"]);
    }
}

/// The observed time of the handler, and the rest of a lease of 30 seconds.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_handler_includes_the_body_of_its_response() {
    for mode in MODES {
        for content_type in ["application/json", "text/event-stream"] {
            let times = Arc::<Mutex<Vec<_>>>::default();
            let noted = Arc::clone(&times);
            let observer = move |event: &OperationEvent<'_>| {
                noted.lock().unwrap().push((event.handler_time, event.lease_remaining));
            };
            let service = Streams::observed(observer, mode);
            let (feed, body) = fed();
            service.gives(([(header::CONTENT_TYPE, content_type)], body));
            let later = async {
                tokio::time::sleep(5 * SECOND).await;
                drop(feed);
            };
            let read = async { service.post().await.into_body().collect().await.unwrap().to_bytes() };
            assert_eq!(tokio::join!(read, later).0, "");
            assert_eq!(*times.lock().unwrap(), [(Some(5 * SECOND), Some(25 * SECOND))], "{content_type}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_network_a_broken_stream_is_no_complete_response() {
    for is_broken in [false, true] {
        let service = Streams::new(stays);
        let feed = service.gives_events();
        let server = Server::start(service.app.clone()).await;
        let mut client = server.begin("k", "connection: close\r\ncontent-length: 0\r\n", "").await;
        let mut read = Vec::new();
        for event in ["data: first\n\n", "data: second\n\n"] {
            feed.send(Ok(event)).unwrap();
            while !String::from_utf8_lossy(&read).contains(event.trim_end()) {
                read.push(client.read_u8().await.unwrap());
            }
        }
        if is_broken {
            feed.send(Err(io::Error::other("broken"))).unwrap();
        }
        drop(feed);
        client.read_to_end(&mut read).await.ok();
        let text = String::from_utf8(read).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        assert_eq!(text.ends_with("\r\n0\r\n\r\n"), !is_broken, "{text}");
    }
}

/// Never polled again after the head, so the claim is neither lost nor found before its lease ends.
#[tokio::test(start_paused = true)]
async fn a_stream_that_nobody_reads_loses_its_key_with_its_lease() {
    let service = Streams::new(MODES[1]);
    let feed = service.gives_events();
    let mut body = service.post().await.into_body().into_data_stream();
    tokio::time::advance(LAPSE).await;
    service.gives(StatusCode::CREATED);
    assert_eq!(service.retry().await.0, 201, "it is taken over");
    feed.send(Ok("late")).unwrap();
    drop(feed);
    assert!(body.next().now_or_never().is_none_or(|frame| frame.unwrap().is_err()), "it must not look complete");
}
