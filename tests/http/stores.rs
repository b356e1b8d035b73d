//! Stores with a limit.

use lambda_once::store::{Limits, Store};

use crate::support::delegate::delegate;

/// A store that accepts results up to a size.
#[derive(Debug)]
pub(crate) struct Limited<S> {
    pub(crate) store: S,
    pub(crate) max_result_bytes: usize,
}

impl<S: Store> Store for Limited<S> {
    delegate!(store: claim, settle, read, id, warm_up);

    fn limits(&self) -> Limits {
        Limits { max_result_bytes: self.max_result_bytes, ..self.store.limits() }
    }
}
