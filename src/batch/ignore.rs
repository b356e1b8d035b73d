//! Ignores deliveries that need no processing.

use std::{fmt, sync::Arc};

use super::{BatchService, Source};
use crate::key::delivery::Delivery;

/// A user's function that selects the deliveries to ignore.
#[derive(Clone)]
pub(super) struct Ignore(Arc<dyn Fn(&Delivery<'_>) -> bool + Send + Sync>);

impl Ignore {
    pub(super) fn new(is_no_work: impl Fn(&Delivery<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_no_work))
    }

    /// Returns whether to ignore the delivery. May panic.
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
    /// Ignores deliveries for which `is_no_work` returns `true`, such as a broker's test message. Nothing is decoded,
    /// claimed or run, the record is acknowledged, and its outcome is [`Ignored`](crate::OutcomeKind::Ignored). The
    /// function should not block. If it panics, the record is reported
    /// ([`ErrorKind::Decode`](crate::ErrorKind::Decode)).
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
