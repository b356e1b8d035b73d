#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
#[cfg(feature = "batch")]
pub mod batch;
pub mod clock;
mod error;
mod future;
#[cfg(feature = "http")]
pub mod http;
mod idempotency;
#[cfg(feature = "invocation")]
pub mod invocation;
pub mod key;
pub mod order;
mod panics;
pub mod record;
pub mod store;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "batch")]
pub use batch::{PermanentFailures, RecordContext};
pub use clock::Deadline;
pub use error::{BoxError, Error, ErrorKind, ErrorStatus};
pub use future::BoxFuture;
pub use idempotency::{
    AfterUnknown, Builder, Claim, Classified, Classify, DISABLED_VARIABLE, Failure, Idempotency, InTransaction,
    Interruption, InvocationContext, OnPanic, Operation, OperationSettings, Outcome, OutcomeKind, ProbeResult,
    StoredFailure, Verdict, WithoutClaim,
};
pub use key::missing::MissingKey;
#[cfg(any(feature = "batch", feature = "invocation"))]
pub use key::payload::Payload;
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub use key::selector::Key;
#[cfg(feature = "cache")]
pub use store::cached::CachedStore;
#[cfg(feature = "dynamodb")]
pub use store::dynamodb::DynamoDbStore;
#[cfg(feature = "postgres")]
pub use store::postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
pub use store::{Mismatch, Store, memory::MemoryStore, transaction::Transactional};
