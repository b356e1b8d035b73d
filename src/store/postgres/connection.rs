//! A pool of connections, which are opened on demand, checked after an idle time, and closed after failures.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{self, Metrics, Object, Pool, QueueMode, RecycleError, RecycleResult},
};
use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::{
    Client, Row, SimpleQueryMessage, SimpleQueryRow,
    config::Host,
    types::{ToSql, Type},
};

use super::{
    error::{self, Failure, Health},
    tls,
};
use crate::{
    clock::{Clock, SystemClock, Timestamp},
    error::{Error, ErrorKind, ErrorStatus},
    store::remote::password::Password,
};

/// The idle time after which a connection is checked before it is used. The server, a proxy or a NAT gateway may have
/// closed it while the execution environment was frozen.
const CHECK_AFTER: Duration = Duration::from_secs(5);
/// The maximum duration of this check.
const CHECK_TIMEOUT: Duration = Duration::from_millis(250);
/// The maximum time for which a call waits for a connection when all of the pool are in use. It is shorter than the
/// engine's limit for a call, so that the error names the cause.
const WAIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A parameter of a statement and its type, for which the client would otherwise query the server.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The settings for opening connections.
pub(super) struct Manager {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: tls::Connector,
    pub(super) password: Option<Password>,
    /// The time limit from the lookup of the host's name until the server is ready.
    pub(super) connect_timeout: Duration,
    /// Counts the events that make every idle connection suspect. Idle connections of an older generation are replaced.
    pub(super) generation: AtomicU64,
}

/// An open connection.
pub(super) struct Session {
    client: Arc<Client>,
    /// Transfers bytes between client and socket.
    driver: JoinHandle<()>,
    /// Whether the database stores every character. Otherwise its encoding may lack some.
    has_every_character: bool,
    last_used: Timestamp,
    generation: u64,
    is_discarded: bool,
}

