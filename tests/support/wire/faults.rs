//! Faults that a test requests, and handles for the affected requests.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{Parcel, Proxy, Request, Response};

/// A fault to describe and queue. Of several that match a request, the first queued one applies.
///
/// If a fault ends a connection, later requests of the client on it are lost.
#[must_use = "say what the fault does"]
pub struct Fault<'a> {
    proxy: &'a Proxy,
    rule: Rule,
}

impl<'a> Fault<'a> {
    pub(super) fn new(proxy: &'a Proxy, wanted: impl Fn(&Request) -> bool + Send + 'static) -> Self {
        Self { proxy, rule: Rule { wanted: Box::new(wanted), skip: 0, times: 1, action: Action::Forward } }
    }

    /// Applies the fault from the `nth` matching request on, counted from 1 since it was queued.
    pub fn nth(mut self, nth: usize) -> Self {
        self.rule.skip = nth.checked_sub(1).expect("nth counts from 1");
        self
    }

    /// Applies the fault to this many requests instead of one. A handle then represents all of them, in order.
    pub fn times(mut self, times: usize) -> Self {
        assert!(times > 0, "a fault strikes at least once");
        self.rule.times = times;
        self
    }

    /// Applies the request, and closes the connection without a response.
    pub fn drop_response(self) {
        self.queue(Action::DropResponse);
    }

    /// Closes the connection without a response and without applying the request.
    pub fn drop_request(self) {
        self.queue(Action::DropRequest);
    }

    /// Sends this response, in the server's encoding, without applying the request.
    pub fn respond(self, answer: impl Into<Bytes>) {
        self.queue(Action::Respond(answer.into()));
    }

    /// Applies the request as rewritten by `request`, and sends the server's response rewritten by `answer`.
    pub fn rewrite(
        self,
        request: impl Fn(&Bytes) -> Bytes + Send + Sync + 'static,
        answer: impl Fn(&Bytes) -> Bytes + Send + Sync + 'static,
    ) {
        self.queue(Action::Rewrite(Arc::new(request), Arc::new(answer)));
    }

    /// Applies the request, and again on another connection before the client gets the response.
    pub fn repeat(self) {
        self.queue(Action::Repeat);
    }

    /// Applies each request after the time that this function returns.
    pub fn delay(self, time: impl Fn() -> Duration + Send + Sync + 'static) {
        self.queue(Action::Delay(Arc::new(time)));
    }

    /// Closes the connection immediately, and applies the request when the test delivers it.
    pub fn deliver_late(self) -> LateRequest {
        self.late(false)
    }

    /// Does the same as `deliver_late`, but keeps the connection open and silent until the client gives up.
    pub fn hang(self) -> LateRequest {
        self.late(true)
    }

    /// Applies the request, and keeps a copy, which is applied when the test delivers it.
    pub fn copy(self) -> LateRequest {
        let (arrivals, coming) = unbounded_channel();
        let (parcels, kept) = unbounded_channel();
        self.queue(Action::Copy(arrivals, parcels));
        LateRequest { coming, kept }
    }

    /// Applies the request, and withholds the server's response until the client gives up.
    pub fn withhold_response(self) -> Withheld {
        let (answered, coming) = unbounded_channel();
        self.queue(Action::Withhold(answered));
        Withheld { coming }
    }

    /// Holds the request in front of the server, with the client waiting, until it is released.
    pub fn hold(self) -> Held {
        let (arrivals, coming) = unbounded_channel();
        let (release, gate) = unbounded_channel();
        self.queue(Action::Hold(arrivals, Arc::new(Mutex::new(gate))));
        Held { coming, release }
    }

    fn late(self, is_silent: bool) -> LateRequest {
        let (arrivals, coming) = unbounded_channel();
        let (parcels, kept) = unbounded_channel();
        self.queue(Action::Late { arrivals, parcels, is_silent });
        LateRequest { coming, kept }
    }

    fn queue(mut self, action: Action) {
        self.rule.action = action;
        self.proxy.state.lock().unwrap().rules.push(self.rule);
    }
}

