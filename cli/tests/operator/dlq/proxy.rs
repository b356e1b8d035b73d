//! A proxy in front of MiniStack that fails chosen calls.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

use crate::support::server;

/// The fate of a call.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Forward,
    /// It does not reach SQS, and gets no response.
    Hang,
    /// It reaches SQS, and its response is lost.
    LoseAnswer,
    /// The response, which has the shape of AWS's API model, instead of MiniStack's.
    Answer(String),
    /// The caller lacks the permission.
    Deny,
}

const DENIED: &str = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"not authorized"}"#;

/// A running proxy. It stops when dropped.
pub(super) struct Proxy {
    pub(super) url: String,
    /// The operations so far.
    pub(super) calls: Arc<Mutex<Vec<String>>>,
    hung: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy that decides on each call by its operation, such as `SendMessageBatch`.
    pub(super) async fn start(decide: impl Fn(&str) -> Fate + Send + Sync + 'static) -> Self {
        Self::with_bodies(move |operation, _| decide(operation)).await
    }

    /// Starts a proxy that decides on each call by its operation and its body.
    pub(super) async fn with_bodies(decide: impl Fn(&str, &str) -> Fate + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (calls, hung) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Notify::new()));
        let (decide, counted, notify) = (Arc::new(decide), Arc::clone(&calls), Arc::clone(&hung));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (decide, calls, hung) = (Arc::clone(&decide), Arc::clone(&counted), Arc::clone(&notify));
                connections.spawn(async move {
                    // A client that is gone is no failure of the test.
                    let _ = serve(stream, &*decide, &calls, &hung).await;
                });
            }
        });
        Self { url, calls, hung, _tasks: tasks }
    }

    /// Waits until a call hangs.
    pub(super) async fn hangs(&self) {
        self.hung.notified().await;
    }

    pub(super) fn count(&self, operation: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| *call == operation).count()
    }
}

/// Serves one request a connection.
async fn serve(
    stream: TcpStream,
    decide: &(dyn Fn(&str, &str) -> Fate + Send + Sync),
    calls: &Mutex<Vec<String>>,
    hung: &Notify,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut operation, mut length) = (String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let lower = line.to_ascii_lowercase();
        if let Some(target) = lower.strip_prefix("x-amz-target:") {
            let start = line.len() - target.len();
            operation = line[start..].trim().trim_start_matches("AmazonSQS.").to_owned();
        } else if let Some(text) = lower.strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        if !lower.starts_with("connection:") {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    calls.lock().unwrap().push(operation.clone());
    let fate = decide(&operation, &String::from_utf8_lossy(&body));
    match fate {
        Fate::Hang => {
            hung.notify_one();
            // Until the client is gone.
            stream.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        Fate::Answer(json) => answer(&mut stream, "200 OK", &json).await?,
        Fate::Deny => answer(&mut stream, "403 Forbidden", DENIED).await?,
        Fate::Forward | Fate::LoseAnswer => {
            let endpoint = server("MINISTACK_ENDPOINT");
            let mut upstream = TcpStream::connect(endpoint.trim_start_matches("http://")).await?;
            upstream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await?;
            upstream.write_all(&body).await?;
            let mut answer = Vec::new();
            upstream.read_to_end(&mut answer).await?;
            if matches!(fate, Fate::Forward) {
                stream.write_all(&answer).await?;
            }
        }
    }
    stream.shutdown().await
}

async fn answer(stream: &mut BufReader<TcpStream>, status: &str, json: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        json.len()
    );
    stream.write_all((head + json).as_bytes()).await
}
