//! The store of the benchmark: an embedded DynamoDB behind fronts that count requests and delay them.
//!
//! `endpoint LATENCY_MS…` prints its fronts as a line of JSON, one per latency, and runs until standard input ends.

use std::{
    convert::Infallible,
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use benches::endpoint::{COUNTS, Counts, Front};
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client, server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use local_stack::EmbeddedDynamoDb;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

type Upstream = Mutex<client::conn::http1::SendRequest<Incoming>>;
type Answer = Response<Either<Incoming, Full<Bytes>>>;

struct Gate {
    latency: Duration,
    store: String,
    requests: AtomicU64,
    connections: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let dynamodb = EmbeddedDynamoDb::start()?;
    let store = dynamodb.endpoint().strip_prefix("http://").context("a plain address")?.to_owned();
    let mut fronts = Vec::new();
    for argument in env::args().skip(1) {
        let latency_ms = argument.parse().context("a latency in milliseconds")?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        fronts.push(Front { latency_ms, url: format!("http://{}", listener.local_addr()?) });
        let gate = Gate {
            latency: Duration::from_millis(latency_ms),
            store: store.clone(),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        };
        tokio::spawn(listen(listener, Arc::new(gate)));
    }
    println!("{}", serde_json::to_string(&fronts)?);
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

async fn listen(listener: TcpListener, gate: Arc<Gate>) {
    while let Ok((stream, _)) = listener.accept().await {
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            if let Err(error) = serve(stream, gate).await {
                eprintln!("endpoint: {error:#}");
            }
        });
    }
}

/// Serves one connection, over a separate one to the store.
async fn serve(stream: TcpStream, gate: Arc<Gate>) -> Result<()> {
    let upstream = TcpStream::connect(&gate.store).await?;
    upstream.set_nodelay(true)?;
    stream.set_nodelay(true)?;
    let (sender, connection) = client::conn::http1::handshake(TokioIo::new(upstream)).await?;
    tokio::spawn(connection);
    let sender: Arc<Upstream> = Arc::new(Mutex::new(sender));
    let seen = Arc::new(AtomicBool::new(false));
    let service = service_fn(move |request| {
        let (gate, sender, seen) = (Arc::clone(&gate), Arc::clone(&sender), Arc::clone(&seen));
        async move { Ok::<_, Infallible>(answer(request, &gate, &sender, &seen).await.unwrap_or_else(failure)) }
    });
    // A client that disconnects is not a failure.
    let _ = server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    Ok(())
}

async fn answer(request: Request<Incoming>, gate: &Gate, sender: &Upstream, seen: &AtomicBool) -> Result<Answer> {
    if request.uri().path() == COUNTS {
        let counts = Counts {
            requests: gate.requests.load(Ordering::SeqCst),
            connections: gate.connections.load(Ordering::SeqCst),
        };
        return Ok(Response::new(Either::Right(serde_json::to_vec(&counts)?.into())));
    }
    gate.requests.fetch_add(1, Ordering::SeqCst);
    if !seen.swap(true, Ordering::SeqCst) {
        gate.connections.fetch_add(1, Ordering::SeqCst);
    }
    if !gate.latency.is_zero() {
        tokio::time::sleep(gate.latency).await;
    }
    let mut sender = sender.lock().await;
    sender.ready().await?;
    Ok(sender.send_request(request).await?.map(Either::Left))
}

fn failure(error: anyhow::Error) -> Answer {
    let mut answer = Response::new(Either::Right(format!("{error:#}").into()));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
