//! The connection that all calls share.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::RedisError;
use tokio::{sync::Mutex, time::timeout};

/// Opens a connection within a time limit.
pub(super) async fn within<C>(
    limit: Duration,
    open: impl Future<Output = Result<C, RedisError>>,
) -> Result<C, RedisError> {
    timeout(limit, open).await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

/// Awaits a call, and runs `on_drop` if it is dropped before its response.
pub(super) async fn noticing_drop<T>(call: impl Future<Output = T>, on_drop: impl FnOnce() + Send) -> T {
    struct Guard<F: FnOnce()>(Option<F>);

    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(on_drop) = self.0.take() {
                on_drop();
            }
        }
    }

    let mut guard = Guard(Some(on_drop));
    let answer = call.await;
    guard.0 = None;
    answer
}

/// A connection that is opened on demand and replaced when it fails.
pub(super) struct Shared<C> {
    state: Mutex<State<C>>,
    /// The number of the last connection that must not be used again, including all earlier ones.
    discarded: AtomicU64,
    /// The number of attempts to connect that have ended, successfully or not.
    attempts: AtomicU64,
}

struct State<C> {
    /// The connection, and the attempt that opened it.
    live: Option<(C, u64)>,
    /// The error of the last attempt to connect, if it failed.
    failure: Option<RedisError>,
}

/// The connection during one call.
pub(super) struct Lease<C> {
    pub(super) connection: C,
    /// Whether it was opened for this call.
    pub(super) is_new: bool,
    /// The number of the attempt that opened it.
    pub(super) number: u64,
}

impl<C: Clone> Shared<C> {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State { live: None, failure: None }),
            discarded: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
        }
    }

    /// Returns the connection, and opens it with `open` if there is none. Calls that wait for an attempt share its
    /// failure.
    pub(super) async fn get(&self, open: impl Future<Output = Result<C, RedisError>>) -> Result<Lease<C>, RedisError> {
        let before = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        state.live.take_if(|(_, number)| *number <= self.discarded.load(Ordering::Acquire));
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

    /// Makes the next call open another connection, unless this one has been replaced already.
    pub(super) fn discard(&self, number: u64) {
        self.discarded.fetch_max(number, Ordering::AcqRel);
    }
}
