//! Logs and observers of refused requests. Every refusal is reported, and none floods the log.

use std::{
    future,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderName, Request, Response, StatusCode};
use lambda_once::{
    Builder, ErrorKind, Idempotency, Key, MemoryStore, OutcomeKind,
    http::{Caller, IdempotencyKeyLayer},
    telemetry::{EndEvent, Observer, OperationEvent},
};
use tower::ServiceExt;
use tracing::Level;

use crate::support::collector::{Collector, Line};

type Outcome = Result<OutcomeKind, ErrorKind>;

/// The events that observers get: each outcome, whether it has a key, and the number of a request's operations at its end.
#[derive(Clone, Default)]
struct Recorder {
    outcomes: Arc<Mutex<Vec<(Outcome, bool)>>>,
    ends: Arc<Mutex<Vec<usize>>>,
}

impl Observer for Recorder {
    fn on_operation(&self, event: &OperationEvent<'_>) {
        self.outcomes.lock().unwrap().push((event.outcome, event.key.is_some()));
    }

    fn on_end(&self, event: &EndEvent<'_>) {
        self.ends.lock().unwrap().push(event.operations);
    }
}

impl Recorder {
    fn take(&self) -> Vec<(Outcome, bool)> {
        std::mem::take(&mut *self.outcomes.lock().unwrap())
    }
}

fn engine(recorder: &Recorder, set_up: impl FnOnce(Builder) -> Builder) -> Idempotency {
    let builder = Idempotency::builder(MemoryStore::new()).scope("tests").observer(recorder.clone());
    set_up(builder).build().unwrap()
}

fn by_header() -> Caller {
    Caller::header(HeaderName::from_static("x-caller"))
}

/// A route whose handler ends immediately, unless the request makes it hang.
fn route(layer: IdempotencyKeyLayer) -> Router {
    let handler = |request: Request<Body>| async move {
        if request.headers().contains_key("x-hang") {
            future::pending::<()>().await;
        }
        StatusCode::CREATED
    };
    Router::new().route("/charges", post(handler)).route_layer(layer)
}

