//! The settings of the layer.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Extensions, HeaderName, Method, Response, StatusCode, request::Parts};

use super::{
    Caller, InFlight, ResponseAction, StoredResponse, admission::Permits, fingerprint::FingerprintHook,
    refusals::Warnings, request_body::Room, stored::HeaderPolicy,
};
use crate::{
    error::{BoxError, Error},
    future::BoxFuture,
    idempotency::{
        claim::Claim,
        engine::{Commit, Engine, Needs, OpenTransaction, ProbeNeed},
        names::Registration,
        policy::Heartbeat,
        probe::ProbeResult,
    },
    key::{order_selector::OrderSelector, selector::Key},
    store::{StoreId, transaction::Transactional},
};

/// The default retention of HTTP records, because clients retry within hours, not weeks.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Lambda's limit for requests and responses.
const MAX_BODY_BYTES: usize = 6 * 1024 * 1024;

/// The bodies of 21 requests of the largest size, or of thousands that are small.
const MAX_BUFFERED_BYTES: usize = 128 * 1024 * 1024;

/// The longest pause of a request's body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the layer's operations.
pub(super) const OPERATION: &str = "http";

type Predicate = Arc<dyn Fn(&Parts) -> bool + Send + Sync>;
type KeyCheck = Arc<dyn Fn(&str) -> Result<(), Cow<'static, str>> + Send + Sync>;
type Decide = Arc<dyn Fn(StatusCode) -> ResponseAction + Send + Sync>;
type ReplayGate =
    Arc<dyn for<'a> Fn(&'a Parts, &'a StoredResponse) -> BoxFuture<'a, Result<(), Response<Bytes>>> + Send + Sync>;
type Probe = Arc<
    dyn for<'a> Fn(&'a Parts, Claim) -> BoxFuture<'a, Result<ProbeResult<Response<Bytes>>, BoxError>> + Send + Sync,
>;
type BeginTransaction = Arc<dyn Fn(&mut Extensions) -> Box<dyn Commit> + Send + Sync>;
type Decorate = Arc<dyn Fn(&Parts, &mut Response<Bytes>) + Send + Sync>;

/// Opens the transactions of requests, and identifies their store.
#[derive(Clone)]
pub(super) struct Transactions {
    store: StoreId,
    pub(super) begin: BeginTransaction,
}

impl Transactions {
    pub(super) fn of<S: Transactional>(store: &S) -> Self {
        let (id, store) = (store.id(), store.clone());
        let begin = move |extensions: &mut Extensions| -> Box<dyn Commit> {
            let transaction = store.open();
            extensions.insert(transaction.clone());
            Box::new(OpenTransaction { store: store.clone(), transaction, classifier: None })
        };
        Self { store: id, begin: Arc::new(begin) }
    }
}

/// The source of a request's key.
#[derive(Clone)]
pub(super) enum KeySource {
    Header(HeaderName),
    Request(Key),
}

#[derive(Clone)]
pub(super) struct LayerSettings {
    pub(super) engine: Engine,
    registration: Registration,
    /// Their name in logs, which includes the engine's.
    pub(super) operation: Cow<'static, str>,
    pub(super) scope: Caller,
    pub(super) methods: Vec<Method>,
    pub(super) applies_to: Option<Predicate>,
    /// Selects the requests that pass through if they have no key.
    pub(super) optional: Option<Predicate>,
    pub(super) key: KeySource,
    pub(super) key_check: Option<KeyCheck>,
    /// Selects the entity of each request and its position in the order, if requests are ordered.
    pub(super) order: Option<OrderSelector>,
    /// Selects the label of each request's record.
    pub(super) label: Option<Key>,
    pub(super) fingerprint: Option<FingerprintHook>,
    /// The request headers that are also compared.
    pub(super) compared_headers: Vec<HeaderName>,
    pub(super) decide: Decide,
    pub(super) stored_headers: HeaderPolicy,
    /// The request header that holds a request's id.
    pub(super) request_id: HeaderName,
    pub(super) replay_header: HeaderName,
    pub(super) marks_first_responses: bool,
    pub(super) before_replay: Option<ReplayGate>,
    pub(super) probe: Option<Probe>,
    pub(super) transactions: Option<Transactions>,
    pub(super) wait_up_to: Duration,
    pub(super) heartbeat: Heartbeat,
    pub(super) max_body: usize,
    pub(super) max_response: usize,
    /// The bytes that request bodies may occupy.
    pub(super) room: Room,
    pub(super) body_idle_timeout: Duration,
    /// `None` for no limit.
    pub(super) max_in_flight: Option<usize>,
    /// Permits for `max_in_flight` handlers.
    pub(super) permits: Option<Permits>,
    pub(super) refuses_large_answers: bool,
    pub(super) fails_open: bool,
    /// `None` for the default, which is `true` outside Lambda.
    pub(super) runs_to_completion: Option<bool>,
    pub(super) in_flight: InFlight,
    pub(super) problem_type_base: Option<Cow<'static, str>>,
    pub(super) mismatch_status: StatusCode,
    pub(super) in_progress_status: StatusCode,
    pub(super) warnings: Arc<Warnings>,
    pub(super) on_rejection: Option<Decorate>,
}

