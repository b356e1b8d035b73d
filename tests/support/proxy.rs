//! An HTTP/1.1 proxy that stands between the real DynamoDB client and a real DynamoDB endpoint.
//!
//! It records every request and plays the faults a test asks for, without ever sleeping. Each
//! attempt of the client counts as a request, and outlives the client as on a real network.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http_body_util::{BodyExt, Full};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

/// A request that the proxy has seen, and its fate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// The DynamoDB operation, such as `UpdateItem`; empty if the request names none.
    pub operation: String,
    /// The body of the request; `Null` if it is not JSON.
    pub body: Value,
    /// The status the client was given; `None` while it waits, and for good if it got no answer.
    pub status: Option<StatusCode>,
    /// The status DynamoDB gave; `None` until it answers, and for good if it was never asked.
    pub upstream_status: Option<StatusCode>,
}

/// A running proxy; it stops, and closes its connections, when dropped.
pub struct Proxy {
    endpoint: String,
    state: Arc<Mutex<State>>,
    server: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy on a free local port, in front of `upstream` (`http://127.0.0.1:PORT`).
    pub async fn start(upstream: &str) -> Self {
        let upstream = upstream.trim_start_matches("http://").parse().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("a port"));
        let mut server = JoinSet::new();
        server.spawn(accept(listener, upstream, Arc::clone(&state)));
        Self { endpoint, state, server }
    }

    /// The URL to give to the client as its endpoint.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Every request seen since the start or the last `reset`, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        let state = self.state.lock().unwrap();
        state.calls.iter().map(|call| call.lock().unwrap().clone()).collect()
    }

    /// How many requests were seen.
    pub fn count(&self) -> usize {
        self.calls().len()
    }

    /// How many requests for this operation were seen.
    pub fn count_of(&self, operation: &str) -> usize {
        let calls = self.calls().into_iter();
        calls.filter(|call| call.operation == operation).count()
    }

    /// Forgets the calls seen so far; the faults that wait stay.
    pub fn reset(&self) {
        self.state.lock().unwrap().calls.clear();
    }

    /// How many faults have strikes left: 0 shows that the test got every fault it asked for.
    pub fn pending_faults(&self) -> usize {
        self.state.lock().unwrap().rules.len()
    }

    /// Prepares a fault for the next request for this operation.
    pub fn on(&self, operation: &str) -> Fault<'_> {
        let operation = operation.to_owned();
        self.on_matching(move |request| request.operation == operation)
    }

    /// Prepares a fault for the next request that `wanted` accepts.
    pub fn on_matching(&self, wanted: impl Fn(&Call) -> bool + Send + 'static) -> Fault<'_> {
        let rule = Rule { wanted: Box::new(wanted), skip: 0, times: 1, action: Action::Forward };
        Fault { proxy: self, rule }
    }
}

/// A fault to describe and queue; of several that fit a request, the first queued takes it.
#[must_use = "say what the fault does"]
pub struct Fault<'a> {
    proxy: &'a Proxy,
    rule: Rule,
}

