//! Checks in tests that a handler's records can safely be delivered again.
//!
//! Needs the feature `testing`, for `[dev-dependencies]`.
//!
//! ```
//! use lambda_once::{Failure, Key, testing};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { order_id: String }
//!
//! async fn book(order: Order) -> Result<String, Failure> {
//!     Ok(order.order_id)
//! }
//!
//! # #[cfg(feature = "sqs")]
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! // In a `#[tokio::test]`:
//! let service = testing::engine().sqs(Key::pointer("/order_id"), book);
//! let order = Order { order_id: "7".into() };
//! let batch = testing::sqs::batch([testing::record(&order)]);
//! testing::deliver_twice(&service, &batch).await.assert_once();
//! # }
//! # #[cfg(not(feature = "sqs"))] fn main() {}
//! ```
//!
//! The module provides:
//!
//! * [`engine`], in memory, on a [clock](TokioClock) that follows tokio's
//! * [`record`] and [`bytes`](bytes()) for records of any source, and a module per source (if its feature is enabled)
//!   that makes events of them
//! * [`deliver`], [`deliver_twice`], [`deliver_at_once`] and [`Deliveries::assert_once`]
//! * [`assert_round_trip`] for the results that a repeated operation returns
//! * `event` for whole invocations (feature `invocation`)
//! * [`context`], [`record_context`] and [`claim`] for handlers that are called directly
//!
//! These functions panic on incorrect use.

use crate::{
    idempotency::{builder::Builder, handle::Idempotency},
    store::{Store, memory::MemoryStore},
};

mod clock;
mod context;
mod deliver;
mod diagnosis;
mod events;
mod results;
mod unique;

pub use clock::TokioClock;
#[cfg(feature = "invocation")]
pub use context::event;
pub use context::{claim, context, record_context};
pub use deliver::{Deliveries, Redeliver, TIME_LEFT, deliver, deliver_at_once, deliver_twice};
pub use events::*;
pub use results::assert_round_trip;

/// Creates an engine on an empty in-memory store, with the default settings.
///
/// Both use the [`TokioClock`]. The engine ignores the environment, including `LAMBDA_ONCE_DISABLED`.
pub fn engine() -> Idempotency {
    builder(store()).build_unchecked()
}

/// Returns a builder of the same engine, for a different store or other settings.
///
/// ```
/// use lambda_once::{AfterUnknown, testing};
///
/// let once = testing::builder(testing::store()).after_unknown(AfterUnknown::Refuse).build().unwrap();
/// ```
pub fn builder(store: impl Store) -> Builder {
    Idempotency::builder(store).clock(TokioClock).scope("testing").disabled(false)
}

/// Creates an empty in-memory store that uses the [`TokioClock`].
pub fn store() -> MemoryStore {
    MemoryStore::with_clock(TokioClock)
}
