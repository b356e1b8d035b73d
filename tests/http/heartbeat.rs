//! Requests that take longer than their lease, outside Lambda.

use std::{
    env, future,
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Builder, Claim, ErrorKind, Idempotency, MemoryStore,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer},
    record::Owner,
    store::{
        ResultData, Store,
        fault::{Call, Fault},
    },
};
use lambda_runtime::Context;
use tokio::time::{Instant, sleep, timeout};

use crate::setup::{App, LAPSE, numbered, post};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(900);

/// Takes five leases.
async fn slow(run: u32, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
    sleep(5 * LEASE).await;
    numbered(run, request).await
}

fn hanging(
    engine: impl FnOnce(Builder) -> Builder,
    layer: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
) -> App {
    App::with(engine, layer, |_, _| future::pending())
}

impl App {
    fn settles(&self) -> usize {
        self.store.calls().into_iter().filter(|(call, _)| *call == Call::Settle).count()
    }

    /// A request in an invocation that ends after this time.
    fn post_in_lambda(&self, left: Duration) -> Request<Full<Bytes>> {
        let mut context = Context::default();
        context.deadline = self.clock.now().after(left).as_millis();
        let mut request = post("k", "{}");
        request.extensions_mut().insert(context);
        request
    }
}

// Tests L5.
#[tokio::test(start_paused = true)]
async fn a_long_request_outlives_its_client_and_the_retry_gets_its_response() {
    let app = App::with(|engine| engine, |layer| layer, slow);
    let began = Instant::now();
    assert!(timeout(SECOND, app.post("k", "{}")).await.is_err(), "the client disconnects");
    while began.elapsed() < 5 * LEASE {
        assert_eq!(app.post("k", "{}").await.code(), "in_progress");
        sleep(SECOND / 2).await;
    }
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.is_replay(), got.header("x-run"), app.runs()), (201, true, Some("1"), 1));
}

#[tokio::test(start_paused = true)]
async fn store_errors_do_not_cost_a_long_request_its_key() {
    let app = App::with(|engine| engine, |layer| layer, slow);
    for fault in [Fault::Throttled, Fault::ErrorAfter, Fault::Silence, Fault::Throttled, Fault::Delay(2 * SECOND)] {
        app.store.next(Call::Settle, fault);
    }
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.is_replay()), (201, false));
    assert!(app.post("k", "{}").await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn a_hung_request_is_cancelled_at_the_maximum_and_keeps_its_key() {
    for (app, longest) in [
        (hanging(|engine| engine, |layer| layer), LONGEST),
        (hanging(|engine| engine.heartbeat(100 * SECOND), |layer| layer), 100 * SECOND),
        (hanging(|engine| engine, |layer| layer.heartbeat(100 * SECOND)), 100 * SECOND),
    ] {
        let began = Instant::now();
        let got = app.post("k", "{}").await;
        assert_eq!((got.status, got.code(), began.elapsed()), (504, "out_of_time".to_owned(), longest));
        assert_eq!(app.post("k", "{}").await.code(), "in_progress");
        tokio::time::advance(LAPSE).await;
        assert!(timeout(SECOND, app.post("k", "{}")).await.is_err());
        assert_eq!(app.runs(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_request_costs_no_renewal() {
    let app = App::new();
    app.post("k", "{}").await;
    assert_eq!(app.settles(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_has_lost_its_key_is_dropped_and_refused() {
    let claimed = Arc::new(OnceLock::new());
    let shown = Arc::clone(&claimed);
    let app = App::with(
        |engine| engine,
        |layer| layer,
        move |_, request| {
            shown.set(request.extensions().get::<Claim>().unwrap().key()).unwrap();
            future::pending()
        },
    );
    let began = Instant::now();
    let overtaken = async {
        sleep(SECOND).await;
        let key = *claimed.get().unwrap();
        let mut record = app.records.read(&[key], ResultData::Include).await.remove(0).unwrap().unwrap();
        record.owner = Some(Owner::from_bytes([7; 16]));
        app.records.insert(key, record);
    };
    let (got, ()) = tokio::join!(app.post("k", "{}"), overtaken);
    assert_eq!((got.status, got.code(), began.elapsed()), (409, "in_progress".to_owned(), LEASE / 3));
}

#[tokio::test(start_paused = true)]
async fn in_an_invocation_with_a_deadline_nothing_is_renewed() {
    let app = App::with(
        |engine| engine.heartbeat(LONGEST),
        |layer| layer,
        |run, request| async move {
            sleep(100 * SECOND).await;
            numbered(run, request).await
        },
    );
    assert_eq!(app.send(app.post_in_lambda(120 * SECOND)).await.status, 201);
    assert_eq!(app.settles(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_layers_heartbeat_is_refused_in_an_invocation_with_a_deadline() {
    let app = App::with(|engine| engine, |layer| layer.heartbeat(LONGEST), numbered);
    let got = app.send(app.post_in_lambda(120 * SECOND)).await;
    assert_eq!((got.status, got.code()), (500, "misconfigured".to_owned()));
    assert_eq!((app.runs(), app.store.calls()), (0, vec![]));
    assert_eq!(app.post("k", "{}").await.status, 201, "without one it is not");
}

/// Runs itself in a process that appears to run in Lambda.
#[test]
fn in_lambda_a_layers_heartbeat_is_refused_in_init() {
    const IN_LAMBDA: &str = "AWS_LAMBDA_INITIALIZATION_TYPE";
    let layer = |engine: fn(Builder) -> Builder| {
        let builder = Idempotency::builder(MemoryStore::new()).scope("tests");
        IdempotencyKeyLayer::new(engine(builder).build().unwrap(), Caller::shared())
    };
    let chosen = layer(|engine| engine).heartbeat(LONGEST).validate();
    if env::var_os(IN_LAMBDA).is_none() {
        assert!(chosen.is_ok(), "outside Lambda the layer accepts it");
        let test = "heartbeat::in_lambda_a_layers_heartbeat_is_refused_in_init";
        let mut again = Command::new(env::current_exe().unwrap());
        let output = again.args(["--exact", test]).env(IN_LAMBDA, "on-demand").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let error = chosen.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("a heartbeat is set in Lambda"), "{error}");
    assert!(layer(|engine| engine.heartbeat(LONGEST)).validate().is_ok(), "the engine's has no effect");
    assert!(layer(|engine| engine).heartbeat(None).validate().is_ok());
}
