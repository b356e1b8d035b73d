//! The layer and its builder methods.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Method, Response, StatusCode, request::Parts};
use tower_layer::Layer;

use super::{
    Decision, IdempotencyKeyService, InFlight, Scope, StoredResponse,
    settings::{KeySource, Settings},
};
use crate::{
    error::{BoxError, Error},
    future::BoxFuture,
    idempotency::{claim::Claim, handle::Idempotency, probe::Probed},
    key::selector::Key,
};

/// Answers a repeated request with the first one's answer, by its `Idempotency-Key`. See the [module](super).
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`methods`](Self::methods), [`covers`](Self::covers) | POST and PATCH, on every path |
/// | [`optional`](Self::optional), [`optional_for`](Self::optional_for) | the key is required |
/// | [`header`](Self::header), [`key`](Self::key) | `Idempotency-Key` |
/// | [`check_key`](Self::check_key) | up to 255 characters of printable ASCII |
/// | [`fingerprint`](Self::fingerprint) | the body, canonical if its media type is JSON |
/// | [`decide`](Self::decide) | [`Decision::by_status`] |
/// | [`store_headers`](Self::store_headers), [`drop_headers`](Self::drop_headers) | all but those of one exchange |
/// | [`replay_header`](Self::replay_header), [`mark_first_answers`](Self::mark_first_answers) | `Idempotency-Replayed`, on replays |
/// | [`wait_up_to`](Self::wait_up_to) | no wait |
/// | [`mismatch_status`](Self::mismatch_status), [`in_progress_status`](Self::in_progress_status) | 422, 409 |
/// | [`max_body`](Self::max_body), [`refuse_large_answers`](Self::refuse_large_answers) | 6 MiB; a larger answer is passed through |
/// | [`fail_open`](Self::fail_open) | no |
/// | [`run_to_completion`](Self::run_to_completion) | outside Lambda |
/// | [`problem_base`](Self::problem_base), [`on_refusal`](Self::on_refusal) | this documentation; nothing |
/// | [`before_replay`](Self::before_replay), [`probe`](Self::probe) | nothing |
/// | retention | the engine's if it is set there, else 24 hours |
#[derive(Clone)]
#[must_use]
pub struct IdempotencyKeyLayer {
    settings: Settings,
}

impl IdempotencyKeyLayer {
    /// A layer on this engine. `scope` identifies the caller, to whom the key belongs.
    ///
    /// One layer may wrap several services, such as the routes of an application. An [unnamed engine](Idempotency#names)
    /// carries one layer: while a second one is alive on it, requests with a key are answered with 500. Give each further
    /// layer an engine with a name, as in `once.named("stripe")`.
    ///
    /// Outside Lambda (where `AWS_LAMBDA_FUNCTION_NAME` is not set) the service needs a name as well:
    /// [`Builder::scope`](crate::Builder::scope), or `OTEL_SERVICE_NAME` in the environment.
    pub fn new(engine: Idempotency, scope: Scope) -> Self {
        Self { settings: Settings::new(&engine, scope) }
    }

    /// Checks the settings, in init. Without this, contradictory ones answer every request that takes part with 500.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if
    /// * outside Lambda the service has no name;
    /// * another layer is alive on the same unnamed engine;
    /// * a probe is given without [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), or the other way round;
    /// * the [`key`](Self::key) is malformed, or given together with [`check_key`](Self::check_key);
    /// * a status for refusals is below 400.
    pub fn checked(self) -> Result<Self, Error> {
        self.settings.check()?;
        Ok(self)
    }

