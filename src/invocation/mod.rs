//! Makes whole invocations idempotent, for functions whose event is one operation.
//!
//! ```no_run
//! use lambda_once::{Idempotency, Key, MemoryStore, invocation::InvocationLayer};
//! use lambda_runtime::{Error, LambdaEvent, service_fn, tower::ServiceBuilder};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Order { order_id: String, cents: u64 }
//!
//! async fn book(event: LambdaEvent<Order>) -> Result<String, Error> {
//!     Ok(format!("booked {}", event.payload.order_id))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let once = Idempotency::new(MemoryStore::new());
//! let layer = InvocationLayer::new(once, Key::pointer("/order_id")).validate()?;
//! lambda_runtime::run(ServiceBuilder::new().layer(layer).service(service_fn(book))).await
//! # }
//! ```
//!
//! The module provides a `tower` layer over a service for `LambdaEvent<T>`, for functions that are invoked directly or
//! by Step Functions, Cognito or EventBridge. A repeated event gets the first result without running the handler. For
//! queues and HTTP requests, use their services, which handle single records and responses.
//!
//! | outcome of the operation | the caller gets | a retry |
//! |---|---|---|
//! | done now or before, also after a takeover | the result | |
//! | done, but not recorded | the result, because the work is done | |
//! | done before, its result is not stored | [`ReplayedWithoutResult`](crate::OutcomeKind::ReplayedWithoutResult); `()` and unit structs need not be stored | ends the same way |
//! | done before, its result no longer decodes | [`StoredResult`](crate::ErrorKind::StoredResult) | ends the same way |
//! | failed now | the handler's error | runs; after a permanent error: [`ReplayedFailure`](crate::OutcomeKind::ReplayedFailure) |
//! | failed permanently before | [`ReplayedFailure`](crate::OutcomeKind::ReplayedFailure), with that error's text | ends the same way |
//! | superseded by a newer operation, before | [`Superseded`](crate::OutcomeKind::Superseded) | ends the same way |
//! | running elsewhere | [`InProgress`](crate::OutcomeKind::InProgress) | helps |
//! | overtaken by an unfinished run, or its record was deleted | [`LeaseLost`](crate::OutcomeKind::LeaseLost) | helps |
//! | key used for a different payload | [`Mismatch`](crate::OutcomeKind::Mismatch) | ends the same way; helps if that operation is running, and fails transiently |
//! | ended without an outcome before, under `Refuse` | [`Abandoned`](crate::OutcomeKind::Abandoned) | ends the same way, until an operator [amends](crate::store::amend) the record or it expires |
//! | panicked | [`Interrupted`](crate::OutcomeKind::Interrupted) | finds out, once the lease has ended |
//! | cancelled at the handler deadline | [`Interrupted`](crate::OutcomeKind::Interrupted) | finds out, once the lease has ended |
//! | no time left to start | [`NotStarted`](crate::OutcomeKind::NotStarted) | helps |
//! | no key, under `Reject` | [`KeyMissing`](crate::ErrorKind::KeyMissing) | ends the same way |
//! | unreadable event or key, or an event that the handler's type does not accept | [`Payload`](crate::ErrorKind::Payload) | ends the same way |
//! | transient or unknown error of a function that selects the key or payload | [`Decode`](crate::ErrorKind::Decode), because nothing ran | helps |
//! | store error at the claim | the store's error, such as [`Throttled`](crate::ErrorKind::Throttled) | by [`Error::status`](crate::Error::status) |
//!
//! An outcome without a result is an [`InvocationError::NoResult`], and an error of the library an
//! [`InvocationError::Library`]. Lambda reports them as `lambda_once.` followed by the name of the outcome or of the
//! error's kind, such as `lambda_once.in_progress`. A handler's error keeps the `errorType` that it has without the
//! layer.
//!
//! # Compared values
//!
//! Key and payload are selected from the event as received, in [canonical JSON](crate::key::canonical). No digit of a
//! number is lost, and members that the handler's type lacks are compared too. Outside the layer the event is a
//! `LambdaEvent<Box<RawValue>>`, which `lambda_runtime` deserializes. The layer decodes it for the inner service, whose
//! `T` only needs to be `Deserialize`. An event that does not decode as `T` fails
//! ([`Payload`](crate::ErrorKind::Payload)) before anything is claimed.
//!
//! # The handler's claim
//!
//! The handler can get its [`claim`], which indicates a takeover and contains the key's hash.

mod claim;
mod error;
mod layer;
mod service;
mod settings;

pub use claim::claim;
pub use error::{HandlerError, InvocationError};
#[doc(hidden)]
pub use lambda_runtime::Diagnostic;
pub use layer::InvocationLayer;
pub use service::InvocationService;
