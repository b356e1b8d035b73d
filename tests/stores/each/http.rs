//! Requests with an `Idempotency-Key`.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lambda_once::{
    Claim, OutcomeKind, Verdict,
    http::{Caller, IdempotencyKeyLayer, ResponseBody},
};
use tower::{Layer as _, Service, ServiceExt};

use super::{Layer, World};
use crate::support::stores::{Backend, on_each_store};

type Body = Full<Bytes>;

struct Charges<S>(S);

impl<S> Layer for Charges<S>
where
    S: Service<Request<Body>, Response = Response<ResponseBody<Body>>, Error = Infallible> + Clone,
{
    async fn deliver(&self, id: &str, cents: u32) -> OutcomeKind {
        let request = Request::post("/charges").header("idempotency-key", id).body(cents.to_string().into()).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let headers = response.headers();
        match response.status().as_u16() {
            201 if headers.contains_key("idempotency-replayed") => OutcomeKind::Replayed,
            201 if headers["took-over"] == "true" => OutcomeKind::TookOver,
            201 => OutcomeKind::Executed,
            409 => OutcomeKind::InProgress,
            422 => OutcomeKind::Mismatch,
            503 => OutcomeKind::Failed(Verdict::Transient),
            other => panic!("no status of these tests: {other}"),
        }
    }
}

async fn requests(backend: Backend) {
    let world = World::new(backend).await;
    let handler = world.handler.clone();
    let charge = tower::service_fn(move |request: Request<Body>| {
        let handler = handler.clone();
        async move {
            let took_over = request.extensions().get::<Claim>().unwrap().took_over();
            let status = if handler.run().await.is_ok() { 201 } else { 503 };
            let response = Response::builder().status(status).header("took-over", took_over.to_string());
            Ok::<_, Infallible>(response.body(Body::default()).unwrap())
        }
    });
    world.assert_promises(&Charges(IdempotencyKeyLayer::new(world.engine(), Caller::shared()).layer(charge))).await;
}

on_each_store!(requests);
