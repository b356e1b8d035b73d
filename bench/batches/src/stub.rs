//! A client for DynamoDB without a network: the process itself responds, as if every condition held.

use std::{
    fmt::Write,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use aws_sdk_dynamodb::{
    Client,
    config::{
        BehaviorVersion, Builder, Credentials, HttpClient, Region, RuntimeComponents, SharedHttpClient,
        retry::RetryConfig, timeout::TimeoutConfig,
    },
};
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
};
use aws_smithy_types::body::SdkBody;
use memchr::memmem;

/// The maximum number of statements in a request.
const STATEMENTS: usize = 25;

/// The timeouts of an attempt, and of a call with its retries.
const ATTEMPT: Duration = Duration::from_secs(1);
const OPERATION: Duration = Duration::from_secs(3);

static INSERTS: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of `INSERT`s that were sent in this process.
pub fn inserts() -> usize {
    INSERTS.load(Ordering::Relaxed)
}

/// Creates a client that gets responses after `latency`, or without one immediately, in the poll that sends the
/// request.
pub fn client(latency: Duration) -> Client {
    // As the library configures it for a function, without the values from the environment.
    let time_outs = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).operation_timeout(OPERATION);
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .retry_config(RetryConfig::standard().with_max_attempts(2))
        .timeout_config(time_outs.build())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("access", "secret", None, None, "stub"))
        .http_client(SharedHttpClient::new(Stub::new(latency)));
    Client::from_conf(config.build())
}

/// Responds to each request like DynamoDB after an applied write.
#[derive(Clone, Debug)]
struct Stub {
    latency: Duration,
    /// The responses to batches, by their number of statements.
    batches: Vec<&'static str>,
}

impl Stub {
    fn new(latency: Duration) -> Self {
        let batch = |statements: usize| {
            let mut text = r#"{"Responses":["#.to_owned();
            for i in 0..statements {
                let _ = write!(text, r#"{}{{"TableName":"records"}}"#, if i > 0 { "," } else { "" });
            }
            &*(text + "]}").leak()
        };
        Self { latency, batches: (0..=STATEMENTS).map(batch).collect() }
    }
}

/// Returns the response to a request. `make instructions` does not count this.
#[inline(never)]
fn stub_response(stub: &Stub, request: HttpRequest) -> HttpResponse {
    let body = request.body().bytes().unwrap_or_default();
    let statements = memmem::find_iter(body, "\"Statement\":").count();
    if memmem::find(&body[..body.len().min(64)], b"INSERT").is_some() {
        INSERTS.fetch_add(statements, Ordering::Relaxed);
    }
    let text = stub.batches.get(statements).filter(|_| statements > 0).copied().unwrap_or("{}");
    drop(request);
    let mut response = HttpResponse::new(http::StatusCode::OK.into(), SdkBody::from(text));
    response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    response
}

impl HttpConnector for Stub {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let response = stub_response(self, request);
        if self.latency.is_zero() {
            return HttpConnectorFuture::ready(Ok(response));
        }
        let latency = self.latency;
        HttpConnectorFuture::new(async move {
            tokio::time::sleep(latency).await;
            Ok(response)
        })
    }
}

impl HttpClient for Stub {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
