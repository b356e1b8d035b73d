//! Runs a function's binary as Lambda does, with the test as its Runtime API.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use aws_sdk_dynamodb::{
    Client,
    config::{BehaviorVersion, Credentials, Region},
    types::{AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType},
};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
    sync::{Mutex, mpsc},
    task::JoinHandle,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A running function, with separate tables on DynamoDB Local.
pub struct Environment {
    client: Client,
    ledger: String,
    events: mpsc::UnboundedSender<Value>,
    answers: mpsc::UnboundedReceiver<Value>,
    server: JoinHandle<()>,
    _process: Child,
}

struct RuntimeApi {
    events: Mutex<mpsc::UnboundedReceiver<Value>>,
    answers: mpsc::UnboundedSender<Value>,
}

impl Environment {
    pub async fn start(binary: &str, environment: &[(&str, &str)]) -> Self {
        let endpoint =
            std::env::var("DYNAMODB_ENDPOINT").expect("DYNAMODB_ENDPOINT is not set: run the tests by `make test`");
        let client = client(&endpoint);
        let (records, ledger) = (unique("records"), unique("ledger"));
        create_table(&client, &records, "id").await;
        create_table(&client, &ledger, "entry_id").await;

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (events, incoming) = mpsc::unbounded_channel();
        let (outgoing, answers) = mpsc::unbounded_channel();
        let api = Arc::new(RuntimeApi { events: Mutex::new(incoming), answers: outgoing });
        let server = tokio::spawn(serve(listener, api));
        let process = Command::new(binary)
            .env_clear()
            .env("AWS_LAMBDA_RUNTIME_API", address.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", "function")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "group")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "stream")
            .env("AWS_ENDPOINT_URL_DYNAMODB", endpoint)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("IDEMPOTENCY_TABLE", records)
            .env("LEDGER_TABLE", &ledger)
            .envs(environment.iter().copied())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { client, ledger, events, answers, server, _process: process }
    }

    /// Returns the function's response, or its error if it failed.
    pub async fn invoke(&mut self, event: &Value) -> Value {
        self.events.send(event.clone()).unwrap();
        tokio::time::timeout(TIMEOUT, self.answers.recv()).await.expect("an answer in time").expect("an answer")
    }

    /// Returns the number of times that an operation took effect.
    pub async fn effects(&self, key: &str) -> usize {
        self.rows().await.iter().filter(|row| row["key"].as_s().unwrap() == key).count()
    }

    /// Returns the keys of a party's operations, in the order in which they took effect.
    pub async fn keys_in_order(&self, party: &str) -> Vec<String> {
        let mut rows = self.rows().await;
        rows.retain(|row| row["party_id"].as_s().unwrap() == party);
        rows.sort_by_key(|row| row["at"].as_n().unwrap().parse::<u64>().unwrap());
        rows.iter().map(|row| row["key"].as_s().unwrap().clone()).collect()
    }

    async fn rows(&self) -> Vec<HashMap<String, AttributeValue>> {
        let rows = self.client.scan().table_name(&self.ledger).consistent_read(true).send().await.unwrap();
        rows.items().to_vec()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, api: Arc<RuntimeApi>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let api = Arc::clone(&api);
        let service = service_fn(move |request| answer(Arc::clone(&api), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(api: Arc<RuntimeApi>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    if request.method() == Method::GET && path.ends_with("/invocation/next") {
        let Some(event) = api.events.lock().await.recv().await else { return std::future::pending().await };
        let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + TIMEOUT;
        let next = Response::builder()
            .header("lambda-runtime-aws-request-id", unique("request"))
            .header("lambda-runtime-deadline-ms", deadline.as_millis().to_string())
            .header("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:1:function:function");
        return Ok(next.body(event.to_string().into()).unwrap());
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value =
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).into_owned()));
    let _ = api.answers.send(body);
    Ok(Response::builder().status(StatusCode::ACCEPTED).body(Full::default()).unwrap())
}

fn client(endpoint: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"));
    Client::from_conf(config.build())
}

async fn create_table(client: &Client, table: &str, key: &str) {
    let attribute = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S);
    let element = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash);
    let create = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let create = create.attribute_definitions(attribute.build().unwrap()).key_schema(element.build().unwrap());
    create.send().await.unwrap();
}

/// Returns a name that no other test of any run uses.
fn unique(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    format!("{prefix}-{now}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}