    /// Which methods are covered. GET, HEAD, PUT and DELETE are idempotent by themselves where they are written well.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.settings.methods = methods.into_iter().collect();
        self
    }

    /// Which requests are covered, of those with a covered method; the others pass through. For routers that cannot put a
    /// layer on some routes only.
    pub fn covers(mut self, covers: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.covers = Some(Arc::new(covers));
        self
    }

    /// Lets requests without a key through, unprotected.
    pub fn optional(self) -> Self {
        self.optional_for(|_| true)
    }

    /// Lets these requests through, unprotected, if they have no key.
    pub fn optional_for(mut self, optional: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.optional = Some(Arc::new(optional));
        self
    }

    /// The name of the header with the key.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.key = KeySource::Header(name);
        self
    }

    /// Takes the key from the request's body or another header instead, as webhooks need it, whose senders know nothing of
    /// `Idempotency-Key`: `Key::pointer("/id")` for the events of Stripe, `Key::header("x-github-delivery")` for GitHub's.
    /// Their bodies may differ between deliveries: see [`fingerprint`](Self::fingerprint).
    pub fn key(mut self, key: Key) -> Self {
        self.settings.key = KeySource::Request(key);
        self
    }

    /// Checks the form of the key in the [`header`](Self::header), such as that it is a UUID. The error's text is shown to the
    /// client, with status 400. Not for a [`key`](Self::key) from elsewhere.
    pub fn check_key(mut self, check: impl Fn(&str) -> Result<(), Cow<'static, str>> + Send + Sync + 'static) -> Self {
        self.settings.key_check = Some(Arc::new(check));
        self
    }

    /// What stands for the body when two requests with one key are compared, besides method, path, query and media type:
    /// to leave out a field that changes with each try, or the boundaries of a multipart form; or to add headers.
    ///
    /// An error refuses the request with 400.
    pub fn fingerprint(
        mut self,
        view: impl Fn(&Parts, &[u8]) -> Result<Vec<u8>, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.settings.fingerprint = Some(Arc::new(view));
        self
    }

    /// What an answer decides of its operation, by its status. A [`Decision`] among the response's extensions wins.
    ///
    /// ```
    /// use lambda_once::http::{Decision, IdempotencyKeyLayer};
    ///
    /// # fn set_up(layer: IdempotencyKeyLayer) -> IdempotencyKeyLayer {
    /// // As Stripe's first API did: every answer of the handler is stored, 500 included.
    /// layer.decide(|_| Decision::Store)
    /// # }
    /// ```
    pub fn decide(mut self, decide: impl Fn(StatusCode) -> Decision + Send + Sync + 'static) -> Self {
        self.settings.decide = Arc::new(decide);
        self
    }

    /// Stores these headers too. Those that frame a message on its connection never are.
    pub fn store_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.stored_headers.stored.extend(names);
        self
    }

    /// Does not store these headers.
    pub fn drop_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.stored_headers.dropped.extend(names);
        self
    }

    /// The name of the header that marks a replayed answer. If the handler sets it itself, it is removed.
    pub fn replay_header(mut self, name: HeaderName) -> Self {
        self.settings.replay_header = name;
        self
    }

    /// Marks first answers as well, with `false`.
    pub fn mark_first_answers(mut self) -> Self {
        self.settings.marks_first_answers = true;
        self
    }

    /// Asks before a stored response is given, such as whether this caller may still see it. An error is given instead, and
    /// nothing changes. Not asked before a 410, which says that no response was kept. A hook that panics, or has not answered
    /// after ten seconds or at the stop point, refuses the replay with 503.
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

    /// Finds out whether an earlier run that left no outcome took effect, under
    /// [`AfterUnknown::Probe`](crate::AfterUnknown::Probe). The answer that it finds is stored and given.
    pub fn probe<F>(mut self, probe: F) -> Self
    where
        F: for<'a> Fn(&'a Parts, Claim) -> BoxFuture<'a, Result<Probed<Response<Bytes>>, BoxError>>
            + Send
            + Sync
            + 'static,
    {
        self.settings.probe = Some(Arc::new(probe));
        self
    }

    /// How long a request waits while another one with its key is being processed, before it is refused with 409. The wait
    /// ends in time for the answer to pass API Gateway, which gives up after 29 or 30 seconds.
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.wait_budget = time;
        self
    }

    /// The status where the key was used for another request: 422 by the draft, 400 for Stripe.
    pub fn mismatch_status(mut self, status: StatusCode) -> Self {
        self.settings.mismatch_status = status;
        self
    }

    /// The status while another request with the same key is being processed.
    pub fn in_progress_status(mut self, status: StatusCode) -> Self {
        self.settings.in_progress_status = status;
        self
    }

    /// The largest body, in bytes, of a request, and of an answer that is stored. A larger request is refused with 413. A
    /// larger answer is passed through, and its operation is done without it: a retry gets 410.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.settings.max_body = bytes;
        self
    }

    /// Replaces answers that are too large by a 500 that says so, for the first caller too.
    pub fn refuse_large_answers(mut self) -> Self {
        self.settings.refuses_large_answers = true;
        self
    }

    /// Processes requests unprotected while the store is in trouble, instead of refusing them with 503. Their answers have
    /// the header `Idempotency-Unprotected: true`. Repeated requests then take effect again, and so may one whose claim was
    /// applied although the store's answer was lost.
    ///
    /// The store has a quarter of the time left, and at most three seconds: the rest is the handler's.
    pub fn fail_open(mut self) -> Self {
        self.settings.fails_open = true;
        self
    }

    /// Whether a request is processed to its end although its client has disconnected. A server such as hyper drops what it
    /// was doing for that client: the effect may have happened, its outcome is lost, and a retry makes it happen again. To
    /// completion, it is processed in a task of its own, and a retry gets the stored answer. [`in_flight`](Self::in_flight) waits
    /// for these at shutdown. Values of `tokio::task_local!` that outer layers set are not seen there; the tracing span is.
    ///
    /// By default that is so outside Lambda. Inside, no client disconnects from a function, and nothing outlives an
    /// invocation.
    pub fn run_to_completion(mut self, to_completion: bool) -> Self {
        self.settings.runs_to_completion = Some(to_completion);
        self
    }

    /// The requests that are being processed in tasks of their own, to wait for at shutdown.
    pub fn in_flight(&self) -> InFlight {
        self.settings.in_flight.clone()
    }

    /// What stands before the code in the `type` of a refusal, such as `https://api.example.com/problems/`.
    pub fn problem_base(mut self, base: impl Into<Cow<'static, str>>) -> Self {
        self.settings.problem_base = base.into();
        self
    }

    /// Is shown every refusal before it is given, to add headers to it, or to put it into the API's own form.
    pub fn on_refusal(mut self, decorate: impl Fn(&Parts, &mut Response<Bytes>) + Send + Sync + 'static) -> Self {
        self.settings.on_refusal = Some(Arc::new(decorate));
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
