//! HTTP: the `Idempotency-Key` header.
//!
//! One `tower` layer for everything that is a `Service<http::Request<_>>`: REST and HTTP APIs, load balancers and
//! function URLs through `lambda_http`, and `axum` (with the feature of that name).
//!
//! | situation | answer |
//! |---|---|
//! | the method is not covered (POST and PATCH are), or there is no key and it is optional | as without the layer |
//! | no key; malformed, repeated or too long | 400 |
//! | the scope does not know the caller | 403 |
//! | the body is larger than the cap | 413 |
//! | first time | the handler's answer |
//! | done | the stored answer, byte for byte, and `Idempotency-Replayed: true` |
//! | done, but the answer was not kept | 410 |
//! | running, or its outcome is unknown | 409; while it is running with `Retry-After` |
//! | the key was used with another method, path, query or body | 422 |
//! | the engine's policy is [`AfterUnknown::Probe`](crate::AfterUnknown::Probe), for which there is no probe here yet | 500 |
//! | the handler panicked / was cut off at the stop point | 500 / 504 |
//! | the store is in trouble, or no time is left | 503 with `Retry-After` |
//!
//! Refusals are `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) with a stable `code`.
//!
//! # The key
//!
//! An RFC 8941 string (`"8e03978e-40d5"`) or the same without quotes; both are the same key. At most 255 characters of
//! printable ASCII; without quotes none of them a comma, a quote or a space, since an HTTP API joins two headers by a
//! comma. A REST API (payload version 1) hands over both of two headers, but `lambda_http` keeps the last only: there a
//! repeated header is not noticed.
//!
//! # What is stored
//!
//! The status, the headers and the body of answers with a status that [`remember`](IdempotencyKeyLayer::remember) lets
//! through: by default 2xx, 3xx and 4xx but 401, 403, 408, 409, 425 and 429. Other answers, and errors of the service,
//! release the key, so that a retry runs again. A boxed error (as `lambda_http` has them) that is [marked as
//! unknown](crate::Classify::unknown) keeps the claim until its lease ends. Headers that belong to one exchange are not
//! stored: `Set-Cookie`, `Date`, `Content-Length`, `Access-Control-*`, hop-by-hop and tracing headers.
//!
//! # Example
//!
//! ```no_run
//! use lambda_http::{Body, Request, Response, service_fn, tower::ServiceBuilder};
//! use lambda_once::{Idempotency, MemoryStore, http::{IdempotencyKeyLayer, Scope}};
//!
//! async fn charge(request: Request) -> Result<Response<Body>, lambda_http::Error> {
//!     Ok(Response::builder().status(201).body("{}".into())?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lambda_http::Error> {
//! let once = Idempotency::new(MemoryStore::new());
//! let app = ServiceBuilder::new()
//!     .layer(IdempotencyKeyLayer::new(once, Scope::authorizer()))
//!     .service(service_fn(charge));
//! lambda_http::run(app).await
//! # }
//! ```

mod answer;
#[cfg(feature = "http-lambda")]
mod authorizer;
mod decision;
mod entry;
mod exchange;
mod fingerprint;
mod header_key;
mod in_flight;
mod lambda;
mod layer;
mod pending_claim;
mod problem;
mod request_body;
mod response_body;
mod scope;
mod service;
mod settings;
mod stored;

pub use decision::Decision;
pub use in_flight::InFlight;
pub use layer::IdempotencyKeyLayer;
pub use request_body::{BodyProblem, RequestBody};
pub use response_body::ResponseBody;
pub use scope::Scope;
pub use service::IdempotencyKeyService;
pub use stored::StoredResponse;
