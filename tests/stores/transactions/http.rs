//! Requests whose effect is committed together with their response.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lambda_once::http::{Caller, IdempotencyKeyLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::{Database, KEY, Ledger, World, build, engine, on_each_database};
use crate::{purpose::Purpose, support::wire};

type Body = Full<Bytes>;

impl<D: Database> World<D> {
    /// Sends a request through the proxy, whose handler enters a row and responds with this status. Returns the status
    /// and the body.
    async fn post(&self, ledger: &Arc<Ledger<D>>, status: u16) -> (u16, String) {
        let head = Response::builder().status(status).body(()).unwrap();
        self.post_for(ledger, head, |layer| layer).await
    }

    /// Does the same with another response, whose body is the row's id, and another layer.
    async fn post_for(
        &self,
        ledger: &Arc<Ledger<D>>,
        head: Response<()>,
        layer: impl FnOnce(IdempotencyKeyLayer) -> IdempotencyKeyLayer,
    ) -> (u16, String) {
        let ledger = Arc::clone(ledger);
        let handler = service_fn(move |request: Request<Body>| {
            let (ledger, head) = (Arc::clone(&ledger), head.clone());
            async move {
                let transaction = request.extensions().get::<D::Transaction>().unwrap().clone();
                drop(request);
                let id = ledger.enter(&transaction, KEY).await.unwrap_or_default();
                Ok::<_, Infallible>(head.map(|()| Body::from(id)))
            }
        });
        let plain = IdempotencyKeyLayer::new(self.once.named("payments"), Caller::shared());
        let layer = layer(plain.in_transaction(&self.store));
        let request = Request::post("/payments").header("idempotency-key", "k").body(Body::default()).unwrap();
        let response = layer.validate().unwrap().layer(handler).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap_or_default().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

async fn a_response_that_is_stored_is_committed_with_the_writes<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    let (status, id) = world.post(&ledger, 201).await;
    assert_eq!((status, ledger.rows(KEY).await), (201, vec![id.clone()]));
    assert_eq!(world.post(&ledger, 201).await, (201, id), "a replay");
    assert_eq!(ledger.rows(KEY).await.len(), 1);
}

async fn a_response_that_is_not_stored_leaves_no_writes<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    assert_eq!(world.post(&ledger, 500).await.0, 500);
    assert_eq!(ledger.rows(KEY).await, [""; 0]);
    assert_eq!(world.post(&ledger, 201).await.0, 201);
    assert_eq!(ledger.rows(KEY).await.len(), 1);
}

async fn a_refused_commit_does_not_return_the_handlers_response<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    D::refuse(world.proxy.on(D::settles));
    let (status, body) = world.post(&ledger, 201).await;
    assert!(status == 503 && body.contains("not_committed"), "{status} {body}");
    assert_eq!(ledger.rows(KEY).await, [""; 0]);
    assert_eq!(world.post(&ledger, 201).await.0, 201);
}

async fn a_request_that_passes_through_commits_its_writes_alone<D: Database>() {
    for status in [201, 500] {
        let mut world = World::<D>::new().await;
        world.once = build(engine(&world.store, &world.clock).disabled(true));
        let ledger = Arc::new(Ledger::create().await);
        assert_eq!(world.post(&ledger, status).await.0, status);
        assert_eq!(ledger.rows(KEY).await.len(), usize::from(status == 201));
    }
}

async fn a_request_that_passes_through_is_refused_with_its_commit<D: Database>() {
    let mut world = World::<D>::new().await;
    world.once = build(engine(&world.store, &world.clock).disabled(true));
    let ledger = Arc::new(Ledger::create().await);
    D::refuse(world.proxy.on(D::commits));
    let (status, body) = world.post(&ledger, 201).await;
    let is_of_commit = ["\"not_committed\"", "\"commit_unknown\""].iter().any(|code| body.contains(code));
    assert!(status == 503 && is_of_commit, "{status} {body}");
    assert_eq!(ledger.rows(KEY).await, [""; 0]);
}

/// Returns a gRPC response, with this status in its headers, if any.
fn grpc(status: Option<&str>) -> Response<()> {
    let head = Response::builder().header("content-type", "application/grpc");
    status.into_iter().fold(head, |head, status| head.header("grpc-status", status)).body(()).unwrap()
}

async fn a_large_grpc_response_is_committed_because_its_status_is_unknown<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    let (status, id) = world.post_for(&ledger, grpc(None), |layer| layer.max_response(0)).await;
    assert_eq!((status, ledger.rows(KEY).await), (200, vec![id]));
    let retry = world.post_for(&ledger, grpc(None), |layer| layer.max_response(0)).await;
    assert_eq!((retry.0, ledger.rows(KEY).await.len()), (410, 1));
}

async fn an_error_of_grpc_in_the_headers_commits_nothing<D: Database>() {
    for (passes_through, status, rows) in [(false, "13", 0), (true, "13", 0), (true, "0", 1)] {
        let mut world = World::<D>::new().await;
        world.once = build(engine(&world.store, &world.clock).disabled(passes_through));
        let ledger = Arc::new(Ledger::create().await);
        assert_eq!(world.post_for(&ledger, grpc(Some(status)), |layer| layer).await.0, 200);
        assert_eq!(ledger.rows(KEY).await.len(), rows, "{status} {passes_through}");
    }
}

async fn an_unknown_commit_does_not_return_the_handlers_response<D: Database>() {
    let world = World::<D>::new().await;
    let ledger = Arc::new(Ledger::create().await);
    let decides = |request: &wire::Request| matches!(Purpose::of(request), Purpose::Release | Purpose::Read);
    world.proxy.on(move |request| D::settles(request) || decides(request)).times(usize::MAX).drop_request();
    let (status, body) = world.post(&ledger, 201).await;
    assert!(status == 503 && body.contains("commit_unknown"), "{status} {body}");
}

on_each_database!(
    a_large_grpc_response_is_committed_because_its_status_is_unknown,
    an_error_of_grpc_in_the_headers_commits_nothing,
    a_request_that_passes_through_commits_its_writes_alone,
    a_request_that_passes_through_is_refused_with_its_commit,
    an_unknown_commit_does_not_return_the_handlers_response,
    a_response_that_is_stored_is_committed_with_the_writes,
    a_response_that_is_not_stored_leaves_no_writes,
    a_refused_commit_does_not_return_the_handlers_response,
);
