//! A queue inside the layer, the time that a request spends in it, and the reads meanwhile.

use std::{
    convert::Infallible,
    future::Ready,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::{
    Idempotency, MemoryStore,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::{Call, Fault, FaultStore},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tower::{
    Layer, Service, ServiceExt,
    limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer},
};

use crate::{
    setup::{App, gated, numbered, post, until},
    support::clock::TokioClock,
};

/// An engine on tokio's time, and its store.
fn engine() -> (Idempotency, FaultStore<MemoryStore>, TokioClock) {
    let clock = TokioClock::new();
    let store = FaultStore::new(MemoryStore::with_clock(clock.clone()), 1);
    (Idempotency::builder(store.clone()).clock(clock.clone()).scope("tests").build().unwrap(), store, clock)
}

fn reads(store: &FaultStore<MemoryStore>) -> usize {
    store.calls().iter().filter(|(call, _)| *call == Call::Read).count()
}

type Readiness = Poll<Result<(), &'static str>>;

/// A service that returns one of these results for each readiness poll. After that it never becomes ready.
#[derive(Clone)]
struct Unready(Arc<Mutex<Vec<Readiness>>>);

impl Unready {
    fn of(answers: &[Readiness]) -> Self {
        Self(Arc::new(Mutex::new(answers.iter().rev().copied().collect())))
    }
}

impl<B> Service<Request<B>> for Unready {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let Some(answer) = self.0.lock().unwrap().pop() else { return Poll::Pending };
        context.waker().wake_by_ref();
        answer
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        unreachable!("it is never ready")
    }
}

#[tokio::test(start_paused = true)]
async fn in_lambda_a_request_is_in_a_queue_while_its_handler_could_finish() {
    let event = std::fs::read_to_string("events/http-api-v2.json").unwrap();
    // Three quarters of the time up to the handler deadline, and at most as long as API Gateway waits. This also limits
    // a read.
    for (has, waits, fault) in [
        (20_000, 14_250, None),
        (600_000, 28_000, None),
        (2_000, 1_125, Some(Fault::Silence)),
        (1_100, 450, Some(Fault::Silence)),
        // Not enough time for a read.
        (600, 75, None),
    ] {
        let (once, store, clock) = engine();
        if let Some(fault) = fault {
            store.always(Call::Read, fault);
        }
        let mut request = lambda_http::request::from_str(&event).unwrap();
        let mut context = lambda_runtime::Context::default();
        context.deadline = clock.now().after(Duration::from_millis(has)).as_millis();
        request.extensions_mut().insert(context);
        let service = IdempotencyKeyLayer::new(once, Caller::shared()).layer(Unready::of(&[]));
        let began = Instant::now();
        let response = service.oneshot(request).await.unwrap();
        let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
        assert!((waits..waits + 10).contains(&waited), "{has}: {waited}");
        let (status, body) = (response.status(), response.into_body().collect().await.unwrap().to_bytes());
        assert!(status == 503 && String::from_utf8_lossy(&body).contains("overloaded"), "{has}: {body:?}");
        let expected = if waits < 100 { 0..1 } else { 1..waits / 500 + 2 };
        assert!(expected.contains(&(store.calls().len() as u64)), "{has}: {:?}", store.calls());
        assert_eq!(reads(&store), store.calls().len(), "it claims nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_be_ready_returns_its_error_without_a_claim() {
    for answers in [&[Poll::Ready(Err("closed"))][..], &[Poll::Pending, Poll::Ready(Err("closed"))]] {
        let (once, store, _) = engine();
        let layer = IdempotencyKeyLayer::new(once, Caller::shared()).max_in_flight(1);
        // The second request gets the permit that the first one has released.
        for _ in 0..2 {
            let response = layer.layer(Unready::of(answers)).oneshot(post("k", "{}")).await;
            assert_eq!(response.err(), Some("closed"));
        }
        assert_eq!(reads(&store), store.calls().len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_a_queue_notices_that_its_operation_is_done() {
    let (once, ..) = engine();
    let layer = IdempotencyKeyLayer::new(once, Caller::shared());
    let handler =
        tower::service_fn(|request: Request<Full<Bytes>>| async { Ok::<_, Infallible>(numbered(1, request).await) });
    let full = GlobalConcurrencyLimitLayer::with_semaphore(Arc::new(Semaphore::new(0)));
    let mut waits = pin!(layer.layer(full.layer(handler)).oneshot(post("k", "{}")));
    assert!(waits.as_mut().now_or_never().is_none());
    // Another instance has a place for it.
    assert_eq!(layer.layer(handler).oneshot(post("k", "{}")).await.unwrap().status(), 201);
    let began = Instant::now();
    let response = timeout(Duration::from_secs(20), waits).await.expect("it waits for a place").unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers()["idempotency-replayed"].as_bytes()),
        (201, &b"true"[..])
    );
    assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_key_gives_its_turn_in_a_queue_back() {
    let go = Arc::new(Semaphore::new(0));
    let app = App::around(
        |engine| engine,
        |layer| layer.wait_up_to(Duration::from_secs(60)),
        gated(&go),
        |handler| ConcurrencyLimit::new(handler, 1),
    );
    let meanwhile = async {
        app.begun(1).await;
        let mut waiting = pin!(app.post("k", "{}"));
        until("it has read its record", || {
            assert!(waiting.as_mut().now_or_never().is_none());
            app.calls(Call::Read) == 1
        })
        .await;
        // The store's result has arrived, and the request waits for its key. It does nothing until that wait ends.
        assert!(waiting.as_mut().now_or_never().is_none());
        go.add_permits(2);
        let next = timeout(Duration::from_secs(20), app.post("next", "{}")).await.expect("its turn");
        assert_eq!((next.status, next.header("x-run")), (201, Some("2")));
        assert!(waiting.await.is_replay());
    };
    let (first, ()) = tokio::join!(app.post("k", "{}"), meanwhile);
    assert_eq!((first.status, app.runs()), (201, 2));
}
