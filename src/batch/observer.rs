//! Passes the report of each record to a user's observer.

use std::{fmt, sync::Arc};

use super::RecordReport;
use crate::idempotency::guard::catch_panic;

/// A user's function that receives the report of each record.
#[derive(Clone)]
pub(super) struct Observer(Arc<dyn Fn(&RecordReport) + Send + Sync>);

impl Observer {
    pub(super) fn new(observe: impl Fn(&RecordReport) + Send + Sync + 'static) -> Self {
        Self(Arc::new(observe))
    }

    /// Calls the function. If it panics, the panic is logged.
    pub(super) fn observe(&self, report: &RecordReport) {
        if catch_panic(|| (self.0)(report)).is_none() {
            tracing::error!(target: "lambda_once", message_id = report.record.id(), "the observer of records panicked");
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