impl Fault<'_> {
    /// Strikes from the `nth` matching request on, counted from 1 and from when it was queued.
    pub fn nth(mut self, nth: usize) -> Self {
        self.rule.skip = nth.checked_sub(1).expect("nth counts from 1");
        self
    }

    /// Strikes this many requests instead of one; a handle then stands for all of them, in order.
    pub fn times(mut self, times: usize) -> Self {
        assert!(times > 0, "a fault strikes at least once");
        self.rule.times = times;
        self
    }

    /// The request is applied, but the connection closes without an answer.
    pub fn drop_response(self) {
        self.queue(Action::Answer(None, true));
    }

    /// The connection closes without an answer, and the request is not applied.
    pub fn drop_request(self) {
        self.queue(Action::Answer(None, false));
    }

    /// The connection closes at once; the request is applied when the test delivers it.
    pub fn deliver_late(self) -> LateRequest {
        self.late(false)
    }

    /// As `deliver_late`, but the connection stays open and silent until the client gives up.
    pub fn hang(self) -> LateRequest {
        self.late(true)
    }

    /// The request waits in front of DynamoDB, and the client with it, until it is released.
    pub fn hold(self) -> Held {
        let (arrivals, coming) = unbounded_channel();
        let (release, gate) = unbounded_channel();
        let gate = Arc::new(tokio::sync::Mutex::new(gate));
        self.queue(Action::Hold(arrivals, gate));
        Held { coming, release }
    }

    /// The client gets this answer, and the request is not applied.
    pub fn respond(self, status: u16, body: Value) {
        self.answer(status, &body, false);
    }

    /// DynamoDB throttles the request; the client may retry.
    pub fn throttle(self) {
        self.fail(400, "ProvisionedThroughputExceededException", false);
    }

    /// DynamoDB fails without applying the request; the client may retry.
    pub fn internal_error(self) {
        self.fail(500, "InternalServerError", false);
    }

    /// DynamoDB says that it failed, although it applied the request.
    pub fn internal_error_after(self) {
        self.fail(500, "InternalServerError", true);
    }

    /// The client lacks the permission for this request.
    pub fn access_denied(self) {
        self.fail(400, "AccessDeniedException", false);
    }

    /// DynamoDB refuses the request as invalid.
    pub fn validation(self) {
        self.fail(400, "ValidationException", false);
    }

    /// The statement at this place of a batch fails with this code, without being applied; the others are executed.
    pub fn fail_member(self, place: usize, code: &'static str) {
        self.queue(Action::FailMember { place, code, apply: false });
    }

    /// As `fail_member`, but the statement is applied.
    pub fn fail_member_after(self, place: usize, code: &'static str) {
        self.queue(Action::FailMember { place, code, apply: true });
    }

    fn fail(self, status: u16, code: &str, apply: bool) {
        let code = format!("com.amazonaws.dynamodb.v20120810#{code}");
        let body = json!({ "__type": code, "message": "injected by the test" });
        self.answer(status, &body, apply);
    }

    fn answer(self, status: u16, body: &Value, apply: bool) {
        let mut answer = Response::new(Bytes::from(body.to_string()));
        *answer.status_mut() = StatusCode::from_u16(status).expect("a valid status");
        self.queue(Action::Answer(Some(answer), apply));
    }

    fn late(self, hang: bool) -> LateRequest {
        let (arrivals, coming) = unbounded_channel();
        let (parcels, kept) = unbounded_channel();
        self.queue(Action::Late(arrivals, parcels, hang));
        LateRequest { coming, kept }
    }

    fn queue(mut self, action: Action) {
        self.rule.action = action;
        self.proxy.state.lock().unwrap().rules.push(self.rule);
    }
}

/// A request kept back until the test delivers it; dropping this loses the request for good.
#[must_use = "a dropped handle loses the request"]
pub struct LateRequest {
    coming: UnboundedReceiver<Call>,
    kept: UnboundedReceiver<Parcel>,
}

impl LateRequest {
    /// Waits for the next request this fault keeps back; panics if no further one can come.
    pub async fn arrived(&mut self) -> Call {
        next(&mut self.coming).await
    }

    /// Sends the oldest request kept back to DynamoDB, after waiting for one if need be.
    pub async fn deliver(&mut self) -> (StatusCode, Bytes) {
        let answer = next(&mut self.kept).await.forward().await;
        (answer.status(), answer.into_body())
    }
}

/// A request that waits, with its client; dropping this closes the connection of what waits.
#[must_use = "a dropped handle closes the connection"]
pub struct Held {
    coming: UnboundedReceiver<Call>,
    release: UnboundedSender<()>,
}

impl Held {
    /// Waits for the next request this fault holds; panics if no further one can come.
    pub async fn arrived(&mut self) -> Call {
        next(&mut self.coming).await
    }

    /// Lets one request go on: the oldest held, or else the next to come.
    pub fn release(&self) {
        let _ = self.release.send(()); // fails only if no request is left to release
    }
}

/// What was seen and what is queued, under one lock so that they agree on the order.
#[derive(Default)]
struct State {
    calls: Vec<Arc<Mutex<Call>>>,
    rules: Vec<Rule>,
}

impl State {
    /// Records a request and decides what happens to it.
    fn enter(&mut self, call: Call) -> (Arc<Mutex<Call>>, Action) {
        let mut action = None;
        for rule in self.rules.iter_mut().filter(|rule| (rule.wanted)(&call)) {
            if rule.skip > 0 {
                rule.skip -= 1; // every match counts, even one that an earlier fault takes
            } else if action.is_none() {
                rule.times -= 1;
                action = Some(rule.action.clone());
            }
        }
        self.rules.retain(|rule| rule.times > 0);
        let call = Arc::new(Mutex::new(call));
        self.calls.push(Arc::clone(&call));
        (call, action.unwrap_or(Action::Forward))
    }
}

/// A queued fault: it lets some matching requests pass, then strikes some.
struct Rule {
    wanted: Box<dyn Fn(&Call) -> bool + Send>,
    skip: usize,
    times: usize,
    action: Action,
}

/// What happens to a request.
#[derive(Clone)]
enum Action {
    Forward,
    /// The client gets this answer, or none; the flag says whether the request is applied.
    Answer(Option<Response<Bytes>>, bool),
    /// The test gets it and the client no answer; the flag says whether the connection hangs.
    Late(UnboundedSender<Call>, UnboundedSender<Parcel>, bool),
    /// Of a batch, one statement's answer is this error; the flag says whether it is applied.
    FailMember {
        place: usize,
        code: &'static str,
        apply: bool,
    },
    /// It waits for a message, and then passes.
    Hold(UnboundedSender<Call>, Arc<tokio::sync::Mutex<UnboundedReceiver<()>>>),
}

