//! Whole invocations: a function whose event is one operation.
//!
//! One `tower` layer over a service for `LambdaEvent<T>`: functions that are invoked directly, or by Step Functions, Cognito,
//! EventBridge. A repeated event gets the first one's result, and the handler does not run. Queues and HTTP requests have
//! services of their own, which know what a record and a response are.
//!
//! | outcome of the operation | the caller gets | a retry |
//! |---|---|---|
//! | done now or before, also after a takeover | the result | |
//! | done, but not recorded | the result: the work is done | |
//! | done before, its result is not kept | [`ReplayedWithoutResult`](crate::OutcomeKind::ReplayedWithoutResult); `()` and unit structs need no keeping | ends the same way |
//! | done before, its result no longer decodes | [`StoredResult`](crate::ErrorKind::StoredResult) | ends the same way |
//! | failed now | the handler's own error | runs; after a permanent error: [`ReplayedFailure`](crate::OutcomeKind::ReplayedFailure) |
//! | failed for good before | [`ReplayedFailure`](crate::OutcomeKind::ReplayedFailure), with what that error said | ends the same way |
//! | running elsewhere | [`InProgress`](crate::OutcomeKind::InProgress) | helps |
//! | overtaken by a run that is not done | [`LeaseLost`](crate::OutcomeKind::LeaseLost) | helps |
//! | key used for another payload | [`Mismatch`](crate::OutcomeKind::Mismatch) | ends the same way; helps if that operation is running, and fails for now |
//! | ended without an outcome before, under `Refuse` | [`Abandoned`](crate::OutcomeKind::Abandoned) | ends the same way, until an operator deletes the record |
//! | panicked | [`Interrupted`](crate::OutcomeKind::Interrupted) | finds out, once the lease has ended |
//! | cancelled at the stop point | [`Interrupted`](crate::OutcomeKind::Interrupted) | finds out, once the lease has ended |
//! | no time left to start | [`NotStarted`](crate::OutcomeKind::NotStarted) | helps |
//! | no key, under `Reject` | [`KeyMissing`](crate::ErrorKind::KeyMissing) | ends the same way |
//! | event or key not readable, or event not what the handler takes | [`Payload`](crate::ErrorKind::Payload) | ends the same way |
//! | store in trouble at the claim | the store's error, such as [`Throttled`](crate::ErrorKind::Throttled) | by [`Error::status`](crate::Error::status) |
//!
//! An outcome without a result is an [`InvocationError::NoResult`], and an error of the library an [`InvocationError::Library`].
//! Lambda reports them as `lambda_once.` and the name of the outcome or of the error's kind, such as `lambda_once.in_progress`. A
//! handler's own error keeps the `errorType` that it has without the layer.
//!
//! # What is compared
//!
//! Key and payload are taken of the event as it arrived, in [canonical JSON](crate::key::canonical), so that no digit of a
//! number is lost and the handler's type does not matter; a member that it does not have counts. Outside of the layer the
//! event is a `LambdaEvent<Box<RawValue>>`, which `lambda_runtime` makes. The layer decodes it for the inner service, whose
//! `T` need only be `Deserialize`. An event that `T` does not take is refused ([`Payload`](crate::ErrorKind::Payload)) before
//! anything is claimed.
//!
//! # The handler's claim
//!
//! The handler may ask for its [`claim`]: whether it took over, and the key's hash.
//!
//! # Example
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
