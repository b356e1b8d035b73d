//! Runs a function's binary as Lambda does. The test is the function's Runtime API.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::Value;
use tokio::{
    net::TcpListener,
    process::Command,
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};

use super::TIMEOUT;

/// The maximum duration of an invocation.
const DEADLINE: Duration = Duration::from_secs(30);

/// The event source of one execution environment of a function.
pub struct RuntimeApi {
    address: String,
    events: mpsc::UnboundedSender<Value>,
    answers: mpsc::UnboundedReceiver<Value>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Channels {
    events: Arc<Mutex<mpsc::UnboundedReceiver<Value>>>,
    answers: mpsc::UnboundedSender<Value>,
}

impl RuntimeApi {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (events, incoming) = mpsc::unbounded_channel();
        let (outgoing, answers) = mpsc::unbounded_channel();
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(event))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(answer))
            .with_state(Channels { events: Arc::new(Mutex::new(incoming)), answers: outgoing });
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, events, answers, server }
    }

    /// The command that starts a function behind it.
    pub fn command(&self, binary: &str) -> Command {
        let mut command = Command::new(binary);
        command
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", &self.address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "function")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "group")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "stream");
        command
    }

    pub fn send(&self, event: &Value) {
        self.events.send(event.clone()).unwrap();
    }

    /// Returns the function's response to an event, or its error.
    pub async fn answer(&mut self) -> Value {
        timeout(TIMEOUT, self.answers.recv()).await.expect("an answer in time").unwrap()
    }

    pub fn has_response(&self) -> bool {
        !self.answers.is_empty()
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn event(State(channels): State<Channels>) -> Response {
    let Some(event) = channels.events.lock().await.recv().await else { return pending().await };
    let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + DEADLINE;
    let headers = [
        ("lambda-runtime-aws-request-id", crate::support::unique("request")),
        ("lambda-runtime-deadline-ms", deadline.as_millis().to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:1:function:function".to_owned()),
    ];
    (headers, Json(event)).into_response()
}

async fn answer(State(channels): State<Channels>, body: Bytes) -> StatusCode {
    channels.answers.send(serde_json::from_slice(&body).unwrap()).unwrap();
    StatusCode::ACCEPTED
}
