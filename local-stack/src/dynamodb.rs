//! The embedded DynamoDB: dynoxide behind its own HTTP server.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::Duration,
};

use dynoxide::{Database, server};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::JoinHandle,
};

use crate::Error;

/// The time that [`EmbeddedDynamoDb::shutdown`] gives to running requests.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// A DynamoDB in this process, served over HTTP on 127.0.0.1, gone when dropped.
///
/// It runs on separate threads, so one instance can be shared by tests that each have their own
/// Tokio runtime, and a blocked caller never blocks the server.
#[derive(Debug)]
pub struct EmbeddedDynamoDb {
    endpoint: String,
    /// `None` once it has been stopped.
    server: Option<Server>,
}

#[derive(Debug)]
struct Server {
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), String>>,
}

impl EmbeddedDynamoDb {
    /// Starts an empty DynamoDB on a free port. It responds to requests as soon as this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Listen`], [`Error::Runtime`] or [`Error::Database`]: the system gave no port, no
    /// thread or no memory.
    pub fn start() -> Result<Self, Error> {
        Self::start_on(0)
    }

    /// Like [`start`](Self::start), on a given port; 0 picks a free one.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start); [`Error::Listen`] also if the port is taken.
    pub fn start_on(port: u16) -> Result<Self, Error> {
        let listen = |source| Error::Listen { port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let endpoint = format!("http://{}", listener.local_addr().map_err(listen)?);
        let database = Database::memory().map_err(|error| Error::Database(Box::new(error)))?;

        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("embedded-dynamodb")
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(listen)?
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let served = runtime.spawn(server::serve_with_shutdown(listener, database, async {
            // An error means that the sender is gone, which is a request to stop as well.
            let _ = stopped.await;
        }));

        Ok(Self { endpoint, server: Some(Server { runtime, stop, served }) })
    }

    /// The address to give to an SDK as its endpoint, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Stops it, after letting running requests finish. Dropping it stops it at once.
    pub async fn shutdown(mut self) {
        if let Some(Server { runtime, stop, served }) = self.server.take() {
            let _ = stop.send(());
            let _ = tokio::time::timeout(SHUTDOWN_GRACE, served).await;
            runtime.shutdown_background();
        }
    }
}

impl Drop for EmbeddedDynamoDb {
    fn drop(&mut self) {
        // A runtime must not simply be dropped: inside another runtime that panics.
        if let Some(server) = self.server.take() {
            server.runtime.shutdown_background();
        }
    }
}
