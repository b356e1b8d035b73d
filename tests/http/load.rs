//! Limits on running handlers, and requests whose clients have disconnected.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::post};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use lambda_once::{
    ErrorKind, Idempotency, MemoryStore,
    http::{Caller, GiveUpLayer, IdempotencyKeyLayer},
    store::fault::Call,
};
use tokio::{net::TcpStream, sync::Semaphore};
use tower::{ServiceBuilder, limit::GlobalConcurrencyLimitLayer};

use crate::{
    server::{Server, Watch, created},
    setup::{App, engine, gated, in_lambda, numbered, post as request, until},
};

/// The numbers of handlers that are running, ran at most simultaneously, and have run.
#[derive(Clone)]
pub(crate) struct Handlers {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    pub(crate) may_end: Arc<Semaphore>,
}

impl Handlers {
    pub(crate) fn new() -> Self {
        let counter = Arc::<AtomicUsize>::default;
        Self { running: counter(), most: counter(), begun: counter(), may_end: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) async fn run(self) -> http::Response<Body> {
        let run = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.may_end.acquire().await.unwrap().forget();
        self.running.fetch_sub(1, Ordering::SeqCst);
        created(run)
    }

    fn of(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }

    /// Completes when this many have begun.
    pub(crate) async fn have_begun(&self, handlers: usize) {
        until("the handlers begin", || Self::of(&self.begun) >= handlers).await;
    }
}

/// A client on one connection of HTTP/2.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    address: std::net::SocketAddr,
}

impl Client {
    async fn of(server: &Server) -> Self {
        let stream = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Self { sender, address: server.address }
    }

    /// Sends a request with this key.
    async fn send(&mut self, key: usize) -> ResponseFuture {
        let request = Request::post(format!("http://{}/charges", self.address))
            .header("idempotency-key", key)
            .header("x-watched", "1")
            .body(Full::from("{}"))
            .unwrap();
        self.sender.ready().await.unwrap();
        Box::pin(self.sender.send_request(request))
    }

    /// Sends a request with this key, and resets its stream as soon as the server has it.
    async fn reset(&mut self, key: usize, watch: &Watch) {
        let arrivals = watch.arrivals() + 1;
        let mut response = self.send(key).await;
        tokio::select! {
            biased;
            answer = &mut response => drop(answer.unwrap()),
            () = watch.arrived(arrivals) => {}
        }
        drop(response);
        watch.gone().await;
    }
}

type ResponseFuture =
    std::pin::Pin<Box<dyn Future<Output = hyper::Result<http::Response<hyper::body::Incoming>>> + Send>>;