impl LayerSettings {
    #[track_caller]
    pub(super) fn new(engine: &Engine, scope: Caller) -> Self {
        Self {
            registration: Registration::new::<()>(engine, OPERATION),
            operation: engine.log_name(OPERATION).into_owned().into(),
            engine: engine.with_default_retention(RETENTION).for_operation(&engine.log_name(OPERATION)),
            scope,
            methods: vec![Method::POST, Method::PATCH],
            applies_to: None,
            optional: None,
            key: KeySource::Header(HeaderName::from_static("idempotency-key")),
            key_check: None,
            order: None,
            label: None,
            fingerprint: None,
            compared_headers: Vec::new(),
            decide: Arc::new(ResponseAction::by_status),
            stored_headers: HeaderPolicy::default(),
            request_id: HeaderName::from_static("x-request-id"),
            replay_header: HeaderName::from_static("idempotency-replayed"),
            marks_first_responses: false,
            before_replay: None,
            probe: None,
            transactions: None,
            wait_up_to: Duration::ZERO,
            heartbeat: Heartbeat::AsEngine,
            max_body: MAX_BODY_BYTES,
            max_response: MAX_BODY_BYTES,
            room: Room::of(MAX_BUFFERED_BYTES),
            body_idle_timeout: BODY_IDLE_TIMEOUT,
            max_in_flight: None,
            permits: None,
            refuses_large_answers: false,
            fails_open: false,
            runs_to_completion: None,
            in_flight: InFlight::new(),
            problem_type_base: None,
            mismatch_status: StatusCode::UNPROCESSABLE_ENTITY,
            in_progress_status: StatusCode::CONFLICT,
            warnings: Arc::default(),
            on_rejection: None,
        }
    }

    /// Refuses settings that contradict each other.
    pub(super) fn check(&self) -> Result<(), Error> {
        let keys = || if let KeySource::Request(key) = &self.key { vec![key.clone()] } else { Vec::new() };
        let settings = (
            &self.engine.settings,
            self.scope.identity(),
            &self.methods,
            (self.wait_up_to, self.max_body, self.max_in_flight),
        );
        self.registration.check(keys, settings)?;
        self.engine.check(&Needs {
            probe: ProbeNeed::new(self.probe.is_some(), "IdempotencyKeyLayer::probe"),
            scope: true,
            transactions: self.transactions.as_ref().map(|transactions| transactions.store),
            order: self.order.is_some(),
            heartbeat: self.heartbeat,
        })?;
        // Without `lambda_http` no request has a deadline, even behind the Lambda Web Adapter.
        #[cfg(feature = "http-lambda")]
        self.heartbeat.check_invocations()?;
        if !self.engine.store.format().keeps_every_outcome() {
            return Err(Error::config(
                "AWS Powertools cannot replay the HTTP layer's responses, nor tell callers apart: use a store without `powertools`",
            ));
        }
        if self.transactions.is_some() && self.fails_open {
            return Err(Error::config("with `in_transaction` a request needs the store, so it cannot `fail_open`"));
        }
        if let Some(label) = &self.label {
            label.check()?;
        }
        if let Some(order) = &self.order {
            order.check()?;
            if self.fails_open {
                return Err(Error::config(
                    "in an order a request needs the store, so with `ordered_by` it cannot `fail_open`",
                ));
            }
        }
        if self.max_in_flight == Some(0) {
            return Err(Error::config("`max_in_flight(0)` refuses every request"));
        }
        if self.room.max_bytes < self.max_body {
            return Err(Error::config(format!(
                "the layer may hold {} bytes of bodies (`max_buffered`), so a body of `max_body`, {} bytes, never fits unless \
                 `lambda_http` holds it already: raise `max_buffered` or lower `max_body`",
                self.room.max_bytes, self.max_body
            )));
        }
        let statuses = [self.mismatch_status, self.in_progress_status];
        if let Some(status) = statuses.iter().find(|status| !status.is_client_error() && !status.is_server_error()) {
            return Err(Error::config(format!("{status} does not refuse a request: choose a status of 400 or more")));
        }
        let key = if let KeySource::Request(key) = &self.key { Some(key) } else { None };
        let order = self.order.as_ref().map(OrderSelector::keys);
        // They would find no value in any request, and with `key_optional` protect nothing.
        let mut keys = key.into_iter().chain(&self.label).chain(order.into_iter().flatten());
        if let Some(key) = keys.find(|key| key.is_for_messages()) {
            return Err(Error::config(format!("a request is not a message of a queue, so {key:?} selects nothing")));
        }
        match &self.key {
            KeySource::Header(_) => Ok(()),
            KeySource::Request(_) if self.key_check.is_some() => Err(Error::config(
                "`check_key` checks the key of the header that `header` names, and `key` takes it from elsewhere",
            )),
            KeySource::Request(key) => key.check(),
        }
    }

