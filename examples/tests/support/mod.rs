//! Runs the example's binaries as processes.

pub mod network;

use std::{
    process::{Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::SystemTime,
};

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout, Command},
};

/// A running `payments`, killed when it is dropped.
pub struct Payments {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    /// Kept open, so that the process can write to it.
    _output: Lines<BufReader<ChildStdout>>,
    pub url: String,
}

/// A response with its body.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Payments {
    /// Starts it on a free port. `delay_ms` is the duration of a charge.
    pub async fn start(delay_ms: u64) -> Self {
        Self::start_with(&[("DELAY_MS", &delay_ms.to_string())]).await
    }

    /// Starts it on a free port, with these environment variables.
    pub async fn start_with(environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_payments"))
            .arg("127.0.0.1:0")
            .env_remove("IDEMPOTENCY_TABLE")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
        let log = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = output.next_line().await.unwrap().expect("the process prints its address");
        let url = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { process, log, _output: output, url }
    }

    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    pub async fn send(&self, method: Method, token: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/accounts/1/charges", self.url))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let (head, body) = client.request(request).await.unwrap().into_parts();
        Answer { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    pub async fn charge(&self, token: &str, key: &str, body: &str) -> Answer {
        self.send(Method::POST, token, &[("idempotency-key", key)], body).await
    }

    /// The charges to account 1.
    pub async fn charges(&self, token: &str) -> Vec<Value> {
        self.send(Method::GET, token, &[], "").await.json().as_array().unwrap().clone()
    }

    /// Reads the log up to a line with this text, and returns the lines.
    pub async fn logged(&mut self, text: &str) -> String {
        let mut read = String::new();
        while let Some(line) = self.log.next_line().await.unwrap() {
            read += &format!("{line}\n");
            if line.contains(text) {
                return read;
            }
        }
        panic!("the process ended before it logged {text:?}:\n{read}");
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let id = i32::try_from(self.process.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    }

    /// Waits for its exit. Returns the exit code and the rest of the log.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        while let Some(line) = self.log.next_line().await.unwrap() {
            rest += &format!("{line}\n");
        }
        (self.process.wait().await.unwrap().code(), rest)
    }
}

/// Runs `client` to completion.
pub async fn client(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
    command.args(arguments).envs(environment.iter().copied()).kill_on_drop(true).output().await.unwrap()
}

/// Its output.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The endpoint of DynamoDB Local, and a client of it.
pub fn dynamodb() -> (String, aws_sdk_dynamodb::Client) {
    let endpoint =
        std::env::var("DYNAMODB_ENDPOINT").expect("DYNAMODB_ENDPOINT is not set: run the tests by `make test`");
    let client = dynamodb_at(&endpoint);
    (endpoint, client)
}

/// A client of this endpoint.
pub fn dynamodb_at(endpoint: &str) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"));
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// A name that no other test of any run uses.
pub fn unique(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}_{now}_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
