#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "batch")]
pub mod batch;
pub mod clock;
mod error;
mod future;
#[cfg(feature = "http")]
pub mod http;
pub mod idempotency;
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
    AfterUnknown, Builder, Claim, Claimless, Classified, Classify, Failure, Idempotency, InTransaction, Interruption,
    OnPanic, Operation, Outcome, OutcomeKind, Probed, StoredFailure, Verdict,
};
#[cfg(any(feature = "batch", feature = "http", feature = "invocation"))]
pub use key::Key;
pub use key::MissingKey;
#[cfg(feature = "cache")]
pub use store::cached::CachedStore;
#[cfg(feature = "dynamodb")]
pub use store::dynamodb::DynamoDbStore;
#[cfg(feature = "postgres")]
pub use store::postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
pub use store::{Mismatch, Store, memory::MemoryStore, transaction::Transactional};
