//! Calls to a store: how long they may take, and when they are made again.

use std::{future::Future, time::Duration};

use tokio::time::timeout;

use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    store::Answers,
};

/// What is too short for a call to the store.
pub(super) const CALL_AT_LEAST: Duration = Duration::from_millis(100);

/// Awaits a store call for as long as there is time, and holds the store to one answer for each request.
pub(super) async fn within<T>(
    time: Duration,
    operation: &'static str,
    requests: usize,
    call: impl Future<Output = Answers<T>> + Send,
) -> Answers<T> {
    match timeout(time, call).await {
        Ok(answers) if answers.len() == requests => answers,
        Ok(_) => repeat(miscounted(operation), requests),
        Err(_) => {
            let message = "the store did not answer before the invocation's time was up";
            repeat(Error::new(ErrorKind::Timeout, ErrorStatus::Ambiguous, operation, message), requests)
        }
    }
}

/// The same error for every request of a call; its source goes to the last.
pub(super) fn repeat<T>(error: Error, times: usize) -> Answers<T> {
    let copies: Vec<Error> = (1..times).map(|_| error.without_source()).collect();
    copies.into_iter().chain([error]).take(times).map(Err).collect()
}

fn miscounted(operation: &'static str) -> Error {
    let message = "the store gave more or fewer answers than there were requests";
    Error::new(ErrorKind::Request, ErrorStatus::Ambiguous, operation, message)
}

/// Pauses that double up to a ceiling, each cut to a random part of itself, so that many callers do not come back at
/// the same moment.
#[derive(Default)]
pub(crate) struct Backoff {
    retries: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(2);

    pub(super) fn next(&mut self) -> Duration {
        self.ceiling().mul_f64(fastrand::f64())
    }

    /// The pause before a look at what somebody else may have changed: never less than half of its ceiling, since a look
    /// that comes early is a call for nothing.
    pub(crate) fn next_look(&mut self) -> Duration {
        self.ceiling().mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn ceiling(&mut self) -> Duration {
        let ceiling = Self::FIRST.saturating_mul(2_u32.saturating_pow(self.retries)).min(Self::LONGEST);
        self.retries += 1;
        ceiling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_ceiling() {
        let mut backoff = Backoff::default();
        assert!(backoff.next() <= Duration::from_millis(50));
        for _ in 0..100 {
            assert!(backoff.next() <= Duration::from_secs(2));
        }
        for _ in 0..100 {
            assert!((Duration::from_secs(1)..=Duration::from_secs(2)).contains(&backoff.next_look()));
        }
    }
}