    /// Whether a hook needs the request after the handler has consumed it.
    pub(super) fn needs_request_later(&self) -> bool {
        self.before_replay.is_some() || self.on_rejection.is_some()
    }
}

impl fmt::Debug for LayerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyKeyLayer")
            .field("engine", &self.engine)
            .field("scope", &self.scope)
            .field("methods", &self.methods)
            .field("wait_up_to", &self.wait_up_to)
            .field("max_body", &self.max_body)
            .field("max_response", &self.max_response)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented::assert_states;

    #[test]
    fn the_documented_defaults_are_in_effect() {
        let once = crate::Idempotency::builder(crate::MemoryStore::new()).scope("payments").build().unwrap();
        let settings = LayerSettings::new(&once.engine, Caller::shared());
        let methods = settings.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(" and ");
        let statuses = [settings.mismatch_status, settings.in_progress_status].map(|status| status.as_u16());
        let [mismatch, in_progress] = statuses;
        let mib = |bytes: usize| bytes / (1 << 20);
        let (body, buffered) = (mib(MAX_BODY_BYTES), mib(MAX_BUFFERED_BYTES));
        let (pause, hours) = (BODY_IDLE_TIMEOUT.as_secs(), RETENTION.as_secs() / (60 * 60));
        assert_states(
            "docs/http.md",
            [
                format!("not covered (default: {methods})"),
                format!("larger than `max_body` ({body} MiB)"),
                format!("larger than `max_response` ({body} MiB)"),
                format!("`max_buffered`, {buffered} MiB |"),
                format!("`body_idle_timeout`, {pause} s; "),
                format!("replayed for {hours} hours |"),
            ],
        );
        assert_states("docs/settings.md", [format!("days; {hours} hours for HTTP |")]);
        assert_states("src/idempotency/builder.rs", [format!("days; {hours} hours for HTTP |")]);
        assert_states(
            "src/http/layer.rs",
            [
                format!("(Self::applies_to) | {methods}, on every path |"),
                format!("(Self::in_progress_status) | {mismatch}, {in_progress} |"),
                format!("| [`max_body`](Self::max_body) | {body} MiB |"),
                format!("[`reject_large_responses`](Self::reject_large_responses) | {body} MiB; "),
                format!("[`body_idle_timeout`](Self::body_idle_timeout) | {buffered} MiB, {pause} seconds |"),
                format!("| retention | the engine's if it is set there, else {hours} hours |"),
            ],
        );
        assert_states(
            "src/http/limits.rs",
            [
                format!("request body, in bytes, {body} MiB by default"),
                format!("response body that is stored, in bytes, {body} MiB by default"),
                format!("the layer holds at most, {buffered} MiB by default"),
                format!("may pause, {pause} seconds by default"),
            ],
        );
    }
}
