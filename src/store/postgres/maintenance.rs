//! Creates the tables, and deletes expired records.

use std::time::Duration;

use futures_util::future::{join, join_all};
use tokio_postgres::types::Type;

use super::{
    PostgresStore,
    connection::{Connection, Parameter},
    error::Failure,
    row::{self, Session},
    statements::Table,
};
use crate::{
    error::{Error, ErrorKind, ErrorStatus},
    record::KeyHash,
    store::ResultData,
};

/// The lock that allows one migration at a time: if two create a table concurrently, both may fail, even with
/// `IF NOT EXISTS`.
const ADVISORY_LOCK: i64 = 0x6f6e_6365_5f70_6731;

/// The maximum time that [`warm_up`](crate::Store::warm_up) waits for the server.
const WARM_TIMEOUT: Duration = Duration::from_secs(3);

impl PostgresStore {
    /// Creates the tables of records and marks, with their indexes, if they are missing. An existing table with its
    /// index is left unchanged. Repeated and concurrent calls are safe, because one waits for the other.
    ///
    /// The role needs `CREATE` on the schema, which a function's role should not have. Call this during deployment, or run the
    /// statements in [`schema`](Self::schema) with a migration tool.
    ///
    /// # Errors
    ///
    /// The errors of PostgreSQL; [`ErrorKind::Timeout`] if another migration takes longer than `lock_timeout`.
    pub async fn migrate(&self) -> Result<(), Error> {
        let connection = self.connections.get().await?;
        let done = self.migrate_on(&connection).await;
        connection.give_back();
        done.map_err(|failure| failure.error)
    }

    async fn migrate_on(&self, connection: &Connection) -> Result<(), Failure> {
        const OPERATION: &str = "migrate";
        let found = join_all(self.statements.tables.iter().map(async |Table { name, index, .. }| {
            let parameters: [Parameter<'_>; 2] = [(name, Type::TEXT), (index, Type::TEXT)];
            connection.query(OPERATION, include_str!("is_migrated.sql"), &parameters).await
        }))
        .await;
        let mut missing = String::new();
        for (table, found) in self.statements.tables.iter().zip(found) {
            if found?.is_empty() {
                missing.push_str(&table.schema);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        connection.execute_all(OPERATION, &format!("SELECT pg_advisory_xact_lock({ADVISORY_LOCK});\n{missing}")).await
    }

    /// Returns the statements that create the tables and their indexes.
    pub fn schema(&self) -> &str {
        &self.statements.schema
    }

    /// Deletes expired records of the table and then expired marks, in every scope, up to `limit` of both together, and
    /// returns their number. It skips locked rows, so it never waits for a lock. Repeat it until it returns less than
    /// `limit`.
    ///
    /// It reads and deletes only rows that expired on past days (UTC), so a record is kept for up to a day after it has
    /// expired. Expired rows count as absent in any case, so this only frees storage.
    ///
    /// # Errors
    ///
    /// The errors of PostgreSQL.
    pub async fn purge_expired(&self, limit: u32) -> Result<u64, Error> {
        let connection = self.connections.get().await?;
        let deleted = self.purge_on(&connection, u64::from(limit)).await;
        connection.give_back();
        deleted.map_err(|failure| failure.error)
    }

    async fn purge_on(&self, connection: &Connection, limit: u64) -> Result<u64, Failure> {
        let now = self.now();
        let mut deleted = 0;
        for sql in [&self.statements.purge, &self.statements.purge_marks] {
            let left = limit.saturating_sub(deleted).cast_signed();
            if left == 0 {
                break;
            }
            deleted += connection.execute("purge", sql, &[(&left as _, Type::INT8), (&now as _, Type::INT8)]).await?;
        }
        Ok(deleted)
    }

    /// Opens a connection, reads from the table, and warns of harmful settings of the session.
    pub(super) async fn warm_up(&self) -> Result<(), Error> {
        const OPERATION: &str = "warm";
        let warmed = tokio::time::timeout(WARM_TIMEOUT, async {
            let connection = self.connections.get().await?;
            let key = KeyHash::from_bytes([0; 32]);
            let keys = [key.as_bytes().as_slice()];
            let (read, settings) = join(
                self.select(&connection, &keys, ResultData::Omit, OPERATION),
                connection.query(OPERATION, include_str!("session.sql"), &[]),
            )
            .await;
            connection.give_back();
            read.and(settings).map_err(|failure| failure.error)
        });
        let settings = warmed.await.unwrap_or_else(|_| {
            let message = "PostgreSQL did not respond in time";
            Err(Error::new(ErrorKind::Timeout, ErrorStatus::Temporary, OPERATION, message))
        })?;
        if let Some(row) = settings.first() {
            warn_of(&row::session(row, OPERATION)?);
        }
        Ok(())
    }
}

fn warn_of(session: &Session<'_>) {
    if session.lock_timeout == "0" {
        tracing::warn!(
            target: "lambda_once",
            "the role has no lock_timeout: an open transaction on one record blocks whole batches for as long as it \
             lasts; ALTER ROLE … SET lock_timeout = '200ms', or `Config::lock_timeout`"
        );
        // A wait for a lock can keep a statement running long after its call was dropped.
        if session.client_connection_check_interval == "0" {
            tracing::warn!(
                target: "lambda_once",
                "the role has no client_connection_check_interval: the statements of dropped calls keep waiting, and their \
                 connections stay open; ALTER ROLE … SET client_connection_check_interval = '1s'"
            );
        }
    }
    if session.synchronous_commit == "off" {
        tracing::warn!(
            target: "lambda_once",
            "the role has synchronous_commit = off: a crash of the server loses claims and outcomes that were \
             acknowledged, and operations run again; ALTER ROLE … SET synchronous_commit = on"
        );
    }
    if session.default_transaction_isolation != "read committed" {
        tracing::warn!(
            target: "lambda_once", default_transaction_isolation = session.default_transaction_isolation,
            "conflicts between claims are errors at this isolation level; \
             ALTER ROLE … SET default_transaction_isolation = 'read committed'"
        );
    }
}
