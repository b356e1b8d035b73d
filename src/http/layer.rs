//! The layer and its builder methods.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Method, Response, StatusCode, request::Parts};
use tower_layer::Layer;

use super::{
    Caller, IdempotencyKeyService, InFlight, ResponseAction, StoredResponse,
    settings::{KeySource, LayerSettings, Transactions},
};
#[cfg(feature = "order")]
use crate::key::order_selector::OrderSelector;
use crate::{
    error::{BoxError, Error},
    future::BoxFuture,
    idempotency::{
        claim::Claim, handle::Idempotency, operation_settings::OperationSettings, policy::Heartbeat, probe::ProbeResult,
    },
    key::selector::Key,
    store::transaction::Transactional,
};

/// Returns the stored response to requests that repeat an `Idempotency-Key`. See the [module](super).
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`methods`](Self::methods), [`applies_to`](Self::applies_to) | POST and PATCH, on every path |
/// | [`key_optional`](Self::key_optional), [`key_optional_for`](Self::key_optional_for) | the key is required |
/// | [`header`](Self::header), [`key`](Self::key) | `Idempotency-Key` |
/// | [`check_key`](Self::check_key) | up to 255 characters of printable ASCII |
/// | [`fingerprint`](Self::fingerprint) | the body, [by its media type](super#comparison-of-requests) |
/// | [`compare_headers`](Self::compare_headers) | none |
/// | [`classify_response`](Self::classify_response) | [`ResponseAction::by_status`] |
/// | [`store_headers`](Self::store_headers), [`drop_headers`](Self::drop_headers), [`store_only_headers`](Self::store_only_headers) | all but the headers of a single exchange |
/// | [`request_id`](Self::request_id) | `X-Request-Id` |
/// | [`replay_header`](Self::replay_header), [`mark_first_responses`](Self::mark_first_responses) | `Idempotency-Replayed`, on replays |
/// | [`wait_up_to`](Self::wait_up_to) | no wait |
/// | [`mismatch_status`](Self::mismatch_status), [`in_progress_status`](Self::in_progress_status) | 422, 409 |
/// | [`max_body`](Self::max_body) | 6 MiB |
/// | [`max_response`](Self::max_response), [`reject_large_responses`](Self::reject_large_responses) | 6 MiB; a larger response is passed through |
/// | [`max_buffered`](Self::max_buffered), [`body_idle_timeout`](Self::body_idle_timeout) | 128 MiB, 30 seconds |
/// | [`max_in_flight`](Self::max_in_flight) | no limit |
/// | [`fail_open`](Self::fail_open) | no |
/// | [`heartbeat`](Self::heartbeat) | the engine's: outside Lambda, 15 minutes |
/// | [`run_to_completion`](Self::run_to_completion) | outside Lambda |
/// | [`problem_type_base`](Self::problem_type_base), [`on_rejection`](Self::on_rejection) | `about:blank` is the `type`; nothing |
/// | [`before_replay`](Self::before_replay), [`probe`](Self::probe) | nothing |
/// | [`in_transaction`](Self::in_transaction), `ordered_by` (feature `order`) | no |
/// | [`label`](Self::label) | none |
/// | [`with_settings`](Self::with_settings) | as the engine's |
/// | retention | the engine's if it is set there, else 24 hours |
#[derive(Clone)]
#[must_use]
#[doc(alias("Idempotency-Key", "middleware"))]
pub struct IdempotencyKeyLayer {
    pub(super) settings: LayerSettings,
}

impl IdempotencyKeyLayer {
    /// Creates a layer on this engine. `scope` identifies the caller, to whom the key belongs.
    ///
    /// One layer may wrap several services, such as the routes of an application. An [unnamed engine](Idempotency#names)
    /// carries one layer. While a second layer is alive on it, requests with a key are refused with 500. Give each further
    /// layer an engine with a name, as in `once.named("stripe")`.
    ///
    /// Outside Lambda (if `AWS_LAMBDA_FUNCTION_NAME` is not set) the service needs a name as well. See
    /// [`Builder::scope`](crate::Builder::scope).
    #[track_caller]
    pub fn new(engine: Idempotency, scope: Caller) -> Self {
        Self { settings: LayerSettings::new(&engine.engine, scope) }
    }