/// A request that is kept until the test delivers it. Dropping this loses the request.
#[must_use = "a dropped handle loses the request"]
pub struct LateRequest {
    coming: UnboundedReceiver<Request>,
    kept: UnboundedReceiver<Parcel>,
}

impl LateRequest {
    /// Waits for the next request that this fault keeps. Panics if no further one can come.
    pub async fn arrived(&mut self) -> Request {
        next(&mut self.coming).await
    }

    /// Sends the oldest kept request to the server, after waiting for one if necessary.
    pub async fn deliver(&mut self) -> Response {
        next(&mut self.kept).await.send().await.expect("the server answers the proxy")
    }

    /// Waits for the next request without a limit, and returns it to be sent at any time, or `None` if no further one can
    /// come.
    pub async fn kept(&mut self) -> Option<KeptRequest> {
        self.kept.recv().await.map(KeptRequest)
    }
}

/// A single late request.
pub struct KeptRequest(Parcel);

impl KeptRequest {
    /// Sends it to the server.
    ///
    /// # Errors
    ///
    /// If the server does not respond.
    pub async fn send(self) -> io::Result<Response> {
        self.0.send().await
    }
}

/// A request whose response is withheld.
#[must_use = "the test must learn when the server has responded"]
pub struct Withheld {
    coming: UnboundedReceiver<Request>,
}

impl Withheld {
    /// Waits until the server has responded to the next request that this fault affects.
    pub async fn answered(&mut self) -> Request {
        next(&mut self.coming).await
    }
}

/// A held request, whose client waits. Dropping this closes its connection.
#[must_use = "a dropped handle closes the connection"]
pub struct Held {
    coming: UnboundedReceiver<Request>,
    release: UnboundedSender<()>,
}

impl Held {
    /// Waits for the next request that this fault holds. Panics if no further one can come.
    pub async fn arrived(&mut self) -> Request {
        next(&mut self.coming).await
    }

    /// Releases one request, the oldest held one or else the next to come.
    pub fn release(&self) {
        let _ = self.release.send(()); // fails only if no request is left to release
    }
}

/// A queued fault, which skips some matching requests and then applies to some.
pub(super) struct Rule {
    wanted: Box<dyn Fn(&Request) -> bool + Send>,
    skip: usize,
    times: usize,
    action: Action,
}

/// A function that rewrites bytes.
pub(super) type Rewrite = Arc<dyn Fn(&Bytes) -> Bytes + Send + Sync>;

/// The fate of a request.
#[derive(Clone)]
pub(super) enum Action {
    Forward,
    DropResponse,
    DropRequest,
    Respond(Bytes),
    /// Rewrites the request and its response.
    Rewrite(Rewrite, Rewrite),
    Repeat,
    Delay(Arc<dyn Fn() -> Duration + Send + Sync>),
    Copy(UnboundedSender<Request>, UnboundedSender<Parcel>),
    Late {
        arrivals: UnboundedSender<Request>,
        parcels: UnboundedSender<Parcel>,
        is_silent: bool,
    },
    Withhold(UnboundedSender<Request>),
    /// Holds the request until a message arrives.
    Hold(UnboundedSender<Request>, Arc<Mutex<UnboundedReceiver<()>>>),
}

/// Returns the fault of the first matching rule.
pub(super) fn strike(rules: &mut Vec<Rule>, request: &Request) -> Action {
    let mut action = None;
    for rule in rules.iter_mut().filter(|rule| (rule.wanted)(request)) {
        if rule.skip > 0 {
            rule.skip -= 1; // every match counts, even one that an earlier fault takes
        } else if action.is_none() {
            rule.times -= 1;
            action = Some(rule.action.clone());
        }
    }
    rules.retain(|rule| rule.times > 0);
    action.unwrap_or(Action::Forward)
}

/// Waits for the next request of a fault, and fails the test if none arrives within half a minute.
async fn next<T>(coming: &mut UnboundedReceiver<T>) -> T {
    let next = tokio::time::timeout(std::time::Duration::from_secs(30), coming.recv()).await;
    next.expect("in time").expect("a request left to come")
}
