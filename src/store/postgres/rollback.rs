//! Rolls transactions back, and finds out whether that is what happened to them.

use std::time::Duration;

use futures_util::future::join;
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

/// How long a connection may take to answer whether it is still in its transaction, and to roll that back, before it is closed. A
/// run that is cut off has little more time than that.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(250);

/// How long to wait for the server to end the transaction of a closed connection.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(250);

/// The pause before the server is asked again whether it has.
const PAUSE: Duration = Duration::from_millis(10);

impl Begun {
    /// Rolls back, and returns the connection to the pool. If that takes long or fails, or if it is in use elsewhere, the connection is
    /// closed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Transaction`], ambiguous, unless the transaction is known to be rolled back: the handler has ended it itself, or
    /// the server did not say whether it has.
    pub(super) async fn roll_back(self, is_unshared: bool) -> Result<(), Error> {
        if is_unshared {
            if let Some(connection) = self.end().await? {
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
            Ok(_) => store.await_rollback(&id).await,
            Err(_) => Err(not_known()),
        }
    }

    /// Rolls back a transaction that only the store can send statements in. Returns the connection, if it is still usable.
    ///
    /// # Errors
    ///
    /// As of [`roll_back`](Self::roll_back).
    pub(super) async fn end(self) -> Result<Option<Connection>, Error> {
        let Self { connection, id, store } = self;
        // A message of its own, since an error in it must not keep the other from being run.
        let (asked, rolled_back) = join(
            timeout(ROLLBACK_TIMEOUT, is_within(&connection, &id, COMMIT)),
            timeout(ROLLBACK_TIMEOUT, connection.execute_all(COMMIT, "ROLLBACK")),
        )
        .await;
        let connection = Some(connection).filter(|_| matches!(rolled_back, Ok(Ok(()))));
        match (asked, connection) {
            // The server rolls back what a closed connection has begun.
            (Ok(Ok(true)), connection) => Ok(connection),
            (Ok(Ok(false)), connection) => {
                connection.into_iter().for_each(Connection::give_back);
                Err(ended_by_the_handler())
            }
            // A statement had failed in the transaction (25P02).
            (Ok(Err(_)), Some(connection)) => match timeout(ROLLBACK_TIMEOUT, status(&connection, &id)).await {
                Ok(Ok(status)) => judge(status).map(|()| Some(connection)),
                _ => Err(not_known()),
            },
            // The connection is lost.
            (Ok(Err(_)), None) => store.await_rollback(&id).await.map(|()| None),
            // A statement of the handler may still be running, and a `COMMIT` may follow it.
            (Err(_), _) => Err(not_known()),
        }
    }
}

impl PostgresStore {
    /// Waits until the server has rolled back a transaction whose connection is closed.
    async fn await_rollback(&self, id: &str) -> Result<(), Error> {
        let ended = async {
            let connection = self.connections.get().await?;
            loop {
                let status = status(&connection, id).await?;
                if status != Some(Status::InProgress) {
                    connection.give_back();
                    return Ok::<_, Failure>(status);
                }
                sleep(PAUSE).await;
            }
        };
        match timeout(CLOSE_TIMEOUT, ended).await {
            Ok(Ok(status)) => judge(status),
            _ => Err(not_known()),
        }
    }
}

/// Whether the connection is in this transaction, which the handler may have ended.
pub(super) async fn is_within(
    connection: &Connection,
    transaction: &str,
    operation: &'static str,
) -> Result<bool, Failure> {
    let rows = connection.query(operation, include_str!("transaction_id.sql"), &[]).await?;
    let row = rows.first().ok_or_else(|| error::no_row(operation))?;
    Ok(row::transaction(row, operation)? == Some(transaction))
}

/// Rolls back, and returns the connection to the pool. If that takes long or fails, the connection is closed.
pub(super) async fn roll_back(connection: Connection) {
    if matches!(timeout(ROLLBACK_TIMEOUT, connection.execute_all(COMMIT, "ROLLBACK")).await, Ok(Ok(()))) {
        connection.give_back();
    }
}

/// What the server knows of a transaction.
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

/// The error of a transaction that its handler has ended: what it wrote may be committed.
pub(super) fn ended_by_the_handler() -> Error {
    let message = "the handler has ended the transaction itself, so it is not known which of its writes are committed; \
                   take `COMMIT`, `ROLLBACK` and `BEGIN` out of its statements";
    Error::new(ErrorKind::Transaction, ErrorStatus::Ambiguous, COMMIT, message)
}

/// The error of a transaction whose state could not be asked for: the handler may have committed it before.
fn not_known() -> Error {
    let message = "PostgreSQL did not say in time whether the transaction was rolled back; it was, unless the handler has \
                   sent `COMMIT` itself";
    Error::new(ErrorKind::Transaction, ErrorStatus::Ambiguous, COMMIT, message)
}