fn layer() -> IdempotencyKeyLayer {
    IdempotencyKeyLayer::new(engine(), Caller::shared())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_streams_that_are_reset_no_more_run_than_are_allowed() {
    let (handlers, watch) = (Handlers::new(), Watch::default());
    let layer = layer().max_in_flight(4);
    let in_flight = layer.in_flight();
    let handler = handlers.clone();
    let app = Router::new().route("/charges", post(move || handler.run())).route_layer(layer).layer(watch.clone());
    let server = Server::start(app).await;
    let mut client = Client::of(&server).await;
    let mut streams = FuturesUnordered::new();
    for key in 1..=200 {
        streams.push(client.send(key).await);
    }
    for _ in 0..196 {
        assert_eq!(streams.next().await.unwrap().unwrap().status(), 503);
    }
    handlers.have_begun(4).await;
    drop(streams);
    for key in 1_001..=1_200 {
        client.reset(key, &watch).await;
    }
    let refused = server.post("/charges", "\"another\"", "{}").await;
    assert_eq!((refused.status, refused.code()), (503, "overloaded".to_owned()));
    assert_eq!((Handlers::of(&handlers.most), Handlers::of(&handlers.running)), (4, 4));

    // They end without their clients, and then there is room again.
    handlers.may_end.add_permits(5);
    in_flight.drain().await;
    assert_eq!(server.post("/charges", "\"another\"", "{}").await.status, 201);
    assert_eq!(Handlers::of(&handlers.most), 4);
}

// Tests P26.
#[tokio::test(start_paused = true)]
async fn beyond_the_limit_a_request_is_refused_before_its_claim() {
    for is_in_lambda in [false, true] {
        let go = Arc::new(Semaphore::new(0));
        let app = App::with(|engine| engine, |layer| layer.max_in_flight(2), gated(&go));
        let send = |key| {
            let request = request(key, "{}");
            app.send(if is_in_lambda { in_lambda(request) } else { request })
        };
        let meanwhile = async {
            app.begun(2).await;
            let before = app.calls(Call::Claim);
            let refused = send("c").await;
            assert_eq!((refused.status, refused.code()), (503, "overloaded".to_owned()));
            assert_eq!(refused.header("retry-after"), Some("1"));
            let problem: serde_json::Value = serde_json::from_slice(&refused.body).unwrap();
            assert_eq!(problem["retryable"], true);
            assert_eq!((app.calls(Call::Claim), app.runs()), (before, 2), "nothing is claimed");
            go.add_permits(3);
        };
        let (a, b, ()) = tokio::join!(send("a"), send("b"), meanwhile);
        assert_eq!((a.status, b.status), (201, 201));
        assert_eq!(send("c").await.status, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_another_one_holds_no_permit() {
    let go = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&go);
    let handler = move |run, request| {
        let gate = Arc::clone(&gate);
        async move {
            if run == 1 {
                gate.acquire().await.unwrap().forget();
            }
            numbered(run, request).await
        }
    };
    let patient = |layer: IdempotencyKeyLayer| layer.max_in_flight(2).wait_up_to(Duration::from_secs(20));
    let app = App::with(|engine| engine, patient, handler);
    let meanwhile = async {
        app.begun(1).await;
        let mut waiting = std::pin::pin!(app.post("k", "{}"));
        until("it has claimed its key", || {
            assert!(waiting.as_mut().now_or_never().is_none());
            app.calls(Call::Claim) == 2
        })
        .await;
        // Its claim has completed.
        tokio::task::yield_now().await;
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(app.post("other", "{}").await.status, 201);
        go.add_permits(1);
        assert!(waiting.await.is_replay());
    };
    let (first, ()) = tokio::join!(app.post("k", "{}"), meanwhile);
    assert_eq!((first.status, app.runs()), (201, 2));
}

#[test]
fn a_limit_of_no_handlers_is_a_contradiction() {
    assert_eq!(layer().max_in_flight(0).validate().unwrap_err().kind(), ErrorKind::Config);
    assert!(layer().max_in_flight(usize::MAX).validate().is_ok());
}

/// Runs a server with a queue for one handler inside the layer. Asserts that requests whose clients leave while they are in
/// the queue do not run, and that their claims are released.
async fn abandoned_in_a_queue(app: impl FnOnce(&Handlers, IdempotencyKeyLayer) -> Router) {
    let (handlers, watch) = (Handlers::new(), Watch::default());
    let layer = layer();
    let in_flight = layer.in_flight();
    let server = Server::start(app(&handlers, layer).layer(watch.clone())).await;
    let first = server.begin("first", "content-length: 2\r\n", "{}").await;
    handlers.have_begun(1).await;
    let mut client = Client::of(&server).await;
    for key in 1..=20 {
        client.reset(key, &watch).await;
    }
    drop(first);
    handlers.may_end.add_permits(1);
    in_flight.drain().await;
    assert_eq!(Handlers::of(&handlers.begun), 1, "what had not begun does not go on");
    // Its claim has been released, and the queue is empty.
    handlers.may_end.add_permits(1);
    assert_eq!(server.post("/charges", "20", "{}").await.body, "charge 2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_an_inner_queue_is_given_up_when_its_client_disconnects() {
    abandoned_in_a_queue(|handlers, layer| {
        let handler = handlers.clone();
        let handler = post(move || handler.run()).route_layer(GiveUpLayer::new());
        let handler = handler.route_layer(GlobalConcurrencyLimitLayer::new(1));
        Router::new().route("/charges", handler.route_layer(layer))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_in_the_same_stack_as_the_layer_is_waited_for_before_the_claim() {
    abandoned_in_a_queue(|handlers, layer| {
        let handler = handlers.clone();
        let stack = ServiceBuilder::new().layer(layer).layer(GlobalConcurrencyLimitLayer::new(1));
        Router::new().route("/charges", post(move || handler.run()).route_layer(stack))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_the_layer_around_it_nothing_is_given_up() {
    let once = Idempotency::builder(MemoryStore::new()).scope("tests").build().unwrap();
    let handlers = Handlers::new();
    handlers.may_end.add_permits(2);
    let handler = handlers.clone();
    let bare = post(move || handler.run()).route_layer(GiveUpLayer::new());
    let covered = bare.clone().route_layer(IdempotencyKeyLayer::new(once, Caller::shared()));
    for route in [bare, covered] {
        let request = Request::post("/charges").header("idempotency-key", "k").body(Body::from("{}")).unwrap();
        let app = Router::new().route("/charges", route);
        assert_eq!(tower::ServiceExt::oneshot(app, request).await.unwrap().status(), 201);
    }
}
