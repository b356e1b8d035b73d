//! The engine, which takes one operation from its claim to its end.
//!
//! [`Idempotency`] joins a store with settings. [`Idempotency::operation`] protects any async function. The queue
//! processor and the HTTP layer build on the same protocol.

pub(crate) mod builder;
mod candidate;
pub(crate) mod claim;
pub(crate) mod classifier;
pub(crate) mod codec;
pub(crate) mod engine;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod invoked;
pub(crate) mod names;
mod operation;
pub(crate) mod operation_settings;
pub(crate) mod outcome;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod result;
pub(crate) mod settings;
mod transaction;
pub(crate) mod verdict;
mod warnings;
pub(crate) mod window;

pub use builder::Builder;
pub use claim::Claim;
pub use codec::ResultCodec;
pub use handle::Idempotency;
pub use invoked::InvocationContext;
pub use operation::Operation;
pub use operation_settings::OperationSettings;
pub use outcome::{Interruption, Outcome, OutcomeKind, StoredFailure};
pub use policy::{AfterUnknown, OnPanic, Results};
pub use probe::ProbeResult;
pub use settings::DISABLED_VARIABLE;
pub use transaction::{InTransaction, WithoutClaim};
pub use verdict::{Classified, Classify, Failure, Verdict};
