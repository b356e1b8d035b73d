//! Deliveries that are no work.

use std::{fmt, sync::Arc};

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