    /// Checks the settings. Call it in init. Otherwise every covered request is refused with 500 if they contradict each
    /// other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if
    /// * outside Lambda the service has no name;
    /// * [settings](Self::with_settings) contradict each other;
    /// * another layer is alive on the same unnamed engine, unless the same place in the program has made both for one
    ///   [caller](Caller), with equal keys and settings;
    /// * a probe is given without [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), or the other way round;
    /// * the [transactions](Self::in_transaction) are of another store than the engine's, or requests [fail open](Self::fail_open);
    /// * the [`key`](Self::key) is malformed, or given together with [`check_key`](Self::check_key);
    /// * the key, the [`label`](Self::label) or the order selects what only messages have, such as
    ///   [`Key::message_id`](crate::Key::message_id);
    /// * a status for refusals is below 400;
    /// * [`max_in_flight`](Self::max_in_flight) is zero;
    /// * [`max_buffered`](Self::max_buffered) is less than [`max_body`](Self::max_body);
    /// * the longest duration of the [`heartbeat`](Self::heartbeat) is zero, or one is set in Lambda.
    pub fn validate(self) -> Result<Self, Error> {
        self.settings.check()?;
        Ok(self)
    }

    /// Sets the methods that are covered. GET, HEAD, PUT and DELETE should be idempotent by themselves. Method names are
    /// case-sensitive (RFC 9110, section 9.1), so `post` and `POST` are different methods.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// Covers only these of the requests with a covered [method](Self::methods). The others pass through. For routers
    /// without route layers.
    pub fn applies_to(mut self, request: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.applies_to = Some(Arc::new(request));
        self
    }

    /// Lets requests without a key through, unprotected.
    pub fn key_optional(self) -> Self {
        self.key_optional_for(|_| true)
    }

    /// Lets these requests through, unprotected, if they have no key.
    pub fn key_optional_for(mut self, optional: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.optional = Some(Arc::new(optional));
        self
    }

