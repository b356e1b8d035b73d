//! In Lambda, requests end before their invocation, and leave no claim behind when they are dropped or the store fails.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    AfterUnknown, Idempotency, MemoryStore,
    clock::Clock,
    http::{Caller, IdempotencyKeyLayer, ResponseAction},
    store::fault::{Call, Fault},
};
use tokio::{sync::Notify, time::Instant};
use tower::{Layer, ServiceExt};

use crate::{
    refusals::{hanging_once, of_api_gateway},
    server::{SteppedStore, Steps},
    setup::{App, LAPSE, in_lambda, numbered, post, until},
    support::clock::{TokioClock, block},
};

#[tokio::test(start_paused = true)]
async fn a_request_on_a_silent_store_is_refused_before_api_gateway_gives_up() {
    for policy in [AfterUnknown::Rerun, AfterUnknown::Refuse] {
        for format in ["rest-v1", "api-v2"] {
            let app = App::with(|engine| engine.after_unknown(policy), |layer| layer, numbered);
            for call in [Call::Claim, Call::Read, Call::Settle] {
                app.store.always(call, Fault::Silence);
            }
            let began = Instant::now();
            let got = app.send(of_api_gateway(&app, format)).await;
            let waited = began.elapsed();
            assert_eq!((got.status, app.runs()), (503, 0), "{policy:?} {format}");
            assert!(waited < Duration::from_secs(29), "{policy:?} {format}: {waited:?}");
        }
    }
}

/// Drops a request at this step of its store, then sends the retry. Returns the retry's status and the number of runs.
async fn dropped_at(step: usize) -> (u16, u32) {
    let (clock, steps) = (TokioClock::new(), Steps::stopping_at(step));
    let store = SteppedStore(MemoryStore::with_clock(clock.clone()), steps.clone());
    let once = Idempotency::builder(store).clock(clock).scope("tests").after_unknown(AfterUnknown::Refuse);
    let layer = IdempotencyKeyLayer::new(once.build().unwrap(), Caller::shared());
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let service = layer.layer(tower::service_fn(move |request: Request<Full<Bytes>>| {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, Infallible>(numbered(run, request).await) }
    }));

    tokio::select! {
        biased;
        _ = service.clone().oneshot(in_lambda(post("k", "{}"))) => panic!("it stops at step {step}"),
        () = steps.reached() => {}
    }
    steps.go();
    layer.in_flight().drain().await;
    tokio::time::advance(LAPSE).await;
    let answer = service.oneshot(in_lambda(post("k", "{}"))).await.unwrap();
    (answer.status().as_u16(), runs.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn under_refuse_a_request_dropped_before_its_handler_leaves_its_key_free() {
    assert_eq!(dropped_at(1).await, (201, 1), "while the claim is on its way");
    assert_eq!(dropped_at(2).await, (201, 1), "while its answer is");
}

/// An application that fails open. Its claims are applied but reported as failed, and its store is slower than its handler.
fn slow_to_withdraw() -> App {
    let app = App::with(
        |engine| engine.after_unknown(AfterUnknown::Refuse),
        |layer| layer.fail_open(),
        |run, request| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            numbered(run, request).await
        },
    );
    app.store.always(Call::Claim, Fault::ErrorAfter);
    app.store.always(Call::Read, Fault::Delay(Duration::from_millis(100)));
    app
}

#[tokio::test(start_paused = true)]
async fn failing_open_leaves_no_claim_behind_however_quick_the_handler_is() {
    let app = slow_to_withdraw();
    let first = app.send(in_lambda(post("k", "{}"))).await;
    assert_eq!((first.status, first.header("idempotency-unprotected")), (201, Some("true")));
    app.store.heal();
    let retry = app.send(in_lambda(post("k", "{}"))).await;
    assert_eq!((retry.status, retry.header("x-run"), retry.is_replay()), (201, Some("2"), false), "{:?}", retry.body);
}

