//! An application with one handler behind the layer, and requests to it.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    BoxFuture, Builder, Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::{Call, FaultStore},
};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};

use crate::support::clock::TokioClock;

pub(crate) type Store = FaultStore<MemoryStore>;
type Answer = Response<lambda_once::http::ResponseBody<Full<Bytes>>>;

/// A handler, as a service.
type Handler = BoxCloneSyncService<Request<Full<Bytes>>, Response<Full<Bytes>>, Infallible>;

/// A response with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(body["status"], self.status);
        let advises = body["detail"].as_str().unwrap().contains("same key");
        assert_eq!(body["retryable"], advises, "a retry with another key takes effect again: {body}");
        body["code"].as_str().unwrap().to_owned()
    }
}

/// The application under test.
pub(crate) struct App {
    pub(crate) records: MemoryStore,
    pub(crate) store: Store,
    pub(crate) clock: TokioClock,
    pub(crate) runs: Arc<AtomicU32>,
    service: BoxCloneSyncService<Request<Full<Bytes>>, Answer, Infallible>,
}

impl App {
    /// Creates an application with a handler that responds with 201 and the number of the run.
    pub(crate) fn new() -> Self {
        Self::with(|engine| engine, |layer| layer, numbered)
    }

    pub(crate) fn with<H, F>(
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(u32, Request<Full<Bytes>>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Self::around(engine, layer, handler, |handler| handler)
    }

    /// Like `with`, with a service around the handler, inside the layer.
    pub(crate) fn around<H, F, S>(
        engine: impl FnOnce(Builder) -> Builder,
        layer: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
        handler: H,
        around: impl FnOnce(Handler) -> S,
    ) -> Self
    where
        H: Fn(u32, Request<Full<Bytes>>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
        S: Service<Request<Full<Bytes>>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>,
        S: Clone + Send + Sync + 'static,
    {
        let clock = TokioClock::new();
        let records = MemoryStore::with_clock(clock.clone());
        let store = FaultStore::new(records.clone(), 1);
        let once = engine(Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests")).build().unwrap();
        let scope = Caller::header(http::HeaderName::from_static("x-caller")).or_anonymous();
        let runs = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&runs);
        let inner = tower::service_fn(move |request| {
            let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
            let answer = handler(run, request);
            async move { Ok(answer.await) }
        });
        let service = layer(IdempotencyKeyLayer::new(once, scope)).layer(around(Handler::new(inner)));
        Self { records, store, clock, runs, service: BoxCloneSyncService::new(service) }
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Got {
        let mut service = self.service.clone();
        let (parts, body) = service.ready().await.unwrap().call(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn post(&self, key: &str, body: &'static str) -> Got {
        self.send(post(key, body)).await
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// Completes when this many handlers have begun.
    pub(crate) async fn begun(&self, runs: u32) {
        until("the handlers begin", || self.runs() >= runs).await;
    }

    /// Returns the number of calls of this kind to the store.
    pub(crate) fn calls(&self, kind: Call) -> usize {
        self.store.calls().iter().filter(|(call, _)| *call == kind).count()
    }
}

/// Completes when this condition holds, and panics after 20 seconds, which pass even if tokio's time is paused.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "until {what}");
        tokio::task::yield_now().await;
    }
}

/// A handler that responds with the number of its run when `go` lets it end.
pub(crate) fn gated(
    go: &Arc<Semaphore>,
) -> impl Fn(u32, Request<Full<Bytes>>) -> BoxFuture<'static, Response<Full<Bytes>>> + Clone + Send + Sync + 'static {
    let gate = Arc::clone(go);
    move |run, request| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            numbered(run, request).await
        })
    }
}

pub(crate) fn post(key: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/charges?x=1")
        .header("Idempotency-Key", key)
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

pub(crate) async fn numbered(run: u32, _: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
    let answer = Response::builder().status(StatusCode::CREATED).header("content-type", "application/json");
    answer.header("x-run", run).body(format!("{{\"run\": {run}}}\n").into()).unwrap()
}

/// Puts a request into an invocation without a deadline.
pub(crate) fn in_lambda(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    request.extensions_mut().insert(lambda_runtime::Context::default());
    request
}

pub(crate) fn engine() -> Idempotency {
    Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap()
}

/// Longer than the default lease and the skew margin.
pub(crate) const LAPSE: Duration = Duration::from_secs(32);
