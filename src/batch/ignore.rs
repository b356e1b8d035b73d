//! Deliveries that are no work.

use std::{fmt, sync::Arc};

use super::{BatchService, Source};
use crate::key::delivery::Delivery;

/// A function of the user's that says which deliveries are no work.
#[derive(Clone)]
pub(super) struct Ignore(Arc<dyn Fn(&Delivery<'_>) -> bool + Send + Sync>);

impl Ignore {
    pub(super) fn new(is_no_work: impl Fn(&Delivery<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_no_work))
    }

    /// Whether the delivery is no work. It may panic.
    pub(super) fn applies(&self, delivery: &Delivery<'_>) -> bool {
        (self.0)(delivery)
    }
}

impl fmt::Debug for Ignore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ignore")
    }
}

impl<S: Source, H, T, Args> BatchService<S, H, T, Args> {
    /// Acknowledges what is no work, such as a broker's test message: for each delivery of which `is_no_work` holds nothing is
    /// decoded, claimed or run, and its outcome is [`Ignored`](crate::OutcomeKind::Ignored). It should not block. If it panics, the record
    /// is reported ([`ErrorKind::Decode`](crate::ErrorKind::Decode)).
    ///
    /// ```
    /// use lambda_once::{Failure, Idempotency, Key, MemoryStore};
    ///
    /// let once = Idempotency::new(MemoryStore::new());
    /// # #[cfg(feature = "sqs")]
    /// let service = once
    ///     .sqs(Key::pointer("/order_id"), |_: serde_json::Value| async { Ok::<_, Failure>(()) })
    ///     .ignore(|delivery| delivery.header("kind") == Some("ping"));
    /// ```
    pub fn ignore(self, is_no_work: impl Fn(&Delivery<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.ignoring(Ignore::new(is_no_work))
    }
}