#[tokio::test(start_paused = true)]
async fn failing_open_spawns_nothing_that_outlives_the_request() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for app in [slow_to_withdraw(), App::with(|engine| engine, |layer| layer.fail_open(), numbered)] {
        app.store.always(Call::Claim, Fault::ErrorAfter);
        app.send(in_lambda(post("k", "{}"))).await;
        assert_eq!(tasks(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn in_lambda_a_failed_but_applied_claim_is_withdrawn_before_the_refusal() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let app = App::with(|engine| engine.after_unknown(AfterUnknown::Refuse), |layer| layer, numbered);
    app.store.always(Call::Claim, Fault::ErrorAfter);
    app.store.always(Call::Read, Fault::Delay(Duration::from_millis(100)));
    let before = tasks();
    let first = app.send(in_lambda(post("k", "{}"))).await;
    assert_eq!((first.status, tasks()), (503, before));
    app.store.heal();
    let retry = app.send(in_lambda(post("k", "{}"))).await;
    assert_eq!((retry.status, app.runs()), (201, 1), "{:?}", retry.body);
}

#[tokio::test(start_paused = true)]
async fn in_lambda_a_conflict_after_a_claim_in_doubt_leaves_no_task() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let keeping = |run, request| async move {
        let mut response = numbered(run, request).await;
        response.extensions_mut().insert(ResponseAction::Keep);
        response
    };
    let app = App::with(|engine| engine, |layer| layer, keeping);
    assert_eq!(app.send(in_lambda(post("k", "{}"))).await.status, 201);
    app.store.next(Call::Claim, Fault::ErrorBefore);
    app.store.always(Call::Read, Fault::Delay(Duration::from_millis(100)));
    let before = tasks();
    let second = app.send(in_lambda(post("k", "{}"))).await;
    assert_eq!((second.status, second.code(), tasks()), (409, "in_progress".to_owned(), before));
    assert_eq!((app.calls(Call::Claim), app.runs()), (3, 1), "the second claim is sent twice");
}

#[tokio::test(start_paused = true)]
async fn in_lambda_a_handler_that_fails_open_has_no_task_of_its_own() {
    let mut in_flight = None;
    let set_up = |layer: IdempotencyKeyLayer| {
        in_flight = Some(layer.in_flight());
        layer.fail_open()
    };
    let app = App::with(|engine| engine, set_up, |_, _| std::future::pending::<Response<Full<Bytes>>>());
    app.store.always(Call::Claim, Fault::AccessDenied);
    tokio::select! {
        biased;
        _ = app.send(in_lambda(post("k", "{}"))) => panic!("the handler does not end"),
        () = app.begun(1) => {}
    }
    assert_eq!(in_flight.unwrap().count(), 0);
}

/// Puts a request into an invocation with this much time left.
fn within(app: &App, time: Duration) -> Request<Full<Bytes>> {
    let mut context = lambda_runtime::Context::default();
    context.deadline = app.clock.now().after(time).as_millis();
    let mut request = post("k", "{}");
    request.extensions_mut().insert(context);
    request
}

/// Lets a request wait in an invocation of eleven seconds, whose key is released after `held`. Returns its response, and
/// the number of times that the handler started.
async fn waiting_for_a_release_after(time: Duration) -> (u16, String, u32) {
    let begun = Arc::new(Notify::new());
    let has_begun = Arc::clone(&begun);
    let handler = move |run, request| {
        let begun = Arc::clone(&begun);
        async move {
            if run > 1 {
                return numbered(run, request).await;
            }
            begun.notify_one();
            tokio::time::sleep(time).await;
            Response::builder().status(503).body(Full::default()).unwrap()
        }
    };
    let app = App::with(
        |engine| engine.after_unknown(AfterUnknown::Refuse),
        |layer| layer.wait_up_to(Duration::from_secs(60)),
        handler,
    );
    let waiter = async {
        has_begun.notified().await;
        app.send(within(&app, Duration::from_secs(11))).await
    };
    let (holder, waiter) = tokio::join!(app.send(within(&app, Duration::from_secs(20))), waiter);
    assert_eq!(holder.status, 503);
    let code = if waiter.status == 201 { String::new() } else { waiter.code() };
    (waiter.status, code, app.runs())
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_does_not_begin_in_the_last_quarter_of_its_time() {
    for released_after in [8_300, 9_000, 10_000] {
        let got = waiting_for_a_release_after(Duration::from_millis(released_after)).await;
        assert_eq!(got, (409, "in_progress".to_owned(), 1), "{released_after}");
    }
    let got = waiting_for_a_release_after(Duration::from_secs(5)).await;
    assert_eq!(got, (201, String::new(), 2), "in time");
}

/// Another handler may block the thread for so long. A deadline in the past would count as unknown.
#[tokio::test(start_paused = true)]
async fn a_waiting_request_that_wakes_after_its_deadline_claims_nothing() {
    let app = App::with(|engine| engine, |layer| layer.wait_up_to(Duration::from_secs(60)), hanging_once);
    // Its claim lapses after five seconds, while the other request could still begin.
    let mut holder = pin!(app.send(within(&app, Duration::from_secs(3))));
    tokio::select! {
        biased;
        _ = &mut holder => panic!("its handler does not end"),
        () = app.begun(1) => {}
    }
    let mut waiter = pin!(app.send(within(&app, Duration::from_secs(10))));
    tokio::select! {
        biased;
        _ = &mut waiter => panic!("it waits"),
        () = until("it has claimed", || app.calls(Call::Claim) == 2) => {}
    }
    block(Duration::from_secs(12));
    let got = waiter.await;
    assert_eq!((got.status, got.code()), (503, "unavailable".to_owned()));
    assert_eq!((app.runs(), app.calls(Call::Claim)), (1, 2), "it claims once, and does not run");
}