impl Session {
    /// Closes the socket immediately, even while statements are in flight.
    fn discard(&mut self) {
        self.is_discarded = true;
        self.driver.abort();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Manager {
    async fn open(&self) -> Result<Session, Error> {
        // Fetching the password may hang as well.
        timeout(self.connect_timeout, self.connect()).await.unwrap_or_else(|_| {
            let message = format!("PostgreSQL at {} could not be reached in time", addresses(&self.config));
            Err(Error::new(ErrorKind::Timeout, ErrorStatus::Temporary, "connect", message))
        })
    }

    async fn connect(&self) -> Result<Session, Error> {
        let generation = self.generation.load(Ordering::Relaxed);
        let mut config = self.config.clone();
        if let Some(password) = &self.password {
            let password = password.fetch().await.map_err(|source| {
                let message = "the password could not be fetched";
                Error::new(ErrorKind::Unavailable, ErrorStatus::Temporary, "connect", message).with_source(source)
            })?;
            config.password(password);
        }
        let connection = config.connect(Clone::clone(&self.tls)).await;
        let (client, connection) = connection
            .map_err(|error| error::of_connect(error, config.get_options().is_some(), &addresses(&config)))?;
        let encoding = connection.parameter("server_encoding");
        let has_every_character = encoding.is_none_or(|encoding| ["UTF8", "SQL_ASCII"].contains(&encoding));
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(target: "lambda_once", %error, "a connection to PostgreSQL ended");
            }
        });
        let (client, last_used) = (Arc::new(client), SystemClock.now());
        Ok(Session { client, driver, has_every_character, last_used, generation, is_discarded: false })
    }

    /// Marks every idle connection for replacement.
    fn suspect_all(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns hosts and ports, for errors.
fn addresses(config: &tokio_postgres::Config) -> String {
    // As in the client: addresses replace the hosts' names, and a single port applies to every host.
    let ports = config.get_ports();
    let with_port = |(index, host): (usize, String)| {
        let port = ports.get(index).or_else(|| ports.first()).copied().unwrap_or(5432);
        format!("{host}:{port}")
    };
    let named = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let mut hosts: Vec<String> = named.collect();
    if hosts.is_empty() {
        hosts.extend(config.get_hostaddrs().iter().map(ToString::to_string));
    }
    hosts.into_iter().enumerate().map(with_port).collect::<Vec<_>>().join(", ")
}

impl managed::Manager for Manager {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session, Error> {
        self.open().await
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Error> {
        if session.is_discarded || session.client.is_closed() {
            return Err(RecycleError::message("closed"));
        }
        if session.generation != self.generation.load(Ordering::Relaxed) {
            return Err(RecycleError::message("suspect"));
        }
        if SystemClock.now().since(session.last_used) < CHECK_AFTER {
            return Ok(());
        }
        match timeout(CHECK_TIMEOUT, session.client.check_connection()).await {
            Ok(Ok(())) => Ok(()),
            failed => {
                // The other connections have been idle for longer, because the pool returns the one used last.
                self.suspect_all();
                Err(RecycleError::message(if failed.is_err() { "no answer" } else { "broken" }))
            }
        }
    }
}

/// The connections of a store.
#[derive(Clone)]
pub(super) struct Connections(Pool<Manager>);

impl Connections {
    pub(super) fn new(manager: Manager, size: usize) -> Result<Self, Error> {
        Pool::builder(manager)
            .max_size(size)
            .queue_mode(QueueMode::Lifo)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .runtime(Runtime::Tokio1)
            .build()
            .map(Self)
            .map_err(|error| Error::config("the pool of connections cannot be built").with_source(error))
    }

    pub(super) async fn get(&self) -> Result<Connection, Error> {
        let session = self.0.get().await.map_err(error::of_pool)?;
        Ok(Connection { session, is_usable: AtomicBool::new(true), is_answered: false })
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.0.status();
        f.debug_struct("Connections").field("size", &status.size).field("idle", &status.available).finish()
    }
}

/// A connection in use. If it is dropped before [`give_back`](Self::give_back) it is closed, because a statement may
/// still run on it, and the next call must not read its response.
pub(super) struct Connection {
    session: Object<Manager>,
    is_usable: AtomicBool,
    is_answered: bool,
}

impl Connection {
    /// Sends a statement and reads its whole response. Statements that are awaited together are sent together. They are
    /// unnamed, so poolers may send each one to a different server connection.
    pub(super) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        self.session.client.query_typed(sql, parameters).await.map_err(|error| self.failed(error, operation))
    }

    /// Sends a statement, and returns the number of changed rows.
    pub(super) async fn execute(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64, Failure> {
        self.session.client.execute_typed(sql, parameters).await.map_err(|error| self.failed(error, operation))
    }

    /// Sends several statements without parameters, which the server runs as one transaction.
    pub(super) async fn execute_all(&self, operation: &'static str, sql: &str) -> Result<(), Failure> {
        self.session.client.batch_execute(sql).await.map_err(|error| self.failed(error, operation))
    }

    /// Sends several statements without parameters, and returns the last row that they return, as text.
    pub(super) async fn query_all(
        &self,
        operation: &'static str,
        sql: &str,
    ) -> Result<Option<SimpleQueryRow>, Failure> {
        let messages = self.session.client.simple_query(sql).await.map_err(|error| self.failed(error, operation))?;
        Ok(messages.into_iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        }))
    }

    /// Returns the text, or `None` if the database may be unable to store it, which would fail the statement.
    pub(super) fn storable<'a>(&self, text: &'a str) -> Option<&'a str> {
        (self.session.has_every_character || text.is_ascii()).then_some(text)
    }

    fn is_usable(&self) -> bool {
        self.is_usable.load(Ordering::Relaxed)
    }

    /// Returns the connection to the pool, unless an error has occurred on it. Every statement must have completed.
    pub(super) fn give_back(mut self) {
        self.is_answered = true;
    }

    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.session.client)
    }

    fn failed(&self, error: tokio_postgres::Error, operation: &'static str) -> Failure {
        let failure = error::of_statement(error, operation);
        if failure.connection != Health::Usable {
            self.is_usable.store(false, Ordering::Relaxed);
        }
        if failure.connection == Health::Demoted
            && let Some(pool) = Object::pool(&self.session)
        {
            pool.manager().suspect_all();
        }
        failure
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.is_answered && self.is_usable() {
            self.session.last_used = SystemClock.now();
        } else {
            self.session.discard();
        }
    }
}
