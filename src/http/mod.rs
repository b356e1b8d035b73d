//! The `Idempotency-Key` header over HTTP.
//!
//! [`IdempotencyKeyLayer`] is a `tower` layer over any `Service<http::Request<_>>`: `axum` and other services on hyper (feature
//! `http`; `axum` adds axum's bodies and nested paths), and REST APIs, HTTP APIs, load balancers and function URLs through
//! `lambda_http` (feature `http-lambda`). It implements the server's side of
//! [draft-ietf-httpapi-idempotency-key-header-07](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/07/),
//! which expired in April 2026 without a successor.
//!
//! ```no_run
//! use lambda_http::{Body, Request, Response, service_fn, tower::ServiceBuilder};
//! # #[cfg(feature = "http-lambda")]
//! use lambda_once::{Idempotency, MemoryStore, http::{IdempotencyKeyLayer, Caller}};
//!
//! async fn charge(request: Request) -> Result<Response<Body>, lambda_http::Error> {
//!     Ok(Response::builder().status(201).body("{}".into())?)
//! }
//!
//! # #[cfg(feature = "http-lambda")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_http::Error> {
//! let once = Idempotency::new(MemoryStore::new());
//! let app = ServiceBuilder::new()
//!     .layer(IdempotencyKeyLayer::new(once, Caller::authorizer()).validate()?)
//!     .service(service_fn(charge));
//! lambda_http::run(app).await
//! # }
//! # #[cfg(not(feature = "http-lambda"))] fn main() {}
//! ```
//!
//! Outside Lambda the service needs a name (`scope`), and the layer is applied to routes, not to the router:
//!
//! ```no_run
//! # #[cfg(feature = "axum")] {
//! use axum::{Router, routing::post};
//! use lambda_once::{Idempotency, MemoryStore, http::{IdempotencyKeyLayer, Caller}};
//!
//! # fn app() -> Result<Router, lambda_once::Error> {
//! let once = Idempotency::builder(MemoryStore::new()).scope("payments").build()?;
//! let scope = Caller::from_fn(|request| request.extensions.get::<UserId>().map(|user| user.0.clone()));
//! let layer = IdempotencyKeyLayer::new(once, scope).validate()?;
//! let app = Router::new().route("/charges", post(charge)).route_layer(layer);
//! # Ok(app) }
//! # #[derive(Clone)] struct UserId(String);
//! # async fn charge() {}
//! # }
//! ```
//!
//! # Responses
//!
//! | request | response |
//! |---|---|
//! | its method is not covered, or it has no key and needs none | as without the layer |
//! | its key is new | the handler's |
//! | its operation is done | the stored response, byte for byte, with `Idempotency-Replayed: true` |
//! | any other | a refusal |
//!
//! # Refusals
//!
//! A refusal is `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) with the members `type`,
//! `title`, `status`, `detail`, `code`, `retryable` (whether the same request may be sent again) and, if the wait is known,
//! `retry_after_ms` (milliseconds). While another request holds the key, that is the rest of its lease (a long request
//! renews it) and the margin for clocks. `Retry-After` stays at one or two seconds, because a running request usually ends
//! much sooner. A `response_not_stored` has the status of the response as `response_status` and its `Location` as a header,
//! or only the status under [`Results::Discard`](crate::Results::Discard). The `differs` member of a `key_reused` contains
//! the parts in which the request differs from the first one with its key, an array of `method_and_path`, `query`,
//! `headers` and `body`, if they are known.
//!
//! Programs should match the `code`. A code keeps its name and meaning in all versions 0.x and 1.x. New codes may be added.
//! `type` is `about:blank`, and `title` the phrase of the status, unless the API documents its problem types
//! ([`problem_type_base`](IdempotencyKeyLayer::problem_type_base)).
//!
//! | `code` | status | retryable | when |
//! |---|---|---|---|
//! | <a id="key_missing"></a>`key_missing` | 400 | no | the request has no key |
//! | <a id="key_malformed"></a>`key_malformed` | 400 | no | the key is empty, longer than 255 characters, repeated, not printable ASCII or badly quoted, or [`check_key`](IdempotencyKeyLayer::check_key) rejects it |
//! | <a id="body_broken"></a>`body_broken` | 400 | yes | reading the body failed |
//! | <a id="body_timed_out"></a>`body_timed_out` | 408 | yes | the request body [paused for too long](IdempotencyKeyLayer::body_idle_timeout) |
//! | <a id="body_rejected"></a>`body_rejected` | 400 | no | the key cannot be selected from the body, or [`fingerprint`](IdempotencyKeyLayer::fingerprint) rejects it |
//! | <a id="order_missing"></a>`order_missing` | 400 | no | the request has no entity or no sequence, and is [in order](IdempotencyKeyLayer::ordered_by) |
//! | <a id="caller_unknown"></a>`caller_unknown` | 403 | no | the [scope](Caller) finds no caller |
//! | <a id="in_progress"></a>`in_progress` | 409 | yes | another request holds the key: it is running, or has ended without an outcome |
//! | <a id="superseded"></a>`superseded` | 409 | no | a newer request of its entity has taken effect |
//! | <a id="outcome_unknown"></a>`outcome_unknown` | 409 | no | an earlier request ended without an outcome, under [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse) |
//! | <a id="response_not_stored"></a>`response_not_stored` | 410 | no | the operation is done, and its response is not stored: it was too large or [streamed](#streams), or results are [discarded](crate::Results::Discard). The operation must not be repeated under another key |
//! | <a id="body_too_large"></a>`body_too_large` | 413 | no | the request body exceeds [`max_body`](IdempotencyKeyLayer::max_body) |
//! | <a id="key_reused"></a>`key_reused` | 422 | while that request is running | the key was used with another method, path, query, media type or body |
//! | <a id="handler_failed"></a>`handler_failed` | 500 | yes | the handler panicked; its effect is unknown |
//! | <a id="response_broken"></a>`response_broken` | 500 | yes | the handler's response body broke off; its effect is unknown, unless the response was to release the key |
//! | <a id="response_too_large"></a>`response_too_large` | 500 | no | the operation is done, and its response exceeds the cap ([`reject_large_responses`](IdempotencyKeyLayer::reject_large_responses)) |
//! | <a id="response_unreadable"></a>`response_unreadable` | 500 | no | the operation is done, and its record cannot be read |
//! | <a id="failed_before"></a>`failed_before` | 500 | no | according to the record, the operation failed permanently |
//! | <a id="hook_failed"></a>`hook_failed` | 500 | yes | a function that the application gave to the layer panicked before anything ran; in place of a refusal that [`on_rejection`](IdempotencyKeyLayer::on_rejection) could not decorate, it is retryable as that is |
//! | <a id="misconfigured"></a>`misconfigured` | 500 | no | the settings contradict each other ([`validate`](IdempotencyKeyLayer::validate)), or the layer is applied twice |
//! | <a id="overloaded"></a>`overloaded` | 503 | yes | the limit of [handlers](IdempotencyKeyLayer::max_in_flight) or of [buffered bodies](IdempotencyKeyLayer::max_buffered) is reached, or a queue inside the layer had no place in time; nothing ran |
//! | <a id="unavailable"></a>`unavailable` | 503 | yes | the store is unavailable or refuses the claim, a function that selects the key or the order fails temporarily, or no time is left; nothing ran |
//! | <a id="not_committed"></a>`not_committed` | 503 | yes | the [transaction](IdempotencyKeyLayer::in_transaction) was rolled back |
//! | <a id="commit_unknown"></a>`commit_unknown` | 503 | yes | whether the transaction was committed is not known; a later request finds out |
//! | <a id="not_recorded"></a>`not_recorded` | 503 | yes | the request is [in order](IdempotencyKeyLayer::ordered_by), and its success could not be recorded |
//! | <a id="probe_failed"></a>`probe_failed` | 503 | yes | the [probe](IdempotencyKeyLayer::probe) failed; nothing ran |
//! | <a id="replay_unchecked"></a>`replay_unchecked` | 503 | yes | [`before_replay`](IdempotencyKeyLayer::before_replay) panicked or timed out |
//! | <a id="out_of_time"></a>`out_of_time` | 504 | yes | the handler was cancelled at its deadline; its effect is unknown |
//!
//! # Comparison of requests
//!
//! Two requests with one key are the same if these are:
//!
//! * method;
//! * API Gateway's API and stage;
//! * path as the client sent it, without the stage, and the current path if a router has changed it, with percent-encoding
//!   normalized (RFC 3986, section 6.2.2): `%7E` is `~`, `%2f` is `%2F`, and neither is `/`;
//! * the decoded query, by name, with repeated values in order;
//! * media type without parameters;
//! * body: in canonical form if the media type is JSON (`application/json`, `+json`); the decoded fields by name, with repeated
//!   values in order, if it is `application/x-www-form-urlencoded` (up to 10,000 fields); preamble, parts and epilogue if it is
//!   `multipart/*`, whatever the boundary. Other bodies, and those that are malformed, are compared byte by byte.
//!
//! Headers are not compared, except those that [`compare_headers`](IdempotencyKeyLayer::compare_headers) names. The host is not
//! compared either, because a retry may arrive by another domain. If hosts are tenants, add them to the [scope](Caller::per_host).
//!
//! # Stored responses
//!
//! By default responses with 2xx, 3xx and 4xx, except those that a retry may change ([`ResponseAction::by_status`]). 408,
//! 424, 499 and 504 keep the key until its lease ends. Other responses release it. A [`ResponseAction`] overrides this, per
//! status or per response. After an effect, respond with [`ResponseAction::Store`] or [`ResponseAction::Keep`], whatever
//! the status.
//!
//! An error of the service keeps the key if it is [marked as unknown](crate::Classify::unknown), or if it has no mark and
//! the error of a timeout (`tower::timeout`, `tokio::time::timeout`) is among its sources, because the timeout dropped a
//! future that may have taken effect. Other errors release it. Marks and sources are found in boxed errors (such as
//! `lambda_http::Error`) and in errors with a [classifier](crate::Builder::classify).
//!
//! A `grpc-status` other than 0, in the trailers or the headers, keeps the key, unless a [`ResponseAction`] is among the
//! extensions of the response. The trailers of a response larger than [`max_response`](IdempotencyKeyLayer::max_response)
//! are not known yet and do not count. Such a response is recorded as done, without its body.
//!
//! Status, headers, body and trailers are stored, except headers of one exchange: hop-by-hop and framing headers,
//! `Authorization`, `Set-Cookie`, `Date`, tracing, request ids and rate limits. `Access-Control-*` is stored if its value
//! is `*` or its name is in [`store_headers`](IdempotencyKeyLayer::store_headers). Any other value was chosen for the
//! origin of the first request. The `Original-Request` header of a replay contains the
//! [id](IdempotencyKeyLayer::request_id) of the request that ran, if it is known.
//!
//! # Streams
//!
//! The body of a response is passed to the client as it arrives, instead of being buffered, if
//!
//! 1. the response is `text/event-stream`, or marked as [`StreamResponse`]; or
//! 2. its [`ResponseAction`] is `Release`, it is not a gRPC response, and its body is not complete immediately.
//!
//! The body is a part of the operation. It is read under the claim, and within the handler's time. When it has ended, the
//! claim is settled before the client sees the end:
//!
//! | the body | key | a retry |
//! |---|---|---|
//! | is still arriving | held | 409 `in_progress` |
//! | ended, with `Store` | done, without the body | 410 `response_not_stored` |
//! | ended, with `Release` | released | runs |
//! | ended, with `Keep`; or broke off, unless the action is `Release` | held until the lease ends | 409, then by [`AfterUnknown`](crate::AfterUnknown) |
//! | was cancelled (the lease was lost, or the longest duration or the deadline reached), or panicked | as above | as above |
//!
//! If the operation ends without an outcome (its lease was lost, or its transaction was rolled back), the body ends with an
//! error, which breaks off the response, because its status has already been sent. Clients of HTTP/1.0 cannot distinguish
//! that from the end. An outcome that the store could not record breaks off no response, buffered or not. If the client
//! disconnects, a request that [runs to completion](IdempotencyKeyLayer::run_to_completion) reads the body to its end.
//! Otherwise the body is dropped, and the key is held until the lease ends.
//!
//! `Content-Length` is removed from a stream, and trailers are sent once the claim is settled, because a server treats
//! either as the end. Responses without a body (to HEAD; 204 and 304) are not streams. In Lambda a stream needs
//! `lambda_http::run_with_streaming_response`.
//!
//! # Disconnects
//!
//! hyper drops a request whose client disconnects. Outside Lambda the layer therefore runs each request in a task
//! ([`run_to_completion`](IdempotencyKeyLayer::run_to_completion)), so that the retry gets the stored response. Wait for
//! these tasks at shutdown with [`InFlight`]. A request whose client disconnects before its handler begins is given up.
//! Limit these tasks with [`max_in_flight`](IdempotencyKeyLayer::max_in_flight), because a limit outside the layer counts
//! clients, not handlers.

mod admission;
mod answer;
#[cfg(feature = "http-lambda")]
mod authorizer;
mod caller;
mod entry;
mod exchange;
#[cfg(feature = "axum")]
mod extract;
mod fingerprint;
mod give_up;
mod grpc;
mod handler_end;
mod header_key;
mod in_flight;
mod lambda;
mod layer;
mod limits;
mod multipart;
mod pending_claim;
mod problem;
mod refusals;
mod request_body;
mod response_action;
mod response_body;
mod response_stream;
mod running;
mod service;
mod settings;
mod stored;

pub use caller::Caller;
#[cfg(feature = "axum")]
pub use extract::ReleaseRejection;
pub use give_up::GiveUpLayer;
pub use in_flight::InFlight;
pub use layer::IdempotencyKeyLayer;
pub use request_body::{BodyProblem, BodyReader, RequestBody};
pub use response_action::ResponseAction;
pub use response_body::ResponseBody;
pub use response_stream::StreamResponse;
pub use service::IdempotencyKeyService;
pub use stored::StoredResponse;
