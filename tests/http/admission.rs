//! Admission to the handlers, which happens once a request's body has been read, and is not needed for a replay.

use std::{sync::Arc, time::Duration};

use axum::{Router, routing::post};
use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
    store::fault::{Call, Fault, FaultStore},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, Semaphore},
    time::{Instant, timeout},
};
use tower::{
    ServiceBuilder,
    limit::{ConcurrencyLimit, GlobalConcurrencyLimitLayer},
};

use crate::{
    load::Handlers,
    server::{Server, created},
    setup::{App, Got, engine, gated, numbered, until},
};

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(engine(), Caller::shared())
}

/// A server with the layer and, inside it, a queue for this many handlers, as in docs/http.md.
async fn queue(layer: IdempotencyKeyLayer, handlers: &Handlers, max: usize) -> Server {
    let handler = handlers.clone();
    let stack = ServiceBuilder::new().layer(layer).layer(GlobalConcurrencyLimitLayer::new(max));
    Server::start(Router::new().route("/charges", post(move || handler.run()).route_layer(stack))).await
}

/// Returns the response, which a request that must wait for a place would not get.
async fn at_once(response: impl Future<Output = Got>) -> Got {
    timeout(Duration::from_secs(20), response).await.expect("the request waits for a place")
}

/// A client that has begun its upload, which the layer is reading.
async fn uploading(server: &Server) -> TcpStream {
    let mut client = server.begin("slow", "content-length: 2\r\nexpect: 100-continue\r\n", "").await;
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 100");
    client.write_all(b"{").await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_takes_no_place_in_a_queue_inside_the_layer() {
    let handlers = Handlers::new();
    handlers.may_end.add_permits(2);
    let server = queue(layer(), &handlers, 1).await;
    let mut slow = uploading(&server).await;
    assert_eq!(at_once(server.post("/charges", "quick", "{}")).await.status, 201);
    slow.write_all(b"}").await.unwrap();
    handlers.have_begun(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_holds_no_permit() {
    let handlers = Handlers::new();
    handlers.may_end.add_permits(2);
    let handler = handlers.clone();
    let app = Router::new().route("/charges", post(move || handler.run())).route_layer(layer().max_in_flight(1));
    let server = Server::start(app).await;
    let mut slow = uploading(&server).await;
    assert_eq!(at_once(server.post("/charges", "quick", "{}")).await.status, 201);
    slow.write_all(b"}").await.unwrap();
    handlers.have_begun(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_does_not_wait_in_a_queue_inside_the_layer() {
    let handlers = Handlers::new();
    handlers.may_end.add_permits(1);
    let server = queue(layer(), &handlers, 1).await;
    assert_eq!(server.post("/charges", "done", "{}").await.status, 201);
    let running = server.begin("running", "content-length: 2\r\n", "{}").await;
    handlers.have_begun(2).await;
    assert!(at_once(server.post("/charges", "done", "{}")).await.is_replay());
    assert_eq!(at_once(server.post("/charges", "done", "[]")).await.code(), "key_reused");
    assert_eq!(at_once(server.post("/charges", "running", "{}")).await.code(), "in_progress");
    handlers.may_end.add_permits(1);
    drop(running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_its_key_has_no_place_in_the_queue() {
    let (handlers, store) = (Handlers::new(), FaultStore::new(MemoryStore::new(), 1));
    let once = Idempotency::builder(store.clone()).scope("tests").build().unwrap();
    let layer = IdempotencyKeyLayer::new(once, Caller::shared()).wait_up_to(Duration::from_secs(60));
    let server = queue(layer, &handlers, 2).await;
    let first = server.begin("k", "content-length: 2\r\n", "{}").await;
    handlers.have_begun(1).await;
    let meanwhile = async {
        // It polls the record, so its own claim has been refused.
        until("it polls", || store.calls().iter().any(|(call, _)| *call == Call::Read)).await;
        let other = server.begin("other", "content-length: 2\r\n", "{}").await;
        timeout(Duration::from_secs(20), handlers.have_begun(2)).await.expect("there is a place");
        handlers.may_end.add_permits(2);
        other
    };
    let (waited, _other) = tokio::join!(server.post("/charges", "k", "{}"), meanwhile);
    assert!(waited.is_replay(), "{waited:?}");
    drop(first);
}

#[tokio::test(start_paused = true)]
async fn a_replay_needs_no_permit() {
    let go = Arc::new(Semaphore::new(1));
    let app = App::with(|engine| engine, |layer| layer.max_in_flight(1), gated(&go));
    assert_eq!(app.post("done", "{}").await.status, 201);
    let meanwhile = async {
        app.begun(2).await;
        assert!(app.post("done", "{}").await.is_replay());
        assert_eq!(app.post("done", "[]").await.code(), "key_reused");
        assert_eq!(app.post("running", "{}").await.code(), "in_progress");
        assert_eq!(app.post("new", "{}").await.code(), "overloaded");
        go.add_permits(1);
    };
    let (running, ()) = tokio::join!(app.post("running", "{}"), meanwhile);
    assert_eq!((running.status, app.runs()), (201, 2));
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_is_being_checked_holds_no_permit() {
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, gate) = (Arc::clone(&began), Arc::clone(&go));
    let checking = move |layer: IdempotencyKeyLayer| {
        layer.max_in_flight(1).before_replay(move |_, _| {
            let (told, gate) = (Arc::clone(&told), Arc::clone(&gate));
            Box::pin(async move {
                told.notify_one();
                gate.notified().await;
                Ok(())
            })
        })
    };
    let app = App::with(|engine| engine, checking, numbered);
    assert_eq!(app.post("done", "{}").await.status, 201);
    let meanwhile = async {
        began.notified().await;
        assert_eq!(app.post("new", "{}").await.status, 201);
        go.notify_one();
    };
    let (replay, ()) = tokio::join!(app.post("done", "{}"), meanwhile);
    assert!(replay.is_replay());
}

/// Reports that it has been dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_before_a_replay_ends_when_its_client_leaves() {
    let (began, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, dropped) = (Arc::clone(&began), Arc::clone(&ended));
    let layer = layer().before_replay(move |_, _| {
        let (told, dropped) = (Arc::clone(&told), Dropped(Arc::clone(&dropped)));
        Box::pin(async move {
            told.notify_one();
            std::future::pending::<()>().await;
            drop(dropped);
            Ok(())
        })
    });
    let in_flight = layer.in_flight();
    let app = Router::new().route("/charges", post(|| async { created(1) })).route_layer(layer);
    let server = Server::start(app).await;
    assert_eq!(server.post("/charges", "k", "{}").await.status, 201);
    let client = server.begin("k", "content-length: 2\r\n", "{}").await;
    began.notified().await;
    assert!(in_flight.count() == 0, "a check is no work to be completed");
    drop(client);
    // The check itself may take ten seconds.
    timeout(Duration::from_secs(8), ended.notified()).await.expect("nobody waits for the replay");
}

/// An application for one handler at a time, whose first run fails with a transient error. The handlers end when `go` lets
/// them.
fn one_at_a_time(go: &Arc<Semaphore>) -> App {
    let gate = Arc::clone(go);
    let handler = move |run, request| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            if run == 1 {
                return Response::builder().status(503).body(Full::default()).unwrap();
            }
            numbered(run, request).await
        }
    };
    App::with(|engine| engine, |layer| layer.max_in_flight(1).wait_up_to(Duration::from_secs(20)), handler)
}

/// Returns the response of a request whose key becomes free while another handler runs for this many seconds, and the time
/// that it took. The store does not respond after `silent_after`.
async fn waited(seconds: u64, silent_after: Duration) -> (Got, Duration, App) {
    let go = Arc::new(Semaphore::new(0));
    let app = one_at_a_time(&go);
    let first = async {
        assert_eq!(app.post("k", "{}").await.status, 503);
        // No other request has asked for its permit in between.
        assert_eq!(app.post("other", "{}").await.status, 201);
    };
    let waiting = async {
        app.begun(1).await;
        let began = Instant::now();
        (app.post("k", "{}").await, began.elapsed())
    };
    let ends = async {
        // The waiting request has found its key in use.
        until("it has asked the store", || app.store.calls().len() == 2).await;
        go.add_permits(1);
        app.begun(2).await;
        let ends = Instant::now() + Duration::from_secs(seconds);
        tokio::time::sleep(silent_after).await;
        app.store.always(Call::Read, Fault::Silence);
        tokio::time::sleep_until(ends).await;
        app.store.heal();
        go.add_permits(2);
    };
    let ((), (got, time), ()) = tokio::join!(first, waiting, ends);
    (got, time, app)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_its_key_waits_for_a_permit_too() {
    let (got, time, app) = waited(5, Duration::from_secs(5)).await;
    assert_eq!((got.status, got.is_replay(), app.runs()), (201, false, 3));
    assert_eq!(time.as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_permit_no_longer_than_it_may_wait() {
    // Independent of the read that is under way.
    for silent_after in [60_000, 10_000, 10_500, 11_000] {
        let (got, time, app) = waited(60, Duration::from_millis(silent_after)).await;
        assert_eq!((got.status, got.code()), (503, "overloaded".to_owned()), "{silent_after}");
        assert_eq!(
            (time.as_millis() / 10, app.calls(Call::Claim), app.runs()),
            (2_000, 2, 2),
            "it has claimed nothing"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_read_no_more_records_than_may_run() {
    let go = Arc::new(Semaphore::new(0));
    let app = App::with(|engine| engine, |layer| layer.max_in_flight(2), gated(&go));
    let meanwhile = async {
        app.begun(2).await;
        app.store.always(Call::Read, Fault::Delay(Duration::from_millis(100)));
        // The requests that read have done so before the second round.
        for reads in [2, 4] {
            let keys: Vec<_> = (0..50).map(|key| format!("new-{key}")).collect();
            let refused = join_all(keys.iter().map(|key| app.post(key, "{}"))).await;
            assert!(refused.iter().all(|got| got.code() == "overloaded"));
            assert_eq!((refused.len(), app.calls(Call::Read)), (50, reads));
        }
        go.add_permits(2);
    };
    tokio::join!(app.post("a", "{}"), app.post("b", "{}"), meanwhile);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_handed_over_while_the_record_is_read_is_taken() {
    for (permits, places) in [(1, 100), (100, 1)] {
        let go = Arc::new(Semaphore::new(0));
        let app = App::around(
            |engine| engine,
            |layer| layer.max_in_flight(permits),
            gated(&go),
            |handler| ConcurrencyLimit::new(handler, places),
        );
        app.store.always(Call::Read, Fault::Silence);
        let next = async {
            app.begun(1).await;
            let began = Instant::now();
            (app.post("next", "{}").await.status, began.elapsed())
        };
        let ends = async {
            until("it reads its record", || app.calls(Call::Read) == 1).await;
            go.add_permits(2);
        };
        let (_, next, ()) = tokio::join!(app.post("first", "{}"), next, ends);
        assert_eq!(next, (201, Duration::ZERO), "{permits} permits, {places} places");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_read_for_a_permit_is_not_read_at_once_for_a_place() {
    let go = Arc::new(Semaphore::new(0));
    let app = App::around(
        |engine| engine,
        |layer| layer.max_in_flight(1),
        gated(&go),
        |handler| ConcurrencyLimit::new(handler, 1),
    );
    app.store.always(Call::Read, Fault::Silence);
    let other = async {
        app.begun(1).await;
        // It passes through, so it needs no permit, and is the first to wait for the place.
        app.send(Request::get("/charges").body(Full::default()).unwrap()).await.status
    };
    let next = async {
        app.begun(1).await;
        app.post("next", "{}").await.status
    };
    let ends = async {
        until("it reads its record", || app.calls(Call::Read) == 1).await;
        go.add_permits(1);
        app.begun(2).await;
        // Reads are half a second apart.
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(app.calls(Call::Read), 1);
        go.add_permits(2);
    };
    let (first, other, next, ()) = tokio::join!(app.post("first", "{}"), other, next, ends);
    assert_eq!((first.status, other, next, app.runs()), (201, 201, 201, 3));
}
