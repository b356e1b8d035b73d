//! Calls to a store, with a time limit.

use std::{future::Future, time::Duration};

use tokio::time::timeout;
use tracing::Instrument;

use super::Engine;
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    future::BoxFuture,
    store::Answers,
    telemetry::spans,
};

/// The maximum duration of one call, whatever the client's own timeouts are. A call without a response leaves time for
/// a second call.
pub(super) const MAX_CALL_TIME: Duration = Duration::from_secs(3);

impl Engine {
    /// Awaits one call to the store for at most `time` and [`MAX_CALL_TIME`], and ensures that the store returns one
    /// result per request.
    pub(super) async fn within<T>(
        &self,
        time: Duration,
        operation: &'static str,
        requests: usize,
        call: impl Future<Output = Answers<T>> + Send,
    ) -> Answers<T> {
        let span = spans::call(&*self.store, operation, requests);
        let answers = match timeout(time.min(MAX_CALL_TIME), call).instrument(span.clone()).await {
            Ok(answers) if answers.len() == requests => answers,
            Ok(_) => for_each(miscounted(operation), requests),
            Err(_) => for_each(silent(operation), requests),
        };
        spans::answered(&span, || answers.iter().find_map(|answer| answer.as_ref().err()));
        answers
    }

    /// Awaits one call of a transaction, as [`within`](Self::within) does.
    pub(super) async fn within_transaction<T>(
        &self,
        time: Duration,
        operation: &'static str,
        call: BoxFuture<'_, Result<T, Error>>,
    ) -> Result<T, Error> {
        let span = spans::call(&*self.store, operation, 1);
        let answer = timeout(time.min(MAX_CALL_TIME), call).instrument(span.clone()).await;
        let answer = answer.unwrap_or_else(|_| Err(silent(operation)));
        spans::answered(&span, || answer.as_ref().err());
        answer
    }
}

pub(super) fn silent(operation: &'static str) -> Error {
    Error::new(ErrorKind::Timeout, ErrorStatus::Ambiguous, operation, "the store did not respond in time")
}

/// Returns the same error for every request of a call.
pub(super) fn for_each<T>(error: Error, requests: usize) -> Answers<T> {
    error.for_each(requests).map(Err).collect()
}

fn miscounted(operation: &'static str) -> Error {
    let message = "the store returned a different number of results than there were requests";
    Error::new(ErrorKind::Request, ErrorStatus::Ambiguous, operation, message)
}
