//! An HTTP/1.1 server that responds like SQS and records its requests.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use aws_config::{BehaviorVersion, Region, retry::RetryConfig};
use aws_sdk_sqs::{Client, config::Credentials};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// A received request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) operation: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// A running server. It stops and closes its connections when dropped.
pub(crate) struct Server {
    address: String,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    answers: VecDeque<(u16, Value)>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, _tasks: tasks }
    }

    /// Returns the host and the port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns a client with this server as its endpoint, without retries.
    pub(crate) async fn client(&self) -> Client {
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(format!("http://{}", self.address))
            .region(Region::from_static("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .retry_config(RetryConfig::disabled())
            .load()
            .await;
        Client::new(&config)
    }

    /// Sets the response to the next request without one.
    pub(crate) fn answer(&self, status: u16, body: Value) {
        self.state.lock().unwrap().answers.push_back((status, body));
    }

    /// Responds like SQS if a permission is missing.
    pub(crate) fn deny(&self) {
        self.answer(403, json!({ "__type": "com.amazon.coral.service#AccessDenied", "message": "not for you" }));
    }

    /// Returns the requests since the previous call, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }

    /// Returns the bodies of the requests, which must all be for this operation.
    pub(crate) fn bodies(&self, operation: &str) -> Vec<Value> {
        let body = |call: Call| {
            assert_eq!(call.operation, operation);
            call.body
        };
        self.calls().into_iter().map(body).collect()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = hyper::service::service_fn(move |request| serve(request, Arc::clone(&state)));
        connections.spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(request: Request<Incoming>, state: Arc<Mutex<State>>) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let header = |name: &str| head.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    assert_eq!((head.method.as_str(), &*header("content-type")), ("POST", "application/x-amz-json-1.0"));
    let operation = header("x-amz-target").strip_prefix("AmazonSQS.").unwrap().to_owned();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let mut state = state.lock().unwrap();
    let (status, answer) = state.answers.pop_front().unwrap_or_else(|| (200, success(&operation, &body)));
    state.calls.push(Call { operation, host: header("host"), path: head.uri.path().to_owned(), body });
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0".parse().unwrap());
    Ok(response)
}

fn success(operation: &str, body: &Value) -> Value {
    if operation == "SendMessage" {
        return json!({ "MessageId": "5fea7756-0ea4-451a-a703-a558b933e274" });
    }
    let ids = body["Entries"].as_array().unwrap().iter().map(|entry| json!({ "Id": entry["Id"] }));
    json!({ "Successful": ids.collect::<Vec<_>>(), "Failed": [] })
}
