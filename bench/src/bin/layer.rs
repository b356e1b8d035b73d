//! Measures the HTTP layer and the bare route, and prints [`Layer`] as JSON.

use std::time::Duration;

use anyhow::{Result, ensure};
use axum::{Json, Router, body::Body, routing::post};
use benches::{layer::Layer, usage};
use http::{Request, Response};
use http_body_util::BodyExt;
use lambda_once::{
    Idempotency, MemoryStore,
    http::{Caller, IdempotencyKeyLayer},
};
use serde_json::{Value, json};
use tower_service::Service;

const ROUNDS: usize = 15;
const REQUESTS: usize = 5_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let body = json!({ "customer_id": "c-8f3a", "amount_cents": 995, "currency": "EUR", "items": ["a", "b", "c"] });
    let body = body.to_string();
    let (mut bare, mut in_place, mut in_task, mut replay) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(send(&mut route(), &body, false).await?);
        let mut app = route().route_layer(layer(false)?);
        in_place.push(send(&mut app, &body, false).await?);
        let mut app = route().route_layer(layer(true)?);
        in_task.push(send(&mut app, &body, false).await?);
        replay.push(send(&mut app, &body, true).await?);
    }
    let times = Layer {
        body_bytes: body.len(),
        bare: per_request(bare),
        new_in_place: per_request(in_place),
        new_in_task: per_request(in_task),
        replay: per_request(replay),
    };
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}

fn route() -> Router {
    Router::new().route("/charges", post(async |Json(charge): Json<Value>| Json(charge)))
}

fn layer(to_completion: bool) -> Result<IdempotencyKeyLayer> {
    let once = Idempotency::builder(MemoryStore::new()).scope("bench").build()?;
    let layer = IdempotencyKeyLayer::new(once, Caller::shared()).run_to_completion(to_completion);
    Ok(layer.validate()?)
}

/// Returns the CPU time for the requests, one after another. Creating them does not count.
async fn send(app: &mut Router, body: &str, are_replays: bool) -> Result<Duration> {
    let request = |i| {
        let request = Request::post("/charges").header("content-type", "application/json");
        request.header("idempotency-key", format!("8e03978e-40d5-43e8-bc93-{i:012}")).body(Body::from(body.to_owned()))
    };
    let requests: Vec<Request<Body>> = (0..REQUESTS).map(request).collect::<Result<_, _>>()?;
    let mut answers = Vec::with_capacity(REQUESTS);
    let begun = usage::cpu();
    for request in requests {
        let (parts, body) = Service::<Request<Body>>::call(app, request).await?.into_parts();
        answers.push(Response::from_parts(parts, body.collect().await?.to_bytes()));
    }
    let spent = usage::cpu() - begun;
    for answer in answers {
        let is_replay = answer.headers().contains_key("idempotency-replayed");
        ensure!(answer.status() == 200 && is_replay == are_replays && answer.body() == body, "{answer:?}");
    }
    Ok(spent)
}

/// Returns the median, in microseconds for each request.
fn per_request(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6 / REQUESTS as f64
}
