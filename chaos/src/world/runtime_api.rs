//! A double of the Lambda Runtime API, one for each function.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::{sync::Arc, time::SystemTime};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::Value;
use tokio::{net::TcpListener, time::timeout};

use super::{
    Result, World,
    queue::PAUSE,
    slots::{Kind, Slot},
};

#[derive(Clone)]
struct Api {
    world: Arc<World>,
    slot: usize,
}

impl Api {
    fn slot(&self) -> &Slot {
        &self.world.slots[self.slot]
    }
}

/// Serves the API for the function of a slot.
pub(super) async fn serve(world: &Arc<World>, slot: &Slot) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    slot.set_api(&listener.local_addr()?.to_string());
    let place = world.slots.iter().position(|other| std::ptr::eq(other, slot)).unwrap_or_default();
    let router = Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/response", post(respond))
        .route("/2018-06-01/runtime/invocation/{id}/error", post(fail))
        .route("/2018-06-01/runtime/init/error", post(async || StatusCode::ACCEPTED))
        .with_state(Api { world: Arc::clone(world), slot: place });
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(())
}

async fn next(State(api): State<Api>) -> Response {
    let Kind::Function(sources) = api.slot().kind else { return StatusCode::NOT_FOUND.into_response() };
    loop {
        if let Some((invocation, deadline, event)) = api.world.receive(api.slot().worker(), sources) {
            // The deadline is absolute, in the time of the history.
            let left = deadline.saturating_sub(api.world.begun.elapsed());
            let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + left;
            let headers = [
                ("lambda-runtime-aws-request-id", invocation.to_string()),
                ("lambda-runtime-deadline-ms", deadline.as_millis().to_string()),
                ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:1:function:chaos".to_owned()),
            ];
            return (headers, Json(event)).into_response();
        }
        let _ = timeout(PAUSE, api.world.sent.notified()).await;
    }
}

async fn respond(State(api): State<Api>, Path(id): Path<u32>, body: Bytes) -> StatusCode {
    let response: Value = serde_json::from_slice(&body).unwrap_or_default();
    let failures = response["batchItemFailures"].as_array();
    let ids = failures.into_iter().flatten().filter_map(|failure| failure["itemIdentifier"].as_str());
    let reported: Vec<String> = ids.map(str::to_owned).collect();
    // A response without the list acknowledges everything.
    api.world.conclude(api.slot().worker(), id, Some(&reported));
    StatusCode::ACCEPTED
}

async fn fail(State(api): State<Api>, Path(id): Path<u32>) -> StatusCode {
    api.world.conclude(api.slot().worker(), id, None);
    StatusCode::ACCEPTED
}
