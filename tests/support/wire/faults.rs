//! Faults that a test asks for, and what it holds of the requests that they strike.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{
    Mutex,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use super::{Parcel, Proxy, Request, Response};

/// A fault to describe and queue; of several that fit a request, the first queued takes it.
///
/// Where a fault ends a connection, what the client has sent behind the request is lost.
#[must_use = "say what the fault does"]
pub struct Fault<'a> {
    proxy: &'a Proxy,
    rule: Rule,
}

impl<'a> Fault<'a> {
    pub(super) fn new(proxy: &'a Proxy, wanted: impl Fn(&Request) -> bool + Send + 'static) -> Self {
        Self { proxy, rule: Rule { wanted: Box::new(wanted), skip: 0, times: 1, action: Action::Forward } }
    }

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
        self.queue(Action::DropResponse);
    }

    /// The connection closes without an answer, and the request is not applied.
    pub fn drop_request(self) {
        self.queue(Action::DropRequest);
    }

    /// The client gets this answer, as the server would send it, and the request is not applied.
    pub fn respond(self, answer: impl Into<Bytes>) {
        self.queue(Action::Respond(answer.into()));
    }

    /// The request is applied as `request` writes it, and the client gets what `answer` makes of the server's answer.
    pub fn rewrite(
        self,
        request: impl Fn(&Bytes) -> Bytes + Send + Sync + 'static,
        answer: impl Fn(&Bytes) -> Bytes + Send + Sync + 'static,
    ) {
        self.queue(Action::Rewrite(Arc::new(request), Arc::new(answer)));
    }

    /// The request is applied, and once more on another connection before the client has its answer.
    pub fn repeat(self) {
        self.queue(Action::Repeat);
    }

    /// The connection closes at once; the request is applied when the test delivers it.
    pub fn deliver_late(self) -> LateRequest {
        self.late(false)
    }

    /// As `deliver_late`, but the connection stays open and silent until the client gives up.
    pub fn hang(self) -> LateRequest {
        self.late(true)
    }

    /// The request is applied and answered; a copy of it is kept, and applied when the test delivers it.
    pub fn copy(self) -> LateRequest {
        let (arrivals, coming) = unbounded_channel();
        let (parcels, kept) = unbounded_channel();
        self.queue(Action::Copy(arrivals, parcels));
        LateRequest { coming, kept }
    }

    /// The request waits in front of the server, and the client with it, until it is released.
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

/// A request kept back until the test delivers it; dropping this loses the request for good.
#[must_use = "a dropped handle loses the request"]
pub struct LateRequest {
    coming: UnboundedReceiver<Request>,
    kept: UnboundedReceiver<Parcel>,
}

impl LateRequest {
    /// Waits for the next request this fault keeps back; panics if no further one can come.
    pub async fn arrived(&mut self) -> Request {
        next(&mut self.coming).await
    }

    /// Sends the oldest request kept back to the server, after waiting for one if need be.
    pub async fn deliver(&mut self) -> Response {
        next(&mut self.kept).await.send().await
    }
}

/// A request that waits, with its client; dropping this closes the connection of what waits.
#[must_use = "a dropped handle closes the connection"]
pub struct Held {
    coming: UnboundedReceiver<Request>,
    release: UnboundedSender<()>,
}

impl Held {
    /// Waits for the next request this fault holds; panics if no further one can come.
    pub async fn arrived(&mut self) -> Request {
        next(&mut self.coming).await
    }

    /// Lets one request go on: the oldest held, or else the next to come.
    pub fn release(&self) {
        let _ = self.release.send(()); // fails only if no request is left to release
    }
}

/// A queued fault: it lets some matching requests pass, then strikes some.
pub(super) struct Rule {
    wanted: Box<dyn Fn(&Request) -> bool + Send>,
    skip: usize,
    times: usize,
    action: Action,
}

/// What becomes other bytes.
pub(super) type Rewrite = Arc<dyn Fn(&Bytes) -> Bytes + Send + Sync>;

/// What happens to a request.
#[derive(Clone)]
pub(super) enum Action {
    Forward,
    DropResponse,
    DropRequest,
    Respond(Bytes),
    /// The request, and its answer.
    Rewrite(Rewrite, Rewrite),
    Repeat,
    Copy(UnboundedSender<Request>, UnboundedSender<Parcel>),
    Late {
        arrivals: UnboundedSender<Request>,
        parcels: UnboundedSender<Parcel>,
        is_silent: bool,
    },
    /// It waits for a message, and then passes.
    Hold(UnboundedSender<Request>, Arc<Mutex<UnboundedReceiver<()>>>),
}

/// The fault of the first rule that fits.
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

/// Waits for the next request of a fault, and fails the test if none comes in half a minute.
async fn next<T>(coming: &mut UnboundedReceiver<T>) -> T {
    let next = tokio::time::timeout(std::time::Duration::from_secs(30), coming.recv()).await;
    next.expect("in time").expect("a request left to come")
}
