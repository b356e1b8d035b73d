//! A double of the Lambda Runtime API, one for each function.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::time::SystemTime;

use super::{api::Api, slots::Kind};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::Value;

pub(super) fn routes() -> Router<Api> {
    Router::new()
        .route("/2018-06-01/runtime/invocation/next", get(next))
        .route("/2018-06-01/runtime/invocation/{id}/response", post(respond))
        .route("/2018-06-01/runtime/invocation/{id}/error", post(fail))
        .route("/2018-06-01/runtime/init/error", post(async || StatusCode::ACCEPTED))
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
        api.pause().await;
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
