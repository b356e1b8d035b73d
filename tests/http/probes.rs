//! `AfterUnknown::Probe`, with which the application finds out whether an earlier run took effect.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use http::Response;
use lambda_once::{
    AfterUnknown, BoxError, ErrorKind, Idempotency, MemoryStore, ProbeResult,
    http::{Caller, IdempotencyKeyLayer},
};

use crate::setup::{App, LAPSE, numbered};

/// An application whose first run left no outcome, with this probe, and the number of its calls.
async fn found(probe: fn() -> Result<ProbeResult<Response<Bytes>>, BoxError>) -> (App, Arc<AtomicU32>) {
    let asked = Arc::<AtomicU32>::default();
    let counter = Arc::clone(&asked);
    let app = App::with(
        |engine| engine.after_unknown(AfterUnknown::Probe),
        |layer| {
            layer.probe(move |request, claim| {
                counter.fetch_add(1, Ordering::SeqCst);
                assert_eq!((request.uri.path(), claim.took_over(), claim.attempt() > 1), ("/charges", true, true));
                Box::pin(async move { probe() })
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
    (app, asked)
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
