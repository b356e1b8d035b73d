//! Runs requests in tasks that outlive their connections, and waits for them at shutdown.

use std::{
    future::{Future, pending},
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    runtime::Handle,
    task::{JoinError, JoinHandle},
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use tracing::Instrument;

use crate::telemetry::{Tallied, Tally};

/// The requests of a layer that run in their own tasks.
///
/// A graceful shutdown waits only for open connections, and not for the requests of clients that have disconnected.
/// Wait for these tasks as well, before the runtime shuts down:
///
/// ```no_run
/// # async fn shutdown() {}
/// # #[cfg(feature = "axum")]
/// # async fn serve(listener: tokio::net::TcpListener, app: axum::Router, layer: lambda_once::http::IdempotencyKeyLayer) {
/// let in_flight = layer.in_flight();
/// // … axum::serve(listener, app).with_graceful_shutdown(shutdown()).await …
/// in_flight.drain().await;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct InFlight(TaskTracker);

/// The state of a request's client and handler.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    has_left: Arc<AtomicBool>,
    has_begun: Arc<AtomicBool>,
}

impl Client {
    /// Returns whether the request can be given up, because its client has disconnected and no handler has begun, not
    /// even in an earlier attempt of a retry layer inside. Otherwise, the handler counts as begun from now on.
    pub(super) fn gives_up(&self) -> bool {
        let gives_up = self.has_left() && !self.has_begun.load(Ordering::Relaxed);
        if !gives_up {
            self.has_begun.store(true, Ordering::Relaxed);
        }
        gives_up
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }
}

/// A part of the future that a server drops when the client leaves.
struct Presence(Client);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.has_left.store(true, Ordering::Relaxed);
    }
}

impl InFlight {
    pub(super) fn new() -> Self {
        Self(TaskTracker::new())
    }

    /// Returns the number of requests that are running.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Completes when no request is running. Each ends at the latest when the maximum duration of its
    /// [heartbeat](super::IdempotencyKeyLayer::heartbeat) has passed or, without one, at the handler deadline of its
    /// lease. Only requests that run unprotected ([`fail_open`](super::IdempotencyKeyLayer::fail_open)) are not
    /// cancelled.
    pub async fn drain(&self) {
        self.0.close();
        self.0.wait().await;
    }

    /// Awaits `work` in its own task, which continues if this future is dropped. Panics are propagated.
    pub(super) async fn run<F>(&self, work: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        match self.spawn(work).await.map_err(JoinError::try_into_panic) {
            Ok((value, _token)) => value,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime is shutting down, and drops this next.
            Err(Err(_)) => pending().await,
        }
    }

    /// Awaits `work` like `run`, and lets it detect whether this future has been dropped.
    pub(super) async fn run_for_client<F>(&self, work: impl FnOnce(Client) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let presence = Presence(Client::default());
        self.run(work(presence.0.clone())).await
    }

    /// Starts `work` in its own task if there is a runtime.
    pub(super) fn spawn_if_possible(&self, work: impl Future<Output = ()> + Send + 'static) {
        if Handle::try_current().is_ok() {
            self.spawn(work);
        }
    }

    /// The task counts until its output is dropped, because dropping an untaken claim starts the task that releases it.
    fn spawn<F>(&self, work: F) -> JoinHandle<(F::Output, TaskTrackerToken)>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let token = self.0.token();
        let work = Tallied::new(Tally::current(), work);
        tokio::spawn(async move { (work.await, token) }.in_current_span())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::{Arc, Mutex},
    };

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn a_request_whose_handler_has_begun_is_not_given_up() {
        let (client, tried) = (Client::default(), Client::default());
        assert!(!tried.gives_up());
        drop([Presence(client.clone()), Presence(tried.clone())]);
        assert!(client.gives_up() && client.gives_up());
        assert!(!tried.gives_up(), "a retry inside the layer");
    }

    #[test]
    fn without_a_runtime_nothing_is_started() {
        let in_flight = InFlight::new();
        in_flight.spawn_if_possible(async {});
        assert_eq!(in_flight.count(), 0);
    }

    /// Notes whether anything is in flight when it is dropped.
    struct Output(InFlight, Arc<Mutex<Option<bool>>>);

    impl Drop for Output {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = Some(self.0.count() == 0);
        }
    }

    #[tokio::test]
    async fn work_is_in_flight_until_its_output_has_been_dropped() {
        let (in_flight, go, was_empty) = (InFlight::new(), Arc::new(Notify::new()), Arc::default());
        let (gate, output) = (Arc::clone(&go), Output(in_flight.clone(), Arc::clone(&was_empty)));
        {
            let work = async move {
                gate.notified().await;
                output
            };
            assert!(pin!(in_flight.run(work)).now_or_never().is_none());
        }
        assert_eq!(in_flight.count(), 1);
        go.notify_one();
        in_flight.drain().await;
        assert_eq!(*was_empty.lock().unwrap(), Some(false));
    }
}
