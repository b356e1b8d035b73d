//! A handler that records its inputs.

use std::sync::{Arc, Mutex};

use lambda_once::{Failure, RecordContext, batch::Handler};

#[derive(Clone, Debug)]
pub(crate) struct Journal<T>(Arc<Mutex<Vec<(T, RecordContext)>>>);

impl<T: Clone + Send + 'static> Journal<T> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn handler(&self) -> impl Handler<T, (T, RecordContext), Output = ()> + use<T> {
        let runs = Arc::clone(&self.0);
        move |payload: T, context: RecordContext| {
            runs.lock().unwrap().push((payload, context));
            async { Ok::<_, Failure>(()) }
        }
    }

    pub(crate) fn note(&self, payload: T, context: RecordContext) {
        self.0.lock().unwrap().push((payload, context));
    }

    pub(crate) fn runs(&self) -> Vec<(T, RecordContext)> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn payloads(&self) -> Vec<T> {
        self.runs().into_iter().map(|(payload, _)| payload).collect()
    }
}
