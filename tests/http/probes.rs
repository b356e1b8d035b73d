//! `AfterUnknown::Probe`, with which the application finds out whether an earlier run took effect.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use lambda_once::{
    AfterUnknown, BoxError, ErrorKind, Idempotency, MemoryStore, ProbeResult,
    http::{Caller, IdempotencyKeyLayer, InFlight},
    store::fault::{Call, Fault},
};
use tokio::time::{sleep, timeout};

use crate::setup::{App, LAPSE, numbered};

const SECOND: Duration = Duration::from_secs(1);

type Probe = fn() -> Result<ProbeResult<Response<Bytes>>, BoxError>;

/// An application whose first run left no outcome, with this probe, and the number of its calls.
async fn found(probe: Probe) -> (App, Arc<AtomicU32>) {
    let (app, asked, _) = found_after(Duration::ZERO, probe).await;
    (app, asked)
}

/// Does the same with a probe that takes this long, and returns the requests in flight, too.
async fn found_after(time: Duration, probe: Probe) -> (App, Arc<AtomicU32>, InFlight) {
    let asked = Arc::<AtomicU32>::default();
    let counter = Arc::clone(&asked);
    let mut in_flight = None;
    let app = App::with(
        |engine| engine.after_unknown(AfterUnknown::Probe),
        |layer| {
            in_flight = Some(layer.in_flight());
            layer.probe(move |request, claim| {
                counter.fetch_add(1, Ordering::SeqCst);
                assert_eq!((request.uri.path(), claim.took_over(), claim.attempt() > 1), ("/charges", true, true));
                Box::pin(async move {
                    sleep(time).await;
                    probe()
                })
            })
        },
        |run, request| async move {
            if run == 1 {
                future::pending::<()>().await;
            }
            numbered(run, request).await
        },
    );
    assert_eq!(app.post("k", "{}").await.code(), "out_of_time");
    assert_eq!(asked.load(Ordering::SeqCst), 0, "a new operation has nothing to look for");
    tokio::time::advance(LAPSE).await;
    (app, asked, in_flight.unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_a_probe_finds_is_the_stored_response_and_not_repeated() {
    let (app, asked) = found(|| {
        let charge = Response::builder().status(201).header("location", "/charges/1").body("found".into())?;
        Ok(ProbeResult::Done(charge))
    })
    .await;
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.header("location"), &got.body[..]), (201, Some("/charges/1"), &b"found"[..]));
    let again = app.post("k", "{}").await;
    assert_eq!((again.is_replay(), again.status, again.header("location")), (true, 201, Some("/charges/1")));
    assert_eq!(again.body, got.body);
    assert_eq!((app.runs(), asked.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_did_not_take_effect_runs() {
    let (app, _) = found(|| Ok(ProbeResult::NotDone)).await;
    assert_eq!(app.post("k", "{}").await.header("x-run"), Some("2"));
    assert!(app.post("k", "{}").await.is_replay());
}

#[tokio::test(start_paused = true)]
async fn while_a_probe_cannot_tell_nothing_runs() {
    let (app, _) = found(|| Err("the ledger does not answer".into())).await;
    let got = app.post("k", "{}").await;
    assert_eq!((got.status, got.code(), app.runs()), (503, "probe_failed".to_owned(), 1));
    assert!(got.header("retry-after").is_some());
    assert!(!String::from_utf8_lossy(&got.body).contains("ledger"), "what failed is not the client's business");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_client_has_left_is_neither_probed_nor_run() {
    // Clients leave while the claim is on its way, and while the probe runs.
    for (claim_takes, probes) in [(SECOND, 0), (Duration::ZERO, 1)] {
        let (app, asked, in_flight) = found_after(SECOND, || Ok(ProbeResult::NotDone)).await;
        app.store.next(Call::Claim, Fault::Delay(claim_takes));
        assert!(timeout(SECOND / 2, app.post("k", "{}")).await.is_err(), "{claim_takes:?}");
        in_flight.drain().await;
        assert_eq!((asked.load(Ordering::SeqCst), app.runs()), (probes, 1), "{claim_takes:?}");
    }
}

#[test]
fn a_probe_and_the_probe_policy_require_each_other() {
    let layer = |policy| {
        let once = Idempotency::builder(MemoryStore::new()).scope("tests").after_unknown(policy).build().unwrap();
        IdempotencyKeyLayer::new(once, Caller::shared())
    };
    let probed = |layer: IdempotencyKeyLayer| layer.probe(|_, _| Box::pin(async { Ok(ProbeResult::NotDone) }));
    for contradictory in
        [layer(AfterUnknown::Probe), probed(layer(AfterUnknown::Rerun)), probed(layer(AfterUnknown::Refuse))]
    {
        assert_eq!(contradictory.validate().unwrap_err().kind(), ErrorKind::Config);
    }
    for consistent in [probed(layer(AfterUnknown::Probe)), layer(AfterUnknown::Rerun)] {
        assert!(consistent.validate().is_ok());
    }
}
