//! A connection that all calls share.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::RedisError;
use tokio::{sync::Mutex, time::timeout};

/// Opens a connection, or gives up.
pub(super) async fn within<C>(
    limit: Duration,
    open: impl Future<Output = Result<C, RedisError>>,
) -> Result<C, RedisError> {
    timeout(limit, open).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// A connection that is opened when it is needed, and replaced when it is of no more use.
pub(super) struct Shared<C> {
    state: Mutex<State<C>>,
    /// How often a connection was opened, or could not be.
    attempts: AtomicU64,
}

struct State<C> {
    /// The connection, and the attempt that opened it.
    live: Option<(C, u64)>,
    /// Why the last attempt to connect failed, if it did.
    failure: Option<RedisError>,
}

/// The connection, for one call.
pub(super) struct Lease<C> {
    pub(super) connection: C,
    /// Whether it was opened for this call.
    pub(super) is_new: bool,
    /// Which connection it is.
    pub(super) number: u64,
}

impl<C: Clone> Shared<C> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { live: None, failure: None }), attempts: AtomicU64::new(0) }
    }

    /// The connection, by `open` if there is none. Calls that wait for an attempt share its failure.
    pub(super) async fn get(&self, open: impl Future<Output = Result<C, RedisError>>) -> Result<Lease<C>, RedisError> {
        let before = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some((connection, number)) = &state.live {
            return Ok(Lease { connection: connection.clone(), is_new: false, number: *number });
        }
        if let (Some(failure), true) = (&state.failure, self.attempts.load(Ordering::Acquire) > before) {
            return Err(failure.clone());
        }
        let opened = open.await;
        let number = self.attempts.fetch_add(1, Ordering::AcqRel) + 1;
        match opened {
            Ok(connection) => {
                *state = State { live: Some((connection.clone(), number)), failure: None };
                Ok(Lease { connection, is_new: true, number })
            }
            Err(error) => {
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Has the next call open another connection, if this one is still the current one.
    pub(super) async fn discard(&self, number: u64) {
        let mut state = self.state.lock().await;
        if state.live.as_ref().is_some_and(|(_, current)| *current == number) {
            state.live = None;
        }
    }
}