/// A request with a key and a caller.
fn request(body: impl Into<Body>) -> Request<Body> {
    let request =
        Request::post("/charges").header("idempotency-key", "key-8e03978e").header("x-caller", "caller-alice");
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

fn without(name: &str, mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().remove(name);
    request
}

/// The status of a response, and the code of a refusal.
async fn sent(app: &Router, request: Request<Body>) -> (u16, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    (status, problem["code"].as_str().unwrap_or_default().to_owned())
}

/// Sends a request, and returns the status and the code with the lines that are logged meanwhile.
async fn logged(app: &Router, request: Request<Body>) -> (u16, String, Vec<Line>) {
    let (collector, guard) = Collector::install();
    let (status, code) = sent(app, request).await;
    drop(guard);
    let lines = collector.lines();
    let text = format!("{lines:?}");
    assert!(["8e03978e", "alice", "secret"].iter().all(|plain| !text.contains(plain)), "{text}");
    (status, code, lines)
}

/// A request that is refused, and its log lines and events.
struct Case {
    set_up: fn(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    request: fn() -> Request<Body>,
    refusal: (u16, &'static str),
    logged: (Level, &'static str),
    told: Outcome,
}

fn same(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer
}

fn whole() -> Request<Body> {
    request("{\"card\": \"secret\"}")
}

#[tokio::test(start_paused = true)]
async fn each_refusal_is_one_line_and_one_event_without_key_caller_and_body() {
    use ErrorKind::{Caller, Config, Decode, KeyMissing, Order, Payload};
    let cases = [
        Case {
            set_up: same,
            request: || without("x-caller", whole()),
            refusal: (403, "caller_unknown"),
            logged: (Level::WARN, "caller_unknown"),
            told: Err(Caller),
        },
        Case {
            set_up: same,
            request: || without("idempotency-key", whole()),
            refusal: (400, "key_missing"),
            logged: (Level::WARN, "key_missing"),
            told: Err(KeyMissing),
        },
        Case {
            set_up: |layer| layer.key(Key::pointer("/id")),
            request: whole,
            refusal: (400, "key_missing"),
            logged: (Level::WARN, "key_missing"),
            told: Err(KeyMissing),
        },
        Case {
            set_up: same,
            request: || {
                let mut twice = whole();
                twice.headers_mut().append("idempotency-key", "secret".parse().unwrap());
                twice
            },
            refusal: (400, "key_malformed"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: |layer| layer.max_body(4),
            request: whole,
            refusal: (413, "body_too_large"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: same,
            request: || request(Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>())),
            refusal: (408, "body_timed_out"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: same,
            request: || request(Body::from_stream(stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]))),
            refusal: (400, "body_broken"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: |layer| layer.key(Key::pointer("/id")),
            request: || request("no JSON"),
            refusal: (400, "body_rejected"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: |layer| layer.fingerprint(|_, _| Err("of another kind".into())),
            request: whole,
            refusal: (400, "body_rejected"),
            logged: (Level::INFO, "invalid_payload"),
            told: Err(Payload),
        },
        Case {
            set_up: |layer| layer.ordered_by(Key::pointer("/card"), Key::pointer("/version")),
            request: whole,
            refusal: (400, "order_missing"),
            logged: (Level::INFO, "invalid_order"),
            told: Err(Order),
        },
        Case {
            set_up: |layer| layer.max_in_flight(0),
            request: whole,
            refusal: (500, "misconfigured"),
            logged: (Level::ERROR, "config"),
            told: Err(Config),
        },
        Case {
            set_up: |layer| layer.applies_to(|_| panic!("in a hook")),
            request: whole,
            refusal: (500, "hook_failed"),
            logged: (Level::ERROR, ""),
            told: Err(Decode),
        },
    ];
    for Case { set_up, request, refusal, logged: (level, outcome), told } in cases {
        let recorder = Recorder::default();
        let app = route(set_up(IdempotencyKeyLayer::new(engine(&recorder, |engine| engine), by_header())));
        let (status, code, lines) = logged(&app, request()).await;
        assert_eq!((status, &*code), refusal);
        assert_eq!(lines.len(), 1, "{code}: {lines:?}");
        let line = &lines[0];
        assert_eq!((line.level, line.get("outcome"), line.get("operation")), (level, outcome, "http"), "{line:?}");
        assert_eq!(line.get("code"), if level == Level::ERROR { "" } else { &code }, "{line:?}");
        assert_eq!(recorder.take(), [(told, false)], "{code}");
        assert_eq!(*recorder.ends.lock().unwrap(), [1], "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_body_is_logged_without_the_text_of_the_hooks_error() {
    let recorder = Recorder::default();
    let layer = IdempotencyKeyLayer::new(engine(&recorder, |engine| engine), by_header());
    let app = route(layer.fingerprint(|_, _| Err("invalid type: string \"4111 1111\"".into())));
    let (_, code, lines) = logged(&app, whole()).await;
    assert_eq!(code, "body_rejected");
    assert!(lines[0].get("error").contains("`fingerprint`") && !format!("{lines:?}").contains("4111"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn warnings_of_one_kind_are_a_minute_apart_and_count_suppressed_ones() {
    let recorder = Recorder::default();
    let app = route(IdempotencyKeyLayer::new(engine(&recorder, |engine| engine), by_header()));
    let keyless = || without("idempotency-key", whole());
    let nobodys = || without("x-caller", whole());
    // The number of requests that arrive, the pause before them, and the warning with the number of suppressed warnings.
    type Step = (u64, fn() -> Request<Body>, usize, Option<&'static str>);
    let steps: [Step; 6] = [
        (0, keyless, 3, Some("0")),
        (0, nobodys, 2, Some("0")),
        (59, keyless, 2, None),
        (1, keyless, 1, Some("4")),
        (0, nobodys, 1, Some("1")),
        (60, keyless, 1, Some("0")),
    ];
    for (pause, request, count, suppressed) in steps {
        tokio::time::advance(Duration::from_secs(pause)).await;
        let mut warnings = Vec::new();
        for _ in 0..count {
            let (_, _, lines) = logged(&app, request()).await;
            assert_eq!(recorder.take().len(), 1, "an observer is told of each");
            warnings.extend(lines);
        }
        let counts: Vec<_> = warnings.iter().map(|line| (line.level, line.get("suppressed"))).collect();
        let expected: Vec<_> = suppressed.into_iter().map(|count| (Level::WARN, count)).collect();
        assert_eq!(counts, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_layer_warns_once_a_minute_with_its_cause() {
    let recorder = Recorder::default();
    let layer = IdempotencyKeyLayer::new(engine(&recorder, |engine| engine), by_header()).max_in_flight(1);
    let app = route(layer);
    let mut hanging = whole();
    hanging.headers_mut().insert("x-hang", "1".parse().unwrap());
    hanging.headers_mut().insert("idempotency-key", "other".parse().unwrap());
    let others = async {
        for (pause, expected) in [(0, Some("0")), (0, None), (60, Some("1"))] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            let (status, code, lines) = logged(&app, whole()).await;
            assert_eq!((status, &*code), (503, "overloaded"));
            let refused: Vec<_> = lines.iter().filter(|line| line.get("code") == "overloaded").collect();
            assert_eq!(
                refused.first().map(|line| (line.level, line.get("suppressed"))),
                expected.map(|count| (Level::WARN, count))
            );
            assert!(refused.iter().all(|line| line.get("outcome") == "not_started" && !line.get("error").is_empty()));
            assert_eq!(recorder.take(), [(Ok(OutcomeKind::NotStarted), false)]);
        }
    };
    tokio::select! {
        biased;
        _ = sent(&app, hanging) => panic!("it hangs"),
        () = others => {}
    }
}

/// A layer whose hook refuses, panics or hangs, depending on the request.
fn gated(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    layer.before_replay(|request, _| {
        let end = request.headers.get("x-gate").map(|end| end.to_str().unwrap().to_owned());
        Box::pin(async move {
            match end.as_deref() {
                Some("refuse") => Err(Response::builder().status(403).body("suspended".into()).unwrap()),
                Some("panic") => panic!("in a hook"),
                Some("hang") => future::pending().await,
                _ => Ok(()),
            }
        })
    })
}

#[tokio::test(start_paused = true)]
async fn a_refused_replay_is_not_reported_as_a_replay() {
    let recorder = Recorder::default();
    let app = route(gated(IdempotencyKeyLayer::new(engine(&recorder, |engine| engine), by_header())));
    assert_eq!(sent(&app, whole()).await.0, 201);
    assert_eq!(recorder.take(), [(Ok(OutcomeKind::Executed), true)]);
    let refused = Err(ErrorKind::Replay);
    for (gate, status, level, outcome, told) in [
        ("refuse", 403, Level::INFO, "replay_refused", refused),
        ("panic", 503, Level::WARN, "replay_refused", refused),
        ("hang", 503, Level::WARN, "replay_refused", refused),
        ("pass", 201, Level::DEBUG, "replayed", Ok(OutcomeKind::Replayed)),
    ] {
        let mut again = whole();
        again.headers_mut().insert("x-gate", gate.parse().unwrap());
        let (got, _, lines) = logged(&app, again).await;
        let outcomes: Vec<_> = lines.iter().filter(|line| !line.get("outcome").is_empty()).collect();
        assert_eq!((got, outcomes.len()), (status, 1), "{gate}: {lines:?}");
        assert_eq!((outcomes[0].level, outcomes[0].get("outcome"), outcomes[0].get("key").len()), (level, outcome, 64));
        assert_eq!(recorder.take(), [(told, true)], "{gate}");
    }
}
