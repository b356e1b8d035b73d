//! Creates the tables, deletes expired records, and finds abandoned claims.

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
    clock::Timestamp,
    error::{Error, ErrorKind, ErrorStatus},
    record::KeyHash,
    store::ResultData,
};

/// Lets one migration run at a time: of two that create a table concurrently both may fail, even with `IF NOT EXISTS`.
const ADVISORY_LOCK: i64 = 0x6f6e_6365_5f70_6731;

/// How long [`warm_up`](crate::Store::warm_up) waits for the server's answers.
const WARM_TIMEOUT: Duration = Duration::from_secs(3);

/// How many pages of the table one statement of [`PostgresStore::abandoned`] reads: a quarter of a second at 125 MB/s.
const PAGES: usize = 4_096;

/// A claim that ended without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abandoned {
    /// The operation.
    pub key: KeyHash,
    /// How often the record was granted.
    pub attempt: u64,
    /// When the lease ended; [`Timestamp::EPOCH`] if the claim was handed back.
    pub lease_until: Timestamp,
}

impl PostgresStore {
    /// Creates the tables of records and marks, with their indexes, where they are missing. A table that exists with its index
    /// stays as it is. Repeated and concurrent calls are safe: one waits for the other.
    ///
    /// The role needs `CREATE` on the schema, which a function's role should not have. Call this during deployment, or run the
    /// statements in [`schema`](Self::schema) with a migration tool.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL; [`ErrorKind::Timeout`] if another migration takes longer than `lock_timeout`.
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

    /// The statements that create the tables and their indexes.
    pub fn schema(&self) -> &str {
        &self.statements.schema
    }

    /// Deletes expired records of the table and then expired marks, in every scope, up to `limit` of both together, and returns
    /// their number. It skips locked rows, so it never waits for a lock. Repeat it until it returns less than `limit`.
    ///
    /// It reads and deletes only what expired on days (UTC) that are over: a record stays for up to a day after it has expired.
    /// What has expired counts as absent in any case: this only frees storage.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL.
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

    /// Returns up to `limit` claims of this scope whose leases ended more than `older_than` ago without an outcome, and which
    /// have not been taken over. They are sorted by the end of the lease.
    ///
    /// Use it for an alarm, or to find operations that are blocked under
    /// [`AfterUnknown::Refuse`](crate::AfterUnknown::Refuse). It reads the whole table, 4,096 pages (32 MiB) in each statement, so that
    /// `statement_timeout` applies to that part. A call that is dropped stops after the current one.
    ///
    /// # Errors
    ///
    /// Those of PostgreSQL.
    pub async fn abandoned(&self, older_than: Duration, limit: u32) -> Result<Vec<Abandoned>, Error> {
        let connection = self.connections.get().await?;
        let found = self.abandoned_on(&connection, older_than, limit).await;
        connection.give_back();
        found.map_err(|failure| failure.error)
    }

    async fn abandoned_on(
        &self,
        connection: &Connection,
        older_than: Duration,
        limit: u32,
    ) -> Result<Vec<Abandoned>, Failure> {
        const OPERATION: &str = "abandoned";
        let [Table { name, .. }, _] = &self.statements.tables;
        let rows = connection.query(OPERATION, include_str!("pages.sql"), &[(name, Type::TEXT)]).await?;
        // Claims that are added meanwhile are not abandoned yet.
        let pages = rows.first().map_or(Ok(0), |row| row::pages(row, OPERATION))?;
        let (age, most) = (row::millis(older_than), i64::from(limit));
        let mut found: Vec<Abandoned> = Vec::new();
        for first in (0..pages).step_by(PAGES) {
            let (now, end) = (self.now(), pages.min(first.saturating_add_unsigned(PAGES as u64)));
            let parameters: [Parameter<'_>; 6] = [
                (&self.scope.as_ref(), Type::TEXT),
                (&age, Type::INT8),
                (&most, Type::INT8),
                (&now, Type::INT8),
                (&first, Type::INT8),
                (&end, Type::INT8),
            ];
            for row in connection.query(OPERATION, &self.statements.abandoned, &parameters).await? {
                let (key, lease_until) = row::key_and_lease(&row, OPERATION)?;
                found.push(Abandoned { key, attempt: row::attempt(&row, OPERATION)?, lease_until });
            }
            found.sort_by_key(|claim| claim.lease_until);
            found.truncate(limit as usize);
        }
        Ok(found)
    }

    /// Opens a connection, reads from the table, and warns of the session's settings that do harm.
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
            let message = "PostgreSQL did not answer in time";
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
        // A wait for a lock is what keeps a statement for long after its call was dropped.
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