/// A whole request, which can be sent upstream at any time.
struct Parcel {
    upstream: SocketAddr,
    request: hyper::Request<Full<Bytes>>,
    call: Arc<Mutex<Call>>,
}

impl Parcel {
    /// Sends the request upstream, and waits for the whole answer.
    async fn forward(self) -> Response<Bytes> {
        let exchange = async {
            let stream = TokioIo::new(TcpStream::connect(self.upstream).await?);
            let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
            tokio::spawn(connection);
            let (head, body) = sender.send_request(self.request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok::<_, Box<dyn std::error::Error>>(Response::from_parts(head, body))
        };
        let answer = exchange.await.expect("DynamoDB answers the proxy");
        self.call.lock().unwrap().upstream_status = Some(answer.status());
        answer
    }

    /// Sends the batch upstream, with or without one statement, whose answer becomes an error.
    async fn forward_but(mut self, place: usize, code: &str, apply: bool) -> Response<Bytes> {
        let mut batch = self.call.lock().unwrap().body.clone();
        let statements = batch["Statements"].as_array_mut().expect("a batch of statements");
        assert!(place < statements.len(), "the batch has no statement {place}");
        if !apply {
            statements.remove(place);
        }
        let mut answers = json!({ "Responses": [] });
        let mut head = Response::new(()).into_parts().0;
        if !statements.is_empty() {
            let body = Bytes::from(batch.to_string());
            self.request.headers_mut().insert("content-length", body.len().into());
            *self.request.body_mut() = Full::new(body);
            let (parts, body) = self.forward().await.into_parts();
            head = parts;
            answers = serde_json::from_slice(&body).expect("DynamoDB answers in JSON");
        }
        let responses = answers["Responses"].as_array_mut().expect("an answer for each statement");
        let error = json!({ "Error": { "Code": code, "Message": "injected by the test" } });
        if apply {
            responses[place] = error;
        } else {
            responses.insert(place, error);
        }
        head.headers.remove("content-length");
        head.headers.remove("x-amz-crc32");
        Response::from_parts(head, Bytes::from(answers.to_string()))
    }

    /// Does with the request what the action says, and returns the answer for the client.
    async fn undergo(self, action: Action) -> Option<Response<Bytes>> {
        match action {
            Action::Forward => Some(self.forward().await),
            Action::Answer(answer, false) => answer,
            Action::Answer(answer, true) => {
                self.forward().await;
                answer
            }
            Action::FailMember { place, code, apply } => Some(self.forward_but(place, code, apply).await),
            Action::Late(arrivals, parcels, _) => {
                let _ = arrivals.send(self.call.lock().unwrap().clone());
                let _ = parcels.send(self); // fails if the test dropped the handle
                None
            }
            Action::Hold(arrivals, gate) => {
                let _ = arrivals.send(self.call.lock().unwrap().clone());
                gate.lock().await.recv().await?;
                Some(self.forward().await)
            }
        }
    }
}

/// Accepts connections; they end with this task.
async fn accept(listener: TcpListener, upstream: SocketAddr, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true); // fails only if the client has left already
        let state = Arc::clone(&state);
        let service = hyper::service::service_fn(move |request| serve(request, upstream, Arc::clone(&state)));
        let server = hyper::server::conn::http1::Builder::new();
        connections.spawn(server.serve_connection(TokioIo::new(stream), service));
    }
}

/// Serves one request; an error makes hyper close the connection without an answer.
async fn serve(
    request: hyper::Request<Incoming>,
    upstream: SocketAddr,
    state: Arc<Mutex<State>>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let target = head.headers.get("x-amz-target");
    let target = target.map_or("", |value| value.to_str().unwrap_or_default());
    let (call, action) = state.lock().unwrap().enter(Call {
        operation: target.rsplit('.').next().unwrap_or_default().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        ..Call::default()
    });
    let hang = matches!(action, Action::Late(_, _, true));
    let request = hyper::Request::from_parts(head, Full::new(body));
    let parcel = Parcel { upstream, request, call: Arc::clone(&call) };
    // A task of its own: hyper drops this future when the client leaves, but the request lives on.
    let answer = tokio::spawn(parcel.undergo(action)).await?;
    if hang {
        std::future::pending::<()>().await;
    }
    let answer = answer.ok_or(io::ErrorKind::ConnectionAborted)?;
    call.lock().unwrap().status = Some(answer.status());
    Ok(answer.map(Full::new))
}

/// Waits for the next request of a fault, and fails the test if none comes in half a minute.
async fn next<T>(coming: &mut UnboundedReceiver<T>) -> T {
    let next = tokio::time::timeout(std::time::Duration::from_secs(30), coming.recv()).await;
    next.expect("in time").expect("a request left to come")
}