    /// Sets the name of the header that carries the key.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.key = KeySource::Header(name);
        self
    }

    /// Selects the key from the body or another header instead. For webhooks, whose senders do not send `Idempotency-Key`,
    /// for example `Key::pointer("/id")` for Stripe's events or `Key::header("x-github-delivery")` for GitHub's. Their
    /// bodies may differ between deliveries (see [`fingerprint`](Self::fingerprint)).
    pub fn key(mut self, key: Key) -> Self {
        self.settings.key = KeySource::Request(key);
        self
    }

    /// Validates the key in the [`header`](Self::header), for example that it is a UUID. The client sees the error's text, with
    /// status 400. Cannot be combined with [`key`](Self::key).
    pub fn check_key(mut self, check: impl Fn(&str) -> Result<(), Cow<'static, str>> + Send + Sync + 'static) -> Self {
        self.settings.key_check = Some(Arc::new(check));
        self
    }

    /// Selects the label of each record from the body or a header, so that people can find the record in the store. By
    /// default there is no label. It is stored as **plain text** (see [`Operation::label`](crate::Operation::label)). If
    /// nothing can be selected from a request, it has no label, and is handled like any other.
    pub fn label(mut self, label: Key) -> Self {
        self.settings.label = Some(label);
        self
    }

    /// Replaces the body in the comparison of two requests with one key. Use it to leave out a field that changes with each
    /// attempt. Method, path, query and media type are always compared. By default the body is compared [by its media
    /// type](super#comparison-of-requests).
    ///
    /// An error refuses the request with 400.
    pub fn fingerprint(
        mut self,
        view: impl Fn(&Parts, &[u8]) -> Result<Vec<u8>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.fingerprint = Some(Arc::new(view));
        self
    }

    /// Compares these request headers as well. A request with the same key and a different value of one of them is refused
    /// with 422. By default no header is compared.
    ///
    /// For example, compare `If-Match` of a PATCH if a client must not get the response to an update of a different
    /// version:
    ///
    /// ```
    /// use http::header::IF_MATCH;
    /// use lambda_once::http::IdempotencyKeyLayer;
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// layer.compare_headers([IF_MATCH])
    /// # }
    /// ```
    ///
    /// Do not name headers that change from one attempt to the next, such as tracing headers.
    pub fn compare_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        for name in names {
            if !self.settings.compared_headers.contains(&name) {
                self.settings.compared_headers.push(name);
            }
        }
        self
    }

    /// Decides by the status whether a response is stored. A [`ResponseAction`] in the response's extensions takes precedence.
    ///
    /// ```
    /// use lambda_once::http::{ResponseAction, IdempotencyKeyLayer};
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// // As in version 1 of Stripe's API: every response is stored, 500 included.
    /// layer.classify_response(|_| ResponseAction::Store)
    /// # }
    /// ```
    pub fn classify_response(mut self, decide: impl Fn(StatusCode) -> ResponseAction + Send + Sync + 'static) -> Self {
        self.settings.decide = Arc::new(decide);
        self
    }

    /// Stores these headers too, except hop-by-hop headers, `Content-Length` and `Authorization`.
    pub fn store_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.stored_headers.stored.extend(names);
        self
    }

    /// Stores only these headers, and those that [`store_headers`](Self::store_headers) names, instead of all except the
    /// headers of a single exchange. Name `Content-Type` too if a replay needs it. Trailers are stored as without the list.
    ///
    /// ```
    /// use http::header::{CONTENT_TYPE, ETAG, LOCATION};
    /// use lambda_once::http::IdempotencyKeyLayer;
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// layer.store_only_headers([CONTENT_TYPE, ETAG, LOCATION])
    /// # }
    /// ```
    pub fn store_only_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.stored_headers.only.get_or_insert_default().extend(names);
        self
    }

    /// Sets the request header that holds the id of a request, `X-Request-Id` by default. The `Original-Request` header of
    /// a replay names the request that ran. If the request has no such header, or its value is longer than 255 bytes, the
    /// id is the request id of API Gateway, or else of the Lambda invocation. Outside Lambda there is then no id.
    ///
    /// Let an outer layer create the id, such as `SetRequestIdLayer` of `tower-http`. To leave `Original-Request` out,
    /// [drop](Self::drop_headers) it.
    pub fn request_id(mut self, name: HeaderName) -> Self {
        self.settings.request_id = name;
        self
    }

    /// Does not store these headers.
    pub fn drop_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.stored_headers.dropped.extend(names);
        self
    }

    /// Sets the name of the header that marks a replay. If the handler sets this header, it is removed.
    pub fn replay_header(mut self, name: HeaderName) -> Self {
        self.settings.replay_header = name;
        self
    }

    /// Marks first responses too, with `false`.
    pub fn mark_first_responses(mut self) -> Self {
        self.settings.marks_first_responses = true;
        self
    }

    /// Sets a check before a stored response is replayed, for example that the caller may still see it. If the check
    /// returns an error, the client gets that response, and the record remains. The same applies to a 410 with the status,
    /// and the `Location` if it is stored, of a response whose body [is not kept](StoredResponse::body). The replay is
    /// refused with 503 if the hook panics, or takes longer than ten seconds or than the invocation has left.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Response, StatusCode};
    /// use lambda_once::http::IdempotencyKeyLayer;
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// layer.before_replay(|request, _stored| {
    ///     Box::pin(async move {
    ///         if request.headers.contains_key("x-suspended") {
    ///             let mut refusal = Response::new(Bytes::new());
    ///             *refusal.status_mut() = StatusCode::FORBIDDEN;
    ///             return Err(refusal);
    ///         }
    ///         Ok(())
    ///     })
    /// })
    /// # }
    /// ```
    pub fn before_replay<F>(mut self, gate: F) -> Self
    where
        F: for<'a> Fn(&'a Parts, &'a StoredResponse) -> BoxFuture<'a, Result<(), Response<Bytes>>>
            + Send
            + Sync
            + 'static,
    {
        self.settings.before_replay = Some(Arc::new(gate));
        self
    }

    /// Sets a check of whether an earlier run that left no outcome took effect, under
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). The response that it returns is stored, and returned to the
    /// client.
    pub fn probe<F>(mut self, probe: F) -> Self
    where
        F: for<'a> Fn(&'a Parts, Claim) -> BoxFuture<'a, Result<ProbeResult<Response<Bytes>>, BoxError>>
            + Send
            + Sync
            + 'static,
    {
        self.settings.probe = Some(Arc::new(probe));
        self
    }

    /// Gives each claimed request a transaction of `store`, which must be a clone of the engine's store. The request's
    /// extensions contain it: a `store::postgres::Transaction`, or `store::dynamodb::Writes`. The handler's writes
    /// through it are committed together with the stored response, whatever its status. For example, if a handler
    /// responds with 422 after its first write, that write is committed. If the response is not stored
    /// ([`classify_response`](Self::classify_response)), the writes are rolled back. So are the writes of a response
    /// with a `grpc-status` other than 0, unless a [`ResponseAction`] is among its extensions. Requests that pass
    /// through the layer have a transaction too, which is committed by the same rules, without a record. The layer does
    /// not read the bodies of their responses, so their trailers do not count.
    ///
    /// If the commit fails, the client gets the problem `not_committed` or `commit_unknown` instead of the response. See
    /// [`Operation::in_transaction`](crate::Operation::in_transaction).
    ///
    /// ```no_run
    /// # #[cfg(feature = "postgres")] mod example {
    /// use http::Request;
    /// use lambda_once::{
    ///     Error, Idempotency, PostgresStore,
    ///     http::{IdempotencyKeyLayer, Caller},
    ///     store::postgres::Transaction,
    /// };
    ///
    /// fn layer(once: Idempotency, store: &PostgresStore) -> IdempotencyKeyLayer {
    ///     IdempotencyKeyLayer::new(once, Caller::authorizer()).in_transaction(store)
    /// }
    ///
    /// async fn debit<B>(request: Request<B>) -> Result<(), lambda_once::BoxError> {
    ///     let transaction = request.extensions().get::<Transaction>().ok_or("the layer is missing")?.clone();
    ///     transaction.client().await?.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 7", &[]).await?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn in_transaction<S: Transactional>(mut self, store: &S) -> Self {
        self.settings.transactions = Some(Transactions::of(store));
        self
    }

    /// Orders the requests of each entity. `entity` selects the entity from the body or a header, and `sequence` selects
    /// the request's number in the order, 1 to 64 digits as a JSON number or as text. See
    /// [`Operation::ordered_by`](crate::Operation::ordered_by) for the guarantees, and for the operations that it suits.
    ///
    /// An entity belongs to its caller ([`Caller`](super::Caller)), as keys do. A request without an entity or a sequence
    /// is refused with 400 (`order_missing`), and a superseded one with 409 (`superseded`, which no retry can help). A
    /// success that could not be recorded gets a 503 (`not_recorded`), because older requests wait until it is recorded. A
    /// response with 4xx is never stored, even if [`classify_response`](Self::classify_response) returns `Store`, because
    /// it changed nothing and must not supersede older requests. A request without a key is refused, even if the key is
    /// [optional](Self::key_optional). The layer cannot [`fail_open`](Self::fail_open).
    ///
    /// ```
    /// # use lambda_once::{Idempotency, Key, MemoryStore, http::{IdempotencyKeyLayer, Caller}};
    /// # let once = Idempotency::builder(MemoryStore::new()).scope("documents").build().unwrap();
    /// let layer = IdempotencyKeyLayer::new(once, Caller::shared())
    ///     .ordered_by(Key::pointer("/document_id"), Key::pointer("/version"));
    /// # assert!(layer.validate().is_ok());
    /// ```
    ///
    /// Needs the feature `order`.
    #[cfg(feature = "order")]
    pub fn ordered_by(mut self, entity: Key, sequence: Key) -> Self {
        self.settings.order = Some(OrderSelector { entity, sequence });
        self
    }

    /// Sets how long a request waits for another request with its key before it is refused with 409, or with 503 if the key
    /// becomes free but all permits of [`max_in_flight`](Self::max_in_flight) are in use. The time counts from the end of
    /// the request's body, so it includes a wait in a queue inside the layer. Behind API Gateway, which times out after 29
    /// or 30 seconds, the wait is at most 28 seconds.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.wait_up_to = time;
        self
    }

    /// Sets the status for a key that was used with another request: 422 in the draft, 400 at Stripe.
    pub fn mismatch_status(mut self, status: StatusCode) -> Self {
        self.settings.mismatch_status = status;
        self
    }

    /// Sets the status while another request holds the key.
    pub fn in_progress_status(mut self, status: StatusCode) -> Self {
        self.settings.in_progress_status = status;
        self
    }

    /// Runs requests unprotected while the store is unavailable, instead of refusing them with 503. Their responses have the
    /// header `Idempotency-Unprotected: true`. A retry then takes effect again.
    ///
    /// A store that refuses claims because of its configuration, as DynamoDB's does outside the home Region, is not
    /// unavailable, and neither is one that has a record of a newer version. These requests are refused with 503.
    ///
    /// A claim gets a quarter of the time left, at most three seconds. Waits for the key or for a place among the handlers come
    /// before it. In Lambda the response waits up to two seconds until a claim that may have been applied is withdrawn. These
    /// requests also run [to completion](Self::run_to_completion), and are not cancelled.
    pub fn fail_open(mut self) -> Self {
        self.settings.fails_open = true;
        self
    }

    /// Overrides the engine's settings for this layer. Later settings replace earlier ones. For missing keys, use
    /// [`key_optional`](Self::key_optional).
    pub fn with_settings(mut self, settings: OperationSettings) -> Self {
        self.settings.engine = self.settings.engine.with(settings);
        self
    }

    /// Sets how long a request may run outside Lambda, if the engine's [setting](crate::Builder::heartbeat) does not suit
    /// the service. Its lease is renewed meanwhile, also after its client has disconnected
    /// ([`run_to_completion`](Self::run_to_completion)). At `max_duration` the handler is cancelled, with 504.
    ///
    /// In an invocation whose deadline is known the lease lasts until the deadline, and is not renewed. So in Lambda, with
    /// the feature `http-lambda`, [`validate`](Self::validate) fails, and a request in an invocation with a deadline is
    /// refused with 500 `misconfigured`. The engine's setting has no effect there. Use the engine's setting for code that
    /// also runs outside Lambda, or behind the Lambda Web Adapter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use lambda_once::http::IdempotencyKeyLayer;
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// layer.heartbeat(Duration::from_secs(120))
    /// # }
    /// ```
    ///
    /// With `None` no lease is renewed, so outside Lambda a handler is cancelled shortly before its first lease ends.
    pub fn heartbeat(mut self, max_duration: impl Into<Option<Duration>>) -> Self {
        self.settings.heartbeat = Heartbeat::of(max_duration.into());
        self
    }

    /// Sets whether a request runs to completion after its client has disconnected. By default it does so outside Lambda.
    ///
    /// hyper drops the future of a request whose client disconnects. The handler may already have taken effect, but its
    /// outcome is lost, and a retry takes effect again. With this setting the request runs in its own task, and a retry
    /// gets the stored response. [`in_flight`](Self::in_flight) waits for these tasks at shutdown. The
    /// [`heartbeat`](Self::heartbeat) keeps its claim for as long as it runs. The tasks inherit the tracing span, but not
    /// the values of `tokio::task_local!`.
    ///
    /// A request whose client disconnects before its handler begins is given up, and its claim is released. The handler
    /// counts as begun once the inner service has been called, even if that service holds the request back in a queue. See
    /// [`GiveUpLayer`](super::GiveUpLayer).
    ///
    /// In Lambda no client can disconnect from a function, and no task outlives the invocation.
    pub fn run_to_completion(mut self, to_completion: bool) -> Self {
        self.settings.runs_to_completion = Some(to_completion);
        self
    }

    /// Returns a handle to the requests that run in their own tasks, to wait for them at shutdown.
    pub fn in_flight(&self) -> InFlight {
        self.settings.in_flight.clone()
    }

    /// Sets the URL at which the API documents its problem types. The `type` of a refusal is then this URL followed by the
    /// `code`, such as `https://api.example.com/problems/key_reused`. By default it is `about:blank` (RFC 9457, section
    /// 4.2.1).
    pub fn problem_type_base(mut self, url: impl Into<Cow<'static, str>>) -> Self {
        self.settings.problem_type_base = Some(url.into());
        self
    }

    /// Sets a function that is called with every refusal before it is sent, to add headers or to replace it with the API's
    /// error format.
    pub fn on_rejection(mut self, decorate: impl Fn(&Parts, &mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.settings.on_rejection = Some(Arc::new(decorate));
        self
    }
}

impl fmt::Debug for IdempotencyKeyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl<S> Layer<S> for IdempotencyKeyLayer {
    type Service = IdempotencyKeyService<S>;

    fn layer(&self, inner: S) -> IdempotencyKeyService<S> {
        IdempotencyKeyService { inner, settings: Arc::new(self.settings.clone()) }
    }
}
