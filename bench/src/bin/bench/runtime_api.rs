//! Lambda's Runtime API for one function, as far as the first invocation needs it.
//! <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html>

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::{Mutex, mpsc},
    task::JoinHandle,
    time::timeout,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The Runtime API of one function. It ends when dropped.
pub(crate) struct RuntimeApi {
    pub(crate) address: SocketAddr,
    asked: mpsc::UnboundedReceiver<Instant>,
    events: mpsc::UnboundedSender<String>,
    answers: mpsc::UnboundedReceiver<(Instant, Bytes)>,
    server: JoinHandle<()>,
}

struct Shared {
    asked: mpsc::UnboundedSender<Instant>,
    events: Mutex<mpsc::UnboundedReceiver<String>>,
    answers: mpsc::UnboundedSender<(Instant, Bytes)>,
}

impl RuntimeApi {
    pub(crate) async fn listen() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (ask, asked) = mpsc::unbounded_channel();
        let (events, incoming) = mpsc::unbounded_channel();
        let (answer, answers) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { asked: ask, events: Mutex::new(incoming), answers: answer });
        let server = tokio::spawn(serve(listener, shared));
        Ok(Self { address, asked, events, answers, server })
    }

    /// Waits until the function requests its next event, and returns the time of the request.
    pub(crate) async fn asked(&mut self) -> Result<Instant> {
        timeout(TIMEOUT, self.asked.recv()).await?.context("the function's question for an event")
    }

    /// Sends an event to the function. Returns the time until its response, and the response.
    pub(crate) async fn invoke(&mut self, event: String) -> Result<(Duration, Bytes)> {
        let sent = Instant::now();
        self.events.send(event)?;
        let (at, answer) = timeout(TIMEOUT, self.answers.recv()).await?.context("the function's answer")?;
        Ok((at - sent, answer))
    }
}

impl Drop for RuntimeApi {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A function does not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| {
            let shared = Arc::clone(&shared);
            async move { Ok::<_, Infallible>(answer(request, &shared).await.unwrap_or_else(failure)) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Result<Response<Full<Bytes>>> {
    if request.method() == Method::GET && request.uri().path().ends_with("/invocation/next") {
        shared.asked.send(Instant::now())?;
        let event = shared.events.lock().await.recv().await.context("an event")?;
        let deadline = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + TIMEOUT;
        let next = Response::builder()
            .header("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd")
            .header("lambda-runtime-deadline-ms", deadline.as_millis().to_string())
            .header("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:orders");
        return Ok(next.body(event.into())?);
    }
    let body = request.into_body().collect().await?.to_bytes();
    shared.answers.send((Instant::now(), body))?;
    Ok(Response::builder().status(StatusCode::ACCEPTED).body(Full::default())?)
}

fn failure(error: anyhow::Error) -> Response<Full<Bytes>> {
    let mut response = Response::new(format!("{error:#}").into());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
