//! Rolls transactions back, and checks that they were rolled back.

use std::time::Duration;

use futures_util::future::join3;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    connection::Connection,
    error::{self, Failure},
    row,
    transaction::{Begun, COMMIT},
};
use crate::error::{Error, ErrorKind, ErrorStatus};

/// The maximum time for a connection to report whether it is still in its transaction, and to roll that back. After
/// that it is closed, and the server is queried on another connection.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(250);

/// The maximum time for querying the server about the end of the transaction of a closed connection.
const POLL_TIMEOUT: Duration = Duration::from_millis(250);

/// The pause between two of these queries.
const PAUSE: Duration = Duration::from_millis(10);

impl Begun {
    /// Rolls back, and returns the connection to the pool. If that fails or takes too long, or if the connection is in
    /// use elsewhere, it is closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`], ambiguous, unless the transaction is known to be rolled back, that is, if the
    /// handler has ended it itself or the server did not report whether it has.
    pub(super) async fn roll_back(self, is_unshared: bool) -> Result<(), Error> {
        if is_unshared {
            if let Some(connection) = self.end(POLL_TIMEOUT).await? {
                connection.give_back();
            }
            return Ok(());
        }
        let Self { connection, id, store } = self;
        // A clone may send statements until the connection is closed, and after a `ROLLBACK` they would be committed.
        let asked = timeout(ROLLBACK_TIMEOUT, is_within(&connection, &id, COMMIT)).await;
        drop(connection);
        match asked {
            Ok(Ok(false)) => Err(ended_by_the_handler()),
            // It may have sent `COMMIT` since.
            _ => store.await_rollback(&id, POLL_TIMEOUT).await,
        }
    }

    /// Ends the transaction like [`end`](Self::end), for as long as the caller waits.
    pub(super) async fn end_in_commit(self) -> Result<Option<Connection>, Error> {
        self.end(Duration::MAX).await
    }

    /// Rolls back a transaction that only the store can send statements in. Returns the connection, if it is still
    /// usable. `limit` applies to the query on another connection.
    ///
    /// # Errors
    ///
    /// The errors of [`roll_back`](Self::roll_back).
    async fn end(self, limit: Duration) -> Result<Option<Connection>, Error> {
        let Self { connection, id, store } = self;
        // Separate messages, because an error in one must not prevent the others. After an error of the handler's the
        // first is rejected (25P02), and the last one decides.
        let asked = join3(
            is_within(&connection, &id, COMMIT),
            connection.execute_all(COMMIT, "ROLLBACK"),
            status(&connection, &id),
        );
        let (is_within, rolled_back, status) = match timeout(ROLLBACK_TIMEOUT, asked).await {
            Ok(answers) => answers,
            // A statement of the handler may still be running, and a `COMMIT` may follow it.
            Err(_) => {
                drop(connection);
                return store.await_rollback(&id, limit).await.map(|()| None);
            }
        };
        let connection = Some(connection).filter(|_| rolled_back.is_ok());
        match (is_within, status) {
            // The server rolls back the transaction of a closed connection.
            (Ok(true), _) => Ok(connection),
            (Ok(false), _) => {
                connection.into_iter().for_each(Connection::give_back);
                Err(ended_by_the_handler())
            }
            (Err(_), Ok(status)) if connection.is_some() => judge(status).map(|()| connection),
            // The connection is lost.
            (Err(_), _) => {
                drop(connection);
                store.await_rollback(&id, limit).await.map(|()| None)
            }
        }
    }
}

impl PostgresStore {
    /// Waits until the server has ended a transaction whose connection is closed, and checks that it was rolled back.
    /// Opening another connection has separate limits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`], ambiguous, if the handler has ended the transaction itself, or if the server does
    /// not report how it ended.
    pub(super) async fn await_rollback(&self, id: &str, limit: Duration) -> Result<(), Error> {
        let connection = self.connections.get().await.map_err(|_| not_known())?;
        let ended = async {
            loop {
                let status = status(&connection, id).await?;
                if status != Some(Status::InProgress) {
                    return Ok::<_, Failure>(status);
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(limit, ended).await {
            Ok(Ok(status)) => {
                connection.give_back();
                judge(status)
            }
            _ => Err(not_known()),
        }
    }
}

/// Returns whether the connection is in this transaction, which the handler may have ended.
pub(super) async fn is_within(
    connection: &Connection,
    transaction: &str,
    operation: &'static str,
) -> Result<bool, Failure> {
    let rows = connection.query(operation, include_str!("transaction_id.sql"), &[]).await?;
    let row = rows.first().ok_or_else(|| error::no_row(operation))?;
    Ok(row::transaction(row, operation)? == Some(transaction))
}

/// Rolls back, and returns the connection to the pool. If that fails or takes too long, the connection is closed.
pub(super) async fn roll_back(connection: Connection) {
    if matches!(timeout(ROLLBACK_TIMEOUT, connection.execute_all(COMMIT, "ROLLBACK")).await, Ok(Ok(()))) {
        connection.give_back();
    }
}

/// The status of a transaction according to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    InProgress,
    Committed,
    Aborted,
}

async fn status(connection: &Connection, id: &str) -> Result<Option<Status>, Failure> {
    let rows = connection.query(COMMIT, include_str!("transaction_status.sql"), &[(&id, Type::TEXT)]).await?;
    let row = rows.first().ok_or_else(|| error::no_row(COMMIT))?;
    Ok(match row::transaction_status(row, COMMIT)? {
        Some("in progress") => Some(Status::InProgress),
        Some("committed") => Some(Status::Committed),
        Some("aborted") => Some(Status::Aborted),
        _ => None,
    })
}

fn judge(status: Option<Status>) -> Result<(), Error> {
    match status {
        Some(Status::Aborted) => Ok(()),
        Some(Status::Committed) => Err(ended_by_the_handler()),
        Some(Status::InProgress) | None => Err(not_known()),
    }
}

/// Returns the error of a transaction that its handler has ended, so that its writes may be committed.
pub(super) fn ended_by_the_handler() -> Error {
    let message = "the handler has ended the transaction itself, so it is not known which of its writes are committed; \
                   take `COMMIT`, `ROLLBACK` and `BEGIN` out of its statements";
    Error::new(ErrorKind::Transaction, ErrorStatus::Ambiguous, COMMIT, message)
}

/// Returns the error of a transaction whose state could not be determined, because the handler may have committed it
/// before.
fn not_known() -> Error {
    let message = "PostgreSQL did not confirm in time that the transaction was rolled back; it was, unless the handler has \
                   sent `COMMIT` itself";
    Error::new(ErrorKind::Transaction, ErrorStatus::Ambiguous, COMMIT, message)
}
